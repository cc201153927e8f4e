"""An account in trouble as a whole: what a top-up sets going, what an outage of reads does, and what stays quiet."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

from batches import selectors
from batches.conf import ENGINE
from batches.engine import health
from batches.models import Alert, HoldReason, JobState, PacingLane, Submission
from batches.providers import errors
from batches.providers.base import Capabilities
from tests import factories
from tests.engine.simulated import Lose, Refuse, Word
from tests.scenarios.world import World

NAMES = [f"INV-{number}" for number in range(8)]


# --- credit ---


def run_dry(world: World, balance: Decimal | None = Decimal(0)) -> None:
    world.provider.has_credit = False
    world.provider.balance = balance
    world.hand_over(*NAMES)
    world.run_until(lambda: world.account_now().hold_reason == "insufficient_credit")
    world.run_for(10)


def test_a_top_up_is_seen_and_one_document_tries_it_before_the_others_follow(world: World) -> None:
    run_dry(world)
    assert world.open_alerts() == ["account_held"]
    refused = len(world.provider.arrivals)
    world.provider.submit_seconds = 2.0
    world.provider.has_credit = True
    world.provider.balance = Decimal(500)
    world.run_to_the_end()
    world.assert_saved(NAMES)
    later = world.provider.arrivals[refused:]
    assert later[1].at >= later[0].at + timedelta(seconds=2), "the second leaves only when the first was accepted"
    assert world.open_alerts() == []
    account = world.account_now()
    assert (account.health, account.on_probation, account.balance_seen) == ("open", False, None)
    assert set(Submission.objects.values_list("try_count", flat=True)) == {1}, "the refusals spent no try"


def test_a_balance_that_rose_too_little_costs_one_submission_and_holds_again(world: World) -> None:
    run_dry(world)
    refused = len(world.provider.arrivals)
    world.provider.balance = Decimal(1)
    world.run_for(200)
    assert len(world.provider.arrivals) == refused + 1, "one tried, nothing else left"
    account = world.account_now()
    assert (account.hold_reason, account.balance_seen) == ("insufficient_credit", 1)
    assert world.open_alerts() == ["account_held"]
    assert Alert.objects.count() == 2
    world.provider.has_credit = True
    world.provider.balance = Decimal(2)
    world.run_to_the_end()
    world.assert_saved(NAMES)


def test_while_nothing_changes_the_account_is_asked_slowly_and_nothing_is_sent(world: World) -> None:
    run_dry(world)
    sent, probes = len(world.provider.arrivals), world.provider.probes
    world.run_for(600)
    assert len(world.provider.arrivals) == sent
    assert world.provider.probes - probes <= 600 / ENGINE.credit_check_seconds + 1


def test_where_no_balance_is_named_a_person_or_the_providers_event_ends_the_hold(world: World) -> None:
    run_dry(world, balance=None)
    assert "names no balance" in Alert.objects.get(closed_at=None).words
    world.provider.has_credit = True
    sent = len(world.provider.arrivals)
    world.run_for(300)
    assert len(world.provider.arrivals) == sent
    world.provider.capabilities = Capabilities(client_key=True, topup_events=frozenset({"wallet.topup"}))
    factories.make_event(account=world.account, type="wallet.topup", at=world.clock.now())
    world.run_to_the_end()
    world.assert_saved(NAMES)


def test_a_trial_whose_answer_is_lost_goes_again_alone(world: World) -> None:
    run_dry(world)
    refused = len(world.provider.arrivals)
    world.provider.has_credit = True
    world.provider.balance = Decimal(9)
    for name in NAMES:
        world.provider.script(name, submit=[Lose()])
    world.run_until(lambda: len(world.provider.arrivals) >= refused + 2)
    first, second = world.provider.arrivals[refused : refused + 2]
    assert (first.name, first.key) == (second.name, second.key)
    world.run_to_the_end()
    world.assert_saved(NAMES)


def test_accepted_work_goes_on_to_saved_while_the_account_has_no_credit(world: World) -> None:
    world.provider.script("INV-9", status=[Word("processing")] * 6)
    batch = world.hand_over("INV-9")
    world.run_until(lambda: world.job("INV-9").state == JobState.ACCEPTED)
    run_dry(world)
    world.run_until(lambda: world.job("INV-9").state == JobState.SAVED)
    assert world.account_now().health == "held"
    assert selectors.batch_json(batch)["state"] == "complete"


# --- the provider is away while work is there ---


def test_status_reads_that_do_not_get_through_hold_the_account_and_a_probe_opens_it(world: World) -> None:
    for name in NAMES[:4]:
        world.provider.script(name, status=itertools.repeat(Word("processing"), 3))
    world.hand_over(*NAMES[:4])
    world.run_until(lambda: len(world.provider.reads) >= 4)
    world.provider.trouble = Refuse(errors.AnswerLost, "No answer came back.")
    world.run_until(lambda: world.account_now().health == "held", within=30)
    account = world.account_now()
    assert (account.hold_reason, account.hold_words) == ("unreachable", "No answer came back.")
    world.provider.trouble = None
    world.run_to_the_end()
    world.assert_saved(NAMES[:4])
    world.run_until(lambda: world.account_now().health == "open")  # the last file may be saved before the probe is due
    assert world.open_alerts() == []


def test_downloads_that_do_not_get_through_to_the_provider_itself_hold_the_account(
    make_world: Callable[..., World],
) -> None:
    world = make_world(base_url="https://files.test")
    for name in NAMES[:3]:
        world.provider.script(name, download=[Refuse(errors.NotSent, "The connection was refused.")] * 4)
    world.hand_over(*NAMES[:3])
    world.run_until(lambda: Alert.objects.filter(kind="account_held").exists(), within=60)
    world.run_to_the_end()
    world.assert_saved(NAMES[:3])
    world.run_until(lambda: world.account_now().health == "open")
    assert world.open_alerts() == []


def test_downloads_from_another_host_hold_nobody(world: World) -> None:
    for name in NAMES[:3]:
        world.provider.script(name, download=[Refuse(errors.NotSent)] * 4)
    world.hand_over(*NAMES[:3])
    world.run_to_the_end()
    world.assert_saved(NAMES[:3])
    assert not Alert.objects.exists()


def test_a_host_that_is_away_is_read_no_faster_than_a_running_job(make_world: Callable[..., World]) -> None:
    world = make_world(deadline_seconds=3600, poll_max_ms=15_000)
    for name in NAMES:
        world.provider.script(name, status=itertools.repeat(Word("processing"), 2))
    world.hand_over(*NAMES)
    world.run_until(lambda: set(world.states().values()) == {"accepted"})
    world.provider.trouble = Refuse(errors.NotSent)
    world.run_for(60)  # until every read has reached the cap
    before = len(world.provider.reads)
    world.run_for(300)
    assert len(world.provider.reads) - before <= len(NAMES) * 300 / (15 * 0.8)
    world.provider.trouble = None
    world.run_to_the_end()
    world.assert_saved(NAMES)


# --- the retry budget ---


def test_when_everything_is_lost_repeats_stay_under_their_share_and_nothing_is_unknown_for_want_of_it(
    make_world: Callable[..., World],
) -> None:
    world = make_world(submit_interval_ms=100, max_in_flight=100)
    names = [f"INV-{number}" for number in range(20)]
    for name in names:
        world.provider.script(name, submit=itertools.repeat(Lose(errors.ContractBroken)))  # the way is open
    world.hand_over(*names)
    PacingLane.objects.update_or_create(
        account=world.account, lane="submit", defaults={"retry_tokens": 0.0, "retry_tokens_at_us": 0}
    )
    PacingLane.objects.update(retry_tokens_at_us=int(world.clock.now().timestamp() * 1_000_000))
    world.run_for(60)
    repeats = len(world.provider.arrivals) - len({arrival.name for arrival in world.provider.arrivals})
    assert repeats <= len(names) * ENGINE.retry_share + 60 * ENGINE.retry_tokens_per_second + 1
    waiting = [name for name in names if "waits_for_retry_budget" in world.reasons(name)]
    assert waiting, "what waits says so"
    for name in names:
        world.provider.script(name)
    world.run_to_the_end(within=3600)
    world.assert_saved(names)


def test_a_resume_by_a_person_needs_no_trial(world: World) -> None:
    run_dry(world)
    world.provider.has_credit = True
    health.resume(world.account.pk, now=world.clock.now())
    assert not world.account_now().on_probation
    world.run_to_the_end()
    world.assert_saved(NAMES)


def test_the_cap_counts_what_is_accepted_and_not_finished(make_world: Callable[..., World]) -> None:
    """What waits for its download is finished at the provider: a slow store stops no submission."""
    world = make_world(max_in_flight=2)
    for name in NAMES:
        world.provider.script(name, download=[Refuse(errors.AnswerLost)] * 3)
    seen: dict[str, int] = {"accepted": 0, "rendered": 0}

    def look() -> None:
        now = list(world.states().values())
        assert now.count("accepted") + now.count("submitting") <= 2
        for state in seen:
            seen[state] = max(seen[state], now.count(state))

    world.hand_over(*NAMES)
    world.clock.on_look = look
    world.run_to_the_end()
    world.clock.on_look = None
    world.assert_saved(NAMES)
    assert seen["accepted"] == 2
    assert seen["rendered"] > 2


def test_a_repeat_that_waits_for_its_slot_while_a_person_holds_the_account_stays_in_doubt(
    make_world: Callable[..., World],
) -> None:
    world = make_world(submit_interval_ms=10_000)
    world.provider.script("INV-1", submit=[Lose()])
    world.hand_over("INV-1")
    world.run_for(5)
    assert len(world.provider.arrivals) == 1, "the repeat waits for the slot at ten seconds"
    health.hold(world.account.pk, reason=HoldReason.PERSON, words="Stop.", now=world.clock.now())
    world.run_for(20)
    submission = world.job("INV-1").submissions.get()
    assert (world.states()["INV-1"], submission.in_doubt, submission.outcome) == ("submitting", True, "open")
    assert len(world.provider.arrivals) == 1
    health.resume(world.account.pk, now=world.clock.now())
    world.run_to_the_end()
    world.assert_saved(["INV-1"])


def test_nothing_is_committed_once_a_hold_has_returned(world: World) -> None:
    world.hand_over(*[f"INV-{n}" for n in range(10)])
    held: list[set[str]] = []

    def hold() -> bool:
        if not held and len(world.provider.arrivals) >= 3:
            health.hold(world.account.pk, reason=HoldReason.PERSON, words="Stop.", now=world.clock.now())
            held.append({name for name, state in world.states().items() if state != "pending"})
        return False

    world.pump(stopping=hold).run()
    assert held
    assert {arrival.name for arrival in world.provider.arrivals} <= held[0]
    assert len(world.provider.arrivals) < 10
