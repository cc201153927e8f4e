"""The forms of the pages: they read and check what was typed; what a file holds is checked by `engine/intake.py`."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError

from batches import selectors, sentences, wording
from batches.models import ConflictPolicy, ProviderAccount, Workspace


class AccountField(forms.ModelChoiceField):
    def label_from_instance(self, account: Any) -> str:
        held = ", held" if account.health == "held" else ""
        return f"{account.name} ({wording.pace(sentences.interval_ms(account))}{held})"


class NewBatchForm(forms.Form):
    """A file and what is to happen with it. Offers only workspaces in which the user may start a batch."""

    file = forms.FileField(
        allow_empty_file=True,  # an empty file gets the check's own words, like every other bad file
        error_messages={"required": "Choose a file first: a JSON or JSONL manifest, or a ZIP with its files."},
    )
    workspace = forms.ModelChoiceField(Workspace.objects.none(), to_field_name="slug", empty_label=None)
    account = AccountField(ProviderAccount.objects.none(), to_field_name="slug", empty_label=None)
    on_conflict = forms.ChoiceField(
        choices=ConflictPolicy.choices,
        initial=ConflictPolicy.REFUSE,
        widget=forms.RadioSelect,
    )
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
        if workspace and account and account.workspace_id not in (None, workspace.pk):
            self.add_error("account", f"{account.name} cannot be used by {workspace.name}; choose another account.")
        if file and file.size > settings.MAX_UPLOAD_BYTES:
            raise ValidationError(too_large_words())
        return cleaned


def too_large_words() -> str:
    return (
        f"The file is too large; {wording.size(settings.MAX_UPLOAD_BYTES)} are allowed. Split it into several uploads."
    )
