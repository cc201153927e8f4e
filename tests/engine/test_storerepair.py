"""Repairs beside others that write the same rows: locked in the same order, and done again where it still met them."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection, transaction

from batches.engine import storecheck, storerepair
from batches.engine.storerepair import Amiss
from batches.models import Artifact, FindingKind, Job, JobState, StoreFinding
from batches.storage import ArtifactStore, open_store
from tests import factories
from tests.engine.deadlocks import end_once_by_deadlock
from tests.engine.virtual_time import VirtualClock
from tests.factories import NOW

pytestmark = pytest.mark.django_db(transaction=True)
CONTENT = b"%PDF-1.4\n%%EOF\n"


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    store = open_store(f"file://{tmp_path}/store")
    store.ensure()
    return store


@pytest.fixture
def artifact() -> Artifact:
    job = factories.make_saved_job()
    digest = hashlib.sha256(CONTENT).hexdigest()
    Artifact.objects.filter(version=job.version).update(
        storage_key="main/x/v1.pdf", sha256=digest, byte_count=len(CONTENT), stored_at=NOW
    )
    return Artifact.objects.get(version=job.version)


def lose(artifact: Artifact, store: ArtifactStore) -> None:
    storerepair.follow([Amiss(artifact, FindingKind.MISSING, None, "It is not there.")], store, now=NOW)


def settle(store: ArtifactStore) -> int | None:
    clock = VirtualClock(NOW)
    return storerepair.settle(store, clock, after=0, ends_at=NOW + timedelta(seconds=5))


def expire(artifact: Artifact, store: ArtifactStore, tmp_path: Path) -> None:
    """It is lost for good, and then put back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storerepair, "may_live", lambda artifact, now: False)
        lose(artifact, store)
    assert Job.objects.get().state == JobState.EXPIRED
    path = tmp_path / "back"
    path.write_bytes(CONTENT)
    store.put(artifact.storage_key, path)


# --- done again ---


def test_a_loss_that_met_a_deadlock_is_written_again(
    artifact: Artifact, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_once_by_deadlock(monkeypatch, storerepair.transitions, "move_many")
    lose(artifact, store)
    assert Job.objects.get().state == JobState.RENDERED
    assert Job.objects.get().events.filter(reason="object_lost").count() == 1


def test_a_damaged_pdf_is_kept_aside_once_whatever_its_write_meets(
    artifact: Artifact, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "damaged"
    path.write_bytes(b"%PDF-1.4 cut")
    store.put(artifact.storage_key, path)
    end_once_by_deadlock(monkeypatch, storerepair.transitions, "move_many")
    storerepair.follow([Amiss(artifact, FindingKind.DAMAGED, 12, "It is short.")], store, now=NOW)
    assert Job.objects.get().state == JobState.RENDERED
    assert len(list(store.iter_facts())) == 1


def test_a_return_that_met_a_deadlock_is_written_again(
    artifact: Artifact, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expire(artifact, store, tmp_path)
    end_once_by_deadlock(monkeypatch, storerepair.transitions, "move_many")
    assert settle(store) is None
    assert Job.objects.get().state == JobState.SAVED
    assert not StoreFinding.objects.filter(resolved_at=None).exists()


def test_what_was_looked_at_is_marked_again_after_a_deadlock(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_once_by_deadlock(monkeypatch, type(Artifact.objects.all()), "update")
    storecheck._mark_good([artifact.pk], now=NOW)
    assert Artifact.objects.get().checked_at == NOW


# --- locked in the same order ---


def beside_a_grouped_write(artifact: Artifact, work: Callable[[], object]) -> None:
    """`work`, while another transaction has written the job's row and goes on to the artifact's, as a pump does.

    That one goes on when `work` waits for a row. Had `work` locked the artifact before, the two would wait for each
    other.
    """
    has_job = threading.Event()
    trouble: list[BaseException] = []
    locks_rows = connection.features.has_select_for_update

    def write() -> None:
        try:
            with transaction.atomic():
                Job.objects.filter(version=artifact.version_id).update(due_at=NOW)
                has_job.set()
                gives_up_at = time.monotonic() + 60
                while locks_rows and not somebody_waits_for_a_row():
                    assert time.monotonic() < gives_up_at
                    time.sleep(0.01)
                Artifact.objects.filter(pk=artifact.pk).update(verified_at=NOW)
        except BaseException as error:  # noqa: BLE001 - told to the test's own thread
            trouble.append(error)
            has_job.set()
        finally:
            connection.close()

    other = threading.Thread(target=write)
    other.start()
    try:
        assert has_job.wait(30)
        work()
    finally:
        other.join()
    assert not trouble


def somebody_waits_for_a_row() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT 1 FROM pg_locks JOIN pg_database d ON d.datname = current_database() "
            "JOIN pg_stat_activity a ON a.pid = pg_locks.pid AND a.datid = d.oid WHERE NOT granted)"
        )
        return bool(cursor.fetchone()[0])


def test_a_loss_beside_a_grouped_write_waits_and_neither_is_ended(
    artifact: Artifact, store: ArtifactStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="batches.engine.contention")
    amiss = Amiss(artifact, FindingKind.MISSING, None, "It is not there.")
    beside_a_grouped_write(artifact, lambda: storerepair.act(amiss, store, now=NOW))
    assert "deadlock" not in caplog.text
    assert Job.objects.get().state == JobState.RENDERED


def test_a_return_beside_a_grouped_write_waits_and_neither_is_ended(
    artifact: Artifact, store: ArtifactStore, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.INFO, logger="batches.engine.contention")
    expire(artifact, store, tmp_path)
    beside_a_grouped_write(artifact, lambda: settle(store))
    assert "deadlock" not in caplog.text
    assert Job.objects.get().state == JobState.SAVED
