"""Starting drafts: whoever dies, hurries or presses twice, a draft becomes one batch, as it was shown."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from batches import queue
from batches.engine import agreed, checking, draftfiles, drafts, intake, writing
from batches.models import (
    AuditEntry,
    Batch,
    Draft,
    DraftState,
    Job,
    JobState,
    Membership,
    ProviderAccount,
    Workspace,
)
from batches.storage import StoreUnavailable
from batches.storage.disk import DiskStore
from tests import factories
from tests.engine import racing
from tests.engine.carried import Clock, kill_at
from tests.engine.drafts.drafted import BROKEN, ROWS, by, checked, fresh, operator, received, run_of, work
from tests.factories import NOW
from tests.scenarios.world import PumpKilled

pytestmark = pytest.mark.django_db

AFTER_THE_LEASE = NOW + checking.LEASE + timedelta(seconds=1)


def test_a_start_makes_the_batch_that_was_shown(starting: Draft, store: DiskStore, okoye: User) -> None:
    done = work(starting, store)
    batch = Batch.objects.get()
    assert (done.state, done.batch) == (DraftState.STARTED, batch)
    assert (batch.created_by, batch.items.count()) == (okoye, 3)
    assert AuditEntry.objects.get(action="start_batch").actor == okoye
    assert AuditEntry.objects.get(action="start_upload").facts["renders"] == 3


def test_start_pressed_twice_is_one_batch(draft: Draft, store: DiskStore, okoye: User, rings: list[str]) -> None:
    run = run_of(checked(draft, store))
    for _ in range(2):
        drafts.ask_start(draft.pk, run, by=by(okoye), now=NOW)
    first = work(draft, store)
    again = drafts.ask_start(draft.pk, run, by=by(okoye), now=NOW)
    assert (again.state, again.batch) == (DraftState.STARTED, first.batch)
    assert not checking.work_on(draft.pk, Clock(NOW), owner="another", store=store)
    assert (Batch.objects.count(), Job.objects.count()) == (1, 3)


@pytest.mark.django_db(transaction=True)
def test_two_workers_at_once_make_one_batch(store: DiskStore) -> None:
    workspace, account = factories.make_workspace(), factories.make_account()
    user = operator(workspace)
    draft = received(ROWS, store, workspace, account, user)
    drafts.ask_start(draft.pk, run_of(checked(draft, store)), by=by(user), now=NOW)
    meeting = threading.Barrier(2)

    def worker(name: str) -> bool:
        meeting.wait()
        return checking.work_on(draft.pk, Clock(NOW), owner=name, store=store)

    assert sorted(racing.answers([lambda name=name: worker(name) for name in ("a", "b")])) == [False, True]
    assert (Batch.objects.count(), Job.objects.count(), fresh(draft).state) == (1, 3, DraftState.STARTED)


@pytest.mark.parametrize(
    ("where", "name"),
    [(intake, "check"), (intake, "start"), (drafts, "end_turn"), (draftfiles, "forget")],
)
def test_a_kill_anywhere_in_a_start_leaves_one_batch(
    where: Any, name: str, starting: Draft, store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_at(monkeypatch, where, name, call=1)
    with pytest.raises(PumpKilled):
        work(starting, store, owner="host:1:life:dead")
    monkeypatch.undo()
    monkeypatch.setattr(queue, "ring", lambda pumps=1: None)
    assert checking.release_life("life") in (0, 1)
    done = work(starting, store, owner="the next one")
    assert done.state == DraftState.STARTED
    assert (Batch.objects.count(), Job.objects.count()) == (1, 3)


def test_a_kill_between_two_groups_of_rows_is_gone_on_from(
    starting: Draft, store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "ROWS_AT_ONCE", 1)
    kill_at(monkeypatch, writing, "_write_group", call=2)
    with pytest.raises(PumpKilled):
        work(starting, store, owner="host:1:life:dead")
    assert Batch.objects.get().items.count() == 2
    monkeypatch.undo()
    monkeypatch.setattr(queue, "ring", lambda pumps=1: None)
    checking.release_life("life")
    done = work(starting, store)
    assert (done.state, done.batch, done.batch.items.count()) == (DraftState.STARTED, Batch.objects.get(), 3)
    assert done.batch.writing_at is None


def test_a_dead_cluster_s_drafts_are_given_back_and_another_s_are_not(starting: Draft) -> None:
    Draft.objects.update(lease_owner="host:1:life:x", lease_until=NOW + checking.LEASE)
    assert checking.due(now=NOW) == []
    assert checking.release_life("other") == 0
    assert checking.release_life("life") == 1
    assert checking.due(now=NOW) == [starting.pk]


def test_a_lease_that_ran_out_is_taken_over(starting: Draft, store: DiskStore) -> None:
    Draft.objects.update(lease_owner="gone", lease_until=NOW + checking.LEASE)
    assert work(starting, store).state == DraftState.STARTING
    assert work(starting, store, now=AFTER_THE_LEASE).state == DraftState.STARTED


def test_more_than_was_shown_is_not_sent(starting: Draft, store: DiskStore, workspace: Workspace) -> None:
    Draft.objects.update(renders_shown=2)
    done = work(starting, store)
    assert (done.state, done.words) == (DraftState.CHECKED, agreed.MORE_RENDERS)
    assert done.report is not None
    assert done.report["renders"] == 3, "what is so by now"
    assert not Batch.objects.exists()


def half_written(starting: Draft, store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> Batch:
    """Its start failed in the middle again and again, so that it was given back to a person."""
    real, calls = writing._write_group, []

    def interrupted(*given: Any) -> None:
        calls.append(given)
        if len(calls) > 1:
            raise StoreUnavailable("the store is away")
        real(*given)

    with monkeypatch.context() as patched:
        patched.setattr(writing, "ROWS_AT_ONCE", 2)
        patched.setattr(writing, "_write_group", interrupted)
        for turn in range(checking.TRIES_MOST):
            work(starting, store, now=NOW + timedelta(minutes=2 * turn))
    assert (fresh(starting).state, fresh(starting).words) == (DraftState.CHECKED, "the store is away")
    batch = Batch.objects.get()
    assert (batch.items.count(), batch.writing_at is None) == (2, False)
    return batch


def test_a_half_written_batch_is_given_up_once_its_draft_is_changed(
    starting: Draft, store: DiskStore, okoye: User, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its second half would be read by other choices, or lie at another account, than its first."""
    begun = half_written(starting, store, monkeypatch)
    other = factories.make_account(slug="other")
    drafts.choose(starting.pk, drafts.Changes(account=other), by=by(okoye), now=NOW)
    begun.refresh_from_db()
    assert begun.cancelled_at == NOW
    drafts.ask_start(starting.pk, run_of(checked(starting, store)), by=by(okoye), now=NOW)
    done = work(starting, store)
    assert (done.state, done.batch.account, done.batch.items.count()) == (DraftState.STARTED, other, 3), done.words
    assert set(Job.objects.values_list("account", "state", "lead_batch")) == {
        (other.pk, JobState.PENDING, done.batch.pk)
    }


def test_a_half_written_batch_is_gone_on_with_where_nothing_was_changed(
    starting: Draft, store: DiskStore, okoye: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = half_written(starting, store, monkeypatch)
    drafts.ask_start(starting.pk, run_of(fresh(starting)), by=by(okoye), now=NOW)
    done = work(starting, store)
    assert (done.state, done.batch, done.batch.items.count()) == (DraftState.STARTED, begun, 3), done.words


def test_a_template_that_was_published_since_the_check_is_looked_at_first(
    store: DiskStore, workspace: Workspace, account: ProviderAccount, okoye: User
) -> None:
    factories.make_template_version(workspace=workspace, source="<p>{{ name }}</p>", slug="letter")
    draft = received([{"id": "A-1", "template": "letter", "name": "Ada"}], store, workspace, account, okoye)
    drafts.ask_start(draft.pk, run_of(checked(draft, store)), by=by(okoye), now=NOW)
    factories.make_template_version(workspace=workspace, source="<h1>{{ name }}</h1>", slug="letter")
    done = work(draft, store)
    assert (done.state, done.words, Batch.objects.count()) == (DraftState.CHECKED, agreed.OTHER_CONTENT, 0)
    with pytest.raises(drafts.Refused, match="changed in another window"):  # Back, and pressed again
        drafts.ask_start(draft.pk, run_of(draft, renders_shown=1), by=by(okoye), now=NOW)
    drafts.ask_start(draft.pk, run_of(done), by=by(okoye), now=NOW)
    started = work(draft, store)
    assert (started.state, Job.objects.get().version.template_version.number) == (DraftState.STARTED, 2), started.words


def test_rows_that_would_be_left_out_besides_those_shown_are_looked_at_first(
    store: DiskStore, workspace: Workspace, account: ProviderAccount, okoye: User
) -> None:
    draft = received(BROKEN, store, workspace, account, okoye)
    drafts.choose(draft.pk, drafts.Changes(take="good"), by=by(okoye), now=NOW)
    drafts.ask_start(draft.pk, run_of(checked(draft, store)), by=by(okoye), now=NOW)
    other = factories.make_batch(workspace=workspace, account=account)
    factories.make_job(batch=other, state=JobState.SAVED, business_id="INV-2")
    done = work(draft, store)
    assert (done.state, done.words) == (DraftState.CHECKED, agreed.MORE_LEFT_OUT)
    assert done.report is not None
    assert done.report["left_out"] == 2, "what is so by now"


def test_notices_that_came_since_the_others_were_confirmed_are_looked_at_first(
    draft: Draft, store: DiskStore, okoye: User, account: ProviderAccount, workspace: Workspace
) -> None:
    other = factories.make_batch(workspace=workspace, account=account)
    factories.make_submission(job=factories.make_job(batch=other, state=JobState.UNKNOWN, business_id="INV-1"))
    drafts.choose(draft.pk, drafts.Changes(on_conflict="new-version"), by=by(okoye), now=NOW)
    run = run_of(checked(draft, store), is_confirmed=True)
    drafts.ask_start(draft.pk, run, by=by(okoye), now=NOW)
    factories.make_submission(job=factories.make_job(batch=other, state=JobState.UNKNOWN, business_id="INV-2"))
    done = work(draft, store)
    assert (done.state, done.words) == (DraftState.CHECKED, agreed.MORE_TO_CONFIRM)
    drafts.ask_start(draft.pk, run_of(done, is_confirmed=True), by=by(okoye), now=NOW)
    assert work(draft, store).state == DraftState.STARTED


def test_what_nobody_confirmed_is_not_sent(
    draft: Draft, store: DiskStore, okoye: User, account: ProviderAccount, workspace: Workspace
) -> None:
    drafts.choose(draft.pk, drafts.Changes(on_conflict="new-version"), by=by(okoye), now=NOW)
    run = run_of(checked(draft, store))
    drafts.ask_start(draft.pk, run, by=by(okoye), now=NOW)
    batch = factories.make_batch(workspace=workspace, account=account)
    job = factories.make_job(batch=batch, state=JobState.UNKNOWN, business_id="INV-2")
    factories.make_submission(job=job)
    done = work(draft, store)
    assert done.state == DraftState.CHECKED
    assert "need a confirmation" in done.words
    assert Batch.objects.count() == 1
    confirmed = run_of(done, is_confirmed=True)
    with pytest.raises(drafts.Refused, match="Confirm the notices"):
        drafts.ask_start(draft.pk, run_of(done), by=by(okoye), now=NOW)
    drafts.ask_start(draft.pk, confirmed, by=by(okoye), now=NOW)
    assert work(draft, store).state == DraftState.STARTED


def test_what_does_not_hold_any_more_is_told_and_not_started(
    starting: Draft, store: DiskStore, workspace: Workspace, account: ProviderAccount
) -> None:
    batch = factories.make_batch(workspace=workspace, account=account)
    factories.make_job(batch=batch, business_id="INV-2")
    done = work(starting, store)
    assert done.state == DraftState.CHECKED
    assert done.report is not None
    assert [error["code"] for error in done.report["errors"]] == ["id_content_conflict"]
    assert Batch.objects.count() == 1


def test_a_right_that_was_taken_away_meanwhile_counts(starting: Draft, store: DiskStore) -> None:
    Membership.objects.update(role="viewer")
    done = work(starting, store)
    assert (done.state, done.words) == (DraftState.CHECKED, checking.MAY_NOT_START)
    assert not Batch.objects.exists()
