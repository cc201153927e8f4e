"""Where the problems of one row go: each with the row's place and id."""

from __future__ import annotations

from dataclasses import dataclass

from batches.manifests.jsonrows import Span
from batches.manifests.problems import Code, Findings, Place, Unfit, shown


@dataclass(slots=True)
class RowReport:
    """Notes what is wrong with the row at `position`; `failed` as soon as one of it is an error."""

    findings: Findings
    position: int
    span: Span
    has_characters: bool
    """Whether a place is line and character (a JSON list) or the line alone (JSONL)."""
    business_id: str | None = None
    failed: bool = False

    def error(self, code: Code, column: str | None, message: str, fix: str, *others: int) -> None:
        self.failed = True
        place = self._place(message, fix)
        start, size = self.span.start, self.span.size
        self.findings.row_error(code, column, place, related=others, start=start, size=size)

    def warning(self, code: Code, column: str | None, message: str, fix: str, *others: int) -> None:
        self.findings.row_warning(code, column, self._place(message, fix), related=others)

    def unfit(self, column: str, reason: Unfit, subject: str = "") -> None:
        """Note why a value cannot be used; a `subject` is what the reason's sentence goes on about."""
        message = f"{subject} {reason.message}" if subject else reason.message
        self.error(reason.code, column, message, reason.fix)

    def named(self, what: str) -> str:
        """`what`, with the row's id where it has one."""
        return f"{what} of {shown(self.business_id)}" if self.business_id else f"{what} of this row"

    @property
    def character(self) -> int | None:
        return self.span.character if self.has_characters else None

    def _place(self, message: str, fix: str) -> Place:
        return Place(self.position, self.span.line, self.character, self.business_id, message, fix)
