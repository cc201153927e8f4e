"""Numbers, money and dates by locale: how they are written, and what of the data is not taken for one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batches import templating
from batches.templating import NotFilled


def filled(source: str, value: Any) -> str:
    return (
        templating.compiled("{{ x | " + source + " }}").fill({"x": value}).replace("\u00a0", " ").replace("\u202f", " ")
    )


@pytest.mark.parametrize(
    ("source", "value", "wanted"),
    [
        ("number", "1234.5", "1,234.5"),
        ("number: 'de'", "1234567.50", "1.234.567,50"),
        ("number: 'de', 2", "1234.5", "1.234,50"),
        ("number: 'de', 0", "2.5", "3"),
        ("number: 'fr'", "1234.5", "1 234,5"),
        ("number: 'de-CH'", "1234567.5", "1’234’567.5"),
        ("number: 'en-IN'", "1234567", "12,34,567"),
        ("number: 'de'", -7, "-7"),
        ("number: 'de'", 0.1, "0,1"),
        ("number: 'de'", " 7 ", "7"),
        ("number: 'de', from: 'de'", "1.234,50", "1.234,50"),
        ("number: 'de', from: 'fr'", "1 234,50", "1.234,50"),
        ("number: 'en', from: 'de-CH'", "1'234.50", "1,234.50"),
        ("number: 'en', from: 'de'", "1234,5", "1,234.5"),
        ("money: 'EUR', 'de'", "1234.5", "1.234,50 €"),
        ("money: 'EUR', 'de'", "2.675", "2,68 €"),
        ("money: 'EUR', 'de'", "-0.5", "-0,50 €"),
        ("money: 'EUR'", "1234.5", "€1,234.50"),
        ("money: 'CHF', 'de-CH'", "1234567.5", "CHF 1’234’567.50"),
        ("money: 'JPY', 'ja'", "1234.5", "￥1,235"),
        ("money: 'KWD', 'en'", "1.2345", "KWD1.235"),
        ("money: 'EUR', 'de', from: 'de'", "1.012,50", "1.012,50 €"),
        ("percent: 'de'", "0.19", "19 %"),
        ("percent: 'de', 1", "0.195", "19,5 %"),
        ("percent", 0.07, "7%"),
        ("date", "2026-10-05", "Oct 5, 2026"),
        ("date: 'long', 'de'", "2026-10-05", "5. Oktober 2026"),
        ("date: 'short', 'en-GB'", "2026-10-05T23:30:00+02:00", "05/10/2026"),
        ("date: 'full', 'fr'", "2026-10-05", "lundi 5 octobre 2026"),
        ("date: 'dd.MM.yyyy', 'de'", "2026-10-05", "05.10.2026"),
        ("date: 'MMMM yyyy', 'de'", "2026-10-05", "Oktober 2026"),
        ("date: 'long', 'de', from: 'dd.MM.yyyy'", "05.10.2026", "5. Oktober 2026"),
        ("date: 'long', 'en', from: 'M/d/yyyy'", "10/5/2026", "October 5, 2026"),
        ("times: 3", "0.1", "0.3"),
        ("plus: '0.2'", "0.1", "0.3"),
        ("minus: 1", 1, "0"),
        *[("date: 'short', 'de'", f"2026-10-05{at}", "05.10.26") for at in ("T10:00:00Z", " 00:00:00", "T10:00+02:00")],
        ("number: 'en', from: 'hi'", "12,34,567.5", "1,234,567.5"),
        ("divided_by: 4", "10", "2.5"),
        ("divided_by: 3 | round: 2", "10", "3.33"),
        ("round", "2.5", "3"),
        ("upcase", "straße", "STRASSE"),
        ("capitalize", "una park", "Una park"),
        ("replace: '-', '/'", "a-b", "a/b"),
        ("remove: '-'", "a-b", "ab"),
        ("append: ' & co'", "A", "A &amp; co"),
        ("prepend: 'Mx '", "A", "Mx A"),
        ("truncate: 5", "abcdefgh", "abcd…"),
        ("truncate: 3, ''", "abcdefgh", "abc"),
        ("newline_to_br", "a\r\nb<\nc", "a<br>\nb&lt;<br>\nc"),
        ("split: ',' | join: ' + '", "a,b", "a + b"),
        ("split: ',' | size", "a,b", "2"),
        ("size", "abc", "3"),
        ("first", ["a", "b"], "a"),
        ("map: 'n' | join", [{"n": "a"}, {"n": "b"}], "a, b"),
        ("sum: 'n' | money: 'EUR', 'de'", [{"n": "0.1"}, {"n": 0.2}], "0,30 €"),
        ("sum", ["1", 2], "3"),
        ("default: '-'", "", "-"),
        ("default: '-'", 0, "0"),
    ],
)  # fmt: skip
def test_a_filter_writes(source: str, value: Any, wanted: str) -> None:
    assert filled(source, value) == wanted


NO_NUMBERS = ["1,5", "1.234,50", "1e5", "x", "１", "0x1", "1 000", "--1", True, [], {}, "9" * 41, float("nan")]
NO_DATES = ["05.10.2026", "10/5/2026", "2026-10-5", "now", 5, "2026-10-05 10:00 or so", "2026-10-05T10:00:00Zx"]


@pytest.mark.parametrize(
    ("source", "value", "words"),
    [
        *[("number: 'de'", value, "is not a number") for value in NO_NUMBERS],
        *[("money: 'EUR', 'de'", value, "is not a number") for value in NO_NUMBERS],
        ("number: 'de'", "", "An empty value is not a number"),
        ("number: 'de', from: 'de'", "1,234.50", "not a number as de writes it"),
        ("number: 'de', from: 'de'", "12.34", "not a number as de writes it"),
        ("number: 'de', from: 'de'", "1.23.456", "not a number as de writes it"),
        ("number: 'de', from: 'hi'", "1,234,56", "not a number as hi writes it"),
        *[("date: 'long', 'de'", value, "is not a date") for value in NO_DATES],
        ("date: 'long', 'de'", "2026-02-30", "no such day"),
        ("date: 'long', 'de'", "", "An empty value is not a date"),
        ("date: 'long', 'de', from: 'dd.MM.yyyy'", "2026-10-05", "as dd.MM.yyyy, as the template says"),
        ("join", "text", "a list is wanted"),
        ("first", [], "The list is empty"),
        ("sum: 'n'", [{"n": 1}, {}], 'has no "n"'),
        ("sum", ["1,5"], "is not a number"),
        ("round: 99", "1", "no number of digits"),
        ("truncate: '5'", "abc", "no number of characters"),
        ("upcase", ["a"], "This is a list"),
    ],
)  # fmt: skip
def test_a_filter_guesses_nothing(source: str, value: Any, words: str) -> None:
    with pytest.raises(NotFilled, match=words) as refused:
        filled(source, value)
    assert refused.value.problem.line == 1


def test_a_number_of_a_workbook_beside_from_says_that_from_is_the_reason() -> None:
    with pytest.raises(NotFilled) as refused:
        filled("money: 'EUR', 'de', from: 'de'", "19.9")
    assert "without from it reads 1234.50" in refused.value.problem.fix


@settings(max_examples=150, deadline=None)
@given(st.decimals(min_value=-(10**12), max_value=10**12, places=4), st.sampled_from(["de", "en", "fr", "de-CH", "es"]))
def test_a_number_that_is_written_in_a_locale_is_read_back_from_it(value: Any, language: str) -> None:
    source = f"number: '{language}'"
    written = templating.compiled("{{ x | " + source + " }}").fill({"x": f"{value:f}"}).replace("&#39;", "'")
    back = templating.compiled("{{ x | number: 'en', from: '" + language + "' }}").fill(
        {"x": written.replace("−", "-")}
    )
    assert back == templating.compiled("{{ x | number }}").fill({"x": f"{value:f}"})
