"""The pages in Chromium: rows change in the database while a page is open, as workers would change them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, Page, expect

from batches.models import Artifact, Batch, DocumentVersion, Job, JobState, ProviderAccount, Workspace
from tests.factories import NOW, make_accepted_job, make_job, make_submission
from tests.web import browser as chrome
from tests.web.conftest import PASSWORD, make_member
from tests.web.stored import store_pdf

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
PDF = (Path(__file__).parent.parent / "cases" / "079-whole.pdf").read_bytes()


@pytest.fixture
def site(live_server: Any, workspace: Workspace, account: ProviderAccount) -> str:
    make_member(workspace, "m.okoye", "operator")
    return str(live_server.url)


@pytest.fixture
def page(browser: Browser, site: str) -> Iterator[Page]:
    with chrome.watched(browser, site) as watched:
        chrome.sign_in(watched, "m.okoye", PASSWORD)
        yield watched


def examples_zip() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(EXAMPLES / "manifest.json", "manifest.json")
        for path in sorted((EXAMPLES / "documents").iterdir()):
            archive.write(path, f"documents/{path.name}")
    return packed.getvalue()


def save(job: Job) -> None:
    """What a worker does at the end: the file is stored, then the job is saved."""
    submission = make_submission(
        job=job,
        provider_job_id=f"pdf_{job.pk}_0123456789",
        accepted_at=NOW,
        in_doubt=False,
        outcome="delivered",
        closed_at=NOW,
    )
    key = f"saved/{job.pk}/v1.pdf"
    Artifact.objects.create(
        version=job.version, submission=submission, storage_key=key, sha256="0" * 64, byte_count=1, page_count=1,
        stored_at=NOW, verified_at=NOW,
    )  # fmt: skip
    store_pdf(job, PDF)
    Job.objects.filter(pk=job.pk).update(state=JobState.SAVED)


def test_from_upload_to_download_without_reloading(page: Page, settings: Any) -> None:
    page.click("text=New batch")
    page.set_input_files(
        "#id_file", files=[{"name": "examples.zip", "mimeType": "application/zip", "buffer": examples_zip()}]
    )
    expect(page.locator("[data-chosen]")).to_contain_text("examples.zip")
    page.click("text=Upload and check")
    page.fill("#sample-size", "0")
    page.click("text=Start: renders 12")
    page.wait_for_url("**/batches/*/")
    expect(page.locator(".sentence")).to_contain_text("Waiting for their turn: 12 documents")
    page.evaluate("window.sameDocument = true")
    jobs = list(Job.objects.order_by("pk").select_related("version"))
    for job in jobs[:5]:
        save(job)
    Job.objects.filter(pk=jobs[5].pk).update(state=JobState.ACCEPTED, deadline_at=NOW)
    expect(page.locator("#count-saved .nums")).to_have_text("5")
    expect(page.locator("#row-4 .badge")).to_have_text("Saved")
    expect(page.locator("#row-5 .badge")).to_have_text("Rendering")
    expect(page.locator("#download")).to_contain_text("5 of 12")
    for job in jobs[5:]:
        save(job)
    expect(page.locator(".sentence")).to_have_text("All 12 documents are saved.")
    expect(page.locator("#live")).to_have_class("live ended")
    expect(page.get_by_text("Nothing moves any more.")).to_have_count(1)
    expect(page.locator("#head .badge")).to_have_text("Complete")
    assert page.evaluate("window.sameDocument") is True
    with page.expect_download() as downloading:
        page.click("#download")
    archive = zipfile.ZipFile(downloading.value.path())
    assert len([name for name in archive.namelist() if name.startswith("documents/")]) == 12
    page.focus("#row-0 .row-link")
    page.keyboard.press("o")
    expect(page.locator("h1")).to_contain_text("invoice-usd")
    frame = page.frame_locator("iframe.preview")
    expect(frame.locator("embed, body").first).to_be_attached()
    with page.expect_download() as downloading:
        page.click("text=Download PDF")
    assert downloading.value.suggested_filename == "invoice-usd_v1.pdf"
    assert Path(downloading.value.path()).read_bytes() == PDF


def test_rows_change_in_place_and_news_wait_while_the_pointer_is_among_them(page: Page, batch: Batch) -> None:
    jobs = [make_accepted_job(batch=batch, business_id=f"INV-{n}") for n in range(12)]
    page.goto(f"/batches/{batch.public_id}/")
    page.hover("#row-3")
    before = page.locator("#row-3").bounding_box()
    page.focus("#open-3")
    Job.objects.filter(pk=jobs[3].pk).update(state=JobState.RENDERED)
    Job.objects.filter(pk=jobs[7].pk).update(
        state=JobState.FAILED, failure_class="render_failed", failure_words="Too wide."
    )
    expect(page.locator("#row-3 .badge")).to_have_text("Fetching")
    expect(page.locator("#row-7")).to_contain_text("Too wide.")
    expect(page.locator("#count-failed .nums")).to_have_text("1")
    assert page.locator("#row-3").bounding_box() == before
    assert page.evaluate("document.activeElement.id") == "open-3"
    expect(page.locator(".causes")).to_have_count(0)
    expect(page.locator("#announce")).to_have_text("Running. 1 document needs a person.")
    page.evaluate("document.activeElement.blur()")
    page.mouse.move(5, 5)
    expect(page.locator(".causes")).to_contain_text("INV-7")


def test_a_filtered_list_keeps_its_rows_and_says_what_changed(page: Page, batch: Batch) -> None:
    jobs = [make_accepted_job(batch=batch, business_id=f"INV-{n}") for n in range(3)]
    page.goto(f"/batches/{batch.public_id}/?state=in_progress")
    Job.objects.filter(pk=jobs[0].pk).update(state=JobState.FAILED, failure_class="render_failed")
    expect(page.locator("#list-changed")).to_contain_text("1 changed since this list was drawn; refresh")
    expect(page.locator(".items tbody tr")).to_have_count(3)
    expect(page.locator("#row-0 .badge")).to_have_text("Failed")
    page.keyboard.press("r")
    expect(page.locator(".items tbody tr")).to_have_count(2)


def test_it_says_when_it_is_not_live_and_when_it_pauses(browser: Browser, site: str, batch: Batch) -> None:
    make_accepted_job(batch=batch)
    with chrome.watched(
        browser, site, expected=("Failed to load resource", "htmx:sendError", "htmx:afterRequest")
    ) as page:
        chrome.sign_in(page, "m.okoye", PASSWORD)
        page.goto(f"/batches/{batch.public_id}/")
        expect(page.locator("#live")).to_have_text("Live")
        page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        expect(page.locator("#live")).to_have_text("Paused while this tab is hidden")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.wait_for_timeout(2500)
        assert asked == []
        page.evaluate("Object.defineProperty(document, 'hidden', {value: false, configurable: true})")
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        expect(page.locator("#live")).to_have_text("Live")
        page.route("**/live/**", lambda route: route.abort())
        expect(page.locator("#live")).to_contain_text("the server has not answered since", timeout=30_000)
        page.unroute("**/live/**")
        expect(page.locator("#live")).to_have_text("Live", timeout=40_000)
        page.context.clear_cookies()
        expect(page.locator("#live")).to_contain_text("you are signed out", timeout=30_000)


def test_the_list_and_the_document_are_live_too(page: Page, batch: Batch) -> None:
    job = make_accepted_job(batch=batch, business_id="INV-1")
    page.goto("/batches/")
    expect(page.locator(".badge")).to_have_text("Running")
    Job.objects.update(state=JobState.RENDERED)
    job.submissions.all().delete()
    document = page.context.new_page()
    document.goto(f"/documents/{job.version.document.public_id}/")
    expect(document.locator("#head .badge")).to_have_text("Fetching")
    save(job)
    expect(page.locator(".badge")).to_have_text("Complete")
    expect(document.locator("#head .badge")).to_have_text("Saved")
    expect(document.locator("iframe.preview")).to_be_visible()


def test_the_keyboard_reaches_everything(page: Page, batch: Batch) -> None:
    for n in range(3):
        make_job(batch=batch, business_id=f"INV-{n}")
    page.goto(f"/batches/{batch.public_id}/")
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.type("INV-1n?")  # letters typed into a field are letters
    expect(page.locator("#q")).to_have_value("INV-1n?")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#keys")).to_be_hidden()
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator("#open-1")).to_be_focused()
    page.keyboard.press("k")
    expect(page.locator("#open-0")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#drawer-title")).to_have_text("INV-0")
    page.keyboard.press("Escape")
    page.keyboard.press("o")
    expect(page.locator("h1")).to_contain_text("INV-0")
    page.keyboard.press("n")
    page.wait_for_url("**/new/")
    page.goto("/")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()


def test_a_second_press_of_start_does_nothing(page: Page) -> None:
    page.goto("/new/")
    content = b'[{"id": "INV-1", "html_content": "<h1>One</h1>"}]'
    page.set_input_files("#id_file", files=[{"name": "one.json", "mimeType": "application/json", "buffer": content}])
    page.click("text=Upload and check")
    page.dblclick("text=Start: renders 1,")
    page.wait_for_url("**/batches/*/")
    page.go_back()
    page.click("text=Start: renders 1,")
    page.wait_for_url("**/batches/*/")
    assert Batch.objects.count() == 1
    assert DocumentVersion.objects.count() == 1


def test_everything_works_without_scripts(browser: Browser, site: str) -> None:
    with chrome.watched(browser, site, java_script_enabled=False) as page:
        chrome.sign_in(page, "m.okoye", PASSWORD)
        page.click("text=New batch")
        content = b'[{"id": "INV-1", "html_content": "<h1>One</h1>"}]'
        page.set_input_files(
            "#id_file", files=[{"name": "one.json", "mimeType": "application/json", "buffer": content}]
        )
        page.click("text=Upload and check")
        page.click("text=Start: renders 1,")
        expect(page.locator("#live")).to_contain_text("reload the page")
        save(Job.objects.select_related("version").get())
        page.reload()
        expect(page.locator(".sentence")).to_have_text("The document is saved.")
        page.click(".row-link")
        expect(page.locator("h1")).to_contain_text("INV-1")
        page.click(".topbar-end .menu summary")
        page.click("text=Sign out")
        expect(page.locator("h1")).to_have_text("Sign in")


def test_the_admin_and_the_description_of_the_api_keep_the_policy(browser: Browser, site: str, batch: Batch) -> None:
    User.objects.create_superuser("root", password=PASSWORD)
    make_accepted_job(batch=batch)
    with chrome.watched(browser, site) as page:
        chrome.sign_in(page, "root", PASSWORD)
        page.goto("/api/v1/docs")
        expect(page.locator("#swagger-ui")).to_contain_text("/api/v1/batches/{batch_id}")
        for address in ("/admin/", "/admin/batches/job/", f"/admin/batches/provideraccount/{batch.account.pk}/change/"):
            page.goto(address)
            expect(page.locator("#site-name")).to_have_text("RelayPDF Batches")
