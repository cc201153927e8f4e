"""What a template reads of the data: the paths, and how much each is needed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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

    @property
    def is_optional(self) -> bool:
        return self.need is Need.NEVER

    def with_line(self, line: int, need: Need) -> Read:
        """The same path, read at one more place: it is needed as much as where it is needed most."""
        most = min((self.need, need), key=list(Need).index)
        return Read(self.path, tuple(sorted({*self.lines, line})), most)
