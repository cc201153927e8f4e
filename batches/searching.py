"""The search box of a batch's documents: words, and tokens such as `state:deadline row:100-200 pages:>10`. Pure.

Whoever acts on what a search matches must not act on more than they meant: a token whose value cannot be read matches
nothing, and says so. A word with a colon whose name is none of the tokens is searched for like any other, and is told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Q

from batches import rownumbers
from batches.cursors import DIGITS_MOST
from batches.models import FAILED_STATES, JobState
from batches.wording import Group

_TOKEN = re.compile(r"([a-z]+):(\S+)")
_NUMBERS = re.compile(rf"(>=|<=|>|<|)(\d{{1,{DIGITS_MOST}}})(?:-(\d{{1,{DIGITS_MOST}}}))?", re.ASCII)
_COMPARED = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte", "": "exact"}
_ANSWERS = {"yes": True, "no": False}
#: What people call a state beside its own word.
_STATES: Mapping[str, str] = {
    "deadline": JobState.DEADLINE_EXCEEDED,
    "waiting": JobState.PENDING,
    "rendering": JobState.ACCEPTED,
    "fetching": JobState.RENDERED,
    **{state: state for state in JobState.values},
}


@dataclass(frozen=True)
class Search:
    """`text` is searched as words, `condition` narrows to what the tokens say; `notes` are for the person.

    `in_group` names a counter, for which the items have to be told apart. `is_unreadable`: nothing matches.
    """

    text: str = ""
    condition: Q = field(default_factory=Q)
    in_group: str = ""
    is_unreadable: bool = False
    notes: tuple[str, ...] = ()


def read(q: str) -> Search:
    words, notes, condition, in_group, is_unreadable = [], [], Q(), "", False
    for word in q.split():
        token = _TOKEN.fullmatch(word)
        if token is None:
            words.append(word)
            continue
        name, value = token.groups()
        if name not in _READERS:
            words.append(word)
            notes.append(f"There is no “{name}:”, so “{word}” is searched for as it stands. There are {TOKENS}.")
            continue
        if name == "state" and value in Group.values and value not in JobState.values:
            in_group = value
            continue
        found = _READERS[name](value)
        if found is None:
            is_unreadable = True
            notes.append(f"“{word}” cannot be read, so nothing matches. Write {EXAMPLES[name]}.")
        else:
            condition &= found
    return Search(" ".join(words), condition, in_group, is_unreadable, tuple(notes))


def _state(value: str) -> Q | None:
    state = _STATES.get(value)
    if state is None:
        return None
    if state == JobState.FAILED:  # as the counter of that name
        return Q(version__job__state__in=FAILED_STATES, cancelled_at=None)
    if state == JobState.CANCELLED:
        return Q(version__job__state=state) | Q(cancelled_at__isnull=False)
    return Q(version__job__state=state, cancelled_at=None)


def _code(value: str) -> Q | None:
    return Q(version__job__failure_code__iexact=value) if "\0" not in value else None


def _numbers(column: str, meant: Callable[[int], int] = int) -> Callable[[str], Q | None]:
    def read_numbers(value: str) -> Q | None:
        found = _NUMBERS.fullmatch(value)
        if found is None:
            return None
        sign, first, last = found.groups()
        if last is None:
            return Q(**{f"{column}__{_COMPARED[sign]}": meant(int(first))})
        return None if sign else Q(**{f"{column}__gte": meant(int(first)), f"{column}__lte": meant(int(last))})

    return read_numbers


def _stale(value: str) -> Q | None:
    answer = _ANSWERS.get(value)
    return None if answer is None else Q(document__source_sha256__gt="") if answer else Q(document__source_sha256="")


_READERS: Mapping[str, Callable[[str], Any]] = {
    "state": _state,
    "code": _code,
    "row": _numbers("position", rownumbers.meant),
    "pages": _numbers("version__artifact__page_count"),
    "version": _numbers("version__number"),
    "stale": _stale,
}
EXAMPLES: Mapping[str, str] = {
    "state": "state:deadline, state:unknown, state:saved or another state",
    "code": "code:422",
    "row": "row:41, row:100-200 or row:>100",
    "pages": "pages:2, pages:1-3 or pages:>10",
    "version": "version:2 or version:>1",
    "stale": "stale:yes or stale:no",
}
TOKENS = ", ".join(f"{name}:" for name in EXAMPLES)
