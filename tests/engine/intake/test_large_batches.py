"""A large batch is written in several transactions: nothing of it is sent before all rows are there, and whoever dies
between two of them leaves what the next one goes on with. Here two rows are large."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from batches.engine import agreed, audit, intake, running, turns, writing
from batches.engine.agreed import Agreed
from batches.engine.errors import IntakeRefused
from batches.models import AuditEntry, Batch, Document, Job, JobState, ProviderAccount, Workspace
from batches.storage.disk import DiskStore
from tests import factories
from tests.engine import racing
from tests.engine.intake.uploading import check, everything, existing, rows, start
from tests.factories import NOW

pytestmark = pytest.mark.django_db

NAMES = [f"INV-{number}" for number in range(5)]


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture(autouse=True)
def two_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "ROWS_AT_ONCE", 2)


def killed_after(row_count: int) -> object:
    def progress(written: int) -> None:
        if written >= row_count:
            raise Killed

    return progress


def due(account: ProviderAccount) -> list[int]:
    return turns.lease_pending(account.pk, owner="pump", now=NOW, most=10)


def started_until(row_count: int, workspace: Workspace, account: ProviderAccount, store: DiskStore) -> Batch:
    with pytest.raises(Killed):
        start(check(rows(*NAMES), workspace, account), store, progress=killed_after(row_count))
    return Batch.objects.get()


def test_all_rows_are_there_in_their_order_and_run(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, rings: list[int]
) -> None:
    batch = start(check(rows(*NAMES), workspace, account), store)
    assert list(batch.items.order_by("position").values_list("document__business_id", flat=True)) == NAMES
    assert (batch.writing_at, batch.paused_at, batch.pause_reason, rings) == (None, None, "", [1])
    assert everything() == (1, 5, 5, 5, 5, 1)
    assert len(due(account)) == 5


def shown(checked: intake.Check, renders: int) -> Agreed:
    """What a person agreed to who saw this check, but for the renders."""
    return agreed.of_report(checked.report(), renders)


def test_nothing_is_sent_and_nobody_can_resume_it_while_it_is_written(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, rings: list[int]
) -> None:
    batch = started_until(3, workspace, account, store)
    assert batch.items.count() == 4
    assert (batch.pause_reason, batch.writing_at, rings) == (writing.BEING_WRITTEN, NOW, [])
    assert not running.resume(batch.pk, reason="now", by=audit.ENGINE, now=NOW)
    assert due(account) == []


@pytest.mark.parametrize("dies_after", [1, 3])
def test_who_starts_it_again_after_a_kill_goes_on_behind_the_rows_that_are_there(
    dies_after: int, workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    begun = started_until(dies_after, workspace, account, store)
    checked = check(rows(*NAMES), workspace, account)
    assert checked.plan.render_count < 5, "some of it is there"
    batch = start(checked, store, shown=shown(checked, 5))
    assert (batch, batch.writing_at, batch.paused_at) == (begun, None, None)
    assert everything() == (1, 5, 5, 5, 5, 1)
    assert batch.report["summary"]["new"] == 5, "as it was shown"
    assert len(due(account)) == 5
    assert start(check(rows(*NAMES), workspace, account), store) == batch


def test_one_that_died_at_its_end_has_nothing_but_its_end_to_write(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    batch = start(check(rows(*NAMES), workspace, account), store)
    Batch.objects.update(writing_at=NOW, paused_at=NOW, pause_reason=writing.BEING_WRITTEN)
    assert start(check(rows(*NAMES), workspace, account), store) == batch
    assert Batch.objects.get().writing_at is None
    assert len(due(account)) == 5


def test_what_stays_held_back_waits_when_all_rows_are_there(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, rings: list[int]
) -> None:
    batch = start(check(rows(*NAMES), workspace, account), store, hold="Its sample is looked at first.")
    assert (batch.writing_at, batch.pause_reason, rings) == (None, "Its sample is looked at first.", [])
    assert due(account) == []
    assert running.resume(batch.pk, reason="fine", by=audit.ENGINE, now=NOW)
    assert len(due(account)) == 5


def test_another_batch_with_the_same_input_in_between_is_attached_to(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    def overtaken(written: int) -> None:
        if written == 2:
            start(check(rows("INV-3"), workspace, account), store, key="theirs")

    batch = start(check(rows(*NAMES), workspace, account), store, progress=overtaken)
    outcomes = dict(batch.items.values_list("document__business_id", "intake_outcome"))
    assert outcomes == {name: "unchanged" if name == "INV-3" else "new" for name in NAMES}
    assert {name: batch.report["summary"][name] for name in ("new", "unchanged")} == {"new": 4, "unchanged": 1}
    assert Job.objects.count() == 5


def test_another_batch_with_other_input_in_between_ends_it_cleanly(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, rings: list[int]
) -> None:
    def overtaken(written: int) -> None:
        if written == 2:
            start(check([{"id": "INV-3", "html": "<p>theirs</p>"}], workspace, account), store, key="theirs")

    with pytest.raises(IntakeRefused) as refused:
        start(check(rows(*NAMES), workspace, account), store, progress=overtaken)
    assert refused.value.words == writing.RACED
    ended = Batch.objects.get(cancelled_at__isnull=False)
    assert set(ended.items.values_list("version__job__state", flat=True)) == {JobState.CANCELLED}
    entry = AuditEntry.objects.get(action="cancel_batch", subject=f"batch {ended.public_id}")
    assert entry.reason == writing.RACED
    assert len(due(account)) == 1, "theirs alone"
    again = start(check(rows("INV-0", "INV-1"), workspace, account), store)
    assert again != ended, "its key is free"
    assert set(again.items.values_list("intake_outcome", flat=True)) == {"revive"}


def test_a_person_who_cancels_it_meanwhile_ends_it(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    def cancelled(written: int) -> None:
        if written == 2:
            running.cancel(Batch.objects.get().pk, reason="wrong file", by=audit.ENGINE, now=NOW)

    with pytest.raises(IntakeRefused, match=writing.CANCELLED):
        start(check(rows(*NAMES), workspace, account), store, progress=cancelled)
    assert Batch.objects.get().items.count() == 2
    assert due(account) == []
    assert start(check(rows(*NAMES), workspace, account), store).items.count() == 5


def test_going_on_asks_again_for_what_nobody_has_confirmed(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    begun = started_until(3, workspace, account, store)
    existing(workspace, account, "INV-4", "saved")
    Document.objects.filter(business_id="INV-4").update(is_final=True)
    changed = [*rows(*NAMES[:4]), {"id": "INV-4", "html": "<p>other</p>"}]
    with pytest.raises(IntakeRefused):
        start(check(changed, workspace, account), store)
    begun.refresh_from_db()
    assert begun.cancelled_at is not None


@pytest.mark.parametrize(("most", "is_taken"), [(5, True), (4, False)])
def test_no_more_is_rendered_than_was_shown(
    most: int, is_taken: bool, workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    started_until(3, workspace, account, store)
    checked = check(rows(*NAMES), workspace, account)
    if is_taken:
        assert start(checked, store, shown=shown(checked, most)).items.count() == 5
        return
    with pytest.raises(IntakeRefused, match="more documents would be sent"):
        start(checked, store, shown=shown(checked, most))
    assert due(account) == []


def test_what_was_begun_with_other_content_is_never_gone_on_with(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    """The same creation key, and another file since: half a batch of each would be neither."""
    begun = started_until(3, workspace, account, store)
    changed = [*rows(*NAMES[:4]), {"id": "INV-4", "html": "<p>other</p>"}]
    with pytest.raises(IntakeRefused, match="other content"):
        start(check(changed, workspace, account), store)
    begun.refresh_from_db()
    assert (begun.cancelled_at, due(account)) == (NOW, [])
    assert start(check(changed, workspace, account), store).items.count() == 5


def test_what_nobody_goes_on_writing_is_given_up(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    begun = started_until(3, workspace, account, store)
    assert writing.end_forgotten(older_than=NOW, now=NOW) == 0
    assert writing.end_forgotten(older_than=NOW + timedelta(seconds=1), now=NOW) == 1
    begun.refresh_from_db()
    assert begun.cancelled_at == NOW
    assert writing.end_forgotten(older_than=NOW + timedelta(seconds=1), now=NOW) == 0


@pytest.mark.django_db(transaction=True)
def test_two_who_write_one_batch_at_once_write_each_row_once(store: DiskStore) -> None:
    workspace, account = factories.make_workspace(), factories.make_account()
    names = [f"INV-{number}" for number in range(40)]
    with pytest.raises(Killed):
        start(check(rows(*names), workspace, account), store, progress=killed_after(1))
    checks = [check(rows(*names), workspace, account) for _ in range(2)]
    meeting = threading.Barrier(2)
    outcomes = racing.outcomes(
        [lambda checked=checked: (meeting.wait(), start(checked, store).pk)[1] for checked in checks]
    )
    assert len(set(outcomes)) == 1, outcomes
    assert everything() == (1, 40, 40, 40, 40, 1)
    assert Batch.objects.get().writing_at is None


def test_the_good_rows_can_be_taken_and_the_others_are_told(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    existing(workspace, account, "INV-1", "saved")
    documents = [*rows("INV-0"), {"id": "INV-1", "html": "<p>other</p>"}, {"html": "<p>no id</p>"}, *rows("INV-3")]
    refused = check(documents, workspace, account)
    assert not refused.ok
    checked = check(documents, workspace, account, take="good")
    assert (checked.ok, checked.left_out_count, checked.report()["left_out"]) == (True, 2, 2)
    batch = start(checked, store)
    assert list(batch.items.order_by("position").values_list("position", flat=True)) == [0, 3]
    assert batch.report["left_out"] == 2
    assert {error["code"] for error in batch.report["errors"]} == {"missing_id", "id_content_conflict"}
