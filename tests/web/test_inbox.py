"""The webhook inbox: what events did, who sees what of them, what was refused, and a replay that may be done again."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import timedelta
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from batches.engine import inbox
from batches.models import (
    AuditEntry,
    Batch,
    Job,
    ProviderAccount,
    Role,
    WebhookEvent,
    WebhookOutcome,
    WebhookRefusal,
    Workspace,
)
from tests.factories import make_accepted_job, make_account, make_batch, make_event, make_saved_job, make_workspace
from tests.web.conftest import make_member, signed_in

SECRET = "whsec_invented"


@pytest.fixture
def account(workspace: Workspace) -> ProviderAccount:
    return make_account(slug="relaypdf", workspace=workspace, webhook_secret=SECRET)


@pytest.fixture
def batch(workspace: Workspace, account: ProviderAccount) -> Batch:
    return make_batch(workspace=workspace, account=account)


@pytest.fixture
def manager(workspace: Workspace) -> Client:
    return signed_in(make_member(workspace, "h.brandt", Role.MANAGER))


def deliver(job_id: str, *, secret: str = SECRET) -> int:
    content = json.dumps({"type": "job.completed", "data": {"jobId": job_id}}).encode()
    at = int(timezone.now().timestamp())
    proof = hmac.new(secret.encode(), b"%d." % at + content, hashlib.sha256).hexdigest()
    signed = {"RelayPDF-Signature": f"t={at},v1={proof}"}
    return Client().post("/webhooks/relaypdf", content, content_type="application/json", headers=signed).status_code


def effects(client: Client, **filters: str) -> list[str]:
    return [row.badge.label for row in client.get("/inbox/", filters).context["page"].rows]


def test_each_event_says_what_it_did_and_leads_to_its_document(batch: Batch, manager: Client) -> None:
    now = timezone.now()
    awaited = make_accepted_job(batch=batch, provider_job_id="pdf_awaited1", due_at=now + timedelta(minutes=9))
    saved = make_saved_job(batch=batch)
    late_id = saved.submissions.get().provider_job_id or ""
    assert [deliver(each) for each in ("pdf_awaited1", "pdf_awaited1", late_id, "pdf_stranger")] == [204] * 4
    assert effects(manager) == ["No document known", "Too late", "Woke a document"]
    page = manager.get("/inbox/").text
    assert awaited.version.document.business_id in page
    assert "came 1 more time (duplicate)" in page
    assert "pdf_stranger" not in page  # a provider job id opens the PDF
    assert effects(manager, effect="late") == ["Too late"]
    assert effects(manager, q="pdf_stranger") == ["No document known"]
    assert effects(manager, q=awaited.version.document.business_id) == ["Woke a document"]
    assert effects(manager, to=(now - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M")) == []
    assert "same key is used elsewhere" in manager.get("/inbox/", {"effect": "unmatched"}).text


def test_what_is_refused_is_counted_by_why_and_not_kept(
    account: ProviderAccount, manager: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "REFUSALS_COUNTED", 2)
    assert [deliver("pdf_forged", secret="another") for _ in range(4)] == [401] * 4
    refusal = WebhookRefusal.objects.get()
    assert (refusal.account, refusal.status, refusal.count) == (account, 401, 2)
    assert not WebhookEvent.objects.exists()
    page = manager.get("/inbox/").text
    assert "Bad signature, answered 401" in page
    assert "pdf_forged" not in page


def test_a_body_is_shown_to_who_may_see_its_content_and_each_look_is_written_down(
    batch: Batch, account: ProviderAccount, manager: Client, workspace: Workspace
) -> None:
    job = make_accepted_job(batch=batch, provider_job_id="pdf_secret_id_1")
    body = {"type": "job.completed", "data": {"jobId": "pdf_secret_id_1", "note": "<script>alert(1)</script>"}}
    event = make_event(account=account, provider_job_id="pdf_secret_id_1", body=json.dumps(body).encode())
    page = manager.get(f"/inbox/{event.pk}/").text
    assert "pdf_secret_id_1" not in page
    shown = manager.post(f"/inbox/{event.pk}/reveal/").text
    assert "pdf_secret_id_1" in shown
    assert "<script>alert(1)" not in shown
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.subject, entry.workspace) == ("reveal_event", f"webhook {event.pk}", workspace)
    # The same account sends for another workspace: there, and of nobody known, its body is not this manager's.
    ProviderAccount.objects.filter(pk=account.pk).update(workspace=None)
    job.version.document.workspace = make_workspace()
    job.version.document.save()
    stranger = make_event(account=account, provider_job_id="pdf_unknown")
    assert "of another workspace" in manager.get("/inbox/").text
    for pk in (event.pk, stranger.pk):
        assert manager.post(f"/inbox/{pk}/reveal/").status_code == 403
    assert AuditEntry.objects.count() == 1


def test_a_large_or_unreadable_body_is_cut_and_shown_raw(account: ProviderAccount, manager: Client) -> None:
    event = make_event(account=account, body=b"\x00\xff not json " + b"x" * 70_000)
    page = manager.post(f"/inbox/{event.pk}/reveal/")
    assert "of which the first 64 KB are shown" in page.text
    assert page.context["body"].pretty == ""
    assert len(page.context["body"].raw) <= 64 * 1024


def test_a_replay_counts_first_then_wakes_again_and_may_be_repeated(
    batch: Batch, account: ProviderAccount, manager: Client
) -> None:
    now = timezone.now()
    job = make_accepted_job(batch=batch, provider_job_id="pdf_missed", due_at=now + timedelta(minutes=9))
    missed = make_event(account=account, at=now, provider_job_id="pdf_missed", outcome=WebhookOutcome.UNMATCHED)
    make_event(account=account, at=now, provider_job_id="pdf_stranger", outcome=WebhookOutcome.UNMATCHED)
    make_event(account=account, at=now, type="credit.low", outcome=WebhookOutcome.IGNORED)
    make_event(account=account, at=now - timedelta(days=2), provider_job_id="pdf_old", outcome="unmatched")
    since = {"from": (now - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M")}
    address = f"{manager.get('/inbox/', since).context['replay_url']}"
    plan = manager.get(address).context["plan"]
    assert (plan.count, plan.waking, plan.is_cut) == (2, 1, False)
    assert Job.objects.get(pk=job.pk).due_at == job.due_at  # a plan changes nothing
    make_event(account=account, at=now, provider_job_id="pdf_later", outcome=WebhookOutcome.UNMATCHED)
    said = manager.post(address, {"up_to": plan.up_to}, follow=True).text
    assert "2 events worked through again: 1 woke a document, 0 came after its end, 1 named none" in said
    assert Job.objects.get(pk=job.pk).due_at <= timezone.now()
    missed.refresh_from_db()
    assert missed.outcome == WebhookOutcome.WOKE
    manager.post(address, {"up_to": plan.up_to})
    entries = AuditEntry.objects.filter(action="replay_events")
    assert [(each.facts["events"], each.facts["woke"]) for each in entries] == [(2, 1), (2, 1)]
    assert Job.objects.get(pk=job.pk).state == "accepted"


@pytest.mark.parametrize("bound", [{"from": "yesterday"}, {"to": "0001-01-01T00:00"}], ids=["word", "year"])
def test_a_replay_whose_times_cannot_be_read_replays_nothing(
    bound: dict[str, str], batch: Batch, account: ProviderAccount, manager: Client
) -> None:
    event = make_event(account=account, provider_job_id="pdf_1", outcome=WebhookOutcome.UNMATCHED)
    address = f"{manager.get('/inbox/').context['replay_url']}"
    assert manager.get(address).status_code == 200
    assert manager.get("/inbox/", bound).context["replay_url"] == ""
    asked = f"{address.partition('?')[0]}?{urlencode(bound)}"
    assert manager.get(asked).status_code == 404
    assert manager.post(asked, {"up_to": event.pk}).status_code == 404
    assert not AuditEntry.objects.exists()


def test_pages_go_forth_and_back_in_a_constant_number_of_queries(account: ProviderAccount, manager: Client) -> None:
    now = timezone.now()
    for number in range(103):
        make_event(account=account, at=now - timedelta(seconds=number), type=f"t{number}")
    with CaptureQueriesContext(connection) as asked:
        first = manager.get("/inbox/")
    assert len(asked) <= 15, [each["sql"][:90] for each in asked]
    second = manager.get(first.context["older"])
    third = manager.get(second.context["older"])
    assert [row.event.type for row in third.context["page"].rows] == ["t100", "t101", "t102"]
    assert third.context["older"] == ""
    back = manager.get(third.context["newer"])
    assert [row.event.pk for row in back.context["page"].rows] == [row.event.pk for row in second.context["page"].rows]
    assert manager.get("/inbox/?after=nonsense&from=never").status_code == 200


def test_without_events_it_says_that_polling_finds_everything(account: ProviderAccount, manager: Client) -> None:
    assert "No webhook has come yet" in manager.get("/inbox/").text
