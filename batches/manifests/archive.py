"""A ZIP from a stranger: opened without trust, looked up by name, inflated within limits.

Owns what a ZIP may hold. Never writes anything to disk under a name from the ZIP, never follows a
link, and never believes a size that the ZIP claims.
"""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import IO

from batches.manifests import contents, paths
from batches.manifests.limits import Limits
from batches.manifests.problems import Code, ManifestRefused, listed, megabytes, shown

_CHUNK_BYTES = 1 << 16
_END_RECORD = b"PK\x05\x06"
_END_RECORD_BYTES = 22
_LONGEST_COMMENT = 0xFFFF
_ZIP64_LOCATOR = b"PK\x06\x07"
_ZIP64_BYTES = 56 + 20  # the ZIP64 end record and its locator, right before the end record
_DIRECTORY_BYTES_PER_ENTRY = 400
_ENTRY_MARK = b"PK\x01\x02"
_LOCAL_HEADER_BYTES = 30
_FLAG_ENCRYPTED = 0x1
_FLAG_UTF8 = 0x800
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_ARCHIVE_SUFFIXES = frozenset({".zip", ".7z", ".rar", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".jar"})
#: Entries that only office documents have, and what such a file is. The first that fits counts.
_OFFICE_MARKS = (
    ("xl/workbook.bin", "a binary Excel workbook (.xlsb)", "Save it as .xlsx."),
    ("xl/vbaProject.bin", "an Excel workbook with macros (.xlsm)", "Save it as .xlsx, without macros."),
    ("word/", "a Word document", "Export it as HTML and put it in a ZIP with a manifest."),
    ("ppt/", "a PowerPoint file", "Export it as HTML and put it in a ZIP with a manifest."),
)
_TABLE_TYPE = "application/vnd.oasis.opendocument.spreadsheet"
#: Whatever zipfile raises on bytes that are no honest ZIP.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    NotImplementedError,
    RuntimeError,
    IndexError,
    OverflowError,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A regular file in the ZIP, or a link (which is never read)."""

    name: str
    """Normalised, from the ZIP's top."""
    zip_info: zipfile.ZipInfo
    is_folder: bool
    is_link: bool
    other_name: str | None
    """The name that an old tool may have meant, when the ZIP does not say which encoding names have."""


class Archive:
    """The checked directory of a ZIP, and reading from it.

    Opening raises ManifestRefused for anything unsafe; the stream stays the caller's to close.
    """

    def __init__(self, stream: IO[bytes], limits: Limits) -> None:
        self._limits = limits
        _check_directory_size(stream, limits)
        with _as_damage():
            self._zip = zipfile.ZipFile(stream)
        entries = self._zip.infolist()
        self.is_workbook = _is_workbook(entries)
        _check_entries(entries, limits)
        if not self.is_workbook:
            self._refuse_other_packages(entries)
        named = _named(entries)  # folders too: their names are checked as well
        self.files = [entry for entry in named if not (entry.is_folder or paths.is_junk(entry.name))]
        _check_names(self.files)
        self._by_name = {entry.name: entry for entry in self.files}
        self._by_other_name = {entry.other_name: entry for entry in self.files if entry.other_name}

    def _refuse_other_packages(self, entries: list[zipfile.ZipInfo]) -> None:
        """OpenDocument files, books and programs are ZIPs as well."""
        kinds = [info for info in entries if info.filename == "mimetype"]
        if kinds:
            with _as_damage("mimetype"), self._zip.open(kinds[0]) as stream:
                declared = stream.read(100).decode("latin-1")
            if declared.startswith(_TABLE_TYPE):
                message = "This is an OpenDocument table (.ods), not a manifest."
                raise ManifestRefused(Code.WRONG_FILE_TYPE, message, "Save it as .xlsx or as CSV.")
        if kinds or any(info.filename == "META-INF/MANIFEST.MF" for info in entries):
            raise ManifestRefused(
                Code.WRONG_FILE_TYPE,
                "This is an office document, a book or a program packed as a ZIP, not a manifest with its files.",
                "Upload a ZIP with manifest.json and the HTML files.",
            )

    def find(self, name: str) -> Entry | None:
        """The entry of this normalised name; tried as UTF-8 first, then as old tools spell names (CP437)."""
        return self._by_name.get(name) or self._by_other_name.get(name)

    def read(self, entry: Entry) -> bytes:
        """One document's bytes. Raises Unfit when it is too large, ManifestRefused when the ZIP lies."""
        contents.check_size(entry.zip_info.file_size, self._limits)
        return b"".join(self.chunks(entry, self._limits.max_document_bytes))

    def chunks(self, entry: Entry, most: int) -> Iterator[bytes]:
        """The entry's bytes, at most `most` of them; counts what really comes out.

        No entry may yield more or less than the directory says, so together they stay below the checked total.
        """
        size = 0
        with _as_damage(entry.name), self._zip.open(entry.zip_info) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                size += len(chunk)
                if size > entry.zip_info.file_size:
                    raise _damaged(entry.name)
                if size > most:
                    raise _too_large(entry.name, most)
                yield chunk
        if size != entry.zip_info.file_size:
            raise _damaged(entry.name)


def _check_directory_size(stream: IO[bytes], limits: Limits) -> None:
    """Refuse a directory with too many entries before zipfile makes an object of each."""
    end, size = _directory_place(stream)
    too_many = size > limits.max_entries * _DIRECTORY_BYTES_PER_ENTRY
    start = max(0, end - size - _ZIP64_BYTES)
    stream.seek(start)
    count, carried, left = 0, b"", end - start
    while not too_many and left > 0 and (chunk := stream.read(min(1 << 20, left))):
        left -= len(chunk)
        window = carried + chunk
        count += window.count(_ENTRY_MARK)
        carried = window[-(len(_ENTRY_MARK) - 1) :]
        too_many = count > limits.max_entries
    if too_many:
        raise ManifestRefused(
            Code.UPLOAD_TOO_LARGE,
            f"The ZIP holds more than {limits.max_entries:,} entries.",
            "Split it into several uploads.",
        )


def _directory_place(stream: IO[bytes]) -> tuple[int, int]:
    """Where the ZIP's directory ends and how large it says it is (the larger of two claims)."""
    tail_start = max(0, stream.seek(0, 2) - _LONGEST_COMMENT - _END_RECORD_BYTES - _ZIP64_BYTES)
    stream.seek(tail_start)
    tail = stream.read()
    at = tail.rfind(_END_RECORD)
    if at < 0 or len(tail) - at < _END_RECORD_BYTES:
        raise _damaged()
    (size,) = struct.unpack_from("<I", tail, at + 12)
    if at >= _ZIP64_BYTES and tail[at - 20 : at - 16] == _ZIP64_LOCATOR:
        (size64,) = struct.unpack_from("<Q", tail, at - _ZIP64_BYTES + 40)
        size = size64 if size == 0xFFFFFFFF else max(size, size64)
    return tail_start + at, size


def _is_workbook(entries: list[zipfile.ZipInfo]) -> bool:
    """Whether the ZIP is an Excel workbook. Raises ManifestRefused for other documents of an office."""
    names = {info.filename for info in entries}
    if "[Content_Types].xml" not in names:
        return False
    for mark, kind, fix in _OFFICE_MARKS:
        if any(name.startswith(mark) for name in names):
            raise ManifestRefused(Code.WRONG_FILE_TYPE, f"This is {kind}, not a manifest.", fix)
    return any(name.startswith("xl/") for name in names)


def _check_entries(entries: list[zipfile.ZipInfo], limits: Limits) -> None:
    """Everything that makes the whole ZIP unusable, judged from its directory alone."""
    if not entries:
        raise ManifestRefused(Code.EMPTY_FILE, "The ZIP is empty.", "Put manifest.json and the HTML files in it.")
    encrypted = [info.filename for info in entries if info.flag_bits & _FLAG_ENCRYPTED]
    if encrypted:
        raise ManifestRefused(
            Code.ARCHIVE_ENCRYPTED,
            f"The ZIP is password-protected ({listed(encrypted)}).",
            "Make it again without a password.",
            files=encrypted,
        )
    odd = [info.filename for info in entries if _is_odd(info)]
    if odd:
        raise _unsafe("devices or pipes", odd, "Put only plain files in the ZIP.")
    strange = [info.filename for info in entries if info.compress_type not in _METHODS]
    if strange:
        raise ManifestRefused(
            Code.ARCHIVE_UNSAFE,
            f"The ZIP uses a packing method that is not supported ({listed(strange)}).",
            "Make it again with the usual method (Deflate).",
            files=strange,
        )
    bombs = [info.filename for info in entries if _is_bomb(info, limits)]
    if bombs:
        raise _unsafe("entries that grow out of all proportion when unpacked", bombs, "Leave these files out.")
    _check_overlap(entries)
    total = sum(info.file_size for info in entries)
    if total > limits.max_unpacked_bytes:
        raise ManifestRefused(
            Code.UPLOAD_TOO_LARGE,
            f"Unpacked, the ZIP would be {megabytes(total)}; {megabytes(limits.max_unpacked_bytes)} are allowed.",
            "Split it into several uploads.",
        )


def _check_overlap(entries: list[zipfile.ZipInfo]) -> None:
    """Entries that share bytes make a small ZIP unpack to terabytes."""
    ordered = sorted(entries, key=lambda info: info.header_offset)
    for earlier, later in pairwise(ordered):
        if earlier.header_offset + _LOCAL_HEADER_BYTES + earlier.compress_size > later.header_offset:
            raise _unsafe("entries that lie over one another", [earlier.filename, later.filename], _FIX_AGAIN)


def _check_names(files: list[Entry]) -> None:
    repeated = sorted(_repeated(entry.name for entry in files))
    if repeated:
        raise ManifestRefused(
            Code.ARCHIVE_UNSAFE,
            f"The ZIP holds {listed(repeated)} more than once, so it is not clear which one is meant.",
            "Make the ZIP again with each file once.",
            files=repeated,
        )
    nested = [entry.name for entry in files if paths.suffix_of(entry.name) in _ARCHIVE_SUFFIXES]
    if nested:
        raise _unsafe("other archives", nested, "Unpack them, and put their files into this ZIP.")


def _named(entries: list[zipfile.ZipInfo]) -> list[Entry]:
    """All entries under their normalised names; one name that leads out of the ZIP spoils the whole."""
    named = []
    unsafe: dict[str, str] = {}
    for info in entries:
        name, other_name = _names(info)
        kind = stat.S_IFMT(info.external_attr >> 16)
        is_folder = name.endswith(("/", "\\")) or kind == stat.S_IFDIR
        try:
            normal = paths.normalised(name)
            other = paths.normalised(other_name) if other_name else None
        except paths.UnsafePath as reason:
            unsafe[name] = str(reason)
            continue
        if normal or is_folder:
            named.append(Entry(normal, info, is_folder, kind == stat.S_IFLNK, other if other != normal else None))
        else:
            unsafe[name] = "names no file"
    if unsafe:
        told = "; ".join(f"{shown(name)} {reason}" for name, reason in list(unsafe.items())[:5])
        raise ManifestRefused(
            Code.ARCHIVE_UNSAFE,
            f"The ZIP holds {'a file name that is' if len(unsafe) == 1 else 'file names that are'} not safe: {told}.",
            "Make the ZIP again from inside the folder, with names below it only.",
            files=unsafe,
        )
    return named


def _names(info: zipfile.ZipInfo) -> tuple[str, str | None]:
    """The name to go by, and the second reading of a name whose encoding the ZIP does not state."""
    if info.flag_bits & _FLAG_UTF8:
        return info.orig_filename, None
    as_cp437 = info.orig_filename
    try:
        return as_cp437.encode("cp437").decode("utf-8"), as_cp437
    except UnicodeError:
        return as_cp437, None


def _is_odd(info: zipfile.ZipInfo) -> bool:
    kind = stat.S_IFMT(info.external_attr >> 16)
    return kind not in {0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK}


def _is_bomb(info: zipfile.ZipInfo, limits: Limits) -> bool:
    packed = max(info.compress_size, 1)
    return info.file_size > limits.ratio_floor_bytes and info.file_size > limits.max_ratio * packed


def _repeated(names: Iterable[str]) -> set[str]:
    seen: set[str] = set()
    repeated: set[str] = set()
    for name in names:
        (repeated if name in seen else seen).add(name)
    return repeated


@contextmanager
def _as_damage(name: str | None = None) -> Iterator[None]:
    """Turn whatever zipfile raises into one refusal."""
    try:
        yield
    except _DAMAGE as error:
        raise _damaged(name) from error


def _damaged(name: str | None = None) -> ManifestRefused:
    where = f" at {shown(name)}" if name else ""
    return ManifestRefused(Code.ARCHIVE_DAMAGED, f"The ZIP is damaged{where}.", _FIX_AGAIN)


def _too_large(name: str, most: int) -> ManifestRefused:
    message = f"In the ZIP, {shown(name)} unpacks to more than {megabytes(most)}."
    return ManifestRefused(Code.UPLOAD_TOO_LARGE, message, "Split it into several uploads.")


def _unsafe(what: str, names: list[str], fix: str) -> ManifestRefused:
    return ManifestRefused(Code.ARCHIVE_UNSAFE, f"The ZIP holds {what} ({listed(names)}).", fix, files=names)


_FIX_AGAIN = (
    "Make the ZIP again (save an Excel workbook once more), and upload it again if it was cut short on the way."
)
