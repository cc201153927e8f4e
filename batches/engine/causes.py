"""Why jobs failed, grouped: one digest of class, provider code and words from which what varies is taken out. Pure."""

from __future__ import annotations

import hashlib
import re

#: What differs between two failures of one cause, in the order in which it is taken out.
_VARYING = (
    (re.compile(r"https?://\S+|www\.\S+", re.IGNORECASE), "<address>"),
    (re.compile(r"“[^”]*”|\"[^\"]*\"|‘[^’]*’|`[^`]*`|«[^»]*»|(?<![\w'])'[^']*'(?!\w)"), "<quoted>"),
    (re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.-]+\b"), "<address>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    # A word that holds a digit is an id, a number or a time: INV-2026-0041, job_7f3a, 12.5, 2026-09-01T10:00:00Z.
    (re.compile(r"[^\s()\[\]{}<>,;]*\d[^\s()\[\]{}<>,;]*"), "<n>"),
)
_SPACE = re.compile(r"\s+")
#: Words beyond this length say nothing more about the cause.
WORDS_MOST = 500


def normalised(words: str) -> str:
    """The words without numbers, ids, addresses and quoted input, in one case."""
    text = words[: WORDS_MOST * 4]
    for pattern, placeholder in _VARYING:
        text = pattern.sub(placeholder, text)
    return _SPACE.sub(" ", text).strip().casefold()[:WORDS_MOST]


def fingerprint(failure_class: str, code: str, words: str) -> str:
    """16 hex digits that failures of one cause share; kept as `Job.failure_cause`."""
    cause = "\n".join((failure_class, code.casefold(), normalised(words)))
    return hashlib.sha256(cause.encode(errors="replace")).hexdigest()[:16]
