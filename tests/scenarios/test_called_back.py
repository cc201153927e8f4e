"""A vendor that keeps nothing and sends each PDF to our address once: what is lost, doubled, early or never comes.

The real pump, store, adapter and address under the virtual clock; Gotenberg's double on a socket, whose calls come
over HTTP to Django's live server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection
from pytest_django.live_server_helper import LiveServer

from batches.engine import received
from batches.engine.accounts import Providers
from batches.models import Job, ProviderAccount, Submission, WebhookEvent
from tests.providers.gotenberg_double import API_KEY, GotenbergDouble, pdf_of
from tests.scenarios.world import PumpKilled, World

SECRET = "invented-for-callbacks"


class CalledBack:
    """A world whose account is a Gotenberg, and what that double did."""

    def __init__(self, world: World, double: GotenbergDouble) -> None:
        self.world = world
        self.double = double

        world.clock.on_look = self.let_it_call

    def let_it_call(self) -> None:
        """The double lives in real time: while one of its calls is on the way, the virtual clock stands still."""
        if not connection.in_atomic_block:
            assert self.double.wait_idle()

    def run(self, name: str, *faults: dict[str, Any], within: float = 600) -> str:
        """Hand one document over and run it to its end; its state."""
        self.double.misbehave(*faults)
        self.world.hand_over(name)
        self.world.run_to_the_end(within=within)
        return self.world.job(name).state

    def assert_saved(self, name: str) -> None:
        assert self.world.stored(name) == pdf_of(f"<h1>{name}</h1>")


@pytest.fixture
def gotenberg(
    make_world: Callable[..., World], live_server: LiveServer, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CalledBack]:
    settings.PUBLIC_URL = live_server.url
    settings.ALLOWED_HOSTS = ["*"]
    settings.SECURE_SSL_REDIRECT = False
    with GotenbergDouble(retry_seconds=0.01) as double:
        world = make_world(
            slug="own-renderer",
            kind="gotenberg",
            base_url=double.url,
            api_key=API_KEY,
            webhook_secret=SECRET,
            options={"network": "files"},
            deadline_seconds=120,
        )
        settings.STORAGE_URL = f"file://{world.store.root}"
        monkeypatch.setattr(world, "providers", lambda: Providers(world.store))
        yield CalledBack(world, double)


@pytest.mark.parametrize(
    ("do", "renders"),
    [
        ("", 1),
        ("callback_twice", 1),
        ("callback_before_answer", 1),
        ("callback_cut", 1),
        ("drop_before_acceptance", 1),
        ("drop_after_acceptance", 2),
        ("rate_limited", 1),
        ("html_502_after_acceptance", 2),
    ],
)
def test_whatever_is_lost_doubled_or_early_its_own_pdf_is_saved_under_one_key(
    gotenberg: CalledBack, do: str, renders: int
) -> None:
    assert gotenberg.run("INV-1", {"do": do}) == "saved", gotenberg.world.failures()
    gotenberg.assert_saved("INV-1")
    assert list(gotenberg.double.renders.values()) == [renders], "a repeat comes under the same key"
    (submission,) = Submission.objects.all()
    assert submission.provider_job_id == submission.idempotency_key
    assert gotenberg.double.requests[0].headers["Gotenberg-Trace"] == submission.idempotency_key


def test_a_callback_that_never_comes_ends_at_the_deadline_in_words(gotenberg: CalledBack) -> None:
    assert gotenberg.run("INV-1", {"do": "callback_never"}) == "deadline_exceeded"
    words = gotenberg.world.job("INV-1").failure_words
    assert f"Its last status was “{received.WAITING}”" in words
    assert "deadline 120 s" in words
    assert sum(gotenberg.double.renders.values()) == 1


def test_a_failure_that_may_pass_is_rendered_again_and_one_of_the_page_is_not(gotenberg: CalledBack) -> None:
    assert gotenberg.run("INV-1", {"do": "render_fails", "status": 503, "message": "Too late."}) == "saved"
    gotenberg.assert_saved("INV-1")
    keys = set(Submission.objects.values_list("idempotency_key", flat=True))
    assert keys == set(gotenberg.double.renders)
    assert len(keys) == 2
    assert gotenberg.run("INV-2", {"do": "render_fails", "status": 409, "message": "console exception"}) == "failed"
    assert "console exception" in gotenberg.world.job("INV-2").failure_words


def test_a_page_that_never_settles_is_not_rendered_for_ever(gotenberg: CalledBack) -> None:
    fault = {"do": "render_fails", "status": 503, "message": "Too late.", "times": 100}
    assert gotenberg.run("INV-1", fault, within=2000) == "failed"
    assert sum(gotenberg.double.renders.values()) == 3
    assert "Too late." in gotenberg.world.job("INV-1").failure_words


@pytest.mark.parametrize(("state", "renders"), [("submitting", 2), ("accepted", 1)])
def test_a_pump_that_dies_between_receipt_and_saved_loses_nothing(
    gotenberg: CalledBack, state: str, renders: int
) -> None:
    """Before its acceptance is recorded it is sent again, under the same key; after that never."""
    world = gotenberg.world
    world.hand_over("INV-1")

    def die() -> None:
        gotenberg.let_it_call()
        if WebhookEvent.objects.exists() and world.job("INV-1").state == state:
            raise PumpKilled

    world.clock.on_look = die
    assert world.killed()
    assert world.states() == {"INV-1": state}
    world.clock.on_look = gotenberg.let_it_call
    world.clock.advance(120)  # the dead pump's lease runs out, and the deadline passes
    world.run_to_the_end()
    assert world.states() == {"INV-1": "saved"}
    gotenberg.assert_saved("INV-1")
    assert list(gotenberg.double.renders.values()) == [renders]


def test_a_file_that_is_kept_while_nobody_could_be_told_is_found_by_the_next_read(
    gotenberg: CalledBack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batches.engine.inbox._store", lambda *_given: 1 / 0)
    assert gotenberg.run("INV-1") == "saved"
    assert not WebhookEvent.objects.exists()
    gotenberg.assert_saved("INV-1")


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_hostility_to_each_of_many_loses_none(gotenberg: CalledBack, mode: str) -> None:
    ProviderAccount.objects.update(options={"network": "files", "mode": mode})
    gotenberg.double.be_hostile()
    names = [f"INV-{number}" for number in range(24)]
    gotenberg.world.hand_over_file(json.dumps([{"id": name, "html": f"<h1>{name}</h1>"} for name in names]).encode())
    gotenberg.world.run_to_the_end(within=3000)
    assert set(gotenberg.world.states().values()) == {"saved"}, gotenberg.world.failures()
    for name in names:
        gotenberg.assert_saved(name)
    assert not Job.objects.exclude(failure_class="").exists()
    assert WebhookEvent.objects.exists() is (mode == "async")
    assert set(gotenberg.double.renders) >= set(Submission.objects.values_list("provider_job_id", flat=True))
