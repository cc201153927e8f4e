"""`rotate_field_keys`: secrets under a new key, what remains in words, and a writer who is quicker."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.db import connection

from batches.engine import fieldkeys
from batches.models import AuditEntry, ProviderAccount, UnreadableSecret
from tests.commands.shell import run
from tests.factories import make_account

pytestmark = pytest.mark.django_db
OLD, NEW, LOST = (Fernet.generate_key().decode() for _ in range(3))


@pytest.fixture
def accounts(settings: Any) -> list[int]:
    """More accounts than one slice takes, of which the last was stored under a key that is gone."""
    settings.FIELD_KEYS = [OLD]
    stored = [make_account(api_key=f"pdf_live_{number}", webhook_secret="whsec_kept").pk for number in range(5)]
    settings.FIELD_KEYS = [LOST]
    stored.append(make_account(api_key="pdf_live_lost", webhook_secret="").pk)
    return stored


def token(pk: int, column: str = "api_key") -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {column} FROM batches_provideraccount WHERE id = %s", [pk])
        return str(cursor.fetchone()[0])


def test_secrets_are_encrypted_anew_and_then_the_old_key_can_go(
    accounts: list[int], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fieldkeys, "SLICE", 2)
    settings.FIELD_KEYS = [NEW, OLD]
    made_at = Fernet(OLD).extract_timestamp(token(accounts[0]).encode())
    before = [token(pk) for pk in accounts]
    code, out, _err = run("rotate_field_keys", "--dry-run")
    assert (code, [token(pk) for pk in accounts]) == (3, before)
    assert "Older keys are still needed." in out
    code, out, _err = run("rotate_field_keys", "--json")
    first = json.loads(out)["columns"][0]
    assert (code, first["name"]) == (3, "ProviderAccount.api_key")
    assert (first["encrypted_anew"], first["first_key"], first["older_keys"]) == (5, 5, 0)
    assert first["unreadable"] == [f"provider account {accounts[-1]}"]
    assert token(accounts[-1]) == before[-1]
    assert Fernet(NEW).extract_timestamp(token(accounts[0]).encode()) == made_at
    settings.FIELD_KEYS = [NEW]
    readable = ProviderAccount.objects.filter(pk__in=accounts[:-1]).order_by("pk")
    assert [(each.api_key, each.webhook_secret) for each in readable] == [
        (f"pdf_live_{number}", "whsec_kept") for number in range(5)
    ]
    with pytest.raises(UnreadableSecret):
        ProviderAccount.objects.get(pk=accounts[-1])
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.facts) == ("rotate_field_keys", {"count": 10})


def test_a_second_run_finds_nothing_to_do_and_says_so(accounts: list[int], settings: Any) -> None:
    ProviderAccount.objects.filter(pk=accounts[-1]).delete()
    settings.FIELD_KEYS = [NEW, OLD]
    code, out, _err = run("rotate_field_keys")
    assert (code, "the others can be taken out of FIELD_KEYS" in out) == (0, True)
    stored = [token(pk) for pk in accounts[:-1]]
    assert run("rotate_field_keys")[0] == 0
    assert [token(pk) for pk in accounts[:-1]] == stored
    assert AuditEntry.objects.count() == 1


def test_what_a_writer_sets_meanwhile_is_kept(
    accounts: list[int], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.FIELD_KEYS = [NEW, OLD]
    replace = fieldkeys._replace

    def a_writer_was_first(model: Any, pk: int, name: str, before: bytes, after: bytes) -> bool:
        if (pk, name) == (accounts[0], "api_key"):
            ProviderAccount.objects.filter(pk=pk).update(api_key="pdf_live_of_the_writer")
        return replace(model, pk, name, before, after)

    monkeypatch.setattr(fieldkeys, "_replace", a_writer_was_first)
    run("rotate_field_keys")
    settings.FIELD_KEYS = [NEW]
    assert ProviderAccount.objects.get(pk=accounts[0]).api_key == "pdf_live_of_the_writer"


def test_a_new_key_is_one_that_can_be_used(settings: Any) -> None:
    code, out, _err = run("rotate_field_keys", "--make-key")
    assert code == 0
    settings.FIELD_KEYS = [out.strip()]
    account = make_account(api_key="pdf_live_k")
    assert ProviderAccount.objects.get(pk=account.pk).api_key == "pdf_live_k"
