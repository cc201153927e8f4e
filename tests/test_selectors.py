"""The derived facts that every face shows: counters, states, the JSON of a batch."""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User

from batches import selectors
from batches.engine import audit, running
from batches.engine.audit import By
from batches.models import AccountHealth, Batch, BatchItem, Job, JobState, Membership, ProviderAccount, Workspace
from batches.selectors import Counts
from batches.wording import BatchState
from tests.factories import (
    NOW,
    make_accepted_job,
    make_account,
    make_batch,
    make_job,
    make_saved_job,
    make_submission,
    make_workspace,
)

pytestmark = pytest.mark.django_db


def hold(account: ProviderAccount, reason: str = "auth") -> None:
    account.health, account.hold_reason, account.held_at = AccountHealth.HELD, reason, NOW
    account.hold_words = "The key was refused."
    account.save()


def pause(batch: Batch) -> None:
    batch.paused_at = NOW
    batch.save()


@pytest.mark.parametrize(
    ("state", "counter"),
    [
        (JobState.PENDING, "in_progress"),
        (JobState.SUBMITTING, "in_progress"),
        (JobState.ACCEPTED, "in_progress"),
        (JobState.RENDERED, "in_progress"),
        (JobState.SAVED, "saved"),
        (JobState.FAILED, "failed"),
        (JobState.UNKNOWN, "failed"),
        (JobState.DEADLINE_EXCEEDED, "failed"),
        (JobState.EXPIRED, "failed"),
        (JobState.CANCELLED, "cancelled"),
    ],
)
def test_each_job_state_belongs_to_one_counter(state: str, counter: str, batch: Batch) -> None:
    make_job(batch=batch, state=state)
    assert selectors.batch_counts(batch) == Counts(**{counter: 1})


def test_every_job_state_is_counted_somewhere(batch: Batch) -> None:
    for state in JobState:
        make_job(batch=batch, state=state)
    counts = selectors.batch_counts(batch)
    assert counts.total == len(JobState)
    assert counts.as_dict() == {
        "total": 10,
        "saved": 1,
        "failed": 4,
        "cancelled": 1,
        "held": 0,
        "in_progress": 4,
    }


def test_what_waits_unsent_on_a_held_account_is_held_and_what_was_sent_is_not(batch: Batch) -> None:
    make_job(batch=batch)
    make_accepted_job(batch=batch)
    hold(batch.account)
    assert selectors.batch_counts(batch) == Counts(held=1, in_progress=1)


def test_what_waits_in_a_paused_batch_is_held(batch: Batch) -> None:
    make_job(batch=batch)
    make_accepted_job(batch=batch)
    pause(batch)
    assert selectors.batch_counts(batch) == Counts(held=1, in_progress=1)


def test_a_waiting_job_that_may_have_been_sent_is_in_progress_even_when_its_account_is_held(batch: Batch) -> None:
    job = make_job(batch=batch)
    make_submission(job=job, in_doubt=True)
    hold(batch.account)
    assert selectors.batch_counts(batch) == Counts(in_progress=1)


def test_a_waiting_job_whose_submission_was_definitely_refused_is_held(batch: Batch) -> None:
    job = make_job(batch=batch)
    make_submission(job=job, in_doubt=False)
    hold(batch.account)
    assert selectors.batch_counts(batch) == Counts(held=1)


def test_the_account_of_the_job_counts_and_not_the_account_of_the_batch(batch: Batch) -> None:
    make_job(batch=batch)
    elsewhere = make_account()
    Job.objects.update(account=elsewhere)
    hold(elsewhere)
    assert selectors.batch_counts(batch) == Counts(held=1)
    assert selectors.held_accounts(batch, selectors.progress(batch)) == [elsewhere]


def test_a_cancelled_item_is_cancelled_whatever_its_job_does(batch: Batch) -> None:
    make_saved_job(batch=batch)
    make_accepted_job(batch=batch)
    batch.items.update(cancelled_at=NOW)
    assert selectors.batch_counts(batch) == Counts(cancelled=2)
    assert {item["state"] for item in selectors.batch_json(batch)["items"]} == {"cancelled"}


def test_one_job_in_two_batches_is_counted_in_each(batch: Batch, workspace: Workspace) -> None:
    job = make_saved_job(batch=batch)
    other = make_batch(workspace=workspace, account=batch.account)
    BatchItem.objects.create(
        batch=other, position=0, document=job.version.document, version=job.version, intake_outcome="unchanged"
    )
    answers = selectors.progress_of([batch, other])
    assert answers[batch.pk].counts == answers[other.pk].counts == Counts(saved=1)


@pytest.mark.parametrize(
    ("counts", "is_paused", "state"),
    [
        (Counts(saved=3), False, BatchState.COMPLETE),
        (Counts(saved=3), True, BatchState.COMPLETE),
        (Counts(saved=2, in_progress=1), False, BatchState.RUNNING),
        (Counts(saved=2, in_progress=1, held=1), True, BatchState.RUNNING),
        (Counts(saved=2, held=1), True, BatchState.PAUSED),
        (Counts(saved=2, held=1), False, BatchState.HELD),
        (Counts(saved=2, cancelled=1), False, BatchState.CANCELLED),
        (Counts(cancelled=3), False, BatchState.CANCELLED),
        (Counts(failed=3), False, BatchState.FAILED),
        (Counts(failed=2, cancelled=1), False, BatchState.FAILED),
        (Counts(saved=1, failed=2), False, BatchState.PARTIALLY_COMPLETE),
        (Counts(saved=1, failed=1, cancelled=1), False, BatchState.PARTIALLY_COMPLETE),
    ],
)
def test_the_state_follows_from_the_counters(counts: Counts, is_paused: bool, state: BatchState) -> None:
    assert selectors.batch_state(counts, is_paused=is_paused) == state


def test_a_dismissed_failure_stays_counted_and_no_longer_asks_for_attention(batch: Batch) -> None:
    make_saved_job(batch=batch)
    make_job(batch=batch, state=JobState.FAILED)
    assert selectors.progress(batch).needs_attention
    batch.items.update(dismissed_at=NOW, dismissed_note="Sent by post.")
    progress = selectors.progress(batch)
    assert (progress.counts.failed, progress.needs_attention) == (1, False)
    assert progress.state == BatchState.PARTIALLY_COMPLETE


def test_in_progress_is_split_by_what_the_jobs_do(batch: Batch) -> None:
    make_job(batch=batch)
    make_job(batch=batch)
    make_accepted_job(batch=batch)
    assert selectors.progress(batch).in_progress_states == {"pending": 2, "accepted": 1}


def test_what_is_submitted_and_nobody_sends_just_now_waits_to_be_sent_again(batch: Batch) -> None:
    later = NOW + timedelta(minutes=1)
    make_job(batch=batch, state=JobState.SUBMITTING, due_at=later + timedelta(minutes=1))
    make_job(batch=batch, state=JobState.SUBMITTING, due_at=later)
    make_job(batch=batch, state=JobState.SUBMITTING, lease_owner="a", lease_until=NOW)
    make_job(batch=batch)
    progress = selectors.progress(batch)
    assert (progress.in_progress_states[JobState.SUBMITTING], progress.repeat_count) == (3, 2)
    assert progress.repeat_at == later, "the first of them"


def test_what_waits_and_is_needed_by_no_batch_any_more_is_not_waiting_for_its_turn(batch: Batch) -> None:
    make_job(batch=batch, lead_batch=None)
    make_job(batch=batch)
    progress = selectors.progress(batch)
    assert (progress.in_progress_states[JobState.PENDING], progress.unneeded_count, progress.waiting_count) == (2, 1, 1)


def test_what_is_counted_without_a_look_at_the_items_is_what_each_item_says() -> None:
    held = make_account()
    hold(held)
    going, stopped = make_batch(), make_batch(paused_at=NOW)
    for batch in (going, stopped):
        for n, (state, changes) in enumerate(
            itertools.product(
                JobState,
                (
                    {},
                    {"account_id": held.pk},
                    {"lead_batch": None},
                    {"lead_batch": stopped},
                    {"lease_owner": "a", "lease_until": NOW},
                ),
            )
        ):
            job = make_job(batch=batch, state=state)
            jobs = [job.pk]
            if state == JobState.PENDING:
                in_doubt = make_job(batch=batch)
                make_submission(job=in_doubt, in_doubt=True)
                jobs.append(in_doubt.pk)
            Job.objects.filter(pk__in=jobs).update(**changes)
            if n % 2:
                mark = {"cancelled_at": NOW} if n % 3 else {"dismissed_at": NOW, "dismissed_note": "Seen."}
                BatchItem.objects.filter(version=job.version).update(**mark)
    counted = selectors.progress_of([going, stopped])
    for batch in (going, stopped):
        items = selectors.with_group(batch.items.all()).select_related("version__job")
        assert counted[batch.pk].counts == Counts(**Counter(item.group for item in items))
        moving = [item.version.job for item in items if item.group == "in_progress"]
        assert counted[batch.pk].in_progress_states == Counter(job.state for job in moving)
        assert counted[batch.pk].attention_count == sum(
            1 for item in items if item.group == "failed" and item.dismissed_at is None
        )
        unled = [job for job in moving if job.state == JobState.PENDING and job.lead_batch is None]
        assert counted[batch.pk].unneeded_count == len(unled) > 0
        rests = [job for job in moving if job.state == JobState.SUBMITTING and job.lease_owner is None]
        assert counted[batch.pk].repeat_count == len(rests) > 0


def test_the_reason_of_a_cancellation_is_the_one_in_the_audit_log(batch: Batch) -> None:
    other = make_batch(workspace=batch.workspace, account=batch.account)
    by = audit.By(None, "root (command line)", "command line")
    running.cancel(other.pk, reason="a test", by=by, now=NOW)
    running.cancel(batch.pk, reason="wrong prices", by=by, now=NOW)
    batch.refresh_from_db()
    assert selectors.cancel_reason(batch) == "wrong prices"
    assert selectors.cancel_reason(make_batch()) == ""


def test_who_started_a_batch_is_its_user_or_whom_the_audit_log_names(workspace: Workspace) -> None:
    okoye = User.objects.create_user("m.okoye")
    by_user, by_command, by_nobody = make_batch(created_by=okoye), make_batch(workspace=workspace), make_batch()
    audit.record(
        "start_batch",
        subject=f"batch {by_command.public_id}",
        workspace=workspace,
        by=By(None, "root (command line)", "command line"),
        now=NOW,
    )
    started = selectors.starters([by_user, by_command, by_nobody])
    assert started == {by_user.pk: "m.okoye", by_command.pk: "root (command line)"}


def test_the_json_of_a_batch_lists_every_item_in_manifest_order(batch: Batch) -> None:
    saved = make_saved_job(batch=batch, business_id="INV-9")
    make_job(batch=batch, state=JobState.FAILED, business_id="INV-1")
    artifact = saved.version.artifact
    assert selectors.batch_json(batch) == {
        "id": batch.public_id,
        "state": "partially_complete",
        "needs_attention": True,
        "counts": {"total": 2, "saved": 1, "failed": 1, "cancelled": 0, "held": 0, "in_progress": 0},
        "items": [
            {
                "position": 0,
                "business_id": "INV-9",
                "version": 1,
                "state": "saved",
                "failure_class": None,
                "provider_job_id": saved.submissions.get().provider_job_id,
                "storage_key": artifact.storage_key,
                "sha256": artifact.sha256,
                "pages": 1,
            },
            {
                "position": 1,
                "business_id": "INV-1",
                "version": 1,
                "state": "failed",
                "failure_class": "render_failed",
                "provider_job_id": None,
                "storage_key": None,
                "sha256": None,
                "pages": None,
            },
        ],
    }


def test_the_provider_job_is_the_one_of_the_latest_submission_that_has_one(batch: Batch) -> None:
    job = make_job(batch=batch, state=JobState.SUBMITTING)
    closed = {"outcome": "render_failed", "closed_at": NOW, "accepted_at": NOW}
    make_submission(job=job, provider_job_id="pdf_first", **closed)
    make_submission(job=job, provider_job_id="pdf_second", **closed)
    make_submission(job=job)
    assert selectors.batch_json(batch)["items"][0]["provider_job_id"] == "pdf_second"


def test_a_file_deleted_by_retention_is_not_listed_as_stored(batch: Batch) -> None:
    job = make_saved_job(batch=batch)
    job.version.artifact.local_deleted_at = NOW + timedelta(days=30)
    job.version.artifact.save()
    item = selectors.batch_json(batch)["items"][0]
    assert (item["state"], item["storage_key"], item["sha256"]) == ("saved", None, None)


def test_queries_do_not_grow_with_the_batches(workspace: Workspace, django_assert_num_queries: Any) -> None:
    many = [make_batch(workspace=workspace) for _ in range(5)]
    for batch in many:
        make_saved_job(batch=batch)
        make_job(batch=batch)
    with django_assert_num_queries(2):
        answers = selectors.progress_of(many)
    assert [answers[batch.pk].counts for batch in many] == [Counts(saved=1, in_progress=1)] * 5
    with django_assert_num_queries(3):
        selectors.batch_json(many[0])


def test_a_person_sees_only_workspaces_of_their_own(batch: Batch) -> None:
    member, outsider = User.objects.create_user("m.okoye"), User.objects.create_user("s.lindqvist")
    admin = User.objects.create_superuser("root")
    Membership.objects.create(workspace=batch.workspace, user=member, role="viewer")
    Membership.objects.create(workspace=make_workspace(), user=outsider, role="admin")
    assert list(selectors.visible_batches(member)) == [batch]
    assert list(selectors.visible_batches(admin)) == [batch]
    assert not selectors.visible_batches(outsider).exists()
    assert not selectors.visible_batches(AnonymousUser()).exists()


@pytest.mark.parametrize(("role", "may"), [("viewer", False), ("operator", True), ("manager", True), ("admin", True)])
def test_starting_a_batch_takes_more_than_a_viewer(role: str, may: bool, workspace: Workspace) -> None:
    user = User.objects.create_user("m.okoye")
    Membership.objects.create(workspace=workspace, user=user, role=role)
    assert selectors.writable_workspaces(user).exists() is may


def test_an_archived_workspace_takes_no_batch(workspace: Workspace) -> None:
    workspace.archived_at = NOW
    workspace.save()
    assert not selectors.writable_workspaces(User.objects.create_superuser("root")).exists()


def test_an_account_of_another_workspace_is_not_offered(workspace: Workspace) -> None:
    shared, own = make_account(), make_account(workspace=workspace)
    make_account(workspace=make_workspace())
    make_account(archived_at=NOW)
    assert set(selectors.usable_accounts([workspace])) == {shared, own}


def test_the_default_account_is_the_real_one_where_the_environment_names_it(settings: Any) -> None:
    sandbox, real = make_account(slug="sandbox"), make_account(slug="relaypdf")
    usable = ProviderAccount.objects.all()
    settings.RELAYPDF_BASE_URL = settings.RELAYPDF_API_KEY = ""
    assert selectors.default_account(usable) == sandbox
    settings.RELAYPDF_BASE_URL = "https://api.example.com"
    assert selectors.default_account(usable) == real
    assert selectors.default_account(usable.filter(slug="sandbox")) == sandbox
    assert selectors.default_account(usable.none()) is None
