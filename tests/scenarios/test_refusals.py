"""A definite no: of the document, which fails at once, or of the account, which is held while its documents wait."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta

import pytest

from batches import selectors
from batches.engine import health
from batches.models import JobState, Submission
from batches.providers import errors
from tests.engine.simulated import Refuse, Word
from tests.scenarios.world import World

NAMES = ["INV-1", "INV-2", "INV-3"]


def test_a_refused_document_fails_at_once_with_the_providers_code_and_words(world: World) -> None:
    world.provider.script("INV-2", submit=[Refuse(errors.InvalidInput, "The HTML is too large.", code="too_large")])
    batch = world.hand_over(*NAMES)
    world.run_to_the_end()
    assert world.states() == {"INV-1": "saved", "INV-2": "failed", "INV-3": "saved"}
    job = world.job("INV-2")
    assert (job.failure_class, job.failure_code, job.failure_words) == (
        "invalid_input",
        "too_large",
        "The HTML is too large.",
    )
    assert job.submissions.get().outcome == "refused"
    assert len(world.provider.arrivals_of("INV-2")) == 1
    facts = selectors.batch_json(batch)
    assert (facts["state"], facts["needs_attention"]) == ("partially_complete", True)


def test_a_429_moves_everyones_next_slot_and_costs_no_try(world: World) -> None:
    world.provider.script("INV-1", submit=[Refuse(errors.RateLimited, retry_after=30.0)])
    world.hand_over(*NAMES)
    world.run_to_the_end()
    world.assert_saved(NAMES)
    refused = world.provider.arrivals_of("INV-1")[0].at
    # What had its slot already when the 429 came may still leave; nothing else does before the provider's time.
    later = [arrival.at for arrival in world.provider.arrivals if arrival.at > refused + timedelta(seconds=1)]
    assert min(later) >= refused + timedelta(seconds=30)
    assert set(Submission.objects.values_list("try_count", flat=True)) == {1}


def test_a_storm_of_429_never_fails_a_document(world: World) -> None:
    for name in NAMES:
        world.provider.script(name, submit=[Refuse(errors.RateLimited, retry_after=5.0)] * 8)
    world.hand_over(*NAMES)
    world.run_to_the_end(within=1200)
    world.assert_saved(NAMES)
    assert len(world.provider.jobs) == len(NAMES)
    first = [arrival.key for arrival in world.provider.arrivals if arrival.name == NAMES[0]][:3]
    assert len(set(first)) == 1, "the same key again; another only where others are let through meanwhile"


def test_a_refused_key_holds_the_account_and_a_resume_goes_on(world: World) -> None:
    world.provider.key_is_good = False
    batch = world.hand_over(*NAMES)
    world.run_for(20)
    account = world.account_now()
    assert (account.health, account.hold_reason, account.hold_words) == ("held", "auth", "The key is refused.")
    assert world.open_alerts() == ["account_held"]
    facts = selectors.batch_json(batch)
    assert (facts["state"], facts["counts"]["held"]) == ("held", len(NAMES))
    assert set(world.states().values()) == {"pending"}
    tried = len(world.provider.arrivals)
    world.run_for(120)
    assert len(world.provider.arrivals) == tried, "nothing is tried while a person has to act"
    assert set(Submission.objects.values_list("try_count", flat=True)) <= {0}

    world.provider.key_is_good = True
    assert health.resume(world.account.pk, now=world.clock.now())
    world.run_to_the_end()
    world.assert_saved(NAMES)
    assert world.open_alerts() == []
    assert selectors.batch_json(batch)["state"] == "complete"


def test_held_longer_than_a_key_is_kept_nothing_that_never_left_becomes_unknown(world: World) -> None:
    world.provider.key_is_good = False
    names = [f"INV-{number}" for number in range(20)]
    world.hand_over(*names)
    world.run_for(20)
    assert set(world.states().values()) == {"pending"}
    world.clock.advance(world.account.key_retention_seconds * 2)
    world.run_for(20)
    assert set(world.states().values()) == {"pending"}
    world.provider.key_is_good = True
    health.resume(world.account.pk, now=world.clock.now())
    world.run_to_the_end()
    world.assert_saved(names)


def test_without_credit_nothing_new_leaves_and_accepted_work_goes_on_to_saved(world: World) -> None:
    world.provider.script("INV-1", status=[Word("processing")] * 5)
    world.hand_over("INV-1")
    world.run_until(lambda: world.job("INV-1").state == JobState.ACCEPTED)
    world.provider.has_credit = False
    world.hand_over("INV-2")
    world.run_until(lambda: world.job("INV-1").state == JobState.SAVED)
    assert world.account_now().hold_reason == "insufficient_credit"
    assert world.states() == {"INV-1": "saved", "INV-2": "pending"}
    world.provider.has_credit = True
    health.resume(world.account.pk, now=world.clock.now())
    world.run_to_the_end()
    world.assert_saved(["INV-1", "INV-2"])


def test_a_maybe_sent_document_of_a_held_account_waits_inside_its_keys_window(world: World) -> None:
    world.provider.script("INV-1", submit=[Refuse(errors.AnswerLost), Refuse(errors.Unauthorized)])
    world.hand_over("INV-1")
    world.run_until(lambda: world.account_now().hold_reason == "auth")
    world.run_for(100)
    assert world.states() == {"INV-1": "submitting"}
    health.resume(world.account.pk, now=world.clock.now())
    world.run_to_the_end()
    world.assert_saved(["INV-1"])


def test_a_maybe_sent_document_of_an_account_held_beyond_its_keys_window_is_unknown(
    make_world: Callable[..., World],
) -> None:
    world = make_world(key_retention_seconds=200)
    world.provider.script("INV-1", submit=[Refuse(errors.AnswerLost), Refuse(errors.InsufficientCredit)])
    world.hand_over("INV-1")
    world.run_to_the_end()
    assert world.states() == {"INV-1": "unknown"}
    assert "unknown_outcome" in world.open_alerts()


# --- the provider is away ---


def test_three_refused_connections_hold_the_account_until_a_probe_gets_through(world: World) -> None:
    world.provider.trouble = Refuse(errors.NotSent, "The connection was refused.")
    batch = world.hand_over(*NAMES)
    world.run_until(lambda: world.account_now().health == "held")
    account = world.account_now()
    assert (account.hold_reason, account.hold_words) == ("unreachable", "The connection was refused.")
    assert world.open_alerts() == ["account_held"]
    world.run_for(90)
    assert set(world.states().values()) == {"pending"}
    assert selectors.batch_json(batch)["state"] == "held"
    assert 2 <= world.provider.probes <= 20, "single probes, further and further apart"
    assert world.provider.arrivals == []

    world.provider.trouble = None
    world.run_to_the_end()
    world.assert_saved(NAMES)
    assert world.account_now().health == "open"
    assert world.open_alerts() == []
    assert set(Submission.objects.values_list("try_count", flat=True)) == {1}


def test_a_probe_that_is_refused_the_key_says_so(world: World) -> None:
    world.provider.trouble = Refuse(errors.NotSent)
    world.hand_over("INV-1")
    world.run_until(lambda: world.account_now().hold_reason == "unreachable")
    world.provider.trouble = None
    world.provider.key_is_good = False
    world.run_until(lambda: world.account_now().hold_reason == "auth")
    assert world.open_alerts() == ["account_held"], "the old alert is closed, the new one says what to do"


def test_an_outage_in_the_middle_loses_nothing(world: World) -> None:
    names = [f"INV-{number}" for number in range(12)]
    world.hand_over(*names)
    world.run_until(lambda: len(world.provider.jobs) >= 4)
    world.provider.trouble = Refuse(errors.NotSent)
    world.run_for(30)
    world.provider.trouble = None
    world.run_to_the_end()
    world.assert_saved(names)


def test_a_connection_that_fails_now_and_then_holds_nobody(world: World) -> None:
    for name in NAMES:
        world.provider.script(name, submit=[Refuse(errors.NotSent)])
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.hand_over("INV-2")
    world.run_to_the_end()
    world.hand_over("INV-3")
    world.run_to_the_end()
    world.assert_saved(NAMES)
    assert world.account_now().health == "open"


# --- documents that cannot even be sent ---


def test_a_document_that_the_provider_cannot_render_fails_before_it_is_sent(world: World) -> None:
    world.provider.unpreparable["INV-1"] = errors.InvalidInput("It is empty.")
    world.hand_over("INV-1", "INV-2")
    world.run_to_the_end()
    assert world.states() == {"INV-1": "failed", "INV-2": "saved"}
    assert world.failures() == {"INV-1": "invalid_input"}
    assert world.provider.arrivals_of("INV-1") == []


@pytest.mark.parametrize("interval_ms", [100, 3000])
def test_our_own_fault_parks_its_documents_and_never_slows_the_others(
    make_world: Callable[..., World], interval_ms: int
) -> None:
    world = make_world(submit_interval_ms=interval_ms)
    bad = [f"BAD-{number}" for number in range(30)]
    world.provider.unpreparable = {name: ZeroDivisionError("a bug") for name in bad}
    world.hand_over(*bad, "INV-1", "INV-2")
    pump = world.pump(stopping=world.is_over)
    pump.run()
    assert world.is_over(), "one pump got past all of them"
    world.assert_saved(["INV-1", "INV-2"])
    assert set(world.failures().values()) == {"internal"}
    assert all("ZeroDivisionError" in world.job(name).failure_words for name in bad)
    assert len(list(itertools.filterfalse(lambda kind: kind == "internal", world.open_alerts()))) == 0
