"""Each input of the case log's rows on intake and security, handed over on the page as a person does it: it is planned
with its rows counted, or refused with the sentence that its row asks for, and never a fault of our own."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from batches import tasks
from batches.models import Batch, Draft, DraftState, Job
from tests.web.conftest import CASES

#: By the name of the input, which begins with the number of its row: what the page says.
SAYS = {
    "001-bom.csv": "2 New",
    "001-bom.json": "2 New",
    "001-bom.jsonl": "2 New",
    "002-semicolon.csv": "2 New",
    "004-utf16le-nobom.csv": "2 New",
    "004-utf16le-tab.csv": "INV-1 <p>Zoë</p> INV-2 <p>Łukasz</p>",
    "005-workbook.csv": "This is an Excel workbook without a sheet that can be seen.",
    "007-unclosed-quote.csv": "Line 3: a quote opens here and never closes",
    "008-trailing-blank-rows.csv": "2 New",
    "010-leading-zeros.csv": "0010 <p>a</p> 10 <p>b</p> 0100 <p>c</p>",
    "011-numeric-ids.json": "12 of 13 rows cannot be used",
    "013-duplicate-ids.json": 'The id "INV-1" stands in rows 1 and 2.',
    "014-ids-with-slashes.json": 'The id ".." means a folder.',
    "016-nfd-names.zip": "2 New",
    "017-long-ids.json": "200 are allowed",
    "019-macos.zip": "1 New",
    "020-nested-folder.zip": "1 New",
    "022-cp437-names.zip": "U-1 rechnung-müller.html U-2 quittung-müller.html",
    "023-duplicate-entries.zip": 'The ZIP holds "d1.html" and "manifest.json" more than once',
    "025-encrypted.zip": "The ZIP is password-protected",
    "026-deep.json": "Brackets are nested more than 64 deep.",
    "028-line-separators.jsonl": "3 New",
    "029-big-cell.csv": "2 New",
    "031-nul.json": 'The html of "Z-1" holds a NUL character',
    "032-lone-surrogate.json": 'The html of "S-1" holds half of a character',
    "037-rows.jsonl": "The row names no document.",
    "037-template.html": "is a web page, not a manifest",
    "038-hostile-rows.csv": 'O-1 O\'Neill & Sons <Ltd> 5 < 6 & "fine" O-2 {{ 7|add:7 }}',
    "038-template.html": "is a web page, not a manifest",
    "125-markup-ids.json": "4 New",
    "127-manifest-paths.json": "this needs a ZIP with the file",
    "127-manifest-paths.zip": "5 of 7 rows cannot be used",
    "128-zip-slip.zip": '"../../outside-1.html" leads out of its folder',
    "130-size-lies.zip": 'The ZIP is damaged at "l1.html".',
    "131-rows.csv": "1 of 1 row cannot be used",
    "131-template.html": "is a web page, not a manifest",
    "136-never-ends.json": "5 New",
}
LAST_OF_INTAKE, FIRST_OF_SECURITY, LAST = 38, 125, 136


def words_of(page: Any) -> str:
    """What stands on the page, without its markup."""
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.text)))


def test_every_input_of_these_rows_has_its_words() -> None:
    numbers = {path.name: int(path.name[:3]) for path in CASES.iterdir() if path.name[:3].isdigit()}
    wanted = {name for name, row in numbers.items() if row <= LAST_OF_INTAKE or FIRST_OF_SECURITY <= row <= LAST}
    assert wanted == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_an_input_of_the_case_log_is_planned_or_refused_as_its_row_says(
    name: str, upload: Callable[..., Any], operator: Client
) -> None:
    page = upload((CASES / name).read_bytes(), name=name)
    assert page.status_code == 200
    words = words_of(page)
    assert SAYS[name] in words
    assert not set("\ufeff\ufffd\0") & set(words)
    draft = Draft.objects.get()
    assert draft.state == DraftState.CHECKED
    assert draft.report is not None
    assert draft.report["ok"] != ("cannot be used" in words)
    assert not Batch.objects.exists()
    assert not Job.objects.exists()


@pytest.fixture
def checked(upload: Callable[..., Any], operator: Client) -> Callable[[Any], str]:
    """What the page says of rows once a worker has checked them, as it does large ones."""

    def check(rows: Any) -> str:
        page = upload(rows)
        assert page.status_code == 200
        tasks.work_on_drafts()
        return words_of(operator.get(page.redirect_chain[0][0]))

    return check


def test_35_a_file_is_no_field_of_a_form_and_meets_its_own_limit_only(
    checked: Callable[[Any], str], settings: Any
) -> None:
    document = "<p>" + "x" * (settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1_000_000)
    assert "1 New" in checked([{"id": "A", "html": document}])


def test_34_documents_over_their_limit_are_refused_with_id_and_size(checked: Callable[[Any], str]) -> None:
    words = checked([{"id": f"MB-{size}", "html": "<p>" + "x" * (size * 1_000_000 - 3)} for size in (1, 8, 26)])
    for size in (8, 26):
        assert f'The html of "MB-{size}" is {size}.0 MB large; 5.0 MB are allowed.' in words
    assert "2 of 3 rows cannot be used" in words
