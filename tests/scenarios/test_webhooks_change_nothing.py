"""However badly webhooks come, the documents end as they would without them, and cost the same."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from batches.engine import inbox, sweep
from batches.models import Job, JobEvent, WebhookEvent
from tests.engine.simulated import Complete, Fail, SimulatedJob, Word
from tests.scenarios.world import World

SECRET = "whsec_invented"
DOCUMENTS = 500
#: The provider answers a submission after so long; its webhook may be faster.
ANSWER_SECONDS = 0.4


class Courier:
    """Brings each job's webhooks as badly as may be: a tenth never, others before the 202 of their submission, twice
    with the same bytes or with others, in any order, or long after the job was read; some speak of an older state."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._planned: set[str] = set()
        self._due: list[tuple[datetime, bytes]] = []
        self._is_at_work = False
        self.ways: Counter[str] = Counter()
        world.clock.on_look = self.look

    def look(self) -> None:
        if self._is_at_work:
            return
        self._is_at_work = True
        try:
            for job in list(self._world.provider.jobs.values()):
                if job.id not in self._planned:
                    self._planned.add(job.id)
                    self._due += [(job.accepted_at + timedelta(seconds=after), body) for after, body in self._plan(job)]
            now = self._world.clock.now()
            ready = [each for each in self._due if each[0] <= now]
            self._due = [each for each in self._due if each[0] > now]
            self._rng.shuffle(ready)
            for _at, body in ready:
                self.bring(body, now)
        finally:
            self._is_at_work = False

    def _plan(self, job: SimulatedJob) -> list[tuple[float, bytes]]:
        way = self._rng.choices(["lost", "before the 202", "soon", "late"], weights=[1, 3, 3, 3])[0]
        self.ways[way] += 1
        if way == "lost":
            return []
        first = {"before the 202": 0.0, "soon": self._rng.uniform(0.5, 3), "late": self._rng.uniform(20, 60)}[way]
        ended = _body(job.id, "job.completed" if job.name not in FAILING else "job.failed")
        plan = [(first, ended)]
        if self._rng.random() < 0.5:
            plan.append((first + self._rng.uniform(0, 5), ended))  # the same bytes
        if self._rng.random() < 0.5:
            plan.append((first + self._rng.uniform(0, 5), _body(job.id, "job.completed", again=self._rng.random())))
        if self._rng.random() < 0.3:
            plan.append((first + self._rng.uniform(0, 5), _body(job.id, "job.processing")))
        return plan

    def bring(self, body: bytes, now: datetime) -> None:
        at = int(now.timestamp())
        proof = hmac.new(SECRET.encode(), b"%d." % at + body, hashlib.sha256).hexdigest()
        account = inbox.account_of(self._world.account.slug)
        inbox.receive(account, {"RelayPDF-Signature": f"t={at},v1={proof}"}, body, now=now)

    def finish(self) -> None:
        """Bring what is still under way: all documents have ended long before."""
        self._world.clock.on_look = None
        for _at, body in self._due:
            self.bring(body, self._world.clock.now())


def _body(job_id: str, kind: str, **further: Any) -> bytes:
    return json.dumps({"type": kind, "data": {"id": job_id} | further}).encode()


NAMES = [f"INV-{number:03}" for number in range(DOCUMENTS)]
FAILING = frozenset(NAMES[::50])


def run(world: World) -> tuple[dict[str, str], dict[str, str], Counter[str]]:
    """States, failures, and how many jobs the provider made of each document."""
    rng = random.Random(11)
    world.provider.submit_seconds = ANSWER_SECONDS
    for name in NAMES:
        words = [Word("processing")] * rng.randrange(3)
        end = Fail() if name in FAILING else Complete()
        world.provider.script(name, status=itertools.chain(words, itertools.repeat(end)))
    world.hand_over(*NAMES)
    world.run_to_the_end(within=1200)
    return world.states(), world.failures(), Counter(job.name for job in world.provider.jobs.values())


@pytest.mark.parametrize("webhooks", ["badly", "not at all"])
def test_500_documents_end_and_cost_the_same_whether_webhooks_come(
    webhooks: str, make_world: Callable[..., World]
) -> None:
    pace = {"submit_interval_ms": 20, "max_in_flight": 200, "poll_interval_ms": 5}
    world = make_world(webhook_secret=SECRET, poll_initial_ms=4000, poll_max_ms=8000, **pace)
    courier = Courier(world, random.Random(7)) if webhooks == "badly" else None
    states, failures, billed = run(world)
    assert states == {name: "failed" if name in FAILING else "saved" for name in NAMES}
    assert failures == dict.fromkeys(sorted(FAILING), "render_failed")
    assert billed == Counter(dict.fromkeys(NAMES, 1))
    world.assert_saved([name for name in NAMES if name not in FAILING][::25])
    if courier is None:
        return
    assert min(courier.ways[way] for way in ("lost", "before the 202", "soon", "late")) > DOCUMENTS // 20
    before = _history()
    courier.finish()
    world.run_for(30)
    sweep.sweep(world.store, now=world.clock.now())
    assert _history() == before, "what is late moves nothing"
    assert len(world.provider.downloads) == DOCUMENTS - len(FAILING), "nothing is fetched twice"
    outcomes = Counter(WebhookEvent.objects.values_list("outcome", flat=True))
    assert outcomes["woke"] > 10
    assert outcomes["unmatched"] == outcomes["waiting"] == 0, "also what came before the id was known found its job"


def _history() -> tuple[list[tuple[int, str]], int]:
    return list(Job.objects.order_by("pk").values_list("pk", "state")), JobEvent.objects.count()
