"""What a spreadsheet does to values before they come here: found by how they look, never repaired. Pure.

A value of which something is lost for good is an error where it would be printed and paid for; a mere suspicion is a
warning.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from batches.manifests.problems import Code, shown

_FORMULA_ERROR = re.compile(r"#(?:[^\W\d_][\w/]{1,14}[!?]|DIV/0!|N/A|NV|#{2,})\Z", re.IGNORECASE)
_SHORTENED = re.compile(r"[+-]?\d(?:[.,]\d{1,14})?E[+-]\d{2,3}\Z", re.ASCII)
_MONTH = (
    r"(?:jan(?:uary|uar)?|feb(?:ruary|ruar)?|m[aä]r(?:ch|z)?|mrz|apr(?:il)?|ma[iy]|jun[ei]?|jul[iy]?|aug(?:ust)?"
    r"|sept?(?:ember)?|o[ck]t(?:ober)?|nov(?:ember)?|de[cz](?:ember)?)"
)
_LIKE_A_DATE = re.compile(
    rf"(?:\d{{1,2}}[-. ]{{1,2}}{_MONTH}\.?(?:[-. ]\d{{2,4}})?|{_MONTH}[-. ]\d{{2,4}}|\d{{4}}-\d\d-\d\d 00:00:00)\Z",
    re.IGNORECASE | re.ASCII,
)
_NAMES_A_DATE = re.compile(r"(?:^|[^a-z])(?:date|datum|day|tag|due|fällig|birth|geburt)|date$|datum$", re.IGNORECASE)
#: Days since 1900 as Excel counts them: 2000 to 2064, in which a date that matters here lies.
_SERIALS = range(36_526, 60_000)
_LEAST_DIGITS = 4
_LONGEST_DATE = 24
#: Ids that are closer together than this, on average, are counted up, so that unequal lengths are no wonder.
_COUNTER_GAP = 4

FIX_COLUMN = "Format the column as Text before the values are put into it, and export it again."


MOST_COLUMNS = 1_001
"""Columns of one upload that are told apart; rows of JSON may each have their own."""
CELL_CHARACTERS = 32_767
"""The most that a spreadsheet keeps in one cell; what is longer loses its end."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What probably happened to a value; `message` goes on about it ("The id x …")."""

    message: str
    fix: str
    is_lost: bool
    """Whether the value is gone for good; else it only looks odd."""


_FAILED = Damage("is what a spreadsheet shows for a formula that failed.", "Correct the formula first.", is_lost=True)
_CUT_NUMBER = Damage("is a long number that a spreadsheet cut short: digits are lost.", FIX_COLUMN, is_lost=True)
_LONG_NUMBER = Damage("may be a long number that a spreadsheet cut short.", FIX_COLUMN, is_lost=False)
_DATE = Damage("looks like a date that a spreadsheet made of it.", FIX_COLUMN, is_lost=False)
_SERIAL = Damage("is how a spreadsheet counts days, where a date is expected.", "Export dates as text.", is_lost=False)
_CUT_TEXT = Damage(
    f"has exactly {CELL_CHARACTERS:,} characters, the most that a spreadsheet's cell holds: its end is missing.",
    "Give the document as a file, in a ZIP. If it is whole, add an empty line to its end.",
    is_lost=True,
)


def of_id(text: str) -> Damage | None:
    """What a spreadsheet made of an id, by its look alone."""
    if text.startswith("#") and _FORMULA_ERROR.match(text):
        return _FAILED
    if "E" in text and _SHORTENED.match(text):
        return _CUT_NUMBER
    return _DATE if len(text) <= _LONGEST_DATE and _LIKE_A_DATE.match(text) else None


def of_datum(path: str, value: object, *, is_cell: bool) -> Damage | None:
    """What a spreadsheet made of a template's value at `path`. What is found in any cell of a table is not looked for
    once more where it `is_cell`."""
    if isinstance(value, str) and "E" in value and _SHORTENED.match(value):
        return _LONG_NUMBER
    if is_cell:
        return None
    if isinstance(value, str) and value.startswith("#") and _FORMULA_ERROR.match(value):
        return _FAILED
    return _SERIAL if is_serial(value) and names_a_date(path) else None


def of_document(text: str) -> Damage | None:
    """What a spreadsheet left of a document that stood in one of its cells."""
    if text.startswith("#") and _FORMULA_ERROR.match(text.strip()):
        return _FAILED
    # A cell counts characters of 16 bits, of which some of ours take two.
    if CELL_CHARACTERS // 2 < len(text) <= CELL_CHARACTERS:
        units = len(text.encode("utf-16-le", "surrogatepass")) // 2
        return _CUT_TEXT if units == CELL_CHARACTERS else None
    return None


@lru_cache(maxsize=1_000)
def names_a_date(path: str) -> bool:
    """Whether a column with this name holds dates."""
    return _NAMES_A_DATE.search(path[-60:]) is not None


def is_serial(value: object) -> bool:
    """Whether this is how a spreadsheet counts days, where a date belongs."""
    if isinstance(value, str):
        return len(value) == 5 and value.isascii() and value.isdigit() and int(value) in _SERIALS
    return isinstance(value, int) and not isinstance(value, bool) and value in _SERIALS


class ColumnWatch:
    """Which columns there are, in the order in which they came, and which of them hold nothing in any row."""

    def __init__(self) -> None:
        self._has_value: dict[str, bool] = {}

    def see(self, columns: Mapping[str, object]) -> None:
        for name, value in columns.items():
            if not self._has_value.get(name, False):
                self._see(name, value)

    def _see(self, name: str, value: object) -> None:
        if name in self._has_value or len(self._has_value) < MOST_COLUMNS:
            self._has_value[name] = not isinstance(value, str) or bool(value.strip())  # null was meant

    def names(self) -> tuple[str, ...]:
        """The first `MOST_COLUMNS` of them."""
        return tuple(self._has_value)

    def empty(self) -> Iterator[str]:
        return (name for name, has_value in self._has_value.items() if not has_value)


def repeats_header(columns: Mapping[str, object]) -> bool:
    """Whether each cell that is not empty holds the name of its column: a header in the middle of a table."""
    found = False
    for name, value in columns.items():
        if value is None or value == "":
            continue
        if not isinstance(value, str) or value.strip().casefold() != name.strip().casefold():
            return False
        found = True
    return found


def leaves(data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every value of `data` that holds no others, with its path; entries of a list have `[]` for their number."""
    waiting: list[tuple[str, Any]] = list(data.items())
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend((f"{path}.{key}", inner) for key, inner in value.items())
        elif isinstance(value, list):
            waiting.extend((f"{path}[]", inner) for inner in value)
        else:
            yield path, value


@dataclass(frozen=True, slots=True)
class Suspect:
    """An id that something probably happened to; `index` is its place among those that were looked at."""

    index: int
    code: Code
    message: str
    fix: str


def suspects(ids: Sequence[str]) -> list[Suspect]:
    """Ids that only look odd among the others: numbers that lost zeros, dates that became numbers."""
    numbers = [(index, text) for index, text in enumerate(ids) if text.isascii() and text.isdigit()]
    if not numbers:
        return []
    found = [] if 5 * len(numbers) > len(ids) else list(_serials(numbers))
    return found or [*_lost_zeros(numbers)]


def _serials(numbers: Iterable[tuple[int, str]]) -> Iterator[Suspect]:
    for index, text in numbers:
        if is_serial(text):
            message = (
                f"The id {shown(text)} is a bare number among other ids: a spreadsheet may have made a date of it."
            )
            yield Suspect(index, Code.SPREADSHEET_DAMAGE, message, FIX_COLUMN)


def _lost_zeros(numbers: Sequence[tuple[int, str]]) -> Iterator[Suspect]:
    lengths = Counter(len(text) for _, text in numbers)
    if len(lengths) == 1:
        return
    full = {text.lstrip("0"): text for _, text in numbers if text.startswith("0")}
    longest = max(lengths)
    are_padded = any(len(text) == longest for text in full.values())
    are_short = are_padded or (
        longest >= _LEAST_DIGITS and 2 * lengths[longest] >= len(numbers) and not full and not _is_counter(numbers)
    )
    for index, text in numbers:
        if text.startswith("0"):
            continue
        if text in full:
            message = f"The ids {shown(text)} and {shown(full[text])} differ in their zeros only."
        elif are_short and len(text) < longest:
            message = f"The id {shown(text)} has {len(text)} digits, most others {longest}: it may have lost zeros."
        else:
            continue
        yield Suspect(index, Code.ID_LOST_ZEROS_SUSPECTED, message, FIX_COLUMN)


def _is_counter(numbers: Sequence[tuple[int, str]]) -> bool:
    values = [int(text) for _, text in numbers]
    return max(values) - min(values) < _COUNTER_GAP * len(values)
