"""Tables: medians and paired ratios, the machine beside them, written to `benchmarks/results/`."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"
PACKAGES = ("Django", "django-q2", "requests", "urllib3", "psycopg")


def machine(*, postgres: str = "") -> str:
    """One line: processor, cores, versions, date, load, revision."""
    revision = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    parts = [
        f"{time.strftime('%Y-%m-%d %H:%M')}",
        f"{_processor()}, {os.cpu_count()} cores",
        f"load before {_loads()}",
        f"CPython {platform.python_version()}",
        *(f"{name} {version(name)}" for name in PACKAGES),
        f"SQLite {sqlite3.sqlite_version}",
        *([f"PostgreSQL {postgres}"] if postgres else []),
        f"revision {revision or 'unknown'}",
    ]
    return "; ".join(parts) + "."


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _loads() -> str:
    return " ".join(f"{load:.1f}" for load in os.getloadavg())


def spread(values: Sequence[float], form: str = "{:.0f}") -> str:
    """Median, and least and most when there are several."""
    if not values:
        return "-"
    middle = form.format(statistics.median(values))
    if len(values) == 1:
        return middle
    return f"{middle} ({form.format(min(values))}..{form.format(max(values))})"


def paired(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ours over theirs, round by round: both ran within the same minute or two."""
    return [one / other for one, other in zip(ours, theirs, strict=True)]


def against(value: float, threshold: float, *, at_most: bool = False) -> str:
    """The verdict beside a figure."""
    good = value <= threshold if at_most else value >= threshold
    return "reached" if good else "**missed**"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join("---" for _ in head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def write(name: str, title: str, machine_line: str, *parts: str) -> None:
    """Show the report, and write it to `results/` unless BENCH_DRY is set, as while something is being changed."""
    text = "\n\n".join([f"# {title}", machine_line, *parts]) + "\n"
    if not os.environ.get("BENCH_DRY"):
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.md").write_text(text, "utf-8")
    sys.stdout.write(text)
