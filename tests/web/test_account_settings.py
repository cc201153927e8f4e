"""Accounts made and changed on pages: kind first, refused in words where unsafe, and no secret is shown or kept."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django import forms
from django.db import connection
from django.test import Client

from batches.engine import accounts
from batches.models import AuditEntry, ProviderAccount, Role, Workspace
from batches.models.fields import stored_at
from batches.providers import PROVIDERS
from tests.factories import make_accepted_job, make_account, make_batch
from tests.web.conftest import make_member, signed_in

pytestmark = pytest.mark.django_db
SECRET, KEY = "whsec_recognisable", "ada:recognisable"


@pytest.fixture
def manager(workspace: Workspace) -> Client:
    return signed_in(make_member(workspace, "h.brandt", Role.MANAGER))


@pytest.fixture
def gotenberg(workspace: Workspace) -> ProviderAccount:
    options = {"mode": "sync", "network": "files", "api_timeout": "10"}
    return make_account(
        slug="render", name="Render", kind="gotenberg", workspace=workspace, options=options, api_key="ada:first"
    )


def as_sent(page: Any, **changed: str) -> dict[str, str]:
    """The forms of a page as a browser sends them: without what is disabled, and a tick only where one is set."""
    found = {"shown": page.context["shown"]} if "shown" in page.context else {}
    for name in ("form", "whose", "reach", "limits"):
        for field in page.context.get(name) or ():
            value = field.value()
            is_unticked = value is False and isinstance(field.field.widget, forms.CheckboxInput)
            if not field.field.disabled and not is_unticked:
                found[field.name] = "" if value is None else str(value)
    return found | changed


@pytest.mark.parametrize("kind", list(accounts.adapters()))
def test_each_kind_has_a_form_of_its_own(kind: str, manager: Client) -> None:
    adapter = accounts.adapters()[kind]
    assert f"/new-account/{kind}/" in manager.get("/new-account/").text
    page = manager.get(f"/new-account/{kind}/")
    asked = {field.name: field.value() for field in page.context["reach"]}
    assert {f"option_{each.name}": each.default for each in adapter.options}.items() <= asked.items()
    assert asked["base_url"] == adapter.base_url
    most = adapter.capabilities.most_at_once
    assert page.context["limits"]["max_in_flight"].value() == (most or 20)
    assert ("webhook_secret" in asked) == adapter.capabilities.webhook_success
    assert not {"is_same_account", "no_webhook_secret"} & set(asked)


def test_an_account_is_made_and_written_down_without_its_secrets(manager: Client, workspace: Workspace) -> None:
    sent = as_sent(
        manager.get("/new-account/gotenberg/"),
        slug="render",
        workspace=workspace.slug,
        option_mode="sync",
        option_network="files",
        option_api_timeout="10",
        download_hosts="Files.example.com, other.example.com",
        api_key=KEY,
        webhook_secret=SECRET,
        price_per_job="0",
        processing_region="Our own rack",
    )
    page = manager.post("/new-account/gotenberg/", sent, follow=True)
    assert page.redirect_chain == [("/accounts/render/", 302)], page.context["reach"].errors
    account = ProviderAccount.objects.get()
    assert (account.kind, account.workspace, account.max_in_flight) == ("gotenberg", workspace, 6)
    assert account.options == {"mode": "sync", "network": "files", "api_timeout": "10"}
    assert account.download_hosts == ["files.example.com", "other.example.com"]
    assert (account.api_key, account.webhook_secret, account.processing_region) == (KEY, SECRET, "Our own rack")
    assert AuditEntry.objects.get().action == "add_account"
    assert "recognisable" not in str(AuditEntry.objects.get().facts) + page.text
    assert "API key</dt><dd>set since" in page.text


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"option_mode": "async"}, "whose public address is not known"),
        ({"option_network": ""}, "this is needed"),
        ({"option_mode": "later"}, "Select a valid choice"),
        ({"base_url": "render.example.com"}, "This is no address"),
        ({"base_url": "https://ada:secret@render.example.com"}, "Leave out user, password and query"),
        ({"api_key": "without-a-colon"}, "The key is no user:password"),
        ({"api_key": "ada:two words"}, "no header may carry"),
        ({"slug": "taken"}, "There is an account of this name already"),
        ({"workspace": "*"}, "Select a valid choice"),
        ({"workspace": ""}, "This field is required"),
        ({"download_hosts": "https://files.example.com"}, "is no host name"),
        ({"price_per_job": "1", "price_currency": ""}, "A price needs its currency"),
    ],
)
def test_what_could_not_be_used_safely_is_not_made(
    wrong: dict[str, str], told: str, manager: Client, workspace: Workspace, settings: Any
) -> None:
    settings.PUBLIC_URL = ""
    make_account(slug="taken", workspace=make_batch().workspace)
    right = {"slug": "render", "workspace": workspace.slug, "option_mode": "sync", "option_network": "files"}
    sent = as_sent(manager.get("/new-account/gotenberg/"), option_api_timeout="10", api_key=KEY, **right)
    answer = manager.post("/new-account/gotenberg/", sent | wrong)
    assert (answer.status_code, told in answer.text.replace("&#x27;", "'")) == (422, True)
    assert "recognisable" not in answer.text
    assert not ProviderAccount.objects.filter(slug="render").exists()


def test_one_for_every_workspace_takes_the_permission_itself(manager: Client, admin_client: Client) -> None:
    asked = manager.get("/new-account/relaypdf/").context["whose"].fields["workspace"].choices
    assert [name for _slug, name in asked] == [Workspace.objects.get().name]
    page = admin_client.get("/new-account/relaypdf/")
    sent = as_sent(page, slug="shared", workspace="*", api_key="pdf_live_recognisable")
    assert admin_client.post("/new-account/relaypdf/", sent).status_code == 302
    assert ProviderAccount.objects.get(slug="shared").workspace is None
    assert manager.post("/accounts/shared/settings/", {}).status_code == 403


def test_what_is_left_free_is_changed_and_the_rest_says_that_it_is_fixed(
    gotenberg: ProviderAccount, manager: Client
) -> None:
    assert not manager.get("/accounts/render/settings/").context["form"].fields["base_url"].disabled
    make_accepted_job(batch=make_batch(account=gotenberg, workspace=gotenberg.workspace))
    page = manager.get("/accounts/render/settings/")
    fields = page.context["form"].fields
    assert [name for name, field in fields.items() if field.disabled] == ["base_url", "option_mode"]
    assert "make a new account for another one" in page.text
    sent = as_sent(page, option_network="public", option_api_timeout="12", name="Rack", webhook_secret=SECRET)
    answer = manager.post(
        "/accounts/render/settings/", sent | {"base_url": "http://127.0.0.1:1", "option_mode": "async"}
    )
    assert answer.status_code == 302, answer.context["form"].errors
    account = ProviderAccount.objects.get(slug="render")
    assert account.base_url == gotenberg.base_url
    assert account.options == {"mode": "sync", "network": "public", "api_timeout": "12"}
    assert (account.name, account.api_key, account.webhook_secret) == ("Rack", "ada:first", SECRET)
    assert AuditEntry.objects.get().facts["after"] == {
        "name": "Rack",
        "options": account.options,
        "webhook_secret": "set",
    }
    assert manager.post("/accounts/render/settings/", sent).status_code == 422  # of a page from before


def test_a_new_key_is_confirmed_while_documents_are_not_finished(gotenberg: ProviderAccount, manager: Client) -> None:
    make_accepted_job(batch=make_batch(account=gotenberg, workspace=gotenberg.workspace))
    sent = as_sent(manager.get("/accounts/render/settings/"), api_key=KEY)
    refused = manager.post("/accounts/render/settings/", sent)
    assert "1 document of it is not finished" in refused.text
    assert "recognisable" not in refused.text
    assert manager.post("/accounts/render/settings/", sent | {"is_same_account": "on"}).status_code == 302
    assert ProviderAccount.objects.get(slug="render").api_key == KEY


def test_a_webhook_secret_is_removed_by_a_tick(gotenberg: ProviderAccount, manager: Client) -> None:
    manager.post(
        "/accounts/render/settings/", as_sent(manager.get("/accounts/render/settings/"), webhook_secret=SECRET)
    )
    tick = as_sent(manager.get("/accounts/render/settings/"), no_webhook_secret="on")
    assert manager.post("/accounts/render/settings/", tick | {"webhook_secret": "another"}).status_code == 422
    assert manager.post("/accounts/render/settings/", tick).status_code == 302
    assert ProviderAccount.objects.get(slug="render").webhook_secret == ""


def test_a_page_says_since_when_a_secret_is_set_and_needs_no_key_for_it(
    gotenberg: ProviderAccount, manager: Client, settings: Any
) -> None:
    token = Fernet(settings.FIELD_KEYS[0]).encrypt_at_time(b"ada:old", 1_700_000_000).decode()
    assert stored_at(token) == datetime.fromtimestamp(1_700_000_000, UTC)
    assert [stored_at(head) for head in ("", "garbage", "fernet:garbage", "gP" + "_" * 20)][:3] == [None, None, None]
    with connection.cursor() as cursor:
        cursor.execute("UPDATE batches_provideraccount SET api_key = %s", [token])
    settings.FIELD_KEYS = [Fernet.generate_key().decode()]
    for page in ("/accounts/render/", "/accounts/render/settings/"):
        text = manager.get(page).text
        assert "set since" in text
        assert "2023" in text


def test_each_kind_says_what_becomes_of_a_lost_answer_as_the_table_of_providers_does(manager: Client) -> None:
    page = manager.get("/new-account/").content.decode()
    assert page.count("After a lost answer: ") == len(PROVIDERS)
    assert "After a lost answer: sent again: at worst one more run." in page
