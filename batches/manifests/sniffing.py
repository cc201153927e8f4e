"""What a file is, by its first bytes. Never by its name or the browser's MIME type."""

from __future__ import annotations

import codecs

HEAD_BYTES = 4096
"""How many first bytes `looks_like` wants to see."""

#: First bytes and what they are. Longer marks stand before shorter ones that they start with.
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"%PDF-", "a PDF"),
    (b"\x89PNG\r\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF87a", "a GIF image"),
    (b"GIF89a", "a GIF image"),
    (b"BM\x00", "a BMP image"),
    (b"II*\x00", "a TIFF image"),
    (b"MM\x00*", "a TIFF image"),
    (b"PK\x03\x04", "a ZIP"),
    (b"PK\x05\x06", "a ZIP"),
    (b"PK\x07\x08", "a ZIP"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\x00", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Word or Excel document"),
    (b"{\\rtf", "an RTF document"),
    (b"SQLite format 3\x00", "a SQLite database"),
    (b"\x7fELF", "a program"),
    (b"MZ\x90\x00", "a program"),
)

_FIRST_BYTES = frozenset(magic[:1] for magic, _ in _MAGIC)

BOMS: tuple[tuple[bytes, str], ...] = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16 LE, whose mark it starts with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte-order marks and the Python codec that eats them."""


def looks_like(head: bytes) -> str | None:
    """What `head` starts like, with its article (`a PDF`), None for what may be text."""
    if head[:1] in _FIRST_BYTES:
        for magic, name in _MAGIC:
            if head.startswith(magic):
                return name
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "a WebP image"
    if unmarked_utf16(head):
        return "UTF-16 text without a byte-order mark"
    return None


def bom_encoding(head: bytes) -> str | None:
    """The codec that a byte-order mark at the start of `head` names, None without one."""
    return next((encoding for mark, encoding in BOMS if head.startswith(mark)), None)


def unmarked_utf16(head: bytes) -> str | None:
    """The codec of UTF-16 that comes without its mark: mostly Latin text then has a NUL in every second byte, on one
    side only."""
    sample = head[: len(head) // 2 * 2][:512]
    if len(sample) < 4 or bom_encoding(head) is not None:
        return None
    pairs = len(sample) // 2
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if odd > pairs * 0.7 and even < pairs * 0.1:
        return "utf-16-le"
    if even > pairs * 0.7 and odd < pairs * 0.1:
        return "utf-16-be"
    return None
