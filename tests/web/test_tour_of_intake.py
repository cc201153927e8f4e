"""The tour of intake, in Chromium and against a real sandbox: a table as Excel writes it in Germany becomes 12 PDFs.

A manager drops an HTML template and publishes it, drops a CSV with semicolons in Windows-1252, says which encoding
reads right, maps the columns, and sees that the template reads two fields that no column gives. A second version of
the template gives one of them a default and asks for the other; a corrected table mends the amount that was no number.
Three documents are looked at first, the rest is released, and the page is watched until all are saved. What workers do
between her steps, the test has the workers' own functions do.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pypdfium2
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from batches import tasks
from batches.models import Artifact, Batch, Draft, DraftState, Job, JobState, ProviderAccount, Workspace
from tests.factories import make_template_version
from tests.sandbox_process import SandboxProcess
from tests.web import browser as chrome
from tests.web.conftest import PASSWORD, make_member
from tests.web.workers import let_workers_work, use_sandbox

pytestmark = [pytest.mark.browser, pytest.mark.processes, pytest.mark.django_db(transaction=True)]

TEMPLATE = """<!doctype html>
<html lang="de"><head><meta charset="utf-8"><title>Rechnung {{ id }}</title></head>
<body>
<h1>Rechnung {{ id }}</h1>
<p>{{ customer.name }}, {{ customer.city }}</p>
<p>Summe: {{ total | money: "EUR", "de", from: "de" }}</p>
<p>Fällig am {{ due | date: "long", "de", from: "dd.MM.yyyy" }}. {{ terms }}</p>
<p>USt-IdNr. {{ customer.vat_id }}</p>
</body></html>
"""
MENDED = TEMPLATE.replace("{{ terms }}", '{{ terms | default: "Zahlbar ohne Abzug." }}').replace(
    "<p>USt-IdNr. {{ customer.vat_id }}</p>",
    "{% if customer.vat_id %}<p>USt-IdNr. {{ customer.vat_id }}</p>{% endif %}",
)
NAMES = ("Müller & Söhne", "Bäckerei Groß", "Café Olé", "Žižka s.r.o.", "Œuvre SARL", "Fußball-Club „Süd“")
COUNT = 12
#: What each column becomes, in the order of the columns.
TARGETS = ("id", "data.customer.name", "data.customer.city", "data.total", "data.due")
#: The row whose amount has a letter among its digits, and the line on which it stands.
WRONG_ROW, WRONG_LINE = 8, 10


def table(wrong: str) -> bytes:
    """The table as Excel saves it in Germany; `wrong` is the amount of the one row."""
    lines = ["Rechnung;Kunde;Ort;Betrag;Fällig am"]
    for n in range(COUNT):
        amount = wrong if n == WRONG_ROW else f"1.{n:03},50"
        lines.append(f"R-{n:04};{NAMES[n % len(NAMES)]};Köln;{amount};24.10.2026")
    return "\r\n".join([*lines, ""]).encode("cp1252")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """What she has on her disk."""
    folder = tmp_path / "disk"
    folder.mkdir()
    (folder / "rechnung.html").write_text(TEMPLATE, encoding="utf-8")
    (folder / "rechnung-neu.html").write_text(MENDED, encoding="utf-8")
    (folder / "Oktober.csv").write_bytes(table("1.0O8,50"))
    (folder / "Oktober korrigiert.csv").write_bytes(table("1.008,50"))
    return folder


Look = Callable[[Page, str], None]


def test_the_tour_of_intake(
    browser: Browser,
    live_server: Any,
    workspace: Workspace,
    account: ProviderAccount,
    sandbox: SandboxProcess,
    files: Path,
) -> None:
    make_member(workspace, "a.manager", "manager")
    use_sandbox(account, sandbox)
    with chrome.watched(browser, str(live_server.url)) as page:
        chrome.sign_in(page, "a.manager", PASSWORD)
        tour(page, sandbox, files, lambda shown, _name: chrome.whole(shown))


def tour(page: Page, sandbox: SandboxProcess, files: Path, look: Look) -> None:
    """All steps in their order; `look` is called wherever a person would stop and read."""
    upload_and_publish_a_template(page, files, look)
    drop_a_table_and_say_how_it_reads(page, files / "Oktober.csv", look)
    map_columns_and_see_what_is_missing(page, look)
    draft = page.url
    mend_the_template(page, files, look)
    one_row_is_left_that_is_wrong(page, draft, look)
    hand_over_the_corrected_table(page, files, look)
    look_at_rows(page, look)
    start_with_a_sample_of_three(page, look)
    assert sandbox.ledger()["totals"]["jobs_billed"] == 0
    see_the_sample(page, look)
    assert sandbox.ledger()["totals"]["jobs_billed"] == 3
    release_and_watch_it_finish(page, look)
    everything_is_saved_and_billed_once(page, sandbox)


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name).click()


def map_columns(page: Page) -> None:
    page.select_option("#template", "rechnung")
    for number, target in enumerate(TARGETS):
        page.fill(f"#target-{number}", target)


def upload_and_publish_a_template(page: Page, files: Path, look: Look) -> None:
    page.get_by_role("link", name="Templates", exact=True).click()
    expect(page.locator(".empty")).to_contain_text("No templates yet")
    look(page, "templates-empty")
    page.locator("[data-new]").click()
    page.fill("#id_name", "Rechnung")
    chrome.drop(page, page.locator(".dropzone"), files / "rechnung.html")
    expect(page.locator("[data-chosen]")).to_contain_text("rechnung.html")
    look(page, "template-new")
    press(page, "Upload and check")
    expect(page.locator("h1")).to_have_text("Rechnung, version 1")
    fields = page.locator("section", has=page.locator("#fields-title"))
    expect(fields.locator("tbody .mono")).to_have_text(
        ["customer.city", "customer.name", "customer.vat_id", "due", "id", "terms", "total"]
    )
    expect(page.frame_locator("iframe.preview").locator("h1")).to_contain_text("Rechnung")
    look(page, "template-version")
    page.get_by_role("link", name="Publish…").click()
    expect(page.locator("#main")).to_contain_text("No document was made with another version of this template.")
    look(page, "template-publish")
    press(page, "Publish version 1")
    expect(page.locator(".page-head")).to_contain_text("Version 1 is published")
    look(page, "template")


def drop_a_table_and_say_how_it_reads(page: Page, file: Path, look: Look) -> None:
    page.goto("/")
    page.locator("[data-new]").first.click()
    look(page, "new")
    chrome.drop(page, page.locator(".dropzone"), file)
    expect(page.locator("[data-chosen]")).to_contain_text(file.name)
    press(page, "Upload and check")
    expect(page.locator("#source .facts")).to_contain_text("semicolon ;")
    asked = page.locator("fieldset", has_text="Which of these reads right?")
    guess, on_macs = (
        asked.locator(".choice", has=page.locator(f"[value={each}]")) for each in ("windows-1252", "mac-roman")
    )
    expect(guess).to_contain_text("Western European (Windows-1252)")
    expect(guess.get_by_role("radio")).to_be_checked()
    expect(guess).to_contain_text("R-0000;Müller & Söhne;Köln;1.000,50;24.10.2026")
    expect(on_macs).to_contain_text("M¸ller & Sˆhne")
    expect(page.locator("#check")).to_contain_text("Say first which encoding reads right.")
    look(page, "encoding")
    press(page, "Take this")
    expect(asked).to_have_count(0)


def map_columns_and_see_what_is_missing(page: Page, look: Look) -> None:
    look(page, "mapping")
    map_columns(page)
    press(page, "Check with this mapping")
    missing = page.locator("#map .banner.failed")
    expect(missing).to_contain_text("Fields of the template that no column gives")
    expect(missing.locator("code")).to_have_text(["customer.vat_id", "terms"])
    expect(missing.locator("li").first).to_contain_text("12 rows lack it")
    expect(page.locator("#check h3").first).to_have_text("12 of 12 rows cannot be used")
    terms = page.locator(".problem", has=page.locator("summary code", has_text="terms"))
    expect(terms.locator(".places")).to_contain_text("row 1, line 2")
    expect(terms.locator(".todo")).to_have_text(
        "Fill its cell, or give it in a column or a key terms (in a mapping: data.terms)."
    )
    expect(page.locator("#run")).to_have_count(0)
    with page.expect_download() as downloading:
        page.click("text=A table with all its fields")
    header = downloading.value.path().read_text("utf-8-sig").splitlines()[0]
    assert header == "id,customer.city,customer.name,customer.vat_id,due,terms,total"
    look(page, "missing")


def mend_the_template(page: Page, files: Path, look: Look) -> None:
    page.get_by_role("link", name="Templates", exact=True).click()
    look(page, "templates")
    page.click("text=Rechnung")
    chrome.drop(page, page.locator(".dropzone"), files / "rechnung-neu.html")
    page.fill("#id_note", "Terms have a default; no VAT number, no line.")
    press(page, "Upload and check")
    expect(page.locator("h1")).to_have_text("Rechnung, version 2")
    page.get_by_role("link", name="Version 1", exact=True).click()
    expect(page.locator(".diff .added").first).to_contain_text("Zahlbar ohne Abzug.")
    look(page, "template-diff")
    page.get_by_role("link", name="Publish…").click()
    press(page, "Publish version 2")
    expect(page.locator(".page-head")).to_contain_text("Version 2 is published")


def one_row_is_left_that_is_wrong(page: Page, draft: str, look: Look) -> None:
    """The draft has kept what was chosen; what was published meanwhile is checked with."""
    page.goto("/")
    page.click("text=1 of your uploads is not started yet")
    look(page, "drafts")
    page.click("tbody .row-link")
    assert page.url.partition("#")[0] == draft.partition("#")[0]
    expect(page.locator("#template option:checked")).to_have_text("Rechnung: what is published, version 2")
    expect(page.locator("#target-1")).to_have_value("data.customer.name")
    press(page, "Check with this mapping")
    expect(page.locator("#map .banner.failed")).to_have_count(0)
    expect(page.locator("#check h3").first).to_have_text("1 of 12 rows cannot be used")
    expect(page.locator(".problem summary")).to_contain_text(f"row {WRONG_ROW + 1}, line {WRONG_LINE}")
    expect(page.locator(".problem summary")).to_contain_text("1.0O8,50")
    expect(page.locator("#check")).to_contain_text("or take the rows that are good")
    expect(page.locator("#run")).to_have_count(0)
    look(page, "one-wrong")
    page.get_by_role("link", name="Discard…").click()
    press(page, "Discard the draft and its file")
    expect(page.locator(".empty")).to_contain_text("No drafts")
    look(page, "drafts-empty")


def hand_over_the_corrected_table(page: Page, files: Path, look: Look) -> None:
    """The mapping is offered as it was last time, and waits to be looked over."""
    drop_a_table_and_say_how_it_reads(page, files / "Oktober korrigiert.csv", lambda _page, _name: None)
    expect(page.locator("#map")).to_contain_text("as for the last file with these columns")
    for number, target in enumerate(TARGETS):
        expect(page.locator(f"#target-{number}")).to_have_value(target)
    look(page, "remembered")
    page.select_option("#template", "rechnung")
    press(page, "Check with this mapping")
    expect(page.locator("#check .banner.failed")).to_have_count(0)
    expect(page.locator(".plan tr")).to_have_text(re.compile(r"12\s*New"))
    expect(page.locator(".start .sentence")).to_contain_text("Sends 12 documents to")
    look(page, "plan")


def look_at_rows(page: Page, look: Look) -> None:
    page.click("#preview")
    expect(page.locator("h1")).to_have_text("R-0000")
    document = page.frame_locator("iframe.preview")
    expect(document.locator("body")).to_contain_text("Müller & Söhne, Köln")
    expect(document.locator("body")).to_contain_text("Summe: 1.000,50 €")
    expect(document.locator("body")).to_contain_text("Fällig am 24. Oktober 2026. Zahlbar ohne Abzug.")
    look(page, "row")
    page.click("#next")
    expect(document.locator("body")).to_contain_text("Bäckerei Groß")
    page.locator(".crumb a").click()


def start_with_a_sample_of_three(page: Page, look: Look) -> None:
    expect(page.locator("#sample-size")).to_have_value("3")
    press(page, "Start: renders 12,")
    page.wait_for_url("**/batches/*/")
    expect(page.locator("#sample")).to_contain_text(
        "3 documents of it are rendered first; the other 9 wait until somebody has looked at them."
    )
    expect(page.locator("#count-held .nums")).to_have_text("9")
    expect(page.locator(".summary .sentence")).to_contain_text("3 waiting for their turn")
    look(page, "sample-waits")


def see_the_sample(page: Page, look: Look) -> None:
    page.evaluate("window.sameDocument = true")
    let_workers_work()
    expect(page.locator("#sample")).to_contain_text("The sample is rendered: look at it, then release the batch")
    rows = page.locator("#sample li")
    expect(rows).to_have_count(3)
    expect(rows.locator(".badge")).to_have_text(["Saved"] * 3)
    expect(page.locator("#count-saved .nums")).to_have_text("3")
    expect(page.locator("#row-3 .badge")).to_have_text("Held")
    look(page, "sample")
    shown = page.request.get(str(rows.first.locator("a.btn").get_attribute("href"))).body()
    assert "Müller & Söhne, Köln" in text_of(shown)
    let_workers_work()
    assert Job.objects.filter(state=JobState.SAVED).count() == 3, "nothing more leaves before it is released"


def release_and_watch_it_finish(page: Page, look: Look) -> None:
    """Released by keyboard; the page changes by itself until nothing moves."""
    chrome.tab_to(page, page.locator("#release"))
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_contain_text("Released: the rest of it is sent.")
    expect(page.locator("#head .badge")).to_have_text("Running")
    expect(page.locator("#release")).to_have_count(0)
    look(page, "released")
    page.evaluate("window.sameDocument = true")
    let_workers_work()
    expect(page.locator(".summary .sentence")).to_have_text("All 12 documents are saved.")
    expect(page.locator("#count-saved .nums")).to_have_text("12")
    expect(page.locator("#head .badge")).to_have_text("Complete")
    expect(page.locator("#sample")).to_contain_text("It was released; 3 of 3 documents are rendered.")
    expect(page.get_by_text("Nothing moves any more.")).to_have_count(1)
    assert page.evaluate("window.sameDocument") is True
    look(page, "finished")


def text_of(pdf: bytes) -> str:
    """The words of its first page as a reader would copy them."""
    document = pypdfium2.PdfDocument(pdf)
    words = str(document[0].get_textpage().get_text_range())
    document.close()
    return words


def everything_is_saved_and_billed_once(page: Page, sandbox: SandboxProcess) -> None:
    """What was stored opens and says what the row said; what was handed over is kept as it was; the bill has twelve."""
    ledger = sandbox.ledger()
    assert ledger["totals"]["jobs_billed"] == COUNT
    assert set(ledger["billed_by_key"].values()) == {1}
    assert set(ledger["billed_by_body"].values()) == {1}
    assert Counter(draft.state for draft in Draft.objects.all()) == {DraftState.STARTED: 1, DraftState.SWEPT: 1}
    for artifact in Artifact.objects.select_related("version__document"):
        document = artifact.version.document
        content = page.request.get(f"/documents/{document.public_id}/v1.pdf").body()
        assert (hashlib.sha256(content).hexdigest(), len(content)) == (artifact.sha256, artifact.byte_count)
        number = int(document.business_id.removeprefix("R-"))
        words = text_of(content)
        assert f"Rechnung {document.business_id}" in words
        assert f"{NAMES[number % len(NAMES)]}, Köln" in words
        assert f"1.{number:03},50" in words
    batch = Batch.objects.get(sample_of=None)
    manifest = page.request.get(f"/batches/{batch.public_id}/manifest/").body()
    assert manifest == table("1.008,50")
    results = page.request.get(f"/batches/{batch.public_id}/results.csv").body().decode("utf-8-sig")
    assert [row["id"] for row in csv.DictReader(io.StringIO(results))] == [f"R-{n:04}" for n in range(COUNT)]
    with page.expect_download() as downloading:
        page.click("#download")
    with zipfile.ZipFile(downloading.value.path()) as archive:
        pdfs = [archive.read(name) for name in archive.namelist() if name.endswith(".pdf")]
    assert sorted(hashlib.sha256(pdf).hexdigest() for pdf in pdfs) == sorted(
        Artifact.objects.values_list("sha256", flat=True)
    )
    as_one_file_for_printing(page, batch)


def as_one_file_for_printing(page: Page, batch: Batch) -> None:
    """Ordered from the batch's page, built by a worker while the page is watched, and fetched."""
    page.click("#more")
    page.get_by_role("link", name="Choose what to download").click()
    chrome.whole(page)
    page.get_by_role("radio", name="Merged PDF").check()
    page.get_by_role("checkbox", name="odd page").check()
    page.get_by_role("button", name="Build it").click()
    expect(page.locator("#summary .badge")).to_have_text("Queued")
    tasks.work_on_exports()
    expect(page.locator("#summary .badge")).to_have_text("Ready")
    chrome.whole(page)
    with page.expect_download() as downloading:
        page.locator(".export-files a").first.click()
    assert len(pypdfium2.PdfDocument(downloading.value.path())) == 2 * batch.items.count() - 1


# --- without a mouse, without scripts ---


def choose_by_keyboard(page: Page, field: Locator, text: str) -> None:
    chrome.tab_to(page, field)
    page.keyboard.press("Control+A")
    page.keyboard.type(text)


def test_a_table_is_mapped_checked_and_started_by_keyboard(
    browser: Browser, live_server: Any, workspace: Workspace, account: ProviderAccount, files: Path
) -> None:
    make_member(workspace, "m.okoye", "operator")
    make_template_version(workspace=workspace, source=MENDED, slug="rechnung")
    with chrome.watched(browser, str(live_server.url)) as page:
        chrome.sign_in(page, "m.okoye", PASSWORD)
        page.goto("/")  # whole, with its scripts: the key is theirs
        page.keyboard.press("n")
        page.wait_for_url("**/new/")
        chrome.tab_to(page, page.locator("#id_file"))
        page.set_input_files("#id_file", files / "Oktober korrigiert.csv")  # what the system's own dialog would do
        chrome.tab_to(page, page.get_by_role("button", name="Upload and check"))
        page.keyboard.press("Enter")
        chrome.tab_to(page, page.locator("[value=windows-1252]"))
        chrome.tab_to(page, page.get_by_role("button", name="Take this"))
        page.keyboard.press("Enter")
        expect(page.get_by_text("Which of these reads right?")).to_have_count(0)
        chrome.tab_to(page, page.locator("#template"))
        page.keyboard.type("Rechnung")
        for number, target in enumerate(TARGETS):
            choose_by_keyboard(page, page.locator(f"#target-{number}"), target)
        chrome.tab_to(page, page.get_by_role("button", name="Check with this mapping"))
        page.keyboard.press("Enter")
        chrome.tab_to(page, page.get_by_role("button", name="Start: renders 12,"))
        page.keyboard.press("Enter")
        page.wait_for_url("**/batches/*/")
        expect(page.locator("#sample")).to_contain_text("3 documents of it are rendered first")


def test_a_table_is_mapped_checked_and_started_without_scripts(
    browser: Browser, live_server: Any, workspace: Workspace, account: ProviderAccount, files: Path
) -> None:
    make_member(workspace, "a.manager", "manager")
    with chrome.watched(browser, str(live_server.url), java_script_enabled=False) as page:
        chrome.sign_in(page, "a.manager", PASSWORD)
        page.goto("/templates/new/")
        page.fill("#id_name", "Rechnung")
        page.set_input_files("#id_file", files / "rechnung-neu.html")
        press(page, "Upload and check")
        page.get_by_role("link", name="Publish…").click()
        press(page, "Publish version 1")
        page.goto("/new/")
        page.set_input_files("#id_file", files / "Oktober korrigiert.csv")
        press(page, "Upload and check")
        press(page, "Take this")
        map_columns(page)
        press(page, "Check with this mapping")
        page.fill("#sample-size", "0")
        press(page, "Start: renders 12,")
        expect(page.locator("#live")).to_contain_text("reload the page")
        assert Batch.objects.get().items.count() == COUNT
