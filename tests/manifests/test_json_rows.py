"""Cutting rows out of JSON: nothing lost, every place right, whatever the chunks."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batches.manifests import Limits
from batches.manifests.jsonrows import (
    MOST_VALUES,
    Number,
    TooDeep,
    TooManyValues,
    as_written,
    check_depth,
    line_rows,
    list_rows,
    parse,
    plain,
)
from tests.manifests.samples import codes, uploaded

LIMITS = Limits()
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


class Drips(io.BytesIO):
    """A stream that gives at most three bytes at a time, as a slow pipe may."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(3 if size is None or size < 0 else min(size, 3))


@settings(max_examples=150, deadline=None, database=None)
@given(st.lists(VALUES, max_size=6), st.sampled_from([None, 1]), st.booleans())
def test_rows_are_cut_out_as_json_means_them_however_the_bytes_arrive(
    values: list[Any], indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode(errors="replace")
    expected = json.loads(text)
    spans = list(list_rows(Drips(text), 0, 1, LIMITS))

    assert [json.loads(span.raw or b"") for span in spans] == expected
    for span in spans:
        assert text[span.start : span.start + span.size] == span.raw
        before = text[: span.start].decode()
        assert span.line == before.count("\n") + 1
        assert span.character == len(before.rpartition("\n")[2]) + 1


@settings(max_examples=100, deadline=None, database=None)
@given(st.lists(VALUES, max_size=6))
def test_lines_are_cut_out_as_they_stand(values: list[Any]) -> None:
    lines = [json.dumps(value, ensure_ascii=False).encode(errors="replace") for value in values]
    spans = list(line_rows(io.BytesIO(b"\r\n\n".join(lines)), 0, 1, LIMITS))

    assert [span.raw for span in spans] == lines
    assert [span.line for span in spans] == [2 * number + 1 for number in range(len(lines))]


@settings(max_examples=100, deadline=None, database=None)
@given(VALUES)
def test_values_survive_with_their_digits(value: Any) -> None:
    text = json.dumps(value)
    parsed = parse(text.encode())

    assert plain(parsed.value) == json.loads(text)
    assert json.dumps(value) == _as_written(parsed.value)


def _as_written(value: Any) -> str:
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_as_written, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)}: {_as_written(item)}' for key, item in value.items())}}}"
    return json.dumps(value)


def test_a_row_over_the_limit_has_a_place_and_no_bytes() -> None:
    big = json.dumps({"id": "BIG", "html": "x" * 5_000}).encode()
    small = b'{"id": "SMALL"}'
    limits = Limits(max_row_bytes=100)

    in_list = list(list_rows(io.BytesIO(b"[" + big + b",\n" + small + b"]"), 0, 1, limits))
    in_lines = list(line_rows(io.BytesIO(big + b"\n" + small), 0, 1, limits))

    assert [span.raw for span in in_list] == [span.raw for span in in_lines] == [None, small]
    assert (in_list[0].size, in_list[1].line) == (len(big), 2)
    assert (in_lines[0].size, in_lines[1].line) == (len(big) + 1, 2)


@pytest.mark.parametrize("raw", [b"[" * 9, b'{"a":' * 9, b"[" * 8 + b"[", b'["[[[[[[[[[", [[[[[[[[[]'])
def test_depth_is_measured_outside_of_strings(raw: bytes) -> None:
    with pytest.raises(TooDeep):
        check_depth(raw, 8)
    check_depth(b'["' + raw.replace(b'"', b'\\"') + b'"]', 8)


def test_a_number_that_python_cannot_hold_stays_text() -> None:
    assert plain(parse(b"1e999").value) == "1e999"
    assert plain(parse(b"9" * 5000).value) == "9" * 5000
    assert plain(parse(b"NaN").value) == "NaN"
    assert plain(parse(b"[7, 7.5, -0]").value) == [7, 7.5, 0]


@pytest.mark.parametrize(
    "digits", ["12345678901234567.89", "0.1000000000000000055", "3.14159265358979323846", "1e-400"]
)
def test_a_number_that_would_lose_digits_stays_text(digits: str) -> None:
    assert plain(parse(digits.encode()).value) == digits
    assert plain(parse(b"[0.1, 1.10, 1e3, 9007199254740993]").value) == [0.1, 1.1, 1000.0, 9007199254740993]


def test_evidence_spells_a_number_as_it_was_written() -> None:
    written = as_written(
        parse(b'{"a": [7, 1.10, 1e3, 0.5], "b": {"c": 1E400, "d": true, "e": null, "f": "1e3"}}').value
    )
    assert written == {"a": [7, "1.10", "1e3", 0.5], "b": {"c": "1E400", "d": True, "e": None, "f": "1e3"}}


def test_repeated_keys_are_found_at_any_depth() -> None:
    assert parse(b'{"a": 1, "b": {"c": 1, "c": 2}, "a": 3}').repeated_keys == ("c", "a")


@pytest.mark.parametrize("value", ["0", "[]", "{}", '"a"', "null"])
def test_a_row_of_more_values_than_memory_should_hold_is_refused_before_it_is_parsed(value: str) -> None:
    many = ",".join([value] * (MOST_VALUES + 1))
    with pytest.raises(TooManyValues):
        parse(f"[{many}]".encode())
    text = many.replace('"', "'")
    assert parse(json.dumps([text]).encode()).value == [text]  # as text they are one value


def test_such_a_row_is_an_error_of_its_own_and_the_others_are_read() -> None:
    rows = '{"id": "A", "html": "<p>"}\n{"id": "B", "x": [' + ",".join("0" * (MOST_VALUES + 1)) + "]}\n"
    with uploaded(rows) as manifest:
        assert codes(manifest.errors) == [("file_too_large", None, (1,))]
        assert manifest.errors[0].places[0].message == "The row holds more than 500,000 values."
        assert [row.business_id for row in manifest.rows] == ["A"]
        assert [dict(manifest.original_of(each)) for each in manifest.left_out()] == [{}]
