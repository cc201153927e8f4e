"""Compares a checked manifest with what the workspace already has, row by row. Pure.

Owns the rule "same id, same input: nothing is sent". Never reads the database: the caller passes the
documents that exist. Never sends, stores or bills anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from batches.manifests.manifest import Manifest, ManifestRow
from batches.manifests.problems import Code, Findings, LeftOut, Place, Problem, shown

IN_PROGRESS_STATES = frozenset({"pending", "submitting", "accepted", "rendered"})
FAILED_STATES = frozenset({"failed", "unknown", "deadline_exceeded", "expired"})
MAY_STILL_BILL_STATES = frozenset({"submitting", "accepted", "unknown", "deadline_exceeded"})
"""States in which an earlier version may end up on the bill beside a new one."""
KNOWN_STATES = IN_PROGRESS_STATES | FAILED_STATES | {"saved", "cancelled"}


class OnConflict(StrEnum):
    """What the uploader wants for an id whose input changed."""

    REFUSE = "refuse"
    NEW_VERSION = "new-version"


class Action(StrEnum):
    """What intake does with a row."""

    NEW = "new"  # unknown id: version 1 is made and sent
    UNCHANGED = "unchanged"  # attach to a version that is saved or under way; nothing is sent
    CHANGED = "changed"  # other input under a known id: version n+1 is made and sent
    REFUSED = "refused"  # other input under a known id, and the uploader wanted none of that, or it is marked final
    REVIVE = "revive"  # attach to a version cancelled before it was ever sent; it is sent now
    ATTACHED_FAILED = "attached_failed"  # attach, show it with its reason; nothing is sent
    ATTACHED_DELETED = "attached_deleted"  # saved, file deleted by retention; nothing is sent


SENDING_ACTIONS = frozenset({Action.NEW, Action.CHANGED, Action.REVIVE})


class NoticeKind(StrEnum):
    OTHER_ACCOUNT = "other_account"
    EARLIER_VERSION = "earlier_version"
    EARLIER_MAY_BILL = "earlier_may_bill"


@dataclass(frozen=True, slots=True)
class ExistingVersion:
    """One version of a document that the workspace already has, with its job's state."""

    number: int
    input_sha256: str
    """As `ManifestRow.input_sha256` was when it was made."""
    state: str
    """The job's state: one of `KNOWN_STATES`."""
    ever_sent: bool = False
    """Whether any submission of it was ever made or may have been."""
    file_deleted: bool = False
    """Whether retention deleted its stored PDF."""
    other_account_slug: str | None = None
    """Slug of the account its job sits at, if that is not the account of this batch."""


@dataclass(frozen=True, slots=True)
class ExistingDocument:
    """A business id that the workspace already has; `versions` in any order, at least one."""

    business_id: str
    current_number: int
    versions: tuple[ExistingVersion, ...]
    is_final: bool = False
    """Whether it was marked final: an upload makes no further version of it."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the uploader is told about a row before the batch starts."""

    kind: NoticeKind
    message: str
    needs_confirmation: bool


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """A row and what happens to it.

    `version_number` is the version the batch item points at: one to make for NEW and CHANGED, an
    existing one otherwise (for REFUSED the current one, which stays as it is).
    """

    row: ManifestRow
    action: Action
    version_number: int
    notices: tuple[Notice, ...] = ()

    @property
    def sends(self) -> bool:
        return self.action in SENDING_ACTIONS


@dataclass(frozen=True, slots=True)
class Plan:
    """What intake would do with a manifest; the rows in manifest order."""

    rows: tuple[PlannedRow, ...]
    on_conflict: OnConflict
    errors: tuple[Problem, ...]
    """`id_content_conflict` or `document_final`, for the REFUSED rows; empty when there are none."""
    left_out: tuple[LeftOut, ...] = ()
    """The REFUSED rows, each with its sentence."""

    @property
    def ok(self) -> bool:
        return not self.errors

    @property
    def render_count(self) -> int:
        """How many documents would be sent."""
        return sum(1 for planned in self.rows if planned.sends)

    @property
    def needs_confirmation(self) -> tuple[PlannedRow, ...]:
        """Rows that the uploader has to confirm before the batch starts."""
        return tuple(planned for planned in self.rows if any(notice.needs_confirmation for notice in planned.notices))

    def summary(self) -> dict[str, int]:
        """Rows per action; `changed` counts refused ones too, as they did change."""
        counts = Counter(planned.action for planned in self.rows)
        summary = {action.value: counts[action] for action in Action if action is not Action.REFUSED}
        summary["changed"] += counts[Action.REFUSED]
        return summary

    def notices(self) -> list[dict[str, Any]]:
        """Notices grouped by kind, message and need to confirm, with row positions."""
        groups: dict[Notice, list[int]] = {}
        for planned in self.rows:
            for notice in planned.notices:
                groups.setdefault(notice, []).append(planned.row.position)
        return [
            {
                "kind": notice.kind.value,
                "message": notice.message,
                "needs_confirmation": notice.needs_confirmation,
                "rows": positions,
                "count": len(positions),
            }
            for notice, positions in groups.items()
        ]


def plan(
    manifest: Manifest,
    existing: Mapping[str, ExistingDocument],
    on_conflict: OnConflict,
    *,
    account_slug: str = "this account",
) -> Plan:
    """Decide each valid row of `manifest` against `existing` (keyed by business id).

    `existing` needs the documents of this workspace whose id the manifest names; further ones are
    ignored. Raises ValueError for a job state that is not in `KNOWN_STATES`.
    """
    findings = Findings(manifest.limits.max_places)
    planned = []
    for row in manifest.rows:
        document = existing.get(row.business_id)
        decided = (
            PlannedRow(row, Action.NEW, 1)
            if document is None
            else _planned_against(row, document, on_conflict, account_slug)
        )
        if decided.action is Action.REFUSED:
            _record_conflict(findings, decided, is_final=document is not None and document.is_final)
        planned.append(decided)
    return Plan(tuple(planned), on_conflict, findings.errors(), findings.left_out())


def _planned_against(
    row: ManifestRow, document: ExistingDocument, on_conflict: OnConflict, account_slug: str
) -> PlannedRow:
    same = [version for version in document.versions if version.input_sha256 == row.input_sha256]
    if same:
        return _attached(row, document, max(same, key=lambda version: version.number), account_slug)
    if on_conflict is OnConflict.REFUSE or document.is_final:
        return PlannedRow(row, Action.REFUSED, document.current_number)
    newest = max(version.number for version in document.versions)
    notices = tuple(
        Notice(
            NoticeKind.EARLIER_MAY_BILL,
            f"Version {version.number} is {version.state} and may also be billed.",
            needs_confirmation=True,
        )
        for version in document.versions
        if version.state in MAY_STILL_BILL_STATES
    )
    return PlannedRow(row, Action.CHANGED, newest + 1, notices)


def _attached(row: ManifestRow, document: ExistingDocument, version: ExistingVersion, account_slug: str) -> PlannedRow:
    action = _attach_action(version)
    notices = []
    if version.number != document.current_number:
        message = (
            f"This is the input of version {version.number}; "
            f"the current version is {document.current_number} and stays so."
        )
        notices.append(Notice(NoticeKind.EARLIER_VERSION, message, needs_confirmation=False))
    if version.other_account_slug is not None and action is not Action.REVIVE:
        notices.append(_other_account_notice(version, account_slug))
    return PlannedRow(row, action, version.number, tuple(notices))


def _attach_action(version: ExistingVersion) -> Action:
    if version.state not in KNOWN_STATES:
        raise ValueError(f"unknown job state {version.state!r}")
    if version.state == "saved":
        return Action.ATTACHED_DELETED if version.file_deleted else Action.UNCHANGED
    if version.state in IN_PROGRESS_STATES:
        return Action.UNCHANGED
    if version.state == "cancelled" and not version.ever_sent:
        return Action.REVIVE
    return Action.ATTACHED_FAILED


def _other_account_notice(version: ExistingVersion, account_slug: str) -> Notice:
    other = version.other_account_slug
    if version.state == "saved":
        message = f"Already saved, made at {other}; it will not be sent to {account_slug}."
        return Notice(NoticeKind.OTHER_ACCOUNT, message, needs_confirmation=False)
    if not version.ever_sent:
        message = f"Already waiting at {other} and not sent yet; it will not be sent to {account_slug} as well."
        return Notice(NoticeKind.OTHER_ACCOUNT, message, needs_confirmation=False)
    word = "accepted" if version.state in {"accepted", "rendered"} else "sent"
    message = f"Already {word} at {other}, will not be sent to {account_slug}."
    return Notice(NoticeKind.OTHER_ACCOUNT, message, needs_confirmation=True)


def _record_conflict(findings: Findings, planned: PlannedRow, *, is_final: bool) -> None:
    row = planned.row
    if is_final:
        message = (
            f"The document {shown(row.business_id)} is marked final (version {planned.version_number}); "
            f"this row's content or options differ from it."
        )
        fix = "Leave the row out, have the mark taken off first, or regenerate the document on its page."
        place = Place(row.position, row.line, row.character, row.business_id, message, fix)
        findings.row_error(Code.DOCUMENT_FINAL, "id", place, start=row.start, size=row.size)
        return
    message = (
        f"The id {shown(row.business_id)} already stands for another document "
        f"(version {planned.version_number}); this row's content or options differ from it."
    )
    fix = (
        "Give the document an id of its own, or choose “make new versions” "
        "(--on-conflict new-version) to render it as the next version."
    )
    place = Place(row.position, row.line, row.character, row.business_id, message, fix)
    findings.row_error(Code.ID_CONTENT_CONFLICT, "id", place, start=row.start, size=row.size)
