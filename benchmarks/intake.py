"""Large uploads checked and started, and what other people wait for meanwhile: `python -m benchmarks intake`."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import ours, report
from benchmarks.processes import say

MEMORY_MOST_MB = 400.0
CHILD = """
import sys, django
django.setup()
from benchmarks.intake_work import main
main(*sys.argv[1:])
"""
HTML_BYTES = 5000
#: Kinds of errors in the faulty table, each a share of its rows.
FAULTS = 12


@dataclass(frozen=True)
class Shape:
    """One kind of upload: how its file is made, and within how many seconds it is checked and started."""

    name: str
    title: str
    make: Callable[[Path, int], None]
    seconds_most: float
    filename: str
    rows_share: float = 1.0
    """Of the rows that are asked for."""


# --- the files ------------------------------------------------------------------------------------------------------


def _table(path: Path, count: int) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["id", "customer.name", "customer.address", "total", "template"])
        for number in range(count):
            writer.writerow(
                [f"INV-{number:06}", f"Müller & Söhne {number}", f"Weg {number}", f"{number},50", "invoice"]
            )


def _page(number: int) -> str:
    line = f"<tr><td>Position {number}</td><td>1 pcs</td><td>12.50</td></tr>"
    return f"<h1>Invoice {number}</h1><table>{line * (HTML_BYTES // len(line))}</table>"


def _lines(path: Path, count: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            file.write(json.dumps({"id": f"INV-{number:06}", "html": _page(number)}) + "\n")


def _archive(path: Path, count: int) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        rows = [{"id": f"INV-{number:06}", "html": f"pages/{number}.html"} for number in range(count)]
        archive.writestr("manifest.json", json.dumps(rows))
        for number in range(count):
            archive.writestr(f"pages/{number}.html", _page(number))


def _faulty(path: Path, count: int) -> None:
    """A JSONL file of which every second row has one of twelve faults."""
    with path.open("w", encoding="utf-8") as file:
        for number, fault in zip(range(count), _faults(), strict=False):
            row = {"id": f"INV-{number:06}", "html": "<p>Good</p>"}
            file.write((fault(row) if number % 2 else json.dumps(row)) + "\n")


def _faults() -> Iterator[Callable[[dict[str, Any]], str]]:
    """Each of the twelve once, over and over."""

    def without(row: dict[str, Any], *names: str, **more: Any) -> str:
        return json.dumps({name: value for name, value in row.items() if name not in names} | more)

    kinds: list[Callable[[dict[str, Any]], str]] = [
        lambda row: without(row, "id"),
        lambda row: without(row, id="."),
        lambda row: without(row, id="INV-000000"),
        lambda row: without(row, "html"),
        lambda row: without(row, html=""),
        lambda row: without(row, html="pages/none.html"),
        lambda row: without(row, markdown="# Two documents"),
        lambda row: without(row, options={"format": "A11"}),
        lambda row: without(row, html=7),
        lambda row: without(row, "html", template="no-such"),
        lambda row: "{broken",
        lambda row: json.dumps(row)[:-1] + ', "id": "twice"}',
    ]
    while True:
        for kind in kinds:
            yield kind  # for the row that is even
            yield kind


SHAPES = (
    Shape("table", "CSV + template", _table, 60, "invoices.csv"),
    Shape("lines", "JSONL, HTML of 5 KB in each row", _lines, 60, "invoices.jsonl"),
    Shape("archive", "ZIP with as many files", _archive, 180, "invoices.zip"),
    Shape("faulty", f"JSONL, {FAULTS} kinds of errors", _faulty, 30, "faulty.jsonl", rows_share=0.5),
)


# --- measuring ------------------------------------------------------------------------------------------------------


def run(*, rows: int, databases: Sequence[str], shapes: Sequence[str]) -> None:
    """Measure and write `results/intake.md`."""
    machine = report.machine()
    lines = []
    for shape in (each for each in SHAPES if each.name in shapes):
        count = max(1, round(rows * shape.rows_share))
        for database in databases:
            is_server = database == "postgres"
            with ours.postgres() if is_server else nullcontext() as server, tempfile.TemporaryDirectory() as folder:
                url = server.url if server else f"sqlite:///{folder}/db.sqlite3"
                say(f"{shape.title}, {count:,} rows, {database}")
                shape.make(Path(folder) / shape.filename, count)
                lines.append(_row(shape, count, database, _measured(shape, url, Path(folder))))
    head = ["upload", "rows", "database", "checked, s", "started, s", "both (≤)", "peak MB (≤ 400)", "found"]
    report.write(
        "intake",
        f"Uploads of {rows:,} rows, checked and started",
        machine,
        "One process does what the worker does: look, check, start. Another one asks five times a second for the list "
        "of batches of another workspace; `page` is the median and the longest answer.",
        report.table([*head, "page, ms"], lines),
    )


def _row(shape: Shape, count: int, database: str, said: dict[str, Any]) -> list[str]:
    both = said["checked"] + said["started"]
    pages = [1000 * seconds for seconds in said["pages"]]
    return [
        shape.title,
        f"{count:,}",
        database,
        f"{said['checked']:.1f}",
        f"{said['started']:.1f}",
        f"{both:.1f} {report.against(both, shape.seconds_most, at_most=True)}",
        f"{said['peak_mb']:.0f} {report.against(said['peak_mb'], MEMORY_MOST_MB, at_most=True)}",
        f"{said['codes']} kinds of errors" if shape.name == "faulty" else f"{said['items']:,} items",
        report.spread(pages) if pages else "–",
    ]


def _measured(shape: Shape, url: str, folder: Path) -> dict[str, Any]:
    """Set up, then work and look at the same time, each in a process of its own."""
    environment = os.environ | {
        "DATABASE_URL": url,
        "DATA_DIR": str(folder),
        "DJANGO_SETTINGS_MODULE": "tests.settings",
    }
    _child(environment, "set-up")
    stop = folder / "stop"
    looking = subprocess.Popen(
        [sys.executable, "-c", CHILD, "look", str(stop)], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        said = _child(environment, "work", str(folder / shape.filename))
    finally:
        stop.touch()
        pages, _ = looking.communicate(timeout=120)
    return said | {"pages": json.loads(pages)["pages"]}


def _child(environment: dict[str, str], *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *arguments], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
