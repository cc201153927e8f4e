"""An upload is taken once per creation key, and of those that race or are overtaken nothing is sent twice."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from django.db import IntegrityError

from batches.engine import intake, writing
from batches.engine.errors import IntakeRefused
from batches.manifests import Plan, PlannedRow
from batches.models import (
    AuditEntry,
    Batch,
    BatchItem,
    Document,
    DocumentVersion,
    Job,
    JobState,
    ProviderAccount,
    Workspace,
)
from batches.storage.disk import DiskStore
from tests import factories
from tests.engine import racing
from tests.engine.intake.uploading import NOTHING, check, everything, existing, rows, start
from tests.factories import NOW

pytestmark = pytest.mark.django_db


def test_the_same_creation_key_is_the_same_batch(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, rings: list[int]
) -> None:
    first = start(check(rows("INV-1"), workspace, account), store)
    before = everything()
    second = start(check(rows("INV-1"), workspace, account), store)
    assert (second, everything(), rings) == (first, before, [1])
    other = start(check(rows("INV-1"), factories.make_workspace(), account), store)
    assert other != first, "keys are a workspace's own"


def test_a_creation_key_may_be_any_text(workspace: Workspace, account: ProviderAccount, store: DiskStore) -> None:
    key = "é" * 5000
    first = start(check(rows("INV-1"), workspace, account), store, key=key)
    assert start(check(rows("INV-1"), workspace, account), store, key=key) == first


@pytest.mark.django_db(transaction=True)
def test_one_click_sent_twice_at_once_is_one_batch(store: DiskStore) -> None:
    workspace, account = factories.make_workspace(), factories.make_account()
    checks = [check(rows("INV-1", "INV-2"), workspace, account) for _ in range(2)]
    outcomes = racing.outcomes([lambda checked=checked: start(checked, store).pk for checked in checks])
    assert len(set(outcomes)) == 1, outcomes
    assert everything() == (1, 2, 2, 2, 2, 1)


@pytest.mark.django_db(transaction=True)
def test_of_two_batches_that_race_for_one_new_document_one_sends_it_and_the_other_attaches(store: DiskStore) -> None:
    workspace, account = factories.make_workspace(), factories.make_account()
    checks = [check(rows("INV-1", f"INV-{number}"), workspace, account) for number in (2, 3)]
    outcomes = racing.outcomes(
        [lambda checked=checked, key=f"k{n}": start(checked, store, key=key) for n, checked in enumerate(checks)]
    )
    assert all(isinstance(outcome, Batch) for outcome in outcomes), outcomes
    assert everything() == (2, 4, 3, 3, 3, 2)
    shared = BatchItem.objects.filter(document__business_id="INV-1")
    assert sorted(shared.values_list("intake_outcome", flat=True)) == ["new", "unchanged"]
    assert len(set(shared.values_list("version", flat=True))) == 1


@pytest.mark.django_db(transaction=True)
def test_of_two_batches_that_race_for_one_id_with_other_input_one_is_refused_and_can_be_checked_again(
    store: DiskStore,
) -> None:
    workspace, account = factories.make_workspace(), factories.make_account()
    contents = [[{"id": "INV-1", "html": f"<h1>from {name}</h1>"}, *rows(name)] for name in ("INV-2", "INV-3")]
    checks = [check(content, workspace, account) for content in contents]
    outcomes = racing.outcomes(
        [lambda checked=checked, key=f"k{n}": start(checked, store, key=key) for n, checked in enumerate(checks)]
    )
    (refused,) = [outcome for outcome in outcomes if isinstance(outcome, IntakeRefused)]
    assert refused.words == writing.RACED
    assert everything() == (1, 2, 2, 2, 2, 1), "nothing of the refused one is left"
    loser = contents[outcomes.index(refused)]
    assert check(loser, workspace, account).report()["summary"]["changed"] == 1
    batch = start(check(loser, workspace, account, "new-version"), store, key="again")
    assert sorted(batch.items.values_list("intake_outcome", flat=True)) == ["changed", "new"]


@pytest.fixture
def replans(monkeypatch: pytest.MonkeyPatch) -> list[intake.Check]:
    """What was planned a second time."""
    made: list[intake.Check] = []
    planned_again = intake._planned_again

    def noted(checked: intake.Check, planned: Sequence[PlannedRow]) -> Plan:
        made.append(checked)
        return planned_again(checked, planned)

    monkeypatch.setattr(intake, "_planned_again", noted)
    return made


def test_a_start_that_was_overtaken_since_its_check_is_planned_once_more_and_attaches(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, replans: list[intake.Check], rings: list[int]
) -> None:
    first, second = (check(rows("INV-1", "INV-2"), workspace, account) for _ in range(2))
    start(first, store, key="first")
    batch = start(second, store, key="second")
    assert replans == [second]
    assert set(batch.items.values_list("intake_outcome", flat=True)) == {"unchanged"}
    assert batch.report["summary"]["unchanged"] == 2, "the batch's page shows what came of it, not what was planned"
    assert AuditEntry.objects.order_by("pk").last().facts["unchanged"] == 2
    assert (Job.objects.count(), rings) == (2, [1])


def test_a_start_that_was_overtaken_by_other_input_is_refused_with_nothing_stored(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, replans: list[intake.Check]
) -> None:
    overtaken = check(rows("INV-1", "INV-2"), workspace, account)
    start(check([{"id": "INV-2", "html": "<h1>other</h1>"}], workspace, account), store, key="first")
    before = everything()
    with pytest.raises(IntakeRefused) as refused:
        start(overtaken, store, key="second")
    assert (refused.value.words, everything(), len(replans)) == (writing.RACED, before, 1)


@pytest.mark.parametrize("confirmed", [False, True])
def test_a_confirmation_covers_nothing_that_came_up_after_the_check(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, confirmed: bool
) -> None:
    existing(workspace, account, "INV-1", "saved")
    overtaken = check([{"id": "INV-1", "html": "<h1>mine</h1>"}], workspace, account, "new-version")
    theirs = [{"id": "INV-1", "html": "<h1>theirs</h1>"}]
    first = start(check(theirs, workspace, account, "new-version"), store, key="first")
    job = first.items.get().version.job
    Job.objects.filter(pk=job.pk).update(state=JobState.ACCEPTED, deadline_at=NOW)
    factories.make_submission(job=job)
    before = everything()
    with pytest.raises(IntakeRefused) as refused:
        start(overtaken, store, key="second", confirmed=confirmed)
    assert (refused.value.words, everything()) == (writing.RACED, before)


def test_a_start_that_is_overtaken_twice_is_refused(
    workspace: Workspace,
    account: ProviderAccount,
    store: DiskStore,
    replans: list[intake.Check],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def overtaken(*_given: object, **_options: object) -> None:
        raise IntegrityError

    monkeypatch.setattr(writing, "_write_group", overtaken)
    with pytest.raises(IntakeRefused) as refused:
        start(check(rows("INV-1"), workspace, account), store)
    assert (refused.value.words, everything(), len(replans)) == (writing.RACED, NOTHING, 1)


@pytest.mark.django_db(transaction=True)
def test_batches_that_race_for_the_next_version_make_one_version_each(store: DiskStore) -> None:
    workspace, account = factories.make_workspace(), factories.make_account()
    existing(workspace, account, "INV-1", "saved")
    checks = [
        check([{"id": "INV-1", "html": f"<h1>change {number}</h1>"}], workspace, account, "new-version")
        for number in (1, 2)
    ]
    outcomes = racing.outcomes(
        [lambda checked=checked, key=f"k{n}": start(checked, store, key=key) for n, checked in enumerate(checks)]
    )
    assert all(isinstance(outcome, Batch) for outcome in outcomes), outcomes
    assert list(DocumentVersion.objects.order_by("number").values_list("number", flat=True)) == [1, 2, 3]
    assert set(BatchItem.objects.filter(batch__in=outcomes).values_list("version__number", flat=True)) == {2, 3}
    assert Document.objects.get().current_version.number == 3


@pytest.mark.django_db(transaction=True)
def test_two_batches_that_name_the_same_new_documents_in_opposite_order_do_not_block_each_other(
    store: DiskStore,
) -> None:
    workspace, account = factories.make_workspace(), factories.make_account()
    names = [f"INV-{number}" for number in range(400)]
    checks = [check(rows(*order), workspace, account) for order in (names, names[::-1])]
    outcomes = racing.outcomes(
        [lambda checked=checked, key=f"k{n}": start(checked, store, key=key) for n, checked in enumerate(checks)]
    )
    assert all(isinstance(outcome, Batch) for outcome in outcomes), outcomes
    assert everything() == (2, 800, 400, 400, 400, 2)
