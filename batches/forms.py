"""The forms of the pages: they read and check what was typed; what a file holds is checked by `engine/intake.py`."""

from __future__ import annotations

import io
import re
from decimal import Decimal
from typing import Any, BinaryIO, cast

from django import forms
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError

from batches import figures, selectors, sentences
from batches.models import SAMPLE_MOST, ConflictPolicy, Draft, LearnedDeadline, ProviderAccount, TakeRows, Workspace
from batches.models.accounts import LIMITS

#: Name of a table that was pasted instead of uploaded.
PASTED = "pasted.txt"
#: What a database keeps as a count; a hidden field of a forged form may say more.
COUNT_MOST = 2**31 - 1


class AccountField(forms.ModelChoiceField):
    def label_from_instance(self, account: Any) -> str:
        held = ", held" if account.health == "held" else ""
        return f"{account.name} ({figures.pace(sentences.interval_ms(account))}{held})"


def spend_cap_field() -> forms.DecimalField:
    """What `Batch.spend_cap` can hold."""
    return forms.DecimalField(min_value=0, max_digits=12, decimal_places=4, required=False, label="Spend cap")


class NewBatchForm(forms.Form):
    """A file, or a pasted table, and for whom it is. Offers only workspaces in which the user may start a batch."""

    file = forms.FileField(
        required=False,
        allow_empty_file=True,  # an empty file gets the check's own words, like every other bad file
    )
    pasted = forms.CharField(required=False, strip=False, widget=forms.Textarea)
    workspace = forms.ModelChoiceField(Workspace.objects.none(), to_field_name="slug", empty_label=None)
    account = AccountField(ProviderAccount.objects.none(), to_field_name="slug", empty_label=None)
    on_conflict = forms.ChoiceField(choices=ConflictPolicy.choices, required=False)
    name = forms.CharField(max_length=200, required=False, strip=True)

    def __init__(self, user: User, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        workspaces = selectors.writable_workspaces(user).order_by("name", "pk")
        accounts = selectors.usable_accounts(workspaces)
        self.fields["workspace"].queryset = workspaces  # type: ignore[attr-defined] # fields are typed as their base
        self.fields["account"].queryset = accounts  # type: ignore[attr-defined] # as above
        self.offers_workspaces = len(workspaces) > 1
        self.has_accounts = bool(accounts)
        default = selectors.default_account(accounts)
        self.fields["account"].initial = default.slug if default else None
        self.fields["workspace"].initial = workspaces[0].slug if workspaces else None

    def clean_name(self) -> str:
        # PostgreSQL takes no NUL, and Django's own check for it covers only some fields.
        return str(self.cleaned_data["name"]).replace("\0", "")

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        workspace, account, file = (cleaned.get(name) for name in ("workspace", "account", "file"))
        pasted = (cleaned.get("pasted") or "").strip()
        if workspace and account and account.workspace_id not in (None, workspace.pk):
            self.add_error("account", f"{account.name} cannot be used by {workspace.name}; choose another account.")
        if file and file.size > settings.MAX_UPLOAD_BYTES:
            raise ValidationError(too_large_words())
        if file is None and not pasted and not self.errors.get("pasted"):
            self.add_error("file", "Choose a file first, or paste the table below.")
        if file is not None and pasted:
            self.add_error("pasted", "Hand over one of the two: empty this box, or choose no file.")
        return cleaned

    @property
    def handed_over(self) -> tuple[BinaryIO, str]:
        """The upload, whole and seekable, and its name."""
        file = self.cleaned_data["file"]
        if file is None:
            return io.BytesIO(self.cleaned_data["pasted"].encode()), PASTED
        return cast(BinaryIO, file.file), file.name


class CorrectionForm(forms.Form):
    """A file with corrected rows, and why they are."""

    file = forms.FileField(allow_empty_file=True, error_messages={"required": "Choose the corrected file first."})
    reason = forms.CharField(max_length=500, strip=True, error_messages={"required": "Say why; it is kept."})

    def clean_file(self) -> Any:
        file = self.cleaned_data["file"]
        if file.size > settings.MAX_UPLOAD_BYTES:
            raise ValidationError(too_large_words())
        return file

    def clean_reason(self) -> str:
        return str(self.cleaned_data["reason"]).replace("\0", "")


class RunForm(forms.Form):
    """What is chosen beside the Start button. `renders` and `generation` are those that the page showed."""

    generation = forms.IntegerField(min_value=0, max_value=COUNT_MOST, widget=forms.HiddenInput, label="This page")
    renders = forms.IntegerField(min_value=0, max_value=COUNT_MOST, widget=forms.HiddenInput, label="This page")
    name = forms.CharField(max_length=200, required=False, label="Name")
    sample_size = forms.IntegerField(min_value=0, max_value=SAMPLE_MOST, required=False, label="Sample")
    stop_after_failures = forms.IntegerField(min_value=1, max_value=1_000_000, required=False, label="Failures")
    spend_cap = spend_cap_field()
    wants_notices = forms.BooleanField(required=False)
    confirmed = forms.BooleanField(required=False)


class CheckForm(forms.Form):
    """What happens to rows that are wrong, and to ids that are known with other content."""

    on_conflict = forms.ChoiceField(choices=ConflictPolicy.choices, required=False)
    take = forms.ChoiceField(choices=TakeRows.choices, required=False)


def account_for(draft: Draft, slug: str) -> ProviderAccount | None:
    """The account that was chosen for a draft, if its workspace may use it."""
    return selectors.usable_accounts([draft.workspace]).filter(slug=slug).first()


def too_large_words() -> str:
    return (
        f"The file is too large; {figures.size(settings.MAX_UPLOAD_BYTES)} are allowed. Split it into several uploads."
    )


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
    processor = forms.CharField(required=False, max_length=200, label="Processor and contract")
    data_notes = forms.CharField(
        required=False, max_length=2000, label="Notes", widget=forms.Textarea(attrs={"rows": 3})
    )
    shown = forms.CharField(max_length=40, widget=forms.HiddenInput, label="This page")
    reason = forms.CharField(required=False, max_length=500, label="Why", help_text="Kept in the audit log.")

    #: How the page groups them.
    GROUPS = (
        ("Pace", ("submit_interval_ms", "submit_burst", "submit_windows", "max_in_flight", "pace_source")),
        ("Reads and downloads", ("poll_interval_ms", "poll_initial_ms", "poll_max_ms", "download_interval_ms")),
        ("Deadline", ("deadline_seconds", "learned_deadline")),
        ("Price", ("price_per_job", "price_currency", "price_source")),
        ("Data terms", ("processing_region", "source_retention", "output_retention", "processor", "data_notes")),
    )

    def groups(self) -> list[tuple[str, list[forms.BoundField]]]:
        return [(title, [self[name] for name in names]) for title, names in self.GROUPS]

    def clean_price_currency(self) -> str:
        return str(self.cleaned_data["price_currency"]).upper()

    def columns(self) -> dict[str, Any]:
        """What was typed, by the account's columns."""
        return {name: self.cleaned_data[name] for _title, names in self.GROUPS for name in names}
