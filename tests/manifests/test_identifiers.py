"""Which ids are accepted, under which spelling, and when two of them are the same."""

from __future__ import annotations

import pytest

from batches.manifests import identifiers
from batches.manifests.jsonrows import JsonValue, Number
from batches.manifests.problems import Unfit
from tests.manifests.samples import error_codes, listed, row, warning_codes


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("INV-1", "INV-1"),
        (" INV-1\t\r\n", "INV-1"),
        ("\u00a0\u3000INV-1\u00a0", "INV-1"),
        ("\ufeff\u200bINV-1\u200b\u2060", "INV-1"),
        ("e\u0301", "\u00e9"),
        ("a b", "a b"),
        ("0010", "0010"),
        ("None", "None"),
        ("1e3", "1e3"),
        ("…", "…"),
        ("x" * 200, "x" * 200),
        ("e\u0301" * 200, "\u00e9" * 200),
        (Number("7"), "7"),
        (Number("-0"), "-0"),
        (Number("9007199254740993"), "9007199254740993"),
        (Number("1" * 200), "1" * 200),
    ],
)
def test_an_id_is_kept_as_written_but_for_its_ends_and_its_composition(given: JsonValue, kept: str) -> None:
    assert identifiers.normalised(given) == kept


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        (None, "missing_id", "no id"),
        ("", "missing_id", "empty"),
        (" \u200b\u00a0", "missing_id", "empty"),
        (True, "bad_id", "true or false"),
        ([], "bad_id", "a list"),
        ({}, "bad_id", "an object"),
        (Number("7.0"), "bad_id", "7.0"),
        (Number("1e3"), "bad_id", "1e3"),
        (Number("NaN"), "bad_id", "NaN"),
        (Number("1" * 201), "bad_id", "201 characters; 200 are allowed"),
        (".", "bad_id", "folder"),
        (" .. ", "bad_id", "folder"),
        ("a\tb", "bad_id", "control character"),
        ("a\nb", "bad_id", "control character"),
        ("a\x00b", "bad_id", "control character"),
        ("a\x85b", "bad_id", "control character"),
        ("a\u2028b", "bad_id", "control character"),
        ("a\ud83db", "bad_id", "half of a character"),
        ("x" * 201, "bad_id", "201 characters; 200 are allowed"),
    ],
)
def test_what_cannot_be_an_id_is_told_why(given: JsonValue, code: str, words: str) -> None:
    with pytest.raises(Unfit) as refused:
        identifiers.normalised(given)

    assert refused.value.code == code
    assert words in refused.value.message
    refused.value.message.encode()


def test_the_number_7_and_the_text_7_are_the_same_id() -> None:
    assert error_codes(listed([row(id=7), row(id="7")])) == [("duplicate_id", "id", (0, 1))]


def test_ids_equal_after_composition_are_the_same() -> None:
    assert error_codes(listed([row(id="é"), row(id="e\u0301")])) == [("duplicate_id", "id", (0, 1))]


@pytest.mark.parametrize("other", ["inv-1", "ＩＮＶ-1", "Inv-1"])
def test_ids_that_look_alike_are_two_documents_with_a_warning(other: str) -> None:
    assert warning_codes(listed([row(id="INV-1"), row(id=other)])) == [("duplicate_id_casefold", "id", (0, 1))]


def test_an_invisible_character_inside_an_id_is_pointed_out() -> None:
    assert warning_codes(listed([row(id="INV\u200b-1")])) == [("bad_id", "id", (0,))]


def test_a_third_repetition_names_the_first_place_again() -> None:
    with listed([row(), row(id="B"), row(), row()]) as manifest:
        messages = [place.message for place in manifest.errors[0].places]

    assert messages == [
        'The id "INV-1" stands in rows 1 and 3.',
        'The id "INV-1" stands in rows 1 and 4.',
    ]


@pytest.mark.parametrize("key", ["ID", "custom_id", "external-id", "Invoice Number"])
def test_a_key_that_was_meant_as_id_is_named(key: str) -> None:
    with listed([{key: "A", "html": "<p>"}]) as manifest:
        (problem,) = manifest.errors

    assert problem.code == "missing_id"
    assert problem.fix == f'Rename the key "{key}" to "id".'
