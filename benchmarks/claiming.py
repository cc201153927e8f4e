"""Claiming from a full table: `make bench-claiming`, or `python -m tests.postgres -- python -m benchmarks.claiming`.

1,000,000 finished and 50,000 due jobs, the due ones led by 1 and then by 100 running batches, beside 10,000 batches
that have ended. Each claim takes what a pump takes at 20 submissions a second, and is given back before the next, so
that every claim finds the same table. Writes `results/claiming.md`: p50 and p95 of one whole claim (transaction, turns,
leases, and what the steps need to know) in milliseconds, and the plans. It works in a test database of DATABASE_URL's
server, dropped at the end.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()
# What follows imports models, which is possible only from here on.

from django.db import connection, transaction  # noqa: E402 - as said above
from django.test.utils import CaptureQueriesContext  # noqa: E402 - as said above

from batches.engine import claims  # noqa: E402 - as said above
from batches.engine.batchsizes import BatchSizes  # noqa: E402 - as said above
from batches.models import Batch, BatchItem, Document, DocumentVersion, Job, JobState, ProviderAccount  # noqa: E402 - as said above
from benchmarks import report  # noqa: E402 - as said above
from benchmarks.copies import copies  # noqa: E402 - as said above
from benchmarks.processes import say  # noqa: E402 - as said above
from tests import factories  # noqa: E402 - as said above
from tests.factories import NOW  # noqa: E402 - as said above

#: At 20 submissions a second a pump keeps a second's worth ready.
TAKEN = 21
RUNNING = (1, 100)
P95_MOST = 10.0


def fill(account: ProviderAccount, *, finished: int, due: int, ended_batches: int) -> None:
    """The first 100 batches run; every job has a document, a version and an item of the batch that it names."""
    batch = factories.make_batch(account=account)
    job = factories.make_job(batch=batch)
    item = BatchItem.objects.get()
    copies(batch, max(RUNNING) - 1 + ended_batches, public_id="'bat_x' || n", creation_key="'x' || n")
    first = batch.pk
    total = finished + due
    copies(job.version.document, total, public_id="'doc_x' || n", business_id="'X-' || n", current_version_id="NULL")
    document, version = job.version.document_id, job.version_id
    copies(job.version, total, document_id=f"{document} + n")
    ended = f"{first} + {max(RUNNING)} + n %% {ended_batches}"
    of = f"CASE WHEN n <= {finished} THEN {ended} ELSE {first} END"
    copies(
        job,
        total,
        version_id=f"{version} + n",
        state=f"CASE WHEN n <= {finished} THEN 'saved' ELSE 'pending' END",
        lead_batch_id=of,
        due_at="t.due_at - n * interval '1 millisecond'",
    )
    copies(item, total, batch_id=of, position="n", document_id=f"{document} + n", version_id=f"{version} + n")
    with connection.cursor() as cursor:
        for model in (Batch, Document, DocumentVersion, Job, BatchItem):
            cursor.execute(f"VACUUM ANALYZE {model._meta.db_table}")


def spread(batches: int) -> None:
    """The due jobs over so many batches, evenly."""
    first = Batch.objects.order_by("pk").values_list("pk", flat=True)[0]
    with connection.cursor() as cursor:
        cursor.execute("UPDATE batches_job SET lead_batch_id = %s + id %% %s WHERE state = 'pending'", [first, batches])
        cursor.execute("VACUUM ANALYZE batches_job")
        cursor.execute("UPDATE batches_batch SET turn = 0")


def measured(account: ProviderAccount, rounds: int, sizes: BatchSizes) -> list[float]:
    """Milliseconds of each claim. `sizes` are the pump's, which lives for many claims."""
    times = []
    for number in range(rounds):
        begun = time.perf_counter()
        got = claims.claim_due(account, (JobState.PENDING,), owner="bench", now=NOW, most=TAKEN, sizes=sizes)
        times.append((time.perf_counter() - begun) * 1000)
        assert len(got) == TAKEN, f"claim {number} took {len(got)}"
        claims.release("bench", [each.job_id for each in got], now=NOW)
    return times


def per_statement(account: ProviderAccount, rounds: int, sizes: BatchSizes) -> list[tuple[str, float]]:
    """The median milliseconds of each statement of a claim, so that a busy machine can be told from a slow plan."""
    spent: dict[int, list[float]] = {}
    words: dict[int, str] = {}
    for _ in range(rounds):
        order = itertools.count()

        def timed(execute: Any, sql: str, params: Any, many: bool, context: Any, order: Any = order) -> Any:
            begun = time.perf_counter()
            answer = execute(sql, params, many, context)
            number = next(order)
            spent.setdefault(number, []).append((time.perf_counter() - begun) * 1000)
            words[number] = " ".join(sql.split())[:60]
            return answer

        with connection.execute_wrapper(timed):
            got = claims.claim_due(account, (JobState.PENDING,), owner="bench", now=NOW, most=TAKEN, sizes=sizes)
        claims.release("bench", [each.job_id for each in got], now=NOW)
    return [(words[number], statistics.median(times)) for number, times in sorted(spent.items())]


def plans(account: ProviderAccount, sizes: BatchSizes) -> str:
    """The two statements that find and lease, as the server plans and runs them."""
    told = []
    with transaction.atomic():
        with CaptureQueriesContext(connection) as queries:
            claims.claim_due(account, (JobState.PENDING,), owner="bench", now=NOW, most=TAKEN, sizes=sizes)
        transaction.set_rollback(True)
    asked = [query["sql"] for query in queries if query["sql"].lstrip().startswith("WITH") and "v(" not in query["sql"]]
    for statement in asked:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, SUMMARY OFF) {statement}")
            lines = [row[0] for row in cursor.fetchall()]
            transaction.set_rollback(True)
        shown = lines[:45]
        if len(lines) > len(shown):
            shown.append(f"… {len(lines) - len(shown)} more lines, the same for each further batch")
        told.append("\n".join(shown))
    return "```\n" + "\n\n".join(told) + "\n```"


def _version() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        return str(cursor.fetchone()[0]).split()[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--finished", type=int, default=1_000_000)
    parser.add_argument("--due", type=int, default=50_000)
    parser.add_argument("--ended-batches", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=400)
    options = parser.parse_args()
    if connection.vendor != "postgresql":
        raise SystemExit("This measures PostgreSQL: python -m tests.postgres -- python -m benchmarks.claiming")
    machine = report.machine(postgres=_version())
    name = connection.creation.create_test_db(verbosity=0, autoclobber=True)
    try:
        begun = time.perf_counter()
        account = factories.make_account()
        fill(account, finished=options.finished, due=options.due, ended_batches=options.ended_batches)
        say(f"{options.finished:,} finished and {options.due:,} due jobs made in {time.perf_counter() - begun:.0f} s")
        rows, parts = [], []
        for batches in RUNNING:
            spread(batches)
            sizes = BatchSizes()
            measured(account, 20, sizes)  # caches
            times = sorted(measured(account, options.rounds, sizes))
            p95 = times[int(len(times) * 0.95)]
            verdict = report.against(p95, P95_MOST, at_most=True)
            figures = (f"{each:.2f}" for each in (statistics.median(times), p95, times[-1]))
            p50, at_95, worst = figures
            rows.append([f"{batches:,}", p50, f"{at_95} {verdict}", worst])
            statements = [[f"{median:.2f}", f"`{words}…`"] for words, median in per_statement(account, 50, sizes)]
            parts += [
                f"## {batches:,} running batch{'' if batches == 1 else 'es'}",
                report.table(["median, ms", "statement"], statements),
                plans(account, sizes),
            ]
        report.write(
            "claiming",
            f"Claiming from {options.finished:,} finished and {options.due:,} due jobs",
            machine,
            f"{options.rounds} claims of {TAKEN} jobs each, beside {options.ended_batches:,} batches that have ended.",
            report.table(["running batches", "p50, ms", f"p95, ms (≤ {P95_MOST:g})", "worst, ms"], rows),
            *parts,
        )
    finally:
        connection.creation.destroy_test_db(name, verbosity=0)


if __name__ == "__main__":
    main()
