"""Names of files: safe everywhere, never equal, quoted right."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batches import filenames

CASES = Path(__file__).parent / "cases"
RESERVED = {"con", "prn", "aux", "nul", "com1", "lpt9"}


@pytest.mark.parametrize(
    ("business_id", "version", "wished", "name"),
    [
        ("INV-1", 1, "", "INV-1_v1.pdf"),
        ("INV-1", 12, "", "INV-1_v12.pdf"),
        ("INV-1", 2, "March invoice", "March invoice.pdf"),
        ("INV-1", 2, "march.PDF", "march.pdf"),
        ("report.pdf", 1, "", "report_v1.pdf"),
        ("x.pdf.pdf", 1, "", "x_v1.pdf"),
        ("2024/001", 1, "", "2024_001_v1.pdf"),
        ("..\\..\\etc", 1, "", "_.._etc_v1.pdf"),
        ("CON", 1, "", "_CON_v1.pdf"),
        ("a", 1, "con.txt", "_con.txt.pdf"),
        ("  .hidden. ", 1, "", "hidden_v1.pdf"),
        ("...", 1, "", "document_v1.pdf"),
        ("a\u202egnp.exe", 1, "", "a_gnp.exe_v1.pdf"),
        ("a\r\nb\tc", 1, "", "a__b_c_v1.pdf"),
        ("发票-1", 1, "", "发票-1_v1.pdf"),
        ("e\u0301", 1, "", "é_v1.pdf"),
    ],
)
def test_the_name_of_a_pdf(business_id: str, version: int, wished: str, name: str) -> None:
    assert filenames.pdf_name(business_id, version, wished) == name


def test_long_ids_are_shortened_and_stay_different() -> None:
    long = ["Z" * 180 + ending for ending in ("a", "b")] + ["发" * 150, "发" * 151]
    names = [filenames.pdf_name(business_id, 1) for business_id in long]
    assert len(set(names)) == len(names)
    assert all(len(name.encode()) <= 124 for name in names)


def test_names_of_one_archive_differ_even_where_case_and_unicode_form_do_not_count() -> None:
    names = filenames.Names()
    stems = ["Invoice_1", "invoice_1", "INVOICE_1", "Invoice_1-2", "straße", "STRASSE"]
    assert [names.take(stem) for stem in stems] == [
        ("Invoice_1.pdf", False),
        ("invoice_1-2.pdf", True),
        ("INVOICE_1-3.pdf", True),
        ("Invoice_1-2-2.pdf", True),
        ("straße.pdf", False),
        ("STRASSE-2.pdf", True),
    ]


@given(st.lists(st.text(min_size=1, max_size=260), min_size=1, max_size=30))
def test_any_ids_give_safe_names_of_their_own(ids: list[str]) -> None:
    names = filenames.Names()
    taken = [names.take(filenames.pdf_stem(business_id.encode(errors="replace").decode(), 1))[0] for business_id in ids]
    assert len({name.casefold() for name in taken}) == len(taken)
    for name in taken:
        assert not set(name) & set('<>:"/\\|?*\0\r\n\t')
        assert name[0] not in " ."
        assert name.split(".")[0].lower() not in RESERVED
        assert len(name.encode()) <= 140


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("plain.pdf", 'attachment; filename="plain.pdf"'),
        ("Čapek.pdf", "attachment; filename=\"Capek.pdf\"; filename*=UTF-8''%C4%8Capek.pdf"),
        ("发票-1.pdf", "attachment; filename=\"-1.pdf\"; filename*=UTF-8''%E5%8F%91%E7%A5%A8-1.pdf"),
        ("😀.pdf", "attachment; filename=\"document.pdf\"; filename*=UTF-8''%F0%9F%98%80.pdf"),
        ("50% off.pdf", "attachment; filename=\"50_ off.pdf\"; filename*=UTF-8''50%25%20off.pdf"),
        ('a"b\\c.pdf', "attachment; filename=\"a_b_c.pdf\"; filename*=UTF-8''a%22b%5Cc.pdf"),
        ("a\r\nX-Evil: 1.pdf", 'attachment; filename="aX-Evil: 1.pdf"'),
    ],
)
def test_the_header_of_a_download(name: str, header: str) -> None:
    assert filenames.content_disposition(name) == header


def test_the_header_of_a_preview() -> None:
    assert filenames.content_disposition("a.pdf", inline=True) == 'inline; filename="a.pdf"'


def test_download_names_of_the_case_log_come_back_readable() -> None:
    for row in json.loads((CASES / "121-download-names.json").read_text(encoding="utf-8")):
        name = filenames.pdf_name(row["id"], 1)
        header = filenames.content_disposition(name)
        assert header.isascii()
        plain = header.split('filename="')[1].split('"')[0]
        assert plain.endswith(".pdf")
        said = unquote(header.split("filename*=UTF-8''")[1]) if "filename*" in header else plain
        assert said == name


def test_the_name_of_an_archive() -> None:
    now = datetime(2026, 10, 2, 7, 31, tzinfo=UTC)
    assert filenames.archive_name("September invoices", is_partial=False, now=now) == (
        "September-invoices_20261002-0731.zip"
    )
    assert filenames.archive_name("a/b", is_partial=True, now=now) == "a-b_20261002-0731_PARTIAL.zip"


@pytest.mark.parametrize(
    ("file_name", "name"),
    [("web.zip", "web"), ("manifest", "manifest"), ("a.b.json", "a.b"), (".json", ".json"), ("", ""), ("...", "...")],
)
def test_a_batch_without_a_name_is_called_after_its_file(file_name: str, name: str) -> None:
    assert filenames.batch_name(file_name) == name
