"""One run: an installation of its own, its documents handed over, blows until all have ended, then the verdict.

Plays the process manager too: runstack is started again when it was the victim, or when it gave up.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import random
import re
import socket
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg

from tests.chaos import blows, hostility, verdict
from tests.sandbox_process import SandboxProcess, start_sandbox
from tests.stack_process import Stack, eventually
from tests.storage.s3_server import BUCKET, CREDENTIALS, make_bucket, s3_service

PASSWORD = "Correct-horse-battery-7"
PERSON = "okoye"
LOOK_SECONDS = 0.2
#: A frozen worker sleeps past its leases, so that others have taken its work when it wakes up.
FROZEN_SECONDS = 18.0
#: What died may need this long until its last child is gone.
ORPHAN_PATIENCE = 10.0
#: After the last blow, all has to end within the deadline of a document and this. Long, since what was in doubt at
#: many kills waits for the account's budget of repeats: one in ten seconds when nothing new is sent.
PATIENCE_SECONDS = 1800.0


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is run. Durations are seconds; `blows_seconds` is how long blows fall at most."""

    database: str
    documents: int
    seed: int
    blows_seconds: float
    folder: Path
    store: str = "disk"
    workers: int = 4
    interval: float = 0.1
    deadline: float = 90.0
    with_stuck: bool = True
    kill_sandbox: bool = False
    say: Callable[[str], None] = lambda words: None


def run(plan: Plan) -> verdict.Report:
    """Run it to its end and judge it. Nothing is left running, whatever happens."""
    rng = random.Random(plan.seed)
    documents = hostility.documents(plan.documents, rng, with_stuck=plan.with_stuck)
    plan.folder.mkdir(parents=True, exist_ok=True)
    sandbox = start_sandbox(plan.folder, **hostility.switches(documents, rng))
    try:
        with _storage(plan) as storage, contextlib.closing(_stack(plan, sandbox, storage)) as stack:
            return _Run(plan, sandbox, stack, documents, rng).run()
    finally:
        sandbox.kill()


@contextlib.contextmanager
def _storage(plan: Plan) -> Iterator[dict[str, str]]:
    if plan.store == "disk":
        yield {}
        return
    with s3_service() as address:
        logging.getLogger("werkzeug").setLevel(logging.WARNING)  # else every request of the store is a line
        make_bucket(address)
        yield {"STORAGE_URL": f"s3://{BUCKET}/chaos?endpoint_url={address}&region=eu-central-1", **CREDENTIALS}


def _stack(plan: Plan, sandbox: SandboxProcess, storage: dict[str, str]) -> Stack:
    port = _free_port()
    env = {
        "RELAYPDF_BASE_URL": sandbox.url,
        "RELAYPDF_API_KEY": sandbox.api_key,
        "RELAYPDF_WEBHOOK_SECRET": sandbox.add_endpoint(f"http://127.0.0.1:{port}/webhooks/relaypdf"),
        "RELAYPDF_SUBMIT_INTERVAL": str(plan.interval),
        "RELAYPDF_MAX_IN_FLIGHT": "100",
        "RELAYPDF_POLL_INITIAL": "0.5",
        "RELAYPDF_POLL_MAX": "3",
        "RELAYPDF_DEADLINE": str(plan.deadline),
        "FIRST_PASSWORD": PASSWORD,
        **storage,
    }
    stack = Stack(
        data_dir=plan.folder / "data",
        database=plan.database,
        env=env,
        workers=plan.workers,
        command=("runstack", "--port", str(port), "--workers", str(plan.workers)),
    )
    stack.bootstrap("--admin", PERSON)
    return stack


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class _Run:
    """The run under way: what was struck when, and when something moved again."""

    def __init__(
        self, plan: Plan, sandbox: SandboxProcess, stack: Stack, documents: list[hostility.Document], rng: random.Random
    ) -> None:
        self.plan, self.sandbox, self.stack, self.documents = plan, sandbox, stack, documents
        self.blows = blows.plan(rng, with_sandbox=plan.kill_sandbox)
        self.struck: Counter[str] = Counter()
        self.misses = 0
        self.restarts: Counter[str] = Counter()
        self.breaches: list[str] = []
        self.standstills: list[tuple[float, str]] = []
        self.waiting_since: float | None = None
        self.waiting_for: list[str] = []
        self.frozen: tuple[float, psutil.Process] | None = None
        self.mark = 0

    def run(self) -> verdict.Report:
        began_at = time.monotonic()
        self.stack.start()
        found = eventually(lambda: re.search(r"ready at (http://\S+)/", self.stack.log()), "the stack to be ready")
        address = str(found.group(1))
        batch_id = self._submitted()
        self.plan.say(f"{batch_id}: {len(self.documents)} documents are handed over; the blows begin")
        ended = self._storm(time.monotonic())
        seconds = time.monotonic() - began_at
        if not ended:
            self.breaches.append(f"not every document had ended {PATIENCE_SECONDS:.0f} s after the last blow")
        self._end_freeze()
        report = verdict.Report(
            plan={
                name: str(value) if isinstance(value, Path) else value
                for name, value in dataclasses.asdict(dataclasses.replace(self.plan, say=str)).items()
                if name != "say"
            },
            seconds=round(seconds, 1),
            blows=dict(self.struck),
            restarts=dict(self.restarts),
            standstills=sorted(((round(length, 1), what) for length, what in self.standstills), reverse=True)[:5],
            breaches=self.breaches,
        )
        verdict.judge(
            report,
            stack=self.stack,
            sandbox=self.sandbox,
            batch_id=batch_id,
            address=address,
            documents=self.documents,
            person=PERSON,
            password=PASSWORD,
        )
        self._stop(report)
        return report

    def _submitted(self) -> str:
        manifest = self.plan.folder / "manifest.json"
        rows = [{"id": document.business_id, "html_content": document.html} for document in self.documents]
        manifest.write_text(json.dumps(rows), encoding="utf-8")
        done = self.stack.manage("submit", str(manifest), "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return str(json.loads(done.stdout)["id"])

    # --- the storm ---

    def _storm(self, began_at: float) -> bool:
        """Blows, until every document has ended (true) or patience has (false)."""
        blow = next(self.blows)
        strike_at = began_at + blow.pause
        give_up_at = began_at + self.plan.blows_seconds + self.plan.deadline + PATIENCE_SECONDS
        while time.monotonic() < give_up_at:
            now = time.monotonic()
            if self._look(now):
                return True
            self._start_what_ended()
            if self.frozen is not None and now >= self.frozen[0]:
                self._end_freeze()
            if self.frozen is None and now >= strike_at and now < began_at + self.plan.blows_seconds:
                self._strike(blow)
                blow = next(self.blows)
                strike_at = time.monotonic() + blow.pause
            time.sleep(LOOK_SECONDS)
        return False

    def _strike(self, blow: blows.Blow) -> None:
        if left := blows.orphans(self.stack, patience=ORPHAN_PATIENCE):
            self.breaches.append(f"processes outlived their parents: {left}")
        if blow.kind == blows.SANDBOX:
            self.sandbox.kill()
            self.sandbox.start()
        else:
            hit = blows.strike(self.stack, blow)
            if hit is None:
                self.misses += 1
                return
            if blow.kind == blows.FROZEN:
                self.frozen = (time.monotonic() + FROZEN_SECONDS, hit[1])
        self.struck[blow.kind] += 1
        self.waiting_since = self.waiting_since or time.monotonic()
        self.waiting_for.append(blow.kind)
        self.plan.say(f"blow {self.struck.total()}: {blow.kind}; {self._saved()} saved")

    def _end_freeze(self) -> None:
        if self.frozen is not None:
            _, process = self.frozen
            self.frozen = None
            blows.wake(process)

    def _start_what_ended(self) -> None:
        """As a process manager does; only when nothing of the old stack is left."""
        process = self.stack.process
        assert process is not None
        code = process.poll()
        if code is None:
            return
        self.restarts["killed" if code < 0 else f"exit code {code}"] += 1
        if left := blows.orphans(self.stack, patience=ORPHAN_PATIENCE):
            self.breaches.append(f"processes outlived runstack: {left}")
        self.stack.start()

    # --- looking ---

    def _look(self, now: float) -> bool:
        """Note whether anything moved since the last blow; true when every document has ended."""
        try:
            mark = self.stack.query(
                "SELECT (SELECT coalesce(max(id), 0) FROM batches_jobevent)"
                " + (SELECT coalesce(max(id), 0) FROM batches_exchange)"
            )[0][0]
            open_count = self.stack.query(
                "SELECT count(*) FROM batches_job WHERE state IN ('pending', 'submitting', 'accepted', 'rendered')"
            )[0][0]
        except (sqlite3.OperationalError, psycopg.OperationalError):
            return False
        if self.waiting_since is not None and (mark > self.mark or not open_count):
            self.standstills.append((now - self.waiting_since, " + ".join(self.waiting_for)))
            self.waiting_since, self.waiting_for = None, []
        self.mark = mark
        return not open_count

    def _saved(self) -> int:
        with contextlib.suppress(sqlite3.OperationalError, psycopg.OperationalError):
            return int(self.stack.query("SELECT count(*) FROM batches_job WHERE state = 'saved'")[0][0])
        return -1

    def _stop(self, report: verdict.Report) -> None:
        if left := blows.orphans(self.stack, patience=ORPHAN_PATIENCE):
            report.breaches.append(f"processes outlived their parents: {left}")
        if self.stack.process is None or self.stack.process.poll() is not None:
            return
        try:
            code = self.stack.stop()
        except AssertionError as error:
            report.breaches.append(f"the stack did not stop: {error}")
        else:
            if code != 0:
                report.breaches.append(f"the stack stopped with exit code {code}")
