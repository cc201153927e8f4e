"""How long a session lives and what ends it; and a file that was on its way meanwhile (case 41)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client, RequestFactory
from django.utils import timezone

from batches.middleware import ForwardedAddress
from batches.models import AuditEntry, Batch, Draft, ProviderAccount, Workspace
from tests.web.conftest import PASSWORD, signed_in

pytestmark = pytest.mark.django_db
FORM = {"username": "m.okoye", "password": PASSWORD}


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta], None]:
    """Moves the clock of the session rules on."""
    base = timezone.now()
    passed = timedelta()

    def move(by: timedelta) -> None:
        nonlocal passed
        passed += by
        monkeypatch.setattr("batches.views.sessions.timezone.now", lambda: base + passed)

    return move


def is_in(client: Client, **headers: str) -> bool:
    return client.get("/", headers=headers).status_code == 200


def test_a_session_gets_a_new_key_when_somebody_signs_in(client: Client, okoye: User) -> None:
    client.get("/sign-in/")
    session = client.session
    session["planted"] = "by somebody else"
    session.save()
    client.cookies[settings.SESSION_COOKIE_NAME] = session.session_key
    client.post("/sign-in/", FORM)
    assert client.session.session_key != session.session_key
    assert client.cookies[settings.SESSION_COOKIE_NAME]["httponly"]


def test_a_session_ends_after_its_last_use_and_says_so(okoye: User, later: Callable[[timedelta], None]) -> None:
    client = signed_in(okoye)
    idle = timedelta(seconds=settings.SESSION_IDLE_SECONDS)
    for _ in range(3):
        later(idle - timedelta(minutes=1))
        assert is_in(client)
    later(idle + timedelta(minutes=1))
    answer = client.get("/new/")
    assert answer["Location"] == "/sign-in/?next=/new/"
    assert "your session had run out" in client.get(answer["Location"]).text
    client.post("/sign-in/", FORM)
    assert is_in(client)


def test_what_a_page_fetches_by_itself_keeps_no_session_open(okoye: User, later: Callable[[timedelta], None]) -> None:
    client = signed_in(okoye)
    for _ in range(3):
        later(timedelta(seconds=settings.SESSION_IDLE_SECONDS / 2 - 60))
        client.get("/live/", headers={"HX-Request": "true"})
    assert not is_in(client)


def test_a_session_ends_so_long_after_it_began_whatever_is_done(
    okoye: User, later: Callable[[timedelta], None]
) -> None:
    client = signed_in(okoye)
    steps = settings.SESSION_COOKIE_AGE // 3600
    for _ in range(steps):
        assert is_in(client)
        later(timedelta(hours=1))
    later(timedelta(minutes=1))
    assert not is_in(client)


def test_a_new_password_or_a_deactivation_ends_the_sessions_of_a_person(okoye: User) -> None:
    here, there = signed_in(okoye), signed_in(okoye)
    okoye.set_password("Another-horse-8")
    okoye.save()
    assert not is_in(here)
    assert not is_in(there)
    client = signed_in(okoye)
    User.objects.filter(pk=okoye.pk).update(is_active=False)
    assert not is_in(client)


def test_signing_out_everywhere_ends_each_session_of_that_person_alone(
    okoye: User, outsider: Client, admin_client: Client
) -> None:
    here, there = signed_in(okoye), signed_in(okoye)
    assert here.get("/sign-out/everywhere/").status_code == 405
    assert here.post("/sign-out/everywhere/", follow=True).status_code == 200
    assert [is_in(each) for each in (here, there, outsider)] == [False, False, True]
    assert AuditEntry.objects.get(action="sign_out_everywhere").actor == okoye
    again = signed_in(okoye)
    form = {"action": "sign_out", "_selected_action": [okoye.pk]}
    assert admin_client.post("/admin/auth/user/", form).status_code == 302
    assert [is_in(each) for each in (again, outsider)] == [False, True]


# --- a file on its way (case 41) --------------------------------------------------------------------------------------


def handed_over(client: Client, workspace: Workspace, account: ProviderAccount, **more: Any) -> Any:
    file = SimpleUploadedFile("a.json", json.dumps([{"id": "A-1", "html": "<p>1</p>"}]).encode())
    return client.post("/new/", {"file": file, "workspace": workspace.slug, "account": account.slug, **more})


def test_an_upload_that_meets_the_end_of_its_session_lands_on_its_form_with_the_reason(
    okoye: User, workspace: Workspace, account: ProviderAccount, later: Callable[[timedelta], None]
) -> None:
    client = signed_in(okoye)
    assert client.get("/new/").status_code == 200
    later(timedelta(seconds=settings.SESSION_IDLE_SECONDS + 60))
    refused = handed_over(client, workspace, account)
    assert refused["Location"] == "/sign-in/?next=/new/%3Fagain%3D1"
    assert not Draft.objects.exists()
    landed = client.post(refused["Location"], {**FORM, "next": "/new/?again=1"}, follow=True)
    assert "Your file was not taken." in landed.text
    assert handed_over(client, workspace, account).status_code == 302
    assert (Draft.objects.count(), Batch.objects.count()) == (1, 0)


def test_an_upload_whose_person_signed_in_again_in_another_tab_lands_on_its_form_too(
    okoye: User, workspace: Workspace, account: ProviderAccount
) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(okoye)
    token = client.get("/new/").cookies["csrftoken"].value
    client.force_login(okoye)
    client.cookies["csrftoken"] = "x" * 32
    answer = handed_over(client, workspace, account, csrfmiddlewaretoken=token)
    assert answer["Location"] == "/new/?again=1"
    assert not Draft.objects.exists()
    elsewhere = client.post("/sign-out/", {"csrfmiddlewaretoken": token})
    assert elsewhere.status_code == 403
    assert "This form is too old" in elsewhere.text


# --- wrong passwords --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("login_throttling")
def test_a_lock_says_when_to_try_again_and_not_whether_the_name_exists(okoye: User) -> None:
    answers = []
    for name in ("m.okoye", "nobody"):
        client = Client()
        last = [client.post("/sign-in/", {"username": name, "password": "x"}) for _ in range(11)][-1]
        answers.append((last.status_code, last["Retry-After"], last.text))
    assert answers[0] == answers[1]
    assert answers[0][:2] == (429, "900")
    assert "a quarter of an hour" in answers[0][2]


def test_behind_a_proxy_the_caller_is_the_last_address_that_it_names() -> None:
    def seen(header: str) -> str:
        request = RequestFactory().get("/", headers={"X-Forwarded-For": header} if header else {})
        ForwardedAddress(lambda asked: asked.META["REMOTE_ADDR"])(request)  # type: ignore[arg-type, return-value]
        return str(request.META["REMOTE_ADDR"])

    assert seen("203.0.113.9") == "203.0.113.9"
    assert seen("198.51.100.1, 2001:db8::7") == "2001:db8::7"
    assert seen("") == seen("203.0.113.9, nonsense") == "127.0.0.1"


@pytest.mark.usefixtures("login_throttling")
def test_a_neighbour_behind_the_same_proxy_is_not_locked_out(okoye: User, client: Client, settings: Any) -> None:
    settings.MIDDLEWARE = ["batches.middleware.ForwardedAddress", *settings.MIDDLEWARE]
    for _ in range(11):
        answer = client.post("/sign-in/", FORM | {"password": "x"}, headers={"X-Forwarded-For": "203.0.113.9"})
    assert answer.status_code == 429
    assert client.post("/sign-in/", FORM, headers={"X-Forwarded-For": "203.0.113.10"}).status_code == 302
