"""Excel workbooks: cells as a person sees them, sheets, and everything that is no honest workbook."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openpyxl import Workbook
from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

from batches.manifests import Choices, Code, Limits, cellvalues
from batches.manifests.problems import Unfit
from tests.manifests.samples import codes, refusal, uploaded, workbook, zipped
from tests.manifests.test_fuzz import check, examples

HEADER = ["id", "html", "meta.value"]
MORNING = datetime.fromisoformat("2026-10-02T09:30:15")


def saved(fill: Callable[[Workbook], None]) -> bytes:
    book = Workbook()
    fill(book)
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def with_cell(value: Any, number_format: str = "General") -> bytes:
    """A workbook whose only row has `value` as its meta."""

    def fill(book: Workbook) -> None:
        book.active.append(HEADER)
        book.active.append(["A", "<p>", value])
        book.active["C2"].number_format = number_format

    return saved(fill)


def by_hand(sheet: str, *strings: str) -> bytes:
    """A workbook as Excel writes it, with shared strings: `sheet` is the XML of its rows."""
    names = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    links = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    return zipped(
        {
            "[Content_Types].xml": "<Types/>",
            "xl/workbook.xml": f'<x:workbook xmlns:x="{names}" xmlns:r="{links}"><x:sheets>'
            '<x:sheet name="One" sheetId="1" r:id="rId7"/></x:sheets></x:workbook>',
            "xl/_rels/workbook.xml.rels": f'<Relationships><Relationship Id="rId7" Type="{links}/worksheet" '
            f'Target="/xl/worksheets/one.xml"/><Relationship Id="rId8" Type="{links}/sharedStrings" '
            'Target="sharedStrings.xml"/></Relationships>',
            "xl/worksheets/one.xml": f'<worksheet xmlns="{names}"><sheetData>{sheet}</sheetData></worksheet>',
            "xl/sharedStrings.xml": f'<sst xmlns="{names}">{"".join(f"<si>{each}</si>" for each in strings)}</sst>',
        }
    )


def shared(*rows: tuple[int, ...]) -> str:
    """Rows of cells that each name a string by its number."""
    return "".join(f'<row>{"".join(f"""<c t="s"><v>{cell}</v></c>""" for cell in row)}</row>' for row in rows)


def replaced(raw: bytes, part: str, old: str, new: str) -> bytes:
    """The workbook with another text in one of its parts."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as given_, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        for name in given_.namelist():
            content = given_.read(name)
            if name == part:
                assert old.encode() in content, content
                content = content.replace(old.encode(), new.encode())
            made.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("value", "number_format", "text"),
    [
        (7, "General", "7"),
        (7.0, "General", "7"),
        (7, "00000", "00007"),
        (7, '"INV-"0000', "INV-0007"),
        (12, "000\\-000", "000-012"),
        (1234567, "000\\-000", "1234-567"),
        (123456789012345, "General", "123456789012345"),
        (0.1 + 0.2, "General", "0.3"),
        (1234.5, '#,##0.00 "€"', "1234.50"),
        (1234.5, "#,##0.0#", "1234.5"),
        (2.345, "0.00", "2.35"),
        (-2.5, "0.00;[Red]-0.00", "-2.50"),
        (-0.001, "0.00", "0.00"),
        (0.19, "0%", "19%"),
        (0.195, "0.0%", "19.5%"),
        (1.5, "# ?/?", "1.5"),
        (1500, "0.00E+00", "1500"),
        (True, "General", "TRUE"),
        (date(2026, 10, 2), "dd/mm/yyyy", "2026-10-02"),
        (MORNING, "yyyy-mm-dd hh:mm:ss", "2026-10-02T09:30:15"),
        (time(9, 5), "hh:mm", "09:05:00"),
        (timedelta(hours=36, minutes=5), "[h]:mm:ss", "36:05:00"),
        ("0010", "General", "0010"),
        (" as typed ", "@", " as typed "),
        ("a\nb", "General", "a\nb"),
        ("_x000D_", "General", "\r"),
        ("_xD83D_", "General", "_xD83D_"),
    ],
)
def test_a_cell_is_read_as_excel_shows_it(value: Any, number_format: str, text: str) -> None:
    with uploaded(with_cell(value, number_format)) as manifest:
        assert manifest.errors == ()
        assert manifest.rows[0].meta["value"] == text


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("=1+1", "a formula whose result was not stored"),
        ("#REF!", "#REF!"),
        (1234567890123456, "more than 15 digits"),
        (1e18, "more than 15 digits"),
    ],
)
def test_what_a_spreadsheet_has_spoilt_is_an_error_of_its_cell(value: Any, words: str) -> None:
    with uploaded(with_cell(value)) as manifest:
        assert codes(manifest.errors) == [("spreadsheet_damage", "meta.value", (0,))]
        assert words in manifest.errors[0].message
        assert manifest.errors[0].places[0].line == 2


CELL = '<c r="C2" t="n"><v>5</v>'


def test_an_error_cell_is_an_error() -> None:
    raw = replaced(with_cell(5), "xl/worksheets/sheet1.xml", CELL, '<c r="C2" t="e"><v>#DIV/0!</v>')
    with uploaded(raw) as manifest:
        assert codes(manifest.errors) == [("spreadsheet_damage", "meta.value", (0,))]
        assert "#DIV/0!" in manifest.errors[0].message


def test_a_formula_counts_by_its_stored_result() -> None:
    computed = '<c r="C2" t="str"><f>A1&amp;B1</f><v>ab</v>'
    with uploaded(replaced(with_cell(5), "xl/worksheets/sheet1.xml", CELL, computed)) as manifest:
        assert manifest.rows[0].meta["value"] == "ab"


def test_shared_strings_are_joined_from_their_runs_and_read_in_any_order() -> None:
    strings = (
        "<t>id</t>",
        "<t>html</t>",
        "<r><t>&lt;p&gt;</t></r><r><t>東</t></r><rPh><t>ひがし</t></rPh>",
        "<t>A</t>",
        "<t/>",
    )
    with uploaded(by_hand(shared((0, 1), (3, 2), (4, 4)), *strings)) as manifest:
        assert [(row.business_id, row.text(), row.line) for row in manifest.rows] == [("A", "<p>東", 2)]
        assert manifest.row_count == 1


def test_a_string_that_is_not_there_is_damage() -> None:
    refused = refusal(by_hand(shared((0, 1), (2, 3)), "<t>id</t>", "<t>html</t>", "<t>A</t>"))
    assert refused.code is Code.ARCHIVE_DAMAGED
    assert 'on its sheet "One"' in refused.message


def test_dates_of_old_macs_count_from_1904() -> None:
    raw = with_cell(date(2026, 10, 2), "yyyy-mm-dd")
    with uploaded(replaced(raw, "xl/workbook.xml", "<workbookPr", '<workbookPr date1904="1" /><x')) as manifest:
        assert manifest.rows[0].meta["value"] == "2030-10-03"


def test_an_id_that_was_spoilt_is_no_id() -> None:
    with uploaded(workbook([["id", "html"], [1234567890123456, "<p>"], [1234567890123456, "<p>"]])) as manifest:
        assert codes(manifest.errors) == [("spreadsheet_damage", "id", (0, 1))]


def test_rows_have_the_numbers_that_excel_shows_and_blank_ones_are_no_rows() -> None:
    rows = [[], ["id", "html"], [], ["A", "<p>a"], ["", " "], ["B", "<p>b"]]
    with uploaded(workbook(rows)) as manifest:
        assert {row.business_id: row.line for row in manifest.rows} == {"A": 4, "B": 6}
        assert manifest.row_count == 2


def test_a_repeated_header_is_an_error() -> None:
    with uploaded(workbook([["id", "html"], ["A", "<p>"], ["id", "html"]])) as manifest:
        assert codes(manifest.errors) == [("bad_csv_row", None, (1,))]
        assert "Line 3 repeats the header." in manifest.errors[0].message


def test_the_first_sheet_that_can_be_seen_is_read_or_the_chosen_one() -> None:
    def fill(book: Workbook) -> None:
        book.active.title = "Notes"
        book.active.sheet_state = "hidden"
        book.active.append(["id", "html"])
        book.active.append(["HIDDEN", "<p>"])
        for name in ("October", "November"):
            book.create_sheet(name).append(["id", "html"])
            book[name].append([name, "<p>"])

    raw = saved(fill)
    for chosen, business_id in (("", "October"), ("November", "November"), ("Notes", "HIDDEN")):
        with uploaded(raw, choices=Choices(sheet=chosen)) as manifest:
            assert [row.business_id for row in manifest.rows] == [business_id]
            assert manifest.sheet == (chosen or "October")
    refused = refusal(raw, choices=Choices(sheet="December"))
    assert refused.code is Code.MISSING_COLUMN
    assert '"October" and "November"' in refused.fix


def test_an_empty_sheet_and_one_without_rows_are_refused() -> None:
    assert 'The sheet "Sheet" is empty' in refusal(workbook([])).message
    assert "no rows" in refusal(workbook([["id", "html"]])).message


def test_a_workbook_stands_in_a_zip_with_its_files_under_any_name() -> None:
    raw = workbook([["id", "file"], ["A", "a.html"]])
    for name in ("manifest.xlsx", "manifest.csv", "october.xlsx"):
        with uploaded(zipped({name: raw, "a.html": "<p>a</p>"})) as manifest:
            assert [(row.business_id, row.text()) for row in manifest.rows] == [("A", "<p>a</p>")]
            assert manifest.container == "zip"
            assert manifest.format == "xlsx"


@pytest.mark.parametrize(
    ("files", "code", "words"),
    [
        ({"xl/workbook.xml": "", "xl/vbaProject.bin": ""}, "wrong_file_type", ".xlsm"),
        ({"xl/workbook.bin": ""}, "wrong_file_type", ".xlsb"),
        ({"word/document.xml": ""}, "wrong_file_type", "a Word document"),
        ({"ppt/presentation.xml": ""}, "wrong_file_type", "a PowerPoint file"),
        ({"xl/workbook.xml": "<workbook"}, "archive_damaged", "The workbook is damaged"),
        ({"xl/workbook.xml": "not xml"}, "archive_damaged", "The workbook is damaged"),
        (
            {"xl/workbook.xml": '<!DOCTYPE x [<!ENTITY a "b">]><workbook>&a;</workbook>'},
            "archive_damaged",
            "The workbook is damaged",
        ),
        ({"xl/workbook.xml": "<workbook/>"}, "empty_file", "without a sheet that can be seen"),
    ],
)
def test_what_is_no_honest_workbook_is_refused_in_words(files: dict[str, bytes | str], code: str, words: str) -> None:
    refused = refusal(zipped({"[Content_Types].xml": "<Types/>", **files}), "table.xlsx")

    assert refused.code == code
    assert words in refused.message
    assert refused.fix.endswith(".")


def test_open_document_tables_and_protected_workbooks_are_told_apart() -> None:
    ods = zipped({"mimetype": "application/vnd.oasis.opendocument.spreadsheet", "content.xml": "<x/>"})
    assert ".ods" in refusal(ods).message
    assert "office document, a book or a program" in refusal(zipped({"mimetype": "application/epub+zip"})).message
    old = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
    assert refusal(old).code is Code.WRONG_FILE_TYPE
    assert refusal(old + "EncryptedPackage".encode("utf-16-le")).code is Code.ARCHIVE_ENCRYPTED


@pytest.mark.parametrize(
    ("part", "old", "new"),
    [
        ("xl/worksheets/sheet1.xml", 'r="A2"', 'r="ZZZ2"'),
        ("xl/worksheets/sheet1.xml", '<row r="2"', '<row r="99999999"'),
        ("xl/worksheets/sheet1.xml", '<row r="2"', '<row r="-1"'),
        ("xl/worksheets/sheet1.xml", "</sheetData>", ""),
        ("xl/worksheets/sheet1.xml", 't="inlineStr"', 't="s"'),
        ("xl/styles.xml", "</styleSheet>", ""),
        ("xl/_rels/workbook.xml.rels", "worksheets/sheet1.xml", "../../../etc/passwd"),
    ],
)
def test_a_damaged_part_is_refused_with_a_sentence(part: str, old: str, new: str) -> None:
    raw = workbook([["id", "html"], ["A", "<p>"]])
    refused = refusal(replaced(raw, part, old, new))
    assert refused.code in {Code.ARCHIVE_DAMAGED, Code.EMPTY_FILE}
    assert refused.fix


@pytest.mark.parametrize(
    "sheet",
    [
        "<a>" * 200 + "</a>" * 200,
        f"<!--{'x' * 6_000_000}-->",
        f'<row r="1"><c t="inlineStr"><is><t>{"x" * 1_100_000}</t></is></c></row>',
        f'<row r="1"><c><v>{"1" * 1_100_000}</v></c></row>',
        '<row r="1"><c r="CZZ1"><v>1</v></c></row>',
    ],
    ids=["deep", "comment", "text", "number", "wide"],
)
def test_xml_that_would_not_fit_into_memory_is_damage(sheet: str) -> None:
    refused = refusal(by_hand(shared((0, 1), (2, 2)) + sheet, "<t>id</t>", "<t>html</t>", "<t>A</t>"))
    assert refused.code is Code.ARCHIVE_DAMAGED


def test_a_workbook_that_grows_out_of_proportion_is_refused_before_it_is_read() -> None:
    padded = by_hand(shared((0, 1), (2, 2)), "<t>id</t>", "<t>html</t>", " " * 30_000_000)
    assert refusal(padded).code is Code.ARCHIVE_UNSAFE
    large = workbook([["id", "html"], *([f"A{n}", "<p>"] for n in range(2_000))])
    assert refusal(large, limits=Limits(max_unpacked_bytes=50_000)).code is Code.UPLOAD_TOO_LARGE


@pytest.mark.parametrize(
    ("given_", "number_format", "is_1904", "text"),
    [
        ("45000", "yyyy-mm-dd", False, "2023-03-15"),
        ("43538", "yyyy-mm-dd", True, "2023-03-15"),
        ("45000.999999", "yyyy-mm-dd hh:mm", False, "2023-03-16"),
        ("1E+3", "General", False, "1000"),
        ("1E-9", "General", False, "0.000000001"),
        ("9.99999999999999E+14", "General", False, "999999999999999"),
    ],
)
def test_numbers_are_read_from_the_digits_in_the_file(
    given_: str, number_format: str, is_1904: bool, text: str
) -> None:
    assert cellvalues.number(given_, number_format, is_1904=is_1904) == text


@examples(300)
@given(given_=st.text(max_size=12) | st.floats().map(repr) | st.integers().map(str), number_format=st.text(max_size=12))
def test_any_number_in_any_format_is_text_or_unfit(given_: str, number_format: str) -> None:
    for is_1904 in (False, True):
        assert isinstance(_text_or_reason(given_, number_format, is_1904=is_1904), str)


def _text_or_reason(given_: str, number_format: str, *, is_1904: bool) -> str:
    try:
        return cellvalues.number(given_, number_format, is_1904=is_1904)
    except Unfit as unfit:
        return unfit.message


@examples(60)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=3))
def test_any_text_survives_a_workbook(texts: list[str]) -> None:
    cells = [ILLEGAL_CHARACTERS_RE.sub("", text) for text in texts]
    # openpyxl writes what looks like Excel's escapes as it stands, and line ends as XML has them
    cells = [re.sub("_x[0-9A-Fa-f]{4}_", "", cell).replace("\r", "\n") for cell in cells]
    rows = [["id", "meta.note", "html"]] + [[f"r {'abc'[n]}", cell, "<p>"] for n, cell in enumerate(cells)]

    def fill(book: Workbook) -> None:
        for line, row in enumerate(rows, 1):
            for column, value in enumerate(row, 1):
                cell = book.active.cell(line, column)
                cell.value = value
                cell.data_type = "s"

    with uploaded(saved(fill)) as manifest:
        assert all(problem.code is Code.SPREADSHEET_DAMAGE for problem in manifest.errors)
        for kept in manifest.rows:
            assert kept.meta.get("note", "") == cells[kept.position]


@examples(150)
@given(st.data())
def test_a_workbook_with_any_part_mutated_is_read_or_refused(data: st.DataObject) -> None:
    raw = workbook([["id", "html", "date"], ["A", "<p>", date(2026, 1, 1)], [7, "<p>", 1.5]])
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as given_, zipfile.ZipFile(buffer, "w") as made:
        parts = [name for name in given_.namelist() if name.startswith("xl/")]
        spoilt = data.draw(st.sampled_from(parts))
        for name in given_.namelist():
            content = bytearray(given_.read(name))
            if name == spoilt:
                for _ in range(data.draw(st.integers(1, 4))):
                    at = data.draw(st.integers(0, max(0, len(content) - 1)))
                    content[at : at + data.draw(st.integers(0, 6))] = data.draw(st.binary(max_size=6))
            made.writestr(name, bytes(content))
    check(buffer.getvalue())
