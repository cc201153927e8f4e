"""Provider requests a document, and how soon a finished document is saved: `python -m benchmarks requests`.

Five accounts on one cluster, each with a peer of its own whose jobs take another time. A batch to learn from comes
first; the second one is measured. With `--webhooks` the stack has its pages too, and each peer posts signed webhooks to
them.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks import ours, processes, report
from benchmarks.processes import PeerProcess, say
from tests.stack_process import eventually

#: The peer's durations, each with the name of its row; the ends of a range are spread evenly between.
DURATIONS: tuple[tuple[str, tuple[float, float]], ...] = (
    ("1 s", (0.9, 1.1)),
    ("5 s", (4.5, 5.5)),
    ("15 s", (13.5, 16.5)),
    ("30 s", (27.0, 33.0)),
    ("1 to 30 s", (1.0, 30.0)),
)
LEARNING_DOCUMENTS, DOCUMENTS = 60, 150
INTERVAL_MS = 100
SECRET = "whsec_of_the_benchmark_only"
MOST_REQUESTS = {False: 4.5, True: 3.1}
MOST_DELAY_SHARE = 0.15
MOST_DELAY_WITH_WEBHOOKS = 1.0


def run(*, database: str, webhooks: bool) -> None:
    """Measure and write `results/requests….md`."""
    machine = report.machine()
    with contextlib.ExitStack() as stack:
        if database == "postgres":
            stack.enter_context(ours.postgres())
        peers = [stack.enter_context(processes.running_peer()) for _ in DURATIONS]
        rows = _measure(database, peers, webhooks)
    head = [
        "job takes",
        "requests a document",
        f"≤ {MOST_REQUESTS[webhooks]:g}",
        "reads a document",
        "finished to saved, s: median (p95)",
        "share of the duration",
        f"< {MOST_DELAY_WITH_WEBHOOKS:g} s" if webhooks else f"< {100 * MOST_DELAY_SHARE:g} %",
        "webhooks taken / refused",
    ]
    report.write(
        "requests-webhooks" if webhooks else "requests-polling",
        "Provider requests a document, " + ("with webhooks" if webhooks else "by polling alone"),
        machine,
        f"{DOCUMENTS} documents per account after {LEARNING_DOCUMENTS} to learn from, one submission each "
        f"{INTERVAL_MS} ms, all accounts at once on {database}. Durations of a row differ by 10 % either way, those of "
        f"the last row lie anywhere in the range. Load after: {processes.load()}.",
        report.table(head, rows),
    )


def _measure(database: str, peers: list[PeerProcess], webhooks: bool) -> list[list[str]]:
    folder = Path(tempfile.mkdtemp(prefix="benchmark-"))
    limits = {"submit_interval_ms": str(INTERVAL_MS), "poll_interval_ms": "0", "poll_initial_ms": "1000"}
    command = ("runstack", "--port", "0") if webhooks else ("runcluster",)
    installation = ours.Installation(folder, database, peers[0], limits=limits, command=command)
    slugs = ["relaypdf", *(f"relaypdf-{number}" for number in range(2, len(peers) + 1))]
    try:
        for slug, peer in zip(slugs[1:], peers[1:], strict=True):
            columns = {name: int(value) for name, value in (ours.UNPACED | limits).items()}
            installation.add_account(slug, peer, **columns)
        if webhooks:
            for slug in slugs:
                done = installation.stack.manage("account", slug, "--set", "webhook_secret=-", given=f"{SECRET}\n")
                if done.returncode:
                    raise RuntimeError(done.stderr)
        with _running(installation, webhooks) as address:
            for number, (prefix, documents) in enumerate((("learn", LEARNING_DOCUMENTS), ("measure", DOCUMENTS))):
                for slug, peer, (_name, duration) in zip(slugs, peers, DURATIONS, strict=True):
                    hook = {"url": f"{address}webhooks/{slug}", "secret": SECRET} if webhooks else None
                    peer.configure(delay=duration, webhook=hook)
                    installation.offer(f"{prefix}-{slug}", documents, slug)
                wanted = len(slugs) * (LEARNING_DOCUMENTS + number * DOCUMENTS)
                installation.wait_for(wanted)
                say(f"{prefix}: {documents} documents of each account are saved")
            time.sleep(1)  # the last webhooks' answers
            return [
                _row(installation, peer, slug, name, duration, webhooks)
                for slug, peer, (name, duration) in zip(slugs, peers, DURATIONS, strict=True)
            ]
    finally:
        installation.close()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _running(installation: ours.Installation, webhooks: bool) -> Iterator[str]:
    """The cluster, and with webhooks the pages too; their address, or nothing."""
    with installation.cluster():
        if not webhooks:
            yield ""
            return

        def address() -> str:
            said = re.findall(r"ready at (http://127\.0\.0\.1:\d+/)", installation.stack.log())
            return str(said[-1]) if said else ""

        yield str(eventually(address, "the pages"))


def _row(
    installation: ours.Installation,
    peer: PeerProcess,
    slug: str,
    name: str,
    duration: tuple[float, float],
    webhooks: bool,
) -> list[str]:
    counts, jobs = peer.stats(), peer.jobs()
    delays = sorted(saved_at - jobs[job_id][1] for job_id, saved_at in _saved(installation, slug).items())
    asked = (counts["submit"] + counts["poll"] + counts["download"]) / DOCUMENTS
    median = statistics.median(delays)
    share = median / statistics.mean(duration)
    say(f"{name}: {asked:.2f} requests, {median:.2f} s from finished to saved")
    good = median < MOST_DELAY_WITH_WEBHOOKS if webhooks else share < MOST_DELAY_SHARE
    return [
        name,
        f"{asked:.2f}",
        report.against(asked, MOST_REQUESTS[webhooks], at_most=True),
        f"{counts['poll'] / DOCUMENTS:.2f}",
        f"{median:.2f} ({delays[int(0.95 * len(delays))]:.2f})",
        f"{100 * share:.1f} %",
        "reached" if good else "**missed**",
        f"{counts['webhooks_sent']} / {counts['webhooks_failed']}" if webhooks else "-",
    ]


def _saved(installation: ours.Installation, slug: str) -> dict[str, float]:
    """When each document of the measured batch was saved, by the peer's job id, on the peer's clock."""
    rows = installation.query(
        "SELECT s.provider_job_id, a.stored_at FROM batches_artifact a "
        "JOIN batches_submission s ON s.id = a.submission_id JOIN batches_provideraccount p ON p.id = s.account_id "
        "JOIN batches_documentversion v ON v.id = a.version_id JOIN batches_document d ON d.id = v.document_id "
        f"WHERE p.slug = '{slug}' AND d.business_id LIKE 'measure-%'"
    )
    to_monotonic = time.monotonic() - time.time()
    return {str(job_id): _instant(stored_at).timestamp() + to_monotonic for job_id, stored_at in rows}


def _instant(value: Any) -> datetime:
    """SQLite stores UTC without saying so."""
    return value if isinstance(value, datetime) else datetime.fromisoformat(f"{value}+00:00")
