"""ZIP archives of stored files, as a stream whose length is known before its first byte. Pure.

Nothing is compressed (PDFs hardly shrink), names are UTF-8 and say so, times are given, so the same files make the same
bytes. Zip64 where counts, sizes or places ask for it. Sizes have to be known; a file that turns out to have another one
breaks the stream off. Small files are read whole before their first byte leaves, so that their header says it all and
whatever is found wrong with one leaves nothing of it in the archive.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from zlib import crc32

#: What is gathered before it is passed on: a web server sends each piece by itself.
PIECE_BYTES = 128 * 1024
#: Files up to this size are held in memory; the checksum of a larger one comes behind it.
WHOLE_BYTES = 4 * 1024**2
_MOST_16, _MOST_32 = 0xFFFF, 0xFFFFFFFF
_UTF8, _CHECKSUM_BEHIND = 0x0800, 0x0008
_PLAIN, _ZIP64 = 20, 45
#: Made on Unix, as a file that its owner may write and everybody read.
_MADE_ON_UNIX, _MODE = 3 << 8, 0o100644 << 16
_LOCAL = struct.Struct("<4sHHHHHLLLHH")
_CENTRAL = struct.Struct("<4sHHHHHHLLLHHHHHLL")
_END = struct.Struct("<4sHHHHLLH")
_END64 = struct.Struct("<4sQHHLLQQQQ")
_LOCATOR = struct.Struct("<4sLQL")


class WrongSize(Exception):
    """A file does not have the size that was said before."""


@dataclass(frozen=True)
class Entry:
    """One file: its path in the archive, its exact size, the time that it bears, and how its bytes are had."""

    path: str
    byte_count: int
    at: datetime
    chunks: Callable[[], Iterator[bytes]]

    @property
    def name(self) -> bytes:
        return self.path.encode()

    @property
    def is_huge(self) -> bool:
        return self.byte_count >= _MOST_32

    @property
    def is_whole(self) -> bool:
        return self.byte_count <= WHOLE_BYTES

    @property
    def length(self) -> int:
        """Of its header and bytes, with what follows them."""
        behind = 0 if self.is_whole else 24 if self.is_huge else 16
        return _LOCAL.size + len(self.name) + (20 if self.is_huge else 0) + self.byte_count + behind


def length(entries: Sequence[Entry]) -> int:
    """Of the archive, in bytes."""
    place = directory = 0
    for entry in entries:
        directory += _CENTRAL.size + len(entry.name) + len(_extra(entry, place))
        place += entry.length
    return place + directory + len(_end(len(entries), directory, place))


def stream(entries: Sequence[Entry]) -> Iterator[bytes]:
    """The archive, in pieces of some size. Raises `WrongSize`, and whatever `chunks` of an entry raises."""
    directory: list[bytes] = []
    place, piece = 0, bytearray()
    for entry in entries:
        sent = _Sent(entry)
        for part in sent.parts():
            piece += part
            if len(piece) >= PIECE_BYTES:
                yield bytes(piece)
                piece.clear()
        directory.append(_central(entry, sent.checksum, place))
        place += entry.length
    piece += b"".join(directory)
    piece += _end(len(entries), sum(map(len, directory)), place)
    yield bytes(piece)


class _Sent:
    """One entry on its way; `checksum` holds once its parts have all been taken."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self.checksum = 0

    def parts(self) -> Iterator[bytes]:
        entry = self._entry
        if entry.is_whole:
            whole = b"".join(self._checked())
            yield self._header(0, self.checksum, len(whole))
            yield whole
            return
        yield self._header(_CHECKSUM_BEHIND, 0, 0)
        yield from self._checked()
        sizes = "QQ" if entry.is_huge else "LL"
        yield struct.pack(f"<4sL{sizes}", b"PK\x07\x08", self.checksum, entry.byte_count, entry.byte_count)

    def _header(self, flags: int, checksum: int, size: int) -> bytes:
        entry, extra, needed = self._entry, b"", _PLAIN
        if entry.is_huge:
            extra, needed, size = struct.pack("<HHQQ", 1, 16, 0, 0), _ZIP64, _MOST_32
        day, time = _dos(entry.at)
        head = (b"PK\x03\x04", needed, _UTF8 | flags, 0, time, day, checksum, size, size, len(entry.name), len(extra))
        return _LOCAL.pack(*head) + entry.name + extra

    def _checked(self) -> Iterator[bytes]:
        count = 0
        for chunk in self._entry.chunks():
            count += len(chunk)
            if count > self._entry.byte_count:
                break
            self.checksum = crc32(chunk, self.checksum)
            yield chunk
        if count != self._entry.byte_count:
            raise WrongSize(self._entry.path)


def _extra(entry: Entry, place: int) -> bytes:
    """What of the directory's line does not fit into 32 bits."""
    large = [entry.byte_count] * 2 if entry.is_huge else []
    large += [place] if place >= _MOST_32 else []
    return struct.pack(f"<HH{len(large)}Q", 1, 8 * len(large), *large) if large else b""


def _central(entry: Entry, checksum: int, place: int) -> bytes:
    extra, size = _extra(entry, place), _MOST_32 if entry.is_huge else entry.byte_count
    needed = _ZIP64 if extra else _PLAIN
    day, time = _dos(entry.at)
    flags = _UTF8 | (0 if entry.is_whole else _CHECKSUM_BEHIND)
    line = _CENTRAL.pack(
        b"PK\x01\x02",
        _MADE_ON_UNIX | needed,
        needed,
        flags,
        0,
        time,
        day,
        checksum,
        size,
        size,
        len(entry.name),
        len(extra),
        0,
        0,
        0,
        _MODE,
        min(place, _MOST_32),
    )
    return line + entry.name + extra


def _end(count: int, directory: int, place: int) -> bytes:
    """What stands behind the directory, which has so many bytes and begins at `place`."""
    wide = b""
    if count >= _MOST_16 or directory >= _MOST_32 or place >= _MOST_32:
        made = _MADE_ON_UNIX | _ZIP64
        wide = _END64.pack(b"PK\x06\x06", 44, made, _ZIP64, 0, 0, count, count, directory, place)
        wide += _LOCATOR.pack(b"PK\x06\x07", 0, place + directory, 1)
    short, size, begin = min(count, _MOST_16), min(directory, _MOST_32), min(place, _MOST_32)
    return wide + _END.pack(b"PK\x05\x06", 0, 0, short, short, size, begin, 0)


def _dos(at: datetime) -> tuple[int, int]:
    """Day and time as an archive holds them: UTC, in steps of two seconds, from 1980 on."""
    at = min(max(at.astimezone(UTC), datetime(1980, 1, 1, tzinfo=UTC)), datetime(2107, 12, 31, tzinfo=UTC))
    return (at.year - 1980) << 9 | at.month << 5 | at.day, at.hour << 11 | at.minute << 5 | at.second // 2
