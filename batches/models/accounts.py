"""Provider accounts: our credentials at a vendor, with its limits, prices, data terms and health.

What may be sent when is decided in `engine/pacing.py` and `engine/health.py`; this file only holds the rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone

from batches.models.checks import known_values
from batches.models.fields import EncryptedTextField
from batches.models.workspaces import Workspace

#: Encrypted columns of an account. No list reads them: decrypting costs, and a key that is gone must break no page.
ACCOUNT_SECRETS = ("api_key", "webhook_secret", "webhook_secret_previous")


class ProviderKind(models.TextChoices):
    RELAYPDF = "relaypdf", "RelayPDF"
    INFRAI = "infrai", "Infrai"
    GOTENBERG = "gotenberg", "Gotenberg"
    DOCRAPTOR = "docraptor", "DocRaptor"
    PDFMONKEY = "pdfmonkey", "PDFMonkey"
    RASTERKIT = "rasterkit", "rasterkit"
    LAMBDA = "lambda", "AWS Lambda"


class AccountHealth(models.TextChoices):
    OPEN = "open", "Open"  # submissions may leave
    HELD = "held", "Held"  # no new submission leaves; accepted work goes on to saved


class HoldReason(models.TextChoices):
    """Why an account is held, and so who ends the hold."""

    AUTH = "auth", "Key refused"  # a person fixes the key and resumes
    CREDIT = "insufficient_credit", "No credit"  # a person tops up and resumes
    UNREACHABLE = "unreachable", "Not reachable"  # single probes resume it by themselves
    PERSON = "person", "Held by a person"  # the person resumes


class HoldNote(models.TextChoices):
    """What was learned during a hold and added to its words, so that it is said once and can be taken back."""

    NONE = "", "Nothing"
    NO_BALANCE = "no_balance", "No balance named"  # of a hold for credit: nothing here can see a top-up
    KEY_REFUSED = "key_refused", "Key refused too"  # of a person's hold


class LearnedDeadline(models.TextChoices):
    """What is done with the deadline that the account's own durations suggest (`engine/deadlines.py`)."""

    OFF = "off", "Off"  # deadline_seconds holds, nothing is said
    SUGGESTED = "suggested", "Suggested"  # deadline_seconds holds; the suggestion is shown with its reason
    ON = "on", "On"  # the suggestion holds once enough durations are known


#: No status read of one job comes closer to the one before than the cap allows, and no deadline is over at once.
POLL_INITIAL_MS_LEAST = 50
POLL_MAX_MS_LEAST = 250
DEADLINE_SECONDS_LEAST = 5
#: Longer than anybody means, and far from where times in the database and in Python end.
MILLISECONDS_MOST = 24 * 3600 * 1000
SECONDS_MOST = 10 * 365 * 24 * 3600
IN_FLIGHT_MOST = 100_000
BURST_MOST = 10_000
#: A lane's row holds as many of its last slots as its largest window counts, and is rewritten with each of them.
WINDOWS_MOST = 20
WINDOW_COUNT_MOST = 10_000
WINDOW_SECONDS_MOST = 31 * 24 * 3600

#: Each limit that is a whole number, with the least and the most that it may be.
LIMITS: Mapping[str, tuple[int, int]] = {
    "submit_interval_ms": (0, MILLISECONDS_MOST),
    "submit_burst": (1, BURST_MOST),
    "poll_interval_ms": (0, MILLISECONDS_MOST),
    "download_interval_ms": (0, MILLISECONDS_MOST),
    "max_in_flight": (1, IN_FLIGHT_MOST),
    "poll_initial_ms": (POLL_INITIAL_MS_LEAST, MILLISECONDS_MOST),
    "poll_max_ms": (POLL_MAX_MS_LEAST, MILLISECONDS_MOST),
    "deadline_seconds": (DEADLINE_SECONDS_LEAST, SECONDS_MOST),
    "key_retention_seconds": (0, SECONDS_MOST),
}


def within(name: str) -> list[MinValueValidator | MaxValueValidator]:
    """The validators of a limit. A column takes no number below 0 in any case."""
    least, most = LIMITS[name]
    return [MinValueValidator(least), MaxValueValidator(most)] if least else [MaxValueValidator(most)]


def sound_limit(account: ProviderAccount, name: str) -> int:
    """A limit as it can be worked with. The model refuses others, but a row may have been written past it.

    Never raises: what is no number counts as the column's default (`unreadable_limits` has its account held).
    """
    least, most = LIMITS[name]
    value = getattr(account, name)
    return max(least, min(value, most)) if isinstance(value, int) else getattr(ProviderAccount(), name)


def unreadable_limits(account: ProviderAccount) -> list[str]:
    """The limits whose value is no whole number: SQLite keeps whatever is written into a column."""
    return [name for name in LIMITS if not isinstance(getattr(account, name), int)]


def sound_windows(windows: object) -> list[tuple[int, float]]:
    """What of a row's windows can be kept, as (count, seconds) pairs; the interval holds all the same.

    What is only too large is cut: a smaller count is slower, never faster, and nobody waits for ten years.
    """
    pairs = [_window(window) for window in windows] if isinstance(windows, list) else []
    return [(min(pair[0], WINDOW_COUNT_MOST), float(min(pair[1], SECONDS_MOST))) for pair in pairs if pair is not None]


def _window(window: object) -> tuple[int, float] | None:
    """A whole count from 1 and a length in seconds above 0; None for anything else."""
    count, seconds = window if isinstance(window, list | tuple) and len(window) == 2 else (None, None)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        return None
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not seconds > 0:
        return None
    return count, seconds


def pace_seconds(account: ProviderAccount, count: int) -> float:
    """Seconds that an account needs to send this many documents; its slowest limit decides."""
    after_the_first = max(0, count - sound_limit(account, "submit_burst"))
    limits = [after_the_first * sound_limit(account, "submit_interval_ms") / 1000]
    limits += [max(0, count - most) / most * seconds for most, seconds in sound_windows(account.submit_windows)]
    return max(limits)


def validate_windows(windows: object) -> None:
    """Windows are pairs of a whole count from 1 and a length in seconds above 0, neither too large."""
    if not isinstance(windows, list):
        raise ValidationError("Give a list of [count, seconds] pairs, such as [[20, 60], [5, 10]].")
    if len(windows) > WINDOWS_MOST:
        raise ValidationError(f"Give at most {WINDOWS_MOST} windows.")
    for window in windows:
        pair = _window(window)
        if pair is None:
            raise ValidationError(f"{window!r} is no window: give [count, seconds], such as [20, 60], both above 0.")
        if pair[0] > WINDOW_COUNT_MOST or pair[1] > WINDOW_SECONDS_MOST:
            raise ValidationError(
                f"{window!r} is too large: a window counts at most {WINDOW_COUNT_MOST:,} in at most "
                f"{WINDOW_SECONDS_MOST:,} seconds."
            )


_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?", re.IGNORECASE)


def sound_hosts(hosts: object) -> list[str]:
    """What of a row's hosts can be kept. The model refuses others, but a row may have been written past it."""
    found = hosts if isinstance(hosts, list) else []
    return [host for host in found if isinstance(host, str) and _HOST.fullmatch(host)]


def validate_hosts(hosts: object) -> None:
    """Hosts are names, each with a port or without, and neither scheme nor path."""
    if not isinstance(hosts, list):
        raise ValidationError('Give a list of host names, such as ["files.example.com"].')
    for host in hosts:
        if not sound_hosts([host]):
            raise ValidationError(f"{host!r} is no host name: give one such as files.example.com, without https://.")


class ProviderAccount(models.Model):
    """One account at one vendor. Archived, never deleted; its base URL is fixed once it has a submission."""

    workspace = models.ForeignKey(
        Workspace,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="provider_accounts",
        help_text="Empty: every workspace may use it.",
    )
    slug = models.SlugField(max_length=60)
    name = models.CharField(max_length=200)
    kind = models.CharField(max_length=30, choices=ProviderKind.choices, default=ProviderKind.RELAYPDF)
    base_url = models.CharField(max_length=300)
    api_key = EncryptedTextField(blank=True, default="")
    webhook_secret = EncryptedTextField(blank=True, default="")
    webhook_secret_previous = EncryptedTextField(blank=True, default="", help_text="Still accepted while rotating.")
    webhook_id = models.CharField(
        max_length=200, blank=True, default="", help_text="The provider's name for our address, once registered there."
    )
    webhook_url = models.CharField(max_length=300, blank=True, default="", help_text="The address that is registered.")
    webhook_registered_at = models.DateTimeField(null=True, blank=True)
    webhook_rotated_at = models.DateTimeField(
        null=True, blank=True, help_text="Since when the previous secret is accepted only for what is under way."
    )
    download_hosts = models.JSONField(
        default=list,
        blank=True,
        validators=[validate_hosts],
        help_text="Hosts, beside the base URL's, from which a finished PDF may be fetched.",
    )

    options = models.JSONField(
        default=dict, blank=True, help_text="Settings that only this kind of provider has, by name."
    )

    submit_interval_ms = models.PositiveIntegerField(
        default=3000,
        validators=within("submit_interval_ms"),
        help_text="Least time between two submissions, in milliseconds.",
    )
    submit_burst = models.PositiveIntegerField(
        default=1,
        validators=within("submit_burst"),
        help_text="How many may leave at once after a quiet time.",
    )
    submit_windows = models.JSONField(
        default=list,
        blank=True,
        validators=[validate_windows],
        help_text="Further limits as [count, seconds] pairs, e.g. [[20, 60], [5, 10]].",
    )
    poll_interval_ms = models.PositiveIntegerField(
        default=20,
        validators=within("poll_interval_ms"),
        help_text="Least time between two status reads, in milliseconds.",
    )
    download_interval_ms = models.PositiveIntegerField(
        default=0,
        validators=within("download_interval_ms"),
        help_text="Least time between two downloads, in milliseconds; 0: as fast as they come.",
    )
    pace_source = models.CharField(
        max_length=200,
        blank=True,
        default="",
        help_text="Where these limits come from, such as: free tier, 20 a minute.",
    )
    max_in_flight = models.PositiveIntegerField(
        default=20, validators=within("max_in_flight"), help_text="Most jobs at the provider at the same time."
    )
    poll_initial_ms = models.PositiveIntegerField(default=1000, validators=within("poll_initial_ms"))
    poll_max_ms = models.PositiveIntegerField(default=15000, validators=within("poll_max_ms"))
    deadline_seconds = models.PositiveIntegerField(default=1800, validators=within("deadline_seconds"))
    learned_deadline = models.CharField(
        max_length=10,
        choices=LearnedDeadline.choices,
        default=LearnedDeadline.SUGGESTED,
        help_text="Whether the deadline that earlier durations suggest is ignored, shown, or used.",
    )
    key_retention_seconds = models.PositiveIntegerField(default=3600, validators=within("key_retention_seconds"))
    key_retention_source = models.CharField(max_length=200, default="assumed")

    price_per_job = models.DecimalField(max_digits=12, decimal_places=6, null=True, blank=True)
    price_currency = models.CharField(max_length=3, blank=True, default="USD")
    price_source = models.CharField(max_length=200, blank=True, default="")
    processing_region = models.CharField(
        max_length=100, blank=True, default="", help_text="Where documents are rendered, such as: Frankfurt, EU."
    )
    source_retention = models.CharField(
        max_length=100, blank=True, default="", help_text="How long the provider keeps what is sent, such as: 1 hour."
    )
    output_retention = models.CharField(
        max_length=100, blank=True, default="", help_text="How long the provider keeps the PDF, such as: 24 hours."
    )
    processor = models.CharField(
        max_length=200, blank=True, default="", help_text="Who processes it and under which contract."
    )
    data_notes = models.TextField(blank=True, default="", help_text="What else whoever starts a batch should know.")
    delete_remote_after_save = models.BooleanField(default=False)
    renders_inside = models.BooleanField(
        default=False,
        help_text="Its renderer stands inside our network: documents that refer to private addresses or local files "
        "are refused.",
    )

    health = models.CharField(max_length=10, choices=AccountHealth.choices, default=AccountHealth.OPEN)
    hold_reason = models.CharField(max_length=30, choices=HoldReason.choices, blank=True, default="")
    hold_words = models.TextField(blank=True, default="", help_text="What happened, for staff.")
    hold_note = models.CharField(
        max_length=20,
        choices=HoldNote.choices,
        blank=True,
        default=HoldNote.NONE,
        help_text="What was added to the words since.",
    )
    held_at = models.DateTimeField(null=True, blank=True)
    probe_at = models.DateTimeField(null=True, blank=True, help_text="When the next single probe may leave.")
    transport_failure_count = models.PositiveIntegerField(
        default=0, help_text="Calls in a row that could not reach the provider."
    )
    on_probation = models.BooleanField(
        default=False, help_text="Opened on trial after a top-up: one submission at a time until one is accepted."
    )
    balance_seen = models.DecimalField(
        max_digits=20,
        decimal_places=6,
        null=True,
        blank=True,
        help_text="Balance as the provider last named it, in its own unit. Compared, never counted as money.",
    )

    created_at = models.DateTimeField(default=timezone.now)
    archived_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        permissions = [
            ("hold_account", "Can hold and release provider accounts"),
            ("manage_account", "Can change limits and settings of provider accounts"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["slug"], name="provider_account_slug_unique"),
            known_values("kind", ProviderKind, name="provider_account_kind_known"),
            known_values("health", AccountHealth, name="provider_account_health_known"),
            known_values("hold_note", HoldNote, name="provider_account_hold_note_known"),
            known_values("learned_deadline", LearnedDeadline, name="provider_account_learned_deadline_known"),
            models.CheckConstraint(
                condition=models.Q(health="open", hold_reason="", held_at__isnull=True)
                | models.Q(health="held", held_at__isnull=False, hold_reason__in=list(HoldReason.values)),
                name="provider_account_hold_has_reason",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """The waits between status reads grow from the first to the longest."""
        initial, most = self.poll_initial_ms, self.poll_max_ms
        if initial is not None and most is not None and initial > most:  # a form leaves out what it could not read
            raise ValidationError({"poll_max_ms": "poll_initial_ms is larger than poll_max_ms."})


class Lane(models.TextChoices):
    """Separate budgets at one account."""

    SUBMIT = "submit", "Submissions"
    POLL = "poll", "Status reads"
    DOWNLOAD = "download", "Downloads"


class PacingLane(models.Model):
    """The shared pace of one account and lane: one row, advanced by one guarded statement (`engine/pacing.py`).

    Times are microseconds since the epoch on the database's clock. `recent` holds the last slots that were given
    out, newest last, as many as the largest window counts.
    """

    account = models.ForeignKey(ProviderAccount, on_delete=models.PROTECT, related_name="lanes")
    lane = models.CharField(max_length=10, choices=Lane.choices)
    next_slot_us = models.BigIntegerField(default=0)
    cool_down_until_us = models.BigIntegerField(default=0)
    recent = models.JSONField(default=list)
    interval_us = models.BigIntegerField(default=0, help_text="The interval that next_slot_us was reckoned with.")
    revision = models.BigIntegerField(default=0)
    retry_tokens = models.FloatField(
        null=True, blank=True, help_text="Resends that the retry budget still allows; empty: the budget is full."
    )
    retry_tokens_at_us = models.BigIntegerField(default=0, help_text="When retry_tokens was last refilled.")
    anew = models.BigIntegerField(default=0, help_text="Submissions that went out anew after they had been refused.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["account", "lane"], name="pacing_lane_once_per_account"),
            known_values("lane", Lane, name="pacing_lane_known"),
        ]

    def __str__(self) -> str:
        return f"{self.account} {self.lane}"
