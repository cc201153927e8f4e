"""`manage.py account SLUG --add KIND`: an account of any kind, refused in words where it could not be used safely."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from batches.models import AuditEntry, ProviderAccount


def added(*pairs: str, slug: str = "render", kind: str = "gotenberg", **options: Any) -> str:
    out = io.StringIO()
    call_command("account", slug, "--set", *pairs, add=kind, stdout=out, **options)
    return out.getvalue()


@pytest.mark.django_db
def test_an_account_is_made_with_its_kinds_own_settings_and_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("ada:a-secret\n"))
    facts = json.loads(
        added(
            "mode=sync",
            "network=files",
            "api_timeout=10",
            "max_in_flight=4",
            "api_key=-",
            base_url="http://127.0.0.1:3000",
            json=True,
        )
    )
    assert (facts["slug"], facts["max_in_flight"]) == ("render", 4)
    account = ProviderAccount.objects.get(slug="render")
    assert (account.kind, account.api_key, account.options) == (
        "gotenberg",
        "ada:a-secret",
        {"mode": "sync", "network": "files", "api_timeout": "10"},
    )
    entry = AuditEntry.objects.get(action="add_account")
    assert entry.facts["options"] == account.options
    assert "a-secret" not in json.dumps(entry.facts)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("pairs", "kind", "told"),
    [
        (("mode=later", "network=files"), "gotenberg", "is one of"),
        (("mode=sync",), "gotenberg", "is missing"),
        (("mode=async", "network=files"), "gotenberg", "public address"),
        (("colour=red",), "gotenberg", "'colour' cannot be set"),
        (("mode=sync",), "relaypdf", "'mode' cannot be set"),
        ((), "papyrus", "No provider is called 'papyrus'"),
    ],
)
def test_what_could_not_be_used_safely_is_refused_in_words(
    pairs: tuple[str, ...], kind: str, told: str, settings: Any
) -> None:
    settings.PUBLIC_URL = ""
    with pytest.raises(CommandError, match=told):
        added(*(pairs or ("name=A",)), kind=kind)
    assert not ProviderAccount.objects.exists()


@pytest.mark.django_db
def test_a_slug_is_given_once(account: ProviderAccount) -> None:
    with pytest.raises(CommandError, match="already"):
        added("name=Again", slug=account.slug, kind="relaypdf")
