"""A fault that belongs to one account, job, event or read stays there: the pump goes on with all the others."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection

from batches.conf import ENGINE
from batches.engine import answers, health, latewatch, polling, probes, stopping, wakeups
from batches.engine.accounts import Providers
from batches.models import Alert, HoldReason, ProviderAccount, WebhookEvent
from batches.models.accounts import LIMITS
from batches.providers import errors
from batches.providers.base import Provider
from tests import factories
from tests.engine.simulated import Complete, Refuse, SimulatedProvider, Word
from tests.scenarios.world import World

NAMES = [f"INV-{number}" for number in range(6)]


class Mixed(Providers):
    """Real adapters are made from the rows of accounts in `real`; the rest are the world's own."""

    def __init__(self, world: World, real: set[int]) -> None:
        super().__init__()
        self.made = world.pump().providers
        self.real = real

    def of(self, account: ProviderAccount) -> Provider:
        return super().of(account) if account.pk in self.real else self.made.of(account)


def run_with_real(world: World, account: ProviderAccount) -> None:
    for _ in range(3):
        pump = world.pump()
        pump.providers = Mixed(world, {account.pk})
        pump.run()
        world.clock.advance(1)


# --- an account's row ---


@pytest.mark.parametrize("hosts", [5, "x.example.com", [None], {"a": 1}, ["https://x.example.com/a"]])
def test_hosts_that_are_none_are_refused_by_the_model_and_stop_no_other_account(world: World, hosts: Any) -> None:
    bad = world.other_account(SimulatedProvider(world.clock))
    ProviderAccount.objects.filter(pk=bad.pk).update(download_hosts=hosts, base_url="http://127.0.0.1:9")
    bad.refresh_from_db()
    with pytest.raises(ValidationError, match="download_hosts"):
        bad.full_clean()
    world.hand_over("BAD-1", account=bad)
    world.hand_over(*NAMES)
    run_with_real(world, bad)
    world.assert_saved(NAMES)


def test_an_account_whose_adapter_cannot_be_made_is_held_with_words_and_the_others_go_on(world: World) -> None:
    bad = world.other_account(SimulatedProvider(world.clock))
    ProviderAccount.objects.filter(pk=bad.pk).update(base_url="no address at all")
    world.hand_over("BAD-1", account=bad)
    world.hand_over(*NAMES)

    class Unmakeable(Mixed):
        def of(self, account: ProviderAccount) -> Provider:
            if account.pk == bad.pk:
                raise TypeError("no address")
            return super().of(account)

    for _ in range(2):
        pump = world.pump()
        pump.providers = Unmakeable(world, set())
        pump.run()
        world.clock.advance(1)
    world.assert_saved(NAMES)
    bad.refresh_from_db()
    assert (bad.health, bad.hold_reason) == ("held", "auth")
    assert "settings cannot be used" in bad.hold_words
    assert world.states()["BAD-1"] == "pending"
    assert Alert.objects.filter(account=bad, closed_at=None).count() == 1


def test_an_account_written_past_the_model_is_not_read_in_a_hot_loop(world: World) -> None:
    ProviderAccount.objects.filter(pk=world.account.pk).update(poll_max_ms=0, poll_initial_ms=0, deadline_seconds=0)
    with pytest.raises(ValidationError) as caught:
        world.account_now().full_clean()
    assert {"poll_max_ms", "poll_initial_ms", "deadline_seconds"} <= set(caught.value.message_dict)
    world.provider.script("INV-1", status=itertools.repeat(Word("processing")))
    world.hand_over("INV-1")
    world.run_for(4)
    assert world.states() == {"INV-1": "accepted"}
    assert len(world.provider.reads) <= 4 / 0.2 + 4


def test_limits_far_past_the_model_are_refused_by_it_and_stop_no_account(world: World) -> None:
    far = 2**31 - 1 if connection.vendor == "postgresql" else 2**63 - 1  # what the column can hold
    odd = {name: world.other_account(SimulatedProvider(world.clock)) for name in LIMITS}
    for name, account in odd.items():
        ProviderAccount.objects.filter(pk=account.pk).update(**{name: far})
        account.refresh_from_db()
        with pytest.raises(ValidationError, match=name):
            account.full_clean()
        world.hand_over(f"ODD-{name}", account=account)
    world.hand_over(*NAMES)
    world.run_until(lambda: list(world.states().values()).count("saved") == len(NAMES) + len(LIMITS), within=300)
    assert set(ProviderAccount.objects.values_list("health", flat=True)) == {"open"}


def test_an_account_whose_limit_is_no_number_is_held_with_words_and_the_others_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite keeps whatever is written into a column."""
    bad = world.other_account(SimulatedProvider(world.clock))
    world.hand_over("BAD-1", account=bad)
    world.hand_over(*NAMES)
    real = health.readable_accounts

    def read(*, now: datetime) -> dict[int, ProviderAccount]:
        accounts = real(now=now)
        setattr(accounts[bad.pk], "deadline_seconds", "soon")  # noqa: B010 - as SQLite would give it
        return accounts

    monkeypatch.setattr(health, "readable_accounts", read)
    world.run_until(lambda: list(world.states().values()).count("saved") == len(NAMES))
    assert ProviderAccount.objects.values_list("health", "hold_reason").get(pk=bad.pk) == ("held", "auth")
    assert "Correct its address, hosts, key and limits" in Alert.objects.get(account=bad).words
    assert world.states()["BAD-1"] == "pending"


# --- faults of our own ---


def failing_for(real: Callable[..., Any], chosen: Callable[..., bool]) -> Callable[..., Any]:
    def call(*given: Any, **named: Any) -> Any:
        if chosen(*given, **named):
            raise ArithmeticError("a fault of ours")
        return real(*given, **named)

    return call


def test_a_result_that_cannot_be_judged_parks_its_job_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real = polling.judge_status
    chosen = failing_for(real, lambda claim, *_rest: claim.business_id == "INV-2")
    monkeypatch.setattr(polling, "judge_status", chosen)
    world.hand_over(*NAMES)
    world.run_to_the_end()
    world.assert_saved([name for name in NAMES if name != "INV-2"])
    assert world.failures() == {"INV-2": "internal"}
    assert world.open_alerts() == ["internal"]


def test_an_answer_that_cannot_be_judged_keeps_the_id_it_brought_and_is_read_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = answers.judge_answer
    chosen = failing_for(real, lambda sending, *_rest, **_now: sending.prepared.claim.business_id == "INV-2")
    monkeypatch.setattr(answers, "judge_answer", chosen)
    world.hand_over(*NAMES)
    world.run_to_the_end()
    world.assert_saved(NAMES)
    assert "answer_not_judged" in world.reasons("INV-2")
    assert world.open_alerts() == []


def test_a_job_that_stopped_because_its_read_could_not_be_judged_is_watched(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "judge_status", failing_for(polling.judge_status, lambda *_given: True))
    world.hand_over("INV-1")
    world.run_to_the_end()
    assert world.failures() == {"INV-1": "internal"}
    monkeypatch.undo()
    world.clock.advance(ENGINE.watch_first_seconds + 60)
    world.run_until(lambda: world.states() == {"INV-1": "saved"}, within=60)
    assert world.open_alerts() == []


@pytest.mark.parametrize(
    ("module", "name"),
    [(latewatch, "settle"), (probes, "settle"), (stopping.Watch, "after_failures"), (health, "note_reached")],
)
def test_what_fails_beside_the_jobs_is_left_out_and_the_jobs_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(module, name, failing_for(lambda: None, lambda *_given, **_named: not calls.append(1)))
    world.provider.script("LATE-1", status=itertools.repeat(Word("processing")))
    world.hand_over("LATE-1")
    world.run_to_the_end()
    world.clock.advance(400)  # its late read is due
    if module is probes:
        health.hold(world.account.pk, reason=HoldReason.UNREACHABLE, words="Away.", now=world.clock.now())
        world.run_for(20)
        health.resume(world.account.pk, now=world.clock.now())
    ProviderAccount.objects.filter(pk=world.account.pk).update(transport_failure_count=1)
    world.hand_over(*NAMES)
    world.run_to_the_end()
    world.run_for(30)
    world.assert_saved(NAMES)
    assert calls, "it was reached"


def test_a_webhook_event_that_cannot_be_settled_is_left_out_and_the_others_wake_their_jobs(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(webhook_secret="whsec_invented", poll_initial_ms=30_000, poll_max_ms=30_000, deadline_seconds=90)
    real = wakeups.settle
    chosen = failing_for(real, lambda events, **_now: any(event.provider_job_id == "odd" for event in events))
    monkeypatch.setattr(wakeups, "settle", chosen)
    world.provider.script("INV-1", status=[Complete()])
    world.hand_over("INV-1")
    world.run_until(lambda: world.states()["INV-1"] == "accepted")
    now = world.clock.now()
    for job_id in ("odd", world.provider.jobs_of("INV-1")[0].id):
        factories.make_event(account=world.account, provider_job_id=job_id, type="job.completed", at=now)
    world.run_for(5)
    world.assert_saved(["INV-1"])
    assert dict(WebhookEvent.objects.values_list("provider_job_id", "outcome"))["odd"] == "waiting"


# --- a provider that contradicts itself ---


def test_a_job_that_is_finished_without_a_file_and_then_runs_again_ends_at_its_deadline(world: World) -> None:
    flapping = itertools.cycle([Complete(), Word("processing")])
    world.provider.script("INV-1", status=flapping, download=itertools.repeat(Refuse(errors.NotFound)))
    world.hand_over("INV-1")
    world.run_to_the_end(within=120)
    assert world.states()["INV-1"] in ("expired", "deadline_exceeded")
    assert len(world.provider.downloads) <= 20
    assert len(world.provider.reads) <= 40
    accepted = world.provider.jobs_of("INV-1")[0].accepted_at
    assert timedelta(seconds=60) <= world.clock.now() - accepted <= timedelta(seconds=75)


# --- a provider that answers 5xx ---


def test_an_outage_that_answers_503_holds_the_account_and_little_is_sent_into_it(
    make_world: Callable[..., World],
) -> None:
    world = make_world(submit_interval_ms=3000)
    names = [f"I-{number}" for number in range(40)]
    world.hand_over(*names)
    world.run_for(10)
    before = len(world.provider.arrivals)
    world.provider.trouble = Refuse(errors.ServerFault, "It answered 503.")
    world.run_for(300)
    account = world.account_now()
    assert (account.health, account.hold_reason) == ("held", "unreachable")
    assert len(world.provider.arrivals) - before <= 5
    world.provider.trouble = None
    world.run_to_the_end(within=900)
    world.assert_saved(names)


def test_one_document_that_the_provider_cannot_bear_holds_nobody_while_others_succeed(world: World) -> None:
    world.provider.script("INV-2", submit=itertools.repeat(Refuse(errors.ServerFault, "It answered 500.")))
    names = [f"INV-{number}" for number in range(40)]
    world.hand_over(*names)
    world.run_to_the_end()
    world.assert_saved([name for name in names if name != "INV-2"])
    assert world.states()["INV-2"] == "unknown"


# --- two troubles of one account ---


@pytest.mark.parametrize("reason", [HoldReason.CREDIT, HoldReason.PERSON])
def test_a_key_that_is_refused_while_the_account_is_held_is_told_and_read_for_seldom(
    world: World, reason: HoldReason
) -> None:
    world.provider.script("INV-1", status=[Complete()])
    world.hand_over("INV-1")
    world.run_until(lambda: world.states()["INV-1"] == "accepted")
    health.hold(world.account.pk, reason=reason, words="It said so.", now=world.clock.now())
    world.provider.key_is_good = False
    before = len(world.provider.reads)
    world.run_for(200)
    account = world.account_now()
    assert account.hold_reason == (HoldReason.AUTH if reason is HoldReason.CREDIT else HoldReason.PERSON)
    told = Alert.objects.get(closed_at=None).words
    for words in (account.hold_words, told):
        assert "It said so." in words
        assert words.count("The key is refused.") == 1, "and what the key's refusal said, once"
    assert len(world.provider.reads) - before <= 200 / 10 + 1
    assert world.states()["INV-1"] == "accepted", "no deadline passes while nobody can look"
    world.provider.key_is_good = True
    health.resume(world.account.pk, now=world.clock.now())
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
