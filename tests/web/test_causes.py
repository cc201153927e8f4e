"""The groups of failures on the batch page: what they say, what they offer, and what became of the last try."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from batches import failures
from batches.engine.causes import fingerprint
from batches.models import (
    Batch,
    BatchItem,
    BulkAction,
    BulkActionItem,
    FailureClass,
    ItemResult,
    Job,
    JobState,
    Verb,
    Workspace,
)
from tests.factories import NOW, make_job, make_saved_job


def section(client: Client, batch: Batch, **parameters: str) -> str:
    page = client.get(f"/batches/{batch.public_id}/", parameters).text
    assert 'id="causes"' in page
    return page.split('id="causes"')[1].split("</section>")[0]


def fail(batch: Batch, failure_class: str, words: str, *, count: int = 1, code: str = "") -> list[Job]:
    return [
        make_job(
            batch=batch,
            state=JobState.FAILED,
            failure_class=failure_class,
            failure_code=code,
            failure_words=words.format(n),
        )
        for n in range(count)
    ]


def act(batch: Batch, jobs: Sequence[Job], *, verb: Verb = Verb.RETRY, number: int = 1) -> BulkAction:
    """A bulk action over these jobs' items that was confirmed and carried out at `NOW`."""
    action = BulkAction.objects.create(
        public_id=f"act_{number}",
        workspace=batch.workspace,
        batch=batch,
        verb=verb,
        filter={"state": "failed", "cause": jobs[0].failure_cause},
        actor_words="m.okoye",
        creation_key=f"key-{number}",
        planned_at=NOW,
        confirmed_at=NOW,
        finished_at=NOW,
    )
    items = {item.version_id: item for item in BatchItem.objects.filter(batch=batch)}
    BulkActionItem.objects.bulk_create(
        BulkActionItem(
            action=action,
            position=n,
            item=items[job.version_id],
            version=job.version,
            cause=job.failure_cause,
            job_state=job.state,
            result=ItemResult.DONE,
            at=NOW,
        )
        for n, job in enumerate(jobs)
    )
    return action


def test_a_group_says_how_many_which_share_and_when(batch: Batch, operator: Client) -> None:
    jobs = fail(batch, FailureClass.TRANSIENT, "Line {} broke off.", count=3)
    make_saved_job(batch=batch)
    Job.objects.filter(pk=jobs[0].pk).update(state_changed_at=NOW - timedelta(minutes=17))
    shown = section(operator, batch)
    assert "75 % of the batch" in shown
    first, last = re.findall(r'datetime="([^"]*)"', shown)[:2]
    assert (first, last) == ("2026-03-02T08:43:00.000+00:00", "2026-03-02T09:00:00.000+00:00")
    assert shown.count('class="card cause"') == 1


@pytest.mark.parametrize(
    ("failure_class", "count", "button"),
    [
        (FailureClass.TRANSIENT, 3, "Retry these 3 (bills 0 to 3)"),
        (FailureClass.TRANSIENT, 1, "Retry this one (bills 0 or 1)"),
        (FailureClass.JOB_NOT_FOUND, 2, "Check these 2 again (free)"),
        (FailureClass.BAD_OUTPUT, 2, "Fetch these 2 again (free)"),
        (FailureClass.IDEMPOTENCY_CONFLICT, 2, "Reconcile these 2 (free)"),
        (FailureClass.INVALID_INPUT, 2, ""),
    ],
)
def test_a_group_offers_its_way_out_with_its_price(
    failure_class: str, count: int, button: str, batch: Batch, operator: Client
) -> None:
    [job, *_] = fail(batch, failure_class, "It broke.", count=count)
    shown = section(operator, batch)
    buttons = [" ".join(re.sub("<[^>]*>", "", found).split()) for found in re.findall(r"<button.*?</button>", shown)]
    assert buttons == ([button] if button else [])
    if button:
        assert f'action="/batches/{batch.public_id}/actions/plan/"' in shown
        assert f'name="cause" value="{job.failure_cause}"' in shown
        assert 'name="state" value="failed"' in shown
        assert re.search(r'name="key" value="\w{32}"', shown)


def test_who_may_apply_no_verb_reads_whom_to_ask_and_of_no_verb(batch: Batch, viewer: Client) -> None:
    fail(batch, FailureClass.TRANSIENT, "It broke.")
    shown = section(viewer, batch)
    ask = f"You may look at it. Ask somebody with the role Operator in {batch.workspace.name}, who can act on it."
    assert ask in shown
    assert "<button" not in shown
    assert "Retry" not in shown
    assert "verb" not in shown
    page = viewer.get("/failed/").text
    assert ask in page
    assert "Then Retry" not in page
    Workspace.objects.update(archived_at=NOW)
    assert f"{batch.workspace.name} is archived: nothing is done there any more." in section(viewer, batch)


def test_who_may_not_apply_this_verb_sees_it_with_the_sentence(batch: Batch, viewer: Client) -> None:
    nadia = User.objects.get(username="nadia")
    nadia.user_permissions.add(Permission.objects.get(codename="check_again_document"))
    fail(batch, FailureClass.TRANSIENT, "It broke.")
    shown = section(viewer, batch)
    assert re.search(r"<button[^>]* disabled", shown)
    assert "your role does not include that. Ask an administrator for the role Operator." in shown


def test_five_groups_are_shown_and_the_rest_on_demand(batch: Batch, operator: Client) -> None:
    for n, word in enumerate(("ash", "birch", "cedar", "elm", "fir", "larch", "oak")):
        fail(batch, FailureClass.RENDER_FAILED, f"No {word} left.", count=8 - n)
    shown = section(operator, batch)
    assert shown.count('class="card cause"') == failures.CAUSES_SHOWN == 5
    assert "2 more causes</a>" in shown
    assert "No oak left" not in shown
    everything = section(operator, batch, causes="all")
    assert everything.count('class="card cause"') == 7
    assert "No oak left" in everything
    assert "more cause" not in everything


def test_a_dismissed_item_leaves_its_group_and_stays_in_the_counter(batch: Batch, operator: Client) -> None:
    jobs = fail(batch, FailureClass.TRANSIENT, "It broke.", count=3)
    BatchItem.objects.filter(version=jobs[0].version).update(dismissed_at=NOW, dismissed_note="paid by hand")
    assert '<span class="count failed">2</span>' in section(operator, batch)
    page = operator.get(f"/batches/{batch.public_id}/").text
    assert re.search(r'id="count-failed".*?<span class="nums">3</span>', page, re.S)


def test_the_last_action_over_a_group_says_what_became_of_it(batch: Batch, operator: Client) -> None:
    jobs = fail(batch, FailureClass.TRANSIENT, "Line {} broke off.", count=6)
    other = fail(batch, FailureClass.TRANSIENT, "Quite another thing.")
    act(batch, jobs)
    later = NOW + timedelta(minutes=1)
    Job.objects.filter(pk__in=[job.pk for job in jobs[:3]]).update(
        state=JobState.SAVED, failure_class="", failure_cause="", state_changed_at=later
    )
    Job.objects.filter(pk=jobs[3].pk).update(
        state=JobState.PENDING, failure_class="", failure_cause="", state_changed_at=later
    )
    Job.objects.filter(pk=jobs[4].pk).update(state_changed_at=later)
    Job.objects.filter(pk=jobs[5].pk).update(state_changed_at=NOW - timedelta(minutes=9))
    shown = " ".join(re.sub("<[^>]*>", "", section(operator, batch)).split())
    expected = "6 retried by m.okoye at 2 Mar 09:00 UTC: 3 saved, 1 failed again, 1 in progress, 1 as before."
    assert expected in shown
    assert shown.count("retried by") == 1
    assert "joined since" not in shown
    assert other[0].failure_cause != jobs[0].failure_cause


def test_failures_that_joined_since_the_last_action_are_counted(batch: Batch, operator: Client) -> None:
    jobs = fail(batch, FailureClass.TRANSIENT, "Line {} broke off.", count=2)
    act(batch, jobs)
    assert "joined since" not in section(operator, batch)
    new = fail(batch, FailureClass.TRANSIENT, "Line {} broke off.", count=2)
    assert "2 new failures joined since." in section(operator, batch)
    act(batch, [*jobs, new[0]], number=2)
    shown = section(operator, batch)
    assert "1 new failure joined since." in shown
    assert "/actions/act_2/" in shown
    assert "/actions/act_1/" not in shown


def test_a_plan_that_nobody_confirmed_is_no_last_action(batch: Batch, operator: Client) -> None:
    action = act(batch, fail(batch, FailureClass.TRANSIENT, "It broke.", count=2))
    BulkAction.objects.filter(pk=action.pk).update(confirmed_at=None, finished_at=None)
    assert "retried by" not in section(operator, batch)


def test_the_number_of_queries_does_not_grow_with_failures_causes_or_actions(batch: Batch, operator: Client) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            section(operator, batch)
        return len(captured)

    first = fail(batch, FailureClass.TRANSIENT, "It broke.", count=2)
    act(batch, first)
    few = queries()
    for n, word in enumerate(("ash", "birch", "cedar", "elm", "fir", "larch"), start=2):
        act(batch, fail(batch, FailureClass.RENDER_FAILED, f"No {word} left.", count=5), number=n)
    assert queries() == few


def test_the_live_fragment_draws_the_groups_that_the_page_shows(batch: Batch, operator: Client) -> None:
    for n, word in enumerate(("ash", "birch", "cedar", "elm", "fir", "larch")):
        fail(batch, FailureClass.RENDER_FAILED, f"No {word} left.", count=8 - n)
    make_job(batch=batch)  # it is live as long as something is unfinished
    page = operator.get(f"/batches/{batch.public_id}/?causes=all").text
    assert f"/batches/{batch.public_id}/live/?causes=all" in page
    live = operator.get(f"/batches/{batch.public_id}/live/?causes=all&notices=old").text
    assert live.count('class="card cause"') == 6


def test_a_cause_is_kept_with_each_failure(batch: Batch) -> None:
    [job] = fail(batch, FailureClass.TRANSIENT, "Line 3 broke off.")
    assert job.failure_cause == fingerprint("transient", "", "Line 4711 broke off.")


def test_jobs_that_had_failed_before_there_were_causes_are_given_theirs(
    batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    migration = import_module("batches.migrations.0005_causes_of_failed_jobs")
    monkeypatch.setattr(migration, "CHUNK", 2)
    jobs = fail(batch, FailureClass.TRANSIENT, "Line {} of «Ünal» broke off.", count=5, code="E1")
    saved = make_saved_job(batch=batch)
    Job.objects.update(failure_cause="")
    Job.objects.filter(pk=jobs[0].pk).update(failure_cause="0123456789abcdef")
    migration.name_causes(apps, None)
    named = dict(Job.objects.values_list("pk", "failure_cause"))
    assert named.pop(saved.pk) == ""
    assert named.pop(jobs[0].pk) == "0123456789abcdef"
    assert set(named.values()) == {fingerprint("transient", "E1", "Line 7 of «Ünal» broke off.")}
