"""Provider accounts in the admin: their settings, holding and resuming. A secret can be set and is never seen."""

from __future__ import annotations

from functools import partial
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html

from batches import figures, selectors, sentences
from batches.account_forms import Secret, SecretInput
from batches.admin import account_webhooks
from batches.admin.kinds import Kept
from batches.engine import account_changes, account_ties, accounts, deadlines, health, webhook_health
from batches.models import ACCOUNT_SECRETS, HoldReason, LearnedDeadline, ProviderAccount
from batches.views.access import by, record

RESUME = "batches_provideraccount_resume"
#: Those that are typed. The webhook secret of before is kept beside the new one by the engine.
SECRETS = ("api_key", "webhook_secret")
WIDE = {"class": "vTextField"}


def _options_help() -> str:
    """The options of each kind of provider, since this form has one field for all of them."""
    said = []
    for adapter in accounts.adapters().values():
        for option in adapter.options:
            values = ", ".join(value for value, _words in option.choices)
            said.append(f"{adapter.label}: “{option.name}”{f' ({values})' if values else ''}: {option.label}.")
    return " ".join(["Settings that only one kind of provider has, as a JSON object.", *said])


class AccountForm(forms.ModelForm):
    """Secrets are fields of the form and not of its model, so that none is read to show the page; those that were typed
    are set with the rest by `engine/account_changes.py`, which keeps the webhook secret of before."""

    api_key = Secret(required=False, widget=SecretInput(WIDE), help_text="Leave empty to keep what is set.")
    is_same_account = forms.BooleanField(
        required=False,
        label="The new key belongs to the same account at the provider",
        help_text="Needed while documents are not finished: with another account's key they could be billed twice.",
    )
    webhook_secret = Secret(
        required=False,
        widget=SecretInput(WIDE),
        help_text="Leave empty to keep it. The one of before stays accepted beside a new one.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "options" in self.fields:
            self.fields["options"].help_text = _options_help()

    def _post_clean(self) -> None:
        """What the model checks, then whether the account could be used safely so."""
        super()._post_clean()  # type: ignore[misc]  # Django's own step, which its stubs leave out
        if self.errors:
            return
        if self.instance.pk:
            is_same = self.cleaned_data["is_same_account"]
            found = account_changes.problems_of(self.instance.pk, self.columns(), is_same_account=is_same)
        else:
            for name, value in self.columns().items():
                setattr(self.instance, name, value)
            found = account_changes.problems_of_new(self.instance)
        for name, words in found.items():
            self.add_error(name if name in self.fields else None, words)

    def columns(self) -> dict[str, Any]:
        """What differs from what the form showed, by column, and the secrets that were typed."""
        typed = {name: self.cleaned_data[name] for name in SECRETS if self.cleaned_data[name]}
        changed = [name for name in self.changed_data if name not in (*SECRETS, "is_same_account")]
        return {name: self.cleaned_data[name] for name in changed} | typed

    class Meta:
        model = ProviderAccount
        # What the form shows is what `ProviderAccountAdmin.fieldsets` names, so a new column does not appear by itself.
        exclude = ACCOUNT_SECRETS  # noqa: DJ006 - see above


@admin.register(ProviderAccount)
class ProviderAccountAdmin(Kept):
    form = AccountForm
    list_display = ("name", "slug", "kind", "health", "hold_reason", "pace", "max_in_flight", "archived_at")
    list_filter = ("health", "kind")
    search_fields = ("name", "slug", "base_url")
    search_help_text = "Finds by part of the name, of the name in its address, or of the base URL."
    actions = ("hold", "resume")
    readonly_fields = (
        "health",
        "hold_reason",
        "hold_words",
        "held_at",
        "probe_at",
        "transport_failure_count",
        "created_at",
        "asked_to_wait",
        "secrets",
        "suggested_deadlines",
        "webhooks",
    )
    fieldsets = (
        (
            None,
            {
                "fields": (
                    "name",
                    "slug",
                    "workspace",
                    "kind",
                    "base_url",
                    "options",
                    "download_hosts",
                    "renders_inside",
                    "archived_at",
                )
            },
        ),
        (
            "Health",
            {
                "fields": (
                    "health",
                    "hold_reason",
                    "hold_words",
                    "held_at",
                    "probe_at",
                    "transport_failure_count",
                    "asked_to_wait",
                )
            },
        ),
        ("Webhooks", {"fields": ("webhooks",)}),
        ("Secrets", {"fields": ("secrets", "api_key", "is_same_account", "webhook_secret")}),
        (
            "Pace and limits",
            {
                "fields": (
                    "submit_interval_ms",
                    "submit_burst",
                    "submit_windows",
                    "pace_source",
                    "max_in_flight",
                    "poll_interval_ms",
                    "download_interval_ms",
                    "poll_initial_ms",
                    "poll_max_ms",
                    "deadline_seconds",
                    "learned_deadline",
                    "suggested_deadlines",
                    "key_retention_seconds",
                    "key_retention_source",
                )
            },
        ),
        (
            "Price and data",
            {
                "fields": (
                    "price_per_job",
                    "price_currency",
                    "price_source",
                    "processing_region",
                    "source_retention",
                    "output_retention",
                    "delete_remote_after_save",
                    "processor",
                    "data_notes",
                )
            },
        ),
    )

    @admin.display(description="pace", ordering="submit_interval_ms")
    def pace(self, account: ProviderAccount) -> str:
        return figures.pace(sentences.interval_ms(account))

    @admin.display(description="asked to wait until")
    def asked_to_wait(self, account: ProviderAccount) -> str:
        until = selectors.asked_to_wait_until(account, now=timezone.now()) if account.pk else None
        return f"{until:%Y-%m-%d %H:%M:%S} UTC: nothing new is sent before." if until else "The provider did not ask."

    @admin.display(description="suggested deadline")
    def suggested_deadlines(self, account: ProviderAccount) -> str:
        if account.learned_deadline == LearnedDeadline.OFF:
            return "None: the learned deadline is off."
        found = deadlines.suggestions(account.pk) if account.pk else {}
        least = deadlines.SAMPLES_LEAST
        return "\n".join(each.words for each in found.values()) or f"None yet: that takes {least} saved documents."

    @admin.display(description="what is set")
    def secrets(self, account: ProviderAccount) -> str:
        names = {"api_key": "API key", "webhook_secret": "webhook secret", "webhook_secret_previous": "previous one"}
        return ", ".join(words for name, words in names.items() if selectors.is_set(account, name)) or "nothing"

    @admin.display(description="webhooks")
    def webhooks(self, account: ProviderAccount) -> str:
        if not account.pk:
            return "Save the account first."
        words = webhook_health.words(webhook_health.of(account.pk))
        return format_html(
            '{} <a href="{}">Register, rotate or delete</a>',
            words,
            reverse("admin:account_webhooks", args=[account.pk]),
        )

    def get_queryset(self, request: HttpRequest) -> QuerySet[ProviderAccount]:
        return super().get_queryset(request).defer(*ACCOUNT_SECRETS)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        if obj is None:
            return self.readonly_fields
        # An address that has a submission is fixed: the same key sent elsewhere would bill again.
        fixed = ("slug", "kind", "base_url") if account_ties.is_tied(obj) else ("slug",)
        return (*self.readonly_fields, *fixed)

    def save_model(self, request: HttpRequest, obj: ProviderAccount, form: Any, change: bool) -> None:
        if not change:
            account_changes.add(obj, by=by(request), reason="", now=timezone.now())
            return
        is_same = form.cleaned_data["is_same_account"]
        who, now = by(request), timezone.now()
        account_changes.change(obj.pk, form.columns(), by=who, reason="", now=now, is_same_account=is_same)

    def changeform_view(self, request: HttpRequest, *args: Any, **given: Any) -> Any:
        """What was refused at the last moment, for what happened since the form was checked, is said above it."""
        try:
            return super().changeform_view(request, *args, **given)
        except account_changes.Refused as error:
            self.message_user(request, f"Nothing was changed. {' '.join(error.problems.values())}", messages.ERROR)
            return redirect(request.get_full_path())

    def get_urls(self) -> list[URLPattern]:
        webhooks = self.admin_site.admin_view(partial(account_webhooks.page, self))
        own = [
            path("<int:pk>/resume/", self.admin_site.admin_view(self.resume_one), name=RESUME),
            path("<int:account_id>/webhooks/", webhooks, name="account_webhooks"),
        ]
        return [*own, *super().get_urls()]

    def resume_one(self, request: HttpRequest, pk: int) -> HttpResponse:
        """The button on a held account's page."""
        account = self.get_object(request, str(pk))
        if account is None:
            raise Http404("No such account.")
        if not self.has_change_permission(request, account):
            raise PermissionDenied("Resuming an account needs the right to change it.")
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        self.resume(request, ProviderAccount.objects.defer(*ACCOUNT_SECRETS).filter(pk=pk))
        return redirect("admin:batches_provideraccount_change", pk)

    @admin.action(description="Hold: send nothing new", permissions=["change"])
    def hold(self, request: HttpRequest, accounts: QuerySet[ProviderAccount]) -> None:
        words = f"Held by {request.user.get_username()} in the admin."
        done = 0
        for account in accounts:
            if health.hold(account.pk, reason=HoldReason.PERSON, words=words, now=timezone.now()):
                record(request, "hold_account", f"account {account.slug}", account.workspace)
                done += 1
        self.message_user(request, f"{done} held, {len(accounts) - done} were held already.", messages.SUCCESS)

    @admin.action(description="Resume: let waiting documents go on", permissions=["change"])
    def resume(self, request: HttpRequest, accounts: QuerySet[ProviderAccount]) -> None:
        done = 0
        for account in accounts:
            if health.resume(account.pk, now=timezone.now()):
                record(request, "resume_account", f"account {account.slug}", account.workspace)
                done += 1
        self.message_user(request, f"{done} resumed, {len(accounts) - done} were not held.", messages.SUCCESS)
