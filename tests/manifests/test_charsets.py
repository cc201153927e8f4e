"""From the bytes of an HTML file to the text that is sent."""

from __future__ import annotations

import codecs
import hashlib

import pytest

from batches.manifests import charsets
from batches.manifests.problems import Unfit
from tests.manifests.samples import error_codes, uploaded, zipped


@pytest.mark.parametrize(
    ("raw", "charset", "text"),
    [
        ("<p>Zoë</p>".encode(), "utf-8", "<p>Zoë</p>"),
        (codecs.BOM_UTF8 + "<p>Zoë</p>".encode(), "utf-8-sig", "<p>Zoë</p>"),
        (codecs.BOM_UTF16_LE + "<p>Zoë</p>".encode("utf-16-le"), "utf-16", "<p>Zoë</p>"),
        (codecs.BOM_UTF16_BE + "<p>Zoë</p>".encode("utf-16-be"), "utf-16", "<p>Zoë</p>"),
        (codecs.BOM_UTF32_LE + "<p>Zoë</p>".encode("utf-32-le"), "utf-32", "<p>Zoë</p>"),
        ('<meta charset="utf-8"><p>ë'.encode(), "utf-8", '<meta charset="utf-8"><p>ë'),
        ('<meta charset="UTF8"><p>ë'.encode(), "utf-8", '<meta charset="UTF8"><p>ë'),
        ("<meta charset=windows-1252><p>ë".encode("cp1252"), "windows-1252", "<meta charset=utf-8><p>ë"),
        ("<META CharSet = ' Latin1 '/><p>€".encode("cp1252"), "windows-1252", "<META CharSet = ' utf-8 '/><p>€"),
        ("<meta charset='iso-8859-2'><p>Ł".encode("iso8859-2"), "iso8859-2", "<meta charset='utf-8'><p>Ł"),
        ("<meta charset=koi8-r><p>счёт".encode("koi8-r"), "koi8-r", "<meta charset=utf-8><p>счёт"),
        ("<meta charset=shift_jis><p>請求書".encode("cp932"), "cp932", "<meta charset=utf-8><p>請求書"),
        (
            '<meta http-equiv="Content-Type" content="text/html; charset=ISO-8859-1"><p>ë'.encode("cp1252"),
            "windows-1252",
            '<meta http-equiv="Content-Type" content="text/html; charset=utf-8"><p>ë',
        ),
        (
            "<?xml version='1.0' encoding='ISO-8859-1'?><html><p>ë".encode("cp1252"),
            "windows-1252",
            "<?xml version='1.0' encoding='utf-8'?><html><p>ë",
        ),
        # a mark beats a declaration, which is then made true
        (codecs.BOM_UTF8 + "<meta charset=latin1><p>ë".encode(), "utf-8-sig", "<meta charset=utf-8><p>ë"),
        # a page in which "utf-16" can be read is no UTF-16
        ("<meta charset=utf-16><p>ë".encode(), "utf-8", "<meta charset=utf-8><p>ë"),
        # what looks like a declaration and is none
        ("<!-- <meta charset=latin1> --><p>ë".encode(), "utf-8", "<!-- <meta charset=latin1> --><p>ë"),
        ('<meta name=d content="charset=latin1"><p>ë'.encode(), "utf-8", '<meta name=d content="charset=latin1"><p>ë'),
        (("<p>" + "x" * 1024 + "<meta charset=latin1>ë").encode(), "utf-8", None),
    ],
)
def test_a_page_is_read_in_the_encoding_it_has(raw: bytes, charset: str, text: str | None) -> None:
    found = charsets.decoded(raw)

    assert found.charset == charset
    assert found.text == (text if text is not None else raw.decode())


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"<p>caf\xe9</p>", "is not utf-8 and declares no charset: byte 0xE9 at offset 6"),
        (b"<meta charset=utf-8><p>\xe9", "is not utf-8 as it declares (utf-8): byte 0xE9 at offset 23"),
        (b"<meta charset=latin1><p>\x81", "is not windows-1252 as it declares (latin1): byte 0x81 at offset 24"),
        (b"<meta charset=klingon><p>", "declares the charset 'klingon', which is not known"),
        (b"<meta charset=utf-7><p>", "declares the charset 'utf-7', which is not known"),
        (b"<meta charset=rot13><p>", "declares the charset 'rot13', which is not known"),
        (b"\xff\xfe<\x00p", "is not utf-16"),
        (b"<p>\xed\xa0\x80", "byte 0xED at offset 3"),
        (b"<p>\xc3", "byte 0xC3 at offset 3"),
    ],
)
def test_nothing_is_guessed_or_replaced(raw: bytes, words: str) -> None:
    with pytest.raises(Unfit) as refused:
        charsets.decoded(raw)

    assert refused.value.code == "not_decodable"
    assert words in refused.value.message
    assert refused.value.fix


def test_the_files_bytes_are_kept_as_they_are() -> None:
    raw = "<meta charset=windows-1252>\r\n<p>Zoë</p>\r\n".encode("cp1252")
    with uploaded(zipped({"a.html": raw}, rows=[{"id": "A", "html": "a.html"}])) as manifest:
        (row,) = manifest.rows
        assert row.read() == raw
        assert row.content_sha256 == hashlib.sha256(raw).hexdigest()
        assert row.content_bytes == len(raw)
        assert row.charset == "windows-1252"
        assert row.text() == "<meta charset=utf-8>\r\n<p>Zoë</p>\r\n"
        assert row.text_bytes == len(row.text().encode())


def test_the_same_text_in_a_row_and_in_a_file_is_the_same_document() -> None:
    files = {
        "utf8.html": "<p>Zoë</p>".encode(),
        "bom.html": codecs.BOM_UTF8 + "<p>Zoë</p>".encode(),
        "wide.html": "<p>Zoë</p>".encode("utf-16"),
    }
    rows = [{"id": name, "html": name} for name in files] + [{"id": "inline", "html": "<p>Zoë</p>"}]
    with uploaded(zipped(files, rows=rows)) as manifest:
        assert manifest.errors == ()
        assert len({row.input_sha256 for row in manifest.rows}) == 1


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"", "empty_html"),
        (b" \r\n\t", "empty_html"),
        (codecs.BOM_UTF8, "empty_html"),
        (b"%PDF-1.7\n...", "not_html"),
        (b"\x89PNG\r\n\x1a\n", "not_html"),
        (b"PK\x03\x04....", "not_html"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "not_html"),
        ("<p>plain letters</p>".encode("utf-16-le"), "not_html"),
        (b"<p>a\x00b</p>", "bad_text"),
        (b"<p>caf\xe9</p>", "not_decodable"),
        (b"<p>" + b"x" * 5_000_000, "file_too_large"),
    ],
)
def test_a_file_that_is_no_page_is_an_error_of_its_row(raw: bytes, problem: str) -> None:
    upload = zipped({"a.html": raw}, rows=[{"id": "A", "html": "a.html"}])

    assert error_codes(uploaded(upload)) == [(problem, "html", (0,))]


def test_a_page_that_grows_over_the_limit_as_utf_8_is_too_large() -> None:
    raw = b"<meta charset=koi8-r>" + "ж".encode("koi8-r") * 2_600_000
    upload = zipped({"a.html": raw}, rows=[{"id": "A", "html": "a.html"}])

    assert error_codes(uploaded(upload)) == [("file_too_large", "html", (0,))]


def test_every_known_charset_has_a_codec() -> None:
    for label in charsets.LABELS:
        raw = f"<meta charset={label}><p>plain</p>".encode()
        assert charsets.decoded(raw).text.endswith("<p>plain</p>")
