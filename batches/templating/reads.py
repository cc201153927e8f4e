"""What a template reads of the data: the paths, and how much each is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any


class Need(StrEnum):
    """Whether a row may lack a field."""

    ALWAYS = "always"  # an error of the row
    SOMETIMES = "sometimes"  # an error of the rows for which a condition on another field holds
    NEVER = "never"  # it has a default, or is asked for first


@dataclass(frozen=True, slots=True)
class Read:
    """One path and the lines that name it, ascending."""

    path: str
    lines: tuple[int, ...]
    need: Need
    sample: str = ""
    """A value that fits how it is used, where that can be seen."""

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {"path": self.path, "lines": list(self.lines), "need": self.need.value, "sample": self.sample}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Read:
        """What `as_dict` gave."""
        return cls(values["path"], tuple(values["lines"]), Need(values["need"]), values.get("sample", ""))

    @property
    def is_optional(self) -> bool:
        return self.need is Need.NEVER

    def with_line(self, line: int, need: Need) -> Read:
        """The same path, read at one more place: it is needed as much as where it is needed most."""
        most = min((self.need, need), key=list(Need).index)
        return replace(self, lines=tuple(sorted({*self.lines, line})), need=most)
