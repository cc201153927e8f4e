"""The batch page: sentence, counters, failed items, the table with its filters, and the live fragment."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from batches import selectors
from batches.engine import audit, pacing, running, settled
from batches.models import (
    ACTIVE_STATES,
    Artifact,
    Batch,
    Document,
    FailureClass,
    Job,
    JobState,
    Lane,
    PacingLane,
    ProviderAccount,
    PumpSlot,
)
from tests.factories import NOW, make_accepted_job, make_job, make_saved_job
from tests.web.test_causes import act, fail


def page_of(batch: Batch) -> str:
    return f"/batches/{batch.public_id}/"


def ids(page: str) -> list[str]:
    return re.findall(r'class="row-link"[^>]*>([^<]*)</a>', page)


def counter(page: str, key: str) -> int:
    found = re.search(rf'id="count-{key}".*?<span class="nums">([\d,]+)</span>', page, re.S)
    assert found is not None
    return int(found[1].replace(",", ""))


def test_the_counters_add_up_and_lead_to_their_rows(batch: Batch, operator: Client) -> None:
    make_saved_job(batch=batch, business_id="S-1")
    make_saved_job(batch=batch, business_id="S-2")
    make_job(batch=batch, business_id="P-1")
    make_accepted_job(batch=batch, business_id="A-1")
    make_job(batch=batch, state=JobState.EXPIRED, business_id="F-1")
    make_job(batch=batch, state=JobState.CANCELLED, business_id="C-1")
    page = operator.get(page_of(batch)).text
    numbers = {key: counter(page, key) for key in ("saved", "in_progress", "held", "failed", "cancelled")}
    assert numbers == {"saved": 2, "in_progress": 2, "held": 0, "failed": 1, "cancelled": 1}
    assert counter(page, "all") == sum(numbers.values())
    assert ids(page) == ["S-1", "S-2", "P-1", "A-1", "F-1", "C-1"]
    for key, number in numbers.items():
        assert len(ids(operator.get(page_of(batch), {"state": key}).text)) == number
    assert 'aria-label="2 of 6 saved, 1 in progress, 1 waiting, 1 failed, 1 cancelled"' in page


def test_the_sentence_says_what_happens_and_what_is_needed(batch: Batch, operator: Client) -> None:
    make_accepted_job(batch=batch)
    make_job(batch=batch)
    make_job(batch=batch, state=JobState.FAILED)
    page = operator.get(page_of(batch)).text
    assert "Rendering: 1 at the provider, 1 waiting for its turn at 20 a second. 1 document needs a person." in page


@pytest.mark.parametrize("verb", [running.pause, running.cancel])
def test_what_a_person_stopped_looks_so_while_the_provider_still_works_on_it(
    verb: Any, batch: Batch, operator: Client
) -> None:
    make_accepted_job(batch=batch)
    make_job(batch=batch)
    drawn = operator.get("/batches/").text
    verb(batch.pk, reason="wrong prices", by=audit.By(None, "root (command line)", "command line"), now=NOW)
    word = {running.pause: "Paused", running.cancel: "Cancelled"}[verb]
    head, rest = operator.get(page_of(batch)).text.split("</h1>", 1)
    assert [head.count(f"</svg>{label}</span>") for label in ("Running", word)] == [1, 1]
    assert f"{word} because: wrong prices; 1 " in rest
    assert f"</svg>{word}</span>" in operator.get("/batches/").text
    row = re.search(r'data-row="([^"]*)"', drawn)
    assert row is not None
    assert f"</svg>{word}</span>" in operator.get("/batches/live/", {"rows": row[1]}).text, (
        "also on a list that is open"
    )


def test_a_batch_that_was_started_by_a_command_names_who_did(batch: Batch, operator: Client) -> None:
    by = audit.By(None, "root (command line)", "command line")
    audit.record(
        "start_batch",
        subject=f"batch {batch.public_id}",
        workspace=batch.workspace,
        by=by,
        now=batch.created_at,
    )
    assert "by root (command line)" in operator.get(page_of(batch)).text
    assert "· root (command line)" in operator.get("/batches/").text


def test_a_document_that_waits_after_a_failed_render_says_what_failed(batch: Batch, operator: Client) -> None:
    make_job(batch=batch, failure_words="No font has these letters.")
    assert "Not rendered so far: No font has these letters." in operator.get(page_of(batch)).text


def test_failed_items_stand_by_name_with_reason_and_what_to_do(batch: Batch, operator: Client) -> None:
    for n in range(7):
        make_job(
            batch=batch,
            state=JobState.FAILED,
            business_id=f"INV-{n}",
            failure_words=f"Line {n} is too wide.",
            failure_code="E422",
        )
    make_job(batch=batch, state=JobState.UNKNOWN, business_id="INV-9", failure_words="The connection was lost.")
    page = operator.get(page_of(batch)).text
    section = page.split('class="causes"')[1].split("</section>")[0]
    assert section.index("Rendering failed") < section.index("Not known if accepted")
    assert "INV-4" in section
    assert "INV-5" not in section
    assert "Line 0 is too wide." in section
    assert "and 2 more" in section
    assert "Retry (bills 0 or 1) once it has said twice that it was not billed" in section
    assert "Reconcile (free) collects what is known of it" in section


def test_the_rest_of_a_cause_is_one_step_away(batch: Batch, operator: Client) -> None:
    for n in range(7):
        make_job(batch=batch, state=JobState.FAILED, business_id=f"INV-{n}", failure_code="E422")
    make_job(batch=batch, state=JobState.FAILED, business_id="OTHER", failure_code="E500")
    more = re.search(r'href="([^"]*)">and 2 more', operator.get(page_of(batch)).text)
    assert more is not None
    address = more[1].replace("&amp;", "&")
    assert address.endswith("#documents")
    narrowed = operator.get(address).text
    assert ids(narrowed) == [f"INV-{n}" for n in range(7)]
    assert "Failed: rendering failed" in narrowed
    assert 'action="#documents"' in narrowed
    assert f'name="cause" value="{Job.objects.filter(failure_code="E422")[0].failure_cause}"' in narrowed


def test_a_hold_without_a_full_stop_does_not_run_into_the_advice(batch: Batch, operator: Client) -> None:
    make_job(batch=batch)
    ProviderAccount.objects.update(health="held", hold_reason="person", held_at=NOW, hold_words="month end")
    assert "(held by a person): month end.</p>" in operator.get(page_of(batch)).text


def test_dismissed_failures_are_counted_and_no_longer_listed(batch: Batch, operator: Client) -> None:
    make_job(batch=batch, state=JobState.FAILED, business_id="INV-1")
    batch.items.update(dismissed_at=NOW, dismissed_note="Sent by post.")
    page = operator.get(page_of(batch)).text
    assert counter(page, "failed") == 1
    assert "Needs a person" not in page.split("<main")[1]


def test_a_held_account_is_told_on_the_page(batch: Batch, operator: Client) -> None:
    make_job(batch=batch)
    ProviderAccount.objects.update(health="held", hold_reason="auth", held_at=NOW, hold_words="The key was refused.")
    page = operator.get(page_of(batch)).text
    assert "Nothing is sent while" in page
    assert "The key was refused." in page
    assert counter(page, "held") == 1


def test_a_held_account_is_told_while_its_accepted_work_goes_on(batch: Batch, operator: Client) -> None:
    make_accepted_job(batch=batch)
    ProviderAccount.objects.update(health="held", hold_reason="auth", held_at=NOW, hold_words="The key was refused.")
    for path in (page_of(batch), "/"):
        assert "The key was refused." in operator.get(path).text


def test_a_pause_that_the_service_asked_for_is_told_with_its_end(batch: Batch, operator: Client) -> None:
    make_job(batch=batch)
    until = timezone.now() + timedelta(seconds=90)
    pacing.cool_down(batch.account_id, Lane.SUBMIT, until)
    told = f"Waiting for the service until {until:%H:%M:%S} UTC"
    assert told in operator.get(page_of(batch)).text
    PacingLane.objects.update(cool_down_until_us=1)
    assert "Waiting for the service" not in operator.get(page_of(batch)).text
    pacing.cool_down(batch.account_id, Lane.SUBMIT, until)
    Job.objects.update(state="accepted", deadline_at=NOW)
    assert told not in operator.get(page_of(batch)).text, "nothing of it waits to be sent"


def test_paging_goes_through_all_rows_forth_and_back(batch: Batch, operator: Client) -> None:
    for n in range(120):
        make_job(batch=batch, business_id=f"INV-{n:03}")
    address, pages = page_of(batch), []
    while address:
        page = operator.get(address).text
        pages.append(ids(page))
        onward = re.search(r'href="([^"]*after=[^"]*)">Next', page)
        back = re.search(r'href="([^"]*before=[^"]*)">', page)
        address = onward[1].replace("&amp;", "&") if onward else ""
    assert [len(rows) for rows in pages] == [50, 50, 20]
    assert [name for rows in pages for name in rows] == [f"INV-{n:03}" for n in range(120)]
    assert back is not None
    middle = operator.get(back[1].replace("&amp;", "&")).text
    assert ids(middle) == pages[1]
    first = re.search(r'href="([^"]*before=[^"]*)">', middle)
    assert first is not None
    page = operator.get(first[1].replace("&amp;", "&")).text
    assert ids(page) == pages[0]
    assert "Previous" not in page


def test_the_number_of_queries_does_not_depend_on_the_rows(
    batch: Batch, operator: Client, django_assert_num_queries: Any
) -> None:
    make_saved_job(batch=batch)
    make_job(batch=batch, state=JobState.FAILED)
    with CaptureQueriesContext(
        connection,
    ) as few:
        operator.get(page_of(batch))
    for _ in range(20):
        make_saved_job(batch=batch)
        make_job(batch=batch, state=JobState.FAILED)
    with django_assert_num_queries(len(few)):
        operator.get(page_of(batch))
    assert len(few) <= 15


def half_done(batch: Batch) -> str:
    """Documents in every state, seven causes with something done about each of them, odd PDFs, and another account
    that is held; the key of one cause."""
    ProviderAccount.objects.create(name="Other", slug="other", health="held", held_at=NOW, hold_reason="auth")
    PumpSlot.objects.update_or_create(number=0, defaults={"heartbeat_at": timezone.now()})
    for _ in range(6):
        odd = make_saved_job(batch=batch).version.artifact
        Artifact.objects.filter(pk=odd.pk).update(notice="small", notice_words="It is small.")
        make_accepted_job(batch=batch)
        make_job(batch=batch, lead_batch=batch)
    for number, word in enumerate(("ash", "birch", "cedar", "elm", "fir", "larch", "oak"), start=1):
        failed = fail(batch, FailureClass.RENDER_FAILED, f"No {word} left.", count=4)
        act(batch, failed, number=number)
    return failed[0].failure_cause


@pytest.mark.parametrize("is_at_rest", [False, True])
def test_each_part_of_the_page_asks_at_most_15_queries_half_done_and_at_rest(
    batch: Batch, operator: Client, django_assert_max_num_queries: Any, is_at_rest: bool
) -> None:
    cause = half_done(batch)
    if is_at_rest:
        moving = Job.objects.filter(state__in=ACTIVE_STATES)
        moving.update(state=JobState.CANCELLED, deadline_at=None, lead_batch=None)
        for later in (timedelta(), 2 * settled.SETTLES_AFTER):
            settled.settle(now=NOW + later)
    ProviderAccount.objects.filter(pk=batch.account_id).update(price_per_job="0.0013", price_currency="USD")
    operator.get("/help/")  # the first request of a session writes down when it began
    for query in ("", "?state=failed", "?state=failed&after=20", f"?state=failed&cause={cause}"):
        with django_assert_max_num_queries(15):
            page = operator.get(f"{page_of(batch)}{query}")
        assert len(page.context["page"].rows) >= 4
        assert len(page.context["causes"].shown) == 5
    assert page.context["bulk"].matching == 4
    with django_assert_max_num_queries(14):
        live = operator.get(f"{page_of(batch)}live/", {"state": "failed", "rows": "0.00,20.00"})
    assert len(live.context["changed_rows"]) == 2


@pytest.mark.parametrize(
    ("q", "found"),
    [
        ("inv-1", ["INV-1", "INV-11"]),
        ("2", ["Second"]),  # the second row; where ids hold it, those too
        ("too wide", ["INV-11"]),
        ("e422", ["INV-11"]),
        ("pdf_secret_77", ["Second"]),
        ("pdf_secret", []),
        ("zzz", []),
        ("\0", []),
        ("INV-1\0", []),
        ("%", []),
        ("9" * 40, []),
    ],
)
def test_search(q: str, found: list[str], batch: Batch, operator: Client) -> None:
    make_saved_job(batch=batch, business_id="INV-1")
    make_accepted_job(batch=batch, business_id="Second", provider_job_id="pdf_secret_77")
    failed = {"failure_words": "The table is too wide.", "failure_code": "E422"}
    make_job(batch=batch, state=JobState.FAILED, business_id="INV-11", **failed)
    assert ids(operator.get(page_of(batch), {"q": q}).text) == found


def test_a_search_that_finds_nothing_says_so(batch: Batch, operator: Client) -> None:
    make_job(batch=batch)
    page = operator.get(page_of(batch), {"q": "zzz", "state": "in_progress"}).text
    assert "No document is in progress and matches “zzz”" in page


@pytest.mark.parametrize(
    "query",
    [
        "state=%00",
        "state=failed&cause=%00",
        "state=failed&cause=x",
        "state=failed&cause=render_failed:E422",
        "state=failed&cause=0123456789abcdef",
        "causes=all",
        "cause=x",
        "after=-1",
        "after=%00",
        "before=99999999999",
        "state=saved&after=0",
        "q=%ff",
    ],
)
def test_nonsense_in_the_address_breaks_nothing(query: str, batch: Batch, operator: Client) -> None:
    make_job(batch=batch)
    assert operator.get(f"{page_of(batch)}?{query}").status_code == 200


def test_markup_in_ids_and_reasons_is_text(batch: Batch, operator: Client) -> None:
    hostile = ["<img src=x onerror=alert(1)>", '"><svg onload=alert(2)>', "{{ 7|add:7 }}", "javascript:alert(4)"]
    for business_id in hostile:
        make_job(
            batch=batch, state=JobState.FAILED, business_id=business_id, failure_words="</td><script>alert(5)</script>"
        )
    page = operator.get(page_of(batch)).text
    assert "<img src=x" not in page
    assert "<svg onload" not in page
    assert "<script>alert" not in page
    assert "{{ 7|add:7 }}" in page
    for document in Document.objects.all():
        text = operator.get(f"/documents/{document.public_id}/").text
        assert "<img src=x" not in text
        assert "<svg onload" not in text
        assert "<script>alert" not in text
        assert 'href="javascript:' not in text


# --- live -------------------------------------------------------------------------------------------------------------


def drawn(page: str) -> dict[str, str]:
    """What the page's script would send back of itself."""
    parts = dict(re.findall(r'data-revision-name="(\w+)" data-revision="(\w+)"', page))
    matching = re.search(r'data-matching="(\d+)"', page)
    assert matching is not None
    return parts | {"rows": ",".join(re.findall(r'data-row="([^"]*)"', page)), "matching": matching[1]}


def test_live_says_nothing_while_nothing_changed(batch: Batch, operator: Client) -> None:
    make_accepted_job(batch=batch)
    make_job(batch=batch, state=JobState.FAILED)
    page = operator.get(page_of(batch)).text
    answer = operator.get(f"{page_of(batch)}live/", drawn(page))
    assert (answer.status_code, answer.content) == (204, b"")


def test_live_sends_the_summary_and_only_the_rows_that_changed(batch: Batch, operator: Client) -> None:
    job = make_accepted_job(batch=batch, business_id="INV-0")
    make_accepted_job(batch=batch, business_id="INV-1")
    before = operator.get(page_of(batch)).text
    job.state = JobState.RENDERED
    job.save()
    answer = operator.get(f"{page_of(batch)}live/", drawn(before)).text
    assert 'id="row-0"' in answer
    assert 'id="row-1"' not in answer
    assert "1 being fetched" in answer
    assert 'id="notices"' not in answer
    assert "ended" not in answer


def test_live_brings_new_failures_and_stops_at_the_end(batch: Batch, operator: Client) -> None:
    job = make_accepted_job(batch=batch, business_id="INV-0")
    before = operator.get(page_of(batch)).text
    job.state, job.failure_class, job.failure_words = JobState.FAILED, "render_failed", "Too wide."
    job.save()
    answer = operator.get(f"{page_of(batch)}live/", drawn(before)).text
    assert 'data-announce="Failed. 1 document needs a person."' in answer
    assert 'id="notices"' in answer
    assert "Too wide." in answer
    assert 'class="live ended"' in answer
    assert "data-live=" not in answer


def test_live_counts_what_a_filtered_list_would_gain_or_lose(batch: Batch, operator: Client) -> None:
    waiting = [make_job(batch=batch) for _ in range(3)]
    before = operator.get(page_of(batch), {"state": "in_progress"}).text
    for job in waiting[:2]:
        job.state = JobState.SAVED
        job.save()
    answer = operator.get(f"{page_of(batch)}live/", {"state": "in_progress", **drawn(before)}).text
    assert "2 changed since this list was drawn; refresh" in answer
    before = operator.get(page_of(batch), {"state": "failed"}).text
    waiting[2].state, waiting[2].failure_class = JobState.FAILED, "render_failed"
    waiting[2].save()
    answer = operator.get(f"{page_of(batch)}live/", {"state": "failed", **drawn(before)}).text
    assert "1 changed since this list was drawn; refresh" in answer


@pytest.mark.parametrize("rows", ["", "\0", "a.b.c", "1.zz", "99999999999999999999.ab", ",".join(["1.ab"] * 500)])
def test_live_bears_nonsense(rows: str, batch: Batch, operator: Client) -> None:
    make_job(batch=batch)
    assert operator.get(f"{page_of(batch)}live/", {"rows": rows}).status_code == 200


def test_live_brings_a_new_reason_of_a_hold_and_of_a_failure(batch: Batch, operator: Client) -> None:
    make_job(batch=batch)
    failed = make_job(batch=batch, state=JobState.FAILED, failure_words="Too wide.")
    ProviderAccount.objects.update(health="held", hold_reason="person", held_at=NOW, hold_words="Month end.")
    before = operator.get(page_of(batch)).text
    assert 'id="notices"' not in operator.get(f"{page_of(batch)}live/", drawn(before)).text
    ProviderAccount.objects.update(hold_words="Year end.")
    answer = operator.get(f"{page_of(batch)}live/", drawn(before)).text
    assert "Year end." in answer.split('id="notices"')[1]
    before = operator.get(page_of(batch)).text
    failed.failure_words = "Too long."
    failed.save()
    answer = operator.get(f"{page_of(batch)}live/", drawn(before)).text
    assert "Too long." in answer.split('id="notices"')[1]


def test_large_batches_are_asked_less_often(batch: Batch, operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    make_accepted_job(batch=batch)
    assert 'data-live="2"' in operator.get(page_of(batch)).text
    monkeypatch.setattr(selectors.Counts, "total", property(lambda counts: 100_000))
    assert 'data-live="5"' in operator.get(page_of(batch)).text
