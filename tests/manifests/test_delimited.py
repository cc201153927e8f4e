"""Delimited text: the header decides the dialect, no row swallows another, and text stays text."""

from __future__ import annotations

import csv
import io
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batches import results
from batches.cells import FAILED_COLUMNS
from batches.manifests import Choices, Code, Limits, from_text, read
from tests.manifests.samples import codes, refusal, uploaded, zipped
from tests.manifests.test_fuzz import examples


def table(*rows: str, header: str = "id,html") -> str:
    return "\n".join((header, *rows)) + "\n"


@pytest.mark.parametrize(
    ("text", "delimiter", "columns"),
    [
        ("id,html\nA,<p>\n", ",", ("id", "html")),
        ("id;html\nA;<p>\n", ";", ("id", "html")),
        ("id\thtml\nA\t<p>\n", "\t", ("id", "html")),
        ("id|html\nA|<p>\n", "|", ("id", "html")),
        ("sep=;\nid;html\nA;<p>\n", ";", ("id", "html")),
        ("\ufeffsep=|\r\nid|html\r\nA|<p>\r\n", "|", ("id", "html")),
        ('"sep=,"\nid,html\nA,<p>\n', ",", ("id", "html")),
        # the rows never vote: what stands in them may be full of another mark
        ("id;html\nA;<p>1,2,3,4,5,6,7\n", ";", ("id", "html")),
        ('id;"name, first";html\nA;x;<p>\n', ";", ("id", "name, first", "html")),
        ("id;name, first;html\nA;x;<p>\n", ";", ("id", "name, first", "html")),
        ('id,"a;b;c;d",html\nA,x,<p>\n', ",", ("id", "a;b;c;d", "html")),
        ('\n\n"id","html"\n"A","<p>"\n', ",", ("id", "html")),
        ('id,"two\nlines",html\nA,x,<p>\n', ",", ("id", "two lines", "html")),
        (" id , html \nA,<p>\n", ",", ("id", "html")),
        ("id,html,,\nA,<p>,,\n", ",", ("id", "html")),
    ],
)
def test_the_header_alone_shows_the_dialect(text: str, delimiter: str, columns: tuple[str, ...]) -> None:
    with uploaded(text) as manifest:
        assert manifest.format == "csv"
        assert manifest.delimiter == delimiter
        assert manifest.columns == columns
        assert [row.business_id for row in manifest.rows] == ["A"]
        assert manifest.report()["delimiter"] == delimiter
        assert manifest.report()["columns"] == list(columns)


def test_a_chosen_delimiter_counts_more_than_the_header() -> None:
    with uploaded(
        "id;x,html\nA;1,<p>\n", choices=Choices(delimiter=",", mapping={"id;x": "id", "html": "html"})
    ) as read_:
        assert [row.business_id for row in read_.rows] == ["A;1"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('id,html\nA,"<p>\none\n"\nB,<p>\n', {"A": 2, "B": 5}),
        ("id,html\r\nA,<p>\r\n\r\nB,<p>", {"A": 2, "B": 4}),
        ("id,html\rA,<p>\rB,<p>\r", {"A": 2, "B": 3}),
        ("\n\nid,html\nA,<p>\n", {"A": 4}),
        ("id,html\nA,<p>\u2028\x85\x0b\x0c\nB,<p>\n", {"A": 2, "B": 3}),
        ("id,html\n,\n \u00a0,\t\nA,<p>\n,,,\n", {"A": 4}),
    ],
)
def test_lines_are_those_of_the_file(text: str, lines: dict[str, int]) -> None:
    with uploaded(text) as manifest:
        assert manifest.errors == ()
        assert {row.business_id: row.line for row in manifest.rows} == lines


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('id,html\nA,"<p>one\nB,<p>two\n', 2, "never closes"),
        ('id,html\nA,<p>\nB,"<p>15" screen</p>"\n', 3, "in the middle of a cell"),
        (
            'id,html\nINV-1,"<p>one\nINV-2,<p>two\nINV-3,<p>three"\n',
            2,
            "line 3 inside of it looks like a row of its own",
        ),
        ('id,a,html\n1001,x,"<p>one\n1002,y,<p>two"\n', 2, "line 3 inside of it"),
        ('id,html\n"A\n', 2, "never closes"),
        ('"id,html\nA,<p>\n', 1, "never closes"),
    ],
)
def test_a_stray_quote_is_refused_where_it_opens_and_swallows_no_row(text: str, line: int, words: str) -> None:
    refused = refusal(text)

    assert refused.code is Code.BAD_CSV_ROW
    assert refused.line == line
    assert words in refused.message
    assert refused.fix.endswith(".")


@pytest.mark.parametrize(
    "cell",
    [
        "Hello,\nworld, you",
        "<p>Dear A,\n2 kg, please</p>",
        'He said "INV",\nand left',
        "<table>\n<tr><td>INV-2</td></tr>\n</table>",
    ],
)
def test_a_text_of_several_lines_is_no_swallowed_row(cell: str) -> None:
    buffer = io.StringIO(newline="")
    csv.writer(buffer).writerows([["id", "html_content"], ["INV-1", cell], ["INV-2", "<p>"]])
    with uploaded(buffer.getvalue()) as manifest:
        assert manifest.errors == ()
        assert manifest.rows[0].text() == cell


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("A", "Line 3 has 1 cell; the header names 2 columns."),
        ("A,<p>,more", "Line 3 has 3 cells; the header names 2 columns."),
        ("A,<p>,,more", "Line 3 has 4 cells; the header names 2 columns."),
        ("id,html", "Line 3 repeats the header."),
        (" id ,html", "Line 3 repeats the header."),
        ('A, "<p>"', "Line 3: a blank stands before the opening quote of a cell."),
    ],
)
def test_a_row_whose_cells_cannot_be_told_apart_is_an_error_with_its_line(row: str, words: str) -> None:
    with uploaded(table("X,<p>", row, "Y,<p>")) as manifest:
        assert codes(manifest.errors) == [("bad_csv_row", None, (1,))]
        (place,) = manifest.errors[0].places
        assert place.message == words
        assert place.line == 3
        assert [(row.business_id, row.position) for row in manifest.rows] == [("X", 0), ("Y", 2)]


def test_a_file_that_was_cut_short_says_so() -> None:
    with uploaded("id,customer,html\nA,x,<p>\nB,y") as manifest:
        assert "The file ends in it." in manifest.errors[0].message
        assert "cut short" in manifest.errors[0].fix


def test_empty_cells_beyond_the_header_are_no_error() -> None:
    with uploaded("id,html\nA,<p>,,\nB,<p>, \n") as manifest:
        assert manifest.errors == ()
        assert manifest.row_count == 2


def test_a_cell_under_no_name_is_an_error() -> None:
    with uploaded("id,,html\nA,,<p>\nB,x,<p>\n") as manifest:
        assert codes(manifest.errors) == [("bad_csv_row", None, (1,))]
        assert "without a name" in manifest.errors[0].message


def test_a_row_too_large_is_refused_alone_and_its_end_is_found() -> None:
    limits = Limits(max_row_bytes=2_000)
    with uploaded(table('A,"' + "x\n" * 2_000 + '"', "B,<p>"), limits=limits) as manifest:
        assert codes(manifest.errors) == [("file_too_large", None, (0,))]
        assert [(row.business_id, row.line) for row in manifest.rows] == [("B", 2_003)]


def test_a_line_of_17_mb_is_refused_alone() -> None:
    with uploaded(table("A,<p>" + "x" * 17_000_000, "B,<p>")) as manifest:
        assert codes(manifest.errors) == [("file_too_large", None, (0,))]
        assert [row.business_id for row in manifest.rows] == ["B"]


@pytest.mark.parametrize("row", ["," * 300_000, '"x",' * 100_000, "x" * 400_000, '"' + "x\n" * 200_000 + '"'])
def test_a_row_of_any_shape_is_an_error_and_takes_little_memory(row: str) -> None:
    raw = f"id,html\nA,x,{row}\nB,<p>\n".encode()
    tracemalloc.start()
    try:
        with uploaded(raw, limits=Limits(max_row_bytes=350_000)) as manifest:
            assert manifest.errors[0].rows == (0,)
            assert [row.business_id for row in manifest.rows] == ["B"]
        assert tracemalloc.get_traced_memory()[1] < 12_000_000
    finally:
        tracemalloc.stop()


def test_rows_beyond_the_limit_are_refused() -> None:
    refused = refusal(table(*(f"A{n},<p>" for n in range(4))), limits=Limits(max_rows=3))
    assert refused.code is Code.TOO_MANY_ROWS
    assert refused.line == 5


@pytest.mark.parametrize(
    ("header", "code", "words"),
    [
        ("id,html,html", Code.DUPLICATE_KEY, '"html" twice (columns 2 and 3)'),
        ("id,amount,html, amount ", Code.DUPLICATE_KEY, '"amount" twice (columns 2 and 4)'),
        ("name,html", Code.MISSING_COLUMN, '2 columns found: "name" and "html"'),
        ("id,ht\x01ml", Code.BAD_TEXT, "control character"),
        ("id," + ",".join(f"c{n}" for n in range(300)), Code.BAD_CSV_ROW, "301 columns"),
        ("id," + "x" * 300, Code.BAD_CSV_ROW, "300 characters"),
    ],
)
def test_a_header_that_cannot_be_read_by_is_refused(header: str, code: Code, words: str) -> None:
    refused = refusal(table("A" + "," * header.count(","), header=header))

    assert refused.code is code
    assert words in refused.message


def test_one_column_without_a_known_name_is_no_table() -> None:
    refused = refusal("Dear all\nplease find attached\n")
    assert refused.code is Code.WRONG_FILE_TYPE
    assert 'one column found, "Dear all"' in refused.message


def test_what_spreadsheet_programs_put_in_place_of_values_is_an_error_of_its_cell() -> None:
    text = table("#REF!,1,<p>", "B,#N/A,<p>", "C,########,<p>", "D,#1,<p>", header="id,meta.amount,html")
    with uploaded(text) as manifest:
        assert codes(manifest.errors) == [
            ("spreadsheet_damage", "id", (0,)),
            ("spreadsheet_damage", "meta.amount", (1, 2)),
        ]
        assert [row.business_id for row in manifest.rows] == ["D"]


def test_days_that_became_numbers_and_columns_that_say_nothing_are_told() -> None:
    text = table("A,45931,,<p>", "B,2026-10-02,,<p>", header="id,meta.Due date,meta.note,html")
    with uploaded(text) as manifest:
        assert manifest.errors == ()
        assert codes(manifest.warnings) == [
            ("spreadsheet_damage", None, ()),
            ("spreadsheet_damage", "meta.Due date", (0,)),
        ]
        assert manifest.warnings[0].files == ("meta.note",)


def test_a_pasted_table_is_read() -> None:
    with read(from_text("id\thtml\nA\t<p>é</p>\n")) as manifest:
        assert manifest.rows[0].text() == "<p>é</p>"
        assert manifest.delimiter == "\t"
    assert refusal("\ud800".encode("utf-8", "surrogatepass")).code is Code.NOT_UTF8


def test_a_table_stands_in_a_zip_with_its_files() -> None:
    with uploaded(zipped({"manifest.csv": "id;path\nA;a.html\n", "a.html": "<p>a</p>", "b.png": "x"})) as manifest:
        assert manifest.container == "zip"
        assert [(row.business_id, row.path, row.text()) for row in manifest.rows] == [("A", "a.html", "<p>a</p>")]
        assert "unreferenced_file" in [code for code, _, _ in codes(manifest.warnings)]


def test_a_manifest_that_is_a_table_comes_before_data_beside_it() -> None:
    with uploaded(zipped({"manifest.csv": "id,html\nA,<p>\n", "prices.json": "[]"})) as manifest:
        assert manifest.format == "csv"


def test_the_columns_as_given_are_the_evidence() -> None:
    with uploaded(
        "Invoice Number;Page;_error\n7;<p>;was wrong\n",
        choices=Choices(mapping={"Invoice Number": "id", "Page": "html"}),
    ) as manifest:
        (row,) = manifest.rows
        assert dict(row.original) == {"Invoice Number": "7", "Page": "<p>"}


def test_a_nul_in_a_column_that_becomes_nothing_is_an_error_too() -> None:
    with uploaded("id,note,html\nA,x\0y,<p>\nB,,<p>\n") as manifest:
        assert codes(manifest.errors) == [("bad_text", "note", (0,))]


def test_what_a_failed_list_could_not_keep_is_never_printed() -> None:
    with uploaded('id,html,meta.a\nA,"(document, 5,000 characters)",x\nB,<p>,"(text, 1,200 characters)"\n') as manifest:
        assert sorted(codes(manifest.errors)) == [
            ("bad_text", "meta.a", (1,)),
            ("missing_field", "html", (0,)),
        ]


@examples(200)
@given(st.lists(st.text(alphabet="'=+-@\t\r\n ab7", max_size=6), min_size=1, max_size=5))
@example(["'=quoted", "=quoted", "''=x", " =1", "-5", "'5"])
def test_a_failed_list_that_is_uploaded_again_says_the_same(texts: list[str]) -> None:
    given_ = [{"id": f"row {'abcdef'[n]}", "=note": text, "html": "<p>"} for n, text in enumerate(texts)]
    ours = dict.fromkeys(("row", "reason_code", "reason", "attempts", "status"), "x")
    table = [results.failed_row(ours, row) for row in given_]
    lines = results.csv_lines(["id", "=note", "html", *FAILED_COLUMNS], table)
    choices = Choices(mapping={"id": "id", "=note": "meta.note", "html": "html"})
    with uploaded("".join(lines), choices=choices) as manifest:
        assert manifest.errors == ()
        assert [row.original["=note"] for row in manifest.rows] == texts
        assert [row.meta.get("note", "") for row in manifest.rows] == texts


TEXTS = st.text(max_size=40).filter(lambda text: "\0" not in text)


@examples(300)
@given(rows=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4), delimiter=st.sampled_from(",;\t|"))
@example(rows=[("\r\n", '"')], delimiter=",")
@example(rows=[("\n", "\n#REF!")], delimiter=";")
def test_any_text_survives_a_delimited_file(rows: list[tuple[str, str]], delimiter: str) -> None:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter=delimiter, quoting=csv.QUOTE_ALL)
    writer.writerow(["id", "meta.a", "meta.b", "html_content"])
    for number, (one, other) in enumerate(rows):
        writer.writerow([f"row {'abcd'[number]}", one, other, f"<p>{one}{other}"])
    with uploaded(buffer.getvalue()) as manifest:
        invalid = {row for problem in manifest.errors for row in problem.rows}
        assert all(problem.code is Code.SPREADSHEET_DAMAGE for problem in manifest.errors)
        for kept in manifest.rows:
            one, other = rows[kept.position]
            expected: dict[str, Any] = {"a": one, "b": other}
            assert dict(kept.meta) == {name: text for name, text in expected.items() if text}
            assert kept.text() == f"<p>{one}{other}"
        assert {row.position for row in manifest.rows} | invalid == set(range(len(rows)))
