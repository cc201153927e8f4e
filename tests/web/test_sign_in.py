"""Signing in and out, and the pages for what goes wrong."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.test import Client

pytestmark = pytest.mark.django_db


def test_a_right_password_leads_to_where_one_wanted_to_go(client: Client, okoye: User) -> None:
    answer = client.post(
        "/sign-in/?next=/new/", {"username": "m.okoye", "password": "Correct-horse-7", "next": "/new/"}
    )
    assert (answer.status_code, answer["Location"]) == (302, "/new/")


def test_a_foreign_next_is_ignored(client: Client, okoye: User) -> None:
    form = {"username": "m.okoye", "password": "Correct-horse-7", "next": "https://evil.example.com/"}
    assert client.post("/sign-in/", form)["Location"] == "/"


def test_a_wrong_password_says_no_more_than_that(client: Client, okoye: User) -> None:
    pages = [
        client.post("/sign-in/", {"username": name, "password": "wrong"}).text.split("<form")[0]
        for name in ("m.okoye", "nobody")
    ]
    assert pages[0] == pages[1]
    assert "Please enter a correct username and password" in pages[0]


def test_who_is_signed_in_is_led_on(operator: Client) -> None:
    assert operator.get("/sign-in/").status_code == 302


def test_signing_out_ends_the_session(operator: Client) -> None:
    assert operator.post("/sign-out/").status_code == 302
    assert operator.get("/").status_code == 302


@pytest.mark.usefixtures("login_throttling")
def test_too_many_wrong_passwords_are_stopped_on_a_page_of_ours(client: Client, okoye: User, settings: Any) -> None:
    form = {"username": "m.okoye", "password": "wrong"}
    answers = [client.post("/sign-in/", form) for _ in range(settings.AXES_FAILURE_LIMIT + 1)]
    assert answers[0].status_code == 200
    assert answers[-1].status_code == 429
    assert "Too many wrong passwords" in answers[-1].text
    right = client.post("/sign-in/", form | {"password": "Correct-horse-7"})
    assert right.status_code == 429


def test_a_superuser_is_offered_the_admin_and_others_are_not(admin_client: Client, operator: Client) -> None:
    assert "/admin/" in admin_client.get("/").text
    assert "/admin/" not in operator.get("/").text


@pytest.mark.parametrize("template", ["400.html", "403.html", "404.html", "413.html", "500.html", "403_csrf.html"])
def test_error_pages_stand_without_a_user_or_a_database(template: str, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        page = render_to_string(template, {})
    assert 'class="error-page"' in page
    assert "RelayPDF Batches" in page


def test_a_broken_view_shows_our_page(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(request: HttpRequest) -> None:
        raise RuntimeError("secret words")

    monkeypatch.setattr("batches.views.health._store", broken)
    client.raise_request_exception = False
    answer = client.get("/readyz")
    assert answer.status_code == 500
    assert "Something broke on our side" in answer.text
    assert "secret words" not in answer.text


def test_the_icon_is_where_browsers_look_for_it(client: Client) -> None:
    answer = client.get("/favicon.ico")
    assert (answer.status_code, answer["Location"]) == (302, "/static/batches/logo.svg")
