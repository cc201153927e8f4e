"""What a person saw of a check and agreed to, against what a start would do by now. Pure.

Between the two lie a click, or days: a template may have got another published version, documents other versions, and
another batch may have been first. Less than what was agreed to is done without asking; more, or something else, is not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from batches.manifests import ManifestRow

MORE_RENDERS = "Since the check, something changed and more documents would be sent. Look at the plan again."
OTHER_CONTENT = (
    "Since the check, a template of these rows changed, so they would be printed as nobody has seen them. Look at them "
    "again."
)
MORE_LEFT_OUT = "Since the check, something changed and more rows would be left out. Look at the plan again."
MORE_TO_CONFIRM = "Since the check, something changed and more rows need a confirmation. Look at the notices again."


@dataclass(frozen=True)
class Agreed:
    """`renders` and `left_out` at most, of exactly these contents; `to_confirm`: rows whose notices were seen."""

    renders: int
    contents_sha256: str
    left_out: int = 0
    to_confirm: frozenset[int] = frozenset()


def of_report(report: Mapping[str, Any], renders: int) -> Agreed:
    """From the answer of the check that was shown; `renders` is what stood on the button."""
    notices = report.get("notices", ())
    rows = frozenset(row for notice in notices if notice["needs_confirmation"] for row in notice["rows"])
    return Agreed(renders, report.get("contents_sha256", ""), report.get("left_out", 0), rows)


def contents_sha256(rows: Iterable[ManifestRow]) -> str:
    """Over what each row prints. An upload does not change, but what a template makes of its rows may."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(f"{row.position} {row.input_sha256}\n".encode())
    return digest.hexdigest()


def why_not(agreed: Agreed, now: Agreed) -> str:
    """Why it has to be looked at again before it is started; empty where it has not."""
    if now.contents_sha256 != agreed.contents_sha256:
        return OTHER_CONTENT
    if now.renders > agreed.renders:
        return MORE_RENDERS
    if now.left_out > agreed.left_out:
        return MORE_LEFT_OUT
    if now.to_confirm - agreed.to_confirm:
        return MORE_TO_CONFIRM
    return ""
