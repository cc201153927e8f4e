"""Cells of CSV files: none runs as a formula, and each comes back as the text that it was."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12))
def test_whatever_was_guarded_comes_back(text: str) -> None:
    assert cells.unguarded(cells.guarded(text)) == text


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", " =1", "\t1", "\r1", "\n1", "'=1", "''=1"])
def test_what_a_program_would_run_gets_a_quote(text: str) -> None:
    assert cells.guarded(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "abc", "'abc", "1-1", "'", "''", "a=b"])
def test_other_texts_stay(text: str) -> None:
    assert cells.guarded(text) == cells.unguarded(text) == text


def test_a_list_of_failed_rows_is_known_by_its_place_and_one_more_of_its_columns() -> None:
    assert cells.is_failed_list(["id", "_row", "_code"])
    assert cells.is_failed_list({"id": "A", "_row": "0", "_last_state": "failed"})
    assert not cells.is_failed_list(["id", "_row"])
    assert not cells.is_failed_list(["id", "_code", "_last_state"])
