"""The forms of the pages: they read and check what was typed; what a file holds is checked by `engine/intake.py`."""

from __future__ import annotations

import io
from typing import Any, BinaryIO, cast

from django import forms
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError

from batches import figures, selectors, sentences
from batches.models import SAMPLE_MOST, ConflictPolicy, Draft, ProviderAccount, TakeRows, Workspace

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
