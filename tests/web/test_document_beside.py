"""What stands around a document: its short form beside a list, what moved it, notes, attempts that came to nothing."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from batches.engine import audit
from batches.models import AuditEntry, Batch, BatchItem, DocumentNote, JobState, Role, WebhookOutcome, Workspace
from tests.factories import NOW, make_accepted_job, make_event, make_job, make_saved_job, make_submission
from tests.web.conftest import make_member, signed_in
from tests.web.test_document_detail import event, exchange, page_of

BESIDE = {"HX-Request": "true", "HX-Target": "drawer-body"}


def timeline(client: Client, address: str) -> list[str]:
    """The words of each entry, without markup."""
    section = client.get(address).text.split('<ol class="timeline">')[1].split("</ol>")[0]
    return [" ".join(re.sub("<[^>]*>", " ", entry).split()) for entry in section.split("<li")[1:]]


def test_a_row_opens_beside_its_list_from_the_address_of_its_page(batch: Batch, operator: Client) -> None:
    jobs = [make_job(batch=batch, business_id=f"INV-{n}") for n in range(3)]
    rows = operator.get(f"/batches/{batch.public_id}/").text
    link = re.search(r'data-drawer="INV-1" id="open-1" href="([^"]*)"', rows)
    assert link
    address = link[1].replace("&amp;", "&")
    page, panel = operator.get(address), operator.get(address, headers=BESIDE)
    assert "<html" in page.text
    assert panel.text.startswith('<article class="beside" data-panel>')
    assert "HX-Target" in page["Vary"]
    assert "HX-Target" in panel["Vary"]
    for n, rel in ((0, "prev"), (2, "next")):
        assert f'rel="{rel}" data-drawer="INV-{n}" href="{page_of(jobs[n])}' in panel.text
    # What the page of the batch names is named once: its live parts are put where they belong.
    named = set(re.findall(r' id="([^"]*)"', rows)) & set(re.findall(r' id="([^"]*)"', panel.text))
    assert named == set()


def test_what_failed_opens_beside_every_list_of_it(batch: Batch, operator: Client) -> None:
    job = make_job(batch=batch, state=JobState.FAILED, business_id="INV-1", failure_words="Line 3 is too wide.")
    assert 'data-drawer="INV-1"' in operator.get("/failed/").text
    assert operator.get(f"/batches/{batch.public_id}/").text.count('data-drawer="INV-1"') == 2
    panel = operator.get(page_of(job), headers=BESIDE).text
    assert "Line 3 is too wide." in panel
    assert f'href="{page_of(job)}?#verb-retry"' in panel
    assert 'href="#' not in panel


def test_the_panel_shows_nothing_that_the_page_would_not(batch: Batch, viewer: Client, outsider: Client) -> None:
    job = make_saved_job(batch=batch)
    panel = viewer.get(page_of(job), headers=BESIDE).text
    assert "<article" in panel
    assert [words for words in (".pdf", ".png", "New note") if words in panel] == []
    assert outsider.get(page_of(job), headers=BESIDE).status_code == 404


def test_the_timeline_says_what_moved_it_where_that_is_known(batch: Batch, operator: Client) -> None:
    job = make_accepted_job(batch=batch, provider_job_id="pdf_1")
    event(job, 1, "pending", "submitting", reason="intent_committed")
    event(job, 2, "submitting", "accepted", reason="accepted")
    exchange(job, 4, "poll", 200)
    event(job, 4.1, "accepted", "rendered", reason="provider_job_finished")
    event(job, 5, "rendered", "accepted", reason="not_finished_after_all")
    make_event(
        account=batch.account,
        at=NOW + timedelta(seconds=6),
        provider_job_id="pdf_1",
        type="pdf.completed",
        outcome=WebhookOutcome.WOKE,
    )
    exchange(job, 6.2, "poll", 200)
    event(job, 6.3, "accepted", "rendered", reason="provider_job_finished")
    event(job, 7, "rendered", "saved", reason="read")
    event(job, 9, "failed", "pending", reason="retry", actor="h.brandt")
    told = timeline(operator, page_of(job))
    assert [entry.rpartition(" by ")[2] for entry in told] == [
        told[0],  # nobody is known to have made it
        "a worker",
        "a worker",
        told[3],
        "a status read",
        "a worker",
        told[6],
        told[7],
        "a status read, after a webhook",
        told[9],  # a reason that tells of no single cause
        "h.brandt",
    ]
    assert "Webhook received +1.0 s pdf.completed: it had the status read at once." in told[6]


def test_the_timeline_tells_who_may_audit_it_what_people_did(
    batch: Batch, workspace: Workspace, operator: Client
) -> None:
    job = make_saved_job(batch=batch)
    document = job.version.document
    for subject in ("", " v1", " v1", " v2"):
        audit.record(
            "view_pdf" if subject else "mark_final",
            subject=f"document {document.public_id}{subject}",
            workspace=workspace,
            by=audit.By(None, "h.brandt", "192.0.2.1"),
            now=timezone.now(),
            reason="" if subject else "It was sent.",
        )
    manager = signed_in(make_member(workspace, "h.brandt", Role.MANAGER))
    told = [entry for entry in timeline(manager, page_of(job)) if "by h.brandt" in entry]
    assert len(told) == 2
    assert re.search("Marked as final .* It was sent", told[0])
    assert "Looked at the PDF of version 1 ×2" in told[1]
    assert "h.brandt" not in operator.get(page_of(job)).text


def test_an_operator_writes_a_note_that_stays(batch: Batch, operator: Client, viewer: Client) -> None:
    job = make_job(batch=batch, state=JobState.FAILED)
    BatchItem.objects.update(dismissed_at=NOW, dismissed_note="The customer left.")
    where = f"{page_of(job)}notes/?version=1"
    for _press in range(2):
        answer = operator.post(where, {"text": "  <b>Ask</b> first.\0 "})
    assert answer["Location"] == f"{page_of(job)}?version=1#document-notes"
    assert operator.post(where, {"text": " "}).status_code == 302
    assert viewer.post(where, {"text": "no"}).status_code == 403
    note = DocumentNote.objects.get()
    assert (note.author_words, note.text) == ("m.okoye", "<b>Ask</b> first.\ufffd")
    entry = AuditEntry.objects.get(action="write_note")
    assert "Ask" not in f"{entry.reason}{entry.facts}"
    for headers in ({}, BESIDE):
        shown = viewer.get(page_of(job), headers=headers).text.split('id="document-notes"')[1].split("</section>")[0]
        assert "&lt;b&gt;Ask&lt;/b&gt; first." in shown
        assert "m.okoye" in shown
        assert "The customer left." in shown


@pytest.mark.parametrize(("before", "words"), [(0, None), (2, "Earlier attempts (2)")])
def test_earlier_attempts_are_folded_away(before: int, words: str | None, batch: Batch, operator: Client) -> None:
    job = make_job(batch=batch)
    for n in range(before):
        make_submission(job=job, sequence=n + 1, outcome="refused", closed_at=NOW, in_doubt=False)
    make_submission(job=job, sequence=before + 1)
    page = operator.get(page_of(job)).text.split('id="evidence"')[1].split("</section>")[0]
    open_part, _, folded = page.partition("<details")
    assert f"Submission {before + 1}<" in open_part
    assert re.findall(r"<summary>([^<]*)", folded) == ([words] if words else [])
    assert re.findall(r"Submission (\d)", folded) == [str(n) for n in range(before, 0, -1)]


def test_revealing_an_earlier_attempt_unfolds_it(batch: Batch, workspace: Workspace) -> None:
    job = make_job(batch=batch)
    first = make_submission(
        job=job, sequence=1, outcome="render_failed", closed_at=NOW, provider_job_id="pdf_17", accepted_at=NOW
    )
    make_submission(job=job, sequence=2)
    client = signed_in(make_member(workspace, "h.brandt", Role.MANAGER))
    page = client.post(f"{page_of(job)}reveal/", {"submission": str(first.pk)}).text
    assert 'id="earlier" open>' in page
    assert "pdf_17" in page


def test_the_bar_can_be_read_as_a_table(batch: Batch, operator: Client) -> None:
    for n in range(3):
        make_saved_job(batch=batch, business_id=f"S-{n}")
    make_job(batch=batch, state=JobState.FAILED)
    table = operator.get(f"/batches/{batch.public_id}/").text.split('id="as-table"')[1].split("</details>")[0]
    rows = [" ".join(re.sub("<[^>]*>", " ", row).split()) for row in table.split("<tr>")[2:]]
    assert rows[0] == "Saved 3 75 %"
    assert [row for row in rows if row.endswith(" 1 25 %")] == [rows[1]]
    assert [row.split()[-3:] for row in rows[2:-1]] == [[*row.split()[-3:-2], "0", "%"] for row in rows[2:-1]]
    assert rows[-1] == "Total 4 100 %"
