"""Many stored PDFs as few merged ones, in the order that is given, with a list of where each document begins.

The library holds a merged file in memory until it is saved, so files are no larger than `DOCUMENTS_MOST` and
`BYTES_MOST` let them be; the rest goes into the next one. A document that ends the child, or that it cannot take over,
is left out and listed, and its file is begun anew without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batches.archives import File, verified
from batches.engine.pdfchild import ChildFailed, PdfChild
from batches.storage import ArtifactStore

DOCUMENTS_MOST = 1000
BYTES_MOST = 100 * 1000**2
#: For one document, and for saving a whole file.
SECONDS = 60.0
INDEX_COLUMNS = ("row", "id", "group", "file", "first_page", "pages", "note")


class NothingMerged(Exception):
    """None of a file's documents could be taken over."""


@dataclass(frozen=True)
class Sheet:
    """One merged file to be: the files of it, and the group that all of them are of, where it is made by group."""

    group: str
    files: Sequence[File]


@dataclass(frozen=True)
class Placed:
    """Where a document stands in its file: `first_page` counts from 1. 0 pages: it was left out, `note` says why."""

    file: File
    first_page: int
    pages: int
    note: str = ""


def packed(placed: Sequence[Placed]) -> list[list[Any]]:
    """As it is kept beside the file: row, first page, pages and note of each document."""
    return [[each.file.position, each.first_page, each.pages, each.note] for each in placed]


def unpacked(sheet: Sheet, kept: Sequence[Sequence[Any]]) -> list[Placed]:
    """What was kept of the file that was made of this sheet."""
    by_row = {file.position: file for file in sheet.files}
    return [Placed(by_row[position], first_page, pages, note) for position, first_page, pages, note in kept]


def sheets(files: Iterable[File], *, by_group: bool) -> list[Sheet]:
    """Which files go together: in their order, or by the folder that they would have, groups by name."""
    groups: dict[str, list[File]] = {}
    for file in files:
        folder, _, _ = file.path.rpartition("/")
        groups.setdefault(folder if by_group else "", []).append(file)
    return [Sheet(group, run) for group in sorted(groups) for run in _runs(groups[group])]


def _runs(files: Sequence[File]) -> Iterator[list[File]]:
    run: list[File] = []
    byte_count = 0
    for file in files:
        if run and (len(run) >= DOCUMENTS_MOST or byte_count + file.byte_count > BYTES_MOST):
            yield run
            run, byte_count = [], 0
        run.append(file)
        byte_count += file.byte_count
    if run:
        yield run


def merge(
    sheet: Sheet, out: Path, *, store: ArtifactStore, odd_starts: bool, tell: Callable[[int], None]
) -> list[Placed]:
    """Write the sheet's documents to `out`; one line for each. `tell` hears how many are in it, again and again.

    Raises `NothingMerged`, `archives.ArchiveBroken` for a PDF whose bytes are not the verified ones,
    `storage.StoreError`, and `ChildFailed` where the file cannot be saved.
    """
    left_out: dict[int, str] = {}
    while True:
        placed, culprit, why = _attempt(sheet, out, left_out, store=store, odd_starts=odd_starts, tell=tell)
        if culprit is None:
            return placed
        left_out[culprit.position] = why
        if len(left_out) == len(sheet.files):
            raise NothingMerged(f"The PDF of {culprit.business_id} cannot be merged: {why}")


def _attempt(
    sheet: Sheet,
    out: Path,
    left_out: dict[int, str],
    *,
    store: ArtifactStore,
    odd_starts: bool,
    tell: Callable[[int], None],
) -> tuple[list[Placed], File | None, str]:
    placed: list[Placed] = []
    with PdfChild("merge_child.py", seconds=SECONDS) as child, store.staging() as path:
        for count, file in enumerate(sheet.files):
            tell(count)
            if file.position in left_out:
                placed.append(Placed(file, 0, 0, left_out[file.position]))
                continue
            _fetch(file, path, store)
            try:
                answer = child.ask({"add": str(path), "odd": odd_starts})
            except ChildFailed as error:
                return placed, file, f"Opening it {error}."
            if problem := answer.get("problem"):
                return placed, file, str(problem)
            placed.append(Placed(file, int(answer["first"]), int(answer["pages"])))
        child.ask({"save": str(out)})
    tell(len(sheet.files))
    return placed, None, ""


def _fetch(file: File, path: Path, store: ArtifactStore) -> None:
    with path.open("wb") as copy:
        for chunk in verified(store, file):
            copy.write(chunk)
