"""Which characters the installed fonts can show, read from the fonts' own `cmap` tables.

A character that no font has is drawn as an empty box, which no reading of the PDF can tell from other glyphs.
Knows the two table formats that fonts of today use: 4 (the basic plane) and 12 (all planes).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

_SUFFIXES = frozenset({".ttf", ".otf", ".ttc"})
_UNICODE_TABLES = frozenset({(0, 3), (0, 4), (0, 6), (3, 1), (3, 10)})


class Coverage:
    """The union of what some fonts have. `in` asks for one character."""

    def __init__(self, ranges: Iterable[range]) -> None:
        self._codes: set[int] = set()
        for codes in ranges:
            self._codes.update(codes)

    def __contains__(self, character: str) -> bool:
        return ord(character) in self._codes

    def __len__(self) -> int:
        return len(self._codes)


def of_folders(folders: Iterable[Path]) -> Coverage:
    """What the fonts beneath `folders` have together."""
    return Coverage(
        codes
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.suffix.lower() in _SUFFIXES
        for codes in of_font(path.read_bytes())
    )


def of_font(data: bytes) -> Iterator[range]:
    """Ranges of code points in a font file or collection. A table that can't be read counts as empty."""
    offsets = [0]
    if data[:4] == b"ttcf":
        (count,) = struct.unpack_from(">I", data, 8)
        offsets = list(struct.unpack_from(f">{count}I", data, 12))
    # The fonts of a collection share tables: each is read once.
    subtables = {table for offset in offsets for table in _subtables(data, offset)}
    for table in subtables:
        try:
            yield from _ranges(data, table)
        except struct.error:
            continue


def _subtables(data: bytes, font: int) -> Iterator[int]:
    """Positions of the Unicode subtables of the font at `font`."""
    (count,) = struct.unpack_from(">H", data, font + 4)
    for index in range(count):
        tag, _, cmap, _ = struct.unpack_from(">4sIII", data, font + 12 + 16 * index)
        if tag == b"cmap":
            (tables,) = struct.unpack_from(">H", data, cmap + 2)
            for number in range(tables):
                platform, encoding, offset = struct.unpack_from(">HHI", data, cmap + 4 + 8 * number)
                if (platform, encoding) in _UNICODE_TABLES:
                    yield cmap + offset


def _ranges(data: bytes, table: int) -> Iterator[range]:
    (kind,) = struct.unpack_from(">H", data, table)
    if kind == 12:
        (groups,) = struct.unpack_from(">I", data, table + 12)
        for first, last, _ in struct.iter_unpack(">III", data[table + 16 : table + 16 + 12 * groups]):
            yield range(first, last + 1)
    elif kind == 4:
        (doubled,) = struct.unpack_from(">H", data, table + 6)
        count = doubled // 2
        ends = struct.unpack_from(f">{count}H", data, table + 14)
        starts = struct.unpack_from(f">{count}H", data, table + 16 + doubled)
        # Segments hold glyphs without gaps in the fonts concerned; the last one is the end mark.
        yield from (range(start, end + 1) for start, end in zip(starts, ends, strict=True) if end != 0xFFFF)
