"""A few documents first: the batch waits, paused, until somebody has looked at its sample and releases it."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from django.db import transaction

from batches import selectors
from batches.engine import running, samples, versions
from batches.engine.audit import By
from batches.engine.orders import NewInput, Order
from batches.models import AuditEntry, Batch, BatchItem, Job, Submission
from tests.engine.simulated import Fail, Word
from tests.scenarios.world import World

NAMES = [f"INV-{number:02}" for number in range(1, 13)]
BY = By(None, "m.okoye", "here")


def sampled(world: World, *names: str, size: int = 3) -> tuple[Batch, Batch]:
    batch = world.hand_over(*(names or NAMES), sample_size=size)
    sample = samples.of(batch)
    assert sample is not None
    return batch, sample


def release(world: World, batch: Batch) -> bool:
    return samples.release(batch.pk, by=BY, now=world.clock.now())


def names_of(batch: Batch) -> list[str]:
    return list(batch.items.order_by("position").values_list("document__business_id", flat=True))


def test_only_the_sample_is_rendered_until_the_batch_is_released(world: World) -> None:
    batch, sample = sampled(world)
    assert names_of(sample) == ["INV-01", "INV-07", "INV-12"], "first, middle, last"
    assert list(sample.items.order_by("position").values_list("position", flat=True)) == [0, 6, 11]
    assert (batch.pause_reason, batch.waits_for_release) == (samples.WAITS, True)
    world.run_for(120)
    world.assert_saved(["INV-01", "INV-07", "INV-12"])
    assert len(world.provider.arrivals) == 3
    assert selectors.progress(sample).state == "complete"
    waiting = selectors.progress(batch)
    assert (waiting.state, waiting.counts.saved, waiting.counts.held) == ("paused", 3, 9)


def test_released_it_goes_on_and_each_document_is_sent_and_billed_once(world: World) -> None:
    batch, _sample = sampled(world)
    world.run_for(60)
    assert release(world, batch)
    world.run_to_the_end()
    world.assert_saved(NAMES)
    assert len(world.provider.arrivals) == len(NAMES) == Submission.objects.count()
    assert Job.objects.count() == len(NAMES)
    assert selectors.progress(batch).state == "complete"
    (entry,) = AuditEntry.objects.filter(action="release_batch")
    assert (entry.actor_words, entry.subject) == ("m.okoye", f"batch {batch.public_id}")


def test_it_may_be_released_while_the_sample_is_under_way(world: World) -> None:
    world.provider.script("INV-07", status=[Word("processing")] * 5)
    batch, sample = sampled(world)
    world.run_until(lambda: "accepted" in world.states().values())
    assert selectors.progress(sample).counts.in_progress
    assert release(world, batch)
    world.run_to_the_end()
    world.assert_saved(NAMES)
    assert len(world.provider.arrivals) == len(NAMES)
    assert selectors.progress(sample).state == selectors.progress(batch).state == "complete"


def test_two_releases_are_one(world: World) -> None:
    batch, _sample = sampled(world)
    world.run_for(30)
    assert [release(world, batch), release(world, batch)] == [True, False]
    world.run_to_the_end()
    world.assert_saved(NAMES)
    assert AuditEntry.objects.filter(action="release_batch").count() == 1


def test_a_batch_that_a_person_paused_later_is_resumed_and_not_released(world: World) -> None:
    batch, _sample = sampled(world)
    release(world, batch)
    running.pause(batch.pk, reason="Wrong prices.", by=BY, now=world.clock.now())
    assert not release(world, batch)
    assert running.resume(batch.pk, reason="", by=BY, now=world.clock.now())
    assert AuditEntry.objects.filter(action="resume_batch").count() == 1


def test_resume_on_any_face_releases_it_too(world: World) -> None:
    batch, _sample = sampled(world)
    assert running.resume(batch.pk, reason="", by=BY, now=world.clock.now())
    batch.refresh_from_db()
    assert (batch.paused_at, batch.waits_for_release) == (None, False)
    assert AuditEntry.objects.filter(action="release_batch").exists()


@pytest.mark.parametrize("where", ["sample", "batch"])
def test_what_is_made_anew_of_a_sample_is_made_anew_of_its_batch(world: World, where: str) -> None:
    """Else the other one keeps the version that failed, and no later correction finds it."""
    world.provider.script("INV-07", status=[Fail("font_missing", "A font is missing.")])
    batch, sample = sampled(world)
    world.run_for(60)
    assert [selectors.progress(each).counts.failed for each in (batch, sample)] == [1, 1]
    item = (sample if where == "sample" else batch).items.get(document__business_id="INV-07")
    order = Order(
        by=BY, reason="Another font.", is_confirmed=True, inputs={item.pk: NewInput("html", "<h1>INV-07 anew</h1>")}
    )
    result = versions.regenerate([item.pk], order=order, now=world.clock.now(), store=world.store)[item.pk]
    assert result.is_done, result.words
    world.run_for(60)
    assert selectors.progress(sample).state == "complete", "the sample's turn takes it, whichever page it was made on"
    assert release(world, batch)
    world.run_to_the_end()
    progress = selectors.progress(batch)
    assert (progress.state, progress.counts.saved) == ("complete", len(NAMES))
    items = BatchItem.objects.filter(document__business_id="INV-07")
    assert list(items.values_list("version__number", flat=True)) == [2, 2]
    assert len(world.provider.arrivals) == len(NAMES) + 1


def test_cancelling_it_gives_up_both(world: World) -> None:
    batch, sample = sampled(world)
    world.run_until(lambda: len(world.provider.arrivals) == 1)
    assert running.cancel(batch.pk, reason="The logo is gone.", by=BY, now=world.clock.now())
    world.run_to_the_end()
    world.assert_saved(["INV-01"])
    assert len(world.provider.arrivals) == 1
    for each in (batch, sample):
        each.refresh_from_db()
        assert each.cancelled_at
        assert selectors.progress(each).state == "cancelled"
    assert not release(world, batch)


def test_a_sample_that_fails_leaves_the_batch_waiting(world: World) -> None:
    world.provider.script("INV-01", status=itertools.repeat(Fail(code="render_error")))
    batch, sample = sampled(world)
    world.run_for(120)
    assert selectors.progress(sample).state == "partially_complete"
    waiting = selectors.progress(batch)
    assert (waiting.counts.failed, waiting.counts.held, waiting.needs_attention) == (1, 9, True)


@pytest.mark.parametrize(
    ("given", "size", "words"),
    [
        (NAMES, 3, "nothing of it is sent"),
        ([*NAMES, "INV-13"], 3, "it sends only 1 document, no more than the sample would be"),
        ([*NAMES, "INV-13"], 1, "it sends only 1 document"),
    ],
)
def test_where_no_sample_is_needed_it_starts_at_once_and_says_so(
    world: World, given: list[str], size: int, words: str
) -> None:
    world.hand_over(*NAMES)
    world.run_to_the_end()
    again = world.hand_over(*given[:1], *given[1:][::-1], sample_size=size)
    assert samples.of(again) is None
    assert again.paused_at is None
    assert words in again.report["sample_words"]
    world.run_to_the_end()
    assert selectors.progress(again).state == "complete"


def test_a_sample_is_taken_of_what_is_sent_only(world: World) -> None:
    world.hand_over(*NAMES[:6])
    world.run_to_the_end()
    _batch, sample = sampled(world, size=2)
    assert names_of(sample) == ["INV-07", "INV-12"]


def test_a_document_of_the_waiting_batch_that_another_one_needs_goes_out_with_that(world: World) -> None:
    batch, _sample = sampled(world)
    world.hand_over("INV-03")
    world.run_for(60)
    assert world.states()["INV-03"] == "saved"
    assert len(world.provider.arrivals) == 4
    release(world, batch)
    world.run_to_the_end()
    world.assert_saved(NAMES)


# --- dying at every commit ---


class Died(BaseException):
    """The process is gone: no handler may see it."""


def dies_at(number: int, act: Callable[[], object]) -> bool:
    """Run `act` in a process that dies right after its `number`-th outermost commit; false when it came through."""
    commits = itertools.count(1)
    leave = transaction.Atomic.__exit__

    def leaving(self: transaction.Atomic, *error: object) -> None:
        leave(self, *error)  # type: ignore[arg-type]
        connection = transaction.get_connection(self.using)
        is_outermost = len(connection.savepoint_ids) == 0 or not connection.in_atomic_block
        if error[0] is None and is_outermost and next(commits) == number:
            raise Died

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction.Atomic, "__exit__", leaving)
        try:
            act()
        except Died:
            return True
    return False


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_starting_releasing_and_cancelling_may_die_at_any_commit(world: World, number: int) -> None:
    dies_at(number, lambda: world.hand_over(*NAMES, sample_size=3))
    batch, sample = sampled(world)  # the same creation key
    assert Batch.objects.count() == 2, "one batch and one sample, however often it is asked for"
    assert sorted(BatchItem.objects.filter(batch=sample).values_list("position", flat=True)) == [0, 6, 11]
    world.run_for(30)
    assert len(world.provider.arrivals) == 3
    dies_at(number, lambda: release(world, batch))
    release(world, batch)
    world.run_until(lambda: len(world.provider.arrivals) >= 5)
    dies_at(number, lambda: running.cancel(batch.pk, reason="Enough.", by=BY, now=world.clock.now()))
    running.cancel(batch.pk, reason="Enough.", by=BY, now=world.clock.now())
    running.end_unneeded(now=world.clock.now(), most=100)  # what the sweep does
    world.run_to_the_end()
    sent = [arrival.name for arrival in world.provider.arrivals]
    assert len(sent) == len(set(sent)) < len(NAMES)
    for each in (batch, sample):
        assert selectors.progress(each).state in ("cancelled", "complete")
