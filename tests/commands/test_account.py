"""`account`: what it shows and sets, and its exit codes (docs/architecture.md, "Stable interfaces")."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.utils import timezone

from batches.engine import pacing
from batches.models import AuditEntry, Lane, ProviderAccount
from tests.commands.shell import run
from tests.factories import make_account

pytestmark = pytest.mark.django_db


def test_account_holds_and_resumes_with_a_record(sandbox: ProviderAccount) -> None:
    code, out, _ = run("account", "sandbox", "--hold", "--reason", "Key is being changed.")
    assert code == 0
    assert "held since" in out
    assert "Key is being changed." in out
    answer = json.loads(run("account", "sandbox", "--json")[1])
    assert (answer["health"], answer["hold_reason"]) == ("held", "person")
    assert "Resumed." in run("account", "sandbox", "--resume")[1]
    assert "It was not held." in run("account", "sandbox", "--resume")[1]
    assert list(AuditEntry.objects.order_by("pk").values_list("action", "reason")) == [
        ("hold_account", "Key is being changed."),
        ("resume_account", ""),
    ]


def test_a_reason_for_nothing_is_refused(sandbox: ProviderAccount) -> None:
    code, _, err = run("account", "sandbox", "--reason", "month end")
    assert (code, "--reason goes with --hold, --resume or --set." in err) == (2, True)


def test_a_hold_without_a_reason_is_refused(sandbox: ProviderAccount) -> None:
    assert run("account", "sandbox", "--hold")[0] == 2
    sandbox.refresh_from_db()
    assert sandbox.health == "open"


def test_account_shows_the_data_terms_that_it_was_given(sandbox: ProviderAccount) -> None:
    terms = {"processing_region": "Frankfurt, EU", "processor": "a contract of May", "source_retention": "1 hour"}
    code, out, _ = run("account", "sandbox", "--set", *(f"{key}={value}" for key, value in terms.items()), "--json")
    assert (code, {key: json.loads(out)[key] for key in terms}) == (0, terms)


@pytest.mark.parametrize("choice", ["off", "suggested", "on"])
def test_account_sets_what_is_done_with_the_learned_deadline(choice: str, sandbox: ProviderAccount) -> None:
    code, out, _ = run("account", "sandbox", "--set", f"learned_deadline={choice}", "--json")
    assert (code, json.loads(out)["learned_deadline"]) == (0, choice)


def test_a_choice_about_the_learned_deadline_that_there_is_not_is_told_what_there_is(sandbox: ProviderAccount) -> None:
    code, _, err = run("account", "sandbox", "--set", "learned_deadline=by heart")
    assert code == 2
    for part in ("learned_deadline", "off", "suggested", "on"):
        assert part in err


def test_account_says_that_the_provider_asked_to_wait(sandbox: ProviderAccount) -> None:
    assert json.loads(run("account", "sandbox", "--json")[1])["asked_to_wait_until"] is None
    assert "asked to wait:" not in run("account", "sandbox")[1]
    pacing.cool_down(sandbox.pk, Lane.SUBMIT, timezone.now() + timedelta(minutes=4))
    until = json.loads(run("account", "sandbox", "--json")[1])["asked_to_wait_until"]
    assert f"asked to wait: nothing new is sent until {until}" in run("account", "sandbox")[1]


def test_account_sets_limits(sandbox: ProviderAccount) -> None:
    code, out, _ = run("account", "sandbox", "--set", "max_in_flight=7", "submit_windows=[[20, 60]]", "--json")
    answer = json.loads(out)
    assert code == 0
    assert (answer["max_in_flight"], answer["submit_windows"]) == (7, [[20, 60]])


@pytest.mark.parametrize(
    "pair",
    [
        "max_in_flight=0",
        "max_in_flight=many",
        "submit_interval_ms=-1",
        "base_url=http://other.example.com",
        "price_per_job=NaN",
        "submit_windows=[[0, 1]]",
        "submit_windows=20",
        "api_key=pdf_live_on_the_command_line",
        "api_key=env:TWO_WORDS",
        "api_key=env:NOT_SET_ANYWHERE",
        "poll_initial_ms=99999999",
        "poll_initial_ms=0",
        "poll_max_ms=0",
        "deadline_seconds=0",
        "download_hosts=https://files.example.com/x",
        "deadline_seconds=300000000000",
        "key_retention_seconds=300000000000",
        "submit_interval_ms=86400001",
        "poll_interval_ms=9223372036854775807",
        "download_interval_ms=-1",
        "download_interval_ms=86400001",
        "poll_max_ms=9223372036854775807",
        "max_in_flight=100001",
        "submit_burst=99999999999",
        "submit_windows=[[10001, 60]]",
        "submit_windows=[[5, 99999999999]]",
        "submit_windows=" + "[" * 100_000,
        "learned_deadline=by heart",
        "learned_deadline=",
        "health=open",
        "max_in_flight",
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_and_nothing_is_saved(
    pair: str, sandbox: ProviderAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWO_WORDS", "two words")
    before = ProviderAccount.objects.values().get()
    assert run("account", "sandbox", "--set", "deadline_seconds=60", pair)[0] == 2
    assert ProviderAccount.objects.values().get() == before


def test_a_secret_is_set_and_never_shown(sandbox: ProviderAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEW_KEY", "pdf_live_new")
    _, out, _ = run("account", "sandbox", "--set", "api_key=env:NEW_KEY")
    sandbox.refresh_from_db()
    assert sandbox.api_key == "pdf_live_new"
    assert "pdf_live_new" not in out + run("account", "sandbox", "--json")[1]
    assert "pdf_live_new" not in json.dumps(AuditEntry.objects.get().facts)


def test_a_secret_that_no_key_opens_is_replaced(
    sandbox: ProviderAccount, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEW_KEY", "pdf_live_new")
    monkeypatch.setenv("NEW_SECRET", "whsec_new")
    settings.FIELD_KEYS = [Fernet.generate_key().decode()]
    code, out, _ = run("account", "sandbox", "--json")
    assert (code, json.loads(out)["has_api_key"]) == (0, True)
    assert run("account", "sandbox", "--set", "api_key=env:NEW_KEY", "webhook_secret=env:NEW_SECRET")[0] == 0
    assert ProviderAccount.objects.only("api_key").get().api_key == "pdf_live_new"


def test_a_setting_without_a_value_is_told_how(sandbox: ProviderAccount) -> None:
    code, _, err = run("account", "sandbox", "--set", "max_in_flight")
    assert code == 2
    assert "max_in_flight has no value; write max_in_flight=VALUE, with a whole number." in err


def test_deletion_at_the_provider_is_wished_for_only_where_it_is_offered(sandbox: ProviderAccount) -> None:
    code, out, _ = run("account", "sandbox", "--set", "delete_remote_after_save=yes", "--json")
    assert (code, json.loads(out)["delete_remote_after_save"]) == (0, True)
    make_account(slug="inside", kind="gotenberg")
    code, _, err = run("account", "inside", "--set", "delete_remote_after_save=yes")
    assert (code, "Gotenberg deletes nothing on request" in err) == (2, True)
    assert not ProviderAccount.objects.get(slug="inside").delete_remote_after_save


@pytest.mark.parametrize(("given", "kept"), [("yes", True), ("no", False), ("TRUE", True)])
def test_account_says_whether_it_renders_inside_our_network(given: str, kept: bool, sandbox: ProviderAccount) -> None:
    code, out, _ = run("account", "sandbox", "--set", f"renders_inside={given}", "--json")
    assert (code, json.loads(out)["renders_inside"]) == (0, kept)


def test_what_is_neither_yes_nor_no_is_refused(sandbox: ProviderAccount) -> None:
    code, _, err = run("account", "sandbox", "--set", "renders_inside=perhaps")
    assert (code, "renders_inside takes yes or no" in err) == (2, True)
