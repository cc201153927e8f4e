"""Server time of the pages with 1,000,000 documents: `make bench-pages`, or `python -m tests.postgres -- python -m
benchmarks.pages`.

What is asked is `pages_data.py`: 200 batches, one of 100,000 that is half done. Each page is asked by Django's test
client in this process, signed in as a manager of the workspace: a few times to warm it, then `--rounds` times in turn
with the others, so that a neighbour on the machine hits all of them. Writes `results/pages.md`: p50 and p95 in
milliseconds, and the statements of one request. It works in a test database of DATABASE_URL's server, dropped at the
end.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()
# What follows imports models, which is possible only from here on.

from django.conf import settings  # noqa: E402 - as said above
from django.contrib.auth.models import User  # noqa: E402 - as said above
from django.db import connection  # noqa: E402 - as said above
from django.test import Client  # noqa: E402 - as said above
from django.test.utils import CaptureQueriesContext  # noqa: E402 - as said above
from django.urls import NoReverseMatch, reverse  # noqa: E402 - as said above
from django.utils import timezone  # noqa: E402 - as said above

from batches.models import Batch, PumpSlot  # noqa: E402 - as said above
from benchmarks import pages_data, report  # noqa: E402 - as said above
from benchmarks.processes import say  # noqa: E402 - as said above
from relaypdf_site import gunicorn_conf  # noqa: E402 - as said above

P95_MOST = 150.0
QUERIES_MOST = 15
WARM = 3


def addresses(large: Batch) -> dict[str, str]:
    """The pages by what they are called; those that this revision does not have are left out."""
    batch, ended = large.public_id, "bat_x100"
    wanted = {
        "home": ("home", (), ""),
        "batch list": ("batch_list", (), ""),
        "batch list, needs a person": ("batch_list", (), "?view=attention"),
        "batch list, unfinished": ("batch_list", (), "?view=unfinished"),
        "batch of 100,000": ("batch_detail", (batch,), ""),
        "batch of 100,000, failed": ("batch_detail", (batch,), "?state=failed"),
        "batch of 100,000, failed, second page": ("batch_detail", (batch,), "?state=failed&after=20000"),
        "batch of 100,000, live part": ("batch_live", (batch,), ""),
        "batch that has ended, failed": ("batch_detail", (ended,), "?state=failed"),
        "document": ("document_detail", ("doc_x4000",), ""),
        "failed items": ("failed_list", (), ""),
        "audit": ("audit_list", (), ""),
        "exports": ("export_list", (), ""),
        "accounts": ("account_list", (), ""),
        "webhooks": ("inbox", (), ""),
        "health": ("vitals", (), ""),
    }
    found = {}
    for words, (name, arguments, query) in wanted.items():
        try:
            found[words] = reverse(f"batches:{name}", args=arguments) + query
        except NoReverseMatch:
            say(f"no page {name} in this revision")
    return found


def statements_of(client: Client, address: str) -> int:
    with CaptureQueriesContext(connection) as captured:
        answer = client.get(address)
    assert answer.status_code in (200, 204), f"{address}: {answer.status_code}"
    return len(captured)


def measured(client: Client, pages: dict[str, str], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Milliseconds of each request by page: as a clock sees them, and on the processor."""
    times: dict[str, list[tuple[float, float]]] = {words: [] for words in pages}
    for number in range(WARM + rounds):
        a_pump_is_at_work()
        for words, address in pages.items():
            begun, used = time.perf_counter(), _processor_seconds()
            client.get(address)
            if number >= WARM:
                took = (time.perf_counter() - begun, _processor_seconds() - used)
                times[words].append((took[0] * 1000, took[1] * 1000))
    return times


def a_pump_is_at_work() -> None:
    """As in use: else each page would look for how long documents have been waiting for one."""
    PumpSlot.objects.update_or_create(number=0, defaults={"heartbeat_at": timezone.now()})


def _processor_seconds() -> float:
    """Of this process and of the backend that works for it, which runs on the same machine."""
    connection.ensure_connection()
    backend = Path(f"/proc/{connection.connection.info.backend_pid}/schedstat").read_text("ascii")
    return time.process_time() + int(backend.split()[0]) / 1e9


def slowest_statements(client: Client, address: str, most: int) -> list[str]:
    """For whoever makes a page faster: where the time of the database goes."""
    with CaptureQueriesContext(connection) as captured:
        client.get(address)
    ordered = sorted(captured.captured_queries, key=lambda query: -float(query["time"]))
    return [f"{float(query['time']) * 1000:.0f} ms {query['sql']}" for query in ordered[:most]]


def _version() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        return str(cursor.fetchone()[0]).split()[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--large", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--keep", action="store_true", help="use the database of a run before, and leave it")
    parser.add_argument("--only", default="", help="only pages whose name holds this; shows their statements")
    options = parser.parse_args()
    if connection.vendor != "postgresql":
        raise SystemExit("This measures PostgreSQL: python -m tests.postgres -- python -m benchmarks.pages")
    settings.DEBUG = False  # as in use: no statement is kept for a report
    settings.ALLOWED_HOSTS = ["*"]
    machine = report.machine(postgres=_version())
    name = connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False, keepdb=options.keep)
    try:
        if not Batch.objects.exists():
            begun = time.perf_counter()
            pages_data.fill(documents=options.documents, large=options.large)
            say(f"{options.documents:,} documents made in {time.perf_counter() - begun:.0f} s")
        _run(options, machine)
    finally:
        if not options.keep:
            connection.creation.destroy_test_db(name, verbosity=0)


def _run(options: argparse.Namespace, machine: str) -> None:
    gunicorn_conf.freeze()  # as the web server does
    client = Client()
    client.force_login(User.objects.get(username="bench"))
    large = Batch.objects.order_by("pk")[0]
    pages = {words: address for words, address in addresses(large).items() if options.only in words}
    asked = options.rounds
    parts = [_table(client, pages, options)]
    if not options.only:
        pages_data.half_done(large)
        moving = {words: address for words, address in pages.items() if "batch" in words or words == "home"}
        options.rounds = -(-options.rounds // 4)
        head = f"## While the batch of 100,000 is half done, {options.rounds} requests a page"
        parts += [head, _table(client, moving, options)]
    report.write(
        "pages",
        f"Server time of the pages with {options.documents:,} documents in {pages_data.BATCHES} batches",
        machine,
        f"One batch of {options.large:,}, 190 others ended, five running, four paused. {asked} requests a "
        "page, warm, in one process. Processor time is that of this process and of its PostgreSQL backend: what a "
        "request takes where no neighbour wants the same core.",
        *parts,
    )


def _table(client: Client, pages: dict[str, str], options: argparse.Namespace) -> str:
    a_pump_is_at_work()
    client.get(next(iter(pages.values())))  # the first request of a session also writes down that it is used
    counts = {words: statements_of(client, address) for words, address in pages.items()}
    if options.only:
        for words, address in pages.items():
            say("\n".join([words, *slowest_statements(client, address, 6)]))
    times = measured(client, pages, options.rounds)
    rows = []
    for words in pages:
        clock, processor = (sorted(column) for column in zip(*times[words], strict=True))
        p95 = clock[int(len(clock) * 0.95)]
        rows.append(
            [
                words,
                f"{statistics.median(clock):.0f}",
                f"{p95:.0f} {report.against(p95, P95_MOST, at_most=True)}",
                f"{statistics.median(processor):.0f}",
                f"{processor[int(len(processor) * 0.95)]:.0f}",
                f"{counts[words]} {report.against(counts[words], QUERIES_MOST, at_most=True)}",
            ]
        )
    head = ["page", "p50, ms", f"p95, ms (≤ {P95_MOST:g})", "p50, processor", "p95, processor"]
    return report.table([*head, f"queries (≤ {QUERIES_MOST})"], rows)


if __name__ == "__main__":
    main()
