"""Which encoding a manifest's text has, and a strict decoding by it, in parts. Nothing is ever replaced.

Owns the order of evidence (mark, NUL bytes, UTF-8, a person's choice) and the proposals that are shown to a person. A
guess is proposed here and never taken here. Knows no row.
"""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO

from charset_normalizer import from_bytes

from batches.manifests import charsets, jsonrows, sniffing, source
from batches.manifests.choices import NO_CHOICES, Choices
from batches.manifests.limits import Limits
from batches.manifests.problems import Code, ManifestRefused, shown

_CHUNK_BYTES = 1 << 20
#: How far a proposal looks for a byte that is no UTF-8. Beyond it reading finds the byte and refuses.
_SEARCHED_BYTES = 16_000_000
_PROPOSED_FROM_BYTES = 40_000
_SAMPLE_LINES = 5
_SAMPLE_CHARACTERS = 120
_MOST_CANDIDATES = 5
DEFAULT_GUESS = "windows-1252"
_USUAL_GUESSES = (DEFAULT_GUESS, "windows-1250", "iso8859-15", "mac-roman", "windows-1251")
_UNMARKED_UNICODE = frozenset({"utf-8", "utf-16-le", "utf-16-be"})
#: Codecs that keep a byte-order mark as a character, and those that eat it.
_EATS_MARK = {"utf-8": "utf-8-sig", "utf-16-le": "utf-16", "utf-16-be": "utf-16"}
#: What a codec that wants a mark is without one.
_WITHOUT_MARK = {"utf-8-sig": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}

#: What people call the encodings that are offered.
NAMES = {
    "utf-8": "UTF-8",
    "utf-8-sig": "UTF-8 with byte-order mark",
    "utf-16": "UTF-16",
    "utf-16-le": "UTF-16 (little endian)",
    "utf-16-be": "UTF-16 (big endian)",
    "utf-32": "UTF-32",
    "windows-1252": "Western European (Windows-1252)",
    "windows-1250": "Central European (Windows-1250)",
    "windows-1251": "Cyrillic (Windows-1251)",
    "windows-1253": "Greek (Windows-1253)",
    "windows-1254": "Turkish (Windows-1254)",
    "windows-1255": "Hebrew (Windows-1255)",
    "windows-1256": "Arabic (Windows-1256)",
    "windows-1257": "Baltic (Windows-1257)",
    "windows-1258": "Vietnamese (Windows-1258)",
    "iso8859-2": "Central European (ISO 8859-2)",
    "iso8859-5": "Cyrillic (ISO 8859-5)",
    "iso8859-7": "Greek (ISO 8859-7)",
    "iso8859-15": "Western European (ISO 8859-15)",
    "mac-roman": "Western European (old Macs)",
    "koi8-r": "Cyrillic (KOI8-R)",
    "koi8-u": "Cyrillic (KOI8-U)",
    "cp866": "Cyrillic (DOS)",
    "gb18030": "Chinese, simplified (GB 18030)",
    "big5hkscs": "Chinese, traditional (Big5)",
    "euc-jp": "Japanese (EUC)",
    "cp932": "Japanese (Shift JIS)",
    "cp949": "Korean (Windows-949)",
    "cp874": "Thai (Windows-874)",
}


@dataclass(frozen=True, slots=True)
class Text:
    """A manifest's text as valid UTF-8, from `start` on (behind byte-order mark and white space)."""

    file: IO[bytes]
    start: int
    first_line: int
    sha256: str
    """Of the manifest's bytes as they were given."""
    encoding: str

    def head(self) -> str:
        """Its first few thousand characters."""
        self.file.seek(self.start)
        return self.file.read(sniffing.HEAD_BYTES).decode(errors="ignore")


@dataclass(frozen=True, slots=True)
class Candidate:
    """An encoding that the text may have, and what its accented lines would be in it."""

    encoding: str
    name: str
    lines: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        return {"encoding": self.encoding, "name": self.name, "lines": list(self.lines)}


def decoded(stream: IO[bytes], choices: Choices, limits: Limits, accepted: str, stack: ExitStack) -> Text:
    """Make sure of the encoding in one pass over the whole. What is not UTF-8 is copied as UTF-8.

    Raises ManifestRefused: too large, empty (`accepted` says what would be read), or not in the encoding that it has
    by its mark or by `choices`.
    """
    size = stream.seek(0, 2)
    if size > limits.max_manifest_bytes:
        raise source.too_large("The manifest", size, limits.max_manifest_bytes)
    stream.seek(0)
    encoding = evident(stream.read(sniffing.HEAD_BYTES), choices)
    digest = hashlib.sha256()
    file, start = stream, 0
    if encoding in {"utf-8", "utf-8-sig"}:
        for _ in _texts(stream, "utf-8", digest, is_chosen=bool(choices.encoding)):
            pass  # only to be sure that it can be read
        start = len(codecs.BOM_UTF8) if encoding == "utf-8-sig" else 0
    else:
        file = source.spool(stack)
        for part in _texts(stream, encoding, digest, is_chosen=bool(choices.encoding)):
            file.write(part.encode())
    start, newlines = jsonrows.first_mark(file, start)
    if start == file.seek(0, 2):
        raise ManifestRefused(Code.EMPTY_FILE, "The file is empty.", accepted)
    return Text(file, start, newlines + 1, digest.hexdigest(), encoding)


def evident(head: bytes, choices: Choices) -> str:
    """The codec to read by: the mark's, the chosen one, UTF-16 where every second byte is NUL, else UTF-8.

    Raises ManifestRefused for a choice that is no encoding of text.
    """
    marked = sniffing.bom_encoding(head)
    if choices.encoding:
        chosen = known(choices.encoding)
        if marked and marked in (chosen, _EATS_MARK.get(chosen)):
            return marked
        return _WITHOUT_MARK.get(chosen, chosen)
    return marked or sniffing.unmarked_utf16(head) or "utf-8"


def known(name: str) -> str:
    """The codec that a person means by `name`. Raises ManifestRefused."""
    lowered = name.strip().lower()
    if lowered in NAMES:
        return lowered
    if lowered in {"utf-16le", "utf-16be"}:
        return f"utf-16-{lowered[-2:]}"
    codec = charsets.LABELS.get(lowered)
    if codec is not None:
        return codec
    if lowered in charsets.LABELS.values():
        return lowered
    message = f"{shown(name, 40)} is not an encoding that is known here."
    raise ManifestRefused(Code.NOT_UTF8, message, "Choose one of those that are offered, such as windows-1252.")


@dataclass(frozen=True, slots=True)
class Head:
    """The first part of a text; `is_cut` where there is more, and then it ends with a whole line if it can."""

    text: str
    encoding: str
    is_cut: bool


def head(stream: IO[bytes], choices: Choices, most: int) -> Head:
    """The first `most` bytes of a text. Raises ManifestRefused where they are not in the encoding that it has."""
    size = stream.seek(0, 2)
    stream.seek(0)
    raw = stream.read(most)
    encoding = evident(raw[: sniffing.HEAD_BYTES], choices)
    is_cut = len(raw) < size
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        text = decoder.decode(raw, final=not is_cut)
    except UnicodeDecodeError as error:
        line = 1 + _newlines(error.object[: error.start], encoding)
        raise _not_decodable(encoding, error.start, error, line, is_chosen=bool(choices.encoding)) from error
    whole = text[: text.rfind("\n") + 1] if is_cut else text
    return Head((whole or text).removeprefix("\ufeff"), encoding, is_cut)


def candidates(stream: IO[bytes]) -> tuple[Candidate, ...]:
    """What text that is not UTF-8 may be encoded in, the likeliest first; empty where there is no doubt.

    Reads no further than to the first lines that tell.
    """
    stream.seek(0)
    if evident(stream.read(sniffing.HEAD_BYTES), NO_CHOICES) != "utf-8" or not _has_foreign_byte(stream):
        return ()
    lines = _accented_lines(stream)
    if not lines:
        return ()
    sample = b"".join(lines)[:_PROPOSED_FROM_BYTES]
    found = ((each, _decoded_lines(lines, each)) for each in _plausible(sample))
    return tuple(Candidate(each, NAMES[each], shown_in) for each, shown_in in found if shown_in)[:_MOST_CANDIDATES]


def _plausible(sample: bytes) -> Iterator[str]:
    """Codecs to try: the usual one first, then what the bytes' statistics say, then other usual ones."""
    proposed = [match.encoding.replace("_", "-") for match in from_bytes(sample)]
    tried = [charsets.LABELS.get(each, each) for each in (DEFAULT_GUESS, *proposed, *_USUAL_GUESSES)]
    yield from (codec for codec in dict.fromkeys(tried) if codec in NAMES)


def _decoded_lines(lines: list[bytes], encoding: str) -> tuple[str, ...]:
    """The lines as this encoding has them; empty where one does not fit."""
    if encoding in _UNMARKED_UNICODE:
        return ()
    try:
        texts = [codecs.getincrementaldecoder(encoding)().decode(line) for line in lines]  # a line may be cut short
    except UnicodeDecodeError:
        return ()
    return tuple(text.replace("\0", "").strip()[:_SAMPLE_CHARACTERS] for text in texts[:_SAMPLE_LINES])


def _has_foreign_byte(stream: IO[bytes]) -> bool:
    stream.seek(0)
    decoder = codecs.getincrementaldecoder("utf-8")()
    left = _SEARCHED_BYTES
    try:
        while left > 0 and (chunk := stream.read(min(_CHUNK_BYTES, left))):
            left -= len(chunk)
            decoder.decode(chunk)
        if left > 0:
            decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return True
    return False


def _accented_lines(stream: IO[bytes]) -> list[bytes]:
    """The first lines with a byte outside ASCII, each cut to a bearable length around it."""
    stream.seek(0)
    lines: list[bytes] = []
    left = _SEARCHED_BYTES
    while left > 0 and len(lines) < 4 * _SAMPLE_LINES and (line := stream.readline(_CHUNK_BYTES)):
        left -= len(line)
        if not line.isascii():
            at = next(index for index, byte in enumerate(line) if byte > 127)
            lines.append(line[max(0, at - 60) : at + 300])
    return lines


def _texts(stream: IO[bytes], encoding: str, digest: hashlib._Hash, *, is_chosen: bool) -> Iterator[str]:
    """The stream's text in parts, while its bytes are hashed. Raises ManifestRefused at the first odd byte."""
    decoder = codecs.getincrementaldecoder(encoding)()
    stream.seek(0)
    passed, line = 0, 1
    while True:
        chunk = stream.read(_CHUNK_BYTES)
        digest.update(chunk)
        pending = len(decoder.getstate()[0])
        try:
            part = decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            start = error.start
            line += _newlines(error.object[:start], encoding)
            raise _not_decodable(encoding, passed - pending + start, error, line, is_chosen=is_chosen) from error
        passed += len(chunk)
        line += part.count("\n")
        yield part
        if not chunk:
            return


def _newlines(passed: bytes, encoding: str) -> int:
    return passed.decode(encoding, errors="ignore").count("\n")


def _not_decodable(
    encoding: str, offset: int, error: UnicodeDecodeError, line: int, *, is_chosen: bool
) -> ManifestRefused:
    byte = f"byte 0x{error.object[error.start]:02X} at offset {offset:,} (line {line})"
    if is_chosen:
        message = f"Read as {NAMES.get(encoding, encoding)}, the manifest cannot be decoded: {byte} does not fit."
        return ManifestRefused(Code.NOT_UTF8, message, "Choose another encoding, or save it as UTF-8.", line=line)
    return ManifestRefused(
        Code.NOT_UTF8,
        f"The manifest is not {encoding.upper()}: {byte} does not fit.",
        "Save it as UTF-8, or choose the encoding that it has. Nothing is guessed, so that no name is changed "
        "without a word.",
        line=line,
    )
