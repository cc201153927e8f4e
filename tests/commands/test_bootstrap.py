"""`bootstrap`: what it makes once, what it prints, and what it refuses before anything is changed."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django_q.models import Schedule

from batches import storage
from batches.models import Membership, PacingLane, ProviderAccount, PumpSlot, Role, Workspace
from batches.queue import SCHEDULES
from tests.factories import NOW, make_batch, make_job, make_submission

#: The command migrates, and PostgreSQL's advisory lock belongs to a session: no test transaction around it.
pytestmark = pytest.mark.django_db(transaction=True)


def bootstrap(*arguments: str) -> dict[str, Any]:
    out = io.StringIO()
    call_command("bootstrap", "--json", *arguments, stdout=out)
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


def test_bootstrap_twice_makes_everything_once(settings: Any) -> None:
    settings.CLUSTER_WORKERS = 4
    first, second = bootstrap("--admin", "okoye"), bootstrap("--admin", "okoye")
    assert (first["account"]["outcome"], second["account"]["outcome"]) == ("made", "kept")
    assert Workspace.objects.get().slug == "default"
    assert PacingLane.objects.count() == 3
    assert list(PumpSlot.objects.order_by("number").values_list("number", flat=True)) == [1, 2, 3]
    assert Schedule.objects.count() == len(SCHEDULES)
    assert first["admin"]["made"] is True
    assert User.objects.get().check_password(first["admin"]["password"])
    assert second["admin"] == {"username": "okoye", "made": False, "password": None}
    assert Membership.objects.get().role == Role.ADMIN


@pytest.mark.parametrize(("workers", "pumps"), [(1, 1), (2, 1), (8, 7)])
def test_all_workers_but_one_may_run_pumps(settings: Any, workers: int, pumps: int) -> None:
    settings.CLUSTER_WORKERS = workers
    assert bootstrap()["pumps"] == pumps
    assert PumpSlot.objects.count() == pumps


def test_a_first_pace_is_that_of_a_new_account_and_overrules_no_person() -> None:
    first = bootstrap("--first-interval", "0.2")
    assert (first["account"]["outcome"], first["account"]["submit_interval_ms"]) == ("made", 200)
    call_command("account", "sandbox", "--set", "submit_interval_ms=300", stdout=io.StringIO())
    again = bootstrap("--first-interval", "0.2")
    assert (again["account"]["outcome"], again["account"]["submit_interval_ms"]) == ("kept", 300)


def test_a_first_pace_overrules_no_environment(settings: Any) -> None:
    settings.RELAYPDF_SUBMIT_INTERVAL, settings.GIVEN = 2.0, frozenset({"RELAYPDF_SUBMIT_INTERVAL"})
    assert bootstrap("--first-interval", "0.2")["account"]["submit_interval_ms"] == 2000


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_a_first_pace_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="is no pace"):
        bootstrap(f"--first-interval={text}")


def test_a_first_password_from_the_environment_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRST_PASSWORD", "harbour-lantern-42")
    assert bootstrap("--admin", "okoye")["admin"]["password"] is None
    assert User.objects.get().check_password("harbour-lantern-42")


def test_a_weak_first_password_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRST_PASSWORD", "12345")
    with pytest.raises(CommandError, match="FIRST_PASSWORD: ") as refused:
        bootstrap("--admin", "okoye")
    assert refused.value.returncode == 2
    assert not User.objects.exists()


def test_a_refusal_ends_the_command_with_2(settings: Any) -> None:
    settings.RELAYPDF_API_KEY = "pdf_live_first"
    bootstrap()
    account = ProviderAccount.objects.get()
    make_submission(job=make_job(batch=make_batch(account=account), due_at=NOW + timedelta(days=1)))
    settings.RELAYPDF_BASE_URL = "https://eu.relaypdf.test"
    with pytest.raises(CommandError, match="its address is fixed") as refused:
        bootstrap()
    assert refused.value.returncode == 2


def test_the_summary_for_people_names_what_matters() -> None:
    out = io.StringIO()
    call_command("bootstrap", "--admin", "okoye", stdout=out)
    said = out.getvalue()
    for words in (
        "Workspace  default",
        "sandbox (made): http://127.0.0.1:8787, one every 3 s",
        "(shown once)",
        "Viewer",
    ):
        assert words in said
    assert "pdf_live" not in said


# --- the store -------------------------------------------------------------------------------------------------------


@pytest.fixture
def store_folder(settings: Any, tmp_path: Path) -> Path:
    """Where the store of this test is to be; nothing is there yet."""
    folder = tmp_path / "volume" / "store"
    settings.STORAGE_URL = f"file://{folder}"
    return folder


def test_bootstrap_makes_the_store_of_a_new_installation(store_folder: Path) -> None:
    for _ in range(2):
        bootstrap()
        storage.open_store(f"file://{store_folder}").ready()
    assert store_folder.is_dir()


@pytest.mark.parametrize("mount_point", [False, True], ids=["no folder", "an empty mount point"])
def test_bootstrap_makes_no_second_store_for_an_installation_that_has_one_elsewhere(
    store_folder: Path, mount_point: bool
) -> None:
    make_batch()
    if mount_point:
        store_folder.mkdir(parents=True)
    with pytest.raises(CommandError, match="is not the store") as refused:
        bootstrap()
    assert refused.value.returncode == 2
    for words in (str(store_folder), "Is its volume mounted?", "Nothing was changed", "STORAGE_URL"):
        assert words in str(refused.value)
    assert not store_folder.exists() or list(store_folder.iterdir()) == []
    assert not PumpSlot.objects.exists(), "the refusal comes before anything else is made"


def test_bootstrap_goes_on_when_the_store_is_there_again(store_folder: Path) -> None:
    bootstrap()
    make_batch(account=ProviderAccount.objects.get())
    away = store_folder.with_name("away")
    store_folder.rename(away)
    with pytest.raises(CommandError):
        bootstrap()
    away.rename(store_folder)
    assert bootstrap()["account"]["outcome"] == "kept"


def test_a_store_that_cannot_be_made_is_refused_in_words(settings: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    settings.STORAGE_URL = f"file://{tmp_path}/file/store"
    with pytest.raises(CommandError, match="look at STORAGE_URL") as refused:
        bootstrap()
    assert refused.value.returncode == 2
