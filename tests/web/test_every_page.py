"""Every page in a real Chromium: wide and narrow, light and dark, with rows of every kind and with none. It fits, it
can be read, and axe-core finds nothing that keeps somebody out.

Which pages there are is what `batches/urls.py` and the admin say: a new one is looked at because it is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from playwright.sync_api import Browser, Page, expect

from batches import help as texts
from batches.models import Batch, Job, JobState, ProviderAccount, Workspace
from tests.factories import (
    NOW,
    make_accepted_job,
    make_account,
    make_batch,
    make_job,
    make_saved_job,
    make_submission,
    make_workspace,
)
from tests.web import browser as chrome
from tests.web import test_rights_walk as walk
from tests.web.conftest import PASSWORD, make_member
from tests.web.stored import store_pdf

PDF = (Path(__file__).parent.parent / "cases" / "079-whole.pdf").read_bytes()

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

LOOKS = [(scheme, size) for scheme in ("light", "dark") for size in (chrome.WIDE, chrome.NARROW)]
#: Of what axe finds, what a page may not have; "moderate" and "minor" are advice.
GRAVE = ("serious", "critical")
#: Colours are another matter in the dark; the markup is the same.
COLOURS = {"runOnly": ["color-contrast"], "resultTypes": ["violations"]}
ALL_RULES = {"resultTypes": ["violations"]}
#: A button on its way from one colour to the other has neither.
AT_REST = "() => document.getAnimations().forEach((animation) => animation.finish())"

things = walk.things
AXE = Axe()


#: What Django's own scripts draw, without a name that we could give.
DJANGOS_COMPLAINTS = ("Applying inline style", "Couldn't load preload assets")
DJANGOS = {"exclude": [[".select2-container"], [".help-tooltip"]]}


def grave(page: Page, rules: dict[str, Any] = ALL_RULES, context: dict[str, Any] | None = None) -> list[str]:
    """What axe-core objects to, as "impact rule: element"."""
    return [
        f"{found['impact']} {found['id']}: {node['html'][:150]}"
        for found in AXE.run(page, context=context, options=rules).response["violations"]
        if found["impact"] in GRAVE
        for node in found["nodes"]
    ]


def look_at(page: Page, *, ours: bool = True) -> None:
    """The page that is shown now, in every look. What Django draws (not `ours`) is asked for less, and wide alone."""
    for scheme, size in LOOKS if ours else (look for look in LOOKS if look[1] is chrome.WIDE):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.set_viewport_size(size)
        page.evaluate(AT_REST)
        seen_as = f"{page.url} in {scheme} at {size['width']} px"
        if ours:
            chrome.whole(page, seen_as)
        if scheme == "light" or size is chrome.WIDE:
            rules, context = ALL_RULES if scheme == "light" else COLOURS, None if ours else DJANGOS
            assert grave(page, rules, context) == [], seen_as
    if ours:
        assert page.locator("h1").count() == 1, page.url
        assert page.locator("main").count() == 1, page.url


@pytest.fixture
def site(live_server: Any, workspace: Workspace, account: ProviderAccount) -> str:
    User.objects.create_superuser("root", password=PASSWORD)
    return str(live_server.url)


@pytest.fixture
def page(browser: Browser, site: str) -> Iterator[Page]:
    expected = ("Failed to load resource",)  # 404 and 422 are answers that are asked for here
    with chrome.watched(browser, site, expected=expected) as watched:
        yield watched


@pytest.fixture
def varied(workspace: Workspace, account: ProviderAccount) -> Batch:
    """A batch with something of everything, on an account that is held."""
    batch = make_batch(workspace=workspace, account=account, name="A rather long name of a batch, for March and April")
    store_pdf(make_saved_job(batch=batch, business_id="INV-1"), PDF)
    long_words = "The table is wider than the page: " + "column " * 40
    make_job(batch=batch, state=JobState.FAILED, business_id="W" * 150, failure_words=long_words, failure_code="E_422")
    make_job(batch=batch, state=JobState.UNKNOWN, business_id="INV-2", failure_words="The connection was lost.")
    make_job(batch=batch, state=JobState.CANCELLED, business_id="INV-3")
    make_accepted_job(batch=batch, business_id="INV-4", provider_job_id="pdf_0123456789abcdef")
    make_job(batch=batch, business_id="INV-5")
    held = {"health": "held", "hold_reason": "auth", "held_at": NOW, "hold_words": "The service answered 401."}
    other = make_account(name="Another account", **held)
    job = make_job(batch=batch, business_id="INV-6")
    Job.objects.filter(pk=job.pk).update(account=other)
    return batch


KNOWN = b'[{"id": "KNOWN", "html_content": "<p>1</p>"}]'


APRIL = "Rechnung;Text;Betrag, mit einem längeren Namen\nR-1;<p>Müller</p>;1,50\nR-2;;2,00\n".encode("cp1252")


def hand_over(page: Page, content: bytes) -> None:
    page.goto("/new/")
    page.click("text=What a manifest looks like")
    page.set_input_files("#id_file", files=[{"name": "known.json", "mimeType": "application/json", "buffer": content}])
    page.click("text=Upload and check")
    page.wait_for_selector(".start")


def pages(client: Client, things: dict[str, str], *, with_arguments: bool) -> dict[str, str]:
    """The addresses of `batches/urls.py` that answer with a whole page, for whoever `client` is, by their names."""
    found = {}
    for name, row in walk.TABLE.items():
        if row.reads and (with_arguments or not row.arguments):
            address = reverse(f"batches:{name}", args=[things[argument] for argument in row.arguments])
            answer = client.get(address)
            is_page = answer.get("Content-Type", "").startswith("text/html") and b"<html" in answer.getvalue()
            if is_page and answer.status_code in (200, 403):  # a refusal tells what is missing; a lost file is no page
                found[name] = address
    return found


def test_every_page_with_rows_of_every_kind(page: Page, things: dict[str, str], varied: Batch) -> None:
    client = Client()
    client.force_login(User.objects.get(username="root"))
    page.goto("/sign-in/")
    look_at(page)
    chrome.sign_in(page, "root", PASSWORD)
    documents = [f"/documents/{item.document.public_id}/" for item in varied.items.select_related("document")]
    one = f"/batches/{varied.public_id}/"
    found = pages(client, things, with_arguments=True)
    assert len(found) > 15
    asked = (one, f"{one}?state=failed", f"{one}?q=zzz", "/batches/?q=zzz")
    for address in (*found.values(), *asked, *documents, "/nothing"):
        page.goto(address)
        look_at(page)


#: Cells of a list, and forms of rows, whose words or fields lie over what stands beside them.
RUNS_OVER = """() => [...document.querySelectorAll(".results tbody :is(td, th), .inline-group fieldset")]
  .filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => box.textContent.trim().slice(0, 60))"""


def test_the_admin(browser: Browser, site: str, account: ProviderAccount, workspace: Workspace, varied: Batch) -> None:
    """Its index, lists, and forms with every kind of field: words, instants, choices, rows of others."""
    root = User.objects.get(username="root")
    forms = (f"batches/provideraccount/{account.pk}", f"batches/workspace/{workspace.pk}", f"auth/user/{root.pk}")
    shown = (*(f"{each}/change/" for each in forms), f"batches/batch/{varied.pk}/change/")
    with chrome.watched(browser, site, expected=DJANGOS_COMPLAINTS) as page:
        chrome.sign_in(page, "root", PASSWORD)
        for path in ("", "batches/provideraccount/", "batches/job/", "batches/batchitem/", *shown):
            page.goto(f"/admin/{path}")
            look_at(page, ours=False)
            assert page.evaluate(RUNS_OVER) == [], path


def test_the_help_of_every_page_is_about_that_page(workspace: Workspace, things: dict[str, str]) -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    found = pages(client, things, with_arguments=True)
    assert [name for name in found if texts.topic_of(name) is None] == ["help_index", "help_topic"]


def test_every_page_without_rows(page: Page, things: dict[str, str]) -> None:
    """As somebody sees them whose workspace is new."""
    somebody = make_member(make_workspace(), "n.eu", "admin")
    client = Client()
    client.force_login(somebody)
    chrome.sign_in(page, "n.eu", PASSWORD)
    for address in pages(client, things, with_arguments=False).values():
        page.goto(address)
        look_at(page)


def test_every_step_of_an_upload(page: Page) -> None:
    bad = b'[{"html_content": "<p>1</p>", "x": 1}, {"id": "A", "html": "gone.html"}, {"id": "A", "html_content": ""}]'
    chrome.sign_in(page, "root", PASSWORD)
    page.goto("/new/")
    page.set_input_files("#id_file", files=[{"name": "bad.json", "mimeType": "application/json", "buffer": bad}])
    page.click("text=Upload and check")
    page.wait_for_selector(".problem")
    look_at(page)
    page.goto("/new/")
    page.set_input_files("#id_file", files=[{"name": "april.csv", "mimeType": "text/csv", "buffer": APRIL}])
    page.click("text=Upload and check")
    page.wait_for_selector("text=Which of these reads right?")
    look_at(page)
    page.click("text=Take this")
    page.fill("#target-0", "id")
    page.fill("#target-1", "html")
    page.click("text=Check with this mapping")
    page.wait_for_selector("text=Read it otherwise")
    look_at(page)
    page.goto("/drafts/")
    look_at(page)
    hand_over(page, KNOWN)
    look_at(page)
    page.click("text=Start: renders 1,")
    page.wait_for_url("**/batches/*/")
    known = Job.objects.get(version__document__business_id="KNOWN")
    make_submission(job=known)
    Job.objects.filter(pk=known.pk).update(state=JobState.FAILED, failure_class="render_failed")
    hand_over(page, KNOWN)
    expect(page.locator("#main")).to_contain_text("1 failed before")
    look_at(page)


def test_the_checks_of_a_page_find_what_they_look_for(page: Page) -> None:
    chrome.sign_in(page, "root", PASSWORD)
    page.goto("/templates/")
    page.evaluate("document.querySelector('h1').style.color = '#d8d8d8'")
    page.evaluate("document.querySelector('main').style.minWidth = '3000px'")
    page.evaluate("document.querySelector('main').append(document.createElement('input'))")
    assert [words.split(":")[0] for words in page.evaluate(chrome.FAINT_TEXT)] == ["Templates"]
    assert page.evaluate(chrome.TOO_WIDE) > 0
    assert page.evaluate(chrome.UNNAMED) == ["<input>"]
    assert {found.split(":")[0] for found in grave(page)} == {"critical label", "serious color-contrast"}
