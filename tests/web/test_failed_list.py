"""What needs a person, over all batches: the list, its filters, and one plan over several batches of a workspace."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from batches import failedlist
from batches.models import AuditEntry, Batch, BulkAction, Job, JobState, Membership, ProviderAccount, Workspace
from tests.engine.test_bulk_actions import saved_meanwhile
from tests.factories import make_account, make_batch, make_job, make_saved_job, make_workspace
from tests.web.test_bulk_actions import carry_out, confirm, fail

FORM = {"verb": "retry", "key": "one"}


def ids(page: str) -> list[str]:
    return re.findall(r'class="row-link"[^>]*>([^<]*)</a>', page)


def table(client: Client, address: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(client.get(address).getvalue().decode("utf-8-sig"))))


def plan(client: Client, **given: Any) -> Any:
    return client.post("/failed/plan/", FORM | given)


@pytest.fixture
def three(workspace: Workspace, account: ProviderAccount) -> list[Batch]:
    return [make_batch(workspace=workspace, account=account, name=f"Batch {name}") for name in "ABC"]


def test_110_all_that_match_over_three_batches_are_retried_but_those_saved_meanwhile(
    three: list[Batch], operator: Client
) -> None:
    jobs = [
        job for batch, count in zip(three, (100, 80, 50), strict=True) for job in fail(batch, count, business_id="")
    ]
    for batch in three[:2]:
        for n in range(10):
            make_saved_job(batch=batch, business_id=f"S-{batch.pk}-{n}")
    assert "Plan for all 230 that match" in operator.get("/failed/").text
    page = str(plan(operator, all="1").url)
    action = BulkAction.objects.get()
    assert (action.plan["total"], action.plan["eligible"], action.plan["batch_count"]) == (230, 230, 3)
    for job in jobs[95:105]:  # of two batches
        saved_meanwhile(job)
    shown = operator.get(page).text
    assert "Retry: 220 documents" in shown
    assert '<span class="nums">10</span> <span>no longer: It is saved.</span>' in shown
    assert "Type 220 to confirm" in shown
    assert confirm(operator, page, typed="220").status_code == 302
    carry_out()
    action.refresh_from_db()
    assert (action.results["done"], action.results["skipped"], action.finished_at is not None) == (220, 10, True)
    assert "220 done, 10 skipped" in operator.get(page).text
    assert "220 done, 10 skipped" in operator.get("/actions/").text
    assert Counter(Job.objects.values_list("state", flat=True)) == {JobState.PENDING: 220, JobState.SAVED: 30}


def test_ticked_rows_of_several_batches_are_one_action_with_each_batch_named(
    three: list[Batch], operator: Client, okoye: User
) -> None:
    ticked = [str(fail(batch, 2)[0].version.items.get().pk) for batch in three]
    page = str(plan(operator, items=ticked).url)
    assert re.fullmatch(r"/actions/act_[^/]+/", page)
    shown = operator.get(page).text
    for batch in three:
        # Several batches may have one name, so each has its id beside it.
        named = f'<a href="/batches/{batch.public_id}/">{batch.name}</a> <span class="muted">{batch.public_id}</span>'
        assert named in shown
    assert "3 ticked documents" in shown
    assert confirm(operator, page).status_code == 302
    carry_out()
    rows = table(operator, f"{page}items.csv")
    assert [(row["batch_id"], row["result"]) for row in rows] == [(batch.public_id, "done") for batch in three]
    entry = AuditEntry.objects.get(action="confirm_bulk_action")
    assert (entry.actor, entry.facts["batches"], entry.facts["total"]) == (okoye, 3, 3)
    # The page of each batch tells of it beside the causes that it was over.
    assert f'<a href="{page}">1 retried by m.okoye</a>' in operator.get(f"/batches/{three[0].public_id}/").text


def test_an_action_over_several_batches_prices_each_account(workspace: Workspace, operator: Client) -> None:
    priced = [
        make_account(name=name, price_per_job=Decimal(price), price_currency=currency)
        for name, price, currency in (("One", "0.10", "USD"), ("Two", "0.20", "USD"), ("Three", "0.30", "EUR"))
    ]
    for account in priced:
        fail(make_batch(workspace=workspace, account=account), 2)
    usd = plan(operator, all="1", account=priced[0].slug, key="a").url
    assert "about 0.2 USD for all 2 as planned" in operator.get(usd).text
    every = operator.get(plan(operator, all="1", key="b").url).text
    assert "One: 0.2 USD, Two: 0.4 USD, Three: 0.6 EUR" in every
    ProviderAccount.objects.filter(pk=priced[2].pk).update(price_currency="USD")
    assert "about 1.20 USD for all 6 as planned" in operator.get(plan(operator, all="1", key="c").url).text


def test_no_plan_reaches_across_two_workspaces(three: list[Batch], operator: Client, okoye: User) -> None:
    other = make_workspace(name="Elsewhere")
    Membership.objects.create(workspace=other, user=okoye, role="viewer")
    here, there = fail(three[0], 2), fail(make_batch(workspace=other), 1)
    page = operator.get("/failed/").text
    assert "They are of 2 workspaces" in page
    assert re.search(r'id="plan-all"[^>]* disabled', page)
    assert "of several workspaces" in operator.get(plan(operator, all="1").url).text
    ticked = [str(job.version.items.get().pk) for job in (here[0], there[0])]
    assert "of several workspaces" in operator.get(plan(operator, items=ticked).url).text
    assert plan(operator, all="1", workspace=other.slug).status_code == 403
    assert not BulkAction.objects.exists()
    assert plan(operator, all="1", workspace=three[0].workspace.slug).status_code == 302
    assert BulkAction.objects.get().plan["total"] == 2


def test_an_action_across_is_seen_and_done_only_by_whom_it_concerns(
    three: list[Batch], operator: Client, viewer: Client, outsider: Client
) -> None:
    fail(three[0], 1)
    page = str(plan(operator, all="1").url)
    for address in (page, f"{page}live/", f"{page}items.csv"):
        assert outsider.get(address).status_code == 404
    assert viewer.get(page).status_code == 200
    assert confirm(viewer, page).status_code == 403
    assert confirm(outsider, page).status_code == 404
    assert operator.get(f"/batches/{three[0].public_id}{page}").status_code == 404
    assert operator.post(f"{page}abort/").url == f"/failed/?workspace={three[0].workspace.slug}"


def test_a_running_action_across_can_be_aborted_and_keeps_its_numbers(three: list[Batch], operator: Client) -> None:
    fail(three[0], 2)
    fail(three[1], 1)
    page = str(plan(operator, all="1").url)
    confirm(operator, page)
    assert operator.post(f"{page}abort/").url == page
    assert BulkAction.objects.get().results["aborted"] == 3
    assert "3 not done" in operator.get("/actions/?state=aborted").text


def test_filters_narrow_the_list_and_stand_in_words(three: list[Batch], operator: Client) -> None:
    now = timezone.now()
    old = make_job(
        batch=three[0],
        state=JobState.FAILED,
        failure_class="transient",
        business_id="OLD",
        state_changed_at=now - timedelta(days=9),
    )
    make_job(batch=three[1], state=JobState.UNKNOWN, business_id="UNKNOWN", state_changed_at=now)
    make_job(
        batch=three[2], state=JobState.FAILED, failure_class="invalid_input", business_id="BAD", state_changed_at=now
    )
    dismissed = make_job(batch=three[2], state=JobState.FAILED, business_id="GONE")
    dismissed.version.items.update(dismissed_at=now, dismissed_note="By post.")
    assert ids(operator.get("/failed/").text) == ["BAD", "UNKNOWN", "OLD"]
    found = {
        "helps=retry": ["OLD"],
        "helps=reconcile": ["UNKNOWN"],
        "age=older": ["OLD"],
        "age=day": ["BAD", "UNKNOWN"],
        f"batch={three[1].public_id}": ["UNKNOWN"],
        f"cause={old.failure_cause}": ["OLD"],
        f"account={three[0].account.slug}&helps=retry": ["OLD"],
        "helps=fetch_again": [],
        "cause=%00&age=never&account=%00": ["BAD", "UNKNOWN", "OLD"],
    }
    for query, expected in found.items():
        assert ids(operator.get(f"/failed/?{query}").text) == expected, query
    nothing = operator.get("/failed/?helps=fetch_again&age=day").text
    assert "Nothing matches “Helps: Fetch again” and “In the last 24 hours”" in nothing
    assert "Batch: Batch B" in operator.get(f"/failed/?batch={three[1].public_id}").text


def test_a_filter_that_cannot_be_read_plans_nothing(three: list[Batch], operator: Client) -> None:
    fail(three[0], 1)
    for given in ({"cause": "nonsense"}, {"age": "never"}, {"helps": "dance"}, {"account": "x" * 70}):
        assert "nothing was planned" in operator.get(plan(operator, all="1", **given).url).text, given
    assert "nothing was planned" in operator.get(plan(operator, items=["x"]).url).text
    assert "Tick rows of the list first" in operator.get(plan(operator).url).text
    assert not BulkAction.objects.exists()


def test_each_failure_stands_on_one_page_in_a_constant_number_of_queries(
    three: list[Batch], operator: Client, monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries: Any
) -> None:
    monkeypatch.setattr(failedlist, "page", lambda *a, _page=failedlist.page, **k: _page(*a, **{"limit": 4} | k))
    for batch in three:
        fail(batch, 3, business_id="")
    address, seen = "/failed/", []
    while address:
        with django_assert_max_num_queries(15):
            page = operator.get(address).text
        seen += ids(page)
        older = re.search(r'href="([^"]*after=[^"]*)">Older', page)
        address = older[1].replace("&amp;", "&") if older else ""
    assert len(seen) == len(set(seen)) == 9


def test_a_sample_is_listed_with_its_batch_alone(three: list[Batch], operator: Client) -> None:
    job = fail(three[0], 1)[0]
    sample = make_batch(workspace=three[0].workspace, account=three[0].account, sample_of=three[0])
    sample.items.create(
        position=0, document=job.version.document, version=job.version, intake_outcome="new", original_row={}
    )
    assert len(ids(operator.get("/failed/").text)) == 1


def test_a_row_that_was_repaired_stays_in_its_place_and_says_so(three: list[Batch], operator: Client) -> None:
    job = fail(three[0], 1)[0]
    drawn = re.search(r'data-row="([^"]*)"', operator.get("/failed/").text)
    assert drawn is not None
    assert operator.get("/failed/live/", {"rows": drawn[1]}).status_code == 204
    saved_meanwhile(job)
    assert "It needs nobody any more." in operator.get("/failed/live/", {"rows": drawn[1]}).text


def test_the_list_can_be_taken_away_by_whoever_may(
    three: list[Batch], operator: Client, viewer: Client, outsider: Client
) -> None:
    fail(three[0], 2)
    fail(three[1], 1, failure_class="invalid_input", business_id="=1+1")
    rows = table(operator, "/failed/items.csv")
    assert sorted((row["batch"], row["reason_code"], row["helps"]) for row in rows) == [
        ("Batch A", "transient", "Retry"),
        ("Batch A", "transient", "Retry"),
        ("Batch B", "invalid_input", ""),
    ]
    assert "'=1+1" in {row["id"] for row in rows}
    assert AuditEntry.objects.filter(action="download_failed_list").count() == 1
    assert viewer.get("/failed/items.csv").status_code == 403
    assert table(outsider, "/failed/items.csv") == []


def test_nothing_to_repair_is_said_calmly(operator: Client) -> None:
    assert "Nothing needs a person" in operator.get("/failed/").text
