"""What `bootstrap` makes and what it leaves alone: above all an account that has already sent something."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django_q.models import Schedule

from batches import installation, storage
from batches.models import (
    ACTIVE_STATES,
    AuditEntry,
    JobState,
    Membership,
    PacingLane,
    ProviderAccount,
    PumpSlot,
    Role,
    Workspace,
)
from batches.queue import SCHEDULES
from tests.factories import NOW, make_account, make_batch, make_job, make_saved_job, make_submission

#: Commands migrate, and PostgreSQL's advisory lock belongs to a session: no test transaction around them.
COMMAND = pytest.mark.django_db(transaction=True)
ROWS = pytest.mark.django_db


@pytest.fixture
def with_key(settings: Any) -> Any:
    """The environment of somebody with a RelayPDF account."""
    settings.RELAYPDF_API_KEY = "pdf_live_first"
    return settings


def ensure(settings: Any, *, rotate_key: bool = False) -> installation.Outcome:
    return installation.ensure_account(installation.plan_account(settings), rotate_key=rotate_key, now=NOW)


def bootstrap(*arguments: str) -> dict[str, Any]:
    out = io.StringIO()
    call_command("bootstrap", "--json", *arguments, stdout=out)
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


# --- which account ---------------------------------------------------------------------------------------------------


def test_without_address_and_key_the_account_is_the_sandbox(settings: Any) -> None:
    settings.SANDBOX_PORT = 9787
    plan = installation.plan_account(settings)
    assert (plan.slug, plan.base_url, plan.api_key) == ("sandbox", "http://127.0.0.1:9787", "pdf_live_sandbox")


def test_a_key_alone_means_the_real_service(with_key: Any) -> None:
    plan = installation.plan_account(with_key)
    assert (plan.slug, plan.base_url, plan.api_key) == ("relaypdf", "https://api.relaypdf.com", "pdf_live_first")


def test_limits_become_the_columns_of_the_account(with_key: Any) -> None:
    with_key.RELAYPDF_SUBMIT_INTERVAL = 0.05
    with_key.RELAYPDF_DEADLINE = 90.2
    with_key.RELAYPDF_POLL_INITIAL = 0.3
    with_key.RELAYPDF_KEY_RETENTION = 3599.9
    with_key.GIVEN = frozenset({"RELAYPDF_KEY_RETENTION"})
    plan = installation.plan_account(with_key)
    assert plan.limits == {
        "submit_interval_ms": 50,
        "max_in_flight": 20,
        "deadline_seconds": 91,
        "poll_initial_ms": 300,
        "poll_max_ms": 15000,
        "key_retention_seconds": 3599,
        "key_retention_source": "RELAYPDF_KEY_RETENTION",
    }
    assert "pdf_live_first" not in repr(plan)


@ROWS
def test_a_retention_that_nobody_said_is_marked_as_assumed(with_key: Any) -> None:
    assert ensure(with_key).account.key_retention_source == "assumed"


@ROWS
def test_the_real_account_keeps_the_sandbox_away(with_key: Any) -> None:
    ensure(with_key)
    with_key.RELAYPDF_API_KEY = ""
    outcome = ensure(with_key)
    assert (outcome.account.slug, outcome.what) == ("relaypdf", "kept")
    assert "RELAYPDF_API_KEY is not set now" in outcome.notes[0]
    assert list(ProviderAccount.objects.values_list("slug", "api_key")) == [("relaypdf", "pdf_live_first")]


@ROWS
def test_a_sandbox_account_of_before_stays_beside_the_real_one(with_key: Any) -> None:
    with_key.RELAYPDF_API_KEY = ""
    ensure(with_key)
    with_key.RELAYPDF_API_KEY = "pdf_live_first"
    assert ensure(with_key).what == "made"
    assert set(ProviderAccount.objects.values_list("slug", flat=True)) == {"sandbox", "relaypdf"}


# --- an account that exists ------------------------------------------------------------------------------------------


@ROWS
def test_the_same_environment_again_changes_nothing(with_key: Any) -> None:
    first = ensure(with_key)
    second = ensure(with_key)
    assert (first.what, second.what, second.notes) == ("made", "kept", ())
    assert not AuditEntry.objects.exists()


@ROWS
def test_only_limits_that_the_environment_says_overrule_stored_ones(with_key: Any) -> None:
    account = ensure(with_key).account
    ProviderAccount.objects.filter(pk=account.pk).update(submit_interval_ms=700, max_in_flight=5)
    with_key.RELAYPDF_MAX_IN_FLIGHT = 50
    with_key.GIVEN = frozenset({"RELAYPDF_MAX_IN_FLIGHT"})
    outcome = ensure(with_key)
    account.refresh_from_db()
    assert outcome.what == "changed"
    assert outcome.notes == ("max_in_flight is 50 now (was 5).",)
    assert (account.submit_interval_ms, account.max_in_flight) == (700, 50)
    assert AuditEntry.objects.get().subject == "account relaypdf"


@ROWS
def test_poll_delays_that_contradict_each_other_are_refused(with_key: Any) -> None:
    account = ensure(with_key).account
    with_key.RELAYPDF_POLL_MAX = 0.5
    with_key.GIVEN = frozenset({"RELAYPDF_POLL_MAX"})
    with pytest.raises(installation.Refused, match="set both"):
        ensure(with_key)
    account.refresh_from_db()
    assert account.poll_max_ms == 15000


@ROWS
def test_an_unused_account_may_move(with_key: Any) -> None:
    ensure(with_key)
    with_key.RELAYPDF_BASE_URL = "https://eu.relaypdf.test"
    outcome = ensure(with_key)
    assert outcome.notes == ("It is at https://eu.relaypdf.test now (was https://api.relaypdf.com).",)
    assert ProviderAccount.objects.get().base_url == "https://eu.relaypdf.test"


@ROWS
@pytest.mark.parametrize("rotate_key", [False, True])
def test_an_account_with_a_submission_never_moves(with_key: Any, rotate_key: bool) -> None:
    account = ensure(with_key).account
    make_submission(job=make_job(batch=make_batch(account=account)), outcome="refused", closed_at=NOW)
    with_key.RELAYPDF_BASE_URL = "https://eu.relaypdf.test"
    with_key.RELAYPDF_MAX_IN_FLIGHT = 99
    with_key.GIVEN = frozenset({"RELAYPDF_MAX_IN_FLIGHT"})
    with pytest.raises(installation.Refused, match="its address is fixed"):
        ensure(with_key, rotate_key=rotate_key)
    account.refresh_from_db()
    assert (account.base_url, account.max_in_flight) == ("https://api.relaypdf.com", 20)


@ROWS
def test_the_default_address_does_not_move_an_account_of_another_one(with_key: Any) -> None:
    with_key.RELAYPDF_BASE_URL = "https://eu.relaypdf.test"
    account = ensure(with_key).account
    make_submission(job=make_job(batch=make_batch(account=account)), outcome="refused", closed_at=NOW)
    with_key.RELAYPDF_BASE_URL = ""
    assert ensure(with_key).what == "kept"


@ROWS
def test_the_sandbox_keeps_its_port_unless_told_otherwise(settings: Any) -> None:
    settings.SANDBOX_PORT = 9787
    settings.GIVEN = frozenset({"SANDBOX_PORT"})
    account = ensure(settings).account
    settings.SANDBOX_PORT = 8787
    settings.GIVEN = frozenset()
    assert ensure(settings).account.base_url == "http://127.0.0.1:9787"
    settings.GIVEN = frozenset({"SANDBOX_PORT"})
    ensure(settings)
    account.refresh_from_db()
    assert account.base_url == "http://127.0.0.1:8787"


@ROWS
def test_a_new_key_is_stored_when_nothing_is_under_way(with_key: Any) -> None:
    account = ensure(with_key).account
    make_saved_job(batch=make_batch(account=account))
    with_key.RELAYPDF_API_KEY = "pdf_live_second"
    assert ensure(with_key).notes == ("The API key was replaced.",)
    account.refresh_from_db()
    assert account.api_key == "pdf_live_second"
    assert "pdf_live" not in json.dumps(AuditEntry.objects.get().facts)


@ROWS
@pytest.mark.parametrize("state", ACTIVE_STATES)
def test_a_new_key_needs_a_word_while_documents_are_under_way(with_key: Any, state: JobState) -> None:
    account = ensure(with_key).account
    make_job(batch=make_batch(account=account), state=state)
    with_key.RELAYPDF_API_KEY = "pdf_live_second"
    with pytest.raises(installation.Refused, match=r"1 unfinished document\. .*--rotate-key"):
        ensure(with_key)
    account.refresh_from_db()
    assert account.api_key == "pdf_live_first"
    assert ensure(with_key, rotate_key=True).what == "changed"
    account.refresh_from_db()
    assert account.api_key == "pdf_live_second"


@ROWS
def test_a_lost_answer_counts_as_under_way(with_key: Any) -> None:
    account = ensure(with_key).account
    job = make_job(batch=make_batch(account=account), state=JobState.UNKNOWN)
    make_submission(job=job)
    with_key.RELAYPDF_API_KEY = "pdf_live_second"
    with pytest.raises(installation.Refused, match="--rotate-key"):
        ensure(with_key)


@ROWS
def test_other_accounts_do_not_count(with_key: Any) -> None:
    ensure(with_key)
    make_job(batch=make_batch(account=make_account()))
    with_key.RELAYPDF_API_KEY = "pdf_live_second"
    assert ensure(with_key).what == "changed"


@ROWS
def test_a_webhook_secret_is_rotated_with_the_old_one_still_accepted(with_key: Any) -> None:
    with_key.RELAYPDF_WEBHOOK_SECRET = "whsec_first"
    account = ensure(with_key).account
    with_key.RELAYPDF_WEBHOOK_SECRET = "whsec_second"
    ensure(with_key)
    account.refresh_from_db()
    assert (account.webhook_secret, account.webhook_secret_previous) == ("whsec_second", "whsec_first")
    with_key.RELAYPDF_WEBHOOK_SECRET = ""
    assert ensure(with_key).what == "kept"


@ROWS
def test_an_archived_account_is_left_alone(with_key: Any) -> None:
    account = ensure(with_key).account
    ProviderAccount.objects.filter(pk=account.pk).update(archived_at=NOW)
    with_key.RELAYPDF_API_KEY = "pdf_live_second"
    assert "archived" in ensure(with_key).notes[0]
    account.refresh_from_db()
    assert account.api_key == "pdf_live_first"


@ROWS
def test_a_lost_field_key_is_explained(with_key: Any) -> None:
    ensure(with_key)
    with_key.FIELD_KEYS = [Fernet.generate_key().decode()]
    with pytest.raises(installation.Refused, match="back into FIELD_KEYS"):
        ensure(with_key)


# --- roles and people ------------------------------------------------------------------------------------------------


@ROWS
def test_each_role_sees_what_the_ones_before_it_see() -> None:
    installation.ensure_roles()
    seen = [
        set(Group.objects.get(name=label).permissions.values_list("codename", flat=True))
        for label in ("Viewer", "Operator", "Manager", "Admin")
    ]
    assert seen[0] <= seen[1] <= seen[2] <= seen[3]
    assert all(codename.startswith("view_") for codename in seen[3])
    assert "view_batch" in seen[0]
    assert "view_provideraccount" in seen[2] - seen[1]
    assert {"view_auditentry", "view_apitoken"} <= seen[3] - seen[2]


@ROWS
def test_what_a_person_gave_a_group_stays() -> None:
    installation.ensure_roles()
    viewer = Group.objects.get(name="Viewer")
    extra = Group.objects.get(name="Admin").permissions.get(codename="view_auditentry")
    viewer.permissions.add(extra)
    installation.ensure_roles()
    assert extra in viewer.permissions.all()


@ROWS
def test_an_ordinary_person_is_not_made_an_administrator() -> None:
    User.objects.create_user("okoye", password="something long")
    workspace = installation.ensure_workspace(now=NOW)
    with pytest.raises(installation.Refused, match="no administrator"):
        installation.ensure_admin("okoye", "x", workspace, now=NOW)
    assert not User.objects.get().is_superuser


# --- the command -----------------------------------------------------------------------------------------------------


@COMMAND
def test_bootstrap_twice_makes_everything_once(settings: Any) -> None:
    settings.CLUSTER_WORKERS = 4
    first, second = bootstrap("--admin", "okoye"), bootstrap("--admin", "okoye")
    assert (first["account"]["outcome"], second["account"]["outcome"]) == ("made", "kept")
    assert Workspace.objects.get().slug == "default"
    assert PacingLane.objects.count() == 2
    assert list(PumpSlot.objects.order_by("number").values_list("number", flat=True)) == [1, 2, 3]
    assert Schedule.objects.count() == len(SCHEDULES)
    assert first["admin"]["made"] is True
    assert User.objects.get().check_password(first["admin"]["password"])
    assert second["admin"] == {"username": "okoye", "made": False, "password": None}
    assert Membership.objects.get().role == Role.ADMIN


@COMMAND
@pytest.mark.parametrize(("workers", "pumps"), [(1, 1), (2, 1), (8, 7)])
def test_all_workers_but_one_may_run_pumps(settings: Any, workers: int, pumps: int) -> None:
    settings.CLUSTER_WORKERS = workers
    assert bootstrap()["pumps"] == pumps
    assert PumpSlot.objects.count() == pumps


@COMMAND
def test_a_first_password_from_the_environment_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRST_PASSWORD", "harbour-lantern-42")
    assert bootstrap("--admin", "okoye")["admin"]["password"] is None
    assert User.objects.get().check_password("harbour-lantern-42")


@COMMAND
def test_a_weak_first_password_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRST_PASSWORD", "12345")
    with pytest.raises(CommandError, match="FIRST_PASSWORD: ") as refused:
        bootstrap("--admin", "okoye")
    assert refused.value.returncode == 2
    assert not User.objects.exists()


@COMMAND
def test_a_refusal_ends_the_command_with_2(with_key: Any) -> None:
    bootstrap()
    account = ProviderAccount.objects.get()
    make_submission(job=make_job(batch=make_batch(account=account), due_at=NOW + timedelta(days=1)))
    with_key.RELAYPDF_BASE_URL = "https://eu.relaypdf.test"
    with pytest.raises(CommandError, match="its address is fixed") as refused:
        bootstrap()
    assert refused.value.returncode == 2


@COMMAND
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


@COMMAND
def test_bootstrap_makes_the_store_of_a_new_installation(store_folder: Path) -> None:
    for _ in range(2):
        bootstrap()
        storage.open_store(f"file://{store_folder}").ready()
    assert store_folder.is_dir()


@COMMAND
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


@COMMAND
def test_bootstrap_goes_on_when_the_store_is_there_again(store_folder: Path) -> None:
    bootstrap()
    make_batch(account=ProviderAccount.objects.get())
    away = store_folder.with_name("away")
    store_folder.rename(away)
    with pytest.raises(CommandError):
        bootstrap()
    away.rename(store_folder)
    assert bootstrap()["account"]["outcome"] == "kept"


@COMMAND
def test_a_store_that_cannot_be_made_is_refused_in_words(settings: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    settings.STORAGE_URL = f"file://{tmp_path}/file/store"
    with pytest.raises(CommandError, match="look at STORAGE_URL") as refused:
        bootstrap()
    assert refused.value.returncode == 2
