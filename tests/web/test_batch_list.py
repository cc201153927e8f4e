"""The batch list: what it shows, finds and pages through, and its live rows."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from batches.models import Alert, Batch, JobState, ProviderAccount, Role, Workspace
from tests.factories import (
    NOW,
    make_account,
    make_batch,
    make_bulk_action,
    make_job,
    make_saved_job,
    make_workspace,
)
from tests.web.conftest import make_member, signed_in


def names(page: str) -> list[str]:
    return re.findall(r'class="row-link"[^>]*>([^<]*)</a>', page)


@pytest.fixture
def many(workspace: Workspace, account: ProviderAccount) -> list[Batch]:
    return [
        make_batch(workspace=workspace, account=account, name=f"Run {n:02}", created_at=NOW + timedelta(minutes=n // 2))
        for n in range(45)
    ]


def test_without_batches_it_says_how_to_start(operator: Client, viewer: Client) -> None:
    assert "Hand over a table" in operator.get("/").text
    assert "ask an administrator" in viewer.get("/").text


def test_paging_shows_each_batch_once_forth_and_back(many: list[Batch], operator: Client) -> None:
    newest_first = [batch.name for batch in sorted(many, key=lambda batch: (batch.created_at, batch.pk), reverse=True)]
    address, seen, pages = "/", [], []
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
    with django_assert_max_num_queries(17):
        operator.get("/")


def test_search_finds_by_name_file_and_id(many: list[Batch], operator: Client) -> None:
    assert names(operator.get("/", {"q": "run 07"}).text) == ["Run 07"]
    assert names(operator.get("/", {"q": many[3].public_id}).text) == ["Run 03"]
    nothing = operator.get("/", {"q": "<b>zzz"})
    assert "No batch matches “&lt;b&gt;zzz”" in nothing.text


@pytest.mark.parametrize(
    "query", ["q=%00", "after=%00", "after=1-2-3", "before=99999999999999999-1", "view=%00", "q=%ff"]
)
def test_nonsense_in_the_address_breaks_nothing(query: str, many: list[Batch], operator: Client) -> None:
    assert operator.get(f"/?{query}").status_code == 200


def test_views_narrow_the_list(workspace: Workspace, operator: Client) -> None:
    running, failed, done = (make_batch(workspace=workspace, name=name) for name in ("running", "failed", "done"))
    make_job(batch=running)
    make_job(batch=failed, state=JobState.FAILED)
    make_saved_job(batch=done)
    assert names(operator.get("/?view=unfinished").text) == ["running"]
    assert names(operator.get("/?view=attention").text) == ["failed"]


def test_a_batch_on_an_account_that_a_person_must_resume_needs_a_person(workspace: Workspace, operator: Client) -> None:
    for reason in ("person", "auth", "insufficient_credit", "unreachable"):
        account = make_account(health="held", hold_reason=reason, held_at=NOW)
        make_job(batch=make_batch(workspace=workspace, account=account, name=reason))
    assert set(names(operator.get("/?view=attention").text)) == {"person", "auth", "insufficient_credit"}


def test_many_alerts_are_cut_with_a_way_to_the_rest(batch: Batch, operator: Client, admin_client: Client) -> None:
    for n in range(7):
        job = make_job(batch=batch, state=JobState.UNKNOWN, business_id=f"INV-{n}")
        words = f"INV-{n}: Look it up."
        Alert.objects.create(kind="unknown_outcome", subject=f"job:{job.pk}", job=job, words=words, opened_at=NOW)
    page = operator.get("/").text
    assert page.count("Look it up.") == 5
    assert "INV-6: Look" not in page
    assert 'href="/?view=attention">and 2 more' in page
    assert 'href="/admin/batches/alert/?closed_at__isempty=1">and 2 more' in admin_client.get("/").text


def test_a_held_account_is_told_with_what_to_do_and_only_to_whom_it_concerns(
    account: ProviderAccount, operator: Client, outsider: Client
) -> None:
    held = {"health": "held", "hold_reason": "auth", "held_at": NOW, "hold_words": "The service answered 401."}
    elsewhere = make_account(workspace=make_workspace(), name="Not yours", **held)
    ProviderAccount.objects.filter(pk=account.pk).update(**held)
    page = operator.get("/").text
    assert "The service answered 401." in page
    assert "Correct the account’s key" in page or "Correct the account&#x27;s key" in page
    assert elsewhere.name not in page


def test_open_alerts_lead_to_their_document(batch: Batch, operator: Client, outsider: Client) -> None:
    job = make_job(batch=batch, state=JobState.UNKNOWN, business_id="INV-7")
    Alert.objects.create(kind="unknown_outcome", subject=f"job:{job.pk}", job=job, words="Look it up.", opened_at=NOW)
    page = operator.get("/").text
    assert "Look it up." in page
    assert f"/documents/{job.version.document.public_id}/" in page
    assert "Look it up." not in outsider.get("/").text


def test_markup_in_names_is_text(workspace: Workspace, operator: Client) -> None:
    make_batch(workspace=workspace, name="<img src=x onerror=alert(1)>", manifest_name='"><svg onload=alert(2)>.json')
    page = operator.get("/").text
    assert "<img src=x" not in page
    assert "<svg onload" not in page


def test_live_answers_with_changed_rows_only_and_ends_with_the_last_batch(
    workspace: Workspace, operator: Client
) -> None:
    batch = make_batch(workspace=workspace, name="Live one")
    job = make_job(batch=batch)
    drawn = re.search(r'data-row="([^"]*)"', operator.get("/").text)
    assert drawn is not None
    assert operator.get("/live/", {"rows": drawn[1]}).status_code == 204
    job.state = JobState.SAVED
    job.save()
    answer = operator.get("/live/", {"rows": drawn[1]})
    assert answer.status_code == 200
    assert f'id="row-{batch.public_id}"' in answer.text
    assert 'hx-swap-oob="true"' in answer.text
    assert 'class="live ended"' in answer.text


def test_bulk_actions_under_way_are_named_with_their_pages(batch: Batch, operator: Client, outsider: Client) -> None:
    action = make_bulk_action(batch=batch, confirmed_at=NOW)
    make_bulk_action(batch=batch)
    make_bulk_action(batch=batch, confirmed_at=NOW, finished_at=NOW)
    page = operator.get("/").text.split("Bulk actions under way")[1].split("</section>")[0]
    assert page.count("<li>") == 1
    assert f"/batches/{batch.public_id}/actions/{action.public_id}/" in page
    assert "Retry in" in page
    assert "Bulk actions under way" not in outsider.get("/").text


def test_the_audit_log_is_in_the_bar_of_those_who_read_it(batch: Batch, operator: Client, workspace: Workspace) -> None:
    manager = signed_in(make_member(workspace, "a.manager", Role.MANAGER))
    assert 'href="/audit/"' in manager.get("/").text
    assert 'href="/audit/"' not in operator.get("/").text
    address = f"/batches/{batch.public_id}/"
    assert f"/audit/?subject={batch.public_id}" in manager.get(address).text
    assert f"/audit/?subject={batch.public_id}" not in operator.get(address).text
