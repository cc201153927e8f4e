"""The batch list: what it shows, finds and pages through, and its live rows."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from batches.models import Batch, JobState, ProviderAccount, Workspace
from tests.factories import (
    NOW,
    make_account,
    make_batch,
    make_job,
    make_saved_job,
)


def names(page: str) -> list[str]:
    return re.findall(r'class="row-link"[^>]*>([^<]*)</a>', page)


@pytest.fixture
def many(workspace: Workspace, account: ProviderAccount) -> list[Batch]:
    return [
        make_batch(workspace=workspace, account=account, name=f"Run {n:02}", created_at=NOW + timedelta(minutes=n // 2))
        for n in range(45)
    ]


def test_without_batches_it_says_how_to_start(operator: Client, viewer: Client) -> None:
    assert "Hand over a table" in operator.get("/batches/").text
    assert "ask an administrator" in viewer.get("/batches/").text


def test_paging_shows_each_batch_once_forth_and_back(many: list[Batch], operator: Client) -> None:
    newest_first = [batch.name for batch in sorted(many, key=lambda batch: (batch.created_at, batch.pk), reverse=True)]
    address, seen, pages = "/batches/", [], []
    while address:
        page = operator.get(address).text
        pages.append(names(page))
        seen += pages[-1]
        older = re.search(r'href="([^"]*after=[^"]*)">Older', page)
        newer = re.search(r'href="([^"]*before=[^"]*)">', page)
        address = older[1].replace("&amp;", "&") if older else ""
    assert seen == newest_first
    assert newer is not None
    assert names(operator.get(newer[1].replace("&amp;", "&")).text) == pages[-2]


def test_the_number_of_queries_is_the_same_for_one_batch_and_for_many(
    many: list[Batch], operator: Client, django_assert_max_num_queries: Any
) -> None:
    for batch in many[:12]:
        make_saved_job(batch=batch)
        make_job(batch=batch, state=JobState.FAILED)
        make_job(batch=batch)
    for query in ("", "?state=attention", "?state=unfinished"):
        with django_assert_max_num_queries(15):
            page = operator.get(f"/batches/{query}").text
        assert len(names(page)) >= 12


def test_search_finds_by_name_file_and_id(many: list[Batch], operator: Client) -> None:
    assert names(operator.get("/batches/", {"q": "run 07"}).text) == ["Run 07"]
    assert names(operator.get("/batches/", {"q": many[3].public_id}).text) == ["Run 03"]
    nothing = operator.get("/batches/", {"q": "<b>zzz"})
    assert "Nothing matches “&lt;b&gt;zzz”" in nothing.text


@pytest.mark.parametrize(
    "query", ["q=%00", "after=%00", "after=1-2-3", "before=99999999999999999-1", "view=%00", "q=%ff"]
)
def test_nonsense_in_the_address_breaks_nothing(query: str, many: list[Batch], operator: Client) -> None:
    assert operator.get(f"/batches/?{query}").status_code == 200


def test_views_narrow_the_list(workspace: Workspace, operator: Client) -> None:
    running, failed, done = (make_batch(workspace=workspace, name=name) for name in ("running", "failed", "done"))
    make_job(batch=running)
    make_job(batch=failed, state=JobState.FAILED)
    make_saved_job(batch=done)
    assert names(operator.get("/batches/?state=unfinished").text) == ["running"]
    assert names(operator.get("/batches/?state=attention").text) == ["failed"]


def test_a_batch_on_an_account_that_a_person_must_resume_needs_a_person(workspace: Workspace, operator: Client) -> None:
    for reason in ("person", "auth", "insufficient_credit", "unreachable"):
        account = make_account(health="held", hold_reason=reason, held_at=NOW)
        make_job(batch=make_batch(workspace=workspace, account=account, name=reason))
    assert set(names(operator.get("/batches/?state=attention").text)) == {"person", "auth", "insufficient_credit"}


def test_markup_in_names_is_text(workspace: Workspace, operator: Client) -> None:
    make_batch(workspace=workspace, name="<img src=x onerror=alert(1)>", manifest_name='"><svg onload=alert(2)>.json')
    page = operator.get("/batches/").text
    assert "<img src=x" not in page
    assert "<svg onload" not in page


def test_live_answers_with_changed_rows_only_and_ends_with_the_last_batch(
    workspace: Workspace, operator: Client
) -> None:
    batch = make_batch(workspace=workspace, name="Live one")
    job = make_job(batch=batch)
    drawn = re.search(r'data-row="([^"]*)"', operator.get("/batches/").text)
    assert drawn is not None
    assert operator.get("/batches/live/", {"rows": drawn[1]}).status_code == 204
    job.state = JobState.SAVED
    job.save()
    answer = operator.get("/batches/live/", {"rows": drawn[1]})
    assert answer.status_code == 200
    assert f'id="row-{batch.public_id}"' in answer.text
    assert 'hx-swap-oob="true"' in answer.text
    assert 'class="live ended"' in answer.text
