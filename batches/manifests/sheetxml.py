"""The XML inside of a workbook, as a stream of small events: names of sheets, relations, formats, strings, rows.

Each reader keeps only what it was made for, however large the part is. A document type is refused, so that no entity
can be declared.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from xml.parsers.expat import ParserCreate

from batches.manifests.problems import Code, Unfit, shown

_MOST_ENTRIES = 100_000
_MOST_CELLS = 2_000
_DEEPEST = 100
_LONGEST_TEXT = 1_000_000  # Excel's own limit is 32,767 characters
#: Of one tag, comment or the like. Expat holds it whole.
_LONGEST_TOKEN = 5_000_000
_LAST_ROW = 10_000_000
_ESCAPE = re.compile(r"_x([0-9A-Fa-f]{4})_")
_REFERENCE = re.compile(r"([A-Z]{1,3})\d{1,7}\Z")

Attributes = Mapping[str, str]


class Damaged(ValueError):
    """The part is not what it should be."""


class Reader:
    """Takes the elements of one part, by their local names."""

    def start(self, name: str, attributes: Attributes) -> None:
        """An element begins; its attributes go by local names too."""

    def end(self, name: str) -> None:
        """It ends."""

    def text(self, text: str) -> None:
        """Some text inside of it."""


def feed(reader: Reader, chunks: Iterable[bytes]) -> Iterator[None]:
    """Parse a part chunk by chunk; yields after each, so that what was found can be taken away.

    Raises ExpatError, and ValueError for what is no such part.
    """
    parser = ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    names: dict[str, str] = {}

    def local(name: str) -> str:
        if len(names) > _MOST_ENTRIES:
            raise Damaged("too many names")
        return names.setdefault(name, name.rpartition(" ")[2])

    depth = 0

    def begin(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEEPEST:
            raise Damaged("nested too deep")
        reader.start(local(name), {local(key): value for key, value in attributes.items()})

    def finish(name: str) -> None:
        nonlocal depth
        depth -= 1
        reader.end(local(name))

    parser.StartElementHandler = begin
    parser.EndElementHandler = finish
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = _refuse_doctype
    given = 0
    for chunk in chunks:
        parser.Parse(chunk, False)
        given += len(chunk)
        if given - parser.CurrentByteIndex > _LONGEST_TOKEN:
            raise Damaged("a tag that does not end")
        yield
    parser.Parse(b"", True)
    yield


def _refuse_doctype(*_: object) -> None:
    raise Damaged("a document type is declared")


@dataclass(slots=True)
class BookReader(Reader):
    """`xl/workbook.xml`."""

    sheets: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """Relation's id and whether it is hidden, by the sheet's name, in order."""
    is_1904: bool = False

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "sheet" and len(self.sheets) < _MOST_ENTRIES:
            is_hidden = attributes.get("state", "visible") != "visible"
            self.sheets[attributes.get("name", "")] = (attributes.get("id", ""), is_hidden)
        elif name == "workbookPr":
            self.is_1904 = attributes.get("date1904", "0") in {"1", "true", "on"}


@dataclass(slots=True)
class RelationReader(Reader):
    """`xl/_rels/workbook.xml.rels`."""

    found: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Kind (`worksheet`, `styles`) and target by the relation's id; only those inside of the package."""

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "Relationship" and attributes.get("TargetMode") != "External" and len(self.found) < _MOST_ENTRIES:
            kind = attributes.get("Type", "").rpartition("/")[2]
            self.found[attributes.get("Id", "")] = (kind, attributes.get("Target", ""))


@dataclass(slots=True)
class StyleReader(Reader):
    """`xl/styles.xml`: what matters for the text of a number."""

    formats: dict[int, str] = field(default_factory=dict)
    """The workbook's own formats by number."""
    used: list[int] = field(default_factory=list)
    """The format's number of each style that cells name, in order."""
    _in_cells: bool = False

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "numFmt" and len(self.formats) < _MOST_ENTRIES:
            self.formats[int(attributes["numFmtId"])] = attributes.get("formatCode", "General")
        elif name == "cellXfs":
            self._in_cells = True
        elif name == "xf" and self._in_cells and len(self.used) < _MOST_ENTRIES:
            self.used.append(int(attributes.get("numFmtId", "0")))

    def end(self, name: str) -> None:
        if name == "cellXfs":
            self._in_cells = False


@dataclass(slots=True)
class StringReader(Reader):
    """`xl/sharedStrings.xml`, and text that stands in a cell: runs are joined, readings of characters left out."""

    found: deque[str] = field(default_factory=deque)
    _parts: list[str] = field(default_factory=list)
    _size: int = 0
    _is_text: bool = False
    _in_reading: bool = False

    def start(self, name: str, attributes: Attributes) -> None:
        if name in {"si", "is"}:
            self._parts.clear()
            self._size = 0
        elif name == "rPh":
            self._in_reading = True
        elif name == "t":
            self._is_text = not self._in_reading

    def end(self, name: str) -> None:
        if name == "t":
            self._is_text = False
        elif name == "rPh":
            self._in_reading = False
        elif name in {"si", "is"}:
            self.found.append(unescaped("".join(self._parts)))
            self._parts.clear()

    def text(self, text: str) -> None:
        if self._is_text:
            self._size = _grown(self._size, text)
            self._parts.append(text)


@dataclass(slots=True)
class SheetRow:
    """One row of a sheet: its number as Excel shows it, its cells as text, and those that cannot be used."""

    line: int
    cells: list[str] = field(default_factory=list)
    faults: dict[int, Unfit] = field(default_factory=dict)
    """By place of the cell, from 0."""


class SheetReader(Reader):
    """A sheet's part. `shared` gives a string by its number, `number` the text of a number in a style."""

    def __init__(self, shared: Callable[[int], str], number: Callable[[str, int], str]) -> None:
        self._shared = shared
        self._number = number
        self._inline = StringReader()
        self.rows: deque[SheetRow] = deque()
        self._row = SheetRow(0)
        self._column = -1
        self._kind, self._style = "", 0
        self._parts: list[str] = []
        self._size = 0
        self._is_value = self._has_value = self._has_formula = self._is_inline = self._in_cell = False

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "c":
            self._begin_cell(attributes)
        elif not self._in_cell:
            if name == "row":
                self._row = SheetRow(_row_number(attributes.get("r"), self._row.line))
                self._column = -1
        elif name == "v":
            self._is_value = self._has_value = True
        elif name == "f":
            self._has_formula = True
        elif name == "is" or self._is_inline:
            self._is_inline = True
            self._inline.start(name, attributes)

    def end(self, name: str) -> None:
        if name == "c":
            self._end_cell()
        elif name == "row":
            self.rows.append(self._row)
        elif name == "v":
            self._is_value = False
        elif self._is_inline:
            self._inline.end(name)
            self._is_inline = name != "is"

    def text(self, text: str) -> None:
        if self._is_value:
            self._size = _grown(self._size, text)
            self._parts.append(text)
        elif self._is_inline:
            self._inline.text(text)

    def _begin_cell(self, attributes: Attributes) -> None:
        reference = _REFERENCE.match(attributes.get("r", ""))
        self._column = _column_index(reference[1]) if reference else self._column + 1
        self._kind = attributes.get("t", "n")
        self._style = int(attributes.get("s", "0"))
        self._parts.clear()
        self._size = 0
        self._in_cell = True
        self._has_value = self._has_formula = self._is_inline = self._is_value = False

    def _end_cell(self) -> None:
        self._in_cell = False
        given = "".join(self._parts)
        try:
            text = self._text(given)
        except Unfit as unfit:
            text = given or "(formula)"
            self._row.faults[self._column] = unfit
        if not text:
            return
        if self._column >= _MOST_CELLS:
            raise Damaged("too many columns")
        cells = self._row.cells
        cells.extend([""] * (self._column + 1 - len(cells)))
        cells[self._column] = text

    def _text(self, given: str) -> str:
        if self._kind == "inlineStr":
            return self._inline.found.pop() if self._inline.found else ""
        if self._kind == "str" and self._has_value:
            return unescaped(given)
        if not given:
            if self._has_formula:
                raise Unfit(
                    Code.SPREADSHEET_DAMAGE, "The cell holds a formula whose result was not stored.", _FIX_FORMULA
                )
            return ""
        if self._kind == "s":
            return self._shared(int(given))
        if self._kind == "b":
            return "TRUE" if given.strip() == "1" else "FALSE"
        if self._kind == "e":
            message = f"The cell shows the error {shown(given, 20)}."
            raise Unfit(Code.SPREADSHEET_DAMAGE, message, "Correct the formula, or put the value itself there.")
        return given.strip() if self._kind == "d" else self._number(given.strip(), self._style)


def _grown(size: int, text: str) -> int:
    size += len(text)
    if size > _LONGEST_TEXT:
        raise Damaged("a text is longer than any cell can hold")
    return size


def unescaped(text: str) -> str:
    """The characters that Excel spells as `_x000D_`; half of a character stays spelled out."""
    return _ESCAPE.sub(_character, text) if "_x" in text else text


def _character(escape: re.Match[str]) -> str:
    point = int(escape[1], 16)
    return escape[0] if 0xD800 <= point <= 0xDFFF else chr(point)


def _column_index(letters: str) -> int:
    index = 0
    for letter in letters:
        index = index * 26 + ord(letter) - 64
    return index - 1


def _row_number(given: str | None, last: int) -> int:
    number = int(given) if given else last + 1
    if not 0 < number <= _LAST_ROW:
        raise Damaged("a row's number is beyond all sheets")
    return number


_FIX_FORMULA = "Open the workbook in Excel, let it compute, and save it; or put the value itself there."
