"""Results as an Excel workbook. Written row by row; every text stays the text that it is, ids too, and nothing runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from openpyxl import Workbook
from openpyxl.cell import WriteOnlyCell
from openpyxl.styles import Font

#: What one sheet holds, its head included; the format has no more.
ROWS_MOST = 1_048_576
CELL_MOST = 32_767
#: What XML cannot hold.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def write(
    out: Path | BinaryIO, columns: Sequence[str], table: Iterable[Mapping[str, Any]], *, title: str, at: datetime
) -> int:
    """Write the rows under their columns; how many there were."""
    book = Workbook(write_only=True)
    book.properties.created = book.properties.modified = at.replace(tzinfo=None)
    sheet = book.create_sheet(_FORBIDDEN.sub("", re.sub(r"[\[\]:*?/\\]", " ", title)).strip(" '")[:31] or "Results")
    sheet.freeze_panes = "A2"
    sheet.append(list(_head(sheet, columns)))
    count = 0
    for row in table:
        sheet.append([_cell(sheet, row.get(name)) for name in columns])
        count += 1
    book.save(out)
    return count


def _head(sheet: Any, columns: Sequence[str]) -> Iterator[Any]:
    bold = Font(bold=True)
    for name in columns:
        cell = _text(sheet, name)
        cell.font = bold
        yield cell


def _cell(sheet: Any, value: Any) -> Any:
    return _text(sheet, value) if isinstance(value, str) else value


def _text(sheet: Any, text: str) -> Any:
    """A cell that is text, whatever it begins with; where it looks like a formula it stays text when it is edited."""
    cell: Any = WriteOnlyCell(sheet, "")
    cell._value = _FORBIDDEN.sub("\ufffd", text)[:CELL_MOST]  # its setter would make a formula of what begins with =
    cell.data_type = "s"
    cell.number_format = "@"
    if text.lstrip()[:1] in ("=", "+", "-", "@"):
        cell.quotePrefix = True
    return cell
