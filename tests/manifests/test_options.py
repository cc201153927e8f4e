"""Render options: names, ranges, and help for a misspelled one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batches.manifests import options
from tests.manifests.samples import error_codes, listed, row


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"format": "A4"}, {"format": "A4"}),
        ({"format": "a4"}, {"format": "A4"}),
        ({"format": "Letter"}, {"format": "letter"}),
        ({"landscape": True, "printBackground": False}, {"landscape": True, "printBackground": False}),
        ({"preferCSSPageSize": True}, {"preferCSSPageSize": True}),
        ({"scale": 0.5}, {"scale": 0.5}),
        ({"scale": 1.0}, {"scale": 1}),
        ({"scale": 2}, {"scale": 2}),
        ({"waitUntil": "networkidle0"}, {"waitUntil": "networkidle0"}),
        ({"timeout": 60000}, {"timeout": 60000}),
        ({"pageRanges": "1-3,5"}, {"pageRanges": "1-3,5"}),
        ({"pageRanges": "1 - 3, 5"}, {"pageRanges": "1 - 3, 5"}),
        ({"width": "210mm", "height": "8.5in"}, {"width": "210mm", "height": "8.5in"}),
        ({"headerTemplate": "<p>", "footerTemplate": ""}, {"headerTemplate": "<p>", "footerTemplate": ""}),
        ({"margin": {"top": "10mm", "left": "0"}}, {"margin": {"top": "10mm", "left": "0"}}),
        ({}, {}),
        (None, {}),
    ],
)
def test_options_are_sent_as_the_provider_spells_them(given: Any, kept: dict[str, Any]) -> None:
    with listed([row(options=given)]) as manifest:
        assert manifest.errors == ()
        assert manifest.rows[0].options == kept
        assert [type(value) for value in manifest.rows[0].options.values()] == [type(value) for value in kept.values()]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("format", "A7"),
        ("format", 4),
        ("landscape", "yes"),
        ("landscape", 1),
        ("printBackground", None),
        ("scale", 0.05),
        ("scale", 2.5),
        ("scale", "1"),
        ("scale", True),
        ("waitUntil", "idle"),
        ("timeout", 0),
        ("timeout", 60001),
        ("timeout", 1.5),
        ("pageRanges", "3-1"),
        ("pageRanges", "0"),
        ("pageRanges", "1;2"),
        ("pageRanges", ""),
        ("width", 210),
        ("width", "210 mm"),
        ("width", "wide"),
        ("headerTemplate", 1),
        ("margin", "10mm"),
        ("margin", {"top": 10}),
        ("margin", {"topp": "10mm"}),
    ],
)
def test_a_value_out_of_range_is_an_error_of_that_option(name: str, value: Any) -> None:
    with listed([row(options={name: value})]) as manifest:
        (problem,) = manifest.errors

    assert (problem.code, problem.column) == ("bad_option", f"options.{name}")
    assert problem.message.startswith(f"options.{name} has to be ")


@pytest.mark.parametrize(
    ("name", "meant"), [("Format", "format"), ("printbackground", "printBackground"), ("marign", "margin")]
)
def test_a_misspelled_option_names_the_one_that_was_meant(name: str, meant: str) -> None:
    with listed([row(options={name: "A4"})]) as manifest:
        (problem,) = manifest.errors

    assert problem.fix == f"Did you mean {meant}?"


def test_an_unknown_option_lists_all_known_ones() -> None:
    with listed([row(options={"paper": "A4"})]) as manifest:
        (problem,) = manifest.errors

    assert all(name in problem.fix for name in options.names())


@pytest.mark.parametrize("value", ["A4", ["A4"], 7, True, dict.fromkeys(map(str, range(99)))])
def test_options_that_are_no_object_are_an_error(value: Any) -> None:
    assert error_codes(listed([row(options=value)])) == [("bad_option", "options", (0,))]


def test_all_wrong_options_of_a_row_are_told_at_once() -> None:
    wrong = {"format": "A9", "scale": 3, "margin": 1, "timeout": 5}
    assert [column for _, column, _ in error_codes(listed([row(options=wrong)]))] == [
        "options.format",
        "options.scale",
        "options.margin",
    ]


@pytest.mark.parametrize("name", ["\ud83d", "format\udc00", "x" * 100 + "\ud83d", "\ud83d" * 60])
def test_an_option_whose_name_is_half_a_character_is_an_error_of_its_row(name: str) -> None:
    with listed([row(options={name: True}), row(id="INV-2")]) as manifest:
        found = {problem.code.value: problem for problem in manifest.errors}
        report = json.dumps(manifest.report(None), ensure_ascii=False)
    assert set(found) == {"bad_text", "bad_option"}
    assert {problem.rows for problem in found.values()} == {(0,)}
    assert found["bad_option"].column.startswith("options.")
    report.encode()  # it can be printed, sent and stored
