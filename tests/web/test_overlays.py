"""What opens over a page, in Chromium: help, keyboard, dialogs, toasts; and the page that shows all components."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, Page, expect

from batches.models import Batch, ProviderAccount, Workspace
from tests.factories import make_job
from tests.web import browser as chrome
from tests.web.conftest import PASSWORD, make_member

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def site(live_server: Any, workspace: Workspace, account: ProviderAccount) -> str:
    make_member(workspace, "m.okoye", "operator")
    User.objects.create_superuser("root", password=PASSWORD)
    return str(live_server.url)


@pytest.fixture
def page(browser: Browser, site: str) -> Iterator[Page]:
    with chrome.watched(browser, site) as watched:
        chrome.sign_in(watched, "m.okoye", PASSWORD)
        yield watched


def test_help_opens_beside_the_page_gives_the_focus_back_and_has_an_address(page: Page, batch: Batch) -> None:
    make_job(batch=batch, business_id="INV-1")
    page.goto(f"/batches/{batch.public_id}/")
    help_link = page.get_by_role("link", name="Help", exact=True)
    help_link.press("Enter")
    expect(page.locator("#drawer")).to_be_visible()
    expect(page.locator("#drawer-title")).to_have_text("One batch")
    expect(page.locator("#drawer-body")).to_contain_text("The counters add up to the total")
    assert page.evaluate("document.querySelectorAll('h1').length") == 1
    chrome.whole(page)
    page.keyboard.press("Escape")
    expect(page.locator("#drawer")).to_be_hidden()
    expect(help_link).to_be_focused()
    help_link.press("Enter")
    page.click("text=Open as a page")
    page.wait_for_url("**/help/batch/")
    expect(page.locator("h1")).to_have_text("One batch")


def test_a_document_opens_beside_its_list_and_the_keyboard_leads_on_and_back(page: Page, batch: Batch) -> None:
    for n in range(3):
        make_job(batch=batch, business_id=f"INV-{n}")
    page.goto(f"/batches/{batch.public_id}/?q=INV")
    page.locator("#open-1").press("Enter")
    drawer, title = page.locator("#drawer"), page.locator("#drawer-title")
    expect(title).to_have_text("INV-1")
    expect(drawer.locator("#timeline")).to_contain_text("Taken in")
    chrome.whole(page)
    page.keyboard.press("]")
    expect(title).to_have_text("INV-2")
    expect(drawer.locator("[rel=next]")).to_have_count(0)
    drawer.get_by_label("New note").fill("Call the customer first.")
    page.keyboard.press("Escape")
    expect(drawer).to_be_visible()
    drawer.get_by_role("button", name="Add note").click()
    expect(drawer.locator(".notes")).to_contain_text("Call the customer first.")
    expect(title).to_have_text("INV-2")
    drawer.get_by_role("button", name="Copy the address").click()
    expect(page.locator("#drawer-said")).to_contain_text("cop")  # a browser may refuse it, and that is said
    page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()
    expect(page.locator("#open-2")).to_be_focused()
    page.keyboard.press("k")
    page.keyboard.press("o")
    expect(page.locator("h1")).to_contain_text("INV-1")
    page.get_by_role("link", name="Next: INV-2").click()
    expect(page.locator(".notes")).to_contain_text("Call the customer first.")


def test_the_keyboard_offers_what_works_on_this_page_and_can_be_turned_off(page: Page, batch: Batch) -> None:
    for n in range(3):
        make_job(batch=batch, business_id=f"INV-{n}")
    page.goto("/templates/")
    page.keyboard.press("?")
    expect(page.locator(".keys")).to_contain_text("Go to Batches")
    expect(page.locator(".keys")).not_to_contain_text("Next row")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("b")
    page.wait_for_url("**/batches/" if page.url.endswith("/batches/") else "**/")
    page.goto(f"/batches/{batch.public_id}/")
    page.keyboard.press("?")
    expect(page.locator(".keys")).to_contain_text("Tick the row")
    expect(page.locator(".keys")).not_to_contain_text("the next page or document")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator("input.tick").nth(1)).to_be_checked()
    expect(page.locator("[data-ticked-count]")).to_have_text(": 1")
    page.keyboard.press("?")
    page.get_by_label("Keys of one letter act").uncheck()
    page.keyboard.press("Escape")
    page.reload()
    page.keyboard.press("j")
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_hidden()
    assert page.evaluate("document.activeElement === document.body")
    page.get_by_role("button", name="Keyboard").click()
    expect(page.locator("#keys")).to_be_visible()


@pytest.mark.parametrize(("scheme", "viewport"), [("light", chrome.WIDE), ("dark", chrome.NARROW)], ids=["1280", "390"])
def test_staff_see_every_component_and_what_a_dialog_asks_and_a_toast_says(
    scheme: str, viewport: dict[str, int], browser: Browser, site: str
) -> None:
    with chrome.watched(browser, site, viewport=viewport, color_scheme=scheme) as page:
        chrome.sign_in(page, "root", PASSWORD)
        page.goto("/admin/design/")
        chrome.whole(page)
        page.get_by_role("button", name="Confirm what destroys").click()
        expect(page.get_by_role("button", name="Leave it as it is")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.locator("#design-destroy")).to_be_hidden()
        page.get_by_role("button", name="Confirm what destroys").click()
        page.keyboard.press("Control+Enter")
        toast = page.get_by_role("status").locator(".toast")
        expect(toast).to_contain_text("It stays until you dismiss it.")
        chrome.whole(page)
        toast.get_by_role("button", name="Dismiss").click()
        expect(toast).to_have_count(0)
