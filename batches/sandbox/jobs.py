"""Jobs after their acceptance: rendered by a few threads, finished exactly once, billed on success.

The database is the queue's truth: after a restart every unfinished job is taken up again, also one that was being
rendered when the process died. A job that finished rendering early waits for its least duration without
occupying a renderer.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import json
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from batches.sandbox import source, wallet
from batches.sandbox.answers import ApiError
from batches.sandbox.clock import Clock
from batches.sandbox.outputs import Outputs
from batches.sandbox.rendering import RendererPool, RenderLimits, RenderRefused, Work
from batches.sandbox.store import Row, Store, Transaction
from batches.sandbox.switches import JobSwitches, Switches

logger = logging.getLogger(__name__)

MAX_RENDER_THREADS = 8


@dataclass(frozen=True)
class _Made:
    """A stored PDF that only waits for its time; the bytes are in `Outputs`."""

    pages: int
    size_bytes: int
    sha256: str
    engine: str
    seconds: float


@dataclass(frozen=True)
class _Failure:
    """The vendor's code and a sentence."""

    code: str
    message: str


# Told inside the finishing transaction, so that a job and the news of its end are stored together.
Announce = Callable[[Transaction, Row], None]


class JobRunner:
    """Renders and finishes jobs. `start` takes up what the last run left behind."""

    def __init__(
        self,
        store: Store,
        outputs: Outputs,
        renderer: RendererPool,
        clock: Clock,
        switches: Callable[[], Switches],
        announce: Announce,
        announced: Callable[[], None],
    ) -> None:
        self._store = store
        self._outputs = outputs
        self._renderer = renderer
        self._clock = clock
        self._switches = switches
        self._announce = announce
        self._announced = announced
        self._changed = threading.Condition()
        self._queue: deque[str] = deque()
        self._rendering = 0
        self._due: list[tuple[float, int, str, _Made | _Failure]] = []
        self._tie_breaker = itertools.count()
        self._stopping = False
        self._threads: list[threading.Thread] = []
        clock.on_advance(self.wake)

    def start(self) -> None:
        for row in self._store.all("SELECT * FROM jobs WHERE status = 'processing' ORDER BY seq"):
            self.enqueue(row)
        targets = [self._render_loop] * MAX_RENDER_THREADS + [self._finish_loop]
        self._threads = [threading.Thread(target=target, daemon=True) for target in targets]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop taking up work; what is unfinished stays in the database for the next start."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def enqueue(self, job: Row) -> None:
        """Take up an accepted job whose row is committed."""
        with self._changed:
            if job["planned_failure"] is not None:
                self._finish_when_due(job, _Failure(**json.loads(job["planned_failure"])))
            elif not job["stuck"]:
                self._queue.append(job["id"])
            self._changed.notify_all()

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def forget(self) -> None:
        """Drop everything that waits: the database has been reset."""
        with self._changed:
            self._queue.clear()
            self._due.clear()

    def wait_until_finished(self, job_id: str, seconds: float) -> Row | None:
        """The job's row once it has finished, or None when that takes longer than `seconds`."""

        def finished() -> bool:
            row = self._store.one("SELECT status FROM jobs WHERE id = ?", job_id)
            return self._stopping or row is None or row["status"] != "processing"

        with self._changed:
            self._changed.wait_for(finished, seconds)
        return self._store.one("SELECT * FROM jobs WHERE id = ? AND status != 'processing'", job_id)

    def _render_loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self._may_render())
                if self._stopping:
                    return
                job_id = self._queue.popleft()
                self._rendering += 1
            try:
                self._render(job_id)
            finally:
                with self._changed:
                    self._rendering -= 1
                    self._changed.notify_all()

    def _may_render(self) -> bool:
        return bool(self._queue) and self._rendering < max(1, self._switches().jobs.concurrency)

    def _render(self, job_id: str) -> None:
        with self._store.write() as tx:
            tx.execute("UPDATE jobs SET rendering = 1 WHERE id = ?", (job_id,))
            job = tx.execute("SELECT * FROM jobs WHERE id = ? AND status = 'processing'", (job_id,)).fetchone()
        if job is None:
            return
        try:
            end = self._made(job)
        except Exception:
            if not self._stopping:
                logger.exception("Job %s could not be rendered for a reason of the sandbox's own", job_id)
            end = _Failure("internal_error", "The sandbox itself failed; see its log.")
        if self._stopping and isinstance(end, _Failure):
            # The renderer was taken away, which says nothing about the document: the next start takes it up again.
            return
        with self._changed:
            self._finish_when_due(job, end)

    def _finish_when_due(self, job: Row, end: _Made | _Failure) -> None:
        heapq.heappush(self._due, (job["not_before"], next(self._tie_breaker), job["id"], end))
        self._changed.notify_all()

    def _made(self, job: Row) -> _Made | _Failure:
        try:
            rendered = self._renderer.render(self._work(job))
        except RenderRefused as refusal:
            return _Failure("render_failed", str(refusal))
        except ApiError as error:
            # The switches were tightened after the job had been accepted.
            return _Failure(error.code, error.message)
        self._outputs.put(job["id"], rendered.pdf)
        return _Made(
            pages=rendered.pages,
            size_bytes=len(rendered.pdf),
            sha256=hashlib.sha256(rendered.pdf).hexdigest(),
            engine=rendered.engine,
            seconds=rendered.seconds,
        )

    def _work(self, job: Row) -> Work:
        submission = source.parse(job["body"], self._switches())
        if submission.kind == "url":
            raise RenderRefused("The sandbox reaches no network, so it can't render a page by its URL.")
        limits = _limits(self._switches().jobs)
        return Work(submission.kind, submission.source, submission.options, limits)

    def _finish_loop(self) -> None:
        while True:
            with self._changed:
                while not self._stopping and not (self._due and self._due[0][0] <= self._clock.now()):
                    wait = self._due[0][0] - self._clock.now() if self._due else None
                    self._changed.wait(wait if wait is None else max(wait, 0.001))
                if self._stopping:
                    return
                _, _, job_id, end = heapq.heappop(self._due)
            try:
                self._finish(job_id, end)
            except Exception:
                logger.exception("Finishing job %s failed for a reason of the sandbox's own", job_id)
            self.wake()
            self._announced()

    def _finish(self, job_id: str, end: _Made | _Failure) -> None:
        switches = self._switches()
        now = self._clock.now()
        with self._store.write() as tx:
            job = tx.execute("SELECT * FROM jobs WHERE id = ? AND status = 'processing'", (job_id,)).fetchone()
            if job is None:
                # A reset came in between: nobody will ever ask for this output.
                self._outputs.remove(job_id)
                return
            if isinstance(end, _Made):
                _complete(tx, job, end, switches, now)
            else:
                tx.execute(
                    "UPDATE jobs SET status = 'failed', finished_at = ?, error_code = ?, error_message = ?"
                    " WHERE id = ?",
                    (now, end.code, end.message, job_id),
                )
            self._announce(tx, tx.execute("SELECT * FROM jobs WHERE id = ?", (job_id,)).fetchone())


def _complete(tx: Transaction, job: Row, made: _Made, switches: Switches, now: float) -> None:
    start = job["accepted_at"] if switches.files.ttl_from == "submission" else now
    expires_at = start + switches.files.ttl_seconds
    tx.execute(
        "UPDATE jobs SET status = 'completed', finished_at = ?, expires_at = ?, pages = ?, size_bytes = ?,"
        " pdf_sha256 = ?, engine = ?, render_seconds = ? WHERE id = ?",
        (now, expires_at, made.pages, made.size_bytes, made.sha256, made.engine, made.seconds, job["id"]),
    )
    tx.execute(
        "INSERT INTO files (id, account, kind, filename, content_type, size_bytes, created_at, expires_at)"
        " VALUES (?, ?, 'output', ?, 'application/pdf', ?, ?, ?)",
        (job["id"], job["account"], job["filename"], made.size_bytes, now, expires_at),
    )
    wallet.charge(tx, job, made.seconds, switches.account, now=now)


def _limits(switches: JobSwitches) -> RenderLimits:
    return RenderLimits(
        wall_seconds=switches.wall_seconds,
        cpu_seconds=switches.cpu_seconds,
        memory_bytes=switches.memory_mib << 20,
        output_bytes=switches.output_mib << 20,
        pages=switches.pages,
    )
