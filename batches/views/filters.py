"""What pages with filters in their address share: addresses with and without one of them, and each of them in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from batches.cursors import Page


@dataclass(frozen=True)
class Chip:
    """One filter in words, and the address of the list without it."""

    words: str
    without_url: str


@dataclass(frozen=True)
class Around:
    """The addresses of the pages before and after one; empty where none is."""

    newer: str
    older: str


def with_query(path: str, asked: Mapping[str, str], **further: str) -> str:
    """`path` with those parameters that say something."""
    query = urlencode({name: text for name, text in {**asked, **further}.items() if text})
    return f"{path}?{query}" if query else path


def chips(path: str, asked: Mapping[str, str], words: Mapping[str, str]) -> list[Chip]:
    return [Chip(words[name], with_query(path, {**asked, name: ""})) for name in asked if name in words]


def around(path: str, asked: Mapping[str, str], page: Page[Any]) -> Around:
    return Around(
        with_query(path, asked, before=page.before) if page.before else "",
        with_query(path, asked, after=page.after) if page.after else "",
    )


def in_words(names: Sequence[str]) -> str:
    """`“failed” and “in the last 7 days”`"""
    quoted = [f"“{name}”" for name in names]
    return " and ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1]))) if quoted else ""


def named(slug: str, choices: Sequence[Choice]) -> str:
    """What a choice is called; itself where there is none of that name any more."""
    return next((words for key, words in choices if key == slug), slug)


Choice = tuple[str, str]
