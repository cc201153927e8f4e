"""django-q2 ends a task that overruns its `timeout` at any bytecode: the step that was under way is taken over."""

from __future__ import annotations

import pytest
from django_q.exceptions import TimeoutException

from batches.conf import ENGINE
from batches.models import Exchange
from tests.scenarios.world import RING_SECONDS, World


@pytest.mark.parametrize("step", ["submit", "download"])
def test_a_step_that_the_queues_timeout_cut_is_taken_over_after_its_lease_and_bills_once(
    world: World, step: str
) -> None:
    world.provider.submit_seconds = world.provider.download_seconds = 2.0
    began = {"submit": world.provider.arrivals, "download": world.provider.downloads}[step]

    def cut() -> None:
        if began:
            world.clock.on_look = None
            raise TimeoutException("Task exceeded maximum timeout value (150 seconds)")

    world.hand_over("INV-1")
    world.clock.on_look = cut
    with pytest.raises(TimeoutException):
        world.pump().run()
    assert world.job("INV-1").lease_owner is not None, "nothing of it was given back or written"
    assert not Exchange.objects.filter(kind=step).exists()
    cut_at = world.clock.now()
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    waited = (world.job("INV-1").state_changed_at - cut_at).total_seconds()
    assert ENGINE.lease_seconds - ENGINE.renew_seconds < waited < 2 * ENGINE.lease_seconds + 5 * RING_SECONDS
