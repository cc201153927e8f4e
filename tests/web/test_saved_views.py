"""Filters of a list kept under a name: one's own, renamed, deleted, and what cannot be kept."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client

from batches.engine import savedviews
from batches.models import SavedView, ViewPage, Workspace
from tests.factories import NOW, make_batch, make_bulk_action, make_job, make_saved_job, make_template_version
from tests.web.test_batch_list import names


def test_the_filters_of_the_address_are_kept_renamed_and_deleted(operator: Client, viewer: Client) -> None:
    answer = operator.post("/views/failed/", {"name": " Unclear  ones ", "query": "helps=reconcile&after=9-9&x="})
    assert answer.url == "/failed/?helps=reconcile"
    view = SavedView.objects.get()
    assert (view.name, view.query) == ("Unclear ones", "helps=reconcile")
    page = operator.get(answer.url).text
    assert '<a href="?helps=reconcile" aria-current="page">Unclear ones</a>' in page
    assert "Unclear ones" not in viewer.get("/failed/?helps=reconcile").text
    assert "Unclear ones" not in operator.get("/batches/").text
    address = f"/views/failed/{view.pk}/"
    assert viewer.post(address, {"then": "delete"}).status_code == 404
    operator.post(address, {"name": "Not known"})
    operator.post("/views/failed/", {"name": "Other", "query": "age=day"})
    assert "is called “Other”" in operator.post(address, {"name": "Other"}, follow=True).text
    operator.post("/views/failed/", {"name": "Other", "query": "age=week"})
    assert set(SavedView.objects.values_list("name", "query")) == {
        ("Not known", "helps=reconcile"),
        ("Other", "age=week"),
    }
    operator.post(address, {"then": "delete"})
    assert SavedView.objects.get().name == "Other"


def test_what_cannot_be_kept_is_refused_with_a_sentence(operator: Client, okoye: User) -> None:
    def said(**form: str) -> str:
        return operator.post("/views/batches/", form, follow=True).text

    assert "Choose a filter first" in said(name="All", query="")
    assert "Give the view a name" in said(name=" ", query="mine=1")
    assert "at most 60 characters" in said(name="x" * 61, query="mine=1")
    for n in range(savedviews.VIEWS_MOST):
        SavedView.objects.create(user=okoye, page="batches", name=str(n), query="mine=1")
    assert "Delete one of them first" in said(name="One more", query="mine=1")
    assert operator.post("/views/nowhere/", {"name": "x", "query": "a=1"}).status_code == 404


def test_a_view_that_another_tab_deleted_is_renamed_with_a_sentence_and_deleted_in_peace(okoye: User) -> None:
    view = savedviews.save(okoye, ViewPage.FAILED, "Mine", "age=day", now=NOW)
    savedviews.delete(SavedView.objects.get())
    with pytest.raises(savedviews.Refused, match="deleted meanwhile"):
        savedviews.rename(view, "Ours")
    savedviews.delete(view)


def test_the_batch_list_is_filtered_by_what_the_address_says(
    workspace: Workspace, operator: Client, okoye: User
) -> None:
    mine = make_batch(workspace=workspace, name="Mine", created_by=okoye, created_at=NOW)
    paused = make_batch(workspace=workspace, name="Paused", paused_at=NOW, created_at=NOW - timedelta(days=2))
    make_saved_job(batch=mine)
    make_job(batch=paused)
    version = make_template_version(workspace=workspace, source="{{ name }}")
    job = make_saved_job(batch=make_batch(workspace=workspace, name="Filled", report={"choices": {"template": "x"}}))
    type(job.version).objects.filter(pk=job.version_id).update(template_version=version, template_data={})
    found = {
        "mine=1": ["Mine"],
        f"account={paused.account.slug}": ["Paused"],
        "from=2026-03-01&to=2026-03-02&mine=1": ["Mine"],
        "to=2026-02-28": ["Paused"],
        "state=paused": ["Paused"],
        "state=complete&mine=1": ["Mine"],
        "state=failed": [],
        "template=invoice": ["Filled"],
        "template=x": ["Filled"],
        "state=nonsense&from=yesterday&q=aus": ["Paused"],
    }
    for query, expected in found.items():
        assert names(operator.get(f"/batches/?{query}").text) == expected, query
    nothing = operator.get("/batches/?mine=1&to=2026-02-28").text
    assert "Nothing matches “Started by me” and “To 2026-02-28”" in nothing
    assert re.search(r'href="/batches/\?mine=1" aria-label="Without To 2026-02-28"', nothing)


def test_all_bulk_actions_are_listed_with_their_results(workspace: Workspace, operator: Client, viewer: Client) -> None:
    of_one = make_bulk_action(batch=make_batch(workspace=workspace, name="Invoices"), planned_at=NOW)
    over = make_bulk_action(
        across=workspace,
        verb="dismiss",
        planned_at=NOW + timedelta(hours=1),
        confirmed_at=NOW,
        finished_at=NOW,
        reason="Sent by post.",
        plan={"batch_count": 3},
        results={"done": 220, "skipped": 10},
        filter={"named": ["Cause: Service trouble"]},
    )
    make_bulk_action()
    page = operator.get("/actions/").text
    assert names(page) == ["Dismiss 230", "Retry 0"]
    row = page.split(f'id="row-{over.public_id}"')[1].split("</tr>")[0]
    for words in ("Finished", "220 done, 10 skipped", "3 batches", "Sent by post.", "Cause: Service trouble"):
        assert words in row
    assert f"/batches/{of_one.batch.public_id}/actions/{of_one.public_id}/" in page
    assert names(operator.get("/actions/?verb=dismiss").text) == ["Dismiss 230"]
    assert names(operator.get("/actions/?state=planned&q=invo").text) == ["Retry 0"]
    assert "Nothing matches “Running”" in viewer.get("/actions/?state=running").text
    assert names(operator.get("/actions/?state=nonsense&q=%00").text) == []


def test_a_running_action_changes_in_its_place(workspace: Workspace, operator: Client) -> None:
    action = make_bulk_action(across=workspace, confirmed_at=NOW, plan={"batch_count": 2})
    drawn = re.search(r'data-row="([^"]*)"', operator.get("/actions/").text)
    assert drawn is not None
    assert operator.get("/actions/live/", {"rows": drawn[1]}).status_code == 204
    action.finished_at, action.results = NOW, {"done": 5}
    action.save()
    answer = operator.get("/actions/live/", {"rows": drawn[1]}).text
    assert "5 done" in answer
    assert 'class="live ended"' in answer
