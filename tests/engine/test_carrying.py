"""Carrying bulk actions out: what was planned is what happens, whoever dies, aborts, or breaks on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from django_q.models import OrmQ

from batches import queue
from batches.actions import Chosen
from batches.engine import applying, bulk, bulk_actions, carrying, pumping, repairs
from batches.engine.audit import By
from batches.engine.carrying import Tally
from batches.models import (
    AuditEntry,
    Batch,
    BatchItem,
    BulkAction,
    Document,
    DocumentVersion,
    FailureClass,
    ItemResult,
    Job,
    JobEvent,
    JobState,
    Membership,
    Role,
    Verb,
    Workspace,
)
from tests import factories
from tests.engine import racing
from tests.engine.carried import EVERYTHING, Clock, carry_out, confirmed, counts, kill_at, one_of_each
from tests.engine.test_bulk_actions import BY, confirm, fail, plan, saved_meanwhile
from tests.factories import NOW
from tests.scenarios.world import PumpKilled


@pytest.mark.parametrize("verb", list(applying.APPLY))
def test_the_numbers_of_a_plan_are_those_of_the_outcome(batch: Batch, verb: Verb) -> None:
    one_of_each(batch)
    action = confirmed(batch, verb)
    planned = action.plan
    assert planned["eligible"] > 0
    assert not carry_out().is_work_left
    assert counts(action) == {"done": planned["eligible"], "skipped": planned["total"] - planned["eligible"]}
    action.refresh_from_db()
    assert action.finished_at == NOW
    assert action.lease_owner is None
    finish = AuditEntry.objects.get(action="finish_bulk_action")
    assert (finish.facts["done"], finish.facts["failed"]) == (planned["eligible"], 0)
    assert not AuditEntry.objects.exclude(action__contains="bulk_action").exists(), (
        "the action is the record of its items"
    )


def test_a_large_action_is_carried_out_in_slices_without_any_browser(batch: Batch) -> None:
    """More than one slice of the plan's reading and several groups; the filter shows no more than a page of them."""
    count = bulk.VALUES_PER_LIST + applying.ITEMS_AT_ONCE + 1
    failed_at_once(batch, count)
    action = confirmed(batch, Verb.DISMISS, Chosen(group="failed"))
    assert action.plan["eligible"] == count
    slices = 0
    while carry_out(f"worker {slices}").is_work_left:
        slices += 1
    assert counts(action) == {"done": count}
    assert BatchItem.objects.filter(batch=batch, dismissed_at=NOW).count() == count


def failed_at_once(batch: Batch, count: int) -> None:
    """As many failed documents, in a few statements."""
    names = [f"BIG-{n:05}" for n in range(count)]
    documents = Document.objects.bulk_create(
        Document(workspace=batch.workspace, public_id=f"doc_{name}", business_id=name) for name in names
    )
    versions = DocumentVersion.objects.bulk_create(
        DocumentVersion(document=each, number=1, kind="html", input_inline=b"x", input_sha256="0" * 64, input_bytes=1)
        for each in documents
    )
    Job.objects.bulk_create(
        Job(version=each, account=batch.account, state=JobState.FAILED, failure_class=FailureClass.TRANSIENT)
        for each in versions
    )
    BatchItem.objects.bulk_create(
        BatchItem(batch=batch, position=n, document=each.document, version=each, intake_outcome="new")
        for n, each in enumerate(versions)
    )


def test_ten_that_were_saved_before_the_confirmation_are_skipped_and_named(batch: Batch) -> None:
    """Case 110: 250 documents, 230 failed; "all" acted only on those listed on the page."""
    for _ in range(20):
        factories.make_saved_job(batch=batch)
    jobs = fail(batch, 230)
    action = plan(batch, chosen=Chosen(group="failed"))
    assert (action.plan["total"], action.plan["eligible"]) == (230, 230)
    for job in jobs[:10]:
        saved_meanwhile(job)
    found = bulk_actions.drift(action, Chosen.of(action.filter).matching(batch, reads_content=True), now=NOW)
    assert (found.eligible, dict(found.fell_out)) == (220, {"It is saved.": 10})
    confirm(action, typed="220")
    carry_out()
    assert counts(action) == {"done": 220, "skipped": 10}
    assert set(action.items.filter(result=ItemResult.SKIPPED).values_list("words", flat=True)) == {"It is saved."}
    saved = Job.objects.filter(pk__in=[job.pk for job in jobs[:10]])
    assert set(saved.values_list("state", flat=True)) == {JobState.SAVED}
    assert Job.objects.filter(state=JobState.PENDING).count() == 220


def test_what_matches_only_after_the_plan_is_left_alone(batch: Batch) -> None:
    fail(batch, 2)
    action = confirmed(batch)
    later = fail(batch, 1)[0]
    carry_out()
    assert counts(action) == {"done": 2}
    later.refresh_from_db()
    assert later.state == JobState.FAILED


def test_an_item_with_another_version_by_now_is_skipped(batch: Batch) -> None:
    job = fail(batch, 1)[0]
    action = confirmed(batch, Verb.DISMISS)
    version = factories.make_version(workspace=batch.workspace, business_id=job.version.document.business_id)
    Job.objects.create(version=version, account=batch.account, state=JobState.FAILED, failure_class="internal")
    BatchItem.objects.filter(version=job.version).update(version=version)
    carry_out()
    assert list(action.items.values_list("result", "words")) == [("skipped", bulk_actions.REPLACED)]
    assert not BatchItem.objects.filter(dismissed_at__isnull=False).exists()


def test_nothing_is_done_before_a_person_confirms(batch: Batch) -> None:
    fail(batch, 1)
    action = plan(batch)
    assert carry_out() == Tally()
    assert counts(action) == {"waiting": 1}


def test_actor_and_reason_stand_in_the_history_of_each_document(batch: Batch) -> None:
    job = fail(batch, 1)[0]
    confirmed(batch)
    carry_out()
    event = JobEvent.objects.get(job=job, to_state=JobState.PENDING)
    assert event.actor == "m.okoye"
    assert "The service is well again." in event.words


# --- slices ---


def test_a_slice_ends_in_time_and_the_next_worker_goes_on(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(batch, 5)
    action = confirmed(batch)
    clock = Clock(NOW)
    monkeypatch.setattr(applying, "ITEMS_AT_ONCE", 1)
    slow_groups(monkeypatch, lambda: clock.advance(2))
    tally = carrying.carry_out(clock, owner="a worker", stopping=lambda: False)
    assert (tally.groups, tally.is_work_left) == (2, True)
    assert counts(action) == {"done": 2, "waiting": 3}
    assert carry_out("another").is_work_left is False
    assert counts(action) == {"done": 5}


def slow_groups(monkeypatch: pytest.MonkeyPatch, between: Callable[[], Any]) -> None:
    real = repairs.retry

    def retry(*given: Any, **named: Any) -> Any:
        between()
        return real(*given, **named)

    monkeypatch.setitem(applying.APPLY, Verb.RETRY, retry)  # type: ignore[arg-type]  # the table is a dict


def test_a_small_action_does_not_wait_for_the_end_of_a_large_one(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applying, "ITEMS_AT_ONCE", 2)
    fail(batch, 10)
    other = factories.make_batch(workspace=batch.workspace)
    fail(other, 1)
    large, small = confirmed(batch), confirmed(other, key="another click")
    turns = iter([False] * 4 + [True] * 9)
    carry_out(stopping=lambda: next(turns))
    assert counts(small) == {"done": 1}
    assert counts(large)["waiting"] == 6


def test_a_worker_that_is_asked_to_stop_leaves_the_rest(batch: Batch) -> None:
    fail(batch, 1)
    action = confirmed(batch)
    assert carry_out(stopping=lambda: True).is_work_left
    action.refresh_from_db()
    assert (counts(action), action.lease_owner) == ({"waiting": 1}, None)


def test_two_workers_never_have_the_same_action(batch: Batch) -> None:
    fail(batch, 2)
    action = confirmed(batch)
    BulkAction.objects.update(lease_owner="another", lease_until=NOW + timedelta(seconds=5))
    assert carry_out() == Tally()
    assert counts(action) == {"waiting": 2}
    assert carry_out(now=NOW + timedelta(seconds=6)).items == 2


def test_a_worker_that_lost_its_lease_does_nothing_more(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(batch, 2)
    action = confirmed(batch)
    monkeypatch.setattr(carrying, "_take", lambda *given, **named: True)
    BulkAction.objects.update(lease_owner="another", lease_until=NOW + timedelta(seconds=5))
    carry_out()
    assert counts(action) == {"waiting": 2}


def test_the_task_rings_for_the_next_slice_while_work_is_left(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(batch, 1)
    confirmed(batch)
    OrmQ.objects.all().delete()
    pumping.carry_out(stopping=lambda: True)
    assert [message.func() for message in OrmQ.objects.all()] == [queue.CARRY_OUT]
    OrmQ.objects.all().delete()
    pumping.carry_out(stopping=lambda: False)
    assert [message.func() for message in OrmQ.objects.all()] == [queue.RUN_PUMP], "the retried document is due"


def test_what_a_dead_worker_left_is_rung_for_once_its_lease_is_over(batch: Batch) -> None:
    fail(batch, 1)
    confirmed(batch)
    OrmQ.objects.all().delete()
    assert pumping.ring_for_bulk_actions()
    assert not pumping.ring_for_bulk_actions(), "the message waits already"
    carry_out()
    OrmQ.objects.all().delete()
    assert not pumping.ring_for_bulk_actions()


# --- death, poison, abort ---


STATEMENTS = {
    "before the group": (carrying, "_next"),
    "after the effect": (carrying, "_write"),
    "at the end": (carrying, "_finish"),
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("moment", list(STATEMENTS))
def test_a_kill_at_any_moment_leaves_both_effect_and_result_or_neither(
    monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    batch = factories.make_batch()
    fail(batch, 6)
    action = confirmed(batch)
    monkeypatch.setattr(applying, "ITEMS_AT_ONCE", 3)
    with monkeypatch.context() as killing:
        kill_at(killing, *STATEMENTS[moment], call=2 if moment != "at the end" else 1)
        with pytest.raises(PumpKilled):
            carry_out()
    freed = Job.objects.filter(state=JobState.PENDING).count()
    assert freed == counts(action).get("done", 0) == (6 if moment == "at the end" else 3)
    carry_out("the next", now=NOW + timedelta(seconds=16))
    assert counts(action) == {"done": 6}
    action.refresh_from_db()
    assert action.finished_at is not None
    assert JobEvent.objects.filter(to_state=JobState.PENDING).count() == 6, "nobody was retried twice"


def poisoned(monkeypatch: pytest.MonkeyPatch, verb: Verb, items: Iterable[int], error: Exception) -> None:
    real, bad = applying.APPLY[verb], set(items)

    def apply(item_ids: Any, **named: Any) -> Mapping[int, Any]:
        done = real(item_ids, **named)
        if bad & set(item_ids):
            raise error
        return done

    monkeypatch.setitem(applying.APPLY, verb, apply)  # type: ignore[arg-type]  # the table is a dict


def test_a_poison_item_is_failed_with_words_and_the_others_go_on(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(batch, 5)
    action = confirmed(batch)
    bad = action.items.get(position=2)
    poisoned(monkeypatch, Verb.RETRY, [bad.item_id], ValueError("poison"))
    carry_out()
    assert counts(action) == {"done": 4, "failed": 1}
    bad.refresh_from_db()
    assert (bad.result, bad.words) == (ItemResult.FAILED, carrying.FAULT)
    assert Job.objects.get(version=bad.version).state == JobState.FAILED
    action.refresh_from_db()
    assert action.finished_at == NOW


def test_a_database_that_is_away_is_no_items_fault(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(batch, 2)
    action = confirmed(batch)
    with monkeypatch.context() as away:
        poisoned(away, Verb.RETRY, [action.items.get(position=0).item_id], OperationalError("it is away"))
        with pytest.raises(OperationalError):
            carry_out()
    assert counts(action) == {"waiting": 2}
    carry_out("the next")
    assert counts(action) == {"done": 2}


def test_an_abort_takes_effect_between_groups(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(batch, 6)
    action = confirmed(batch)
    monkeypatch.setattr(applying, "ITEMS_AT_ONCE", 2)
    answers = iter([False, False])

    def stopping() -> bool:
        if next(answers, None) is None:
            assert bulk_actions.abort(action, by=BY, now=NOW)
        return False

    carry_out(stopping=stopping)
    assert counts(action) == {"done": 4, "aborted": 2}
    action.refresh_from_db()
    assert (action.aborted_by, action.finished_at) == ("m.okoye", NOW)
    assert Job.objects.filter(state=JobState.FAILED).count() == 2


@pytest.mark.django_db(transaction=True)
def test_workers_that_begin_together_do_each_document_once() -> None:
    batch = factories.make_batch()
    fail(batch, 30)
    action = confirmed(batch)
    racing.answers([lambda owner=f"worker {n}": carry_out(owner) for n in range(3)])
    assert counts(action) == {"done": 30}
    assert JobEvent.objects.filter(to_state=JobState.PENDING).count() == 30
    assert AuditEntry.objects.filter(action="finish_bulk_action").count() == 1


# --- what has changed since the plan, or since it was confirmed ---


def test_what_was_saved_or_may_bill_twice_since_the_plan_is_not_regenerated(batch: Batch) -> None:
    saved, late, _ = fail(batch, 3)
    action = confirmed(batch, Verb.REGENERATE)
    saved_meanwhile(saved)
    factories.make_submission(job=late, provider_job_id="pdf_late", accepted_at=NOW, in_doubt=False)
    carry_out()
    assert counts(action) == {"done": 1, "skipped": 2}
    assert list(
        action.items.filter(result=ItemResult.SKIPPED).order_by("position").values_list("words", flat=True)
    ) == [
        "It was saved since this was planned.",
        "It moved on since this was planned: Version 1 may also bill; plan it again.",
    ]


@pytest.mark.django_db
@pytest.mark.parametrize("lost", ["archived", "demoted", "no member", "inactive"])
def test_what_somebody_may_no_longer_do_is_left_undone(lost: str, batch: Batch) -> None:
    fail(batch, 3)
    person = User.objects.create_user("m.okoye")
    membership = Membership.objects.create(workspace=batch.workspace, user=person, role=Role.OPERATOR)
    action = plan(batch, Verb.RETRY, EVERYTHING, "key")
    by = By(person, "m.okoye", "198.51.100.7")
    bulk_actions.confirm(action, by=by, reason="Again", typed="3", now=NOW)
    match lost:
        case "archived":
            Workspace.objects.update(archived_at=NOW)
        case "demoted":
            Membership.objects.update(role=Role.VIEWER)
        case "no member":
            membership.delete()
        case "inactive":
            User.objects.update(is_active=False)
    while carry_out().is_work_left:
        pass
    assert counts(action) == {"aborted": 3}
    assert set(Job.objects.values_list("state", flat=True)) == {JobState.FAILED}
    ended = AuditEntry.objects.get(action="abort_bulk_action")
    assert (ended.actor_words, ended.actor) == ("engine", None)
    words = set(action.items.values_list("words", flat=True))
    assert words == {ended.reason}
    assert "archived" in ended.reason or "taken away" in ended.reason


@pytest.mark.django_db
def test_what_a_dead_clusters_worker_had_goes_on_at_once_and_not_when_its_lease_is_over(batch: Batch) -> None:
    fail(batch, 1)
    action = confirmed(batch)
    for life in ("dead00", "alive0"):
        later = NOW + timedelta(minutes=4)
        BulkAction.objects.filter(pk=action.pk).update(lease_owner=f"host:7:{life}:ab12", lease_until=later)
        assert carry_out().items == 0, "somebody has it"
        assert carrying.release_life("dead00") == (life == "dead00")
    BulkAction.objects.update(lease_owner="host:7:dead00:ab12")
    pumping.take_over("dead00")
    while carry_out().is_work_left:
        pass
    assert counts(action) == {"done": 1}
