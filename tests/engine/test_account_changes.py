"""Unsafe changes of an account that exists are refused: what it has sent would be lost or billed again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from batches.engine import account_changes
from batches.engine.audit import ENGINE
from batches.models import AuditEntry, JobState, ProviderAccount
from tests.commands.shell import run
from tests.factories import NOW, make_accepted_job, make_account, make_batch, make_job, make_saved_job

pytestmark = pytest.mark.django_db


@pytest.fixture
def gotenberg() -> ProviderAccount:
    options = {"mode": "sync", "network": "files", "api_timeout": "10"}
    return make_account(slug="render", kind="gotenberg", options=options, api_key="ada:first", webhook_secret="first")


def change(account: ProviderAccount, *, is_same_account: bool = False, **changes: Any) -> dict[str, Any]:
    return account_changes.change(account.pk, changes, by=ENGINE, reason="", now=NOW, is_same_account=is_same_account)


def refused(account: ProviderAccount, **changes: Any) -> dict[str, str]:
    """What is said, by field; nothing of the row may have changed, and nothing is written down."""
    before = ProviderAccount.objects.values().get(pk=account.pk)
    with pytest.raises(account_changes.Refused) as error:
        change(account, **changes)
    assert ProviderAccount.objects.values().get(pk=account.pk) == before
    assert not AuditEntry.objects.exists()
    return dict(error.value.problems)


def test_what_makes_an_account_unsafe_is_refused_and_what_does_not_touch_its_reach_is_not(
    gotenberg: ProviderAccount, settings: Any
) -> None:
    settings.PUBLIC_URL = ""
    assert "public address" in refused(gotenberg, options={"mode": "async", "network": "files"})[""]
    assert "no user:password" in refused(gotenberg, api_key="without-a-colon")[""]
    assert "is missing" in refused(gotenberg, options={"mode": "sync"})[""]
    ProviderAccount.objects.filter(pk=gotenberg.pk).update(options={"mode": "async", "network": "files"})
    assert change(gotenberg, max_in_flight=3) == {"max_in_flight": 3}


def test_an_address_and_fixed_options_move_freely_until_something_was_sent_or_waits(gotenberg: ProviderAccount) -> None:
    moved = {"mode": "sync", "network": "public", "api_timeout": "10"}
    change(gotenberg, base_url="http://127.0.0.1:8", options={**moved, "network": "files"})
    job = make_job(batch=make_batch(account=gotenberg), state=JobState.PENDING)
    AuditEntry.objects.all().delete()
    told = refused(gotenberg, base_url="http://127.0.0.1:9")["base_url"]
    assert "Its address, http://127.0.0.1:8, is fixed" in told
    assert "Make a new account" in told
    type(job).objects.filter(pk=job.pk).update(state=JobState.CANCELLED)
    change(gotenberg, base_url="http://127.0.0.1:9")
    make_saved_job(batch=make_batch(account=gotenberg))
    AuditEntry.objects.all().delete()
    assert "is fixed" in refused(gotenberg, base_url="http://127.0.0.1:8")["base_url"]
    assert "“How PDFs come back” is fixed" in refused(gotenberg, options={**moved, "mode": "async"})["options"]
    change(gotenberg, base_url="http://127.0.0.1:9/", options=moved | {"api_timeout": "12"})  # neither moves a document


def test_a_new_key_is_confirmed_as_one_of_the_same_vendor_account_while_documents_are_not_finished(
    gotenberg: ProviderAccount,
) -> None:
    make_accepted_job(batch=make_batch(account=gotenberg))
    told = refused(gotenberg, api_key="ada:second")["is_same_account"]
    assert "1 document of it is not finished" in told
    assert "billed a second time" in told
    assert change(gotenberg, api_key="ada:first") == {}  # the same key is no change
    assert change(gotenberg, api_key="ada:second", is_same_account=True) == {"api_key": "set"}
    assert "ada:" not in str(AuditEntry.objects.get().facts)


def test_the_webhook_secret_of_before_stays_accepted_unless_none_shall_be_left(gotenberg: ProviderAccount) -> None:
    ProviderAccount.objects.filter(pk=gotenberg.pk).update(webhook_rotated_at=NOW - timedelta(days=1))
    change(gotenberg, webhook_secret="second")
    gotenberg.refresh_from_db()
    assert (gotenberg.webhook_secret, gotenberg.webhook_secret_previous) == ("second", "first")
    assert gotenberg.webhook_rotated_at is None
    change(gotenberg, webhook_secret="second")
    assert ProviderAccount.objects.get(pk=gotenberg.pk).webhook_secret_previous == "first"
    assert change(gotenberg, webhook_secret="") == {"webhook_secret": "removed"}
    gotenberg.refresh_from_db()
    assert (gotenberg.webhook_secret, gotenberg.webhook_secret_previous) == ("", "")


def test_a_webhook_secret_that_no_key_opens_is_replaced_and_not_kept(gotenberg: ProviderAccount) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE batches_provideraccount SET webhook_secret = 'garbage'")
    change(gotenberg, webhook_secret="second")
    gotenberg.refresh_from_db()
    assert (gotenberg.webhook_secret, gotenberg.webhook_secret_previous) == ("second", "")


def test_the_command_asks_for_the_confirmation_and_sets_options_by_their_names(
    gotenberg: ProviderAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_accepted_job(batch=make_batch(account=gotenberg))
    monkeypatch.setenv("NEW_KEY", "ada:second")
    code, _, err = run("account", "render", "--set", "api_key=env:NEW_KEY")
    assert (code, "To confirm it, add --same-account." in err) == (2, True)
    assert run("account", "render", "--set", "api_key=env:NEW_KEY", "--same-account")[0] == 0
    assert run("account", "render", "--set", "api_timeout=12")[0] == 0
    assert run("account", "render", "--set", "mode=async")[0] == 2
    assert run("account", "render", "--same-account")[0] == 2
    account = ProviderAccount.objects.get(pk=gotenberg.pk)
    assert account.api_key == "ada:second"
    assert account.options == {"mode": "sync", "network": "files", "api_timeout": "12"}
