"""The keys of a row: sources, file names, meta, and what is odd or wrong with them."""

from __future__ import annotations

import hashlib
import io
import json
from typing import Any

import pytest

from batches.manifests import Code, Limits, ManifestRefused, from_upload, read
from tests.manifests.samples import (
    PAGE,
    codes,
    error_codes,
    listed,
    row,
    uploaded,
    warning_codes,
    zipped,
)


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({"html": "<p>1</p>"}, "html", "<p>1</p>"),
        ({"html": " \r\n\u00a0<p>1</p>"}, "html", " \r\n\u00a0<p>1</p>"),
        ({"html": "\ufeff<p>1</p>"}, "html", "<p>1</p>"),
        ({"html_content": "plain words.html"}, "html", "plain words.html"),
        ({"html_content": "<p>1</p>"}, "html", "<p>1</p>"),
        ({"markdown": "# Title"}, "markdown", "# Title"),
        ({"markdown": "see notes.md for more"}, "markdown", "see notes.md for more"),
        ({"url": " https://example.com/a?b=c#d "}, "url", "https://example.com/a?b=c#d"),
        ({"html": None, "markdown": "# Title"}, "markdown", "# Title"),
    ],
)
def test_a_row_has_one_source(given: dict[str, Any], kind: str, text: str) -> None:
    with listed([{"id": "A"} | given]) as manifest:
        assert manifest.errors == ()
        (only,) = manifest.rows
        assert (only.kind, only.text()) == (kind, text)
        assert only.read() == text.encode()
        assert only.content_sha256 == hashlib.sha256(text.encode()).hexdigest()
        assert only.content_bytes == only.text_bytes == len(text.encode())
        assert (only.path, only.charset) == (None, "utf-8")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, ("missing_field", "html")),
        ({"html": None}, ("missing_field", "html")),
        ({"html": "<p>", "url": "https://example.com"}, ("several_sources", None)),
        ({"html": 12}, ("wrong_type", "html")),
        ({"html": ["<p>"]}, ("wrong_type", "html")),
        ({"html_content": True}, ("wrong_type", "html_content")),
        ({"html": ""}, ("empty_html", "html")),
        ({"html": " \n\t"}, ("empty_html", "html")),
        ({"html_content": "\u200b \ufeff"}, ("empty_html", "html_content")),
        ({"markdown": ""}, ("empty_html", "markdown")),
        ({"html": "<p>\0"}, ("bad_text", "html")),
        ({"markdown": "\ud800"}, ("bad_text", "markdown")),
        ({"markdown": " notes/may.md "}, ("missing_file", "markdown")),
        ({"html_content": "%PDF-1.7 …"}, ("not_html", "html_content")),
        ({"html": "invoice.html"}, ("missing_file", "html")),
        ({"url": "example.com"}, ("bad_url", "url")),
        ({"url": "ftp://example.com/x"}, ("bad_url", "url")),
        ({"url": "file:///etc/hostname"}, ("bad_url", "url")),
        ({"url": "https://"}, ("bad_url", "url")),
        ({"url": "http://example.com/"}, ("bad_url", "url")),
        ({"url": "https://localhost/"}, ("bad_url", "url")),
        ({"url": "https://10.0.0.5:8443/x"}, ("bad_url", "url")),
        ({"url": "https://[::1]/"}, ("bad_url", "url")),
        ({"url": "https://2130706433/"}, ("bad_url", "url")),
        ({"url": "https://example.com/a b"}, ("bad_url", "url")),
        ({"url": "https://example.com:port/"}, ("bad_url", "url")),
        ({"url": "https://[::1/"}, ("bad_url", "url")),
        ({"url": "https://okoye:secret@example.com/"}, ("bad_url", "url")),
        ({"url": "https://example.com/" + "x" * 3000}, ("bad_url", "url")),
        ({"htm": "<p>"}, ("unknown_column", "htm")),
        ({"HTML": "<p>"}, ("unknown_column", "HTML")),
        ({"html-content": "<p>"}, ("unknown_column", "html-content")),
        ({"htmlContent": "<p>"}, ("unknown_column", "htmlContent")),
        ({"html": "<p>", "markdwon": "# x"}, ("unknown_column", "markdwon")),
        ({"path": "x.html"}, ("unknown_column", "path")),
        ({"templateId": "invoice"}, ("unknown_column", "templateId")),
        ({"html": "<p>", "filename": 7}, ("bad_filename", "filename")),
        ({"html": "<p>", "filename": " "}, ("bad_filename", "filename")),
        ({"html": "<p>", "filename": "a/b.pdf"}, ("bad_filename", "filename")),
        ({"html": "<p>", "filename": "..\\b.pdf"}, ("bad_filename", "filename")),
        ({"html": "<p>", "filename": "a\nb.pdf"}, ("bad_filename", "filename")),
        ({"html": "<p>", "filename": "x" * 201}, ("bad_filename", "filename")),
        ({"html": "<p>", "meta": []}, ("wrong_type", "meta")),
        ({"html": "<p>", "meta": {"a": {}}}, ("wrong_type", "meta")),
        ({"html": "<p>", "meta": {"a": "x" * 20_000}}, ("wrong_type", "meta")),
    ],
)
def test_a_wrong_row_says_what_is_wrong(given: dict[str, Any], problem: tuple[str, str | None]) -> None:
    found = [(code, column) for code, column, _ in error_codes(listed([{"id": "A"} | given]))]

    assert found == [problem]


@pytest.mark.parametrize("text", ["\0", "\ud800"])
@pytest.mark.parametrize("key", ["filename", "meta", "notes", "options"])
def test_text_that_no_database_keeps_is_refused_in_every_key(key: str, text: str) -> None:
    value = text if key in {"filename", "notes"} else {"headerTemplate": text}
    assert ("bad_text", key, (0,)) in error_codes(listed([row(**{key: value})]))
    assert error_codes(listed([row(**{f"key {text}": 1})]))[0][0] == "bad_text"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"notes": "call Lindqvist"}, ("unknown_column", "notes", (0,))),
        ({"version": 2}, ("unknown_column", "version", (0,))),
        ({"data": {"a": 1}}, ("unknown_column", "data", (0,))),
        ({"group": "North"}, None),
        ({"path": "also/here.html"}, ("unknown_column", "path", (0,))),
        ({"html": "<p>Dear {{ customer.name }},</p>"}, ("unresolved_placeholder", "html", (0,))),
        ({"html": "<p>{{#if paid}}paid{{/if}}</p>"}, ("unresolved_placeholder", "html", (0,))),
        ({"html": "<p>{{{raw}}}</p>"}, ("unresolved_placeholder", "html", (0,))),
        ({"html": "<p>{{ 7|add:7 }} {{}} {{ }} {{ a</p><style>a{b{c:d}}</style>"}, None),
    ],
)
def test_what_is_odd_but_usable_is_a_warning(
    given: dict[str, Any], problem: tuple[str, str, tuple[int]] | None
) -> None:
    assert warning_codes(listed([row(**given)])) == ([problem] if problem else [])


def test_a_key_twice_in_a_row_is_an_error_as_nobody_knows_which_is_meant() -> None:
    assert error_codes(uploaded('[{"id": "A", "html": "<p>1", "html": "<p>2"}]')) == [("duplicate_key", "html", (0,))]


def test_a_filename_twice_is_a_warning_that_names_both_positions() -> None:
    rows = [row(id="A", filename="Report.pdf"), row(id="B"), row(id="C", filename="report.PDF")]

    assert warning_codes(listed(rows)) == [("filename_collision", "filename", (0, 2))]


def test_meta_and_filename_are_kept_and_are_no_part_of_the_documents_identity() -> None:
    meta = {"customer": "Okoye", "year": 2026, "net": 10.5, "paid": True, "note": None}
    with listed([row(meta=meta, filename=" e\u0301.pdf "), row(id="B")]) as manifest:
        first, second = manifest.rows

    assert first.meta == meta
    assert first.filename == "é.pdf"
    assert (second.meta, second.filename) == ({}, "")
    assert first.input_sha256 == second.input_sha256


def test_numbers_in_meta_keep_their_digits() -> None:
    with uploaded('[{"id": "A", "html": "<p>", "meta": {"iban": 12345678901234567890123}}]') as manifest:
        assert manifest.rows[0].meta == {"iban": 12345678901234567890123}

    huge = "9" * 5000
    assert error_codes(uploaded(f'[{{"id": "A", "html": "<p>", "meta": {{"n": {huge}}}}}]')) == [
        ("wrong_type", "meta", (0,))
    ]


def test_options_and_kind_are_part_of_the_documents_identity() -> None:
    rows = [
        row(id="A"),
        row(id="B", options={}),
        row(id="C", options={"format": "A4"}),
        row(id="D", options={"format": "a4"}),
        {"id": "E", "markdown": PAGE},
        row(id="F", options={"landscape": True, "format": "A4"}),
        row(id="G", options={"format": "A4", "landscape": True}),
    ]
    with listed(rows) as manifest:
        a, b, c, d, e, f, g = [row.input_sha256 for row in manifest.rows]

    assert a == b
    assert c == d
    assert f == g
    assert len({a, c, e, f}) == 4


def test_the_original_row_is_kept_without_its_document_and_within_bounds() -> None:
    given = row(notes="x" * 50_000, small=[1, 2.5, "a"], big=["x"] * 5_000) | {f"k{n}": n for n in range(60)}
    with listed([given, {"id": 7, "html_content": "Lindqvist"}]) as manifest:
        first, second = manifest.rows

    assert first.original["id"] == "INV-1"
    assert first.original["html"] == f"(document, {len(PAGE):,} characters)"
    assert first.original["notes"] == "(text, 50,000 characters)"
    assert first.original["small"] == [1, 2.5, "a"]
    assert first.original["big"] == "(list, too long to keep here)"
    assert len(json.dumps(dict(first.original))) < 3_000
    assert "Lindqvist" not in json.dumps(dict(second.original))
    assert second.original["id"] == 7


def test_a_row_that_changes_under_our_feet_is_never_used() -> None:
    stream = io.BytesIO(json.dumps([row(html="<p>one</p>")]).encode())
    with read(from_upload(stream, "manifest.json")) as manifest:
        stream.seek(0)
        stream.write(json.dumps([row(html="<p>two</p>")]).encode())

        with pytest.raises(ManifestRefused) as refused:
            manifest.rows[0].text()
    assert refused.value.code is Code.CHANGED_WHILE_READING


def test_a_file_named_by_two_rows_is_one_document_for_each() -> None:
    with uploaded(
        zipped({"a.html": PAGE}, rows=[row(id="A", html="a.html"), row(id="B", html="./a.html")])
    ) as manifest:
        assert manifest.errors == ()
        assert [only.text() for only in manifest.rows] == [PAGE, PAGE]


def test_a_bad_file_named_by_two_rows_is_told_for_each() -> None:
    rows = [row(id="A", html="a.html"), row(id="B", html="a.html")]
    assert error_codes(uploaded(zipped({"a.html": b"%PDF-1.7"}, rows=rows))) == [("not_html", "html", (0, 1))]


def test_many_problems_stay_bounded_and_countable() -> None:
    rows = [{"id": f"A-{n}", "html": f"{n}.html", f"extra {n}": 1} for n in range(500)]
    with listed(rows, Limits(max_places=10)) as manifest:
        (problem,) = manifest.errors
        warnings = manifest.warnings

    assert (problem.count, len(problem.rows), len(problem.places)) == (500, 500, 10)
    assert problem.message.endswith("(And 499 more.)")
    assert sum(warning.count for warning in warnings) == 500
    assert len(warnings) <= 201


def test_a_row_of_thousands_of_keys_is_one_error() -> None:
    assert error_codes(listed([row(**{f"k{number}": 1 for number in range(5_000)})])) == [("wrong_type", None, (0,))]


def test_rows_with_errors_are_not_among_the_rows() -> None:
    with listed([row(id="A"), row(id="A"), row(id="B"), row(id="C", html="")]) as manifest:
        assert [only.business_id for only in manifest.rows] == ["B"]
        assert (manifest.row_count, manifest.invalid_count) == (4, 3)
        assert manifest.report()["summary"] == {"new": 1, "unchanged": 0, "changed": 0, "invalid": 3}
        assert codes(manifest.errors)
