"""Real reports turned into checks: each test names the rows of the case log it holds."""

from __future__ import annotations

import base64
import json
import os

import pytest

from batches.manifests import (
    Action,
    Code,
    ExistingDocument,
    ExistingVersion,
    Limits,
    ManifestRefused,
    OnConflict,
    fingerprint,
    plan,
)
from tests.manifests.samples import CASES, case, codes, error_codes, listed, refusal, uploaded, workbook, zipped

EXACT_IDS = ("0010", "10", "0100", "00042", "+7", "1e3", "1000", "0x1F", "TRUE", "NULL", "None")


_CASE_89 = [
    "A+B",
    "A B",
    "A%20B",
    "1&2=3",
    "4#5",
    "6?7",
    "%41",
    "A",
    "ü/é",
    "lead",
    "trail",
    "a//b",
    "x.pdf",
    "x.pdf.pdf",
]


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        pytest.param("001-bom.json", ["INV-101", "INV-102"], id="1 JSON with a byte-order mark"),
        pytest.param("001-bom.jsonl", ["INV-101", "INV-102"], id="1 JSONL with a byte-order mark"),
        pytest.param("016-nfd-names.zip", ["R-1", "R-2"], id="16 decomposed file names"),
        pytest.param("019-macos.zip", ["M-1"], id="19 what Finder adds"),
        pytest.param("020-nested-folder.zip", ["N-1"], id="20 the folder was zipped"),
        pytest.param("022-cp437-names.zip", ["U-1", "U-2"], id="22 names of old tools"),
        pytest.param("028-line-separators.jsonl", ["L-1", "L-2", "L-3"], id="28 line separators inside strings"),
        pytest.param(
            "053-ids-for-headers.json",
            ["🧾-42", "счёт-7", "vera.lund@example.invalid", "发票-9"],
            id="53 ids outside ASCII",
        ),
        pytest.param(
            "125-markup-ids.json",
            ["<img src=x onerror=alert(1)>", '"><svg onload=alert(2)>', "{{ 7|add:7 }}", "javascript:alert(4)"],
            id="125 ids that are markup",
        ),
    ],
)
def test_a_case_is_read_with_exactly_these_ids_and_not_a_word(name: str, ids: list[str]) -> None:
    with case(name) as manifest:
        assert [row.business_id for row in manifest.rows] == ids
        assert manifest.errors == ()
        assert manifest.warnings == ()
        texts = [row.text() for row in manifest.rows]
        assert len(set(texts)) == len(texts)
        assert all(row.text().lstrip().startswith("<") for row in manifest.rows)
        assert "\ufeff" not in json.dumps(manifest.report(), ensure_ascii=False) + "".join(texts)


def test_case_89_ids_that_mean_something_in_an_address_stay_as_they_are_but_for_their_ends() -> None:
    with case("089-url-hostile-ids.json") as manifest:
        assert manifest.errors == ()
        assert [row.business_id for row in manifest.rows] == _CASE_89
        (problem,) = manifest.warnings
        assert (problem.code, [_CASE_89[position] for position in problem.rows]) == (Code.BAD_ID, ["lead", "trail"])


def test_case_136_a_page_that_waits_for_a_private_address_is_told_before_it_never_ends() -> None:
    with case("136-never-ends.json") as manifest:
        assert manifest.errors == ()
        assert [row.business_id for row in manifest.rows] == ["H-1", "H-2", "H-3", "H-4", "H-5"]
        assert codes(manifest.warnings) == [("remote_asset", "html", (1,))]


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        pytest.param("005-workbook.csv", "empty_file", "This is an Excel workbook without a sheet", id="5 a workbook"),
        pytest.param("007-unclosed-quote.csv", "bad_csv_row", "Line 3: a quote opens here", id="7 an open quote"),
        pytest.param("023-duplicate-entries.zip", "archive_unsafe", '"d1.html" and "manifest.json"', id="23"),
        pytest.param("025-encrypted.zip", "archive_encrypted", "The ZIP is password-protected", id="25"),
        pytest.param("026-deep.json", "too_deep", "Line 1, character 65", id="26 brackets without end"),
        pytest.param("128-zip-slip.zip", "archive_unsafe", "outside-4.html", id="128 names that lead out"),
        pytest.param("130-size-lies.zip", "archive_damaged", '"l1.html"', id="130 forged sizes"),
    ],
)
def test_a_case_is_refused_as_a_whole_with_a_sentence(name: str, code: str, words: str) -> None:
    refused = refusal((CASES / name).read_bytes(), name)

    assert refused.code == code
    assert words in refused.message
    assert refused.fix


@pytest.mark.parametrize(
    ("name", "delimiter", "lines"),
    [
        pytest.param("001-bom.csv", ",", {"INV-101": 2, "INV-102": 3}, id="1 CSV with a byte-order mark"),
        pytest.param("002-semicolon.csv", ";", {"RE-1": 3, "RE-2": 4}, id="2 sep= and decimal commas"),
        pytest.param("004-utf16le-tab.csv", "\t", {"INV-1": 2, "INV-2": 3}, id="4 Excel's Unicode text"),
        pytest.param("004-utf16le-nobom.csv", "\t", {"INV-1": 2, "INV-2": 3}, id="4 the same without its mark"),
        pytest.param("008-trailing-blank-rows.csv", ",", {"INV-1": 2, "INV-2": 3}, id="8 rows that were cleared"),
        pytest.param("029-big-cell.csv", ",", {"BIG-1": 2, "BIG-2": 3}, id="29 a cell beyond csv's limit"),
        pytest.param(
            "010-leading-zeros.csv",
            ",",
            {each: line for line, each in enumerate(EXACT_IDS, 2)},
            id="10 ids are the exact text of the cell",
        ),
        pytest.param(
            "124-formula-ids.csv",
            ",",
            {
                '=HYPERLINK("http://example.invalid/?x="&A1,"open")': 2,
                "@SUM(1+1)": 3,
                "+44-555-0102": 4,
                "-5": 5,
                "=1+1": 6,
                "'=quoted": 7,
            },
            id="124 ids that a spreadsheet would run",
        ),
    ],
)
def test_a_case_that_is_a_table_is_read_with_exactly_these_ids_and_lines(
    name: str, delimiter: str, lines: dict[str, int]
) -> None:
    with case(name) as manifest:
        assert {row.business_id: row.line for row in manifest.rows} == lines
        assert manifest.row_count == len(lines)
        assert not [problem for problem in manifest.errors if problem.code is not Code.ID_LOST_ZEROS_SUSPECTED]
        assert manifest.delimiter == delimiter
        assert all(row.text().startswith("<p") for row in manifest.rows)
        assert "\ufeff" not in json.dumps(manifest.report(), ensure_ascii=False)


def test_case_2_decimal_commas_and_semicolons_in_the_text_outvote_nothing() -> None:
    with case("002-semicolon.csv") as manifest:
        assert manifest.columns == ("id", "amount", "html")
        assert manifest.rows[0].text() == '<p style="color:red;margin:0">1.234,50 &euro;, netto</p>'
        assert [row.original["amount"] for row in manifest.rows] == ["1.234,50", "0,99"]


def test_case_4_letters_outside_latin_1_stay_whole() -> None:
    with case("004-utf16le-tab.csv") as manifest:
        assert [row.text() for row in manifest.rows] == ["<p>Zoë</p>", "<p>Łukasz</p>"]


def test_case_29_the_limit_of_a_document_counts_and_names_the_row() -> None:
    with uploaded((CASES / "029-big-cell.csv").read_bytes(), limits=Limits(max_document_bytes=100_000)) as manifest:
        assert codes(manifest.errors) == [("file_too_large", "html", (0,))]
        assert manifest.errors[0].places[0].line == 2


def test_case_38_cells_are_text_and_nothing_more() -> None:
    with case("038-hostile-rows.csv") as manifest:
        assert codes(manifest.errors) == [("missing_field", "html", (0, 1, 2, 3))]
    raw = (CASES / "038-hostile-rows.csv").read_bytes().replace(b"id,name,note", b"id,meta.name,html_content")
    with uploaded(raw) as manifest:
        assert [row.meta["name"] for row in manifest.rows][:2] == ["O'Neill & Sons <Ltd>", "{{ 7|add:7 }}"]
        assert manifest.rows[0].text() == '5 < 6 & "fine"'


@pytest.mark.parametrize("name", ["upload.csv", "upload.xlsx", "upload.zip", "upload.json", "upload"])
def test_case_5_a_workbook_is_known_by_its_content_whatever_its_name(name: str) -> None:
    assert "Excel workbook" in refusal((CASES / "005-workbook.csv").read_bytes(), name).message
    with uploaded(workbook([["id", "html"], ["INV-1", "<p>one</p>"]]), name) as manifest:
        assert [(row.business_id, row.line, row.text()) for row in manifest.rows] == [("INV-1", 2, "<p>one</p>")]
        assert manifest.format == "xlsx"


def test_case_11_only_text_and_whole_numbers_are_ids() -> None:
    with case("011-numeric-ids.json") as manifest:
        assert [row.business_id for row in manifest.rows] == ["9007199254740993"]
        assert codes(manifest.errors) == [
            ("duplicate_id", "id", (0, 1)),
            ("bad_id", "id", (2, 3, 5, 7)),
            ("missing_id", "id", (6, 8, 9)),
            ("wrong_type", "html", (10,)),
            ("missing_field", "html", (11,)),
            ("wrong_type", None, (12,)),
        ]
        places = {place.position: place.line for problem in manifest.errors for place in problem.places}
        assert places[2] == 4
        assert places[12] == 14


def test_case_13_repeated_ids_name_both_positions_and_invisible_differences_do_not_hide_them() -> None:
    with case("013-duplicate-ids.json") as manifest:
        (problem,) = manifest.errors
        assert problem.code is Code.DUPLICATE_ID
        assert problem.rows == (0, 1, 2, 3, 4, 5, 6, 7)
        assert [place.position for place in problem.places] == [1, 3, 5, 6, 7]
        assert "rows 5 and 7" in problem.places[3].message
        assert '"INV-\\u200b3" (row 8)' in problem.places[4].message


def test_case_14_slashes_stay_in_ids_and_dots_alone_are_refused() -> None:
    with case("014-ids-with-slashes.json") as manifest:
        assert codes(manifest.errors) == [("bad_id", "id", (8, 9))]
        assert [row.business_id for row in manifest.rows] == [
            "2024/001",
            "2024_001",
            "2024\\001",
            "2024-001",
            "2024:001",
            "/2024/001",
            "2024/001/",
            "../2024/001",
            "a//b",
        ]


def test_case_17_long_ids_are_refused_with_the_limit() -> None:
    with case("017-long-ids.json") as manifest:
        assert codes(manifest.errors) == [("bad_id", "id", (2, 3, 5, 6))]
        assert all("200 are allowed" in place.message for place in manifest.errors[0].places)
        assert [len(row.business_id) for row in manifest.rows] == [100, 101, 130]


def test_case_16_two_forms_of_one_name_are_refused() -> None:
    both = zipped({"r\u00e9sum\u00e9.html": "<p>1</p>", "re\u0301sume\u0301.html": "<p>2</p>"}, rows=[])

    assert "more than once" in refusal(both).message


def test_case_26_one_line_of_brackets_does_not_spoil_the_other_lines() -> None:
    deep = (CASES / "026-deep.json").read_text().strip()
    with uploaded('{"id": "A", "html": "<p>"}\n' + deep + '\n{"id": "B", "html": "<p>"}\n') as manifest:
        assert codes(manifest.errors) == [("bad_json_line", None, (1,))]
        assert manifest.errors[0].places[0].line == 2
        assert [row.business_id for row in manifest.rows] == ["A", "B"]


def test_case_28_lines_are_counted_as_an_editor_counts_them() -> None:
    raw = (CASES / "028-line-separators.jsonl").read_bytes()
    with uploaded(raw) as manifest:
        assert [row.line for row in manifest.rows] == [1, 3, 4]
        assert manifest.rows[0].text() == "<p>first\u2028second</p>"
        assert manifest.rows[1].text() == "<p>next\x85line, form\ffeed</p>"

    with uploaded(raw.replace(b'"L-3", ', b'"L-3" ')) as manifest:
        assert manifest.errors[0].places[0].line == 4
        assert manifest.errors[0].places[0].message.startswith("Line 4, ")


@pytest.mark.parametrize(
    ("name", "problems"),
    [
        pytest.param("031-nul.json", [("bad_text", "html", (0,)), ("bad_id", "id", (1,))], id="31 NUL"),
        pytest.param("032-lone-surrogate.json", [("bad_text", "html", (0,)), ("bad_id", "id", (2,))], id="32"),
    ],
)
def test_characters_that_no_database_keeps_are_refused_by_position(
    name: str, problems: list[tuple[str, str, tuple[int, ...]]]
) -> None:
    with case(name) as manifest:
        assert codes(manifest.errors) == problems
        json.dumps(manifest.report(), ensure_ascii=False).encode()


def test_case_32_a_whole_emoji_is_fine() -> None:
    with case("032-lone-surrogate.json") as manifest:
        assert [row.text() for row in manifest.rows] == ["<p>good emoji 😀</p>"]


def test_case_34_documents_over_the_limit_are_refused_with_id_and_size() -> None:
    def page(megabytes: int) -> str:
        picture = base64.b64encode(os.urandom(int(megabytes * 1_000_000 * 3 / 4))).decode()
        return f'<!doctype html><meta charset="utf-8"><img src="data:image/png;base64,{picture}">'

    with listed({"id": f"MB-{size}", "html": page(size)} for size in (1, 4, 8, 30)) as manifest:
        (problem,) = manifest.errors
        assert problem.code is Code.FILE_TOO_LARGE
        assert problem.rows == (2, 3)
        assert [place.message for place in problem.places] == [
            'The html of "MB-8" is 8.0 MB large; 5.0 MB are allowed.',
            'The html of "MB-30" is 30.0 MB large; 5.0 MB are allowed.',
        ]


def test_case_52_key_order_and_escapes_never_matter_and_characters_always_do() -> None:
    digests = {}
    for form in ("lf", "crlf", "nfd", "key-order"):
        with case(f"052-{form}.json") as manifest:
            digests[form] = manifest.rows[0].input_sha256

    assert digests["key-order"] == digests["lf"]
    assert len({digests["lf"], digests["crlf"], digests["nfd"]}) == 3
    assert digests["lf"] == fingerprint("html", "<p>café</p>\n<p>end</p>\n", {})


def test_case_127_a_path_needs_its_file_beside_it() -> None:
    with case("127-manifest-paths.json") as manifest:
        (problem,) = manifest.errors
        assert problem.rows == (0, 1)
        assert all("this needs a ZIP with the file" in place.message for place in problem.places)
        assert manifest.rows == ()


def test_case_127_only_entries_of_the_same_zip_are_read() -> None:
    with case("127-manifest-paths.zip") as manifest:
        assert codes(manifest.errors) == [
            ("archive_unsafe", None, ()),
            ("archive_unsafe", "html", (0, 1, 2, 3, 4)),
        ]
        assert manifest.errors[0].files == ("link.html",)
        assert [(row.business_id, row.path) for row in manifest.rows] == [("P-6", "ok.html"), ("P-7", "ok.html")]


def test_five_kinds_of_errors_come_all_at_once() -> None:
    rows = [
        {"html": "<p>no id</p>"},
        {"id": "A", "html": "<p>"},
        {"id": "A", "html": "<p>"},
        {"id": "B", "html": ""},
        {"id": "C", "html": "<p>", "options": {"scale": 9}},
        {"id": "D", "html": "c.html"},
    ]

    assert error_codes(listed(rows)) == [
        ("missing_id", "id", (0,)),
        ("duplicate_id", "id", (1, 2)),
        ("empty_html", "html", (3,)),
        ("bad_option", "options.scale", (4,)),
        ("missing_file", "html", (5,)),
    ]


def test_the_same_file_twice_sends_nothing_new() -> None:
    with case("001-bom.json") as first, case("001-bom.jsonl") as second:
        existing = {
            row.business_id: ExistingDocument(row.business_id, 1, (ExistingVersion(1, row.input_sha256, "saved"),))
            for row in first.rows
        }
        planned = plan(second, existing, OnConflict.REFUSE)

    assert {row.action for row in planned.rows} == {Action.UNCHANGED}
    assert planned.render_count == 0


def test_a_refusal_and_a_report_have_the_same_shape() -> None:
    with listed([{"id": "A", "html": "<p>"}]) as manifest:
        report = manifest.report()
    with pytest.raises(ManifestRefused) as refused:
        case("026-deep.json")

    assert set(refused.value.report()) == set(report)
    assert set(report["summary"]) == set(refused.value.report()["summary"])
