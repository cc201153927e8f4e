"""The documents in `examples/`: complete, self-contained, and of the shapes that they are there to show.

Reads the files and the manifest reader's answer only. That each really renders is proven with the sandbox.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from batches import manifests
from batches.sandbox.rendering.visible_text import visible_text

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
BROKEN = EXAMPLES / "broken"

IDS = (
    "invoice-usd",
    "invoice-eur",
    "invoice-jpy",
    "answer-sheet",
    "certificate",
    "quotation-ar-he",
    "warranty-ja-zh-ko",
    "report-20-pages",
    "ledger-1mb",
    "packing-slip",
    "report-card",
    "payslip",
)

#: The families of the three font packages that the documents may name; any other would silently be replaced.
SHIPPED_FAMILIES = {
    "Noto Sans",
    "Noto Sans Arabic",
    "Noto Sans Hebrew",
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Noto Sans CJK KR",
}

_DATA_ADDRESS = re.compile(r"data:[\w/+.;=-]+,[^\"')]*")
_FAMILY = re.compile(r"\"(Noto [^\"]*)\"")
_FONT_DECLARATION = re.compile(r"font(?:-family)?:[^;}]*")
_EXTERNAL = {
    "an address": re.compile(r"\b(?:https?|ftp|file|javascript):|//", re.IGNORECASE),
    "an import": re.compile(r"@import", re.IGNORECASE),
    "a picture or font to load": re.compile(r"url\(|@font-face", re.IGNORECASE),
    "an element that loads": re.compile(r"<(?:link|script|iframe|object|embed|video|audio|base)\b", re.IGNORECASE),
    "a reference": re.compile(r"\b(?:src|srcset|href|poster|data)\s*=\s*[\"'](?!DATA[\"'])", re.IGNORECASE),
}


def rows() -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads((EXAMPLES / "manifest.json").read_text(encoding="utf-8"))
    return loaded


def document(business_id: str) -> str:
    (path,) = (str(row["html"]) for row in rows() if row["id"] == business_id)
    return (EXAMPLES / path).read_bytes().decode("utf-8")


def without_data(html: str) -> str:
    return _DATA_ADDRESS.sub("DATA", html)


def characters(html: str, first: int, last: int) -> int:
    return sum(first <= ord(character) <= last for character in visible_text(html).text)


def test_the_manifest_names_twelve_documents_each_once() -> None:
    assert [row["id"] for row in rows()] == list(IDS)
    assert len({row["html"] for row in rows()}) == len(IDS)


def test_no_document_lies_beside_the_manifest_without_a_row() -> None:
    on_disk = {path.relative_to(EXAMPLES).as_posix() for path in (EXAMPLES / "documents").iterdir()}
    assert on_disk == {row["html"] for row in rows()}


def test_the_manifest_reader_takes_all_twelve_as_they_are() -> None:
    with manifests.read(manifests.from_path(EXAMPLES), manifests.Limits()) as manifest:
        plan = manifests.plan(manifest, {}, manifests.OnConflict.REFUSE, account_slug="sandbox")
        assert manifest.errors == ()
        assert [planned.row.business_id for planned in plan.rows] == list(IDS)
        assert {problem.code for problem in manifest.warnings} <= {manifests.Code.UNREFERENCED_FILE}


def test_rows_whose_paper_is_not_the_services_default_ask_for_their_own() -> None:
    for row in rows():
        paper = re.search(r"@page\s*\{\s*size:\s*([^;]+);", document(row["id"]))
        assert paper, row["id"]
        wants_own = row.get("options", {}).get("preferCSSPageSize", False)
        assert wants_own is (paper[1] != "Letter"), row["id"]


@pytest.mark.parametrize("business_id", IDS)
def test_a_document_is_utf8_and_says_so(business_id: str) -> None:
    html = document(business_id)
    assert html.startswith("<!DOCTYPE html>\n<html lang=")
    assert '<meta charset="utf-8">' in html.encode()[:1024].decode("utf-8", "ignore")
    assert "\ufffd" not in html
    assert html.endswith("</html>\n")


@pytest.mark.parametrize("business_id", IDS)
def test_a_document_prints_its_own_id_and_no_other(business_id: str) -> None:
    text = visible_text(document(business_id))
    assert text.certain
    words = set(re.findall(r"[a-z0-9]+(?:-[a-z0-9]+)*", text.text))
    assert words & set(IDS) == {business_id}


@pytest.mark.parametrize("business_id", IDS)
def test_a_document_refers_to_nothing_outside_itself(business_id: str) -> None:
    html = without_data(document(business_id))
    found = {what for what, pattern in _EXTERNAL.items() if pattern.search(html)}
    assert found == set()


@pytest.mark.parametrize("business_id", IDS)
def test_a_document_names_only_fonts_that_come_with_the_installation(business_id: str) -> None:
    html = document(business_id)
    families = set(_FAMILY.findall(html)) | set(re.findall(r"font-family=\"([^\"]+)\"", html))
    assert "Noto Sans" in families
    assert families <= SHIPPED_FAMILIES
    for declaration in _FONT_DECLARATION.findall(html):
        assert "serif" not in declaration.replace("sans-serif", ""), declaration


@pytest.mark.parametrize("business_id", [name for name in IDS if name != "ledger-1mb"])
def test_a_document_is_small_enough_to_be_read(business_id: str) -> None:
    assert 3_000 < len(document(business_id).encode()) < 250_000


def test_the_ledger_is_one_table_of_about_a_megabyte_that_repeats_its_head() -> None:
    html = document("ledger-1mb")
    assert 950_000 < len(html.encode()) < 1_100_000
    (table,) = re.findall(r"<table class=\"j\">.*?</table>", html, re.DOTALL)
    assert table.count("<thead>") == 1
    assert table.count("<tr") > 7_000
    assert "counter(page)" in html


def test_the_ledger_balances() -> None:
    html = document("ledger-1mb")
    lines = re.findall(r"<tr(?: class=\"c\")?>(?:<td>[^<]*</td>){4}<td>([^<]*)</td><td>([^<]*)</td></tr>", html)
    debit, credit = (sum(int(re.sub(r"\D", "", amount) or 0) for amount in side) for side in zip(*lines, strict=True))
    assert debit == credit > 0
    assert f"{debit // 100:,}.{debit % 100:02d}" in html.split('<table class="j">')[0]


@pytest.mark.parametrize(
    ("business_id", "amount", "never"),
    [
        ("invoice-usd", r"\$\d{1,3}(?:,\d{3})*\.\d{2}(?!\d)", "€"),
        ("invoice-eur", r"\d{1,3}(?:\.\d{3})*,\d{2} €", "$"),
        ("invoice-jpy", r"¥\d{1,3}(?:,\d{3})+(?![.,\d])", "$"),
    ],
)
def test_each_invoice_writes_money_in_the_way_of_its_currency(business_id: str, amount: str, never: str) -> None:
    text = visible_text(document(business_id)).text
    assert re.search(amount, text)
    assert never not in text


def test_the_yen_invoice_has_no_decimals() -> None:
    text = visible_text(document("invoice-jpy")).text
    assert re.search(r"\d\.\d", text) is None


def test_the_answer_sheet_draws_its_bubbles_in_millimetres() -> None:
    html = document("answer-sheet")
    assert '<svg class="marks" width="210mm" height="297mm" viewBox="0 0 210 297"' in html
    assert html.count('r="2.15"') == 60 * 5
    assert html.count('r="2.1"') == 8 * 10


def test_the_certificate_carries_its_pictures_in_data_addresses() -> None:
    html = document("certificate")
    pictures = dict(re.findall(r"src=\"data:image/([\w+]+);base64,([^\"]+)\"", html))
    assert set(pictures) == {"png", "svg+xml"}
    assert base64.b64decode(pictures["png"], validate=True).startswith(b"\x89PNG\r\n\x1a\n")
    assert base64.b64decode(pictures["svg+xml"], validate=True).startswith(b"<svg ")


def test_the_quotation_runs_from_right_to_left_in_arabic_and_hebrew() -> None:
    html = document("quotation-ar-he")
    assert '<html lang="ar" dir="rtl">' in html
    assert characters(html, 0x0600, 0x06FF) > 400
    assert characters(html, 0x0590, 0x05FF) > 400


def test_the_warranty_card_is_written_in_japanese_chinese_and_korean() -> None:
    html = document("warranty-ja-zh-ko")
    assert characters(html, 0x3040, 0x30FF) > 100
    assert characters(html, 0x4E00, 0x9FFF) > 200
    assert characters(html, 0xAC00, 0xD7A3) > 100
    assert {'lang="ja"', 'lang="zh-Hans"', 'lang="ko"'} <= set(re.findall(r"lang=\"[\w-]+\"", html))


def test_the_report_has_twenty_pages_and_numbers_them() -> None:
    html = document("report-20-pages")
    assert html.count('<section class="cover">') + html.count('<section class="page">') == 20
    assert '"Page " counter(page) " of " counter(pages)' in html
    listed = re.findall(r"<td class=\"dots\"><i></i></td><td class=\"r\">(\d+)</td>", html)
    assert listed == [str(page) for page in range(3, 21)]
    assert html.count("<figure>") == html.count("<figcaption><b>Figure ") == 18


def test_the_broken_manifest_is_refused_with_five_kinds_of_errors() -> None:
    with manifests.read(manifests.from_path(BROKEN), manifests.Limits()) as manifest:
        assert not manifest.ok
        found = {(problem.code.value, problem.column): problem.rows for problem in manifest.errors}
    assert found == {
        ("duplicate_id", "id"): (0, 1),
        ("missing_file", "html"): (2,),
        ("empty_html", "html"): (3,),
        ("bad_id", "id"): (4,),
        ("bad_option", "options.fromat"): (5,),
    }
