"""An answer that is lost proves nothing: the same bytes go again under the same key, or a person decides."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from batches.conf import ENGINE
from batches.engine import applying, health, standings, verbs
from batches.engine.audit import By
from batches.engine.orders import Order
from batches.engine.verbs import Price
from batches.models import Alert, BatchItem, Job, ProviderAccount, Submission, Verb
from batches.providers import errors
from batches.providers.base import Capabilities
from tests.engine.simulated import Answer, Double, Lose, Refuse
from tests.scenarios.world import World


def test_a_lost_answer_is_repeated_with_the_same_key_and_bytes_and_billed_once(world: World) -> None:
    world.provider.script("INV-1", submit=[Lose()])
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    first, second = world.provider.arrivals_of("INV-1")
    assert (first.key, first.body_sha256) == (second.key, second.body_sha256)
    assert second.became == "replayed"
    row = Submission.objects.get()
    assert (row.sequence, row.try_count, row.in_doubt) == (1, 2, False)
    assert world.reasons("INV-1") == ["intent_committed", "accepted", "provider_job_finished", "stored"]


@pytest.mark.parametrize("kind", [errors.AnswerLost, errors.ServerFault, errors.ContractBroken])
def test_a_request_that_was_lost_on_its_way_is_repeated_too(world: World, kind: type[errors.ProviderError]) -> None:
    world.provider.script("INV-1", submit=[Refuse(kind)])
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    first, second = world.provider.arrivals_of("INV-1")
    assert first.key == second.key


def test_a_repeat_takes_a_slot_of_the_pace_like_any_other(world: World) -> None:
    names = [f"INV-{number}" for number in range(6)]
    for name in names[:3]:
        world.provider.script(name, submit=[Lose(errors.ServerFault)])
    world.hand_over(*names)
    world.run_to_the_end()
    world.assert_saved(names)
    times = sorted(arrival.at for arrival in world.provider.arrivals)
    assert min((later - earlier).total_seconds() for earlier, later in itertools.pairwise(times)) >= 0.1


@pytest.mark.parametrize("cap", [1, 5, 20])
def test_what_is_in_doubt_and_fills_the_cap_goes_again_past_all_that_waits_for_room(
    make_world: Callable[..., World], cap: int
) -> None:
    """A fast pace: far more first sends are ready than there are threads, and none has room before a resend."""
    world = make_world(submit_interval_ms=20, max_in_flight=cap)
    names = [f"INV-{number:03}" for number in range(cap + 40)]
    for name in names[:cap]:
        world.provider.script(name, submit=[Refuse(errors.ServerFault)])
    world.hand_over(*names)
    world.run_to_the_end(within=400)
    world.assert_saved(names)
    for name in names[:cap]:
        first, second = world.provider.arrivals_of(name)
        assert first.key == second.key


@pytest.mark.parametrize("answer", [Lose(), Lose(errors.ServerFault), Refuse(errors.ContractBroken)])
def test_when_every_answer_is_lost_it_is_unknown_and_never_failed(world: World, answer: Answer) -> None:
    world.provider.script("INV-1", submit=itertools.repeat(answer))
    world.hand_over("INV-1", "INV-2")
    world.run_to_the_end()
    assert world.states() == {"INV-1": "unknown", "INV-2": "saved"}
    assert world.failures() == {"INV-1": "unknown_outcome"}
    assert world.open_alerts() == ["unknown_outcome"]
    assert "reconcile it first" in Alert.objects.get(closed_at=None).words
    tries = world.provider.arrivals_of("INV-1")
    assert len(tries) == ENGINE.submit_tries_most
    assert len({arrival.key for arrival in tries}) == 1
    assert len(world.provider.jobs_of("INV-1")) <= 1
    world.run_for(30)
    assert len(world.provider.arrivals_of("INV-1")) == ENGINE.submit_tries_most, "nothing is sent by itself any more"


@pytest.mark.parametrize(
    "later", [Refuse(errors.InvalidInput), Refuse(errors.NotFound, code="not_found"), Refuse(errors.KeyConflict)]
)
def test_no_refusal_of_a_later_try_makes_a_maybe_sent_document_failed(world: World, later: Refuse) -> None:
    world.provider.script("INV-1", submit=itertools.chain([Lose()], itertools.repeat(later)))
    world.hand_over("INV-1")
    world.run_to_the_end()
    assert world.states() == {"INV-1": "unknown"}
    assert len(world.provider.jobs_of("INV-1")) == 1


def test_refusals_of_the_account_between_two_tries_spend_none_and_settle_nothing(world: World) -> None:
    world.provider.script(
        "INV-1", submit=[Lose(), Refuse(errors.RateLimited, retry_after=2.0), Refuse(errors.RateLimited), Lose()]
    )
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    assert Submission.objects.get().try_count == 3


def test_a_conflict_on_our_own_key_means_that_the_first_is_still_in_flight(world: World) -> None:
    world.provider.script("INV-1", submit=[Lose(), Refuse(errors.KeyConflict), Refuse(errors.KeyConflict)])
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])


def test_after_the_keys_retention_nothing_is_sent_again(make_world: Callable[..., World]) -> None:
    world = make_world(key_retention_seconds=90)
    world.provider.script("INV-1", submit=[Lose(), Refuse(errors.RateLimited, retry_after=80.0)])
    world.hand_over("INV-1")
    world.run_to_the_end()
    assert world.states() == {"INV-1": "unknown"}
    assert world.reasons("INV-1")[-1] == "resend_window_closed"
    assert len(world.provider.jobs_of("INV-1")) == 1
    last = world.provider.arrivals_of("INV-1")[-1].at
    assert last < world.provider.arrivals_of("INV-1")[0].at + world.provider.key_retention


def test_a_provider_that_keeps_no_keys_is_asked_once(make_world: Callable[..., World]) -> None:
    world = make_world(key_retention_seconds=0)
    world.provider.script("INV-1", submit=[Lose()])
    world.hand_over("INV-1")
    world.run_to_the_end()
    assert world.states() == {"INV-1": "unknown"}
    assert len(world.provider.arrivals_of("INV-1")) == 1


def test_a_second_id_for_one_key_is_told_and_the_document_goes_on_with_the_first(world: World) -> None:
    """A stale pump's id lands while the repeat is on its way, and the repeat is answered with another job."""
    world.provider.script("INV-1", submit=[Lose(), Double()])
    world.hand_over("INV-1", "INV-2")

    def a_late_write_lands() -> None:
        if len(world.provider.arrivals_of("INV-1")) == 2:
            world.clock.on_look = None
            late = {"provider_job_id": first_id(), "accepted_at": world.clock.now(), "in_doubt": False}
            assert Submission.objects.filter(job=world.job("INV-1"), provider_job_id=None).update(**late) == 1

    def first_id() -> str:
        return world.provider.jobs_of("INV-1")[0].id

    world.provider.submit_seconds = 1.0
    world.clock.on_look = a_late_write_lands
    world.run_to_the_end()
    first, second = world.provider.jobs_of("INV-1")
    world.assert_saved(["INV-1"], billed_once=False)
    world.assert_saved(["INV-2"])
    assert world.job("INV-1").submissions.get().provider_job_id == first.id
    assert second.id not in world.provider.reads + world.provider.downloads
    assert "second_id_for_one_key" in world.reasons("INV-1")
    assert world.open_alerts() == ["surplus"], "what may be billed twice waits for a person"
    assert second.id in Alert.objects.get(closed_at=None).words


def test_an_id_that_a_suspended_pump_brings_takes_its_document_out_of_unknown(
    make_world: Callable[..., World],
) -> None:
    world = make_world(key_retention_seconds=0)
    world.provider.submit_seconds = 2.0
    world.hand_over("INV-1")

    def suspended() -> None:
        """While its answer is on its way, another pump finds a send that it may not repeat."""
        if len(world.provider.arrivals) == 1:
            world.clock.on_look = None
            world.clock.advance(ENGINE.lease_seconds + 1)
            world.pump(stopping=lambda: world.states() == {"INV-1": "unknown"}).run()
            assert world.open_alerts() == ["unknown_outcome"]

    world.clock.on_look = suspended
    world.run_to_the_end()
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    assert "id_arrived_late" in world.reasons("INV-1")
    assert len(world.provider.arrivals) == 1
    assert world.open_alerts() == []


# --- answers that the provider had stored for the key ---


def test_a_stored_refusal_of_the_document_settles_what_was_in_doubt(world: World) -> None:
    refusal = Refuse(errors.InvalidInput, "The HTML is too large.", code="too_large", replayed=True)
    world.provider.script("INV-1", submit=[Refuse(errors.AnswerLost), refusal])
    world.hand_over("INV-1")
    world.run_to_the_end()
    assert world.failures() == {"INV-1": "invalid_input"}
    assert world.states() == {"INV-1": "failed"}
    assert Submission.objects.get().outcome == "refused"


def test_a_stored_refusal_of_the_account_is_followed_by_one_submission_under_another_key(world: World) -> None:
    refusal = Refuse(errors.InsufficientCredit, replayed=True)
    world.provider.script("INV-1", submit=[Refuse(errors.AnswerLost), refusal])
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    first, second = Submission.objects.order_by("sequence")
    assert (first.outcome, first.in_doubt, second.outcome) == ("refused", False, "delivered")
    assert first.idempotency_key != second.idempotency_key
    assert first.request_sha256 == second.request_sha256
    assert world.account_now().health == "open", "what was refused then says nothing about now"


def test_a_stored_5xx_ends_as_unknown_at_once(world: World) -> None:
    world.provider.script("INV-1", submit=[Lose(), Refuse(errors.ServerFault, replayed=True)])
    world.hand_over("INV-1")
    world.run_to_the_end()
    assert world.states() == {"INV-1": "unknown"}
    assert len(world.provider.arrivals_of("INV-1")) == 2


def test_a_provider_that_binds_a_key_to_its_402_unmarked_is_asked_under_another_key_after_the_second(
    world: World,
) -> None:
    """A resume after a top-up must not be refused for ever by what was stored before it."""
    world.provider.script("INV-1", submit=[Refuse(errors.InsufficientCredit), Refuse(errors.InsufficientCredit)])
    world.hand_over("INV-1")
    for _ in range(2):
        world.run_until(lambda: world.account_now().health == "held")
        world.run_for(5)
        health.resume(world.account.pk, now=world.clock.now())
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    first, second, third = world.provider.arrivals_of("INV-1")
    assert first.key == second.key != third.key


# --- providers that take no key ---


def test_a_provider_without_keys_whose_renders_are_harmless_is_asked_again(world: World) -> None:
    world.provider.capabilities = Capabilities(client_key=False, resend_is_harmless=True)
    world.provider.script("INV-1", submit=[Refuse(errors.AnswerLost), Refuse(errors.ServerFault)])
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    assert len(world.provider.arrivals_of("INV-1")) == 3


def test_where_nothing_is_billed_twice_a_person_may_have_it_sent_again_at_any_time(world: World) -> None:
    world.provider.capabilities = Capabilities(client_key=False, resend_is_harmless=True)
    world.provider.script("INV-1", submit=[Refuse(errors.ServerFault)] * ENGINE.submit_tries_most)
    world.hand_over("INV-1")
    ProviderAccount.objects.update(kind="gotenberg")
    world.run_until(lambda: world.states() == {"INV-1": "unknown"}, within=7200)
    assert "A repeat makes no second document" in Job.objects.get().failure_words
    world.clock.advance(3 * ENGINE.harmless_resend_seconds)
    item, now = BatchItem.objects.get(), world.clock.now()
    standing = standings.of_items(BatchItem.objects.all())[item.pk]
    assert verbs.answer(Verb.RETRY, standing, now=now).price is Price.FREE
    assert verbs.answer(Verb.REGENERATE, standing, now=now).to_confirm == "", "version 1 bills nothing"
    order = Order(By(None, "ada", ""), "The service is back.")
    assert applying.apply(Verb.RETRY, [item.pk], order=order, now=now)[item.pk].is_done
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    assert len({each.key for each in world.provider.arrivals_of("INV-1")}) == 1, "under the same key"


def test_a_provider_without_keys_that_bills_every_render_is_asked_once(world: World) -> None:
    world.provider.capabilities = Capabilities(client_key=False)
    world.provider.script("INV-1", submit=[Lose()])
    world.hand_over("INV-1")
    world.run_to_the_end()
    assert world.states() == {"INV-1": "unknown"}
    assert len(world.provider.arrivals_of("INV-1")) == 1
    assert Submission.objects.get().resend_until is None
