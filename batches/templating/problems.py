"""What can be wrong with a template or with the data for it, in sentences with the line and column they are about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. `line` and `column` count from 1; None where no place is known."""

    line: int | None
    column: int | None
    message: str
    """A whole sentence."""
    fix: str
    """What to do, a whole sentence."""
    file: str = ""
    """The file of the upload that is meant, where it is not the template itself."""

    def __str__(self) -> str:
        return " ".join(part for part in (self.place, self.message, self.fix) if part)

    @property
    def place(self) -> str:
        """`Line 3, column 7:`, or "" where none is known."""
        if self.line is None:
            return f"{self.file}:" if self.file else ""
        where = f"line {self.line:,}" + (f", column {self.column:,}" if self.column is not None else "")
        return f"{self.file}, {where}:" if self.file else f"{where[0].upper()}{where[1:]}:"


class TemplateRefused(Exception):
    """The template cannot be used. `problems` are all that were found, in the order of their lines."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(" ".join(str(problem) for problem in self.problems))


class NotFilled(Exception):
    """The template cannot be filled from this data."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


class MissingValue(NotFilled):
    """The data lacks a field that is read where it is needed. `path` is the field's, as in `Compiled.fields`."""

    def __init__(self, path: str, problem: Problem) -> None:
        super().__init__(problem)
        self.path = path


class Fault(Exception):
    """A filter cannot use a value or an argument; whoever knows the place makes a `Problem` of it."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(f"{message} {fix}")
        self.message = message
        self.fix = fix


def shown(value: object, most: int = 60) -> str:
    """A value of the data in quotes, on one line, cut, invisible characters spelled out."""
    text = str(value)
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    return '"' + "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in cut) + '"'
