"""Several pumps, several accounts: work is shared without being doubled, and one's trouble is not another's."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.db import connection

from batches.conf import ENGINE
from batches.engine import pacing, slots
from batches.models import AccountHealth, Job, Lane, ProviderAccount, PumpSlot, Submission
from batches.providers import errors
from tests import factories
from tests.engine.simulated import Lose, Refuse, Word
from tests.scenarios.world import World

NAMES = [f"INV-{number}" for number in range(1, 25)]


def run_together(world: World, count: int) -> None:
    """So many pumps at the same time, each on a thread with a database connection of its own, until all is over."""
    trouble: list[BaseException] = []

    def work() -> None:
        try:
            world.pump(stopping=world.is_over).run()
        except Exception as error:  # noqa: BLE001 - told to the test's own thread
            trouble.append(error)
        finally:
            connection.close()
            world.clock.end()

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        world.clock.begin()
        thread.start()
    world.clock.end()  # this thread waits outside the clock
    for thread in threads:
        thread.join()
    world.clock.begin()
    assert not trouble


def test_pumps_at_the_same_time_send_each_document_once_and_keep_the_pace_together(world: World) -> None:
    for name in NAMES[:4]:
        world.provider.script(name, submit=[Lose()])
    world.hand_over(*NAMES)
    run_together(world, 3)
    world.run_to_the_end()
    world.assert_saved(NAMES)
    times = sorted(arrival.at for arrival in world.provider.arrivals)
    assert min((later - earlier).total_seconds() for earlier, later in itertools.pairwise(times)) >= 0.1
    assert len(times) == len(NAMES) + 4


def test_pumps_at_the_same_time_keep_the_cap_together(make_world: Callable[..., World]) -> None:
    world = make_world(max_in_flight=3)
    world.hand_over(*NAMES[:9])
    most = 0

    def stopping() -> bool:
        nonlocal most
        most = max(most, Job.objects.filter(state__in=("submitting", "accepted")).count())
        return world.is_over()

    world.pump(stopping=stopping).run()
    world.assert_saved(NAMES[:9])
    assert most == 3


def test_one_accounts_trouble_leaves_the_others_alone(world: World) -> None:
    """A held account, an archived one and a stranger's beside ours: the pump serves ours."""
    other = factories.make_account(
        health=AccountHealth.HELD, hold_reason="auth", hold_words="Bad key.", held_at=factories.NOW
    )
    batch = factories.make_batch(workspace=world.workspace, account=other)
    waiting = factories.make_job(batch=batch)
    world.hand_over(*NAMES[:3])
    world.run_until(lambda: all(world.states()[name] == "saved" for name in NAMES[:3]))
    world.assert_saved(NAMES[:3])
    waiting.refresh_from_db()
    assert (waiting.state, waiting.lease_owner) == ("pending", None)


def test_a_paused_batch_sends_nothing_new_and_finishes_what_is_at_the_provider(world: World) -> None:
    world.provider.script("INV-1", status=[Word("processing")] * 4)
    batch = world.hand_over("INV-1")
    world.run_until(lambda: world.job("INV-1").state == "accepted")
    second = world.hand_over("INV-2")
    for each in (batch, second):
        each.paused_at = world.clock.now()
        each.save()
    world.run_for(30)
    assert world.states() == {"INV-1": "saved", "INV-2": "pending"}
    second.paused_at = None
    second.save()
    world.run_to_the_end()
    world.assert_saved(["INV-1", "INV-2"])


def test_a_pump_that_loses_its_slot_ends_and_gives_back_its_work(world: World) -> None:
    slots.ensure(1)
    slot = slots.acquire("pump-1", now=world.clock.now())
    world.hand_over(*NAMES)
    pump = world.pump()
    pump.slot = slot
    began_at = world.clock.now()

    def take_the_slot() -> None:
        if len(world.provider.arrivals) >= 3:
            world.clock.on_look = None
            PumpSlot.objects.update(owner="another")

    world.clock.on_look = take_the_slot
    pump.run()
    lasted = (world.clock.now() - began_at).total_seconds()
    assert lasted < ENGINE.renew_seconds * 2
    assert not Job.objects.exclude(lease_owner=None).exists()
    assert PumpSlot.objects.get().owner == "another"


def test_a_backlog_of_slow_downloads_stops_no_submission(world: World) -> None:
    world.hand_over(*NAMES)
    world.store.is_full = True
    world.run_until(lambda: set(world.states().values()) == {"rendered"})
    world.clock.advance(60)
    world.store.is_full = False
    world.provider.download_seconds = 9.0
    fetched, handed_over = len(world.provider.downloads), []

    def look() -> None:
        if len(world.provider.downloads) > fetched:
            world.clock.on_look = None
            handed_over.append(world.clock.now())
            world.hand_over("NEW")

    world.clock.on_look = look
    world.run_until(lambda: bool(world.provider.arrivals_of("NEW")))
    waited = world.provider.arrivals_of("NEW")[0].at - handed_over[0]
    assert waited.total_seconds() < 2
    world.provider.download_seconds = 0.0
    world.run_to_the_end()
    world.assert_saved([*NAMES, "NEW"])


def test_a_pump_ends_by_itself_when_its_time_is_up_and_when_there_is_nothing_to_do(world: World) -> None:
    began_at = world.clock.now()
    world.pump().run()
    assert (world.clock.now() - began_at).total_seconds() == pytest.approx(ENGINE.pump_idle_seconds, abs=0.5)
    world.provider.script("INV-1", status=[Word("processing")] * 1000)
    world.hand_over("INV-1")
    began_at = world.clock.now()
    world.pump().run()
    assert (world.clock.now() - began_at).total_seconds() == pytest.approx(ENGINE.pump_budget_seconds, abs=1)
    assert Job.objects.get().lease_owner is None


def test_leases_outlive_answers_that_are_slower_than_they_are(world: World) -> None:
    """A POST may take longer than a lease lasts; the pump renews it, and nobody sends the document a second time."""
    world.provider.submit_seconds = ENGINE.lease_seconds + 4
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    assert len(world.provider.arrivals) == 1


def test_a_stop_keeps_the_lease_of_a_slow_answer_until_it_is_there(world: World) -> None:
    world.provider.submit_seconds = ENGINE.lease_seconds + 4
    world.hand_over("INV-1")
    lost: list[bool] = []

    def look() -> None:
        if world.provider.arrivals and world.states() == {"INV-1": "submitting"}:
            lost.append(world.job("INV-1").lease_until <= world.clock.now())

    world.clock.on_look = look
    world.pump(stopping=lambda: len(world.provider.arrivals) == 1).run()
    world.clock.on_look = None
    assert lost
    assert not any(lost)
    assert world.states() == {"INV-1": "accepted"}


@pytest.mark.parametrize("kind", [errors.TargetRefused, errors.TooLarge])
def test_an_answer_that_was_too_large_or_led_elsewhere_does_not_double_a_document(
    world: World, kind: type[errors.ProviderError]
) -> None:
    world.provider.script("INV-1", submit=[Refuse(kind)])
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    assert Submission.objects.count() == 1


def test_a_pump_reserves_no_more_slots_than_it_has_free_threads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot without a thread would pass unused, and be lost to the other pumps."""
    conf = replace(ENGINE, submit_threads=2)
    world.provider.submit_seconds = 5.0
    world.hand_over(*NAMES[:8])
    reserve, given, rounds = pacing.reserve, [], 0

    def noted(account_id: int, lane: Lane, *limits: Any, **options: Any) -> pacing.Reservation:
        reservation = reserve(account_id, lane, *limits, **options)
        if lane is Lane.SUBMIT:
            given.append(len(reservation.slots))
            assert options["wanted"] <= conf.submit_threads
        return reservation

    def look() -> None:
        nonlocal rounds
        rounds += 1

    monkeypatch.setattr(pacing, "reserve", noted)
    world.clock.on_look = look
    pump = world.pump(stopping=world.is_over, conf=conf)
    tally = pump.run()
    world.clock.on_look = None
    world.assert_saved(NAMES[:8])
    assert tally.slots_missed == 0
    assert sum(given) == 8, "every slot that was taken was used"
    assert rounds < 5000, "while no thread is free, the pump waits for a result"


def test_one_account_whose_key_cannot_be_read_stops_nobody_else(world: World, settings: Any) -> None:
    good = settings.FIELD_KEYS
    settings.FIELD_KEYS = [Fernet.generate_key().decode()]
    lost = factories.make_account()
    settings.FIELD_KEYS = good
    waiting = factories.make_job(batch=factories.make_batch(workspace=world.workspace, account=lost))
    world.hand_over(*NAMES[:3])
    world.run_until(lambda: all(world.states()[name] == "saved" for name in NAMES[:3]))
    world.assert_saved(NAMES[:3])
    waiting.refresh_from_db()
    assert (waiting.state, waiting.lease_owner) == ("pending", None)
    assert world.open_alerts() == ["account_held"]


def test_an_account_that_becomes_unreadable_sends_nothing_new_and_finishes_what_is_at_the_provider(
    world: World, settings: Any
) -> None:
    world.provider.script("INV-1", status=[Word("processing")] * 8)
    world.hand_over("INV-1")

    def look() -> None:
        if world.provider.reads:
            world.clock.on_look = None
            lost = Fernet(Fernet.generate_key()).encrypt(b"pdf_live_invented").decode()
            table = connection.ops.quote_name(ProviderAccount._meta.db_table)
            with connection.cursor() as cursor:
                cursor.execute(f"UPDATE {table} SET api_key = %s", [lost])

    world.clock.on_look = look
    handed_over: list[int] = []

    def stopping() -> bool:
        if not handed_over and AccountHealth.HELD in ProviderAccount.objects.values_list("health", flat=True):
            handed_over.append(world.hand_over("INV-2").pk)
        return False

    world.pump(stopping=stopping).run()
    assert handed_over
    assert world.states() == {"INV-1": "saved", "INV-2": "pending"}
    assert len(world.provider.arrivals) == 1
