"""A worker's turn that comes to nothing: tried again within bounds, then a person is told."""

from __future__ import annotations

import pytest
from django.db import OperationalError

from batches import queue
from batches.engine import checking, drafts, intake
from batches.models import Draft, DraftState
from batches.storage import StoreUnavailable
from batches.storage.disk import DiskStore
from tests.engine.carried import kill_at
from tests.engine.drafts.drafted import checked, fresh, work
from tests.factories import NOW
from tests.scenarios.world import PumpKilled

pytestmark = pytest.mark.django_db


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
