"""What a template reads of the data: the paths, and how much each is needed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from batches.templating.limits import Limits
from batches.templating.problems import Fault, shown

#: Of one path, with 30 names of a header's length.
_PATH_CHARACTERS = 10_000
_STEP = re.compile(r"""\[\]|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]|\.?([^.\[\]]+)""")


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

    def with_line(self, line: int, need: Need, *, lines_most: int) -> Read:
        """The same path, read at one more place: it is needed as much as where it is needed most."""
        most = min((self.need, need), key=list(Need).index)
        return replace(self, lines=tuple(sorted({*self.lines, line}))[:lines_most], need=most)


def of_fields(fields: Iterable[Mapping[str, Any]]) -> list[Read]:
    """Reads as `TemplateVersion.fields` keeps them."""
    return [Read.from_dict(each) for each in fields]


def steps(path: str) -> list[str | int | None]:
    """The names and places that a path goes through; None for each item of a list."""
    found: list[str | int | None] = []
    for step in _STEP.finditer(path):
        if step[0] == "[]":
            found.append(None)
        elif step[1] is not None:
            found.append(int(step[1]))
        else:
            found.append(step[3] if step[2] is None else step[2])
    return found


def unbearable(path: str, known: int, limits: Limits) -> Fault | None:
    """Why one more field is refused where `known` are read already: what invents data for it, or shows it, goes through
    all of its places. None where rows can hold it."""
    found = steps(path) if len(path) <= _PATH_CHARACTERS else []
    if known >= limits.fields:
        return Fault(
            f"It reads more than {limits.fields:,} fields.", "Make several templates of it, or loop over lists."
        )
    if not found or len(found) > limits.path_steps:
        return Fault(f"{shown(path)} goes too deep.", f"A path has up to {limits.path_steps} names and places.")
    if any(isinstance(step, int) and step > limits.place for step in found):
        return Fault(f"{shown(path)} is too far down a list.", f"The last place is {limits.place}.")
    return None
