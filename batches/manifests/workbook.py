"""Rows out of an Excel workbook (.xlsx), one after the other, each with its row number in the sheet.

Owns the parts of the package: which sheet is read, and where its strings and formats stand. Formulas are never
computed: their stored result counts. Knows no column.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, TypeVar
from xml.parsers.expat import ExpatError

from batches.manifests import cellvalues, paths, sheetxml, source
from batches.manifests.archive import Archive
from batches.manifests.limits import Limits
from batches.manifests.problems import Code, ManifestRefused, listed, shown
from batches.manifests.sheetxml import BookReader, RelationReader, SheetReader, SheetRow, StringReader, StyleReader

_BOOK = "xl/workbook.xml"
_RELATIONS = "xl/_rels/workbook.xml.rels"
_SMALL_PART_BYTES = 50_000_000
_KEPT_STRINGS = 10_000
_AnyReader = TypeVar("_AnyReader", bound=sheetxml.Reader)


class Workbook:
    """An opened workbook. Raises ManifestRefused, here and while rows are read, for one that is damaged."""

    def __init__(self, archive: Archive, limits: Limits, stack: ExitStack) -> None:
        self._archive = archive
        self._most_bytes = 4 * limits.max_manifest_bytes
        with _as_damage():
            relations = self._read(_RELATIONS, RelationReader()).found
            book = self._read(_BOOK, BookReader())
            parts = {kind: _part(target) for kind, target in relations.values()}
            self._sheets = {
                name: _part(relations[relation][1])
                for name, (relation, _) in book.sheets.items()
                if relations.get(relation, ("", ""))[0] == "worksheet"
            }
            styles = self._read(parts.get("styles", ""), StyleReader())
        self._is_1904 = book.is_1904
        self._formats = [styles.formats.get(each) or cellvalues.builtin_format(each) for each in styles.used]
        self._strings = _Strings(self._chunks(parts.get("sharedStrings", "")), source.spool(stack))
        self.sheets = tuple(name for name in self._sheets if not book.sheets[name][1])
        """Names of the sheets that a person sees, in order."""

    def sheet(self, wanted: str) -> str:
        """The name of the sheet to read: the one that was chosen, else the first that a person sees."""
        if wanted in self._sheets:
            return wanted
        if wanted:
            message = f"The workbook has no sheet {shown(wanted, 40)}."
            raise ManifestRefused(Code.MISSING_COLUMN, message, f"Choose one of {listed(list(self.sheets))}.")
        if not self.sheets:
            message = "This is an Excel workbook without a sheet that can be seen."
            raise ManifestRefused(Code.EMPTY_FILE, message, "Put the rows on a sheet of it, or save them as CSV.")
        return self.sheets[0]

    def rows(self, sheet: str) -> Iterator[SheetRow]:
        """All rows of a sheet that are stored, in order; blank ones too."""
        reader = SheetReader(self._strings.find, self._number)
        with _as_damage(sheet):
            for _ in sheetxml.feed(reader, self._chunks(self._sheets[sheet])):
                while reader.rows:
                    yield reader.rows.popleft()

    def _number(self, given: str, style: int) -> str:
        number_format = self._formats[style] if 0 <= style < len(self._formats) else "General"
        return cellvalues.number(given, number_format, is_1904=self._is_1904)

    def _read(self, part: str, reader: _AnyReader) -> _AnyReader:
        """The whole of a small part; nothing where the workbook has none."""
        for _ in sheetxml.feed(reader, self._chunks(part, _SMALL_PART_BYTES)) if self._archive.find(part) else ():
            pass
        return reader

    def _chunks(self, part: str, most: int | None = None) -> Iterator[bytes]:
        entry = self._archive.find(part) if part else None
        return self._archive.chunks(entry, most or self._most_bytes) if entry else iter(())


class _Strings:
    """The strings that cells name by number, read only as far as one is asked for, and kept on disk."""

    def __init__(self, chunks: Iterator[bytes], file: IO[bytes]) -> None:
        self._file = file
        self._reader = StringReader()
        self._progress = sheetxml.feed(self._reader, chunks)
        self._starts = array("Q", [0])
        self.find: Callable[[int], str] = functools.lru_cache(maxsize=_KEPT_STRINGS)(self._find)

    def _find(self, number: int) -> str:
        """The string of this number. Raises IndexError."""
        if number < 0:
            raise IndexError(number)
        while number >= len(self._starts) - 1:
            if next(self._progress, self) is self:
                raise IndexError(number)
            self._keep()
        start, end = self._starts[number], self._starts[number + 1]
        self._file.seek(start)
        return self._file.read(end - start).decode()

    def _keep(self) -> None:
        end = self._file.seek(0, 2)
        found = [text.encode() for text in self._reader.found]
        self._reader.found.clear()
        self._file.write(b"".join(found))
        for raw in found:
            end += len(raw)
            self._starts.append(end)


def _part(target: str) -> str:
    """The name in the package of what the workbook calls `target`."""
    return paths.normalised(target.removeprefix("/") if target.startswith("/") else f"xl/{target}")


@contextmanager
def _as_damage(sheet: str = "") -> Iterator[None]:
    """Turn whatever a part's XML raises into one refusal."""
    try:
        yield
    except (ExpatError, ValueError, KeyError, IndexError, OverflowError) as error:
        where = f" on its sheet {shown(sheet, 40)}" if sheet else ""
        message = f"The workbook is damaged{where}."
        fix = "Open it in Excel, save it again as .xlsx, and upload that; or save it as CSV."
        raise ManifestRefused(Code.ARCHIVE_DAMAGED, message, fix) from error
