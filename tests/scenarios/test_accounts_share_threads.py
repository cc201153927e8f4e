"""One account's calls hang until their timeouts, and another's documents go on at their own pace meanwhile."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any, BinaryIO

import pytest

from batches.conf import ENGINE
from batches.models import Artifact
from batches.providers import errors
from batches.providers.base import Accepted, Downloaded, Finished, JobStatus, PreparedRequest, ResultRef
from tests.engine.simulated import Finish, Refuse, SimulatedProvider
from tests.scenarios.world import World

HANGING = [f"A-{number:02}" for number in range(1, 61)]
WELL = [f"B-{number:02}" for number in range(1, 16)]
#: Seconds between submissions of the account that is well.
PACE = 0.5


class Silent(SimulatedProvider):
    """Calls of the kind `silent` get no answer: they end when the engine's own timeout does."""

    silent = ""
    hanging = 0

    def submit(
        self, request: PreparedRequest, *, idempotency_key: str, now: datetime, gate: Callable[[], None]
    ) -> Accepted | Finished:
        if self.silent != "submit":
            return super().submit(request, idempotency_key=idempotency_key, now=now, gate=gate)
        gate()
        raise self._no_answer("submit", ENGINE.read_timeout)

    def fetch_status(self, provider_job_id: str, *, now: datetime) -> JobStatus:
        if self.silent != "poll":
            return super().fetch_status(provider_job_id, now=now)
        raise self._no_answer("poll", ENGINE.read_timeout)

    def download(self, ref: ResultRef, sink: BinaryIO, *, max_bytes: int, now: datetime) -> Downloaded:
        if self.silent != "download":
            return super().download(ref, sink, max_bytes=max_bytes, now=now)
        raise self._no_answer("download", ENGINE.download_timeout)

    def _no_answer(self, call: str, seconds: float) -> errors.ProviderError:
        with self._lock:
            self.hanging += 1
        self.clock.wait(threading.Event(), seconds)
        with self._lock:
            self.hanging -= 1
        return self._error(call, Refuse(errors.AnswerLost, "No answer came in time."))


@pytest.mark.parametrize(
    ("silent", "threads"),
    [("submit", ENGINE.submit_threads), ("poll", ENGINE.poll_threads), ("download", ENGINE.fetch_threads)],
)
def test_a_service_that_hangs_delays_nobody_elses_documents(
    make_world: Callable[..., World], silent: str, threads: int
) -> None:
    world = make_world(submit_interval_ms=10, max_in_flight=100, poll_initial_ms=100)
    world.provider = silent_provider = Silent(world.clock)
    silent_provider.silent = silent
    well = SimulatedProvider(world.clock)
    other = world.other_account(well, submit_interval_ms=int(PACE * 1000))
    if silent == "download":
        for name in HANGING:
            silent_provider.script(name, submit=[Finish()])
    world.hand_over(*HANGING)
    world.hand_over(*WELL, account=other)
    begun = world.clock.now()
    seen: list[Any] = []

    def all_saved() -> bool:
        if Artifact.objects.count() < len(WELL):
            return False
        seen.append((silent_provider.hanging, (world.clock.now() - begun).total_seconds()))
        return True

    world.run_until(all_saved)
    hanging, seconds = seen[0]
    assert hanging == threads - 2, "the other one had all but what is kept, the whole time"
    assert seconds < ENGINE.read_timeout, "all was saved before the first timeout"
    world.assert_saved(WELL)
    times = sorted(arrival.at for arrival in well.arrivals)
    gaps = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(times)]
    assert max(gaps) < 1.5 * PACE, "no slot was missed"
    assert len(times) == len(WELL)
