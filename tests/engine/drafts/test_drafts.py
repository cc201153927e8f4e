"""A draft between upload and batch: kept before it is read, chosen for, discarded, swept."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from batches.engine import drafts, storeorphans
from batches.models import AuditEntry, Batch, ColumnMapping, Draft, DraftState, ProviderAccount, Workspace
from batches.storage import StoreFull, StoreUnavailable
from batches.storage.disk import DiskStore
from tests import factories
from tests.engine.drafts.drafted import BROKEN, ROWS, by, checked, fresh, operator, received, run_of, work
from tests.factories import NOW
from tests.storage.listing import keys_in

pytestmark = pytest.mark.django_db


def test_an_upload_is_kept_byte_for_byte_before_anything_of_it_is_read(
    store: DiskStore, workspace: Workspace, account: ProviderAccount, okoye: User
) -> None:
    content = b'\xff\x00 no manifest at all "'
    draft = received(content, store, workspace, account, okoye, filename="odd.json")
    with store.open(draft.upload_key) as stream:
        assert stream.read() == content
    assert (draft.upload_sha256, draft.upload_bytes) == (hashlib.sha256(content).hexdigest(), len(content))
    assert (draft.filename, draft.created_by, draft.workspace) == ("odd.json", okoye, workspace)
    entry = AuditEntry.objects.get(action="upload_file")
    assert (entry.subject, entry.facts["sha256"]) == (f"draft {draft.public_id}", draft.upload_sha256)


def test_what_the_store_does_not_take_is_no_draft(
    store: DiskStore, workspace: Workspace, account: ProviderAccount, okoye: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_given: object) -> None:
        raise StoreFull("No room.")

    monkeypatch.setattr(store, "put", full)
    with pytest.raises(StoreFull):
        received(ROWS, store, workspace, account, okoye)
    assert not Draft.objects.exists()
    assert not AuditEntry.objects.exists()


def test_what_is_chosen_anew_makes_the_check_before_count_no_more(draft: Draft, store: DiskStore, okoye: User) -> None:
    before = checked(draft, store)
    assert before.state == DraftState.CHECKED
    run = run_of(before)
    chosen = drafts.choose(draft.pk, drafts.Changes(on_conflict="new-version"), by=by(okoye), now=NOW)
    assert (chosen.state, chosen.generation, chosen.report) == (DraftState.OPEN, before.generation + 1, None)
    with pytest.raises(drafts.Refused, match="changed in another window"):
        drafts.ask_start(draft.pk, run, by=by(okoye), now=NOW)
    assert AuditEntry.objects.get(action="choose_for_upload").facts["on_conflict"] == "new-version"


def test_choices_of_one_step_leave_those_of_the_others(draft: Draft, okoye: User) -> None:
    first = {"choices": {"encoding": "cp1252", "mapping": {"Nr": "id"}}}
    drafts.choose(draft.pk, drafts.Changes(**first), by=by(okoye), now=NOW)
    chosen = drafts.choose(draft.pk, drafts.Changes(choices={"template": "invoice"}), by=by(okoye), now=NOW)
    assert (chosen.choices["encoding"], chosen.choices["mapping"], chosen.choices["template"]) == (
        "cp1252",
        {"Nr": "id"},
        "invoice",
    )


def test_a_mapping_is_offered_again_for_the_same_header_in_the_same_workspace(
    draft: Draft, okoye: User, store: DiskStore, account: ProviderAccount
) -> None:
    Draft.objects.update(look={"header_sha256": "a" * 64})
    drafts.choose(draft.pk, drafts.Changes(choices={"mapping": {"Nr": "id"}}), by=by(okoye), now=NOW)
    drafts.choose(draft.pk, drafts.Changes(choices={"mapping": {"Nr": "meta.nr"}}), by=by(okoye), now=NOW)
    assert ColumnMapping.objects.get().mapping == {"Nr": "meta.nr"}
    assert drafts.remembered(fresh(draft)) == {"Nr": "meta.nr"}
    foreign = factories.make_workspace()
    other = received(ROWS, store, foreign, account, operator(foreign, "brandt"))
    other.look = {"header_sha256": "a" * 64}
    assert drafts.remembered(other) is None


@pytest.mark.parametrize("state", [DraftState.STARTING, DraftState.STARTED, DraftState.SWEPT])
def test_nothing_is_chosen_or_checked_once_it_is_started_or_over(
    state: DraftState, draft: Draft, store: DiskStore, okoye: User
) -> None:
    Draft.objects.update(state=state)
    with pytest.raises(drafts.Refused):
        drafts.choose(draft.pk, drafts.Changes(take="good"), by=by(okoye), now=NOW)
    with pytest.raises(drafts.Refused):
        drafts.ask_check(draft.pk, now=NOW)
    assert fresh(draft).generation == 0


@pytest.mark.parametrize(
    ("content", "chosen", "words"),
    [
        (BROKEN, {}, "The check found errors"),
        (ROWS, {"generation": 9}, "changed in another window"),
    ],
)
def test_a_start_says_what_is_missing_and_changes_nothing(
    content: Any,
    chosen: dict[str, Any],
    words: str,
    store: DiskStore,
    workspace: Workspace,
    account: ProviderAccount,
    okoye: User,
) -> None:
    draft = checked(received(content, store, workspace, account, okoye), store)
    with pytest.raises(drafts.Refused, match=words):
        drafts.ask_start(draft.pk, run_of(draft, **chosen), by=by(okoye), now=NOW)
    assert fresh(draft).state == DraftState.CHECKED


def test_one_that_was_not_checked_is_not_started(draft: Draft, okoye: User) -> None:
    with pytest.raises(drafts.Refused, match="Look at it again"):
        drafts.ask_start(draft.pk, run_of(draft), by=by(okoye), now=NOW)


def test_discarding_deletes_the_file_and_keeps_the_row(draft: Draft, store: DiskStore, okoye: User) -> None:
    assert drafts.discard(draft.pk, by=by(okoye), store=store, now=NOW)
    assert (fresh(draft).state, fresh(draft).words) == (DraftState.SWEPT, drafts.DISCARDED)
    assert keys_in(store) == []
    assert not drafts.discard(draft.pk, by=by(okoye), store=store, now=NOW)
    assert AuditEntry.objects.filter(action="discard_upload").count() == 1


def test_one_that_is_being_started_is_not_discarded(draft: Draft, store: DiskStore, okoye: User) -> None:
    drafts.ask_start(draft.pk, run_of(checked(draft, store)), by=by(okoye), now=NOW)
    with pytest.raises(drafts.Refused, match="being started"):
        drafts.discard(draft.pk, by=by(okoye), store=store, now=NOW)
    assert work(draft, store).state == DraftState.STARTED


@pytest.mark.parametrize(("days", "is_swept"), [(6.9, False), (7.1, True)])
def test_what_nobody_comes_back_to_is_swept_after_a_week(
    days: float, is_swept: bool, draft: Draft, store: DiskStore
) -> None:
    now = NOW + timedelta(days=days)
    assert drafts.sweep(store, now=now) == int(is_swept)
    assert (fresh(draft).state == DraftState.SWEPT, keys_in(store) == []) == (is_swept, is_swept)
    assert drafts.sweep(store, now=now) == 0


def test_what_is_in_the_worker_s_turn_or_was_started_is_not_swept(draft: Draft, store: DiskStore, okoye: User) -> None:
    later = NOW + timedelta(days=30)
    drafts.ask_check(draft.pk, now=NOW)
    assert drafts.sweep(store, now=later) == 0
    drafts.ask_start(draft.pk, run_of(work(draft, store)), by=by(okoye), now=NOW)
    assert work(draft, store).state == DraftState.STARTED
    assert drafts.sweep(store, now=later) == 0
    assert Batch.objects.get().manifest_key in keys_in(store)


@pytest.mark.parametrize("end", ["discarded", "started"])
def test_a_file_that_a_death_or_the_store_left_behind_is_deleted_by_the_sweep(
    end: str, draft: Draft, store: DiskStore, okoye: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(key: str) -> None:
        raise StoreUnavailable(f"{key} is busy")

    with monkeypatch.context() as patched:
        patched.setattr(store, "delete", refused)
        if end == "discarded":
            drafts.discard(draft.pk, by=by(okoye), store=store, now=NOW)
        else:
            drafts.ask_start(draft.pk, run_of(checked(draft, store)), by=by(okoye), now=NOW)
            work(draft, store)
        drafts.sweep(store, now=NOW)
        assert draft.upload_key in keys_in(store)
    drafts.sweep(store, now=NOW)
    assert draft.upload_key not in keys_in(store)
    assert fresh(draft).upload_deleted_at == NOW


def test_a_draft_s_file_is_no_orphan_of_the_store(draft: Draft, store: DiskStore, okoye: User) -> None:
    assert storeorphans.named([draft.upload_key]) == {draft.upload_key}
    drafts.discard(draft.pk, by=by(okoye), store=store, now=NOW)
    assert storeorphans.named([draft.upload_key]) == set()


def test_the_file_of_a_started_draft_is_the_batch_s(draft: Draft, store: DiskStore, okoye: User) -> None:
    drafts.ask_start(draft.pk, run_of(checked(draft, store)), by=by(okoye), now=NOW)
    work(draft, store)
    batch = Batch.objects.get()
    assert keys_in(store) == [batch.manifest_key]
    with store.open(batch.manifest_key) as stream:
        assert stream.read() == json.dumps(ROWS).encode()
    assert (batch.manifest_sha256, batch.draft) == (draft.upload_sha256, fresh(draft))
