"""Only submissions fail, while reads get through: new documents stay here, tries are spread, one alert tells of it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest

from batches.conf import ENGINE
from batches.engine import health
from batches.models import Alert, AlertKind, JobState, Submission
from batches.providers import errors
from tests.engine.simulated import Lose, Refuse, Word
from tests.scenarios.world import PumpKilled, World

NAMES = [f"INV-{number:02}" for number in range(12)]
ONLY_POST = frozenset({"submit"})


def fails(world: World, kind: type[errors.ProviderError] = errors.ServerFault) -> None:
    world.provider.trouble, world.provider.trouble_hits = Refuse(kind, "It answered 503."), ONLY_POST


def alerts_of(kind: AlertKind) -> int:
    return Alert.objects.filter(kind=kind).count()


@pytest.mark.parametrize("kind", [errors.ServerFault, errors.AnswerLost, errors.NotSent])
def test_an_outage_of_submissions_alone_holds_back_all_but_single_trials(
    make_world: Callable[..., World], kind: type[errors.ProviderError]
) -> None:
    world = make_world(submit_interval_ms=3000)
    fails(world, kind)
    world.hand_over(*NAMES)
    world.run_for(120)
    assert len({arrival.name for arrival in world.provider.arrivals}) <= ENGINE.unreachable_after
    assert len(world.provider.arrivals) <= 12, "trials come further and further apart"
    assert alerts_of(AlertKind.ACCOUNT_HELD) == 1, "one outage, one alert"
    assert world.open_alerts() == ["account_held"]
    assert not set(world.states().values()) - {"pending", "submitting"}, "six tries outlast two minutes"
    world.provider.trouble = None
    world.run_to_the_end(within=1200)
    world.assert_saved(NAMES)
    assert alerts_of(AlertKind.ACCOUNT_HELD) == 1
    assert world.open_alerts() == []
    account = world.account_now()
    assert (account.health, account.on_probation) == ("open", False)


def test_status_reads_that_get_through_meanwhile_end_no_row_of_failed_submissions(
    make_world: Callable[..., World],
) -> None:
    world = make_world(submit_interval_ms=3000, poll_max_ms=1000, deadline_seconds=3600)
    world.provider.script("SLOW", status=itertools.repeat(Word("processing"), 400))
    world.hand_over("SLOW")
    world.run_until(lambda: world.job("SLOW").state == JobState.ACCEPTED)
    fails(world)
    world.hand_over(*NAMES)
    reads = len(world.provider.reads)
    world.run_for(90)
    assert len(world.provider.reads) > reads + 30, "reads get through all the time"
    sent = {arrival.name for arrival in world.provider.arrivals} - {"SLOW"}
    assert len(sent) <= ENGINE.unreachable_after + 1, "new documents stay here"
    assert alerts_of(AlertKind.ACCOUNT_HELD) == 1
    world.provider.trouble = None
    world.run_to_the_end(within=1800)
    world.assert_saved([*NAMES, "SLOW"])
    assert world.open_alerts() == []


def test_a_lone_document_keeps_its_tries_apart_while_probes_get_through(world: World) -> None:
    fails(world)
    world.hand_over("INV-1")
    world.run_for(20)
    assert len(world.provider.arrivals) <= 5
    assert world.states() == {"INV-1": "submitting"}
    world.provider.trouble = None
    world.run_to_the_end()
    world.assert_saved(["INV-1"])


def test_a_person_who_resumes_has_all_that_waits_sent(make_world: Callable[..., World]) -> None:
    world = make_world()
    fails(world)
    world.hand_over(*NAMES[:6])
    world.run_until(lambda: world.account_now().health == "held")
    world.provider.trouble = None
    health.resume(world.account.pk, now=world.clock.now())
    assert not world.account_now().on_probation
    assert world.open_alerts() == []
    world.run_to_the_end(within=30)
    world.assert_saved(NAMES[:6])


# --- tries and keys ---


def test_a_worker_that_dies_of_each_answer_sends_six_times_and_no_more(world: World) -> None:
    world.hand_over("INV-1")
    world.provider.script("INV-1", submit=itertools.repeat(Lose()))
    for _ in range(10):
        arrived = len(world.provider.arrivals)
        world.kill_when(lambda before=arrived: len(world.provider.arrivals) > before)
        try:
            world.run_for(60)
        except PumpKilled:
            world.clock.advance(ENGINE.lease_seconds + 1)
        world.clock.on_look = None
    world.run_to_the_end(within=600)
    assert Counter(arrival.key for arrival in world.provider.arrivals).most_common()[0][1] <= ENGINE.submit_tries_most
    assert world.states() == {"INV-1": "unknown"}
    assert Submission.objects.get().try_count == len(world.provider.arrivals)
    assert world.open_alerts() == ["unknown_outcome"]
    assert len(world.provider.jobs) == 1


def test_a_key_that_ages_from_its_first_sight_is_never_billed_again(world: World) -> None:
    """402 at once, a top-up after 55 minutes, accepted with a lost answer, and sent again past the key's hour."""
    world.provider.ages_from_sight = True
    world.provider.has_credit = False
    world.hand_over("INV-1")
    world.run_until(lambda: world.account_now().health == "held")
    world.clock.advance(55 * 60)
    world.provider.has_credit = True
    # Its answers are lost until the first key's hour is over.
    world.provider.script("INV-1", submit=itertools.repeat(Lose(), 4))
    health.resume(world.account.pk, now=world.clock.now())
    world.run_to_the_end(within=1800)
    world.assert_saved(["INV-1"])
    assert list(Submission.objects.order_by("sequence").values_list("outcome", flat=True)) == ["refused", "delivered"]


def test_a_document_whose_key_is_bound_to_a_429_gets_another_when_others_pass(world: World) -> None:
    world.provider.script("INV-00", submit=itertools.repeat(Refuse(errors.RateLimited, retry_after=1), 4))
    world.hand_over(*NAMES)
    world.run_to_the_end(within=300)
    world.assert_saved(NAMES)
    keys = [arrival.key for arrival in world.provider.arrivals_of("INV-00")]
    assert len(set(keys)) == 2
    assert len(keys) <= ENGINE.limited_tries_most + 3
    assert world.provider.arrivals[-1].at - world.provider.arrivals[0].at < timedelta(minutes=2)


def test_one_pace_for_all_gives_nobody_another_key(world: World) -> None:
    for name in NAMES[:5]:
        world.provider.script(name, submit=itertools.repeat(Refuse(errors.RateLimited, retry_after=1), 6))
    world.hand_over(*NAMES[:5])
    world.run_to_the_end(within=600)
    world.assert_saved(NAMES[:5])
