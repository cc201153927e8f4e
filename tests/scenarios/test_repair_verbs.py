"""Stories of the verbs, in virtual time: what a person presses, what happens at the provider, and what it bills."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest

from batches.engine import applying, polling, running, standings, verbs
from batches.engine.audit import By
from batches.engine.orders import Order, Result
from batches.models import BatchItem, Job, JobState, Submission, Verb
from batches.providers import errors
from tests.engine.simulated import Complete, Fail, Lose, Page, Refuse, Word
from tests.scenarios.watching import given_up
from tests.scenarios.world import World

ORDER = Order(By(None, "ada", "127.0.0.1"), reason="The provider is back.", is_confirmed=True)


def press(world: World, verb: Verb, name: str = "INV-1") -> Result:
    item = BatchItem.objects.get(document__business_id=name)
    return applying.apply(verb, [item.pk], order=ORDER, now=world.clock.now())[item.pk]


def allows(world: World, verb: Verb, name: str = "INV-1") -> bool:
    standing = standings.of_items(BatchItem.objects.filter(document__business_id=name))
    return verbs.answer(verb, next(iter(standing.values())), now=world.clock.now()).allowed


def answers(world: World, name: str = "INV-1") -> list[str]:
    return list(world.job(name).events.filter(reason="read_again").order_by("pk").values_list("words", flat=True))


def ended_as(world: World, state: JobState, name: str = "INV-1") -> None:
    world.run_to_the_end()
    assert world.states()[name] == state, world.reasons(name)


# --- check again ---


def test_check_again_reads_what_was_given_up_on_at_once_and_says_what_was_answered(world: World) -> None:
    given_up(world)
    reads = len(world.provider.reads)
    assert press(world, Verb.CHECK_AGAIN).is_done
    world.run_for(10)
    assert len(world.provider.reads) == reads + 1
    assert answers(world) == ["Submission 1 was read: it is not finished; the provider says “processing”."]
    assert world.states() == {"INV-1": "deadline_exceeded"}
    world.provider.script("INV-1", status=[Complete()])
    assert press(world, Verb.CHECK_AGAIN).is_done
    world.run_until(lambda: world.states() == {"INV-1": "saved"}, within=60)
    assert answers(world)[1:] == ["Submission 1 was read: it is finished at the provider."]
    world.assert_saved(["INV-1"])


def test_check_again_after_the_providers_retention_says_that_it_is_not_known_there(world: World) -> None:
    given_up(world)
    world.clock.advance(timedelta(days=3).total_seconds())
    world.run_for(5)
    assert Submission.objects.get().watch_at is None, "nobody reads it by itself any more"
    world.provider.script("INV-1", status=[Refuse(errors.NotFound)])
    assert press(world, Verb.CHECK_AGAIN).is_done
    world.run_for(10)
    assert answers(world) == ["Submission 1 was read: the provider does not know its job (any more)."]
    assert Submission.objects.get().watch_at is None


def test_check_again_wakes_a_job_that_is_read_much_later(world: World) -> None:
    world.provider.script("INV-1", status=itertools.repeat(Word("processing")))
    world.hand_over("INV-1")
    world.run_until(lambda: world.states() == {"INV-1": "accepted"})
    Job.objects.update(due_at=world.clock.now() + timedelta(hours=1), deadline_at=world.clock.now() + timedelta(days=1))
    world.provider.script("INV-1", status=[Complete()])
    assert press(world, Verb.CHECK_AGAIN).is_done
    world.run_until(lambda: world.states() == {"INV-1": "saved"}, within=20)
    world.assert_saved(["INV-1"])


# --- retry ---


def test_only_what_was_read_as_unbilled_twice_is_rendered_by_a_retry_and_it_bills_one(world: World) -> None:
    unbilled = Fail(unbilled=True)
    world.provider.script("INV-1", status=itertools.repeat(unbilled))
    world.hand_over("INV-1")
    ended_as(world, JobState.FAILED)
    assert len(world.provider.arrivals_of("INV-1")) == 3, "once, and twice more by itself"
    assert not allows(world, Verb.RETRY), "the last was read so only once"
    assert press(world, Verb.CHECK_AGAIN).is_done
    world.run_for(10)
    assert press(world, Verb.CHECK_AGAIN).is_done
    world.run_for(10)
    assert "believed" in answers(world)[0] or "It may be sent once more" in answers(world)[0]
    assert allows(world, Verb.RETRY)
    world.provider.script("INV-1")
    assert press(world, Verb.RETRY).is_done
    ended_as(world, JobState.SAVED)
    assert len(world.provider.jobs_of("INV-1")) == 4
    assert Submission.objects.filter(failed_again_at__isnull=False).count() == 3


@pytest.mark.parametrize("is_pressed", [False, True])
def test_what_failed_unbilled_may_be_retried_as_soon_as_a_second_reading_counts(is_pressed: bool, world: World) -> None:
    """Nobody has to press Check again first, nor to wait for the slow pace of the late watch."""
    world.provider.script("INV-1", status=itertools.repeat(Fail(unbilled=True)))
    world.hand_over("INV-1")
    ended_as(world, JobState.FAILED)
    cap = polling.poll_cap(world.account).total_seconds()
    if is_pressed:  # too early to be the second reading, which comes no later for it
        assert press(world, Verb.CHECK_AGAIN).is_done
    world.run_for(cap * 1.5 + 10)
    assert allows(world, Verb.RETRY)


@pytest.mark.parametrize("arrived", [True, False])
def test_a_retry_inside_the_window_sends_the_same_key_and_bytes_and_bills_at_most_one(
    arrived: bool, world: World
) -> None:
    lost = [Lose() if arrived else Refuse(errors.ServerFault)]
    world.provider.script("INV-1", submit=lost * 6)
    world.hand_over("INV-1")
    ended_as(world, JobState.UNKNOWN)
    world.provider.script("INV-1")
    assert press(world, Verb.RETRY).is_done
    ended_as(world, JobState.SAVED)
    world.assert_saved(["INV-1"])
    assert len({(arrival.key, arrival.body_sha256) for arrival in world.provider.arrivals}) == 1


def test_a_retry_after_the_window_is_refused_and_nothing_leaves(world: World) -> None:
    world.provider.script("INV-1", submit=[Lose()] * 6)
    world.hand_over("INV-1")
    ended_as(world, JobState.UNKNOWN)
    sent = len(world.provider.arrivals)
    world.clock.advance(3600)
    result = press(world, Verb.RETRY)
    assert not result.is_done
    assert "Reconcile it." in result.words
    world.run_for(10)
    assert (len(world.provider.arrivals), len(world.provider.jobs_of("INV-1"))) == (sent, 1)


def test_a_retry_whose_window_closes_before_its_turn_leaves_nothing(world: World) -> None:
    """Allowed when it was pressed; the engine asks once more right before the bytes would leave."""
    world.provider.script("INV-1", submit=[Lose()] * 6)
    world.hand_over("INV-1")
    ended_as(world, JobState.UNKNOWN)
    assert press(world, Verb.RETRY).is_done
    sent = len(world.provider.arrivals)
    world.clock.advance(3600)
    ended_as(world, JobState.UNKNOWN)
    assert (len(world.provider.arrivals), len(world.provider.jobs_of("INV-1"))) == (sent, 1)


def test_two_people_who_press_retry_at_the_same_moment_make_one(world: World) -> None:
    world.provider.script("INV-1", submit=[Lose()] * 6)
    world.hand_over("INV-1")
    ended_as(world, JobState.UNKNOWN)
    world.provider.script("INV-1")
    assert [press(world, Verb.RETRY).is_done for _ in range(2)] == [True, False]
    ended_as(world, JobState.SAVED)
    world.assert_saved(["INV-1"])
    assert world.reasons("INV-1").count("retry") == 1


# --- fetch again ---


def test_fetch_again_fetches_a_file_that_was_bad_and_is_whole_now(world: World) -> None:
    world.provider.script("INV-1", download=[Page()] * 10)
    world.hand_over("INV-1")
    ended_as(world, JobState.FAILED)
    assert world.failures() == {"INV-1": "bad_output"}
    world.provider.script("INV-1")
    assert press(world, Verb.FETCH_AGAIN).is_done
    ended_as(world, JobState.SAVED)
    world.assert_saved(["INV-1"])
    assert Submission.objects.get().rescue_count == 0


def test_fetch_again_of_what_is_gone_ends_as_expired_again_and_submits_nothing(world: World) -> None:
    gone = itertools.repeat(Refuse(errors.NotFound))
    world.provider.script("INV-1", download=gone)
    world.hand_over("INV-1")
    ended_as(world, JobState.EXPIRED)
    before = world.job("INV-1").state_changed_at
    assert press(world, Verb.FETCH_AGAIN).is_done
    ended_as(world, JobState.EXPIRED)
    assert world.job("INV-1").state_changed_at > before
    assert len(world.provider.arrivals) == 1
    world.provider.script("INV-1")
    assert press(world, Verb.FETCH_AGAIN).is_done
    ended_as(world, JobState.SAVED)
    world.assert_saved(["INV-1"])


# --- a verb against a pump, and against a death ---


@pytest.mark.parametrize("state", ["accepted", "rendered"])
def test_a_verb_takes_a_job_from_the_pump_that_holds_it_and_it_is_saved_all_the_same(state: str, world: World) -> None:
    if state == "accepted":
        world.provider.script("INV-1", status=[Word("processing")] * 8)
    else:
        world.provider.script("INV-1", download=[Page()])
    world.hand_over("INV-1")
    verb = Verb.CHECK_AGAIN if state == "accepted" else Verb.FETCH_AGAIN
    pressed: list[Result] = []

    def look() -> None:
        if world.states() == {"INV-1": state} and world.job("INV-1").lease_owner and not pressed:
            pressed.append(press(world, verb))

    world.clock.on_look = look
    world.run_to_the_end()
    world.clock.on_look = None
    assert [result.is_done for result in pressed] == [True]
    world.assert_saved(["INV-1"])


def test_a_retry_is_one_more_try_also_where_its_pump_dies(world: World) -> None:
    """Whoever asked for it is told that it is not known again, instead of the document being sent for ever."""
    world.provider.script("INV-1", submit=[Lose()] * 6)
    world.hand_over("INV-1")
    ended_as(world, JobState.UNKNOWN)
    world.provider.script("INV-1")
    assert press(world, Verb.RETRY).is_done
    arrivals = len(world.provider.arrivals)
    for _ in range(30):  # the account whose answers were lost is tried by one at a time, with a pause between
        world.kill_when(lambda: len(world.provider.arrivals) > arrivals)
        if world.killed():
            break
        world.clock.advance(2)
    assert len(world.provider.arrivals) == arrivals + 1
    assert world.states() == {"INV-1": "submitting"}
    ended_as(world, JobState.UNKNOWN)
    assert len(world.provider.arrivals) == arrivals + 1
    assert press(world, Verb.RETRY).is_done
    ended_as(world, JobState.SAVED)
    world.assert_saved(["INV-1"])


# --- cancel and reopen ---


def test_a_cancelled_document_is_never_sent_and_a_reopened_one_is_sent_once(world: World) -> None:
    world.hand_over("INV-1", "INV-2")
    assert press(world, Verb.CANCEL).is_done
    world.run_to_the_end()
    assert world.states() == {"INV-1": "cancelled", "INV-2": "saved"}
    assert world.provider.arrivals_of("INV-1") == []
    assert press(world, Verb.REOPEN).is_done
    ended_as(world, JobState.SAVED)
    world.assert_saved(["INV-1", "INV-2"])


@pytest.mark.parametrize(("answer", "state"), [(Lose(), "saved"), (Refuse(errors.NotSent), "cancelled")])
def test_the_wish_to_cancel_what_may_have_left_is_kept_if_it_proves_unsent(
    answer: Lose | Refuse, state: str, world: World
) -> None:
    world.provider.script("INV-1", submit=[answer])
    world.hand_over("INV-1")
    pressed: list[bool] = []

    def look() -> None:
        if world.states() == {"INV-1": "submitting"} and not pressed:
            pressed.append(press(world, Verb.CANCEL).is_done)

    world.clock.on_look = look
    world.run_until(lambda: bool(pressed))
    world.clock.on_look = None
    assert pressed == [True]

    def is_over() -> bool:
        running.end_unneeded(now=world.clock.now(), most=10)
        return world.is_over()

    world.run_until(is_over)
    assert world.states() == {"INV-1": state}
    assert len(world.provider.jobs_of("INV-1")) == (state == "saved")
