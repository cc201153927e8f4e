"""Checking drafts: asked for and found by a worker or done in the request, dropped where the choices were changed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from batches import queue
from batches.engine import checking, drafts, intake, pumping
from batches.models import Batch, Draft, DraftState, ProviderAccount, Workspace
from batches.storage.disk import DiskStore
from tests.engine.carried import Clock
from tests.engine.drafts.drafted import BROKEN, by, checked, fresh, received, run_of, work
from tests.factories import NOW

pytestmark = pytest.mark.django_db


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
