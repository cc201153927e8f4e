"""ZIPs: where the manifest stands, how names are found, and everything hostile."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
from collections.abc import Callable

import pytest

from batches.manifests import Limits
from tests.manifests.samples import PAGE, codes, error_codes, refusal, row, uploaded, warning_codes, zipped

ONE = [row(html="a.html")]


def packed(*entries: tuple[zipfile.ZipInfo | str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for info, content in entries:
            archive.writestr(info, content)
    return buffer.getvalue()


def with_mode(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = mode << 16
    return info


def patched(raw: bytes, mark: bytes, offset: int, value: bytes) -> bytes:
    """`raw` with `value` written `offset` bytes behind each `mark`."""
    result = bytearray(raw)
    at = raw.find(mark)
    while at >= 0:
        result[at + offset : at + offset + len(value)] = value
        at = raw.find(mark, at + 1)
    return bytes(result)


@pytest.mark.parametrize(
    ("files", "path"),
    [
        ({"a.html": PAGE}, "a.html"),
        ({"a.html": PAGE}, "./a.html"),
        ({"a.html": PAGE}, "x/../a.html"),
        ({"a.html": PAGE}, " a.html "),
        ({"pages/a.html": PAGE}, "pages/a.html"),
        ({"pages/a.html": PAGE}, "pages//a.html"),
        ({"pages/a.html": PAGE}, "pages\\a.html"),
        ({"pages\\a.html": PAGE}, "pages/a.html"),
        ({"./a.html": PAGE}, "a.html"),
        ({"r\u00e9sum\u00e9.html": PAGE}, "re\u0301sume\u0301.html"),
        ({"re\u0301sume\u0301.html": PAGE}, "r\u00e9sum\u00e9.html"),
        ({"a b+c%20d.html": PAGE}, "a b+c%20d.html"),
        ({"noextension": PAGE}, "noextension"),
    ],
)
def test_a_path_finds_its_file_in_the_zip(files: dict[str, bytes | str], path: str) -> None:
    with uploaded(zipped(files, rows=[row(html=path)])) as manifest:
        assert manifest.errors == ()
        assert manifest.warnings == ()
        assert manifest.rows[0].text() == PAGE


@pytest.mark.parametrize(
    ("path", "code", "words"),
    [
        ("b.html", "missing_file", "is not in the ZIP"),
        ("A.html", "missing_file", "is not in the ZIP"),
        ("pages", "missing_file", "is not in the ZIP"),
        (".", "missing_file", "is not in the ZIP"),
        ("../a.html", "archive_unsafe", "leads out of its folder"),
        ("x/../../a.html", "archive_unsafe", "leads out of its folder"),
        ("..\\a.html", "archive_unsafe", "leads out of its folder"),
        ("/a.html", "archive_unsafe", "absolute path"),
        ("\\\\server\\a.html", "archive_unsafe", "absolute path"),
        ("C:/a.html", "archive_unsafe", "drive letter"),
        ("file:///a.html", "archive_unsafe", "is an address"),
        ("https://example.com/a.html", "archive_unsafe", "is an address"),
        ("a\0.html", "archive_unsafe", "control character"),
        ("a\ud800.html", "archive_unsafe", "control character"),
        ("a\n.html", "archive_unsafe", "control character"),
    ],
)
def test_a_path_that_finds_nothing_or_leads_elsewhere_is_an_error_of_its_row(path: str, code: str, words: str) -> None:
    with uploaded(zipped({"a.html": PAGE, "pages/c.html": PAGE}, rows=[row(html=path)])) as manifest:
        assert codes(manifest.errors) == [(code, "html", (0,))]
        assert words in manifest.errors[0].message


def test_a_near_miss_names_the_file_that_is_there() -> None:
    with uploaded(zipped({"html/Invoice-1.HTML": PAGE}, rows=[row(html="invoice-1.html")])) as manifest:
        assert '"html/Invoice-1.HTML"' in manifest.errors[0].fix


def test_files_that_no_row_names_are_listed() -> None:
    upload = zipped({"a.html": PAGE, "logo.png": b"\x89PNG", "b.html": PAGE, "__MACOSX/._a.html": b""}, rows=ONE)
    with uploaded(upload) as manifest:
        (warning,) = manifest.warnings

    assert warning.code == "unreferenced_file"
    assert warning.files == ("logo.png", "b.html")
    assert "pictures and style sheets" in warning.fix


def test_a_file_of_a_wrong_row_still_counts_as_named() -> None:
    with uploaded(zipped({"a.html": PAGE}, rows=[{"html": "a.html"}])) as manifest:
        assert codes(manifest.errors) == [("missing_id", "id", (0,))]
        assert manifest.warnings == ()


@pytest.mark.parametrize(
    "names",
    [
        ["manifest.json"],
        ["manifest.jsonl"],
        ["manifest.ndjson"],
        ["MANIFEST.JSON"],
        ["invoices.json"],
        ["october/manifest.json"],
        ["october/batch.jsonl"],
        ["manifest.csv"],
        ["manifest"],
        ["manifest.json", "data.json"],
        ["manifest.json", "sub/manifest.json"],
        ["README.txt", "october/manifest.json"],
    ],
)
def test_the_manifest_is_found_where_people_put_it(names: list[str]) -> None:
    lines = b'{"id": "A", "html": "<p>"}\n'
    with uploaded(packed(*[(name, lines) for name in names])) as manifest:
        assert manifest.ok
        assert manifest.row_count == 1


@pytest.mark.parametrize(
    ("names", "code", "words"),
    [
        (["a.html", "b.html"], "no_manifest", 'the ZIP holds 2 HTML files: "a.html" and "b.html"'),
        (["a.png", "b.css"], "no_manifest", 'found "a.png" and "b.css"'),
        (["x/y/manifest.json", "a.html"], "no_manifest", 'stands too deep: "x/y/manifest.json"'),
        (["__MACOSX/manifest.json", "a.html"], "no_manifest", 'one HTML file: "a.html"'),
        (["manifest.csv", "manifest.json"], "several_manifests", '"manifest.csv" and "manifest.json"'),
        (["manifest.json", "manifest.jsonl"], "several_manifests", '"manifest.json" and "manifest.jsonl"'),
        (["a.json", "b.json"], "several_manifests", '"a.json" and "b.json"'),
        (["x/manifest.json", "y/manifest.json"], "several_manifests", '"x/manifest.json" and "y/manifest.json"'),
    ],
)
def test_a_zip_without_one_manifest_says_what_was_found(names: list[str], code: str, words: str) -> None:
    refused = refusal(packed(*[(name, b"[]") for name in names]))

    assert refused.code == code
    assert words in refused.message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"amount,page\nA,a.html\n", "No column becomes the id"),
        (b"PK\x03\x04", "The ZIP is damaged"),
        (packed(("b.html", b"")), '"manifest.csv" is another archive'),
        (b"", "empty"),
    ],
)
def test_the_manifest_of_a_zip_is_judged_by_its_content(content: bytes, words: str) -> None:
    assert words in refusal(packed(("manifest.csv", content), ("a.html", PAGE.encode()))).message


@pytest.mark.parametrize(
    ("upload", "code", "words"),
    [
        (packed(), "empty_file", "The ZIP is empty"),
        (zipped({"a.html": PAGE, "old.zip": b"PK"}, rows=ONE), "archive_unsafe", '"old.zip"'),
        (zipped({"a.html": PAGE, "old.tar.gz": b""}, rows=ONE), "archive_unsafe", '"old.tar.gz"'),
        (zipped({"../a.html": PAGE}, rows=ONE), "archive_unsafe", '"../a.html" leads out'),
        (zipped({"../x/": b""}, rows=ONE), "archive_unsafe", '"../x/" leads out'),
        (zipped({"/etc/a.html": PAGE}, rows=ONE), "archive_unsafe", "absolute path"),
        (zipped({"__MACOSX/../../a": b""}, rows=ONE), "archive_unsafe", "leads out"),
        (zipped({"a.html": PAGE, "./a.html": PAGE}, rows=ONE), "archive_unsafe", '"a.html" more than once'),
        (packed((with_mode("pipe", 0o010644), b"")), "archive_unsafe", "devices or pipes"),
        (packed(("manifest.json", b"[]"), method=zipfile.ZIP_LZMA), "archive_unsafe", "packing method"),
        (packed(("manifest.json", b"[]"), method=zipfile.ZIP_BZIP2), "archive_unsafe", "packing method"),
        (zipped({"word/document.xml": b"", "[Content_Types].xml": b""}), "wrong_file_type", "a Word document"),
        (zipped({"mimetype": b"application/epub+zip"}), "wrong_file_type", "office document, a book"),
        (zipped({"a.html": b"0" * 30_000_000}, rows=ONE), "archive_unsafe", "out of all proportion"),
        (b"PK\x03\x04 and no more", "archive_damaged", "damaged"),
    ],
)
def test_a_zip_that_is_unsafe_is_refused_as_a_whole(upload: bytes, code: str, words: str) -> None:
    refused = refusal(upload)

    assert refused.code == code
    assert words in refused.message


def test_a_link_is_never_followed_and_never_let_in() -> None:
    link = (with_mode("a.html", 0o120777), b"/etc/hostname")
    upload = packed(("manifest.json", b'[{"id": "A", "html": "a.html"}, {"id": "B", "html": "<p>"}]'), link)

    assert error_codes(uploaded(upload)) == [("archive_unsafe", None, ()), ("archive_unsafe", "html", (0,))]


GOOD = zipped({"a.html": PAGE * 50}, rows=ONE)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda raw: raw[: len(raw) // 2], id="cut in half"),
        pytest.param(lambda raw: raw[:-1], id="last byte lost"),
        pytest.param(lambda raw: raw + b"PK\x05\x06", id="second end mark"),
        pytest.param(lambda raw: patched(raw, b"PK\x01\x02", 16, b"\0\0\0\0"), id="checksums zeroed"),
        pytest.param(lambda raw: patched(raw, b"PK\x01\x02", 24, b"\x05\0\0\0"), id="sizes too small"),
        pytest.param(lambda raw: patched(raw, b"PK\x01\x02", 24, b"\0\0\x10\0"), id="sizes too large"),
        pytest.param(lambda raw: patched(raw, b"PK\x01\x02", 42, b"\xff\xff\xff\x7f"), id="offsets beyond the end"),
        pytest.param(lambda raw: patched(raw, b"PK\x01\x02", 28, b"\xff\xff"), id="name lengths beyond the end"),
        pytest.param(lambda raw: patched(raw, b"PK\x01\x02", 6, b"\xff\x00"), id="version of the far future"),
        pytest.param(lambda raw: patched(raw, b"PK\x03\x04", 26, b"\xff\xff"), id="local name lengths wrong"),
        pytest.param(lambda raw: patched(raw, b"PK\x03\x04", 30, b"\xff\xfe"), id="local names differ"),
    ],
)
def test_a_damaged_zip_is_refused_and_nothing_of_it_is_used(damage: Callable[[bytes], bytes]) -> None:
    refused = refusal(damage(GOOD))

    assert refused.code in {"archive_damaged", "archive_unsafe"}
    assert refused.fix


def test_entries_that_share_bytes_are_refused() -> None:
    raw = packed(*[(f"{number}.html", b"x" * 100) for number in range(3)])
    first = raw.find(b"PK\x01\x02")
    overlapping = raw[:first] + patched(raw[first:], b"PK\x01\x02", 42, b"\0\0\0\0")

    assert "lie over one another" in refusal(overlapping).message


def test_too_many_entries_are_refused_before_they_cost_memory() -> None:
    raw = packed(*[(f"{number}.html", b"") for number in range(60_000)])
    tracemalloc.start()
    refused = refusal(raw, limits=Limits(max_entries=1_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert "more than 1,000 entries" in refused.message
    assert peak < 16_000_000


def test_a_directory_that_claims_to_be_huge_is_refused() -> None:
    raw = patched(GOOD, b"PK\x05\x06", 12, struct.pack("<I", 0x7FFFFFFF))

    assert refusal(raw, limits=Limits(max_entries=1_000)).code == "upload_too_large"


def test_a_zip64_is_read() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        with archive.open("manifest.json", "w", force_zip64=True) as entry:
            entry.write(b'[{"id": "A", "html": "a.html"}]')
        archive.writestr("a.html", PAGE)
    with uploaded(buffer.getvalue()) as manifest:
        assert manifest.ok


def test_the_total_is_checked_before_anything_is_unpacked() -> None:
    upload = zipped({f"{number}.html": PAGE for number in range(10)}, rows=ONE)

    assert "are allowed" in refusal(upload, limits=Limits(max_unpacked_bytes=500)).message


def test_memory_stays_small_however_much_the_zip_holds() -> None:
    page = (PAGE + "<p>Okoye &amp; Lindqvist</p>" * 40_000).encode()
    upload = zipped(
        {f"{number}.html": page for number in range(40)},
        rows=[row(id=str(number), html=f"{number}.html") for number in range(40)],
    )
    tracemalloc.start()
    with uploaded(upload) as manifest:
        assert manifest.ok
        peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert len(page) * 40 > 40_000_000
    assert peak < 12_000_000


def test_a_document_too_large_is_not_even_unpacked() -> None:
    upload = zipped({"a.html": bytes(range(256)) * 25_000}, rows=ONE)

    assert error_codes(uploaded(upload, limits=Limits(max_ratio=10_000))) == [("file_too_large", "html", (0,))]


def test_junk_is_neither_read_nor_counted() -> None:
    junk = {
        "__MACOSX/a.html": b"\0\5",
        "._manifest.json": b"\0\5",
        ".DS_Store": b"",
        "x/Thumbs.db": b"",
        "desktop.ini": b"",
    }
    assert warning_codes(uploaded(zipped({"a.html": PAGE, **junk}, rows=ONE))) == []


def test_a_note_to_the_reader_and_a_folder_with_its_own_manifest_are_no_forgotten_files() -> None:
    files = {
        "a.html": PAGE,
        "README.md": b"What this is.",
        "broken/manifest.json": b"[]",
        "broken/letter.html": PAGE,
        "forgotten.html": PAGE,
    }
    with uploaded(zipped(files, rows=ONE)) as manifest:
        (warning,) = manifest.warnings
    assert warning.files == ("forgotten.html",)
