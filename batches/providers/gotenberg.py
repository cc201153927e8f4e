"""Gotenberg, which a team runs itself: HTML in, a PDF out, in the answer or by a call to our address.

It keeps nothing: no jobs, no keys, no files (2.4, 2.5, 2.7: C(G1)). So the submission's key is the job's id, and the
address of the callback ends in it; a repeat renders once more, which costs no money, and the first PDF stays. Tags
beside facts: README, "Tags of vendor facts". The form is made in `gotenberg_form.py`, what comes back is read in
`gotenberg_answers.py`.
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import BinaryIO

from batches.providers import gotenberg_answers as answers
from batches.providers import gotenberg_form, redaction
from batches.providers.base import (
    Accepted,
    AccountState,
    Capabilities,
    Deleted,
    Delivery,
    DocumentSource,
    Downloaded,
    Endpoints,
    Finished,
    Gone,
    JobStatus,
    LookedUp,
    Option,
    PreparedRequest,
    ProviderConfig,
    ProviderEvent,
    Receipts,
    Registered,
    ResultRef,
    SignatureRefused,
)
from batches.providers.errors import ContractBroken, InvalidInput, NotFound, TooLarge
from batches.providers.http import Answer, Call, HttpClient

ASYNC, SYNC = "async", "sync"
#: The largest PDF that an answer may hold. It is in memory on the way; larger ones come by the callback, to a file.
ANSWER_BYTES = 64 * 1024 * 1024
#: 2.8: C(G1): past its time limit it answers 503 within so many seconds.
HARD_STOP_SECONDS = 5
API_TIMEOUT_SECONDS = 30  # 2.8: C(G1)
EVENTS_SINCE = (8, 29)  # 2.3: C(G2, G9)

CAPABILITIES = Capabilities(
    client_key=False,  # 2.7: INFERRED G1/G2
    sources=frozenset({"html"}),
    delivery=Delivery.CALLBACK,
    billed_unit="nothing: it runs on machines of your own",  # 2.12: INFERRED
    bills=False,
    most_at_once=6,  # 2.8: C(G3, G9)
    status_poll=False,  # 2.4: C(G1, G7)
    webhook_success=True,  # 2.10: C(G2)
    webhook_failure=True,  # 2.10: C(G2, G5)
    webhook_signature=False,  # 2.10: C(G2)
    remote_delete=False,  # 2.6: there is nothing to delete, C(G1)
    cancel=False,  # 2.6: not of a job that calls back, C(G1, G9)
    # 2.7: C(G2) nothing is billed, and the first PDF of a key is the one that is kept.
    resend_is_harmless=True,
    unbilled_failure_codes=answers.MAY_PASS,
)

OPTIONS = (
    Option(
        "mode",
        "How PDFs come back",
        "By a call to this installation's public address, or in the answer to each submission.",
        choices=((ASYNC, "By a call to us"), (SYNC, "In the answer")),
        default=ASYNC,
        is_fixed=True,
    ),
    Option(
        "network",
        "What its pages may reach",
        "A document's HTML must not reach private addresses from where Gotenberg runs. Start it with "
        "CHROMIUM_ALLOW_LIST=^file:///tmp/.* (no network at all) or with CHROMIUM_DENY_PRIVATE_IPS=true, say here "
        "which, and where it stands inside your network also mark the account as rendering inside.",
        choices=(("files", "Nothing but what is sent"), ("public", "Public addresses only")),
        required=True,
    ),
    Option(
        "api_timeout",
        "The server's time limit in seconds",
        "The value of its API_TIMEOUT, which covers its queue and the render.",
        default=str(API_TIMEOUT_SECONDS),
    ),
)


class Gotenberg:
    """One Gotenberg server, or several behind one address; see `base.Provider` for what each call promises."""

    kind = "gotenberg"
    label = "Gotenberg"
    base_url = "http://localhost:3000"  # 2.1: C(G1)
    options: tuple[Option, ...] = OPTIONS
    capabilities = CAPABILITIES

    @classmethod
    def problems(cls, config: ProviderConfig) -> list[str]:
        """A mode that cannot bring PDFs back; a server whose pages may reach anything; clocks that race."""
        mode = _option(config, "mode")
        found = [
            f"{option.label} must be one of: {', '.join(value for value, _words in option.choices)}."
            for option in OPTIONS
            if option.choices and _option(config, option.name) not in {value for value, _words in option.choices}
        ]
        if mode == ASYNC and not config.callback_url:
            found.append(
                "Gotenberg would send each PDF to this installation, whose public address is not known. Set "
                "PUBLIC_URL to an address that Gotenberg can reach, or have PDFs come back in the answer."
            )
        if config.api_key and ":" not in config.api_key:
            found.append("The key is no user:password. Leave it empty where Gotenberg asks for none.")
        if not all(secret.isascii() and secret.isprintable() for secret in config.webhook_secrets):
            found.append("The webhook secret holds characters that no HTTP header can carry. Use plain ASCII.")
        limit = _api_timeout(config)
        if limit is None:
            found.append("The server's time limit must be whole seconds, such as 30.")
        elif mode == SYNC and config.read_timeout <= limit + HARD_STOP_SECONDS:
            # 2.8, I2: who gives up first must be the server, or it renders for nobody.
            found.append(
                f"We wait {config.read_timeout:g} s for an answer, and Gotenberg may take {limit} s and "
                f"{HARD_STOP_SECONDS} s more to give up, so answers would be lost. Lower its API_TIMEOUT and say so "
                f"here, or raise our read timeout above {limit + HARD_STOP_SECONDS} s."
            )
        return found

    def __init__(self, config: ProviderConfig) -> None:
        self.config = config
        self.is_async = _option(config, "mode") != SYNC
        if not self.is_async:
            self.capabilities = replace(
                CAPABILITIES, delivery=Delivery.ANSWER, webhook_success=False, webhook_failure=False
            )
        #: Longest time, in seconds, that one API call can take.
        self.call_seconds = config.connect_timeout + config.read_timeout
        self.client = HttpClient(
            connect_timeout=config.connect_timeout, read_timeout=config.read_timeout, pool_size=config.pool_size
        )

    def close(self) -> None:
        self.client.close()

    # --- calls ---------------------------------------------------------------------------------------------------

    def prepare(self, source: DocumentSource) -> PreparedRequest:
        return gotenberg_form.prepared(source)

    def submit(
        self, request: PreparedRequest, *, idempotency_key: str, now: datetime, gate: Callable[[], None]
    ) -> Accepted | Finished:
        """204 says that the form was taken, and nothing of what it holds (2.2: C(G1, G2)); 200 is the PDF."""
        headers = {
            "Content-Type": gotenberg_form.content_type_of(request.body),
            "Gotenberg-Trace": idempotency_key,  # 2.7: C(G2): comes back with all that is said about it
            "Accept-Encoding": "identity",
            **(self._callback_headers(idempotency_key) if self.is_async else {}),
        }
        call = self._call("submit", "POST", request.route, headers=headers, body=request.body, gate=gate)
        call = replace(call, secrets=(*call.secrets, idempotency_key))
        with self.client.open(call, now=now) as answer:
            if answer.status == 204 and self.is_async:
                self._check_trace(answer, idempotency_key)
                facts = answer.facts(status_word="accepted", id=redaction.masked(idempotency_key))
                return Accepted(idempotency_key, "accepted", facts)
            if answer.status == 200:
                # Also where it was to call back: a server whose webhooks are off renders at once (INFERRED G2).
                self._check_trace(answer, idempotency_key)
                content = self._pdf_in(answer)
                facts = answer.facts(status_word="rendered", id=redaction.masked(idempotency_key))
                result = ResultRef(idempotency_key, size_bytes=len(content))
                return Finished(idempotency_key, "rendered", result, facts, content=content)
            raise answers.refusal(answer, now)

    def check_account(self, *, now: datetime) -> AccountState:
        """Whether it is up (`/health`, open to all), then who we are (`/version`, behind its password): 2.1: C(G1, G5).

        Neither renders anything.
        """
        with self.client.open(self._call("account", "GET", "/health"), now=now) as answer:
            if answer.status != 200:
                raise answers.refusal(answer, now)
            answer.read_some(answers.ERROR_BYTES)
        with self.client.open(self._call("account", "GET", "/version"), now=now) as answer:
            if answer.status != 200:
                raise answers.refusal(answer, now)
            found = answers.version_in(answer.read_some(answers.VERSION_BYTES).decode("utf-8", "replace"))
            if found is None:
                raise answer.error(ContractBroken, "It answers, but names no version, so it may be no Gotenberg.")
            version, numbers = found
            if self.is_async and numbers < EVENTS_SINCE:
                raise answer.error(
                    ContractBroken,
                    f"This is Gotenberg {version}, which cannot say that a PDF failed in the way that is read here. "
                    "Update it to 8.29 or later, or have PDFs come back in the answer.",
                )
            return AccountState(
                plan=f"Gotenberg {version}", rate_tier="", exchange=answer.facts(), raw={"version": version}
            )

    def verify_webhook(
        self, headers: Mapping[str, str], body: bytes, secrets: Sequence[str], *, now: datetime
    ) -> datetime:
        """The address is the proof (2.10: C(G2): it signs nothing), and the account's secret where it has one."""
        wanted = [f"Bearer {secret}".encode() for secret in secrets if secret]
        given = next((value for name, value in headers.items() if name.lower() == "authorization"), "")
        if wanted and not any(hmac.compare_digest(given.encode("utf-8", "replace"), each) for each in wanted):
            raise SignatureRefused("It does not carry the secret that Gotenberg was given for its calls.")
        return now

    def parse_webhook(self, body: bytes) -> list[ProviderEvent]:
        return answers.events_in(body, secrets=self._secrets())

    # --- what it does not have -------------------------------------------------------------------------------------

    def start(
        self,
        provider_job_id: str,
        request: PreparedRequest,
        *,
        idempotency_key: str,
        now: datetime,
        gate: Callable[[], None],
    ) -> Accepted:
        raise NotImplementedError("Gotenberg knows no drafts")

    def fetch_status(self, provider_job_id: str, *, now: datetime) -> JobStatus:
        raise NotFound("Gotenberg keeps no jobs that could be asked for.")

    def find_submission(self, idempotency_key: str, *, first_sent_at: datetime, now: datetime) -> LookedUp | None:
        return None

    def list_receipts(self, *, now: datetime) -> Receipts | None:
        return None

    def download(self, ref: ResultRef, sink: BinaryIO, *, max_bytes: int, now: datetime) -> Downloaded:
        raise NotFound("Gotenberg keeps no files that could be fetched.")

    def delete_remote(self, ref: ResultRef, *, now: datetime) -> Deleted:
        raise NotImplementedError("Gotenberg keeps nothing that could be deleted")

    def is_gone(self, ref: ResultRef, *, now: datetime) -> Gone:
        raise NotImplementedError("Gotenberg keeps nothing that could be deleted")

    def register_webhook(self, url: str, *, now: datetime) -> Registered:
        raise NotFound("Gotenberg keeps no addresses: each submission names its own.")

    def list_webhooks(self, *, now: datetime) -> Endpoints:
        raise NotFound("Gotenberg keeps no addresses: each submission names its own.")

    def delete_webhook(self, endpoint_id: str, *, now: datetime) -> Deleted:
        raise NotFound("Gotenberg keeps no addresses: each submission names its own.")

    # --- inside ----------------------------------------------------------------------------------------------------

    def _callback_headers(self, idempotency_key: str) -> dict[str, str]:
        """2.3: C(G2, G9); 2.13: C(G7): both addresses, always, and never the older one for errors alone."""
        address = f"{self.config.callback_url}/{idempotency_key}"
        headers = {"Gotenberg-Webhook-Url": address, "Gotenberg-Webhook-Events-Url": address}
        if secret := next(iter(self.config.webhook_secrets), ""):
            extra = {"Authorization": f"Bearer {secret}"}  # 2.10: C(G2, G5)
            headers["Gotenberg-Webhook-Extra-Http-Headers"] = json.dumps(extra)
        return headers

    def _check_trace(self, answer: Answer, idempotency_key: str) -> None:
        """2.2: C(G1, G5): it is echoed. A proxy may drop it, or the server name it otherwise; another one is wrong."""
        if answer.headers.get("Gotenberg-Trace", idempotency_key) != idempotency_key:
            raise answer.error(ContractBroken, "Gotenberg answered about another document than the one that was sent.")

    def _pdf_in(self, answer: Answer) -> bytes:
        try:
            content = answer.read(ANSWER_BYTES)
        except TooLarge:
            words = f"Its PDF is larger than {ANSWER_BYTES // 1024**2} MB, which is not taken in an answer."
            raise answer.error(InvalidInput, words) from None
        if not content.startswith(b"%PDF-"):
            raise answer.error(
                ContractBroken, "The answer holds no PDF, so something else than Gotenberg may have sent it."
            )
        return content

    def _secrets(self) -> tuple[str, ...]:
        password = self.config.api_key.partition(":")[2]
        found = (self.config.api_key, password, self._basic(), self.config.callback_url, *self.config.webhook_secrets)
        return tuple(each for each in found if each)

    def _basic(self) -> str:
        return base64.b64encode(self.config.api_key.encode()).decode() if self.config.api_key else ""

    def _call(
        self,
        kind: str,
        method: str,
        route: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        gate: Callable[[], None] | None = None,
    ) -> Call:
        basic = self._basic()
        return Call(
            kind=kind,
            method=method,
            url=f"{self.config.base_url}{route}",
            route=route,
            headers={**({"Authorization": f"Basic {basic}"} if basic else {}), **(headers or {})},
            body=body,
            secrets=self._secrets(),
            seconds=self.call_seconds,
            gate=gate,
        )


def _option(config: ProviderConfig, name: str) -> str:
    return config.options.get(name) or next(option.default for option in OPTIONS if option.name == name)


def _api_timeout(config: ProviderConfig) -> int | None:
    text = _option(config, "api_timeout").removesuffix("s")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 6 else None
