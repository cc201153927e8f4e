"""The upload as a whole: what kind of file it is, its encoding, its JSON, its limits, its report."""

from __future__ import annotations

import codecs
import hashlib
import io
import json
import sys

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile, TemporaryUploadedFile, UploadedFile

from batches.manifests import Limits, from_upload, read
from tests.manifests.samples import PAGE, codes, listed, refusal, row, uploaded, zipped


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (b"", "empty_file", "The file is empty"),
        (b" \r\n\t\n", "empty_file", "The file is empty"),
        (codecs.BOM_UTF8, "empty_file", "The file is empty"),
        (codecs.BOM_UTF16_LE, "empty_file", "The file is empty"),
        (b"[]", "empty_file", "no rows"),
        (b"[ \n ]\n", "empty_file", "no rows"),
        (b"%PDF-1.7\n", "wrong_file_type", "a PDF"),
        (b"\x89PNG\r\n\x1a\n", "wrong_file_type", "a PNG image"),
        (b"\xff\xd8\xff\xe0", "wrong_file_type", "a JPEG image"),
        (b"7z\xbc\xaf\x27\x1c", "wrong_file_type", "a 7-Zip archive"),
        (b"Rar!\x1a\x07\x00", "wrong_file_type", "a RAR archive"),
        (b"\x1f\x8b\x08", "wrong_file_type", "a gzip archive"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "wrong_file_type", "an old Word or Excel document"),
        (b"<!doctype html><p>", "wrong_file_type", "a web page"),
        (b"id,html\n", "empty_file", "no rows"),
        (b"name,html\nA,a.html\n", "missing_column", '2 columns found: "name" and "html"'),
        (b"\xef\xbb\xbfsep=;\nname;html\n", "missing_column", '2 columns found: "name" and "html"'),
        (b",,\n , ,\n", "missing_column", "The table has no header"),
        (b"hello", "wrong_file_type", "is not a manifest"),
        (b'"text"', "wrong_file_type", "is not a manifest"),
        (b"42", "wrong_file_type", "is not a manifest"),
        (b"\x00\x00\x00", "wrong_file_type", "is not a manifest"),
        ('[{"id": "a",\n "html": "é"}]'.encode("cp1252"), "not_utf8", "byte 0xE9 at offset 23 (line 2)"),
        (b'[{"id": "\xed\xa0\x80"}]', "not_utf8", "byte 0xED at offset 9 (line 1)"),
        (b'[{"id": "a"}]\xc3', "not_utf8", "byte 0xC3 at offset 13"),
        (codecs.BOM_UTF16_LE + b"[\x00\x00\xd8", "not_utf8", "The manifest is not UTF-16"),
    ],
)
def test_a_file_that_is_no_manifest_is_told_what_it_is(content: bytes, code: str, words: str) -> None:
    refused = refusal(content, "upload.json")

    assert refused.code == code
    assert words in refused.message
    assert refused.fix.endswith(".")
    json.dumps(refused.report())


def test_what_is_accepted_is_said_to_whoever_brings_something_else() -> None:
    fix = refusal(b"%PDF-1.7\n").fix
    assert all(word in fix for word in ("JSON", "CSV", ".xlsx", "ZIP"))


def test_utf_16_is_read_without_its_mark_too() -> None:
    with uploaded('[{"id": "é", "html": "<p>"}]'.encode("utf-16-le")) as manifest:
        assert [row.business_id for row in manifest.rows] == ["é"]
        assert manifest.encoding == "utf-16-le"


@pytest.mark.parametrize(
    ("content", "line", "character", "words"),
    [
        ('[\n {"id": "A", "html": "<p>"},\n {"id": "B", "html', 3, 19, "ends inside the row that starts on line 3"),
        ('[{"id": "A", "html": "<p>"}', 1, 28, "ends before its list is closed"),
        ('[{"id": "A", "html": "<p>"},', 1, 29, "ends before its list is closed"),
        ("[", 1, 2, "ends before its list is closed"),
        ('[{"id": "A"},\n]', 2, 1, "comma before the closing bracket"),
        ("[,]", 1, 2, "row is missing"),
        ('[{"id": "A"},, {}]', 1, 14, "row is missing"),
        ('[{"id": "A"}\n {"id": "B"}]', 2, 2, "comma is missing"),
        ('[{"id": "A"}]\n[{"id": "B"}]', 2, 1, "more text after the end"),
        ('[{"id": "A"}]}', 1, 14, "more text after the end"),
        # Since 3.13 Python points at the comma too many, before at the bracket behind it.
        ('[{"id": "é"}, {"id": "B",}]', 1, 25 if sys.version_info >= (3, 13) else 26, "not valid JSON"),
        ('[{"id": "A"},\n {"id": "B",\n  "html" "<p>"}]', 3, 10, "not valid JSON"),
        ('[{"id": "A"], {"id": "B"}]', 1, 12, "not valid JSON"),
        ("[{'id': 'A'}]", 1, 3, "not valid JSON"),
        ('[{"id": "A\tB"}]', 1, 11, "not valid JSON"),
        ("\n\n[nul]", 3, 2, "not valid JSON"),
        ("[[" * 40, 1, 65, "nested more than 64 deep"),
    ],
)
def test_broken_json_is_refused_with_line_and_character(content: str, line: int, character: int, words: str) -> None:
    refused = refusal(content)

    assert refused.code in {"bad_json", "too_deep"}
    assert words in refused.message
    assert (refused.line, refused.character) == (line, character)
    assert f"ine {line}, character {character}" in refused.message


def test_bad_lines_are_told_one_by_one_and_the_others_are_checked() -> None:
    lines = [
        '{"id": "A", "html": "<p>"}',
        '{"id": "B"',
        "",
        '{"id": "C", "html": ""}',
        "nonsense",
        '{"id": "D", "html": "<p>"}',
    ]
    with uploaded("\n".join(lines)) as manifest:
        assert codes(manifest.errors) == [("bad_json_line", None, (1, 3)), ("empty_html", "html", (2,))]
        assert [place.line for place in manifest.errors[0].places] == [2, 5]
        assert [only.business_id for only in manifest.rows] == ["A", "D"]
        assert (manifest.format, manifest.row_count) == ("jsonl", 5)


def test_blank_lines_count_as_lines_and_never_as_rows() -> None:
    content = "\n \n" + '{"id": "A", "html": "<p>"}' + "\n" * 100_000 + '{"id": "B", "html": "<p>"}\n\n'
    with uploaded(content) as manifest:
        assert [(only.position, only.line) for only in manifest.rows] == [(0, 3), (1, 100_003)]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{\n "id": "A",\n "html": "<p>"\n}', "one object over several lines"),
        ('{"rows": [\n {"id": "A"}\n]}', "one object over several lines"),
        ('{"documents": [{"id": "A", "html": "<p>"}]}', "one object with the rows inside it"),
    ],
)
def test_an_object_instead_of_a_list_is_refused_once(content: str, words: str) -> None:
    refused = refusal(content)

    assert refused.code == "wrong_file_type"
    assert words in refused.message


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_a_manifest_is_read_in_any_unicode_encoding_that_says_so(encoding: str, form: str) -> None:
    rows = [{"id": f"счёт-{number}", "html": "<p>請求書 😀</p>"} for number in (1, 2)]
    text = (
        json.dumps(rows, ensure_ascii=False)
        if form == "json"
        else "\n".join(json.dumps(only, ensure_ascii=False) for only in rows)
    )
    raw = text.encode(encoding)
    with uploaded(raw) as manifest:
        assert manifest.errors == ()
        assert (manifest.encoding, manifest.format) == (encoding, form)
        assert manifest.sha256 == manifest.upload_sha256 == hashlib.sha256(raw).hexdigest()
        assert [only.business_id for only in manifest.rows] == ["счёт-1", "счёт-2"]
        assert [only.text() for only in manifest.rows] == ["<p>請求書 😀</p>"] * 2


@pytest.mark.parametrize(
    "name", ["manifest.json", "manifest.jsonl", "manifest.csv", "manifest.zip", "", "../x", "é" * 300]
)
def test_the_name_of_an_upload_decides_nothing(name: str) -> None:
    with uploaded(json.dumps([row()]), name) as manifest:
        assert manifest.ok
        assert manifest.format == "json"
        assert 0 < len(manifest.filename) <= 255
        assert "/" not in manifest.filename
    with uploaded(zipped({"a.html": PAGE}, rows=[row(html="a.html")]), name) as manifest:
        assert manifest.ok
        assert manifest.container == "zip"


@pytest.mark.parametrize(
    ("limits", "content", "code", "words"),
    [
        (Limits(max_rows=2), json.dumps([row(id=str(n)) for n in range(3)]).encode(), "too_many_rows", "2 rows"),
        (Limits(max_rows=2), b'{"id": 1}\n{"id": 2}\n{"id": 3}', "too_many_rows", "2 rows"),
        (Limits(max_manifest_bytes=20), json.dumps([row()]).encode(), "upload_too_large", "20 bytes are allowed"),
        (Limits(max_upload_bytes=20), json.dumps([row()]).encode(), "upload_too_large", "20 bytes are allowed"),
        (Limits(max_manifest_bytes=20), zipped({}, rows=[row()]), "upload_too_large", "20 bytes are allowed"),
    ],
)
def test_limits_refuse_with_the_number_that_holds(limits: Limits, content: bytes, code: str, words: str) -> None:
    refused = refusal(content, limits=limits)

    assert refused.code == code
    assert words in refused.message


def test_a_row_too_large_to_be_looked_at_is_an_error_of_that_row() -> None:
    limits = Limits(max_row_bytes=200)
    with listed([row(id="A", html="<p>" + "x" * 500), row(id="B")], limits) as manifest:
        assert codes(manifest.errors) == [("file_too_large", None, (0,))]
        assert [only.business_id for only in manifest.rows] == ["B"]


def test_the_caller_keeps_its_stream_and_may_read_it_again() -> None:
    stream = io.BytesIO(json.dumps([row()]).encode())
    with read(from_upload(stream, "manifest.json")) as manifest:
        assert manifest.ok
    assert not stream.closed
    with read(from_upload(stream, "manifest.json")) as again:
        assert again.ok


@pytest.mark.parametrize("kind", [SimpleUploadedFile, TemporaryUploadedFile])
def test_what_a_form_hands_over_is_read(kind: type[UploadedFile]) -> None:
    for content in (json.dumps([row()]).encode(), zipped({"a.html": PAGE}, rows=[row(html="a.html")])):
        if kind is SimpleUploadedFile:
            upload: UploadedFile = SimpleUploadedFile("october.zip", content)
        else:
            upload = TemporaryUploadedFile("october.zip", "application/zip", len(content), None)
            upload.write(content)
        with upload, read(from_upload(upload, upload.name or "")) as manifest:
            assert manifest.ok
            assert manifest.rows[0].text() == PAGE


def test_the_report_has_the_agreed_shape() -> None:
    with listed([row(id="A"), row(id="A"), row(id="B", html="{{ name }}.html"), row(id="C", x=1)]) as manifest:
        report = json.loads(json.dumps(manifest.report()))

    assert report["rows"] == 4
    assert report["encoding"] == "utf-8"
    assert report["summary"] == {"new": 1, "unchanged": 0, "changed": 0, "invalid": 3}
    assert report["errors"][0] == {
        "code": "duplicate_id",
        "column": "id",
        "rows": [0, 1],
        "count": 1,
        "message": 'The id "A" stands in rows 1 and 2.',
        "fix": "Give each document an id of its own.",
        "places": [
            {
                "row": 1,
                "line": 1,
                "character": report["errors"][0]["places"][0]["character"],
                "id": "A",
                "message": 'The id "A" stands in rows 1 and 2.',
                "fix": "Give each document an id of its own.",
            }
        ],
    }
    assert [problem["code"] for problem in report["errors"]] == ["duplicate_id", "missing_file"]
    assert [problem["code"] for problem in report["warnings"]] == ["unknown_column"]


def test_whoever_asks_is_told_how_far_the_reading_is_and_may_end_it() -> None:
    lines = b"".join(b'{"id": "A-%d", "html": "<p>x</p>"}\n' % n for n in range(250))
    told: list[int] = []
    with read(from_upload(io.BytesIO(lines), "a.jsonl"), progress=told.append):
        assert told == list(range(250)), "each row: filling its template may take a second"

    def enough(row_count: int) -> None:
        if row_count:
            raise InterruptedError(row_count)

    with pytest.raises(InterruptedError, match="1"):
        read(from_upload(io.BytesIO(lines), "a.jsonl"), progress=enough)
