"""Batches share an account fairly, in virtual time: whoever comes late gets its half at once; nobody catches up."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest

from batches import selectors
from batches.engine import running, steps
from batches.engine.audit import By
from batches.engine.submission import Sending
from batches.models import Batch, Job, ProviderAccount, Submission
from batches.providers import errors
from tests.engine.simulated import Finish, Refuse, Word
from tests.scenarios.test_pumps_together import run_together
from tests.scenarios.world import World

BY = By(None, "a test", "command line")


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number:04}" for number in range(count)]


def quick(world: World, *documents: str) -> Batch:
    """Documents whose submission answers with the result, so that only turns and pace decide."""
    for name in documents:
        world.provider.script(name, submit=[Finish()])
    return world.hand_over(*documents)


def sent(world: World, since: datetime | None = None) -> list[str]:
    """The batches whose documents arrived, in order of arrival, by the first letter."""
    return [arrival.name[0] for arrival in world.provider.arrivals if since is None or arrival.at >= since]


def arrived(world: World, prefix: str, count: int) -> Callable[[], bool]:
    return lambda: Counter(sent(world))[prefix] >= count


def seconds(times: Iterable[datetime]) -> list[float]:
    return [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(sorted(times))]


def limit(world: World, **fields: object) -> None:
    ProviderAccount.objects.filter(pk=world.account.pk).update(**fields)


def test_a_small_batch_gets_half_of_the_slots_while_a_large_one_waits(world: World) -> None:
    quick(world, *names("A", 400))
    world.run_until(arrived(world, "A", 20))
    handed_over = world.clock.now()
    small = quick(world, *names("B", 10))
    world.run_until(lambda: selectors.progress(small).state == "complete")
    order = sent(world, handed_over)
    last = len(order) - order[::-1].index("B")
    first = order.index("B")
    assert first <= 13, "what was ready before goes first, a second's worth"
    assert Counter(order[first:last])["A"] <= 11, order


def test_a_weight_of_three_gets_three_slots_of_four(world: World) -> None:
    quick(world, *names("A", 100))
    heavy = quick(world, *names("B", 100))
    Batch.objects.filter(pk=heavy.pk).update(weight=3)
    world.run_until(lambda: len(world.provider.arrivals) >= 80)
    counted = Counter(sent(world)[:80])
    assert 56 <= counted["B"] <= 64, counted


def test_a_paused_batch_gives_its_turns_away_and_does_not_catch_up(world: World) -> None:
    first, _second = quick(world, *names("A", 120)), quick(world, *names("B", 300))
    world.run_until(arrived(world, "A", 10))
    running.pause(first.pk, reason="Wrong prices.", by=BY, now=world.clock.now())
    before = Submission.objects.filter(job__lead_batch=first).count()
    world.run_for(6)
    assert Submission.objects.filter(job__lead_batch=first).count() == before, "nothing of it after the pause returned"
    assert Counter(sent(world))["B"] >= 50
    resumed_at = world.clock.now()
    running.resume(first.pk, reason="Right now.", by=BY, now=resumed_at)
    world.run_for(6)
    order = sent(world, resumed_at)
    counted = Counter(order[order.index("A") :])
    assert counted["B"] >= 0.4 * counted.total(), counted
    assert counted["A"] >= 0.4 * counted.total(), counted


def test_a_document_that_a_paused_and_a_running_batch_need_is_sent_in_the_running_ones_turn(world: World) -> None:
    first = quick(world, *names("A", 12))
    running.pause(first.pk, reason="Wrong prices.", by=BY, now=world.clock.now())
    world.run_for(5)
    assert sent(world) == []
    second = world.hand_over("A-0003", "A-0007")
    world.run_until(lambda: selectors.progress(second).state == "complete")
    assert sorted(arrival.name for arrival in world.provider.arrivals) == ["A-0003", "A-0007"]
    assert selectors.batch_counts(first).as_dict()["held"] == 10


def test_a_cancelled_batch_ends_with_what_the_provider_had_and_nothing_more(world: World) -> None:
    for name in names("A", 30):
        world.provider.script(name, status=[Word("processing")] * 3)
    batch = world.hand_over(*names("A", 30))
    world.run_until(lambda: len(world.provider.arrivals) >= 8)
    running.cancel(batch.pk, reason="Wrong file.", by=BY, now=world.clock.now())
    world.run_to_the_end()
    counts = selectors.batch_counts(batch)
    assert counts.saved + counts.cancelled == 30
    assert (counts.failed, counts.held, counts.in_progress) == (0, 0, 0)
    assert selectors.progress(batch).state == "cancelled"
    assert len(world.provider.jobs) == Job.objects.filter(state="saved").count(), "all that was billed is stored"


def test_a_batch_that_fails_too_often_stops_itself_and_the_other_goes_on(world: World) -> None:
    for name in names("A", 40):
        world.provider.script(name, submit=[Refuse(errors.InvalidInput, "The page is empty.")])
    failing = world.hand_over(*names("A", 40))
    Batch.objects.filter(pk=failing.pk).update(stop_after_failures=5)
    other = quick(world, *names("B", 20))
    world.run_until(lambda: selectors.progress(other).state == "complete")
    failing.refresh_from_db()
    assert failing.paused_at is not None
    assert "the limit is 5" in failing.pause_reason
    assert selectors.batch_counts(failing).failed <= 10, "what was on its way when the fifth failed"
    assert world.open_alerts() == ["batch_stopped"]


# --- limits that change while pumps run ---


def test_a_slower_pace_is_obeyed_within_a_second_or_two(world: World) -> None:
    quick(world, *names("A", 60))
    world.run_until(lambda: len(world.provider.arrivals) >= 10)
    limit(world, submit_interval_ms=2000)
    changed_at = world.clock.now()
    world.run_for(12)
    settled = changed_at + timedelta(seconds=1.6)  # an account is read each second, slots are given out 0.5 s ahead
    gaps = seconds(arrival.at for arrival in world.provider.arrivals if arrival.at >= settled)
    assert len(gaps) >= 3
    assert min(gaps) >= 1.999


def test_a_faster_pace_holds_within_a_second_or_two(make_world: Callable[..., World]) -> None:
    world = make_world(submit_interval_ms=60_000)
    quick(world, *names("A", 60))
    world.run_until(lambda: len(world.provider.arrivals) == 1)
    limit(world, submit_interval_ms=100)
    world.run_for(5)
    times = [arrival.at for arrival in world.provider.arrivals]
    assert len(times) >= 25
    assert min(seconds(times)) >= 0.0999


def test_a_lower_cap_lets_nothing_new_leave_until_it_drained(make_world: Callable[..., World]) -> None:
    world = make_world(max_in_flight=12)
    for name in names("A", 30):
        world.provider.script(name, status=[Word("processing")] * 5)
    world.hand_over(*names("A", 30))
    world.run_until(lambda: len(world.provider.arrivals) >= 12)
    limit(world, max_in_flight=3)
    world.run_for(1.1)
    before = len(world.provider.arrivals)
    most = 0

    def look() -> None:
        nonlocal most
        if len(world.provider.arrivals) > before:
            most = max(most, Job.objects.filter(state__in=("submitting", "accepted")).count())

    world.clock.on_look = look
    world.run_to_the_end()
    assert most == 3


def test_windows_that_change_hold_for_the_next_slots(world: World) -> None:
    quick(world, *names("A", 40))
    world.run_until(lambda: len(world.provider.arrivals) >= 10)
    limit(world, submit_windows=[[4, 5]])
    changed_at = world.clock.now()
    world.run_for(20)
    settled = sorted(a.at for a in world.provider.arrivals if a.at >= changed_at + timedelta(seconds=1.6))
    assert len(settled) >= 8
    assert all((settled[i + 4] - settled[i]).total_seconds() >= 5 for i in range(len(settled) - 4))


def test_two_pumps_count_what_is_accepted_and_unfinished_against_one_cap(make_world: Callable[..., World]) -> None:
    """The provider accepts at once and takes its time: what it has is in flight, whatever pump sent it."""
    world = make_world(max_in_flight=4)
    for name in names("A", 16):
        world.provider.script(name, status=[Word("processing")] * 2)
    world.hand_over(*names("A", 16))
    most = 0
    look_before = world.provider.submit

    def submit(*args: object, **options: object) -> object:
        nonlocal most
        answer = look_before(*args, **options)  # type: ignore[arg-type]  # passed on as it came
        unfinished = [job for job in list(world.provider.jobs.values()) if job.read_count < 2]
        most = max(most, len(unfinished))
        return answer

    world.provider.submit = submit  # type: ignore[method-assign,assignment]  # a spy
    run_together(world, 2)
    world.run_to_the_end()
    world.assert_saved(names("A", 16))
    assert 2 <= most <= 4


# --- one budget's backlog is not another's ---


@pytest.mark.parametrize("slow", ["download_seconds"])
def test_a_backlog_of_slow_downloads_takes_no_slot_from_submissions(world: World, slow: str) -> None:
    first = quick(world, *names("A", 80))
    world.store.is_full = True
    world.run_until(lambda: {state for name, state in world.states().items()} == {"rendered"})
    world.store.is_full = False
    world.clock.advance(60)
    setattr(world.provider, slow, 5.0)
    quick(world, *names("B", 40))
    begun = world.clock.now()
    world.run_until(arrived(world, "B", 40))
    times = [arrival.at for arrival in world.provider.arrivals if arrival.name[0] == "B"]
    assert (max(times) - begun).total_seconds() <= 8.0, "40 slots of 0.1 s, and the way there"
    assert selectors.batch_counts(first).saved < 80, "the downloads were not over"


@pytest.mark.parametrize("verb", [running.pause, running.cancel])
def test_what_missed_its_slot_is_not_sent_after_its_batch_was_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch, verb: Callable[..., bool]
) -> None:
    """Its intent was committed, but no byte has left: a verb that has returned still stops it."""
    real, missed, stopped = steps.send, [], []

    def send(sending: Sending, *given: Any) -> steps.Result:
        if not missed:
            missed.append(sending)
            return steps.NotSentYet(sending.prepared.claim, sending)
        return real(sending, *given)

    monkeypatch.setattr(steps, "send", send)
    batch = world.hand_over("INV-1")

    def stop() -> bool:
        if missed and not stopped:
            stopped.append(verb(batch.pk, reason="Wrong month.", by=BY, now=world.clock.now()))
        return False

    world.pump(stopping=stop).run()
    world.run_for(30)
    running.end_unneeded(now=world.clock.now(), most=10)
    assert stopped == [True]
    assert not world.provider.arrivals
    assert world.states() == {"INV-1": "pending" if verb is running.pause else "cancelled"}
    assert not world.job("INV-1").submissions.filter(in_doubt=True).exists()
