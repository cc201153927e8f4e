"""Signing in through an OpenID Connect issuer: a real one, small, on loopback, and the site in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from relaypdf_site.environment import without_ours
from tests.databases import copy_migrated_file
from tests.oidc_issuer import CLIENT, SECRET, Issuer
from tests.stack_process import REPOSITORY

UNA = {"sub": "u-1", "preferred_username": "una", "email": "una@example.com", "email_verified": True}


class Site:
    """A browser is a name; each has cookies of its own."""

    def __init__(self, folder: Path, **given: str) -> None:
        copy_migrated_file(folder / "db.sqlite3")
        env = without_ours(os.environ) | {"DATA_DIR": str(folder), **given}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.oidc_site"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
            cwd=REPOSITORY,
        )
        assert self._read() == {"ready": True}

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def ask(self, do: str, **given: Any) -> dict[str, Any]:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"do": do, **given}) + "\n")
        self.process.stdin.flush()
        return self._read()

    def get(self, path: str, browser: str = "una's") -> dict[str, Any]:
        return self.ask("get", path=path, browser=browser)

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(10)


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    running = Issuer()
    yield running
    running.close()


@pytest.fixture(scope="module")
def site(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    given = {"OIDC_ISSUER": issuer.url, "OIDC_CLIENT_ID": CLIENT, "OIDC_CLIENT_SECRET": SECRET, "OIDC_NAME": "Example"}
    running = Site(tmp_path_factory.mktemp("site"), PASSWORD_SIGN_IN="0", **given)
    yield running
    running.close()


@pytest.fixture
def signs_in(issuer: Issuer, site: Site) -> Iterator[Callable[..., dict[str, Any]]]:
    """Walks it: the link, the issuer, and back. `steps` is how far; the answer is the last one."""

    def walk(person: dict[str, Any], browser: str = "una's", *, lies: str = "", next: str = "") -> dict[str, Any]:
        issuer.person, issuer.lies = person, lies
        away = site.get(f"/sign-in/oidc/?next={next}", browser)
        assert away["to"].startswith(f"{issuer.url}/authorize?"), away
        agreed = requests.get(away["to"], allow_redirects=False, timeout=10)
        return site.get(agreed.headers["Location"].removeprefix("http://localhost"), browser)

    yield walk
    issuer.lies = ""


def test_a_new_person_arrives_without_a_workspace_and_is_told_whom_to_ask(
    site: Site, signs_in: Callable[..., dict[str, Any]]
) -> None:
    page = site.get("/sign-in/?next=/audit/", "una's")
    assert "Sign in with Example" in page["text"]
    assert 'href="/sign-in/oidc/?next=%2Faudit%2F"' in page["text"]
    before = site.get("/sign-in/oidc/", "una's")["session"]
    arrived = signs_in(UNA)
    assert (arrived["status"], arrived["to"]) == (302, "/")
    assert arrived["session"] not in ("", before)
    assert "belong to no workspace yet" in site.get("/")["text"]
    told = site.ask("people")
    rights = {"is_active": True, "is_staff": False, "is_superuser": False}
    assert told["people"][-1] == {"username": "una", "email": "una@example.com", **rights}
    assert "una" not in told["members"]
    again = signs_in(UNA, "another browser", next="/rights/")
    assert (again["status"], again["to"]) == (302, "/rights/")
    assert site.ask("people") == told
    assert signs_in(UNA, "a third", next="https://evil.example/")["to"] == "/"


def test_nobody_becomes_an_existing_person_by_what_is_said_of_them(
    site: Site, signs_in: Callable[..., dict[str, Any]]
) -> None:
    site.ask("make", name="boss", email="boss@example.com", password="Correct-horse-7")
    signs_in({"sub": "u-2", "preferred_username": "boss", "email": "boss@example.com"}, "impostor's")
    names = [each["username"] for each in site.ask("people")["people"] if each["email"] == "boss@example.com"]
    assert len(names) == 2
    assert f">{names[1]}<" in site.get("/", "impostor's")["text"]


@pytest.mark.parametrize("lies", ["signature", "audience", "issuer", "expired", "subject", "no token", "cancelled"])
def test_what_the_issuer_does_not_prove_opens_no_session(
    lies: str, site: Site, signs_in: Callable[..., dict[str, Any]]
) -> None:
    before = site.ask("people")
    back = signs_in({**UNA, "sub": f"u-{lies}"}, lies, lies=lies)
    assert (back["status"], back["to"]) == (302, "/sign-in/")
    assert "You were not signed in" in site.get("/sign-in/", lies)["text"]
    assert site.get("/", lies)["to"].startswith("/sign-in/")
    assert site.ask("people") == before


def test_an_answer_that_this_browser_did_not_ask_for_opens_no_session(site: Site, issuer: Issuer) -> None:
    issuer.person = UNA
    away = site.get("/sign-in/oidc/", "attacker's")
    agreed = requests.get(away["to"], allow_redirects=False, timeout=10).headers["Location"]
    site.get(agreed.removeprefix("http://localhost"), "victim's")
    assert site.get("/", "victim's")["to"].startswith("/sign-in/")


def test_who_was_deactivated_stays_out(site: Site, signs_in: Callable[..., dict[str, Any]]) -> None:
    gone = {**UNA, "sub": "u-9", "preferred_username": "gone"}
    signs_in(gone, "gone's")
    site.ask("deactivate", name="gone")
    assert site.get("/", "gone's")["to"].startswith("/sign-in/")
    assert signs_in(gone, "gone's")["to"] == "/sign-in/"
    assert "not active" in site.get("/sign-in/", "gone's")["text"]


def test_where_passwords_are_off_none_opens_a_session(site: Site) -> None:
    site.ask("make", name="old", email="", password="Correct-horse-7")
    assert 'type="password"' not in site.get("/sign-in/", "old's")["text"]
    form = {"username": "old", "password": "Correct-horse-7"}
    assert site.ask("post", path="/sign-in/", form=form, browser="old's")["status"] == 405
    site.ask("post", path="/admin/login/", form=form, browser="old's")
    assert site.get("/", "old's")["to"].startswith("/sign-in/")


def test_the_base_install_knows_nothing_of_it(settings: Any) -> None:
    assert settings.OIDC is None
    assert not [each for each in settings.INSTALLED_APPS if each.startswith("allauth")]
