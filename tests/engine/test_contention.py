"""Whoever is ended because two transactions waited for each other is done again: nobody sees an error."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Sequence

import psycopg
import pytest
from django.db import DatabaseError, OperationalError, connection, transaction

from batches.engine import running
from batches.engine.audit import By
from batches.engine.contention import TRIES, again_after_deadlock
from batches.models import AuditEntry, Batch, BatchItem, Job, Workspace
from tests import factories
from tests.engine import racing
from tests.engine.deadlocks import ended_by
from tests.factories import NOW

BY = By(None, "a test", "command line")
ROUNDS = 25
DOCUMENTS = 120


class Flaky:
    """Work that fails with each of `errors`, then answers."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def work(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


@pytest.mark.django_db(transaction=True)
def test_a_deadlock_is_tried_again_a_few_times_and_then_told() -> None:
    deadlock = psycopg.errors.DeadlockDetected
    twice = Flaky(*[ended_by(deadlock) for _ in range(TRIES - 1)])
    assert again_after_deadlock(twice.work)() == "done"
    for_ever = Flaky(*[ended_by(deadlock) for _ in range(TRIES + 1)])
    with pytest.raises(OperationalError):
        again_after_deadlock(for_ever.work)()
    assert for_ever.calls == TRIES


@pytest.mark.django_db(transaction=True)
def test_any_other_failure_is_told_at_once_and_so_is_one_inside_a_transaction() -> None:
    away = Flaky(ended_by(psycopg.errors.AdminShutdown))
    with pytest.raises(OperationalError):
        again_after_deadlock(away.work)()
    assert away.calls == 1
    inside = Flaky(ended_by(psycopg.errors.DeadlockDetected))
    with pytest.raises(OperationalError), transaction.atomic():
        again_after_deadlock(inside.work)()
    assert inside.calls == 1


@pytest.mark.django_db(transaction=True)
def test_a_pause_that_meets_another_transaction_head_on_pauses_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    """The other one holds a document's row and wants the workspace, which the pause has, which wants the row."""
    caplog.set_level(logging.INFO, logger="batches.engine.contention")
    batch = factories.make_batch()
    job = factories.make_job(batch=batch)
    second = also_needing([job])
    locks_rows = connection.features.has_select_for_update
    if locks_rows:
        with connection.cursor() as cursor:
            cursor.execute("SET deadlock_timeout = '2s'")
    has_row = threading.Event()
    trouble: list[BaseException] = []

    def cross() -> None:
        try:
            with transaction.atomic():
                if locks_rows:
                    with connection.cursor() as cursor:
                        cursor.execute("SET LOCAL deadlock_timeout = '60s'")  # the pause is the one that is ended
                Job.objects.filter(pk=job.pk).update(due_at=NOW)
                has_row.set()
                gives_up_at = time.monotonic() + 60
                while locks_rows and not is_held(batch.workspace_id):
                    assert time.monotonic() < gives_up_at
                    time.sleep(0.01)
                Workspace.objects.filter(pk=batch.workspace_id).update(name="Okoye")
        except BaseException as error:  # noqa: BLE001 - told to the test's own thread
            trouble.append(error)
            has_row.set()
        finally:
            connection.close()

    other = threading.Thread(target=cross)
    other.start()
    try:
        assert has_row.wait(30)
        assert running.pause(batch.pk, reason="Wrong prices.", by=BY, now=NOW)
    finally:
        other.join()
        if locks_rows:
            with connection.cursor() as cursor:
                cursor.execute("RESET deadlock_timeout")
    assert not trouble
    assert ("done again after a deadlock" in caplog.text) is locks_rows
    assert AuditEntry.objects.filter(action="pause_batch").count() == 1
    assert Job.objects.get().lead_batch_id == second.pk, "another batch that needs it goes on"


def also_needing(jobs: Sequence[Job]) -> Batch:
    """A second batch that names the same documents."""
    first = jobs[0].version.items.get().batch
    second = factories.make_batch(workspace=first.workspace, account=first.account)
    for position, job in enumerate(jobs):
        version = job.version
        BatchItem.objects.create(
            batch=second, position=position, document=version.document, version=version, intake_outcome="unchanged"
        )
    return second


def is_held(workspace_id: int) -> bool:
    try:
        with transaction.atomic():
            Workspace.objects.select_for_update(nowait=True).get(pk=workspace_id)
            transaction.set_rollback(True)  # it was free, and stays so
    except DatabaseError:
        return True
    return False


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_people_and_pumps_that_work_on_the_same_documents_at_once_all_get_through() -> None:
    """Case 107: bulk writes over overlapping rows in different order deadlocked."""
    first = factories.make_batch()
    jobs = [factories.make_job(batch=first) for _ in range(DOCUMENTS)]
    also_needing(jobs[::-1])
    roles = list(itertools.product(("person", "pump"), ("1", "2")))
    runs = [(role, seed, str(ROUNDS)) for role, seed in roles]
    done = racing.processes("tests.engine.hammering", runs, seconds=300)
    assert [each[-1] for each in done] == [str(ROUNDS)] * len(roles)
    # What a person was told is what happened: each batch was paused as often as it was resumed, and runs again.
    paused = AuditEntry.objects.filter(action="pause_batch").count()
    assert paused == AuditEntry.objects.filter(action="resume_batch").count() > 0
    assert not Batch.objects.exclude(paused_at=None).exists()
    assert {job.lead_batch_id for job in Job.objects.all()} == {first.pk}
