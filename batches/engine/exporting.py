"""Building exports on a worker: one turn under a lease, part by part, each in the store before the next is begun.

Who dies leaves the parts that are whole, and the next turn goes on behind them, if the documents are still what they
were; else it starts over. A store that is away is waited for. A part goes to a staging file of the store, never to
memory. The rows that say all this are `exports.py`'s.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from batches import archives, filenames, results, rights, workbooks
from batches.conf import ENGINE
from batches.engine import exports, merging, mishaps
from batches.engine.clock import Clock
from batches.engine.pdfchild import ChildFailed
from batches.models import KINDS_WITH_CONTENT, Export, ExportKind
from batches.results import Span
from batches.storage import ArtifactStore, ObjectMissing, StoreError

log = logging.getLogger(__name__)

#: A worker takes the next export while this has not passed; one that was begun is carried on.
SLICE = timedelta(seconds=4)
BEAT = timedelta(seconds=2)
#: After so long a turn is given back behind the part under way, so that others have a turn.
LONGEST = timedelta(minutes=20)
#: A part that takes longer is given up, before django-q2 kills its worker (`queue.EXPORTS_TIMEOUT`).
TURN_MOST = timedelta(hours=3, minutes=30)
BUILT_WITHIN = timedelta(hours=ENGINE.export_built_within_hours)
FAULT = "A fault of our own stopped it; the log has the details."
NOTHING = "None of the chosen documents is saved, so there is nothing to build."
TOO_LONG = (
    "The store is too slow for so many documents, so it was given up. Choose fewer, such as one group, and order again."
)
CHANGED = "Documents changed while it was being built."
MISSING = "A stored file went missing while it was being built."
MAY_NOT = "Whoever ordered it may not see these documents any more."
ARCHIVED = "The workspace was archived before its turn."


@dataclass(frozen=True)
class Tally:
    """What one slice did. `is_work_left`: somebody should go on at once."""

    exports: int = 0
    is_work_left: bool = False


class _TooLong(Exception):
    """One part did not get done in a turn: it would not in the next either."""


class _Stopping(Exception):
    """This worker has to stop, or its turn was long enough; the next one goes on."""


def carry_out(clock: Clock, *, owner: str, store: ArtifactStore, stopping: Callable[[], bool]) -> Tally:
    """One slice over the exports that wait for a worker. Harmless when there are none."""
    ends_at = clock.now() + SLICE
    done = 0
    while not stopping() and clock.now() < ends_at:
        waiting = exports.due(now=clock.now())
        if not waiting:
            break
        done += work_on(waiting[0], clock, owner=owner, store=store, stopping=stopping)
    return Tally(done, is_work_left=bool(exports.due(now=clock.now())))


def work_on(export_id: int, clock: Clock, *, owner: str, store: ArtifactStore, stopping: Callable[[], bool]) -> bool:
    """Do the turn of one export, if nobody else has it; true when it was this call that did it.

    Raises only what says that the database is away; the export is then taken up again.
    """
    export = exports.take(export_id, owner, now=clock.now())
    if export is None:
        return False
    now = clock.now()
    turn = _Turn(export, clock, store, stopping, now + BEAT, ends_at=now + LONGEST, stops_at=now + TURN_MOST)
    try:
        if export.tries > exports.TRIES_MOST:
            exports.give_up(export, export.words)
        elif why := _why_not(export, now=clock.now()):
            exports.fail(export, why)
        else:
            turn.had = exports.stored(export.batch_id, export.rows)
            _BUILD[ExportKind(export.kind)](turn)
            exports.finish(export, now=clock.now())
    except exports.NotOurs:
        return False
    except _Stopping:
        exports.put_off(export, "", now=clock.now(), is_counted=False)
        return not stopping()
    except _TooLong:
        exports.fail(export, TOO_LONG)
    except archives.NothingSaved as nothing:
        exports.fail(export, nothing.words(NOTHING))
    except archives.ArchiveChanged:
        exports.put_off(export, CHANGED, now=clock.now())
    except archives.ArchiveBroken as broken:
        exports.fail(export, f"{broken} Once the stored file is repaired, order it again.")
    except merging.NothingMerged as empty:
        exports.fail(export, str(empty))
    except ChildFailed as failed:
        exports.fail(export, f"The merged file could not be written: that {failed}.")
    except ObjectMissing as missing:
        log.warning("an export begins anew: %s", missing)
        exports.put_off(export, MISSING, now=clock.now())
    except StoreError as error:
        log.warning("an export waits for the store: %s", error)
        exports.wait_for_store(export, error.words, now=clock.now())
    except mishaps.DATABASE_AWAY:
        with contextlib.suppress(*mishaps.DATABASE_AWAY):
            exports.put_off(export, "The database did not answer.", now=clock.now())
        raise
    except Exception as error:  # whatever it is, it is this export's: the others are not to wait for it
        log.exception("export %s could not be built", export.public_id, exc_info=mishaps.without_row(error))
        exports.put_off(export, FAULT, now=clock.now())
    return True


def _why_not(export: Export, *, now: datetime) -> str:
    """What was so when it was ordered may not be so any more."""
    if export.begun_at is not None and now >= export.begun_at + BUILT_WITHIN:
        return TOO_LONG
    if export.workspace.archived_at is not None:
        return ARCHIVED
    holds_content = export.kind in KINDS_WITH_CONTENT or export.options.get("with_words")
    if export.requested_by is None or not holds_content:
        return ""
    return "" if rights.may(export.requested_by, rights.VIEW_CONTENT, export.workspace) else MAY_NOT


@dataclass(frozen=True)
class _Written:
    """A part as it was written: its name, and of a merged file where each document begins."""

    name: str
    placed: Sequence[Any] = ()


@dataclass
class _Turn:
    """An export as it was taken, with what its building needs."""

    export: Export
    clock: Clock
    store: ArtifactStore
    stopping: Callable[[], bool]
    beats_at: datetime
    ends_at: datetime
    stops_at: datetime
    done: int = 0
    #: Parts that this turn has written.
    kept: int = 0
    #: What its rows had before they were looked at.
    had: exports.Stored = field(default_factory=lambda: exports.Stored("", 0))

    @property
    def begun_at(self) -> datetime:
        """The time that its files bear in their names, whichever turn makes them."""
        assert self.export.begun_at is not None, "set when it was taken"
        return self.export.begun_at

    @property
    def span(self) -> Span:
        return Span(chosen=self.export.rows)

    def beat(self) -> None:
        """Renew the lease and tell how far it is. Raises where this worker may or need not go on."""
        if self.stopping():
            raise _Stopping
        now = self.clock.now()
        if now >= self.stops_at:
            raise _Stopping if self.kept else _TooLong
        if now >= self.beats_at:
            self.beats_at = now + BEAT
            exports.beat(self.export, done=self.done, now=now)

    def count(self, documents: int) -> None:
        self.done = documents
        self.beat()

    def begin(self, contents_sha256: str, *, row_count: int, document_count: int, is_anew: bool = False) -> set[int]:
        return exports.begin(
            self.export,
            contents_sha256=contents_sha256,
            row_count=row_count,
            document_count=document_count,
            had=self.had,
            is_anew=is_anew,
            now=self.clock.now(),
        )

    def plan(self) -> archives.Plan:
        options = self.export.options
        return archives.plan(
            self.export.batch,
            store=self.store,
            now=self.begun_at,
            span=self.span,
            selection=dict(self.export.selection),
            folders_by=str(options.get("folders_by", "")),
            with_ids=self.export.with_ids,
            tell=self.beat,
        )

    def keep(self, number: int, *, document_count: int, ending: str, write: Callable[[Path], _Written]) -> None:
        """Have a part written to a staging file and put it into the store."""
        now = self.clock.now()
        if now >= self.ends_at and self.kept:
            raise _Stopping
        part = exports.begin_part(self.export, number, ending=ending, document_count=document_count, now=now)
        with self.store.staging() as path:
            written = write(path)
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            byte_count = path.stat().st_size
            self.beat()
            if self.store.put_if_absent(part.storage_key, path) is None:
                with _Beating(path, self.beat) as source:
                    self.store.put(part.storage_key, source)
        exports.end_part(
            self.export,
            part,
            name=written.name,
            placed=written.placed,
            sha256=sha256,
            byte_count=byte_count,
            now=self.clock.now(),
        )
        self.kept += 1


class _Beating(io.FileIO):
    """A file that renews the lease while it is uploaded, which may take minutes."""

    def __init__(self, path: Path, beat: Callable[[], None]) -> None:
        super().__init__(path, "rb")
        self._beat = beat

    def read(self, size: int = -1, /) -> bytes:  # type: ignore[override]
        self._beat()
        return super().read(size) or b""


# --- kinds ----------------------------------------------------------------------------------------------------------


def _zip(turn: _Turn) -> None:
    plan = turn.plan()
    whole = turn.begin(plan.digest, row_count=plan.row_count, document_count=plan.document_count)
    before = 0
    for part in plan.parts:
        if part.number not in whole:
            _zip_part(turn, plan, part, before)
        before += len(part.files)
    turn.count(before)


def _zip_part(turn: _Turn, plan: archives.Plan, part: archives.Part, before: int) -> None:
    def write(path: Path) -> _Written:
        archive = plan.archive(part.number, met=lambda count: turn.count(before + count))
        with path.open("wb") as out:
            for chunk in archive.chunks:
                out.write(chunk)
        return _Written(archive.name)

    turn.keep(part.number, document_count=len(part.files), ending="zip", write=write)


def _merged(turn: _Turn) -> None:
    """The merged files, and behind them a list of where each document begins.

    The list needs what each file came to. That is kept beside the file, so a turn that goes on reads it from there.
    """
    plan, options = turn.plan(), turn.export.options
    files = [file for part in plan.parts for file in part.files]
    sheets = merging.sheets(files, by_group=bool(options.get("by_group")))
    runs = f"{plan.digest} {[len(sheet.files) for sheet in sheets]}"  # and which of them share a file
    contents = hashlib.sha256(runs.encode()).hexdigest()
    whole = turn.begin(contents, row_count=plan.row_count, document_count=len(files))
    placed, merged = exports.placed_in(turn.export), _Merged(turn, plan, len(sheets))
    for number, sheet in enumerate(sheets, start=1):
        if number in whole:
            merged.note(number, sheet, merging.unpacked(sheet, placed[number]))
        else:
            merged.add(number, sheet)
    exports.recount(turn.export, len(files) - merged.left_out, now=turn.clock.now())

    def write(path: Path) -> _Written:
        _write_text(path, results.csv_lines(merging.INDEX_COLUMNS, merged.lines))
        return _Written(merged.name("merged_index", ending="csv"))

    if len(sheets) + 1 not in whole:
        turn.keep(len(sheets) + 1, document_count=0, ending="csv", write=write)


@dataclass
class _Merged:
    """The merged files of an export as they come about."""

    turn: _Turn
    plan: archives.Plan
    sheet_count: int
    lines: list[dict[str, Any]] = field(default_factory=list)
    left_out: int = 0
    done: int = 0

    def add(self, number: int, sheet: merging.Sheet) -> None:
        def write(path: Path) -> _Written:
            placed = merging.merge(
                sheet,
                path,
                store=self.turn.store,
                odd_starts=bool(self.turn.export.options.get("odd_starts")),
                tell=lambda count: self.turn.count(self.done + count),
            )
            return _Written(self.note(number, sheet, placed), merging.packed(placed))

        self.turn.keep(number, document_count=len(sheet.files), ending="pdf", write=write)

    def note(self, number: int, sheet: merging.Sheet, placed: Sequence[merging.Placed]) -> str:
        """Note what a merged file came to; its name."""
        self.left_out += sum(1 for each in placed if not each.pages)
        name = self.name(f"merged_{sheet.group}" if sheet.group else "merged", number=number, ending="pdf")
        self.lines += (_index_line(sheet, name, each) for each in placed)
        self.done += len(sheet.files)
        return name

    def name(self, what: str, *, number: int = 1, ending: str) -> str:
        of = (number, self.sheet_count if ending == "pdf" else 1)
        is_partial = self.plan.is_partial or self.left_out > 0
        return filenames.export_name(
            self.plan.batch.name, is_partial=is_partial, now=self.turn.begun_at, part=of, what=what, ending=ending
        )


def _index_line(sheet: merging.Sheet, name: str, placed: merging.Placed) -> dict[str, Any]:
    where = (placed.first_page or None, placed.pages or None, placed.note or None)
    told = (placed.file.position, placed.file.business_id, sheet.group or None, name, *where)
    return dict(zip(merging.INDEX_COLUMNS, told, strict=True))


def _results(turn: _Turn) -> None:
    export = turn.export
    count = export.batch.items.count() if export.rows is None else len(export.rows)
    turn.begin("", row_count=count, document_count=0, is_anew=True)
    name = filenames.export_name(
        export.batch.name, is_partial=False, now=turn.begun_at, what="results", ending=export.kind
    )

    with_words = bool(export.options.get("with_words", False))

    def write(path: Path) -> _Written:
        rows = _told(turn, results.rows(export.batch, with_ids=export.with_ids, with_words=with_words, span=turn.span))
        if export.kind == ExportKind.XLSX:
            workbooks.write(path, results.COLUMNS, rows, title=export.batch.name, at=turn.begun_at)
        elif export.kind == ExportKind.CSV:
            _write_text(path, results.csv_lines(results.COLUMNS, rows))
        else:
            _write_text(path, results.jsonl_lines(rows))
        return _Written(name)

    turn.keep(1, document_count=0, ending=export.kind, write=write)


def _told(turn: _Turn, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        turn.beat()
        yield row


def _write_text(path: Path, lines: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8", newline="") as out:
        out.writelines(lines)


_BUILD: dict[ExportKind, Callable[[_Turn], None]] = {
    ExportKind.ZIP: _zip,
    ExportKind.MERGED: _merged,
    ExportKind.CSV: _results,
    ExportKind.JSONL: _results,
    ExportKind.XLSX: _results,
}
