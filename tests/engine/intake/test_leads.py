"""Whose turn a document takes that several batches name."""

from __future__ import annotations

from datetime import datetime

import pytest

from batches.engine import audit, running
from batches.models import Batch, Job, ProviderAccount, Workspace
from batches.storage.disk import DiskStore
from tests.engine.intake.uploading import check, rows, start
from tests.factories import NOW

pytestmark = pytest.mark.django_db


def test_new_documents_take_the_turns_of_their_batch(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    batch = start(check(rows("INV-1", "INV-2"), workspace, account), store)
    assert set(Job.objects.values_list("lead_batch_id", flat=True)) == {batch.pk}


@pytest.mark.parametrize("stopped", [{"paused_at": NOW}, {"cancelled_at": NOW}])
def test_a_waiting_document_of_a_stopped_batch_takes_the_turns_of_the_one_that_attaches(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, stopped: dict[str, datetime]
) -> None:
    first = start(check(rows("INV-1", "INV-2"), workspace, account), store)
    second = start(check(rows("INV-1"), workspace, account), store, creation_key="second")
    assert set(Job.objects.values_list("lead_batch_id", flat=True)) == {first.pk}, "the older one leads"
    Batch.objects.filter(pk__in=[first.pk, second.pk]).update(**stopped)
    third = start(check(rows("INV-1"), workspace, account), store, creation_key="third")
    leads = dict(Job.objects.values_list("version__document__business_id", "lead_batch_id"))
    assert leads == {"INV-1": third.pk, "INV-2": first.pk}


def test_a_check_says_which_documents_wait_in_a_paused_batch_and_would_be_sent(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    def said() -> list[tuple[str, list[int], bool]]:
        told = check(rows("INV-0", "INV-1", "INV-2"), workspace, account).report()["notices"]
        return [(notice["message"], notice["rows"], notice["needs_confirmation"]) for notice in told]

    first = start(check(rows("INV-1", "INV-2", "INV-3"), workspace, account), store)
    assert said() == []
    by = audit.By(None, "a test", "here")
    running.pause(first.pk, reason="Wrong prices.", by=by, now=NOW)
    words = "also wait in a batch that is paused (March); starting this one sends them."
    assert said() == [(f"2 documents {words}", [1, 2], False)]
    second = start(check(rows("INV-2"), workspace, account), store, creation_key="second")
    alone = "1 document also waits in a batch that is paused (March); starting this one sends it."
    assert said() == [(alone, [1], False)], "the other one is on its way"
    assert second.report["notices"][0]["message"] == alone
    running.resume(first.pk, reason="", by=by, now=NOW)
    assert said() == []
