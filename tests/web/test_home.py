"""The home page: what needs somebody, what runs, how accounts are, what to do first; and three documents to try."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from django.test import Client
from django.utils import timezone

from batches.models import Alert, Batch, BulkAction, JobState, ProviderAccount, PumpSlot, Role, Workspace
from tests.factories import (
    NOW,
    make_account,
    make_batch,
    make_bulk_action,
    make_draft,
    make_event,
    make_job,
    make_saved_job,
    make_workspace,
)
from tests.web.conftest import make_member, signed_in


def main(client: Client) -> str:
    """What stands on the page, without the bar above it."""
    return str(client.get("/").text.split("<main")[1])


def sentence(client: Client) -> str:
    found = re.search(r'<p class="sentence">([^<]*)</p>', client.get("/").text)
    assert found is not None
    return found[1]


def test_calm_is_said_with_facts(batch: Batch, operator: Client) -> None:
    make_saved_job(batch=batch)
    assert sentence(operator) == "Nothing needs you. Nothing runs."
    for seconds in (12, 4):
        make_job(batch=batch, due_at=timezone.now() - timedelta(seconds=seconds))
    assert re.fullmatch(
        r"Nothing needs you\. 1 batch runs, the oldest due document is 1[2-9] s old\.", sentence(operator)
    )


def test_what_needs_a_person_is_grouped_by_cause_over_batches_and_leads_to_a_plan(
    workspace: Workspace, operator: Client, viewer: Client
) -> None:
    for _ in range(2):
        of_one = make_batch(workspace=workspace)
        for n in range(3):
            make_job(batch=of_one, state=JobState.FAILED, failure_class="transient", failure_words=f"Away for {n} s.")
    make_job(batch=of_one, state=JobState.FAILED, failure_class="invalid_input", failure_words="Too large.")
    make_job(batch=make_batch(), state=JobState.FAILED)
    assert sentence(operator) == "7 documents need a person. Nothing runs."
    page = main(operator)
    assert page.count('class="card cause"') == 2
    assert "in 2 batches" in page
    assert "Retry these 6" in page
    assert "bills 0 to 6" in page
    assert "disabled" not in page.split("Retry these 6")[0].rpartition("<form")[2]
    assert "Ask somebody with the role Operator in " in main(viewer)
    form = page.split("Retry these 6")[0].rpartition("<form")[2]
    fields = dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', form))
    answer = operator.post("/failed/plan/", fields, follow=True)
    action = BulkAction.objects.get()
    assert (action.batch, action.plan["eligible"], action.plan["batch_count"]) == (None, 6, 2)
    assert "In 2 batches" in answer.text


def test_samples_drafts_and_actions_under_way_are_named(batch: Batch, operator: Client, okoye: Any) -> None:
    Batch.objects.filter(pk=batch.pk).update(paused_at=NOW, waits_for_release=True)
    make_job(batch=batch)
    sample = make_batch(workspace=batch.workspace, account=batch.account, sample_of=batch)
    make_job(batch=sample, due_at=timezone.now() + timedelta(days=9))
    page = main(operator)
    assert "Samples to look at" not in page, "it is not rendered yet"
    sample.items.update(cancelled_at=NOW)
    draft = make_draft(batch=batch, created_by=okoye, name="October")
    make_draft(batch=batch, name="Of somebody else")
    across = make_bulk_action(across=batch.workspace, confirmed_at=NOW, plan={"batch_count": 3})
    page = main(operator)
    assert f"/batches/{batch.public_id}/#sample" in page.split("Samples to look at")[1]
    assert f"/drafts/{draft.public_id}/" in page
    assert "Of somebody else" not in page
    assert f'<a href="/actions/{across.public_id}/">Retry in 3 batches</a>' in page
    assert sentence(operator).startswith("No document needs a person; see below what does.")


def test_accounts_tell_their_health_pace_and_last_webhook(batch: Batch, operator: Client, outsider: Client) -> None:
    ProviderAccount.objects.filter(pk=batch.account_id).update(name="Production", submit_interval_ms=3000)
    make_event(account=batch.account, at=NOW)
    make_job(batch=batch, state=JobState.ACCEPTED)
    make_account(workspace=make_workspace(), name="Not yours")
    page = main(operator)
    assert f'href="/accounts/{batch.account.slug}/">Production</a>' in page
    row = page.split("Production")[1].split("</tr>")[0]
    assert "Open" in row
    assert "one every 3 s" in row
    assert '1 <span class="muted">of 20</span>' in row
    assert "2 Mar 09:00" in row
    assert "Not yours" not in page


def test_the_first_visit_says_what_to_do_and_has_a_manifest_to_begin_with(operator: Client, viewer: Client) -> None:
    page = main(operator)
    assert "Hand it over: it is checked whole" in page
    assert "Try with 3 demo documents" not in page, "there is no sandbox account"
    assert "ask an administrator" in main(viewer)
    sample = operator.get("/sample-manifest.csv")
    assert sample["Content-Disposition"] == 'attachment; filename="sample-manifest.csv"'


def test_three_demo_documents_are_started_at_the_sandbox_once(
    operator: Client, viewer: Client, workspace: Workspace, artifact_folder: Any
) -> None:
    sandbox = make_account(slug="sandbox", name="Sandbox")
    assert "Try with 3 demo documents (sandbox, not billed)" in main(operator)
    assert viewer.post("/demo/").status_code == 403
    answer = operator.post("/demo/")
    batch = Batch.objects.get()
    assert answer.url == f"/batches/{batch.public_id}/"
    assert (batch.account, batch.items.count()) == (sandbox, 3)
    assert "Try with 3" not in main(operator)
    operator.post("/demo/")
    assert {item.intake_outcome for item in Batch.objects.latest("pk").items.all()} != {"new"}
    assert Batch.objects.latest("pk").items.values("version__job").distinct().count() == 3


def test_live_sends_only_the_parts_that_changed(batch: Batch, operator: Client) -> None:
    job = make_job(batch=batch, due_at=timezone.now() + timedelta(days=9))
    page = operator.get("/").text
    drawn = dict(re.findall(r'data-revision-name="([a-z]+)" data-revision="([0-9a-f]+)"', page))
    assert set(drawn) == {"summary", "notices", "facts"}
    assert operator.get("/live/", drawn).status_code == 204
    job.state = JobState.SAVED
    job.save()
    answer = operator.get("/live/", drawn).text
    assert 'id="facts"' in answer
    assert 'id="notices"' not in answer


def test_the_queries_do_not_grow_with_what_there_is(
    workspace: Workspace, operator: Client, django_assert_max_num_queries: Any
) -> None:
    for n in range(12):
        batch = make_batch(workspace=workspace, name=f"Run {n}")
        make_job(batch=batch, state=JobState.FAILED, failure_words=f"In its own words {'x' * n}.")
        make_job(batch=batch)
        make_account()
    for n in range(7):
        Alert.objects.create(kind="batch_stopped", subject=f"batch:{n}", batch=batch, words="Stopped.", opened_at=NOW)
    for n in range(3):
        make_saved_job(batch=make_batch(workspace=workspace, name=f"Ended {n}"))
    PumpSlot.objects.create(number=0, heartbeat_at=timezone.now())
    operator.get("/")
    with django_assert_max_num_queries(16):
        page = operator.get("/").text
    assert page.count("Run ") >= 10
    assert "Ended 2" in page


def test_many_alerts_are_cut_with_a_way_to_the_rest(batch: Batch, operator: Client, admin_client: Client) -> None:
    for n in range(7):
        job = make_job(batch=batch, state=JobState.UNKNOWN, business_id=f"INV-{n}")
        words = f"INV-{n}: Look it up."
        Alert.objects.create(kind="unknown_outcome", subject=f"job:{job.pk}", job=job, words=words, opened_at=NOW)
    page = operator.get("/").text
    assert page.count("Look it up.") == 5
    assert "INV-6: Look" not in page
    assert 'href="/batches/?state=attention">and 2 more' in page
    assert 'href="/admin/batches/alert/?closed_at__isempty=1">and 2 more' in admin_client.get("/").text


def test_a_held_account_is_told_with_what_to_do_and_only_to_whom_it_concerns(
    account: ProviderAccount, operator: Client, outsider: Client
) -> None:
    held = {"health": "held", "hold_reason": "auth", "held_at": NOW, "hold_words": "The service answered 401."}
    elsewhere = make_account(workspace=make_workspace(), name="Not yours", **held)
    ProviderAccount.objects.filter(pk=account.pk).update(**held)
    page = operator.get("/").text
    assert "The service answered 401." in page
    assert "Correct the account’s key" in page or "Correct the account&#x27;s key" in page
    assert elsewhere.name not in page


def test_open_alerts_lead_to_their_document(batch: Batch, operator: Client, outsider: Client) -> None:
    job = make_job(batch=batch, state=JobState.UNKNOWN, business_id="INV-7")
    Alert.objects.create(kind="unknown_outcome", subject=f"job:{job.pk}", job=job, words="Look it up.", opened_at=NOW)
    page = operator.get("/").text
    assert "Look it up." in page
    assert f"/documents/{job.version.document.public_id}/" in page
    assert "Look it up." not in outsider.get("/").text


def test_bulk_actions_under_way_are_named_with_their_pages(batch: Batch, operator: Client, outsider: Client) -> None:
    action = make_bulk_action(batch=batch, confirmed_at=NOW)
    make_bulk_action(batch=batch)
    make_bulk_action(batch=batch, confirmed_at=NOW, finished_at=NOW)
    page = operator.get("/").text.split("Bulk actions under way")[1].split("</ul>")[0]
    assert page.count("<li>") == 1
    assert f"/batches/{batch.public_id}/actions/{action.public_id}/" in page
    assert "Retry in" in page
    assert "Bulk actions under way" not in outsider.get("/").text


def test_the_audit_log_is_in_the_bar_of_those_who_read_it(batch: Batch, operator: Client, workspace: Workspace) -> None:
    manager = signed_in(make_member(workspace, "a.manager", Role.MANAGER))
    assert 'href="/audit/"' in manager.get("/").text
    assert 'href="/audit/"' not in operator.get("/").text
    address = f"/batches/{batch.public_id}/"
    assert f"/audit/?subject={batch.public_id}" in manager.get(address).text
    assert f"/audit/?subject={batch.public_id}" not in operator.get(address).text
