"""When nothing goes wrong: every document is sent once, at its pace, and saved."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from batches import selectors
from batches.models import Exchange, Submission
from tests.engine.simulated import Finish
from tests.scenarios.world import World

NAMES = [f"INV-{number}" for number in range(1, 13)]


def test_a_batch_is_sent_once_each_and_saved(world: World) -> None:
    batch = world.hand_over(*NAMES)
    world.run_to_the_end()
    world.assert_saved(NAMES)
    facts = selectors.batch_json(batch)
    assert facts["state"] == "complete"
    assert facts["counts"]["saved"] == facts["counts"]["total"] == len(NAMES)
    assert world.open_alerts() == []
    assert world.reasons("INV-3") == ["intent_committed", "accepted", "provider_job_finished", "stored"]


def test_every_exchange_with_the_provider_is_kept(world: World) -> None:
    world.hand_over("INV-1")
    world.run_to_the_end()
    kinds = list(Exchange.objects.order_by("pk").values_list("kind", flat=True))
    assert kinds == ["submit", "poll", "poll", "download"]


def test_the_receiver_sees_the_pace_of_the_account(world: World) -> None:
    world.hand_over(*NAMES)
    world.run_to_the_end()
    times = [arrival.at for arrival in world.provider.arrivals]
    gaps = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(times)]
    assert min(gaps) >= 0.1
    assert len(times) == len(NAMES)


def test_no_more_documents_are_at_the_provider_than_the_account_allows(make_world: Callable[..., World]) -> None:
    world = make_world(max_in_flight=2)
    most = 0

    def look() -> None:
        nonlocal most
        done = {job.id for job in world.provider.jobs.values() if job.read_count >= 2}
        most = max(most, len(world.provider.jobs) - len(done))

    world.hand_over(*NAMES[:7])
    world.clock.on_look = look
    world.run_to_the_end()
    world.assert_saved(NAMES[:7])
    assert most == 2


def test_an_answer_that_is_the_result_needs_no_status_read(world: World) -> None:
    world.provider.script("INV-1", submit=[Finish()])
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    assert world.provider.reads == []


def test_the_same_manifest_again_sends_nothing(world: World) -> None:
    world.hand_over("INV-1", "INV-2")
    world.run_to_the_end()
    second = world.hand_over("INV-2", "INV-1")
    world.run_for(10)
    assert selectors.batch_json(second)["state"] == "complete"
    assert len(world.provider.arrivals) == 2
    assert Submission.objects.count() == 2


def test_what_a_second_batch_shares_with_a_running_one_is_sent_once(world: World) -> None:
    world.hand_over("INV-1", "INV-2")
    second = world.hand_over("INV-2", "INV-3")
    world.run_to_the_end()
    world.assert_saved(["INV-1", "INV-2", "INV-3"])
    assert selectors.batch_json(second)["state"] == "complete"


def test_two_pumps_one_after_the_other_share_the_work(world: World) -> None:
    """A pump ends when its time is up, long before a big batch does; the next one goes on without a gap."""
    world.hand_over(*NAMES)
    first = world.pump(stopping=lambda: len(world.provider.arrivals) >= 5)
    first.run()
    assert 5 <= len(world.provider.arrivals) < len(NAMES)
    world.run_to_the_end()
    world.assert_saved(NAMES)
    assert len(world.provider.arrivals) == len(NAMES), "nothing had to be sent again"
