"""Checking and starting drafts: whoever dies, hurries or presses twice, a draft becomes one batch, as it was shown."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError

from batches import queue
from batches.engine import agreed, checking, draftfiles, drafts, intake, pumping, writing
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
from tests.engine.drafted import BROKEN, ROWS, by, checked, fresh, operator, received, run_of, work
from tests.factories import NOW
from tests.scenarios.world import PumpKilled

pytestmark = pytest.mark.django_db

AFTER_THE_LEASE = NOW + checking.LEASE + timedelta(seconds=1)


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    store = DiskStore(tmp_path / "store")
    store.ensure()
    return store


@pytest.fixture
def okoye(workspace: Workspace) -> User:
    return operator(workspace)


@pytest.fixture(autouse=True)
def rings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    rung: list[str] = []
    monkeypatch.setattr(queue, "ring_drafts", lambda: rung.append("drafts"))
    monkeypatch.setattr(queue, "ring", lambda pumps=1: rung.append("pumps"))
    return rung


@pytest.fixture
def draft(store: DiskStore, workspace: Workspace, account: ProviderAccount, okoye: User) -> Draft:
    return received(ROWS, store, workspace, account, okoye)


@pytest.fixture
def starting(draft: Draft, store: DiskStore, okoye: User) -> Draft:
    return drafts.ask_start(draft.pk, run_of(checked(draft, store)), by=by(okoye), now=NOW)


# --- the check ------------------------------------------------------------------------------------------------------


def test_a_check_is_asked_for_rung_for_and_found_by_a_worker(draft: Draft, store: DiskStore, rings: list[str]) -> None:
    drafts.ask_check(draft.pk, now=NOW)
    drafts.ask_check(draft.pk, now=NOW)
    assert (fresh(draft).state, rings) == (DraftState.CHECKING, ["drafts"])
    tally = checking.carry_out(Clock(NOW), owner="a worker", store=store, stopping=checking.never)
    assert (tally.drafts, tally.is_work_left) == (1, False)
    done = fresh(draft)
    assert (done.state, done.lease_owner, done.due_at) == (DraftState.CHECKED, None, None)
    assert done.report is not None
    assert (done.report["ok"], done.report["renders"], done.report["summary"]["new"]) == (True, 3, 3)
    assert not Batch.objects.exists()


def test_a_page_of_an_earlier_check_starts_nothing(draft: Draft, store: DiskStore, okoye: User) -> None:
    earlier = run_of(checked(draft, store))
    later = run_of(checked(draft, store))
    with pytest.raises(drafts.Refused, match="changed in another window"):
        drafts.ask_start(draft.pk, earlier, by=by(okoye), now=NOW)
    assert drafts.ask_start(draft.pk, later, by=by(okoye), now=NOW).state == DraftState.STARTING


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x1a\n", b"[{", b"\xff\xfe\x00"])
def test_what_cannot_be_read_is_checked_with_that_as_its_error(
    content: bytes, store: DiskStore, workspace: Workspace, account: ProviderAccount, okoye: User
) -> None:
    draft = received(content, store, workspace, account, okoye)
    done = draft if draft.state == DraftState.CHECKED else checked(draft, store)
    assert done.state == DraftState.CHECKED
    assert done.report is not None
    assert (len(done.report["errors"]), done.report["ok"]) == (1, False)


def test_the_good_rows_are_taken_where_that_was_chosen(
    store: DiskStore, workspace: Workspace, account: ProviderAccount, okoye: User
) -> None:
    draft = received(BROKEN, store, workspace, account, okoye)
    assert not checked(draft, store).report["ok"]
    drafts.choose(draft.pk, drafts.Changes(take="good"), by=by(okoye), now=NOW)
    done = checked(draft, store)
    assert (done.report["ok"], done.report["left_out"]) == (True, 1)
    drafts.ask_start(draft.pk, run_of(done), by=by(okoye), now=NOW)
    assert work(draft, store).batch.items.count() == 3


def test_what_a_check_of_older_choices_found_is_dropped(
    draft: Draft, store: DiskStore, okoye: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = intake.check

    def meanwhile(*given: Any, **named: Any) -> intake.Check:
        drafts.choose(draft.pk, drafts.Changes(on_conflict="new-version"), by=by(okoye), now=NOW)
        return real(*given, **named)

    monkeypatch.setattr(intake, "check", meanwhile)
    done = checked(draft, store)
    assert (done.state, done.report, done.generation) == (DraftState.OPEN, None, 1)


def test_a_check_whose_choices_were_changed_ends_with_its_next_beat(
    draft: Draft, store: DiskStore, okoye: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(NOW)
    real = intake.check

    def meanwhile(*given: Any, progress: Callable[[int], None], **named: Any) -> intake.Check:
        def slow(row_count: int) -> None:
            clock.advance(2)
            progress(row_count)
            assert row_count == 0, "the second beat ends it"
            drafts.choose(draft.pk, drafts.Changes(take="good"), by=by(okoye), now=NOW)

        return real(*given, progress=slow, **named)

    monkeypatch.setattr(intake, "check", meanwhile)
    drafts.ask_check(draft.pk, now=NOW)
    assert not checking.work_on(draft.pk, clock, owner="a worker", store=store)
    assert fresh(draft).state == DraftState.OPEN


def test_progress_is_shown_and_keeps_the_lease(draft: Draft, store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(NOW)
    seen: list[tuple[int, Any]] = []
    real = intake.check

    def slow(*given: Any, progress: Callable[[int], None], **named: Any) -> intake.Check:
        for row_count in (100, 200):
            clock.advance(40)
            progress(row_count)
            row = fresh(draft)
            seen.append((row.rows_done, row.lease_until))
        return real(*given, progress=progress, **named)

    monkeypatch.setattr(intake, "check", slow)
    drafts.ask_check(draft.pk, now=NOW)
    assert checking.work_on(draft.pk, clock, owner="a worker", store=store)
    assert seen == [
        (100, NOW + timedelta(seconds=40) + checking.LEASE),
        (200, NOW + timedelta(seconds=80) + checking.LEASE),
    ]


@pytest.mark.parametrize("began", ["check", "start"])
def test_a_turn_that_would_last_for_hours_is_ended_in_words(
    began: str, draft: Draft, store: DiskStore, okoye: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself, well before its worker is killed for it and takes the others' work with it."""
    assert checking.LONGEST + timedelta(minutes=2) < timedelta(seconds=queue.DRAFTS_TIMEOUT)
    if began == "start":
        drafts.ask_start(draft.pk, run_of(checked(draft, store)), by=by(okoye), now=NOW)
    else:
        drafts.ask_check(draft.pk, now=NOW)
    clock = Clock(NOW)
    real = intake.check

    def endless(*given: Any, progress: Callable[[int], None], **named: Any) -> intake.Check:
        for row_count in range(10_000):
            clock.advance(1)
            progress(row_count)
        return real(*given, progress=progress, **named)

    monkeypatch.setattr(intake, "check", endless)
    assert checking.work_on(draft.pk, clock, owner="a worker", store=store)
    ended = fresh(draft)
    assert (ended.words, ended.due_at, ended.lease_owner) == (checking.TOO_LONG, None, None)
    assert ended.state == (DraftState.CHECKED if began == "start" else DraftState.OPEN)
    assert clock.now() - NOW <= checking.LONGEST + timedelta(seconds=2)
    monkeypatch.undo()
    assert checked(ended, store).state == DraftState.CHECKED, "a person may ask again"


# --- the start ------------------------------------------------------------------------------------------------------


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


# --- mishaps --------------------------------------------------------------------------------------------------------


def test_a_store_that_is_away_keeps_the_draft_and_is_tried_again_within_bounds(
    draft: Draft, store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_given: object) -> None:
        raise StoreUnavailable("The store is not mounted.")

    monkeypatch.setattr(store, "open", away)
    drafts.ask_check(draft.pk, now=NOW)
    now, tries = NOW, 0
    while fresh(draft).state == DraftState.CHECKING:
        assert work(draft, store, now=now).words == "The store is not mounted."
        tries += 1
        assert not checking.due(now=now), "not at once"
        now += checking.PUT_OFF_MOST
    assert tries == checking.TRIES_MOST
    assert fresh(draft).state == DraftState.OPEN
    monkeypatch.undo()
    monkeypatch.setattr(queue, "ring_drafts", lambda: None)
    done = checked(draft, store)
    assert (done.state, done.words) == (DraftState.CHECKED, "")


def test_an_upload_that_is_gone_from_the_store_is_told_at_once(starting: Draft, store: DiskStore) -> None:
    store.delete(starting.upload_key)
    done = work(starting, store)
    assert (done.state, done.words) == (DraftState.SWEPT, checking.GONE)


def test_a_fault_of_ours_is_logged_and_a_person_is_told_in_the_end(
    draft: Draft, store: DiskStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_given: object, **_named: object) -> None:
        raise RuntimeError("an odd thing")

    monkeypatch.setattr(intake, "check", broken)
    drafts.ask_check(draft.pk, now=NOW)
    for number in range(checking.TRIES_MOST):
        work(draft, store, now=NOW + number * checking.PUT_OFF_MOST)
    assert (fresh(draft).state, fresh(draft).words) == (DraftState.OPEN, checking.FAULT)
    assert "an odd thing" in caplog.text


def test_a_file_that_kills_its_worker_each_time_does_not_do_so_for_ever(
    draft: Draft, store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafts.ask_check(draft.pk, now=NOW)
    kill_at(monkeypatch, intake, "check", call=1)
    for number in range(checking.TRIES_MOST):
        monkeypatch.undo()
        kill_at(monkeypatch, intake, "check", call=1)
        with pytest.raises(PumpKilled):
            work(draft, store, owner=f"host:{number}:life:x")
        checking.release_life("life")
    monkeypatch.undo()
    done = work(draft, store)
    assert (done.state, done.words) == (DraftState.OPEN, checking.GAVE_UP)


def test_a_database_that_is_away_is_passed_on_and_the_turn_comes_again(
    draft: Draft, store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_given: object, **_named: object) -> None:
        raise OperationalError("server closed the connection")

    drafts.ask_check(draft.pk, now=NOW)
    monkeypatch.setattr(intake, "check", away)
    with pytest.raises(OperationalError):
        work(draft, store)
    monkeypatch.undo()
    assert fresh(draft).words == "The database did not answer."
    assert work(draft, store, now=NOW + checking.PUT_OFF_MOST).state == DraftState.CHECKED


def test_a_worker_that_has_to_stop_gives_its_turn_back_uncounted(draft: Draft, store: DiskStore) -> None:
    drafts.ask_check(draft.pk, now=NOW)
    left = work(draft, store, stopping=lambda: True)
    assert (left.state, left.tries, left.lease_owner) == (DraftState.CHECKING, 0, None)
    assert work(draft, store).state == DraftState.CHECKED


# --- who rings, and where it is done --------------------------------------------------------------------------------


def test_a_small_upload_is_done_in_the_request_and_a_large_one_is_left_to_a_worker(
    draft: Draft, settings: Any, store: DiskStore
) -> None:
    settings.STORAGE_URL = f"file://{store.root}"
    asked = drafts.ask_check(draft.pk, now=NOW)
    asked.upload_bytes = checking.SMALL_BYTES + 1
    assert not pumping.work_on_small(asked)
    asked.upload_bytes = checking.SMALL_BYTES
    assert pumping.work_on_small(asked)
    assert fresh(draft).state == DraftState.CHECKED


def test_what_takes_too_long_for_a_request_is_left_to_a_worker(
    draft: Draft, settings: Any, store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.STORAGE_URL = f"file://{store.root}"
    monkeypatch.setattr(checking, "IN_REQUEST", timedelta(seconds=-1))
    assert not pumping.work_on_small(drafts.ask_check(draft.pk, now=NOW))
    left = fresh(draft)
    assert (left.state, left.lease_owner, left.tries) == (DraftState.CHECKING, None, 0)
    assert work(draft, store, now=left.due_at or NOW).state == DraftState.CHECKED


def test_a_face_whose_clock_is_a_little_ahead_is_done_in_its_request(draft: Draft, store: DiskStore) -> None:
    drafts.ask_check(draft.pk, now=NOW + timedelta(seconds=1))
    assert work(draft, store).state == DraftState.CHECKED


def test_what_a_dead_worker_left_is_rung_for(starting: Draft, rings: list[str]) -> None:
    rings.clear()
    assert pumping.ring_for_drafts()
    Draft.objects.update(state=DraftState.CHECKED, due_at=None)
    assert not pumping.ring_for_drafts()
    assert rings == ["drafts"]
