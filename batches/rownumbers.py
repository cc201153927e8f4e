"""How a row of a manifest is called. Pure.

People count rows from 1: on pages, in sentences, in what a command prints and in the search box. What is kept or read
by programs counts from 0: `position`, `rows` and `row` in JSON, the columns `row` and `_row` of files, addresses.
"""

from __future__ import annotations


def said(position: int) -> int:
    """What a person calls the row at this position."""
    return position + 1


def meant(number: int) -> int:
    """The position of the row that a person calls so; -1, where no row is, for 0."""
    return number - 1
