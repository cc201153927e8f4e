"""What an account of AWS Lambda is asked for, how it is read, and what of it cannot be used."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from batches.providers.aws import key_parts
from batches.providers.base import Option, ProviderConfig
from batches.providers.http import origin_of

SYNC, EVENT = "RequestResponse", "Event"
#: Our wait beyond the function's own time limit, for the way there and back (5.6: PROPOSAL).
WAY_SECONDS = 10
#: 5.3: C(A4).
LONGEST_SECONDS = 900

OPTIONS = (
    Option("function", "Function", "Its name or its ARN.", required=True, is_fixed=True),
    Option(
        "qualifier",
        "Version or alias",
        "Set one, so that a new version of the function is used from a moment that you choose. Empty is the newest.",
    ),
    Option("region", "Region", "Where the function and its bucket are, such as eu-central-1.", required=True),
    Option("bucket", "Bucket", "Where the function stores PDFs, and we fetch them.", required=True, is_fixed=True),
    Option("prefix", "Prefix in the bucket", "Before the name of each file.", default="jobs/", is_fixed=True),
    Option(
        "invocation",
        "How it is called",
        "Waiting tells of a failure at once, and only fits renders of a few seconds. Otherwise the event waits in "
        "Lambda's queue, and the bucket is looked into.",
        choices=((SYNC, "We wait for its answer"), (EVENT, "By an event that waits in a queue")),
        default=SYNC,
        is_fixed=True,
    ),
    Option(
        "timeout",
        "The function's time limit in seconds",
        "As it is set at the function itself.",
        default="10",
    ),
    Option(
        "large",
        "Documents too large for a call",
        "A call holds 6 MB, an event 1 MB. Larger ones can be put into the bucket first, for which the key also needs "
        "s3:PutObject there.",
        choices=(("refuse", "Refuse them"), ("bucket", "Put them into the bucket first")),
        default="refuse",
    ),
    Option("s3_url", "Address of S3", "Only for another service than Amazon's own. Empty is Amazon's, by region."),
)

_REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d{1,2}")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9]")
#: No name begins with a dot: "../" would be another place by the time that it is asked for.
_PREFIX = re.compile(r"([A-Za-z0-9!_*'()\-][A-Za-z0-9!_.*'()\-]*/)*")
_FUNCTION = re.compile(r"[A-Za-z0-9_.:$\-]{1,170}")
_QUALIFIER = re.compile(r"[A-Za-z0-9_$\-]{0,128}")


@dataclass(frozen=True)
class Settings:
    """An account's options as they are used. `bucket_url` has no slash at its end."""

    function: str
    qualifier: str
    region: str
    bucket: str
    prefix: str
    is_event: bool
    timeout: int
    large_by_s3: bool
    bucket_url: str

    @property
    def answer_seconds(self) -> int:
        """How long an answer may take: an event is only taken, a call is waited for."""
        return WAY_SECONDS + (0 if self.is_event else self.timeout)

    @classmethod
    def of(cls, config: ProviderConfig) -> Self:
        """Also of options that `found_problems` refuses: nothing is sent with them."""
        said = {option.name: config.options.get(option.name) or option.default for option in OPTIONS}
        return cls(
            function=said["function"],
            qualifier=said["qualifier"],
            region=said["region"],
            bucket=said["bucket"],
            prefix=said["prefix"],
            is_event=said["invocation"] == EVENT,
            timeout=_seconds(said["timeout"]) or LONGEST_SECONDS,
            large_by_s3=said["large"] == "bucket",
            bucket_url=_bucket_url(said["s3_url"], said["region"], said["bucket"]),
        )


def found_problems(config: ProviderConfig) -> list[str]:
    """What of an account's settings cannot be used, as sentences that say what to do."""
    settings = Settings.of(config)
    said = config.options.get("timeout") or "10"
    seconds = _seconds(said)
    found = []
    if not _FUNCTION.fullmatch(settings.function) or not _QUALIFIER.fullmatch(settings.qualifier):
        found.append("The function is a name such as pdf-renderer, or an ARN; its version is a number or an alias.")
    if not _REGION.fullmatch(settings.region):
        found.append(f"{settings.region!r} is no region. Name it as Amazon does, such as eu-central-1.")
    elif (host := urlsplit(config.base_url).hostname or "") and _is_amazons(host) and settings.region not in host:
        found.append(
            f"The address {host} is not in the region {settings.region}, so every call would be refused. Make it "
            f"https://lambda.{settings.region}.amazonaws.com, or correct the region."
        )
    if not _BUCKET.fullmatch(settings.bucket):
        found.append("The bucket's name has 3 to 63 small letters, digits, dots and hyphens.")
    if not _PREFIX.fullmatch(settings.prefix):
        found.append("The prefix consists of plain names that each end in a slash, such as jobs/.")
    if config.options.get("s3_url") and origin_of(config.options["s3_url"]) is None:
        found.append("The address of S3 is no http or https address. Leave it empty for Amazon's own.")
    if seconds is None:
        found.append(f"The function's time limit is whole seconds, from 1 to {LONGEST_SECONDS}.")
    elif not settings.is_event and seconds + WAY_SECONDS > config.read_timeout:
        # 5.6: I2: who gives up first must be the function, or it renders for nobody.
        found.append(
            f"We wait {config.read_timeout:g} s for an answer, and the function may take {seconds} s and its answer "
            f"{WAY_SECONDS} s more. Lower the limit at the function and here to "
            f"{max(1, int(config.read_timeout) - WAY_SECONDS)} s, or have it called by an event ({EVENT})."
        )
    if config.api_key and not key_parts(config.api_key):
        found.append(
            "The key is an access key id and its secret with a colon between, and of a session a second colon and its "
            "token. Leave it empty where the machine has a role of its own."
        )
    return found


def _seconds(value: str) -> int | None:
    number = int(value) if value.isascii() and value.isdigit() and len(value) < 5 else 0
    return number if 1 <= number <= LONGEST_SECONDS else None


def _bucket_url(s3_url: str, region: str, bucket: str) -> str:
    """With the bucket in the host's name where its certificate covers that, else in the path."""
    if s3_url:
        return f"{s3_url.rstrip('/')}/{bucket}"
    host = f"s3.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"
    return f"https://{host}/{bucket}" if "." in bucket else f"https://{bucket}.{host}"


def _is_amazons(host: str) -> bool:
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))
