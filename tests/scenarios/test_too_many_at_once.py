"""One code of a vendor for "too many at once" and for "this key may not": what is in flight tells them apart."""

from __future__ import annotations

import itertools

import pytest

from batches.engine import health
from batches.models import ProviderAccount, Submission
from batches.providers import errors
from tests.engine.simulated import Refuse, Word
from tests.scenarios.world import World

NAMES = ["INV-1", "INV-2", "INV-3"]
REFUSED = Refuse(errors.TooManyAtOnce, "Too many at once, or the key may not do this.")


@pytest.mark.parametrize("interval_ms", [5, 800])
def test_a_key_that_may_not_holds_the_account_however_many_leave_together(world: World, interval_ms: int) -> None:
    ProviderAccount.objects.update(submit_interval_ms=interval_ms)
    world.provider.trouble = REFUSED
    world.hand_over(*NAMES)
    world.run_until(lambda: world.account_now().health == "held", within=60)
    assert world.account_now().hold_reason == "auth"
    assert "the key may not" in world.account_now().hold_words
    assert set(world.states().values()) <= {"pending", "submitting"}
    assert len(world.provider.arrivals) <= 2 * len(NAMES), "it is not asked again and again"
    assert world.provider.jobs == {}


def test_beside_others_in_flight_it_is_a_limit_that_costs_nothing(world: World) -> None:
    world.provider.script("INV-1", status=itertools.chain([Word("working")] * 4))
    for name in NAMES[1:]:
        world.provider.script(name, submit=[REFUSED])
    world.hand_over(*NAMES)
    world.run_to_the_end()
    world.assert_saved(NAMES)
    assert world.account_now().health == "open"
    assert set(Submission.objects.values_list("try_count", flat=True)) == {1}


def test_one_document_that_is_always_refused_so_is_told_from_the_key_by_the_others(world: World) -> None:
    """As a firewall may refuse it: the account is held for it once, and not again after each resume."""
    world.provider.script("INV-2", submit=itertools.repeat(REFUSED))
    world.hand_over("INV-2")
    world.run_until(lambda: world.account_now().health == "held", within=60)
    health.resume(world.account.pk, now=world.clock.now())
    world.hand_over("INV-1", "INV-3")
    world.run_to_the_end()
    world.assert_saved(["INV-1", "INV-3"])
    job = world.job("INV-2")
    assert (job.state, job.failure_class) == ("failed", "invalid_input")
    assert world.account_now().health == "open"
