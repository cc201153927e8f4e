"""The forms of provider accounts: what reaches a provider, by its kind, and the limits, prices and data terms.

They read and check what was typed; whether an account can be used safely so, and what is fixed once something was sent
through it, `engine/account_changes.py` says, for every face.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from batches.engine.accounts import Option
from batches.models import LearnedDeadline, ProviderAccount
from batches.models.accounts import LIMITS, validate_hosts

FIXED = "Fixed, since documents were sent through this account or wait to be: make a new account for another one."


def _bounds(least: Any, most: Any, unit: str = "", *, digits: int = 0) -> dict[str, str]:
    """What is said of a number that is none, too small or too large: always between what it must lie."""
    kind = f"a number with {digits} digits after the point at most" if digits else "a whole number"
    words = (
        f"Enter {kind}, from {least:,f} to {most:,f}{unit}." if digits else f"Enter {kind} from {least:,} to {most:,}."
    )
    told = ("required", "invalid", "min_value", "max_value", "max_digits", "max_decimal_places", "max_whole_digits")
    return dict.fromkeys(told, words)


class Seconds(forms.DecimalField):
    """A limit that its column keeps in milliseconds, typed and shown in seconds."""

    def __init__(self, column: str, label: str, help_text: str = "") -> None:
        least, most = (Decimal(limit) / 1000 for limit in LIMITS[column])
        super().__init__(min_value=least, max_value=most, decimal_places=3, label=label, help_text=help_text)
        self.error_messages |= _bounds(least, most, " seconds", digits=3)
        self.widget.attrs |= {"step": "any"}

    def prepare_value(self, value: Any) -> Any:
        return f"{Decimal(value) / 1000:f}" if isinstance(value, int) else value

    def clean(self, value: Any) -> int:
        return int(super().clean(value) * 1000)


class Whole(forms.IntegerField):
    def __init__(self, column: str, label: str, help_text: str = "") -> None:
        least, most = LIMITS[column]
        super().__init__(min_value=least, max_value=most, label=label, help_text=help_text)
        self.error_messages |= _bounds(least, most)


class Windows(forms.CharField):
    """Further limits of a pace, as `20 in 60, 5 in 10`: so many in so many seconds."""

    _ONE = re.compile(r"([0-9]{1,9})\s*(?:in|/)\s*([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*(?:s|seconds)?", re.IGNORECASE)

    def prepare_value(self, value: Any) -> Any:
        pairs = value if isinstance(value, list) else None
        return value if pairs is None else ", ".join(f"{count} in {seconds:g}" for count, seconds in pairs)

    def clean(self, value: Any) -> list[list[float]]:
        found = []
        for part in re.split(r"[,;\n]", super().clean(value)):
            match = self._ONE.fullmatch(part.strip())
            if part.strip() and match is None:
                raise ValidationError(f"{part.strip()!r} is no such limit. Write 20 in 60: 20 documents in 60 seconds.")
            if match is not None:
                seconds = float(match[2])
                found.append([int(match[1]), int(seconds) if seconds.is_integer() else seconds])
        return found


class AccountLimitsForm(forms.Form):
    """What is changed of an account on its page; the same is checked once more where it is written."""

    submit_interval_ms = Seconds(
        "submit_interval_ms", "Seconds between two submissions", "20 a minute is one every 3 s."
    )
    submit_burst = Whole("submit_burst", "Burst", "How many may leave at once after a quiet time.")
    submit_windows = Windows(
        required=False, max_length=400, label="Further limits", help_text="Such as 20 in 60, 5 in 10."
    )
    max_in_flight = Whole("max_in_flight", "In flight at most", "Documents at the provider at the same time.")
    pace_source = forms.CharField(
        required=False, max_length=200, label="Where these come from", help_text="Such as: free tier, 20 a minute."
    )
    poll_interval_ms = Seconds("poll_interval_ms", "Seconds between two status reads", "Of all documents together.")
    poll_initial_ms = Seconds("poll_initial_ms", "First status read after (s)", "Until durations are known.")
    poll_max_ms = Seconds("poll_max_ms", "Longest wait between reads (s)", "Of one document.")
    download_interval_ms = Seconds("download_interval_ms", "Seconds between two downloads", "0: as fast as they come.")
    deadline_seconds = Whole(
        "deadline_seconds",
        "Deadline in seconds",
        "For documents accepted from now on; what is under way keeps its own.",
    )
    learned_deadline = forms.ChoiceField(choices=LearnedDeadline.choices, label="Learned deadline")
    price_per_job = forms.DecimalField(
        required=False,
        min_value=0,
        max_digits=12,
        decimal_places=6,
        label="Price of a document",
        error_messages=dict.fromkeys(
            ("invalid", "min_value", "max_digits", "max_decimal_places", "max_whole_digits"),
            "Enter a price from 0 to 999,999.999999, or nothing where it is not known.",
        ),
        help_text="Empty: not known.",
    )
    price_currency = forms.CharField(required=False, max_length=3, label="Currency", help_text="Such as USD.")
    price_source = forms.CharField(required=False, max_length=200, label="Where the price comes from")
    processing_region = forms.CharField(
        required=False, max_length=100, label="Rendered in", help_text="Such as: Frankfurt, EU."
    )
    source_retention = forms.CharField(
        required=False, max_length=100, label="Content kept there for", help_text="Such as: 1 hour."
    )
    output_retention = forms.CharField(
        required=False, max_length=100, label="PDF kept there for", help_text="Such as: 24 hours."
    )
    delete_remote_after_save = forms.TypedChoiceField(
        choices=((False, "No"), (True, "Yes")),
        coerce=lambda value: value == "True",
        label="Delete there after saving",
        help_text="Once a PDF is stored and verified here; only where the provider offers it.",
    )
    processor = forms.CharField(required=False, max_length=200, label="Processor and contract")
    data_notes = forms.CharField(
        required=False, max_length=2000, label="Notes", widget=forms.Textarea(attrs={"rows": 3})
    )
    shown = forms.CharField(max_length=40, widget=forms.HiddenInput, label="This page")
    reason = forms.CharField(required=False, max_length=500, label="Why", help_text="Kept in the audit log.")

    GROUPS = (
        ("Pace", ("submit_interval_ms", "submit_burst", "submit_windows", "max_in_flight", "pace_source")),
        ("Reads and downloads", ("poll_interval_ms", "poll_initial_ms", "poll_max_ms", "download_interval_ms")),
        ("Deadline", ("deadline_seconds", "learned_deadline")),
        ("Price", ("price_per_job", "price_currency", "price_source")),
        (
            "Data terms",
            (
                "processing_region",
                "source_retention",
                "output_retention",
                "delete_remote_after_save",
                "processor",
                "data_notes",
            ),
        ),
    )

    def groups(self) -> list[tuple[str, list[forms.BoundField]]]:
        """How the page groups them."""
        return [(title, [self[name] for name in names]) for title, names in self.GROUPS]

    def clean_price_currency(self) -> str:
        return str(self.cleaned_data["price_currency"]).upper()

    def columns(self) -> dict[str, Any]:
        """What was typed, by the account's columns."""
        return {name: self.cleaned_data[name] for _title, names in self.GROUPS for name in names}


class SecretInput(forms.PasswordInput):
    """An input that can be filled and never shows what is set."""

    def __init__(self, attrs: Mapping[str, Any] | None = None) -> None:
        super().__init__(render_value=False, attrs={"autocomplete": "new-password", **(attrs or {})})


class Secret(forms.CharField):
    """A secret that a header carries; empty where none was typed."""

    widget = SecretInput

    def clean(self, value: Any) -> str:
        secret = str(super().clean(value) or "")
        if any(not 33 <= ord(character) <= 126 for character in secret):
            raise ValidationError("It holds a space, a line break or a character that no header may carry.")
        return secret


class Hosts(forms.CharField):
    """Host names with commas between."""

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(value) if isinstance(value, list) else value

    def clean(self, value: Any) -> list[str]:
        hosts = [host.strip().lower() for host in re.split(r"[,;\s]", super().clean(value)) if host.strip()]
        validate_hosts(hosts)
        return hosts


class AccountReachForm(forms.Form):
    """How one kind of provider is reached: its address, the options that only it has, and the secrets.

    `has_events`: it may tell us of finished documents. A new account has neither; one that exists is changed within
    what `is_tied` leaves, `kept` being its stored options, and is asked whose a new key is while `unfinished` documents
    want it.
    """

    name = forms.CharField(max_length=200, label="Name")
    base_url = forms.CharField(max_length=300, label="Address", help_text="Where the provider takes documents.")
    download_hosts = Hosts(
        required=False,
        max_length=2000,
        label="Download hosts",
        help_text="Beside the address: hosts from which a finished PDF may be fetched, with commas between.",
    )
    renders_inside = forms.BooleanField(
        required=False,
        label="Its renderer stands inside our network",
        help_text="Documents that refer to private addresses or local files are refused then.",
    )
    api_key = Secret(required=False, max_length=1000, label="API key")
    is_same_account = forms.BooleanField(
        required=False, label="The new key belongs to the same account at the provider"
    )
    webhook_secret = Secret(required=False, max_length=1000, label="Webhook secret")
    no_webhook_secret = forms.BooleanField(required=False, label="Remove the webhook secret")

    def __init__(
        self,
        options: Sequence[Option],
        *args: Any,
        has_events: bool,
        is_tied: bool = False,
        is_new: bool = True,
        unfinished: int = 0,
        kept: Mapping[str, str] | None = None,
        secrets: Collection[str] = (),
        **given: Any,
    ) -> None:
        super().__init__(*args, **given)
        self._options, self._kept = options, kept or {}
        for option in options:
            self.fields[self._named(option)] = _option_field(option, self._kept.get(option.name, option.default))
        if is_tied:
            fixed = [self._named(option) for option in options if option.is_fixed]
            for name in ("base_url", *fixed):
                self.fields[name].disabled, self.fields[name].help_text = True, FIXED
        gone = [] if has_events or "webhook_secret" in secrets else ["webhook_secret"]
        gone += [] if "webhook_secret" in secrets else ["no_webhook_secret"]
        gone += [] if unfinished and not is_new else ["is_same_account"]
        for name in gone:
            del self.fields[name]

    @staticmethod
    def _named(option: Option) -> str:
        return f"option_{option.name}"

    def groups(self) -> list[tuple[str, list[forms.BoundField]]]:
        """How the page groups them."""
        own = [self._named(option) for option in self._options]
        grouped = (
            ("How it is reached", ("name", "base_url", "download_hosts", "renders_inside")),
            ("Settings of this kind", own),
            ("Secrets", ("api_key", "is_same_account", "webhook_secret", "no_webhook_secret")),
        )
        shown = [(title, [self[name] for name in names if name in self.fields]) for title, names in grouped]
        return [(title, fields) for title, fields in shown if fields]

    def columns(self) -> dict[str, Any]:
        """What was typed, by the account's columns; a secret only where one was."""
        given = self.cleaned_data
        columns = {name: given[name] for name in ("name", "base_url", "download_hosts", "renders_inside")}
        said = {option.name: (option, given[self._named(option)]) for option in self._options}
        columns["options"] = {
            name: value for name, (option, value) in said.items() if value != option.default or name in self._kept
        }
        columns |= {name: given[name] for name in ("api_key", "webhook_secret") if given.get(name)}
        return columns | ({"webhook_secret": ""} if given.get("no_webhook_secret") else {})

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if cleaned.get("no_webhook_secret") and cleaned.get("webhook_secret"):
            self.add_error("no_webhook_secret", "Do one of the two: type a new one, or remove it.")
        return cleaned


def _option_field(option: Option, value: str) -> forms.Field:
    said: dict[str, Any] = {"label": option.label, "help_text": option.help, "required": option.required}
    said |= {"initial": value, "error_messages": {"required": f"{option.label}: this is needed."}}
    if not option.choices:
        return forms.CharField(max_length=300, **said)
    unchosen = [] if option.default else [("", "Choose one" if option.required else "Not said")]
    return forms.ChoiceField(choices=[*unchosen, *option.choices], **said)


class NewAccountForm(forms.Form):
    """Whose a new account is, and what addresses call it. `places` are (value, name) pairs; one of them is chosen."""

    slug = forms.SlugField(max_length=60, label="Short name", help_text="In addresses and commands; it stays for good.")
    workspace = forms.ChoiceField(label="Who may use it")

    def __init__(self, places: Sequence[tuple[str, str]], *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.fields["workspace"].choices = places  # type: ignore[attr-defined] # fields are typed as their base

    def clean_slug(self) -> str:
        slug = str(self.cleaned_data["slug"])
        if ProviderAccount.objects.filter(slug=slug).exists():
            raise ValidationError("There is an account of this name already, perhaps an archived one; choose another.")
        return slug
