"""The tour of repairing, in Chromium and against a real sandbox: 300 documents of which 42 failed from six causes.

A manager finds the causes, retries one of them by keyboard, reconciles two documents of which nobody knows whether they
were accepted, one with evidence and one without, regenerates a third with other HTML, opens both of its versions, and
reads in the audit log what was done. What workers do between her steps, the test has the workers' own functions do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone
from playwright.sync_api import Browser, Locator, Page, expect

from batches import tasks
from batches.engine.accounts import Providers
from batches.engine.causes import fingerprint
from batches.models import Batch, FailureClass, Job, JobState, ProviderAccount, Submission, Workspace
from batches.providers.base import Accepted, DocumentSource
from tests.factories import make_batch, make_event, make_job, make_saved_job, make_submission
from tests.sandbox_process import SandboxProcess
from tests.web import browser as chrome
from tests.web.conftest import PASSWORD, make_member
from tests.web.stored import store_pdf
from tests.web.workers import let_workers_work, use_sandbox

pytestmark = [pytest.mark.browser, pytest.mark.processes, pytest.mark.django_db(transaction=True)]

PDF = (Path(__file__).parent.parent / "cases" / "079-whole.pdf").read_bytes()
NEW_HTML = b"<!doctype html><h1>Invoice INV-0000</h1><p>Net 30 days, not 14.</p>"
AWAY = "The service was away after {} s."
#: Class, code, words and number of the documents that failed so; ids and numbers differ within a cause.
CAUSES = [
    (JobState.FAILED, FailureClass.TRANSIENT, "", AWAY, 18),
    (JobState.FAILED, FailureClass.RENDER_FAILED, "RENDER_TIMEOUT", "Page {} did not settle.", 8),
    (JobState.FAILED, FailureClass.INVALID_INPUT, "VALIDATION_ERROR", "options.scale of row {} is above 2.", 7),
    (JobState.DEADLINE_EXCEEDED, FailureClass.DEADLINE_EXCEEDED, "", "No end after {} s.", 4),
    (JobState.EXPIRED, FailureClass.EXPIRED, "", "The link of job {} is gone.", 3),
    (JobState.UNKNOWN, FailureClass.UNKNOWN_OUTCOME, "", "The answer was lost after {} ms.", 2),
]


@pytest.fixture
def month_end(workspace: Workspace, account: ProviderAccount, sandbox: SandboxProcess) -> Batch:
    """300 documents: 256 saved, 42 failed from six causes, 2 under way."""
    use_sandbox(account, sandbox)
    with transaction.atomic():
        batch = make_batch(workspace=workspace, account=account, name="Invoices of October")
        for n in range(256):
            job = make_saved_job(batch=batch, business_id=f"INV-{n:04}")
            store_pdf(job, PDF) if n == 0 else None
        n = 256
        for state, failure_class, code, words, count in CAUSES:
            for _ in range(count):
                fail(batch, n, state, failure_class, code, words)
                n += 1
        for n in (298, 299):
            make_job(batch=batch, business_id=f"INV-{n:04}", due_at=timezone.now() + timedelta(days=300))
    return batch


def fail(batch: Batch, n: int, state: str, failure_class: str, code: str, words: str) -> None:
    failure = {"failure_class": failure_class, "failure_code": code, "failure_words": words.format(n)}
    job = make_job(batch=batch, business_id=f"INV-{n:04}", state=state, **failure)
    if state == JobState.UNKNOWN:
        sent = timezone.now() - timedelta(hours=2)
        make_submission(job=job, first_sent_at=sent, last_sent_at=sent, resend_until=sent + timedelta(hours=1))
    elif state in (JobState.DEADLINE_EXCEEDED, JobState.EXPIRED):
        make_submission(job=job, provider_job_id=f"pdf_{n:016x}", accepted_at=timezone.now(), in_doubt=False)


def accepted_unheard(job: Job) -> str:
    """Have the provider take the job's submission, with nobody told but by a webhook that says little; its id."""
    providers, submission = Providers(), job.submissions.get()
    provider = providers.of(job.account)
    text = bytes(job.version.input_inline or b"").decode()
    request = provider.prepare(DocumentSource(kind="html", text=text))
    key, now = submission.idempotency_key, timezone.now()
    answer = provider.submit(request, idempotency_key=key, now=now, gate=lambda: None)
    providers.close()
    assert isinstance(answer, Accepted)
    Submission.objects.filter(pk=submission.pk).update(body_inline=request.body)
    seen = submission.first_sent_at + timedelta(seconds=5)
    make_event(account=job.account, at=seen, provider_job_id=answer.provider_job_id, outcome="unmatched")
    return answer.provider_job_id


def cause(page: Page, title: str) -> Locator:
    return page.locator(".cause", has=page.get_by_role("heading", name=title))


Look = Callable[[Page, str], None]


def test_the_tour_of_repairing_a_batch(
    browser: Browser, live_server: Any, workspace: Workspace, month_end: Batch, sandbox: SandboxProcess
) -> None:
    make_member(workspace, "a.manager", "manager")
    with chrome.watched(browser, str(live_server.url)) as page:
        chrome.sign_in(page, "a.manager", PASSWORD)
        tour(page, month_end, sandbox, lambda shown, _name: chrome.whole(shown))


def tour(page: Page, batch: Batch, sandbox: SandboxProcess, look: Look) -> None:
    """All steps in their order; `look` is called wherever a person would stop and read."""
    find_the_causes(page, batch, look)
    retry_one_cause_by_keyboard(page, batch, look)
    failed_again(batch)
    page.goto(f"/batches/{batch.public_id}/")
    retried = cause(page, "Service trouble")
    expect(retried).to_contain_text("18 retried by a.manager")
    expect(retried).to_contain_text(": 18 saved.")
    expect(retried).to_contain_text("2 new failures joined since.")
    look(page, "causes-after-retry")
    assert sandbox.ledger()["totals"]["jobs_billed"] == 18
    lost, unheard = Job.objects.filter(state=JobState.UNKNOWN).order_by("pk").select_related("version__document")
    reconcile_without_evidence(page, lost, look)
    reconcile_with_evidence(page, unheard, look)
    assert sandbox.ledger()["totals"]["jobs_billed"] == 19
    document = regenerate_with_other_html(page, batch, look)
    assert sandbox.ledger()["totals"]["jobs_billed"] == 20
    open_both_versions(page, document, look)
    read_the_audit_log(page, unheard, look)


def find_the_causes(page: Page, batch: Batch, look: Look) -> None:
    page.click("text=Invoices of October")
    expect(page.locator("#count-failed .nums")).to_have_text("42")
    expect(page.locator(".cause")).to_have_count(5)
    page.click("text=1 more cause")
    expect(page.locator(".cause")).to_have_count(6)
    expect(page.locator(".cause .count")).to_have_text(["18", "8", "7", "4", "3", "2"])
    expect(cause(page, "Service trouble")).to_contain_text("6 % of the batch")
    expect(cause(page, "Service trouble")).to_contain_text("Retry these 18 (bills 0 to 18)")
    expect(cause(page, "Expired at the provider")).to_contain_text("Fetch these 3 again (free)")
    look(page, "causes")


def retry_one_cause_by_keyboard(page: Page, batch: Batch, look: Look) -> None:
    chrome.tab_to(page, cause(page, "Service trouble").get_by_role("button", name="Retry these 18"))
    page.keyboard.press("Enter")
    page.wait_for_url("**/actions/act_*/")
    expect(page.locator("#head")).to_contain_text("Cause: Service trouble")
    expect(page.locator(".facts")).to_contain_text("18 of 18 that matched")
    expect(page.locator(".facts")).to_contain_text("bills 0 to 18")
    look(page, "plan")
    expect(page.get_by_label("Reason")).to_be_focused()
    page.keyboard.type("The service is well again.")
    chrome.tab_to(page, page.get_by_role("button", name="Retry: 18 documents"))
    page.keyboard.press("Enter")
    expect(page.locator("#head .badge")).to_have_text("Running")
    look(page, "running")
    let_workers_work()
    expect(page.locator("#head .badge")).to_have_text("Finished")
    expect(page.locator(".sentence")).to_have_text("18 done, 0 skipped.")
    look(page, "finished")


def failed_again(batch: Batch) -> None:
    """The last two of the batch fail as those did that were retried."""
    for item in batch.items.filter(position__gte=298):
        words = AWAY.format(item.position)
        Job.objects.filter(version=item.version_id).update(
            state=JobState.FAILED,
            failure_class=FailureClass.TRANSIENT,
            failure_words=words,
            failure_cause=fingerprint(FailureClass.TRANSIENT, "", words),
        )


def reconcile_without_evidence(page: Page, lost: Job, look: Look) -> None:
    """On a phone: nothing is known, the provider cannot say, and what is left is said with its price."""
    page.set_viewport_size(chrome.NARROW)
    page.goto(f"/documents/{lost.version.document.public_id}/")
    refused = page.locator(".is-refused", has=page.get_by_role("button", name="Retry"))
    expect(refused.locator(".hint")).to_be_visible()
    expect(refused.locator(".hint")).to_contain_text("sending it could bill a second time. Reconcile it.")
    look(page, "unknown-phone")
    page.locator(".ways").get_by_role("link", name="Reconcile").click()
    expect(page.locator("#verdict")).to_contain_text("Cannot be known")
    page.click("text=Ask the provider")
    expect(page.locator("#main")).to_contain_text("offers no look-up by key")
    expect(page.locator("#verdict")).to_contain_text("Cannot be known")
    expect(page.get_by_role("link", name="Regenerate")).to_be_visible()
    expect(page.get_by_role("button", name="Retry")).to_have_count(0)
    look(page, "reconcile-without-phone")
    page.set_viewport_size(chrome.WIDE)


def reconcile_with_evidence(page: Page, unheard: Job, look: Look) -> None:
    """A webhook named a job that nobody knew; it is looked at, adopted, fetched and saved."""
    made = accepted_unheard(unheard)
    page.goto(f"/documents/{unheard.version.document.public_id}/reconcile/")
    expect(page.locator("#main")).to_contain_text("named by a webhook")
    assert made not in page.content()
    look(page, "reconcile-with")
    page.locator("form", has=page.locator("input[name=candidate]")).get_by_role("button", name="Look at it").click()
    expect(page.locator(".proven")).to_contain_text("exists at this account")
    look(page, "inspection")
    page.fill("#reason", "The webhook came five seconds after it was sent.")
    page.get_by_role("button", name="Adopt it").click()
    expect(page.locator(".banner")).to_contain_text("adopted")
    look(page, "adopted")
    let_workers_work()
    page.goto(f"/documents/{unheard.version.document.public_id}/")
    expect(page.locator("#head .badge").first).to_have_text("Saved")
    look(page, "adopted-saved")


def regenerate_with_other_html(page: Page, batch: Batch, look: Look) -> str:
    page.goto(f"/batches/{batch.public_id}/?state=saved&q=INV-0000")
    page.click("#row-0 .row-link")
    look(page, "beside-the-list")
    page.locator("#drawer").get_by_role("link", name="Regenerate").click()
    address = page.url.removesuffix("regenerate/")
    page.fill("#id_reason", "The terms had changed.")
    page.check("input[value=upload]")
    page.set_input_files("#id_file", files=[{"name": "new.html", "mimeType": "text/html", "buffer": NEW_HTML}])
    look(page, "regenerate")
    page.get_by_role("button", name="Regenerate as version 2").click()
    expect(page.locator("#head")).to_contain_text("Version 2")
    let_workers_work()
    expect(page.locator("#head .badge").first).to_have_text("Saved")
    look(page, "version-2")
    return address


def open_both_versions(page: Page, address: str, look: Look) -> None:
    """Each opens as the bytes that were stored for it, the first one unchanged."""
    stored = {}
    for number in (1, 2):
        page.goto(f"{address}?version={number}")
        shown = re.compile(rf"^/documents/{key_of(address)}/v{number}\.pdf")
        expect(page.locator("iframe.preview")).to_have_attribute("src", shown)
        answer = page.request.get(f"{address}v{number}.pdf")
        stored[number] = answer.body()
    assert stored[1] == PDF
    assert stored[2].startswith(b"%PDF-")
    assert stored[2] != PDF
    page.click("text=Changes from version 1")
    expect(page.locator(".diff .added").first).to_contain_text("Net 30 days, not 14.")
    look(page, "diff")


def key_of(address: str) -> str:
    return address.rstrip("/").rpartition("/")[2]


def read_the_audit_log(page: Page, unheard: Job, look: Look) -> None:
    page.get_by_text("More", exact=True).click()
    page.get_by_role("link", name="Audit", exact=True).click()
    shown = page.locator("table.audit")
    for words in (
        "Confirmed a bulk action:",
        "Finished a bulk action:",
        "“The service is well again.”",
        "Reconcile",
        "Adopted a provider job for",
        "“The webhook came five seconds after it was sent.”",
        "Regenerate",
        "“The terms had changed.”",
        "Looked at the PDF of",
        "Compared versions of",
    ):
        expect(shown).to_contain_text(words)
    look(page, "audit")
    shown.locator("tr", has_text="Finished a bulk action:").get_by_role("link").click()
    expect(page.locator("#head")).to_contain_text("Retry 18 documents")
    page.get_by_text("More", exact=True).click()
    page.get_by_role("link", name="Audit", exact=True).click()
    page.fill("#f-subject", unheard.version.document.public_id)
    page.click("button:text-is('Filter')")
    expect(shown.locator("tbody tr").filter(has_text="Adopted")).to_have_count(1)
    expect(shown).not_to_contain_text("Confirmed a bulk action")
    expect(shown).to_contain_text("a.manager")
    look(page, "audit-of-one")


def test_a_plan_its_confirmation_and_a_verb_work_without_scripts(
    browser: Browser, live_server: Any, workspace: Workspace, batch: Batch
) -> None:
    make_member(workspace, "m.okoye", "operator")
    fail(batch, 1, *CAUSES[0][:4])
    with chrome.watched(browser, str(live_server.url), java_script_enabled=False) as page:
        chrome.sign_in(page, "m.okoye", PASSWORD)
        page.goto(f"/batches/{batch.public_id}/")
        page.get_by_role("button", name="Retry this one").click()
        page.fill("#reason", "The service is well again.")
        page.get_by_role("button", name="Retry: 1 document").click()
        tasks.carry_out()
        page.reload()
        expect(page.locator("#head .badge")).to_have_text("Finished")
        page.click("tbody .row-link")
        page.fill("#reason-cancel", "Not needed.")
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("#main")).to_contain_text("It is cancelled, and is not sent for this batch.")


def test_ticked_rows_say_what_they_may_bill_together(
    browser: Browser, live_server: Any, workspace: Workspace, batch: Batch
) -> None:
    make_member(workspace, "a.manager", "manager")
    for n in range(3):
        fail(batch, n, *CAUSES[0][:4])
    with chrome.watched(browser, str(live_server.url)) as page:
        chrome.sign_in(page, "a.manager", PASSWORD)
        page.goto(f"/batches/{batch.public_id}/")
        price = page.locator("[data-ticked-price]")
        for number, verb, words in ((0, "retry", "bills 0 or 1"), (1, "retry", "bills 0 to 2"), (2, "dismiss", "free")):
            page.locator(f"#row-{number} .tick").check()
            page.select_option("#ticked-verb", verb)
            expect(price).to_have_text(words)
        page.select_option("#ticked-verb", "regenerate")
        expect(price).to_have_text("bills 3")
