"""What must hold, after each commit and at the end of a run: the promises, held against the vendor's own ledger.

Everything here only looks. It reads the rows past Django, so that looking is no commit boundary.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from batches import selectors
from batches.engine.transitions import EDGES
from batches.models import Batch, JobState
from batches.wording import BatchState
from tests.engine.simulated import pdf
from tests.simulation.database import read
from tests.simulation.remote import name_in
from tests.simulation.store import SimulatedStore

if TYPE_CHECKING:
    from tests.simulation.world import World

ENDED = (BatchState.COMPLETE, BatchState.CANCELLED, BatchState.FAILED, BatchState.PARTIALLY_COMPLETE)
#: Nobody holds a job in these, so whoever brings evidence or is a person may move it.
RESTING = {"saved", "failed", "unknown", "deadline_exceeded", "expired", "cancelled"}
HISTORY = "SELECT id, job_id, from_state, to_state, reason, actor FROM batches_jobevent WHERE id > ? ORDER BY id"
JOBS = "SELECT id, state, fencing_token, lease_owner, poll_count, fetch_count FROM batches_job ORDER BY id"


class CommitChecks:
    """Follows the rows from commit to commit."""

    def __init__(self, store: SimulatedStore, report: Callable[[str], None]) -> None:
        self.store = store
        self.report = report
        self.states: dict[int, str] = {}
        self.tokens: dict[int, int] = {}
        self.holders: dict[int, str] = {}
        self.counts: dict[int, tuple[int, int]] = {}
        self.last_event = 0
        self.cap = 0

    def look(self, process: str) -> list[tuple[int, str, str, str]]:
        """Called after a commit of `process`. Returns the moves that it made."""
        jobs = read(JOBS)
        moves = []
        before = dict(self.holders)
        for job_id, state, token, owner, _polls, _fetches in jobs:
            if token < self.tokens.get(job_id, 0):
                self.report(f"job {job_id}: its fencing token went back")
            if token > self.tokens.get(job_id, 0) and owner is not None:
                self.holders[job_id] = owner
            self.tokens[job_id] = token
            self.states.setdefault(job_id, state)
        for event_id, job_id, from_state, to_state, reason, actor in read(HISTORY, self.last_event):
            self.last_event = event_id
            if from_state == to_state:
                continue
            moves.append((job_id, from_state, to_state, reason))
            self._check_move(job_id, from_state, to_state, reason, actor, process, before)
            self.states[job_id] = to_state
        for job_id, state, _token, _owner, polls, fetches in jobs:
            if state != self.states[job_id]:
                self.report(f"job {job_id} is {state} without a recorded move from {self.states[job_id]}")
                self.states[job_id] = state
            if (
                self.counts.get(job_id, (0, 0)) != (polls, fetches)
                and state not in RESTING
                and not self._holds(process, job_id, before)
            ):
                self.report(
                    f"job {job_id}: {process} wrote facts, but {self.holders.get(job_id)} holds the newest claim"
                )
            self.counts[job_id] = (polls, fetches)
        if any(to_state == JobState.SUBMITTING for _job, _from, to_state, _reason in moves):
            self._check_cap()
        return moves

    def _holds(self, process: str, job_id: int, before: dict[int, str]) -> bool:
        return not process.startswith("pump") or before.get(job_id) == process

    def _check_move(
        self, job_id: int, from_state: str, to_state: str, reason: str, actor: str, process: str, before: dict[int, str]
    ) -> None:
        move = f"job {job_id}: {from_state} → {to_state} ({reason})"
        if self.states.get(job_id) != from_state:
            self.report(f"{move}, but it was {self.states.get(job_id)}")
        if (JobState(from_state), JobState(to_state)) not in EDGES:
            self.report(f"{move} is no edge")
        is_evidence = from_state in RESTING or (from_state, to_state) == ("pending", "rendered")
        if not is_evidence and actor == "engine" and not self._holds(process, job_id, before):
            self.report(f"{move} by {process}, but {before.get(job_id)} holds the newest claim")
        if to_state == "submitting":
            found = read("SELECT 1 FROM batches_submission WHERE job_id = ? AND outcome = 'open'", job_id)
            if not found:
                self.report(f"{move} without a submission")
        if to_state == "saved":
            self.check_saved(job_id)

    def check_saved(self, job_id: int) -> None:
        """A saved job has its artifact, and the store has its bytes: the right ones."""
        found = read(
            "SELECT a.storage_key, a.sha256, a.byte_count, v.input_inline FROM batches_job j"
            " JOIN batches_documentversion v ON v.id = j.version_id"
            " LEFT JOIN batches_artifact a ON a.version_id = v.id WHERE j.id = ?",
            job_id,
        )[0]
        key, sha256, size, text = found
        content = self.store.durable.get(key)
        if content is None:
            self.report(f"job {job_id} is saved, but the store does not hold its PDF")
        elif hashlib.sha256(content).hexdigest() != sha256 or len(content) != size:
            self.report(f"job {job_id} is saved, but the store holds other bytes")
        elif content != pdf(name_in(bytes(text))):
            self.report(f"job {job_id} is saved with the PDF of another document")

    def _check_cap(self) -> None:
        count = read("SELECT count(*) FROM batches_job WHERE state IN ('submitting', 'accepted')")[0][0]
        if self.cap and count > self.cap:
            self.report(f"{count} jobs are in flight, {self.cap} are allowed")


def check_end(world: World) -> None:
    """After the quiet time: every batch ended, rows add up, nothing was paid twice, nothing is lost."""
    _check_batches(world)
    _check_jobs(world)
    _check_ledger(world)
    if not world.plan.has("clock_jumps"):
        _check_pace(world)


def _check_batches(world: World) -> None:
    for batch in Batch.objects.order_by("pk"):
        progress = selectors.progress(batch)
        rows = world.handed_over[batch.pk]
        if progress.counts.total != rows or batch.items.count() != rows:
            world.report(f"batch {batch.pk} counts {progress.counts.as_dict()} of {rows} rows")
        if progress.state not in ENDED:
            states = read(
                "SELECT j.id, j.state, j.due_at, j.failure_words FROM batches_job j"
                " WHERE j.state IN ('pending', 'submitting', 'accepted', 'rendered')"
            )
            world.report(f"batch {batch.pk} never ended: {progress.state.value} {states}")


def _check_jobs(world: World) -> None:
    for job_id, owner in read("SELECT id, lease_owner FROM batches_job WHERE lease_owner IS NOT NULL"):
        world.report(f"job {job_id} is still leased to {owner}")
    for job_id, state, failure_class in read("SELECT id, state, failure_class FROM batches_job ORDER BY id"):
        if state == "saved":
            world.commits.check_saved(job_id)
        if state in ("unknown", "deadline_exceeded"):
            alerts = read("SELECT words FROM batches_alert WHERE job_id = ? AND closed_at IS NULL", job_id)
            if not any(words for (words,) in alerts):
                world.report(f"job {job_id} is {state}, and no alert says what to do")
        if failure_class == "internal":
            world.report(f"job {job_id} was parked as internal")


def _check_ledger(world: World) -> None:
    remote = world.remote
    known = {
        key: (job_id, sequence, provider_job_id)
        for key, job_id, sequence, provider_job_id in read(
            "SELECT idempotency_key, job_id, sequence, provider_job_id FROM batches_submission"
        )
    }
    states = dict(read("SELECT id, state FROM batches_job"))
    bills: dict[str, int] = defaultdict(int)
    for key, jobs in remote.accepted_keys.items():
        if key not in known:
            world.report(f"{jobs[0].name} was accepted under a key that no submission has")
            continue
        job_id, _sequence, provider_job_id = known[key]
        billed = sum(job.bills for job in jobs)
        if key not in remote.doubled:
            bills[jobs[0].name] += billed
            if billed > 1:
                world.report(f"{jobs[0].name} was billed {billed} times for one key")
        if provider_job_id is not None and provider_job_id not in {job.id for job in jobs}:
            world.report(f"{jobs[0].name}: the recorded id {provider_job_id} is not the vendor's")
        if provider_job_id is None and states[job_id] in ("pending", "failed", "cancelled", "saved"):
            world.report(f"{jobs[0].name} was accepted, its id is lost, and its job is {states[job_id]}")
        if key in remote.doubled and len({job.id for job in jobs if job.id in world.answered_ids}) > 1:
            found = read("SELECT 1 FROM batches_alert WHERE job_id = ? AND kind = 'surplus'", job_id)
            if not found:
                world.report(f"{jobs[0].name} was made twice under one key, and no alert says so")
    for name, count in bills.items():
        if count > 1:
            world.report(f"{name} was billed {count} times")


def _check_pace(world: World) -> None:
    """Section 5's rule for every pair of departures, and no window passed."""
    times = sorted(world.remote.departures_us)
    account = world.plan.account
    interval = account["submit_interval_ms"] * 1000
    tolerance = max(20_000, interval // 10)
    burst = account["submit_burst"]
    for first in range(len(times)):
        for last in range(first + burst, len(times)):
            span, allowed = times[last] - times[first], (last - first - burst + 1) * interval - tolerance
            if span < allowed:
                world.report(
                    f"{last - first + 1} submissions left within {span / 1e6:.3f} s, less than {allowed / 1e6:.3f}"
                )
                return
    for count, seconds in account["submit_windows"]:
        for first in range(len(times) - count):
            if times[first + count] - times[first] < seconds * 1_000_000:
                world.report(f"more than {count} submissions left within {seconds} s")
                return
