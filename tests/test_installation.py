"""What an installation is given and what is left alone: above all an account that has already sent something."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.contrib.auth.models import Group, User

from batches import installation
from batches.models import ACTIVE_STATES, AuditEntry, JobState, ProviderAccount
from tests.factories import NOW, make_account, make_batch, make_job, make_saved_job, make_submission

ROWS = pytest.mark.django_db


@pytest.fixture
def with_key(settings: Any) -> Any:
    """The environment of somebody with a RelayPDF account."""
    settings.RELAYPDF_API_KEY = "pdf_live_first"
    return settings


def ensure(settings: Any, *, rotate_key: bool = False) -> installation.Outcome:
    return installation.ensure_account(installation.plan_account(settings), rotate_key=rotate_key, now=NOW)


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
    assert not any(codename.startswith(("add_", "change_", "delete_")) for codename in seen[3])
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
