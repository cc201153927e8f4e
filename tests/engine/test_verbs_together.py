"""Several people at once, and deaths half way: each job moves once, whoever comes first, and never by half."""

from __future__ import annotations

import random
from functools import partial

import pytest

from batches.engine import applying, audit, running
from batches.engine.audit import By
from batches.engine.orders import Order, Result
from batches.models import AuditEntry, Batch, FailureClass, Job, JobEvent, JobState, Verb
from tests import factories
from tests.engine import racing
from tests.factories import NOW

DOCUMENTS = 40


def order_of(name: str) -> Order:
    return Order(By(None, name, "127.0.0.1"), reason="The provider is back.", is_confirmed=True)


def failed_batch(count: int = DOCUMENTS) -> tuple[Batch, list[int]]:
    batch = factories.make_batch()
    for _ in range(count):
        factories.make_job(batch=batch, state=JobState.FAILED, failure_class=FailureClass.INTERNAL)
    return batch, list(batch.items.order_by("pk").values_list("pk", flat=True))


def pressed(verb: Verb, ids: list[int], name: str) -> dict[int, Result]:
    return applying.apply(verb, ids, order=order_of(name), now=NOW)


@pytest.mark.django_db(transaction=True)
def test_two_people_who_press_retry_at_the_same_moment_move_it_once() -> None:
    """Case 50. The other is told that it is under way."""
    _batch, ids = failed_batch(1)
    answers = racing.answers([partial(pressed, Verb.RETRY, ids, name) for name in ("ada", "bea")])
    results = sorted((answer[ids[0]] for answer in answers), key=lambda result: result.is_done)
    assert [result.is_done for result in results] == [False, True]
    assert results[0].words == "It waits for its turn, and is sent by itself."
    assert JobEvent.objects.filter(reason="retry").count() == AuditEntry.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_overlapping_retries_in_opposite_orders_move_every_document_once() -> None:
    """Case 107. Whatever order the items are named in, their rows are locked in one order."""
    _batch, ids = failed_batch()
    shuffled = random.Random(7).sample(ids, len(ids))
    runs = [ids, ids[::-1], shuffled, shuffled[::-1]]
    answers = racing.answers([partial(pressed, Verb.RETRY, run, f"person {at}") for at, run in enumerate(runs)])
    done = [pk for answer in answers for pk, result in answer.items() if result.is_done]
    assert sorted(done) == ids
    assert set(Job.objects.values_list("state", flat=True)) == {"pending"}
    assert JobEvent.objects.filter(reason="retry").count() == AuditEntry.objects.count() == len(ids)


@pytest.mark.django_db(transaction=True)
def test_verbs_beside_a_pause_and_a_cancellation_of_the_batch_leave_nothing_by_half() -> None:
    batch, ids = failed_batch()
    by = By(None, "cara", "127.0.0.1")
    racing.answers(
        [
            partial(pressed, Verb.RETRY, ids, "ada"),
            partial(pressed, Verb.DISMISS, ids[::-1], "bea"),
            partial(running.pause, batch.pk, reason="x", by=by, now=NOW),
            partial(running.cancel, batch.pk, reason="x", by=by, now=NOW),
        ]
    )
    running.end_unneeded(now=NOW, most=100)
    for job in Job.objects.prefetch_related("events"):
        moves = [event for event in job.events.order_by("pk") if event.from_state != event.to_state]
        assert job.state in ("failed", "cancelled"), "nothing waits for a batch that was cancelled"
        assert (job.state == "cancelled") is bool(moves)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("verb", [Verb.RETRY, Verb.DISMISS])
def test_a_death_before_the_last_statement_leaves_nothing_of_it(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    _batch, ids = failed_batch(3)
    before = list(Job.objects.order_by("pk").values())

    class Killed(BaseException):
        """The process is gone."""

    written: list[str] = []

    def die(action: str, **_given: object) -> None:
        if written:
            raise Killed
        written.append(action)

    monkeypatch.setattr(audit, "record", die)
    with pytest.raises(Killed):
        pressed(verb, ids, "ada")
    assert list(Job.objects.order_by("pk").values()) == before
    assert not JobEvent.objects.exists()
    monkeypatch.undo()
    assert all(result.is_done for result in pressed(verb, ids, "ada").values())
