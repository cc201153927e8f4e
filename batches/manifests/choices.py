"""What a person chose for an upload that does not speak for itself. Empty values: what the file shows is taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Choices:
    """All of it belongs to one upload; a manifest of JSON rows needs none of it but the templates."""

    encoding: str = ""
    """Python codec of the manifest's text; "" for the byte-order mark's, else UTF-8. No guess is taken by itself."""
    delimiter: str = ""
    """`,` `;` `|` or a tab; "" for what the header shows."""
    sheet: str = ""
    """Name of the workbook's sheet; "" for its first visible one."""
    mapping: Mapping[str, str] | None = None
    """What each column of a table becomes, by its name in the file: `id`, `html`, `data.customer.name`, `meta.note`,
    `option.format` …, "" for nothing. None: what the names themselves say (`columns.proposed`)."""
    template: str = ""
    """Template of the rows that name none."""
    template_version: int | None = None
    are_provider_templates: bool = False
    """Whether `template` names templates that are stored at the provider; else they are the workspace's own."""
    propose_rows: bool = False
    """Whether a ZIP of HTML files without a manifest gets a row for each file, its id the file's name."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """What `as_dict` gave; keys that are not known are left out."""
        known = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})


NO_CHOICES = Choices()
