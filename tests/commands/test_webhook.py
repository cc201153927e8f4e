"""`webhook`: what it registers, lists, rotates and deletes, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from batches.models import AuditEntry, ProviderAccount
from tests import factories
from tests.commands.shell import run
from tests.providers.relaypdf_double import API_KEY, RelayPDFDouble

pytestmark = pytest.mark.django_db
SITE = "http://127.0.0.1:8000"


@pytest.fixture
def double() -> Iterator[RelayPDFDouble]:
    with RelayPDFDouble() as double:
        yield double


@pytest.fixture(autouse=True)
def account(double: RelayPDFDouble) -> ProviderAccount:
    return factories.make_account(slug="relaypdf", base_url=double.url, api_key=API_KEY)


def test_an_address_is_registered_listed_rotated_and_deleted(double: RelayPDFDouble) -> None:
    assert run("webhook", "relaypdf", "--list")[1].endswith("No address is registered at the provider.\n")
    code, out, _ = run("webhook", "relaypdf", "--register", SITE, "--reason", "We go live.")
    assert (code, out) == (0, f"Webhooks come to {SITE}/webhooks/relaypdf. Its secret is stored.\n")
    answer = json.loads(run("webhook", "relaypdf", "--list", "--json")[1])
    url = f"{SITE}/webhooks/relaypdf"
    assert answer["endpoints"] == [{"id": "wh_1", "url": url, "is_ours": True, "leads_here": True}]
    code, out, _ = run("webhook", "relaypdf", "--rotate", "--json")
    assert (code, json.loads(out)["account"]) == (0, "relaypdf")
    assert f"wh_2  {url}  (ours)" in run("webhook", "relaypdf", "--list")[1]
    assert "deleted at the provider" in run("webhook", "relaypdf", "--delete", "wh_2")[1]
    assert not double.endpoints
    entries = list(AuditEntry.objects.order_by("pk").values_list("action", "reason"))
    assert entries == [("register_webhook", "We go live."), ("rotate_webhook", ""), ("delete_webhook", "")]


def test_without_an_address_the_setting_says_where_this_site_is(settings: Any, double: RelayPDFDouble) -> None:
    code, _, err = run("webhook", "relaypdf", "--register")
    assert (code, "PUBLIC_URL" in err) == (2, True)
    settings.PUBLIC_URL = SITE
    assert run("webhook", "relaypdf", "--register")[0] == 0
    assert double.endpoints["wh_1"][0] == f"{SITE}/webhooks/relaypdf"


@pytest.mark.parametrize(
    "arguments",
    [
        ("relaypdf", "--register", "ftp://x"),
        ("relaypdf", "--rotate"),
        ("relaypdf", "--delete", " "),
        ("nobody", "--list"),
    ],
)
def test_what_cannot_be_done_is_a_sentence_and_exit_code_2(arguments: tuple[str, ...]) -> None:
    code, out, err = run("webhook", *arguments)
    assert (code, out) == (2, "")
    assert err.endswith(".")


def test_a_loopback_address_is_no_use_to_a_provider_elsewhere(account: ProviderAccount) -> None:
    ProviderAccount.objects.update(base_url="https://api.relaypdf.com")
    code, _, err = run("webhook", "relaypdf", "--register", SITE)
    assert (code, "cannot reach" in err) == (2, True)


def test_no_secret_is_ever_printed(account: ProviderAccount) -> None:
    printed = "".join(
        "".join(map(str, run(*words)))
        for words in (
            ("webhook", "relaypdf", "--register", SITE),
            ("webhook", "relaypdf", "--rotate"),
            ("webhook", "relaypdf", "--list", "--json"),
            ("account", "relaypdf"),
            ("account", "relaypdf", "--json"),
        )
    )
    assert "whsec" not in printed
    facts = json.loads(run("account", "relaypdf", "--json")[1])
    assert facts["webhook_url"] == f"{SITE}/webhooks/relaypdf"
    assert (facts["webhook_last_received_at"], facts["webhook_announced"]) == (None, "0 of 0")
    assert facts["webhooks_silent"] is False
    assert "Webhooks: None has come yet." in run("account", "relaypdf")[1]
