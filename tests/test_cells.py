"""Cells of CSV files: none runs as a formula, and each comes back as the text that it was."""

from __future__ import annotations

import random

import pytest

from batches import cells

TEXTS = [
    "",
    "'",
    "''",
    "plain",
    "'tis plain",
    "007",
    "=1+1",
    "'=1+1",
    "''=1+1",
    " =1+1",
    "' =1+1",
    "+44",
    "-5",
    "@SUM(A1)",
    "\t1",
    "\r1",
    "\n=1",
    "'\n1",
    "a\nb",
    "a=b",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_cell_comes_back_as_the_text_that_it_was(text: str) -> None:
    assert cells.unguarded(cells.guarded(text)) == text


def test_so_does_whatever_is_made_of_these_characters_and_no_two_are_one_cell() -> None:
    rng = random.Random(124)
    texts = {"".join(rng.choices("'=+-@\t\r\n a0", k=rng.randrange(6))) for _ in range(5_000)} | set(TEXTS)
    written = {text: cells.guarded(text) for text in texts}
    assert {text: cells.unguarded(cell) for text, cell in written.items()} == {text: text for text in texts}
    assert len(set(written.values())) == len(texts)
    for cell in written.values():
        assert cell[:1] not in ("\t", "\r", "\n")
        assert cell.lstrip()[:1] not in ("=", "+", "-", "@")


@pytest.mark.parametrize("value", [-5, 2.5, None, True])
def test_what_is_no_text_is_left_as_it_is(value: object) -> None:
    assert cells.guarded(value) is value


def test_an_apostrophe_that_somebody_typed_stays() -> None:
    assert cells.unguarded("'tis") == "'tis"
