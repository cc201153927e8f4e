"""Bulk actions: what a plan says, that it freezes its items, and who can confirm or end it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django_q.models import OrmQ

from batches import queue
from batches.actions import Chosen
from batches.engine import bulk_actions, verbs
from batches.engine.audit import By
from batches.models import (
    AuditEntry,
    Batch,
    BatchItem,
    BulkAction,
    BulkActionItem,
    FailureClass,
    ItemResult,
    Job,
    JobState,
    ProviderAccount,
    Verb,
    Workspace,
)
from tests import factories
from tests.engine import racing
from tests.factories import NOW

BY = By(None, "m.okoye", "192.0.2.7")
FAILED = Chosen(group="failed")


def plan(
    batch: Batch, verb: Verb = Verb.RETRY, chosen: Chosen = FAILED, key: str = "one click", **more: Any
) -> BulkAction:
    return bulk_actions.plan(
        batch,
        verb,
        chosen.matching(batch, reads_content=True),
        chosen_by=chosen.as_dict(),
        by=BY,
        creation_key=key,
        now=NOW,
        **more,
    )


def confirm(action: BulkAction, *, reason: str = "The service is well again.", **more: Any) -> BulkAction:
    return bulk_actions.confirm(action, by=BY, reason=reason, **{"now": NOW} | more)


def drift(action: BulkAction, batch: Batch) -> bulk_actions.Drift:
    return bulk_actions.drift(action, Chosen.of(action.filter).matching(batch, reads_content=True), now=NOW)


def fail(batch: Batch, count: int, **fields: Any) -> list[Job]:
    """Jobs that were refused on every try: what Retry is for."""
    defaults = {"state": JobState.FAILED, "failure_class": FailureClass.TRANSIENT, "failure_words": "503"}
    return [factories.make_job(batch=batch, **defaults | fields) for _ in range(count)]


def saved_meanwhile(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(
        state=JobState.SAVED, failure_class="", failure_code="", failure_words="", failure_cause=""
    )


# --- the plan ---


def test_a_plan_counts_what_is_eligible_what_is_not_and_what_it_may_bill(batch: Batch) -> None:
    ProviderAccount.objects.filter(pk=batch.account_id).update(price_per_job=Decimal("0.0013"))
    batch.refresh_from_db()
    fail(batch, 3)
    fail(batch, 2, failure_class=FailureClass.INVALID_INPUT)
    factories.make_job(batch=batch, state=JobState.UNKNOWN)
    factories.make_saved_job(batch=batch)
    action = plan(batch)
    assert {name: action.plan[name] for name in ("total", "eligible", "renders_most")} == {
        "total": 6,
        "eligible": 3,
        "renders_most": 3,
    }
    assert [(each["count"], each["words"].split(".")[0]) for each in action.plan["skipped"]] == [
        (2, "The provider refuses this content as it is"),
        (1, "The provider may no longer recognise a repeat of it, so sending it could bill a second time"),
    ]
    assert Decimal(action.plan["estimate"]) == Decimal("0.0039")
    assert bulk_actions.counts(action.pk) == {"waiting": 3, "done": 0, "skipped": 3, "failed": 0, "aborted": 0}
    skipped = action.items.filter(result=ItemResult.SKIPPED)
    assert all(item.words and item.at == NOW for item in skipped)
    assert list(action.items.values_list("position", flat=True)) == [0, 1, 2, 3, 4, 5]


def test_without_a_price_there_is_no_estimate(batch: Batch) -> None:
    fail(batch, 1)
    assert plan(batch).plan["estimate"] is None


def test_what_was_chosen_is_the_filter_of_the_page_and_no_other(batch: Batch) -> None:
    late = fail(batch, 2, failure_code="E1")
    fail(batch, 1, failure_code="E2")
    action = plan(batch, chosen=Chosen(group="failed", q="E1"))
    assert set(action.items.values_list("version", flat=True)) == {job.version_id for job in late}
    assert action.filter == {"state": "failed", "q": "E1"}


@pytest.mark.parametrize("chosen", [Chosen(), Chosen.of({}), Chosen.of({"state": "tired", "cause": "transient:"})])
def test_an_empty_filter_is_an_error(batch: Batch, chosen: Chosen) -> None:
    fail(batch, 1)
    with pytest.raises(bulk_actions.Refused, match="Choose a state, a cause or a search"):
        plan(batch, chosen=chosen)
    assert not BulkAction.objects.exists()


def test_all_documents_can_be_meant_when_that_is_said(batch: Batch) -> None:
    fail(batch, 1)
    factories.make_saved_job(batch=batch)
    action = plan(batch, chosen=Chosen(is_everything=True))
    assert action.plan["total"] == 2
    assert action.filter == {"everything": "1"}


def test_a_filter_that_matches_nothing_is_an_error(batch: Batch) -> None:
    factories.make_saved_job(batch=batch)
    with pytest.raises(bulk_actions.Refused, match="No document matches"):
        plan(batch)


def test_ticked_rows_are_those_rows_of_that_batch(batch: Batch) -> None:
    fail(batch, 3)
    fail(factories.make_batch(workspace=batch.workspace), 3)
    action = plan(batch, chosen=Chosen(rows=(0, 2, 77)))
    assert list(action.items.values_list("item__position", "item__batch")) == [(0, batch.pk), (2, batch.pk)]


def test_the_same_key_makes_one_action(batch: Batch) -> None:
    fail(batch, 2)
    first = plan(batch)
    assert plan(batch).pk == first.pk
    assert plan(batch, key="another click").pk != first.pk


@pytest.mark.django_db(transaction=True)
def test_two_clicks_at_the_same_moment_make_one_action() -> None:
    batch = factories.make_batch()
    fail(batch, 5)
    found = racing.answers([lambda: plan(batch).pk] * 3)
    assert len(set(found)) == 1
    assert BulkActionItem.objects.count() == 5


def test_a_plan_asks_a_constant_number_of_queries_for_each_thousand(batch: Batch) -> None:
    def queries(count: int, key: str) -> int:
        fail(batch, count)
        with CaptureQueriesContext(
            connection,
        ) as seen:
            plan(batch, key=key)
        return len(seen)

    assert queries(3, "a") == queries(40, "b")


def test_offers_say_what_a_plan_would(batch: Batch) -> None:
    fail(batch, 3)
    fail(batch, 2, failure_class=FailureClass.INVALID_INPUT)
    factories.make_job(batch=batch, state=JobState.EXPIRED)
    for chosen in (FAILED, Chosen(is_everything=True)):
        found = bulk_actions.offers(chosen.matching(batch, reads_content=True), 6, now=NOW)
        for verb, offer in found.items():
            planned = plan(batch, verb, chosen, key=f"{verb} {chosen}").plan
            assert (offer.count, offer.renders_most) == (planned["eligible"], planned["renders_most"]), verb
            assert offer.is_exact


def test_offers_over_very_many_never_promise_too_little(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(batch, 3)
    factories.make_job(batch=batch, state=JobState.UNKNOWN)
    factories.make_accepted_job(batch=batch)
    factories.make_saved_job(batch=batch)
    matching = Chosen(is_everything=True).matching(batch, reads_content=True)
    exact = bulk_actions.offers(matching, 6, now=NOW)
    monkeypatch.setattr(bulk_actions, "OFFERED_EXACTLY", 2)
    rough = bulk_actions.offers(matching, 6, now=NOW)
    assert not any(offer.is_exact for offer in rough.values())
    assert all(rough[verb].count >= exact[verb].count for verb in Verb)
    assert rough[Verb.RETRY].count < 6, "saved and accepted documents are no offer to retry"


# --- drift and confirming ---


def test_drift_tells_what_fell_out_and_what_joined(batch: Batch) -> None:
    jobs = fail(batch, 4)
    action = plan(batch)
    saved_meanwhile(jobs[0])
    BatchItem.objects.filter(version=jobs[1].version).update(cancelled_at=NOW)
    fail(batch, 2)
    found = drift(action, batch)
    assert (found.eligible, found.renders_most, found.joined) == (2, 2, 2)
    assert dict(found.fell_out) == {"It is saved.": 1, "It is cancelled in this batch; reopen it first.": 1}


def test_an_item_with_another_version_by_now_fell_out(batch: Batch) -> None:
    job = fail(batch, 1)[0]
    action = plan(batch, Verb.DISMISS)
    version = factories.make_version(workspace=batch.workspace, business_id=job.version.document.business_id)
    factories.Job.objects.create(
        version=version, account=batch.account, state=JobState.FAILED, failure_class="internal"
    )
    BatchItem.objects.filter(version=job.version).update(version=version)
    assert dict(drift(action, batch).fell_out) == {bulk_actions.REPLACED: 1}


def test_without_changes_there_is_no_drift(batch: Batch) -> None:
    fail(batch, 2)
    found = drift(plan(batch), batch)
    assert (found.eligible, found.fell_out_count, found.joined) == (2, 0, 0)


def test_confirming_is_written_down_and_rings_a_worker(batch: Batch) -> None:
    fail(batch, 2)
    action = confirm(plan(batch))
    assert (action.confirmed_at, action.reason) == (NOW, "The service is well again.")
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.subject) == ("confirm_bulk_action", f"bulk action {action.public_id}")
    assert (entry.actor_words, entry.from_where, entry.reason) == ("m.okoye", "192.0.2.7", "The service is well again.")
    assert entry.facts == {"verb": "retry", "batch": batch.public_id, "total": 2, "eligible": 2, "renders_most": 2}
    assert [message.func() for message in OrmQ.objects.all()] == [queue.CARRY_OUT]


def test_a_second_confirmation_changes_nothing(batch: Batch) -> None:
    fail(batch, 1)
    action = plan(batch)
    confirm(action)
    again = confirm(BulkAction.objects.get(pk=action.pk), reason="Something else.", now=NOW + timedelta(hours=1))
    stale = confirm(action, reason="Something else.", now=NOW + timedelta(hours=1))
    assert {(each.confirmed_at, each.reason) for each in (again, stale)} == {(NOW, "The service is well again.")}
    assert AuditEntry.objects.count() == OrmQ.objects.count() == 1


@pytest.mark.parametrize("verb", sorted(verbs.NEEDS_REASON))
def test_what_bills_or_gives_up_needs_a_reason(batch: Batch, verb: Verb) -> None:
    fail(batch, 1)
    factories.make_job(batch=batch)
    action = plan(batch, verb, Chosen(is_everything=True))
    with pytest.raises(bulk_actions.Refused, match="Give a reason"):
        confirm(action, reason="  ")
    assert BulkAction.objects.get().confirmed_at is None


def test_a_plan_of_yesterday_cannot_be_confirmed(batch: Batch) -> None:
    fail(batch, 1)
    action = plan(batch)
    with pytest.raises(bulk_actions.Refused, match="Plan it again"):
        confirm(action, now=NOW + timedelta(days=1))
    confirm(action, now=NOW + timedelta(hours=23))


def test_more_than_a_hundred_renders_are_typed(batch: Batch) -> None:
    jobs = fail(batch, 103)
    action = plan(batch)
    saved_meanwhile(jobs[0])
    for typed in ("", "100", "1", "retry"):
        with pytest.raises(bulk_actions.Refused, match="Type 102"):
            confirm(action, typed=typed)
    confirm(action, typed=" 102 ")
    assert BulkAction.objects.get().confirmed_at == NOW


@pytest.mark.parametrize("typed", ["103", "102"])
def test_the_number_may_be_the_planned_one_or_what_is_left_of_it(batch: Batch, typed: str) -> None:
    jobs = fail(batch, 103)
    action = plan(batch)
    saved_meanwhile(jobs[0])
    assert confirm(action, typed=typed).confirmed_at == NOW


def test_nothing_is_typed_for_what_is_free(batch: Batch) -> None:
    fail(batch, 103)
    assert confirm(plan(batch, Verb.DISMISS)).confirmed_at == NOW


def test_where_nothing_is_eligible_any_more_there_is_nothing_to_confirm(batch: Batch) -> None:
    saved_meanwhile(fail(batch, 1)[0])
    job = fail(batch, 1)[0]
    action = plan(batch)
    saved_meanwhile(job)
    with pytest.raises(bulk_actions.Refused, match="Nothing of it can be done"):
        confirm(action)


# --- aborting ---


def test_a_plan_that_is_given_up_cannot_be_confirmed(batch: Batch) -> None:
    fail(batch, 2)
    action = plan(batch)
    assert bulk_actions.abort(action, by=BY, now=NOW)
    assert not bulk_actions.abort(action, by=BY, now=NOW)
    with pytest.raises(bulk_actions.Refused, match="given up"):
        confirm(BulkAction.objects.get())
    assert bulk_actions.counts(action.pk)["aborted"] == 2
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.facts["aborted"]) == ("abort_bulk_action", 2)


def test_an_action_belongs_to_the_workspace_of_its_batch(batch: Batch, workspace: Workspace) -> None:
    fail(batch, 1)
    assert plan(batch).workspace_id == workspace.pk


@pytest.mark.parametrize("state", [JobState.SAVED, JobState.ACCEPTED])
def test_what_left_its_group_after_the_plan_is_not_regenerated(batch: Batch, state: JobState) -> None:
    job = fail(batch, 2)[0]
    action = plan(batch, Verb.REGENERATE)
    saved_meanwhile(job)
    Job.objects.filter(pk=job.pk).update(state=state, deadline_at=NOW)
    found = drift(action, batch)
    assert (found.eligible, found.renders_most, found.fell_out_count) == (1, 1, 1)
    assert "since this was planned" in next(iter(found.fell_out))


def test_what_may_bill_twice_only_since_the_plan_falls_out(batch: Batch) -> None:
    job = fail(batch, 1)[0]
    action = plan(batch, Verb.REGENERATE)
    factories.make_submission(job=job, provider_job_id="pdf_late", accepted_at=NOW, in_doubt=False)
    words = "It moved on since this was planned: Version 1 may also bill; plan it again."
    assert dict(drift(action, batch).fell_out) == {words: 1}
