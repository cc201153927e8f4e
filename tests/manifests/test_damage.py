"""What a spreadsheet did to ids and values before they came, told for every format; nothing is ever repaired."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batches.manifests import Code, damage
from batches.manifests.choices import Choices
from tests.manifests.faketemplates import FakeTemplate, FakeTemplates
from tests.manifests.samples import codes, error_codes, listed, row, uploaded, warning_codes


def ids(*given: Any) -> list[dict[str, Any]]:
    return [row(id=each) for each in given]


@pytest.mark.parametrize(
    "given",
    ["#REF!", "#N/A", "#NAME?", "#VALUE!", "#DIV/0!", "#NULL!", "#NUM!", "#BEZUG!", "#NV", "#######", " #ref! "],
)
def test_what_a_spreadsheet_shows_for_a_failed_formula_is_no_id(given: str) -> None:
    assert error_codes(listed(ids(given, "A"))) == [("spreadsheet_damage", "id", (0,))]


@pytest.mark.parametrize("given", ["1.23E+05", "1,23E+11", "9E+15", "-1.2E-07"])
def test_a_number_that_was_cut_short_is_no_id(given: str) -> None:
    assert error_codes(listed(ids("A", given))) == [("spreadsheet_damage", "id", (1,))]


@pytest.mark.parametrize(
    "given", ["05.Mrz", "3-May", "Mar-05", "5. Mai 26", "12-Oct-2026", "jan-26", "2026-03-05 00:00:00"]
)
def test_an_id_that_became_a_date_is_warned_of(given: str) -> None:
    assert warning_codes(listed(ids("A", given))) == [("spreadsheet_damage", "id", (1,))]


@pytest.mark.parametrize(
    "given",
    [
        "#1",
        "#A-17",
        "#REFUND",
        "1e3",
        "0x1F",
        "TRUE",
        "+7",
        "2E5-77",
        "INV-E+05",
        "2026-03-05",
        "5-3",
        "Mayer-05",
        "1.2",
    ],
)
def test_an_id_that_only_looks_a_little_like_it_is_left_alone(given: str) -> None:
    assert warning_codes(listed(ids("A", given))) == []


@pytest.mark.parametrize(
    ("given", "suspected"),
    [
        (["0012", "0345", "77"], [2]),
        (["0010", "10", "0100", "00042", "1000"], [1, 4]),
        (["12345", "48213", "77123", "412"], [3]),
        (["90210", "2134", "60601", "10001"], [1]),
        (["0010", "10"], [1]),
        ([str(number) for number in range(995, 1005)], []),
        (["7", "12", "155"], []),
        (["98", "120", "4711"], []),
        (["12345", "48213"], []),
        (["INV-1", "INV-22", "1234"], []),
        (["0010", "0011"], []),
    ],
)
def test_numbers_that_may_have_lost_zeros_are_warned_of(given: list[str], suspected: list[int]) -> None:
    found = [rows for code, _, rows in warning_codes(listed(ids(*given))) if code == "id_lost_zeros_suspected"]
    assert [*sum(found, ())] == suspected


def test_the_sentence_about_lost_zeros_says_what_is_odd_and_where() -> None:
    lines = "\n".join(json.dumps(each) for each in ids("0012", "0345", "77", "12"))
    with uploaded(lines) as manifest:
        (problem,) = manifest.warnings
        assert (problem.count, [place.line for place in problem.places]) == (2, [3, 4])
        assert problem.places[0].message == 'The id "77" has 2 digits, most others 4: it may have lost zeros.'
        assert problem.places[1].message == 'The ids "12" and "0012" differ in their zeros only.'
        assert problem.places[0].business_id == "77"


def test_a_bare_number_among_other_ids_may_be_a_date() -> None:
    found = warning_codes(listed(ids("3-4", "3-5", "46086", "3-7", "3-8")))
    assert found == [("spreadsheet_damage", "id", (2,))]
    assert warning_codes(listed(ids("A-1", "46086", "46087"))) == []


@pytest.mark.parametrize("given", ["A ", " A", "\u00a0A", "A\u200b", "A\t", "\ufeffA"])
def test_white_space_around_an_id_is_taken_off_with_a_word(given: str) -> None:
    assert warning_codes(listed(ids(given))) == [("bad_id", "id", (0,))]


def test_a_header_in_the_middle_is_no_row() -> None:
    rows = [
        {"id": "A", "name": "Lindqvist"},
        {"id": "id", "name": "Name "},
        {"id": "B", "name": "Okoye"},
        {"id": "id", "name": "name"},
        {"id": "name", "name": "name"},
    ]
    templates = FakeTemplates(FakeTemplate("<p>{{ name }}</p>"))
    with listed(rows, choices=Choices(template="invoice"), templates=templates) as manifest:
        assert codes(manifest.errors) == [("spreadsheet_damage", None, (1, 3))]
        assert [each.business_id for each in manifest.rows] == ["A", "B", "name"]


def test_a_column_that_is_empty_in_all_rows_is_told_once() -> None:
    rows = [row(id="A", note="", meta={}, filename=None, _error=""), row(id="B", note=" ", _error="", late="")]
    found = [each for each in warning_codes(listed(rows)) if each[0] == "spreadsheet_damage"]
    assert found == [("spreadsheet_damage", "note", ()), ("spreadsheet_damage", "late", ())]
    assert [each for each in warning_codes(listed(rows[:1])) if each[0] == "spreadsheet_damage"] == []
    assert [each for each in warning_codes(listed([*rows, row(id="C", note="x", late=0)])) if each[1] == "note"] == [
        ("unknown_column", "note", (0, 1, 2))
    ]


@pytest.mark.parametrize(
    ("path", "value", "is_lost"),
    [
        ("total", "#REF!", True),
        ("customer.name", "#N/A", True),
        ("total", "1.23E+05", False),
        ("due_date", "46086", False),
        ("invoice.date", 46086, False),
        ("lieferdatum", "46086", False),
        ("total", "46086", None),
        ("due_date", "2026-03-05", None),
        ("due_date", True, None),
        ("update.count", "46086", None),
        ("name", "Mai 2026", None),
        ("note", "#1 of 2", None),
    ],
)
def test_a_value_that_would_be_printed_damaged(path: str, value: Any, is_lost: bool | None) -> None:
    found = damage.of_datum(path, value, is_cell=False)
    assert (found.is_lost if found else None) is is_lost


def test_damaged_values_of_a_template_are_told_by_their_path_at_any_depth() -> None:
    data = {"lines": [{"price": "#REF!"}, {"price": "2"}], "due": {"date": "46086"}, "id": "A"}
    with listed(
        [{"id": "A", "template": "invoice", "data": data}], templates=FakeTemplates(FakeTemplate("<p>{{ due.date }}"))
    ) as manifest:
        assert codes(manifest.errors) == [("spreadsheet_damage", "lines[].price", (0,))]
        assert ("spreadsheet_damage", "due.date", (0,)) in codes(manifest.warnings)


def test_a_document_that_filled_its_cell_has_lost_its_end() -> None:
    page = "<p>" + "x" * (damage.CELL_CHARACTERS - 3)
    wide = "<p>" + "😀" * ((damage.CELL_CHARACTERS - 3) // 2)
    assert error_codes(listed([row(html=page)])) == [("spreadsheet_damage", "html", (0,))]
    assert error_codes(listed([row(html=wide)])) == [("spreadsheet_damage", "html", (0,))]
    assert error_codes(listed([row(html=page + "\n")])) == []
    assert error_codes(listed([{"id": "A", "markdown": "#REF!"}])) == [("spreadsheet_damage", "markdown", (0,))]


def test_case_10_ids_are_the_exact_text_and_what_may_have_lost_zeros_is_only_told() -> None:
    given = ["0010", "10", "0100", "00042", "+7", "1e3", "1000", "0x1F", "TRUE", "NULL", "None"]
    with listed(ids(*given)) as manifest:
        assert [each.business_id for each in manifest.rows] == given
        assert [each.code for each in manifest.warnings] == [Code.ID_LOST_ZEROS_SUSPECTED]
