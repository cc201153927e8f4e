"""One document that the service refuses as if the account were at fault; and an account that really is."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from batches.conf import ENGINE
from batches.engine import health
from batches.models import Alert, AlertKind, JobState, ProviderAccount, Submission
from batches.providers import errors
from tests.engine.simulated import Accept, Refuse
from tests.scenarios.world import World

NAMES = [f"INV-{number}" for number in range(8)]
LATER = [f"LATER-{number}" for number in range(3)]


def poison(world: World, kind: type[errors.ProviderError], *names: str) -> None:
    for name in names:
        world.provider.script(name, submit=itertools.repeat(Refuse(kind, "Go away.")))


def resume(world: World) -> None:
    assert health.resume(world.account.pk, now=world.clock.now())


def is_held(world: World) -> Callable[[], bool]:
    return lambda: world.account_now().health == "held"


@pytest.mark.parametrize("interval_ms", [0, 100, 3000])
@pytest.mark.parametrize("place", [0, 3, 8])
def test_a_poison_document_holds_its_account_once_and_then_fails_alone(
    make_world: Callable[..., World], place: int, interval_ms: int
) -> None:
    world = make_world(submit_interval_ms=interval_ms)
    poison(world, errors.Unauthorized, "POISON")
    world.hand_over(*NAMES[:place], "POISON", *NAMES[place:])
    world.run_until(is_held(world))
    resume(world)
    world.run_until(lambda: is_held(world)() or world.is_over())
    if not world.is_over():
        assert list(world.states().values()).count("pending") == 1, "nobody is left to show that it is well"
        world.hand_over("LATER")
        resume(world)
    world.run_to_the_end()
    world.assert_saved(NAMES)
    assert world.failures() == {"POISON": "invalid_input"}
    assert "refuses this document" in world.job("POISON").failure_words
    assert "Go away." in world.job("POISON").failure_words
    assert world.account_now().health == "open"
    assert world.open_alerts() == []
    assert len(world.provider.arrivals_of("POISON")) <= 3


def test_a_strange_refusal_of_one_document_holds_nobody_while_others_pass(world: World) -> None:
    poison(world, errors.StrangeRefusal, "POISON-1", "POISON-2")
    held: list[str] = []
    batch = [*NAMES[:3], "POISON-1", *NAMES[3:6], "POISON-2", *NAMES[6:]]
    world.hand_over(*batch)
    world.run_until(lambda: held.extend(["held"] if is_held(world)() else []) or world.is_over())
    world.assert_saved(NAMES)
    assert held == []
    assert world.failures() == {"POISON-1": "invalid_input", "POISON-2": "invalid_input"}
    assert len(world.provider.arrivals_of("POISON-1")) == 2


@pytest.mark.parametrize("earlier", [0, 5])
def test_strange_refusals_of_all_documents_hold_the_account_and_fail_none(earlier: int, world: World) -> None:
    """Another server answers at that address, from the start or since a moment ago."""
    if earlier:
        world.hand_over(*[f"EARLIER-{number}" for number in range(earlier)])
        world.run_to_the_end()
    for name in NAMES:
        world.provider.script(name, submit=[Refuse(errors.StrangeRefusal), Refuse(errors.StrangeRefusal), Accept()])
    world.hand_over(*NAMES)
    world.run_until(is_held(world))
    refused = [arrival for arrival in world.provider.arrivals if arrival.became == "StrangeRefusal"]
    most = ENGINE.strange_documents_most + 2 if earlier else 3  # what was on its way when it was known
    assert len(refused) <= most
    assert world.account_now().hold_reason == "auth"
    assert world.failures() == {}
    for _ in range(4):
        if not is_held(world)():
            break
        resume(world)
        world.run_until(lambda: is_held(world)() or world.is_over())
    assert world.failures() == {}


def test_a_refused_key_holds_at_once_and_costs_no_document_however_often_it_is_resumed(world: World) -> None:
    world.hand_over("EARLIER")
    world.run_to_the_end()
    world.provider.key_is_good = False
    world.hand_over(*NAMES)
    world.run_until(is_held(world))
    assert len(world.provider.arrivals) <= 3
    for _ in range(3):
        resume(world)
        world.run_until(is_held(world))
    world.provider.key_is_good = True
    resume(world)
    world.run_to_the_end()
    world.assert_saved(NAMES)
    # And once more, long after: that others passed between says nothing of those that were never refused before.
    world.provider.key_is_good = False
    world.hand_over("LATER-1", "LATER-2")
    world.run_until(is_held(world))
    assert world.failures() == {}


def test_a_lonely_document_waits_however_often_its_account_is_refused(world: World) -> None:
    """Nothing shows that it is at fault, so the account is held, and says so, each time that a person resumes it."""
    poison(world, errors.Unauthorized, "POISON")
    world.hand_over("POISON")
    for _ in range(12):
        world.run_until(is_held(world))
        assert world.states() == {"POISON": "pending"}
        assert world.open_alerts() == ["account_held"]
        resume(world)
    world.provider.script("POISON")
    world.run_to_the_end()
    world.assert_saved(["POISON"])


def test_a_poison_document_that_may_be_there_is_never_failed(world: World) -> None:
    world.provider.script(
        "POISON",
        submit=itertools.chain([Refuse(errors.AnswerLost)], itertools.repeat(Refuse(errors.Unauthorized))),
    )
    world.hand_over("POISON", *NAMES)
    world.run_until(is_held(world))
    world.hand_over(*LATER)
    resume(world)
    world.run_to_the_end()
    assert world.job("POISON").state == JobState.UNKNOWN
    assert "refuses this document" in world.job("POISON").failure_words
    world.assert_saved([*NAMES, *LATER])
    assert len(world.provider.arrivals_of("POISON")) == 3


# --- files ---


def test_a_file_that_is_answered_wrongly_each_time_ends_as_bad_output(world: World) -> None:
    """Such as 206 to a plain GET: an answer, but no file, however often it is asked for."""
    world.provider.script("POISON", download=itertools.repeat(Refuse(errors.ContractBroken, "Answered 206.")))
    world.hand_over("POISON", *NAMES)
    world.run_to_the_end()
    world.assert_saved(NAMES)
    assert world.failures() == {"POISON": "bad_output"}
    assert "Answered 206." in world.job("POISON").failure_words
    assert len(world.provider.downloads) == len(NAMES) + ENGINE.bad_output_fetches
    assert Submission.objects.get(job=world.job("POISON")).provider_job_id, "it is kept"


def test_a_file_that_is_always_cut_off_holds_its_account_no_more_than_twice(world: World) -> None:
    ProviderAccount.objects.filter(pk=world.account.pk).update(base_url="https://files.test")
    world.provider.script("POISON", download=itertools.repeat(Refuse(errors.AnswerLost, "It was cut off.")))
    world.hand_over("POISON")
    world.run_for(120)
    held = Alert.objects.filter(kind=AlertKind.ACCOUNT_HELD)
    assert held.count() <= 2
    before = held.count()
    world.run_for(900)
    assert world.job("POISON").state == JobState.RENDERED
    assert len(world.provider.downloads) > 10
    assert held.count() == before
    assert world.account_now().health == "open"
