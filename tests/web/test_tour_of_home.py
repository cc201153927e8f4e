"""From the home page to a repair without a mouse: what needs a person, two ticked rows of two batches, their plan, its
confirmation, and what became of them."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from batches.models import BulkAction, FailureClass, Job, JobState, ProviderAccount, Workspace
from tests.factories import make_batch, make_job
from tests.web import browser as chrome
from tests.web.conftest import PASSWORD, make_member
from tests.web.workers import let_workers_work

pytestmark = [pytest.mark.browser, pytest.mark.processes, pytest.mark.django_db(transaction=True)]


def test_a_repair_over_two_batches_by_keyboard_alone(
    browser: Browser, live_server: Any, workspace: Workspace, account: ProviderAccount
) -> None:
    make_member(workspace, "m.okoye", "operator")
    for name in ("October", "November"):
        batch = make_batch(workspace=workspace, account=account, name=name, paused_at=None)
        for n in range(2):
            failure = {"failure_class": FailureClass.TRANSIENT, "failure_words": "It was away."}
            make_job(batch=batch, state=JobState.FAILED, business_id=f"{name}-{n}", **failure)
    ProviderAccount.objects.update(health="held", hold_reason="person", held_at=batch.created_at)  # nothing is sent
    with chrome.watched(browser, str(live_server.url)) as page:
        chrome.sign_in(page, "m.okoye", PASSWORD)
        expect(page.locator("#summary")).to_contain_text("4 documents need a person.")
        chrome.whole(page)
        chrome.tab_to(page, page.get_by_role("link", name="The whole list"))
        page.keyboard.press("Enter")
        page.wait_for_url("**/failed/")
        chrome.whole(page)
        for document in ("November-0", "October-1"):
            chrome.tab_to(page, page.get_by_role("checkbox", name=f"Tick {document}"))
            page.keyboard.press("Space")
        expect(page.locator("[data-ticked-price]")).to_have_text("bills 0 to 2")
        for _ in range(40):  # back to the form above the rows
            if page.evaluate("document.activeElement.id") == "plan-ticked":
                break
            page.keyboard.press("Shift+Tab")
        page.keyboard.press("Enter")
        page.wait_for_url("**/actions/act_*/")
        expect(page.locator("h1")).to_contain_text("Retry 2 documents")
        chrome.whole(page)
        page.keyboard.type("The service is well again.")  # the reason has the focus
        page.keyboard.press("Control+Enter")
        expect(page.locator("#head .badge")).to_have_text("Running")
        let_workers_work()
        expect(page.locator("#head .badge")).to_have_text("Finished")
        expect(page.locator("#summary")).to_contain_text("2 done, 0 skipped.")
    assert BulkAction.objects.get().plan["batch_count"] == 2
    assert Job.objects.filter(state=JobState.PENDING).count() == 2
