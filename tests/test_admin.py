"""The admin: every model, evidence read-only, secrets never shown, nothing that bills."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django_q.models import OrmQ, Schedule, Task
from django_q.signing import SignedPackage

from batches import tokens
from batches.admin.kinds import Evidence
from batches.engine import account_changes, applying, audit, notes
from batches.models import (
    Alert,
    ApiToken,
    AuditEntry,
    Batch,
    ColumnMapping,
    Document,
    Duration,
    Exchange,
    Job,
    JobEvent,
    JobState,
    Membership,
    Notice,
    NoticeWatch,
    PacingLane,
    ProviderAccount,
    PumpSlot,
    SavedView,
    SettledCounts,
    StoreFinding,
    StoreSweep,
    Submission,
    SweepRun,
    WebhookEvent,
    WebhookRefusal,
)
from tests.engine.test_deadlines import fill as fill_durations
from tests.factories import (
    NOW,
    make_accepted_job,
    make_batch,
    make_bulk_action,
    make_bulk_action_item,
    make_deletion,
    make_draft,
    make_job,
    make_ready_export,
    make_saved_job,
    make_template_version,
)

pytestmark = pytest.mark.django_db
OURS = list(apps.get_app_config("batches").get_models())


@pytest.fixture
def rows(batch: Batch, admin_user: User) -> Job:
    """At least one row of every model."""
    return fill(batch, admin_user)


def fill(batch: Batch, admin_user: User, *, number: int = 1) -> Job:
    """A row of every model about this batch; `number` tells those apart of which there is one of each."""
    job = make_saved_job(batch=batch, business_id="<img src=x onerror=alert(1)>")
    make_job(batch=batch, state=JobState.FAILED)
    account, submission = batch.account, job.submissions.get()
    Submission.objects.filter(pk=submission.pk).update(
        provider_job_id=f"pdf_0123456789abcde{number:x}", result={"url": "https://files.example.com/secret-link"}
    )
    JobEvent.objects.create(job=job, at=NOW, from_state="pending", to_state="submitting", reason="intent")
    answer = {"body": "<script>alert(1)</script>"}
    Exchange.objects.create(account=account, job=job, kind="submit", at=NOW, duration_ms=1, status=202, response=answer)
    WebhookEvent.objects.create(
        account=account,
        body=b"{}",
        body_sha256="0" * 64,
        dedupe_key="k",
        signed_at=NOW,
        provider_job_id=f"pdf_0123456789abcde{number:x}",
    )
    Alert.objects.create(kind="internal", subject=f"job:{job.pk}", job=job, words="Look.", opened_at=NOW)
    AuditEntry.objects.create(at=NOW, actor_words="m.okoye", action="x", subject="y", workspace=batch.workspace)
    Membership.objects.create(workspace=batch.workspace, user=admin_user, role="admin")
    tokens.issue(admin_user, batch.workspace, name="t", now=NOW, lifetime=None)
    PacingLane.objects.create(account=account, lane="submit")
    PumpSlot.objects.create(number=number)
    Duration.objects.create(account=account, job=job, submission=submission, outcome="saved", at=NOW, total_seconds=2)
    StoreFinding.objects.create(kind="orphaned", storage_key=f"north/{number}", words="No row names it.", found_at=NOW)
    StoreSweep.objects.get_or_create(kind="objects")
    SweepRun.objects.create(name=f"sweep {number}", ran_at=NOW)
    WebhookRefusal.objects.create(
        account=account, hour=NOW + timedelta(hours=number), status=401, words="x", count=1, last_at=NOW
    )
    make_bulk_action_item(action=make_bulk_action(batch=batch), job=job)
    ColumnMapping.objects.create(workspace=batch.workspace, header_sha256="0" * 64, mapping={"Nr": "id"})
    make_draft(batch=batch, account=account, created_by=admin_user)
    make_ready_export(batch)
    make_template_version(workspace=batch.workspace, source="<p>{{ name }}</p>")
    make_ready_export(batch)
    SavedView.objects.create(user=admin_user, page="batches", name="Mine")
    notes.write(job.version.document, "Ask first.", by=audit.By(admin_user, "admin", ""), now=NOW)
    SettledCounts.objects.get_or_create(batch=batch, defaults={"token": "x"})
    Notice.objects.create(batch=batch, recipient=admin_user, event="finished")
    NoticeWatch.objects.create(batch=batch, looked_at=NOW)
    make_deletion(version=job.version)
    return job


def address(model: Any, page: str, *arguments: Any) -> str:
    return reverse(f"admin:batches_{model._meta.model_name}_{page}", args=arguments)


@pytest.mark.parametrize("model", OURS, ids=lambda model: model.__name__)
def test_every_model_has_a_list_and_a_page_that_open(model: Any, rows: Job, admin_client: Client) -> None:
    assert model in admin.site._registry
    assert model.objects.exists()
    assert admin_client.get(address(model, "changelist")).status_code == 200
    assert admin_client.get(address(model, "changelist"), {"q": "x"}).status_code == 200
    page = admin_client.get(address(model, "change", model.objects.first().pk))
    assert page.status_code == 200
    for secret in ("pdf_0123456789abcde1", "secret-link", "pdf_live_invented", "<img src=x", "<script>alert"):
        assert secret not in page.text


@pytest.mark.parametrize("model", OURS, ids=lambda model: model.__name__)
def test_evidence_cannot_be_added_changed_or_deleted(model: Any, rows: Job, admin_client: Client) -> None:
    registered = admin.site._registry[model]
    row = model.objects.first()
    if isinstance(registered, Evidence):
        assert admin_client.get(address(model, "add")).status_code == 403
        assert admin_client.post(address(model, "change", row.pk), {}).status_code == 403
    if model is not Membership:
        assert admin_client.post(address(model, "delete", row.pk), {"post": "yes"}).status_code == 403
    assert model.objects.filter(pk=row.pk).exists()


def test_no_deletion_and_no_resending_hides_among_the_actions(rows: Job, admin_client: Client, rf: Any) -> None:
    request = rf.get("/admin/")
    request.user = User.objects.get(username="admin")
    names = {
        name for model in OURS if model is not Membership for name in admin.site._registry[model].get_actions(request)
    }
    plans = {name for name in names if name.startswith("plan_")}
    assert names - plans == {"close", "hold", "resume", "revoke"}
    assert plans == {"plan_retry_of_failed", *(f"plan_{verb}" for verb in applying.APPLY)}


def test_the_queues_own_admin_is_gone() -> None:
    assert not [model for model in admin.site._registry if model._meta.app_label == "django_q"]


@pytest.mark.parametrize("model", list(apps.get_app_config("django_q").get_models()), ids=lambda model: model.__name__)
def test_the_queues_rows_are_out_of_reach_at_every_address(model: Any, admin_client: Client) -> None:
    """What django-q2's admin offers: to send a task again, and to delete what is queued, scheduled or recorded."""
    OrmQ.objects.create(key="batches", payload=SignedPackage.dumps({"id": "x"}), lock=NOW)
    Schedule.objects.create(func="batches.tasks.sweep", name="sweep")
    for n, success in enumerate((True, False)):
        Task.objects.create(
            id=f"{n}" * 32, name=f"t{n}", func="math.sqrt", args=(4,), started=NOW, stopped=NOW, success=success
        )
    before = [list(kind.objects.order_by("pk").values()) for kind in (OrmQ, Schedule, Task)]
    row, root = model.objects.first(), f"/admin/django_q/{model._meta.model_name}"
    assert row is not None
    for part in ("/", "/add/", f"/{row.pk}/", f"/{row.pk}/change/", f"/{row.pk}/delete/", f"/{row.pk}/history/"):
        assert admin_client.get(f"{root}{part}").status_code == 404
        for action in ("resubmit_task", "retry_failed", "delete_selected"):
            form = {"action": action, "_selected_action": [row.pk], "post": "yes", "select_across": "1"}
            assert admin_client.post(f"{root}{part}", form).status_code == 404
    assert [list(kind.objects.order_by("pk").values()) for kind in (OrmQ, Schedule, Task)] == before


def account_form(account: ProviderAccount, client: Client) -> dict[str, Any]:
    page = client.get(address(ProviderAccount, "change", account.pk))
    form = page.context["adminform"].form
    return {name: "" if value is None else value for name, value in form.initial.items() if name in form.fields}


def as_posted(form: dict[str, Any]) -> dict[str, Any]:
    return {name: json.dumps(value) if isinstance(value, (list, dict)) else value for name, value in form.items()}


def test_a_secret_field_left_empty_keeps_the_secret(account: ProviderAccount, admin_client: Client) -> None:
    form = as_posted(account_form(account, admin_client)) | {"max_in_flight": 7}
    form |= {"api_key": "", "webhook_secret": "whsec_new"}
    answer = admin_client.post(address(ProviderAccount, "change", account.pk), form)
    assert answer.status_code == 302, answer.context["adminform"].form.errors
    account.refresh_from_db()
    assert (account.max_in_flight, account.api_key, account.webhook_secret) == (7, "pdf_live_invented", "whsec_new")
    entry = AuditEntry.objects.get()
    assert entry.action == "change_account"
    assert "whsec_new" not in str(entry.facts)


def test_a_secret_that_no_key_opens_breaks_no_page_and_can_be_replaced(
    rows: Job, admin_client: Client, settings: Any
) -> None:
    account, document = ProviderAccount.objects.get(), rows.version.document
    settings.FIELD_KEYS = [Fernet.generate_key().decode()]
    batch = Batch.objects.get()
    pages = ["/", "/new/", f"/batches/{batch.public_id}/", f"/documents/{document.public_id}/"]
    models = (ProviderAccount, Batch, Job, Exchange)
    pages += [address(model, "changelist") for model in models]
    pages += [address(model, "change", model.objects.values_list("pk", flat=True)[0]) for model in models]
    for page in pages:
        assert admin_client.get(page).status_code == 200, page
    form = as_posted(account_form(account, admin_client)) | {"api_key": "pdf_live_again"}
    answer = admin_client.post(address(ProviderAccount, "change", account.pk), form)
    assert answer.status_code == 302, answer.context["adminform"].form.errors
    assert ProviderAccount.objects.only("api_key").get().api_key == "pdf_live_again"


def test_a_key_with_a_space_inside_is_refused(account: ProviderAccount, admin_client: Client) -> None:
    form = as_posted(account_form(account, admin_client)) | {"api_key": "two words", "webhook_secret": ""}
    answer = admin_client.post(address(ProviderAccount, "change", account.pk), form)
    assert answer.status_code == 200
    assert "no header may carry" in answer.text


def test_what_an_account_has_sent_is_neither_lost_nor_handed_to_another_key(
    account: ProviderAccount, admin_client: Client
) -> None:
    page = address(ProviderAccount, "change", account.pk)
    make_accepted_job(batch=make_batch(account=account))
    form = as_posted(account_form(account, admin_client)) | {"api_key": "pdf_live_another"}
    refused = admin_client.post(page, form)
    assert "is_same_account" in refused.context["adminform"].form.errors
    assert "billed a second time" in refused.text
    assert ProviderAccount.objects.get(pk=account.pk).api_key == "pdf_live_invented"
    assert admin_client.post(page, form | {"is_same_account": "on"}).status_code == 302
    assert ProviderAccount.objects.get(pk=account.pk).api_key == "pdf_live_another"


def test_what_happens_between_the_check_of_the_form_and_its_save_is_said(
    account: ProviderAccount, admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = as_posted(account_form(account, admin_client)) | {"api_key": "pdf_live_another"}
    make_accepted_job(batch=make_batch(account=account))
    monkeypatch.setattr(account_changes, "problems_of", lambda *_given, **_named: {})
    page = admin_client.post(address(ProviderAccount, "change", account.pk), form, follow=True)
    assert "Nothing was changed. 1 document of it is not finished." in page.text
    assert ProviderAccount.objects.get(pk=account.pk).api_key == "pdf_live_invented"


def test_an_address_with_a_submission_is_fixed(rows: Job, admin_client: Client) -> None:
    account = ProviderAccount.objects.get()
    form = as_posted(account_form(account, admin_client)) | {"base_url": "http://elsewhere.example.com"}
    admin_client.post(address(ProviderAccount, "change", account.pk), form)
    account.refresh_from_db()
    assert account.base_url == "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("choice", "known", "words"),
    [
        ("on", 60, "finished within 0.5 s, the slowest in 0.5 s: 2 min suggested."),
        ("suggested", 60, "2 min suggested."),
        ("suggested", 10, "that takes 50 saved documents"),
        ("off", 60, "the learned deadline is off"),
    ],
)
def test_the_suggested_deadline_is_shown_with_its_reason_and_cannot_be_typed(
    choice: str, known: int, words: str, account: ProviderAccount, admin_client: Client
) -> None:
    ProviderAccount.objects.update(learned_deadline=choice)
    fill_durations(account, [0.5] * known)
    page = admin_client.get(address(ProviderAccount, "change", account.pk))
    assert words in page.content.decode()
    assert "suggested_deadlines" not in page.context["adminform"].form.fields


def test_the_learned_deadline_is_chosen_and_a_value_that_there_is_not_is_refused(
    account: ProviderAccount, admin_client: Client
) -> None:
    form = as_posted(account_form(account, admin_client))
    for value, status, kept in (("on", 302, "on"), ("by heart", 200, "on")):
        answer = admin_client.post(address(ProviderAccount, "change", account.pk), form | {"learned_deadline": value})
        account.refresh_from_db()
        assert (answer.status_code, account.learned_deadline) == (status, kept)


def test_accounts_are_held_and_resumed_with_a_record(account: ProviderAccount, admin_client: Client) -> None:
    for action, state in (("hold", "held"), ("resume", "open")):
        admin_client.post(address(ProviderAccount, "changelist"), {"action": action, "_selected_action": [account.pk]})
        account.refresh_from_db()
        assert account.health == state
    assert list(AuditEntry.objects.order_by("pk").values_list("action", flat=True)) == [
        "hold_account",
        "resume_account",
    ]


def test_a_token_is_ended_and_its_digest_not_shown(rows: Job, admin_client: Client) -> None:
    token = ApiToken.objects.get()
    assert token.secret_sha256 not in admin_client.get(address(ApiToken, "change", token.pk)).text
    admin_client.post(address(ApiToken, "changelist"), {"action": "revoke", "_selected_action": [token.pk]})
    token.refresh_from_db()
    assert token.revoked_at is not None


def test_an_alert_is_closed_once_with_a_record_and_stays_as_it_was(rows: Job, admin_client: Client) -> None:
    alert = Alert.objects.get()
    posted = {"action": "close", "_selected_action": [alert.pk]}
    admin_client.post(address(Alert, "changelist"), posted)
    alert.refresh_from_db()
    closed_at = alert.closed_at
    assert closed_at is not None
    admin_client.post(address(Alert, "changelist"), posted)
    alert.refresh_from_db()
    assert (alert.closed_at, alert.words) == (closed_at, "Look.")
    entry = AuditEntry.objects.get(action="close_alert")
    assert (entry.actor_words, entry.workspace) == ("admin", rows.version.document.workspace)


def test_an_alert_is_not_closed_by_somebody_who_may_only_look(rows: Job, client: Client) -> None:
    person = User.objects.create_user("nadia", is_staff=True)
    person.user_permissions.add(Permission.objects.get(codename="view_alert"))
    client.force_login(person)
    alert = Alert.objects.get()
    client.post(address(Alert, "changelist"), {"action": "close", "_selected_action": [alert.pk]})
    alert.refresh_from_db()
    assert alert.closed_at is None


@pytest.mark.parametrize("model", [Job, JobEvent, Submission, Exchange, Duration], ids=lambda model: model.__name__)
def test_lists_of_what_hangs_on_a_document_name_it(model: Any, rows: Job, admin_client: Client) -> None:
    Document.objects.filter(pk=rows.version.document_id).update(business_id="INV-2026-7")
    page = admin_client.get(address(model, "changelist")).text
    assert "INV-2026-7" in page.split('id="result_list"')[1]


def test_the_list_of_jobs_shows_document_version_state_batch_account_and_change(
    batch: Batch, admin_client: Client
) -> None:
    make_job(batch=batch, business_id="INV-1")
    table = admin_client.get(address(Job, "changelist")).text.split('id="result_list"')[1]
    for shown in ("INV-1", "Waiting", batch.name, batch.account.name, "State changed at"):
        assert shown in table


def test_a_held_account_is_resumed_by_a_button_on_its_page(batch: Batch, admin_client: Client) -> None:
    account, button = batch.account, 'value="Resume: let waiting documents go on"'
    page = address(ProviderAccount, "change", account.pk)
    assert button not in admin_client.get(page).text
    ProviderAccount.objects.update(health="held", hold_reason="person", held_at=NOW, hold_words="month end")
    assert button in admin_client.get(page).text
    resume = reverse("admin:batches_provideraccount_resume", args=[account.pk])
    assert admin_client.get(resume).status_code == 405
    assert admin_client.post(resume, follow=True).redirect_chain == [(page, 302)]
    assert ProviderAccount.objects.only("health").get().health == "open"
    assert AuditEntry.objects.get().action == "resume_account"
    assert admin_client.post(reverse("admin:batches_provideraccount_resume", args=[999_999])).status_code == 404


def test_who_may_only_look_at_an_account_cannot_resume_it(batch: Batch) -> None:
    looks = User.objects.create_user("nadia", is_staff=True)
    looks.user_permissions.add(Permission.objects.get(codename="view_provideraccount"))
    ProviderAccount.objects.update(health="held", hold_reason="person", held_at=NOW, hold_words="month end")
    client = Client()
    client.force_login(looks)
    assert "Resume: let" not in client.get(address(ProviderAccount, "change", batch.account.pk)).text
    assert client.post(reverse("admin:batches_provideraccount_resume", args=[batch.account.pk])).status_code == 403
    assert ProviderAccount.objects.only("health").get().health == "held"


def test_a_person_is_given_a_role_on_their_own_page(batch: Batch, admin_client: Client) -> None:
    person, workspace = User.objects.create_user("okoye"), batch.workspace
    page = reverse("admin:auth_user_change", args=[person.pk])
    shown = admin_client.get(page).text
    assert "roles in workspaces" in shown.lower()
    assert "Viewer: sees states, counts and causes, no content" in shown
    assert "follows from the roles at the end of this page" in shown, "groups of the same names stand above them"
    form = {
        "username": "okoye",
        "memberships-TOTAL_FORMS": "1",
        "memberships-INITIAL_FORMS": "0",
        "memberships-0-user": str(person.pk),
        "memberships-0-workspace": str(workspace.pk),
        "memberships-0-role": "operator",
        "date_joined_0": "2026-10-02",
        "date_joined_1": "07:31:09",
        "is_active": "on",
    }
    assert admin_client.post(page, form).status_code == 302
    assert person.memberships.get().role == "operator"
    assert "okoye" in AuditEntry.objects.get(action="change_user").subject
    assert f"{workspace}: Operator" in admin_client.get(reverse("admin:auth_user_changelist")).text
