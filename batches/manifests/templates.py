"""What reading needs of templates, whoever keeps them: finding one, its fields, filling it. No template lives here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from batches.manifests.problems import Code, Unfit


class RowTemplate(Protocol):
    """One version of a template."""

    @property
    def key(self) -> int:
        """Names the version for whoever keeps it (its primary key)."""
        ...

    @property
    def slug(self) -> str: ...

    @property
    def number(self) -> int: ...

    @property
    def fields(self) -> Mapping[str, tuple[int, ...]]:
        """Paths that it reads of a row (`customer.name`), with the lines of the template that name them."""
        ...

    @property
    def optional(self) -> frozenset[str]:
        """Those of `fields` that a row may lack."""
        ...

    def fill(self, data: Mapping[str, Any]) -> str:
        """The finished HTML; the same data always gives the same text. Raises `MissingField` for a field that the row
        lacks, Unfit where it cannot be filled for another reason."""
        ...


class MissingField(Unfit):
    """The row lacks a field of its template. `path` is the field's, as in `RowTemplate.fields`."""

    def __init__(self, path: str, message: str, fix: str) -> None:
        super().__init__(Code.MISSING_FIELD, message, fix)
        self.path = path


class Templates(Protocol):
    """The templates of a workspace."""

    def find(self, slug: str, number: int | None) -> RowTemplate:
        """This version, or the published one. Raises Unfit (`unknown_template`, `template_not_published`), its message
        a sentence of its own."""
        ...


class NoTemplates:
    """Where there are none."""

    def find(self, slug: str, number: int | None) -> RowTemplate:
        raise Unfit(
            Code.UNKNOWN_TEMPLATE,
            f'There is no template called "{slug[:60]}" here.',
            "Upload it under Templates first.",
        )
