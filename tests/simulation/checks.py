"""What must hold after each commit: edges, claims, caps, and that a saved PDF is stored.

Everything here only looks. It reads the rows past Django, so that looking is no commit boundary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from batches.engine.transitions import EDGES
from batches.models import JobState
from tests.engine.settling import WRONG
from tests.engine.vendor import name_in, pdf
from tests.simulation.database import read
from tests.simulation.store import SimulatedStore

#: Nobody holds a job in these, so whoever brings evidence or is a person may move it.
RESTING = {"saved", "failed", "unknown", "deadline_exceeded", "expired", "cancelled"}
HISTORY = "SELECT id, job_id, from_state, to_state, reason, actor FROM batches_jobevent WHERE id > ? ORDER BY id"
JOBS = "SELECT id, state, fencing_token, lease_owner, poll_count, fetch_count FROM batches_job ORDER BY id"

#: A running batch with a live item of the job.
NEEDED = (
    "SELECT 1 FROM batches_job j JOIN batches_batchitem i ON i.version_id = j.version_id"
    " JOIN batches_batch b ON b.id = i.batch_id"
    " WHERE j.id = ? AND i.cancelled_at IS NULL AND b.cancelled_at IS NULL AND b.paused_at IS NULL LIMIT 1"
)


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
        self.cap: Callable[[], int] = lambda: 0
        self.follows_trials = False
        #: Number of the account's present trial of credit; 0 while there is none.
        self.trial = 0
        self._trials = 0

    def look(self, process: str) -> list[tuple[int, str, str, str]]:
        """Called after a commit of `process`. Returns the moves that it made."""
        jobs = read(JOBS)
        moves = []
        witnessed: set[int] = set()  # moved by evidence, whoever holds the claim
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
            if _is_evidence(from_state, to_state):
                witnessed.add(job_id)
            self._check_move(job_id, from_state, to_state, reason, actor, process, before)
            self.states[job_id] = to_state
        for job_id, state, _token, _owner, polls, fetches in jobs:
            if state != self.states[job_id]:
                self.report(f"job {job_id} is {state} without a recorded move from {self.states[job_id]}")
                self.states[job_id] = state
            if (
                self.counts.get(job_id, (0, 0)) != (polls, fetches)
                and state not in RESTING
                and job_id not in witnessed
                and not self._holds(process, job_id, before)
            ):
                self.report(
                    f"job {job_id}: {process} wrote facts, but {self.holders.get(job_id)} holds the newest claim"
                )
            self.counts[job_id] = (polls, fetches)
        if read(WRONG):
            self.report("the kept counters of a batch are not what a count gives")
        if self.follows_trials:
            self._follow_trial()
        # A person's retry of what may be there already passes the cap; nothing new is sent until there is room again.
        if any(move[1:3] == (JobState.PENDING, JobState.SUBMITTING) for move in moves):
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
        if not _is_evidence(from_state, to_state) and actor == "engine" and not self._holds(process, job_id, before):
            self.report(f"{move} by {process}, but {before.get(job_id)} holds the newest claim")
        if to_state == "submitting":
            found = read("SELECT 1 FROM batches_submission WHERE job_id = ? AND outcome = 'open'", job_id)
            if not found:
                self.report(f"{move} without a submission")
            if not read(NEEDED, job_id):
                self.report(f"{move}, but every batch that names it is paused or cancelled")
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
        cap = self.cap()
        if cap and count > cap:
            self.report(f"{count} jobs are in flight, {cap} are allowed")

    def _follow_trial(self) -> None:
        (is_on_trial,) = read("SELECT health = 'open' AND on_probation FROM batches_provideraccount")[0]
        if bool(is_on_trial) != bool(self.trial):
            self._trials += bool(is_on_trial)
            self.trial = self._trials if is_on_trial else 0


def _is_evidence(from_state: str, to_state: str) -> bool:
    return from_state in RESTING or (from_state, to_state) == ("pending", "rendered")
