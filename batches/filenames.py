"""Names of files for people: safe on every system, never equal, and quoted right in a header. Pure.

Storage keys are not made here; they hold no business id.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from datetime import datetime
from typing import Any
from urllib.parse import quote

#: Bytes of a name without its ending; leaves room for an ending and a number on every file system.
STEM_BYTES = 120
_RESERVED = frozenset(
    ["con", "prn", "aux", "nul", *(f"com{n}" for n in range(1, 10)), *(f"lpt{n}" for n in range(1, 10))]
)
_FORBIDDEN = re.compile(r'[<>:"/\\|?*]')
_PDF = re.compile(r"(\.pdf)+$", re.IGNORECASE)


def safe_stem(text: str, *, limit: int = STEM_BYTES) -> str:
    """`text` as a name without ending: NFC, at most `limit` bytes of UTF-8, never empty, never reserved.

    What was cut ends in eight characters of a digest of the whole, so that two long names stay two.
    """
    composed = unicodedata.normalize("NFC", text)
    visible = "".join("_" if unicodedata.category(letter)[0] == "C" else letter for letter in composed)
    name = _FORBIDDEN.sub("_", visible).strip(" .")
    encoded = name.encode()
    if len(encoded) > limit:
        digest = hashlib.sha256(composed.encode()).hexdigest()[:8]
        name = encoded[: limit - 9].decode(errors="ignore").rstrip(" .") + "-" + digest
    if name.split(".")[0].rstrip(" ").lower() in _RESERVED:
        name = f"_{name}"
    return name or "document"


def pdf_stem(business_id: str, version: int, wished: str = "") -> str:
    """The name of one version's PDF without `.pdf`: the manifest's wish, else `{id}_v{version}`.

    An ending that is already there is not doubled: `report.pdf` becomes `report_v1`.
    """
    if wished:
        return safe_stem(_PDF.sub("", wished))
    return safe_stem(_PDF.sub("", business_id), limit=STEM_BYTES - 8) + f"_v{version}"


def pdf_name(business_id: str, version: int, wished: str = "") -> str:
    return pdf_stem(business_id, version, wished) + ".pdf"


class Names:
    """Gives each document of one archive a name of its own, compared as the strictest file system would."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, stem: str, folder: str = "") -> tuple[str, bool]:
        """`(path with .pdf, whether it had to be numbered)`; the same calls in the same order give the same paths."""
        number = 1
        begin = f"{folder}/" if folder else ""
        name = stem
        while _folded(begin + name) in self._taken:
            number += 1
            name = f"{stem}-{number}"
        self._taken.add(_folded(begin + name))
        return f"{begin}{name}.pdf", number > 1


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def folder(value: Any) -> str:
    """The folder of a group, as its column holds it: one step, whatever stands in it; none for an empty cell."""
    text = "" if value is None else value if isinstance(value, str) else str(value)
    return safe_stem(text, limit=80) if text.strip() else ""


def batch_name(file_name: str) -> str:
    """What a batch is called that nobody named: its file's name without the ending (`web.zip` gives `web`)."""
    stem, _, _ending = file_name.rpartition(".")
    return stem if stem.strip(" .") else file_name


def export_name(
    batch_name: str, *, is_partial: bool, now: datetime, part: tuple[int, int] = (1, 1), what: str = "", ending: str
) -> str:
    """`September-invoices_20261002-0731_PARTIAL_part1of3.zip`: when it was made (UTC), and which part of how many."""
    stem = re.sub(r"[\s_]+", "-", safe_stem(batch_name, limit=80))
    marks = (what, "PARTIAL" if is_partial else "", f"part{part[0]}of{part[1]}" if part[1] > 1 else "")
    return "_".join([stem, f"{now:%Y%m%d-%H%M}", *filter(None, marks)]) + f".{ending}"


def archive_name(batch_name: str, *, is_partial: bool, now: datetime, part: tuple[int, int] = (1, 1)) -> str:
    return export_name(batch_name, is_partial=is_partial, now=now, part=part, ending="zip")


def content_disposition(name: str, *, inline: bool = False) -> str:
    """The header value (RFC 6266): an ASCII name for old clients, the true one beside it where it differs."""
    kind = "inline" if inline else "attachment"
    clean = "".join(letter for letter in name if unicodedata.category(letter) not in ("Cc", "Cs"))
    plain = unicodedata.normalize("NFKD", clean).encode("ascii", "ignore").decode()
    plain = re.sub(r"[\"\\%]", "_", plain).strip()
    if not plain.rpartition(".")[0].strip(" ._-"):  # nothing readable is left of it
        plain = "document" + plain[plain.rfind(".") :] if "." in plain else "document"
    if plain == clean:
        return f'{kind}; filename="{plain}"'
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(clean, safe='')}"
