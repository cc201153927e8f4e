"""Names of files inside an upload, made comparable. Pure text; never touches a file system."""

from __future__ import annotations

import re
import unicodedata

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_DRIVE = re.compile(r"[A-Za-z]:")
_JUNK_NAMES = frozenset({".ds_store", "thumbs.db", "desktop.ini"})


class UnsafePath(ValueError):
    """The path does not stay below its folder; the message says how, as the end of a sentence."""


def normalised(path: str) -> str:
    """`path` with `/` between its parts, no `.` or `..` left, in NFC; "" for the folder itself.

    `\\` counts as `/`, since Windows tools write it. Raises UnsafePath for an address, an absolute
    path, a drive, a control character, or a `..` that leaves the folder.
    """
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in path):
        raise UnsafePath("holds a control character")
    if _ADDRESS.match(path):
        raise UnsafePath("is an address, not a path")
    if _DRIVE.match(path):
        raise UnsafePath("starts with a drive letter")
    slashed = path.replace("\\", "/")
    if slashed.startswith("/"):
        raise UnsafePath("is an absolute path")
    parts: list[str] = []
    for part in slashed.split("/"):
        if part == "..":
            if not parts:
                raise UnsafePath("leads out of its folder")
            parts.pop()
        elif part not in {"", "."}:
            parts.append(part)
    return unicodedata.normalize("NFC", "/".join(parts))


def is_junk(path: str) -> bool:
    """Whether Finder or Explorer left this file behind (`__MACOSX/`, `._x`, `.DS_Store`, `Thumbs.db`)."""
    parts = path.split("/")
    return "__MACOSX" in parts or parts[-1].startswith("._") or parts[-1].lower() in _JUNK_NAMES


def folder_of(path: str) -> str:
    """The folder part of a normalised path, "" at the top."""
    return path.rpartition("/")[0]


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


def suffix_of(path: str) -> str:
    """The lower-case ending with its dot, "" when there is none."""
    stem, dot, ending = name_of(path).rpartition(".")
    return f".{ending.lower()}" if dot and stem else ""
