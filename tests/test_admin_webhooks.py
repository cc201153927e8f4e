"""The admin's page about an account's webhooks: its buttons do what they say, for who may, and show no secret."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from batches.models import AuditEntry, ProviderAccount
from tests import factories
from tests.providers.relaypdf_double import API_KEY, RelayPDFDouble

pytestmark = pytest.mark.django_db
URL = "http://127.0.0.1:8000/webhooks/relaypdf"


@pytest.fixture
def double() -> Iterator[RelayPDFDouble]:
    with RelayPDFDouble() as double:
        yield double


@pytest.fixture
def account(double: RelayPDFDouble) -> ProviderAccount:
    return factories.make_account(slug="relaypdf", name="North", base_url=double.url, api_key=API_KEY)


def page(account: ProviderAccount) -> str:
    return reverse("admin:account_webhooks", args=[account.pk])


def press(client: Client, account: ProviderAccount, action: str, **fields: str) -> str:
    """The page that follows."""
    answer = client.post(page(account), {"action": action} | fields, follow=True)
    assert answer.status_code == 200
    return answer.text


def test_the_buttons_register_rotate_and_delete(
    admin_client: Client, account: ProviderAccount, double: RelayPDFDouble
) -> None:
    shown = admin_client.get(page(account)).text
    assert "No address is registered from here." in shown
    assert 'value="http://testserver"' in shown, "the address is suggested"
    registered = press(admin_client, account, "register", url="http://127.0.0.1:8000", reason="We go live.")
    assert f"Webhooks come to {URL}" in registered
    assert "wh_1" in registered
    rotated = press(admin_client, account, "rotate")
    assert "The secret is new" in rotated
    assert list(double.endpoints) == ["wh_2"]
    double.endpoints["wh_x"] = (URL, "whsec_other")
    assert "everything comes twice" in admin_client.get(page(account), {"list": "1"}).text
    press(admin_client, account, "delete", endpoint="wh_x")
    deleted = press(admin_client, account, "delete", endpoint="wh_2")
    assert "No address is registered there." in deleted
    assert not double.endpoints
    assert "whsec" not in registered + rotated + deleted
    entries = AuditEntry.objects.order_by("pk").values_list("action", "actor_words", "reason", "from_where")
    assert entries[0] == ("register_webhook", "admin", "We go live.", "127.0.0.1")
    assert [action for action, *_rest in entries[1:]] == ["rotate_webhook", "delete_webhook", "delete_webhook"]


def test_what_is_refused_is_said_on_the_page(
    admin_client: Client, account: ProviderAccount, double: RelayPDFDouble
) -> None:
    assert "Give the address" in press(admin_client, account, "register", url="nowhere")
    assert "Choose what to do" in press(admin_client, account, "dance")
    double.answer("webhooks", 503, b"")
    shown = admin_client.get(page(account), {"list": "1"}).text
    assert "RelayPDF answered 503" in shown
    assert "No address is registered there." not in shown, "nothing was learned"


def test_the_accounts_page_says_how_webhooks_are_and_leads_there(
    admin_client: Client, account: ProviderAccount
) -> None:
    shown = admin_client.get(reverse("admin:batches_provideraccount_change", args=[account.pk])).text
    assert "No secret is set, so no webhook is taken" in shown
    assert page(account) in shown


@pytest.mark.parametrize(("may", "status"), [((), 404), (("view",), 403), (("view", "change"), 200)])
def test_only_who_may_change_the_account_gets_here(
    client: Client, account: ProviderAccount, double: RelayPDFDouble, may: tuple[str, ...], status: int
) -> None:
    user = User.objects.create_user("staff", password="x", is_staff=True)
    names = [f"{right}_provideraccount" for right in may]
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    client.force_login(user)
    assert client.get(page(account)).status_code == status
    done = client.post(page(account), {"action": "register", "url": "http://127.0.0.1:8000"})
    assert done.status_code == (302 if status == 200 else status)
    assert len(double.endpoints) == (status == 200)
    client.logout()
    assert client.post(page(account), {"action": "register"}).status_code == 302, "to the sign-in"
    assert Client(enforce_csrf_checks=True).post(page(account), {}).status_code in (302, 403)


def test_an_account_that_there_is_not_is_404(admin_client: Client) -> None:
    assert admin_client.get(reverse("admin:account_webhooks", args=[10**9])).status_code == 404
