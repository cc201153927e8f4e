"""Our address at the provider: what is kept when, and what a kill or a refusal in between leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection

from batches.engine import audit, webhook_setup
from batches.engine.audit import By
from batches.engine.webhook_setup import Refused
from batches.models import AuditEntry, Exchange, ProviderAccount
from tests import factories
from tests.factories import NOW
from tests.providers.relaypdf_double import API_KEY, RelayPDFDouble

pytestmark = pytest.mark.django_db
BY = By(None, "m.okoye", "198.51.100.7")
HERE = "http://127.0.0.1:8000/webhooks/relaypdf"


@pytest.fixture
def double() -> Iterator[RelayPDFDouble]:
    with RelayPDFDouble() as double:
        yield double


@pytest.fixture
def account(double: RelayPDFDouble) -> ProviderAccount:
    return factories.make_account(slug="relaypdf", base_url=double.url, api_key=API_KEY)


def register(account: ProviderAccount, url: str = "http://127.0.0.1:8000") -> str:
    return webhook_setup.register(account.pk, url, by=BY, reason="We go live.", now=NOW)


def rotate(account: ProviderAccount) -> str:
    return webhook_setup.rotate(account.pk, by=BY, reason="", now=NOW + timedelta(days=1))


def delete(account: ProviderAccount, endpoint_id: str) -> str:
    return webhook_setup.delete(account.pk, endpoint_id, by=BY, reason="", now=NOW)


def secrets(account: ProviderAccount) -> tuple[str, str]:
    account.refresh_from_db()
    return account.webhook_secret, account.webhook_secret_previous


def test_a_registration_keeps_its_secret_encrypted_and_says_none_of_it(
    account: ProviderAccount, double: RelayPDFDouble
) -> None:
    assert register(account) == f"Webhooks come to {HERE}. Its secret is stored."
    assert double.endpoints == {"wh_1": (HERE, "whsec_invented1")}
    assert secrets(account) == ("whsec_invented1", "")
    assert (account.webhook_id, account.webhook_url, account.webhook_registered_at) == ("wh_1", HERE, NOW)
    with connection.cursor() as cursor:
        cursor.execute("SELECT webhook_secret FROM batches_provideraccount")
        assert "whsec" not in cursor.fetchone()[0]
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.subject, entry.reason) == ("register_webhook", "account relaypdf", "We go live.")
    assert (entry.actor_words, entry.from_where, entry.facts) == ("m.okoye", "198.51.100.7", {"endpoint": "wh_1"})
    exchange = Exchange.objects.get()
    assert (exchange.kind, exchange.status, exchange.job_id) == ("webhook", 201, None)
    assert "whsec" not in f"{exchange.request} {exchange.response}"
    with pytest.raises(Refused, match="registered already"):
        register(account)
    assert len(double.endpoints) == 1


def test_a_secret_that_was_set_by_hand_stays_accepted_beside_the_registered_one(account: ProviderAccount) -> None:
    ProviderAccount.objects.filter(pk=account.pk).update(webhook_secret="whsec_by_hand")
    register(account)
    assert secrets(account) == ("whsec_invented1", "whsec_by_hand")
    assert webhook_setup.end_previous(now=NOW + timedelta(days=90)) == 0
    assert delete(account, "wh_1").endswith("polling finds every document.")
    assert secrets(account) == ("whsec_by_hand", ""), "and is used again when that is gone"


def test_a_rotation_replaces_the_secret_and_the_old_one_ends_after_an_hour(
    account: ProviderAccount, double: RelayPDFDouble
) -> None:
    with pytest.raises(Refused, match="Register one first"):
        rotate(account)
    register(account)
    assert rotate(account) == "The secret is new; the one before is accepted for another hour."
    assert double.endpoints == {"wh_2": (HERE, "whsec_invented2")}, "the same address, once"
    assert secrets(account) == ("whsec_invented2", "whsec_invented1")
    rotated_at = NOW + timedelta(days=1)
    assert webhook_setup.end_previous(now=rotated_at + timedelta(minutes=59)) == 0
    assert webhook_setup.end_previous(now=rotated_at + timedelta(hours=1)) == 1
    assert secrets(account) == ("whsec_invented2", "")


def test_deleting_ours_leaves_no_secret_under_which_something_is_taken(
    account: ProviderAccount, double: RelayPDFDouble
) -> None:
    register(account)
    rotate(account)
    delete(account, "wh_2")
    assert not double.endpoints
    assert secrets(account) == ("", "")
    assert (account.webhook_id, account.webhook_url, account.webhook_registered_at) == ("", "", None)
    actions = list(AuditEntry.objects.order_by("pk").values_list("action", flat=True))
    assert actions == ["register_webhook", "rotate_webhook", "delete_webhook"]


def test_what_others_registered_is_listed_and_can_be_deleted_without_touching_ours(
    account: ProviderAccount, double: RelayPDFDouble
) -> None:
    double.endpoints["wh_old"] = (HERE, "whsec_lost")
    double.endpoints["wh_x"] = ("https://other.example.com/", "whsec_other")
    register(account)
    listed = webhook_setup.listed(account.pk, now=NOW)
    assert [(each.id, each.is_ours, each.leads_here) for each in listed] == [
        ("wh_old", False, True),
        ("wh_x", False, False),
        ("wh_1", True, True),
    ]
    assert delete(account, "wh_old") == "The address is deleted at the provider."
    assert delete(account, "wh_old") == "The provider knew no such address."
    assert secrets(account) == ("whsec_invented1", "")


class KilledError(BaseException):
    """The process is gone."""


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("verb", [register, rotate])
def test_a_kill_after_the_providers_answer_leaves_an_address_that_is_listed_and_can_be_deleted(
    verb: object, account: ProviderAccount, double: RelayPDFDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    if verb is rotate:
        register(account)
    before = secrets(account)

    def die(*_given: object, **_named: object) -> None:
        raise KilledError

    monkeypatch.setattr(audit, "record", die)
    with pytest.raises(KilledError):
        verb(account)  # type: ignore[operator]  # one of the two above
    monkeypatch.undo()
    assert secrets(account) == before, "what was taken before is still taken"
    (left,) = [each for each in webhook_setup.listed(account.pk, now=NOW) if not each.is_ours]
    assert delete(account, left.id) == "The address is deleted at the provider."
    verb(account)  # type: ignore[operator]
    assert list(double.endpoints) == [account_now(account).webhook_id]


def account_now(account: ProviderAccount) -> ProviderAccount:
    return ProviderAccount.objects.get(pk=account.pk)


def test_two_who_register_at_once_leave_one_registration(
    account: ProviderAccount, double: RelayPDFDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = webhook_setup._made

    def overtaken(*given: object, **named: object) -> object:
        answer = made(*given, **named)  # type: ignore[arg-type]  # passed on as they came
        monkeypatch.undo()
        register(account)
        return answer

    monkeypatch.setattr(webhook_setup, "_made", overtaken)
    with pytest.raises(Refused, match="somebody else"):
        register(account)
    assert list(double.endpoints) == ["wh_2"]
    assert (account_now(account).webhook_id, secrets(account)) == ("wh_2", ("whsec_invented2", ""))


def test_a_lost_answer_says_that_it_is_not_known_and_where_to_look(
    account: ProviderAccount, double: RelayPDFDouble
) -> None:
    double.drop("webhooks", effect=True)
    with pytest.raises(Refused, match=r"not known whether the address was registered.*List the addresses"):
        register(account)
    assert [each.is_ours for each in webhook_setup.listed(account.pk, now=NOW)] == [False]
    double.drop("webhooks")
    with pytest.raises(Refused, match="not known whether it is gone"):
        delete(account, "wh_1")
    assert not AuditEntry.objects.exists()


def test_a_rotation_whose_old_address_stays_says_so_and_works_with_both(
    account: ProviderAccount, double: RelayPDFDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(account)
    made = webhook_setup._made

    def then_trouble(*given: object, **named: object) -> object:
        answer = made(*given, **named)  # type: ignore[arg-type]  # passed on as they came
        double.answer("webhooks", 503, {"error": {"code": "internal_error", "message": "Later."}})
        return answer

    monkeypatch.setattr(webhook_setup, "_made", then_trouble)
    with pytest.raises(Refused, match="wh_1 is still at the provider"):
        rotate(account)
    assert secrets(account) == ("whsec_invented2", "whsec_invented1")
    assert set(double.endpoints) == {"wh_1", "wh_2"}


def test_a_provider_that_shows_no_secret_is_told_of_and_never_rotated_into_silence(
    account: ProviderAccount, double: RelayPDFDouble
) -> None:
    ProviderAccount.objects.filter(pk=account.pk).update(webhook_secret="whsec_by_hand")
    double.answer("webhooks", 200, {"endpoint": {"id": "wh_9", "url": HERE}})
    assert "showed no secret" in register(account)
    assert secrets(account) == ("whsec_by_hand", "")
    double.answer("webhooks", 200, {"id": "wh_10"})
    with pytest.raises(Refused, match="the old one stays"):
        rotate(account)
    assert account_now(account).webhook_id == "wh_9"


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (400, {"error": {"code": "url_not_allowed", "message": "It must be https."}}, "was not registered.*https"),
        (401, {"error": {"code": "unauthorized", "message": "No."}}, "was not registered"),
        (201, {"url": HERE}, "not known whether"),
        (201, b"<html>", "not known whether"),
        (500, b"", "not known whether"),
    ],
)
def test_whatever_the_provider_answers_is_said_in_a_sentence(
    account: ProviderAccount, double: RelayPDFDouble, status: int, body: object, words: str
) -> None:
    double.answer("webhooks", status, body)
    with pytest.raises(Refused, match=words):
        register(account)
    assert account_now(account).webhook_id == ""


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        ({"endpoints": []}, []),
        ([{"id": "a", "url": "https://x.example.com"}], ["a"]),
        ({"data": [{"id": 7}, {"url": "no id"}, "odd", None]}, ["7"]),
        ({"webhooks": [{"endpointId": "b", "secret": "whsec_shown"}]}, ["b"]),
    ],
)
def test_a_list_is_read_in_every_likely_form(
    account: ProviderAccount, double: RelayPDFDouble, body: object, ids: list[str]
) -> None:
    double.answer("webhooks", 200, body)
    assert [each.id for each in webhook_setup.listed(account.pk, now=NOW)] == ids


def test_an_answer_without_a_list_is_not_taken_for_an_empty_one(
    account: ProviderAccount, double: RelayPDFDouble
) -> None:
    double.answer("webhooks", 200, {"ok": True})
    with pytest.raises(Refused, match="no list of addresses"):
        webhook_setup.listed(account.pk, now=NOW)


REMOTE, LOCAL = "https://api.relaypdf.com", "http://127.0.0.1:8787"


@pytest.mark.parametrize(
    ("given", "provider_url", "whole"),
    [
        ("https://batches.example.com", REMOTE, "https://batches.example.com/webhooks/north"),
        (" https://batches.example.com/ ", REMOTE, "https://batches.example.com/webhooks/north"),
        ("https://batches.example.com:8443", REMOTE, "https://batches.example.com:8443/webhooks/north"),
        ("https://example.com/app/webhooks/north/", REMOTE, "https://example.com/app/webhooks/north"),
        ("http://127.0.0.1:8000", LOCAL, "http://127.0.0.1:8000/webhooks/north"),
        ("http://[::1]:8000", LOCAL, "http://[::1]:8000/webhooks/north"),
    ],
)
def test_the_address_is_made_of_where_this_site_is_reached(given: str, provider_url: str, whole: str) -> None:
    assert webhook_setup.address(given, slug="north", provider_url=provider_url) == whole


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("http://batches.example.com", "https only"),
        ("https://127.0.0.1:8000", "cannot reach"),
        ("https://localhost", "cannot reach"),
        ("https://10.0.0.7", "cannot reach"),
        ("https://[::1]", "cannot reach"),
        ("https://[fd00::1]", "cannot reach"),
        ("https://intranet", "cannot reach"),
        ("https://printer.local", "cannot reach"),
        ("https://batches.example.com/webhooks/south", "leads elsewhere"),
        ("https://batches.example.com/elsewhere", "leads elsewhere"),
        ("https://user:word@batches.example.com", "Give the address"),
        ("https://batches.example.com/?a=1", "Give the address"),
        ("https://batches.example.com:99999", "Give the address"),
        ("https://bücher.example.com", "Give the address"),
        ("batches.example.com", "Give the address"),
        ("ftp://batches.example.com", "Give the address"),
        ("https://[::1", "Give the address"),
        ("", "Give the address"),
        (f"https://{'a' * 60}.example.com/{'b' * 300}/webhooks/north", "longer than"),
    ],
)
def test_an_address_that_the_provider_cannot_use_is_refused(given: str, words: str) -> None:
    with pytest.raises(Refused, match=words):
        webhook_setup.address(given, slug="north", provider_url=REMOTE)
