"""The batch page with 10,000 failures of six causes, in server time: `python -m benchmarks causes`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import ours, report
from benchmarks.processes import say

MOST_MS = 300.0
CHILD = """
import sys, django
django.setup()
from benchmarks.causes_page import main
main(int(sys.argv[1]))
"""
CAUSES = 6


def run(*, documents: int, databases: Sequence[str]) -> None:
    """Measure and write `results/causes.md`."""
    machine = report.machine()
    rows = []
    with ours.postgres() as server, tempfile.TemporaryDirectory() as folder:
        urls = {"sqlite": f"sqlite:///{folder}/db.sqlite3", "postgres": server.url}
        for database in databases:
            said = _asked(urls[database], documents, Path(folder))
            say(f"{database}: {said['plan']}")
            rows.append(_row(database, said))
    head = ["database", f"page, ms (≤ {MOST_MS:g})", "of it grouping, ms", "statements", f"groups (= {CAUSES})"]
    report.write(
        "causes",
        f"The batch page with {documents:,} failures of {CAUSES} causes",
        machine,
        "Django's test client in one process, 15 requests after a first one: median, least and most. The page shows "
        "five groups, the counters and the first 50 documents.",
        report.table(head, rows),
    )


def _row(database: str, said: dict[str, Any]) -> list[str]:
    page, grouping = ([1000 * seconds for seconds in said[name]] for name in ("page", "grouping"))
    middle = sorted(page)[len(page) // 2]
    return [
        database,
        f"{report.spread(page)} {report.against(middle, MOST_MS, at_most=True)}",
        report.spread(grouping),
        str(said["statements"]),
        f"{said['groups']} {'reached' if said['groups'] == CAUSES else '**missed**'}",
    ]


def _asked(url: str, documents: int, folder: Path) -> dict[str, Any]:
    environment = os.environ | {
        "DATABASE_URL": url,
        "DATA_DIR": str(folder),
        "DJANGO_SETTINGS_MODULE": "tests.settings",
    }
    command = [sys.executable, "-c", CHILD, str(documents)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
