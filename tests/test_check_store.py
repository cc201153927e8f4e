"""`manage.py check_store` and the task that checks by the clock."""

from __future__ import annotations

import hashlib
import io
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from batches import tasks
from batches.models import Artifact, AuditEntry, Job, JobState, StoreSweep
from batches.storage import artifact_key, open_store
from tests.commands.shell import run
from tests.factories import make_batch, make_saved_job

pytestmark = pytest.mark.django_db


def saved_with_file(tmp_path: Any, count: int) -> list[Artifact]:
    """Saved documents whose PDFs lie in the store."""
    store, batch, artifacts = open_store(settings.STORAGE_URL), make_batch(), []
    for number in range(count):
        job = make_saved_job(batch=batch, business_id=f"INV-{number:02}")
        content = b"%%PDF-1.4 %d\n%%%%EOF\n" % number
        path = tmp_path / f"{number}"
        path.write_bytes(content)
        key = artifact_key(batch.workspace.slug, f"INV-{number:02}", 1)
        store.put(key, path)
        digest = hashlib.sha256(content).hexdigest()
        Artifact.objects.filter(version=job.version).update(
            storage_key=key, byte_count=len(content), sha256=digest, stored_at=timezone.now()
        )
        artifacts.append(Artifact.objects.get(version=job.version))
    return artifacts


def test_a_store_in_order_exits_0_and_says_what_was_looked_at(tmp_path: Any) -> None:
    saved_with_file(tmp_path, 3)
    code, out, _ = run("check_store", "--deep")
    assert code == 0
    assert "3 stored PDFs looked at, 3 objects listed." in out
    assert "Nothing is open." in out
    open_store(settings.STORAGE_URL).put("default/manifests/a.json", io.BytesIO(b"[]"))
    code, out, _ = run("check_store")
    assert "4 objects listed (1 of them manifests, inputs, requests" in out
    code, out, _ = run("check_store", "--json")
    assert (code, json.loads(out)["objects"]) == (0, 3)


def test_what_is_missing_is_listed_and_exits_3(tmp_path: Any) -> None:
    artifacts = saved_with_file(tmp_path, 3)
    open_store(settings.STORAGE_URL).delete(artifacts[1].storage_key)
    code, out, _ = run("check_store")
    assert code == 3
    assert "missing" in out
    assert "INV-01" in out
    assert "1 is being fetched again from the provider." in out
    code, out, _ = run("check_store", "--json")
    facts = json.loads(out)
    assert (code, facts["open"]["missing"], facts["trouble"]) == (3, 1, None)
    assert facts["findings"][0]["document"] == "INV-01 v1"
    assert Job.objects.get(version__document__business_id="INV-01").state == JobState.RENDERED


def test_suspiciously_many_change_nothing_until_a_person_says_so(tmp_path: Any) -> None:
    for artifact in saved_with_file(tmp_path, 8)[:7]:
        open_store(settings.STORAGE_URL).delete(artifact.storage_key)
    code, out, _ = run("check_store")
    assert code == 2
    assert "no document was changed" in out
    assert not Job.objects.exclude(state=JobState.SAVED).exists()
    code, out, _ = run("check_store", "--repair")
    assert code == 3
    assert Job.objects.filter(state=JobState.RENDERED).count() == 7
    assert AuditEntry.objects.filter(action="repair_store").count() == 1


def test_a_check_under_way_elsewhere_is_said(tmp_path: Any) -> None:
    StoreSweep.objects.create(kind="objects", lease_owner="other", lease_until=timezone.now() + timedelta(minutes=1))
    code, _, err = run("check_store")
    assert code == 2
    assert "another process" in err


def test_the_task_checks_both_ways_and_then_waits_for_the_next_hour(tmp_path: Any) -> None:
    saved_with_file(tmp_path, 2)
    tasks.check_store()
    begun = dict(StoreSweep.objects.values_list("kind", "started_at"))
    assert set(begun) == {"objects", "orphans"}
    assert Artifact.objects.filter(checked_at=None).count() == 0
    tasks.check_store()
    assert dict(StoreSweep.objects.values_list("kind", "started_at")) == begun


def test_one_of_each_kind_is_listed_in_words_that_say_what_follows(tmp_path: Any) -> None:
    artifacts, store = saved_with_file(tmp_path, 40), open_store(settings.STORAGE_URL)
    root = Path(settings.STORAGE_URL.removeprefix("file://"))
    store.delete(artifacts[3].storage_key)
    (root / artifacts[7].storage_key).write_bytes(b"%PDF-1.4 cut")
    unreadable = root / artifacts[9].storage_key
    unreadable.unlink()
    unreadable.symlink_to(unreadable.name)
    (root / "left.pdf").write_bytes(b"x")
    (root / "notes\n\x1b[31m of Okoye.txt").write_bytes(b"x")
    long_ago = (timezone.now() - timedelta(days=40)).timestamp()
    for name in ("left.pdf", "notes\n\x1b[31m of Okoye.txt"):
        os.utime(root / name, (long_ago, long_ago))
    code, out, _ = run("check_store")
    assert code == 3
    assert "Open: 1 missing, 1 damaged, 2 orphaned, 1 unreadable" in out
    assert "2 are being fetched again from the provider." in out
    assert "1 is left saved, and tried again by the next check" in out
    assert "Too many levels of symbolic links" in out
    assert "notes\\n\\x1b[31m of Okoye.txt" in out
    assert "it is left alone" in out
    assert "\x1b" not in out
    code, out, _ = run("check_store", "--repair")
    assert "Open: 1 missing, 1 damaged, 1 orphaned, 1 unreadable" in out, "the foreign one stays"
    _, out, _ = run("check_store", "--json")
    assert json.loads(out)["open"] == {"missing": 1, "damaged": 1, "orphaned": 1, "unreadable": 1}
