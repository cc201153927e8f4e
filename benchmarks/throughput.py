"""Documents per second against the three baselines, interleaved in one session: `python -m benchmarks throughput`."""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from benchmarks import ours, processes, report
from benchmarks.per_step import TaskPerStep
from benchmarks.processes import PeerProcess, run_module, say
from tests.postgres import Server

#: Documents for the script, whose two threads wait for every one of them, by the peer's delay.
SCRIPT_DOCUMENTS = {1.0: 20, 5.0: 4}

OURS = ("ours, SQLite", "ours, PostgreSQL")
SCRIPT = "(i) threads + requests + SQLite"
PER_STEP = {"SQLite": "(ii) task per step, SQLite", "PostgreSQL": "(ii) task per step, PostgreSQL"}
PLAIN = "(iii) plain asyncio on aiohttp"
#: Shown beside it, and asked nothing of: HTTP cut down to what the peer speaks, which nobody would ship.
PLAIN_STREAMS = "(iii) the same on bare streams"


@dataclass(frozen=True)
class Threshold:
    """What the ratio of ours to a baseline must be at least; `database` limits it to one of ours."""

    delay: float
    baseline: str
    least: float
    database: str = ""


THRESHOLDS = (
    Threshold(0, SCRIPT, 1.0),
    Threshold(0, PER_STEP["PostgreSQL"], 4.0, "PostgreSQL"),
    Threshold(0, PER_STEP["SQLite"], 2.5, "SQLite"),
    Threshold(0, PLAIN, 0.35),
    Threshold(1, SCRIPT, 150.0),
    Threshold(1, PLAIN, 0.45),
    Threshold(5, PLAIN, 0.60),
)


@dataclass
class Figures:
    """What one contender did at one delay, a value per round."""

    rate: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)


@dataclass
class Session:
    """Peer, server and folders of one session."""

    peer: PeerProcess
    postgres: Server
    folder: Path
    documents: int
    aiohttp_python: str

    @property
    def postgres_version(self) -> str:
        with psycopg.connect(self.postgres.url) as connection:
            return str(connection.info.server_version // 10000)


def run(*, rounds: int, documents: int, delays: Sequence[float], only: str = "") -> None:
    """Measure and write `results/throughput.md`. `only` names a part of the contenders' names, for development."""
    with _session(documents) as session:
        machine = report.machine(postgres=session.postgres_version)
        measured = {delay: _one_delay(session, delay, rounds, only) for delay in delays}
    report.write(
        "throughput",
        "Documents per second",
        machine,
        f"{documents:,} documents a run, {rounds} interleaved rounds, median (least..most); ratios are the median of "
        f"the rounds' own ratios. Load after: {processes.load()}.",
        *(part for delay, figures in measured.items() for part in _tables(delay, figures)),
    )


@contextlib.contextmanager
def _session(documents: int) -> Iterator[Session]:
    folder = Path(tempfile.mkdtemp(prefix="benchmark-"))
    try:
        with processes.running_peer() as peer, ours.postgres() as server:
            yield Session(peer, server, folder, documents, os.environ.get("AIOHTTP_PYTHON", ""))
    finally:
        # Not after each run: ext4 does not reuse an inode that was freed a moment ago, and looks at each of those for
        # every file that is made, so that whoever ran next paid for it (0.9 ms of CPU a file instead of 0.15).
        shutil.rmtree(folder, ignore_errors=True)


def _one_delay(session: Session, delay: float, rounds: int, only: str) -> dict[str, Figures]:
    figures: dict[str, Figures] = defaultdict(Figures)
    with _contenders(session, delay, only) as contenders:
        names = list(contenders)
        for number in range(rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:  # nobody always runs first
                session.peer.configure(delay=delay)
                documents, seconds, cpu = contenders[name](f"r{number}-{delay:g}")
                counts = session.peer.stats()
                if counts["fetched"] != documents:
                    raise RuntimeError(f"{name}: the peer handed out {counts['fetched']} of {documents} files")
                asked = counts["submit"] + counts["poll"] + counts["download"]
                figures[name].rate.append(documents / seconds)
                figures[name].cpu_ms.append(1000 * cpu / documents)
                figures[name].requests.append(asked / documents)
                say(
                    f"delay {delay:g} s, round {number + 1} of {rounds}: {name}: {documents / seconds:.1f} docs/s, "
                    f"{1000 * cpu / documents:.2f} ms CPU and {asked / documents:.2f} requests a document "
                    f"(load {processes.load()})"
                )
    return figures


Contender = Callable[[str], tuple[int, float, float]]


@contextlib.contextmanager
def _contenders(session: Session, delay: float, only: str) -> Iterator[dict[str, Contender]]:
    """Each takes a prefix and returns documents, seconds and CPU seconds. Made once per delay, closed at the end."""
    with contextlib.ExitStack() as stack:
        found: dict[str, Contender] = {}
        for name, database in zip(OURS, ("sqlite", "postgres"), strict=True):
            if only in name:
                found[name] = _ours(session, delay, database, stack)
        if only in SCRIPT and delay in (0, *SCRIPT_DOCUMENTS) and delay < 5:
            found[SCRIPT] = lambda prefix: _script(session, delay, prefix)
        for label, database in (("SQLite", "sqlite"), ("PostgreSQL", "postgres")):
            if only in PER_STEP[label] and delay == 0:
                found[PER_STEP[label]] = _per_step(session, database, stack)
        if only in PLAIN and session.aiohttp_python:
            found[PLAIN] = lambda _prefix: _plain(session, "aiohttp", session.aiohttp_python)
        if only in PLAIN_STREAMS:
            found[PLAIN_STREAMS] = lambda _prefix: _plain(session, "streams", "")
        yield found


def _ours(session: Session, delay: float, database: str, stack: contextlib.ExitStack) -> Contender:
    folder = session.folder / f"ours-{database}-{delay:g}"
    installation = ours.Installation(folder, database, session.peer)
    stack.callback(installation.close)

    def contend(prefix: str) -> tuple[int, float, float]:
        with installation.cluster():
            session.peer.configure(delay=delay)
            run = installation.run(prefix, session.documents, postgres_pid=session.postgres.pid)
        return run.documents, run.seconds, run.cpu_seconds

    return contend


def _per_step(session: Session, database: str, stack: contextlib.ExitStack) -> Contender:
    baseline = TaskPerStep(session.folder / f"per-step-{database}", database, session.peer)
    stack.callback(baseline.close)

    def contend(prefix: str) -> tuple[int, float, float]:
        return (session.documents, *baseline.run(prefix, session.documents))

    return contend


def _script(session: Session, delay: float, prefix: str) -> tuple[int, float, float]:
    documents = min(session.documents, SCRIPT_DOCUMENTS.get(delay, session.documents))
    folder = session.folder / f"script-{prefix}"
    done = run_module("benchmarks.plain_script", session.peer.url, str(documents), str(folder))
    return documents, done["seconds"], done["cpu_seconds"]


def _plain(session: Session, client: str, python: str) -> tuple[int, float, float]:
    arguments = (session.peer.url, str(session.documents), "--client", client)
    done = run_module("benchmarks.plain_asyncio", *arguments, python=python)
    return session.documents, done["seconds"], done["cpu_seconds"]


def _tables(delay: float, figures: dict[str, Figures]) -> list[str]:
    title = "Jobs are finished at once" if delay == 0 else f"A job takes {delay:g} s"
    rates = report.table(
        ["contender", "docs/s", "CPU ms a document", "requests a document"],
        [
            [
                name,
                report.spread(one.rate, "{:.1f}"),
                report.spread(one.cpu_ms, "{:.2f}"),
                report.spread(one.requests, "{:.2f}"),
            ]
            for name, one in figures.items()
        ],
    )
    rows = []
    for name in OURS:
        for baseline in (SCRIPT, *PER_STEP.values(), PLAIN, PLAIN_STREAMS):
            if name not in figures or baseline not in figures:
                continue
            if baseline in PER_STEP.values() and baseline.split(", ")[1] not in name:
                continue
            ratios = report.paired(figures[name].rate, figures[baseline].rate)
            wanted = [one for one in THRESHOLDS if (one.delay, one.baseline) == (delay, baseline)]
            verdict = report.against(statistics.median(ratios), wanted[0].least) if wanted else ""
            rows.append(
                [name, baseline, report.spread(ratios, "{:.2f}"), f"{wanted[0].least:g}" if wanted else "", verdict]
            )
    return (
        [f"## {title}", rates, report.table(["ours", "over", "ratio", "at least", ""], rows)]
        if rows
        else [f"## {title}", rates]
    )
