"""A spend cap: refused at the start, kept while it runs by all pumps together, and raised by a person."""

from __future__ import annotations

import itertools
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from batches import selectors
from batches.engine import running, samples, spending
from batches.engine.audit import By
from batches.engine.errors import IntakeRefused, SpendCapReached
from batches.models import Alert, AuditEntry, Batch, Lane, PacingLane, ProviderAccount, Submission
from batches.providers import errors
from tests.engine.simulated import Fail, Lose, Refuse
from tests.scenarios.world import World

NAMES = [f"INV-{number:02}" for number in range(1, 21)]
BY = By(None, "m.okoye", "here")
PRICE = Decimal("0.10")


def capped(world: World, cap: str, *names: str, price: Decimal | None = PRICE, **start: Any) -> Batch:
    """A batch whose cap was enough for it when it was started, and is lowered to `cap` behind its back."""
    ProviderAccount.objects.update(price_per_job=price)
    world.account.refresh_from_db()
    batch = world.hand_over(*(names or NAMES), spend_cap=Decimal(100), **start)
    Batch.objects.filter(pk=batch.pk).update(spend_cap=Decimal(cap))
    batch.refresh_from_db()
    return batch


def resume(world: World, batch: Batch, cap: str | None = None) -> bool:
    raised = None if cap is None else Decimal(cap)
    return running.resume(batch.pk, reason="", by=BY, now=world.clock.now(), spend_cap=raised)


# --- at the start ---


def test_more_than_the_cap_is_not_started_and_both_figures_are_said(world: World) -> None:
    ProviderAccount.objects.update(price_per_job=PRICE)
    world.account.refresh_from_db()
    with pytest.raises(
        IntakeRefused, match=r"20 documents at 0\.1 USD each cost 2\.00 USD, and the spend cap is 1\.99"
    ):
        world.hand_over(*NAMES, spend_cap=Decimal("1.99"))
    assert not Batch.objects.exists()
    assert world.hand_over(*NAMES, spend_cap=Decimal("2.00")).spend_cap == Decimal(2)


def test_without_a_price_there_is_no_cap(world: World) -> None:
    with pytest.raises(IntakeRefused, match=r"needs a price, and Account .* names none"):
        world.hand_over(*NAMES, spend_cap=Decimal(5))


def test_two_amounts_that_read_the_same_are_told_apart() -> None:
    account = ProviderAccount(name="A", price_per_job=Decimal("0.5002"), price_currency="USD")
    assert "cost 1.0004 USD, and the spend cap is 1 USD" in spending.why_not_start(account, Decimal(1), 2)


# --- while it runs ---


def test_it_pauses_before_one_more_would_exceed_its_cap(world: World) -> None:
    batch = capped(world, "0.75")
    world.run_for(120)
    assert len(world.provider.arrivals) == 7
    batch.refresh_from_db()
    assert batch.pause_reason == "With one more document it may have cost 0.80 USD, and its spend cap is 0.75 USD."
    (alert,) = Alert.objects.filter(closed_at=None)
    assert (alert.kind, alert.batch) == ("batch_stopped", batch)
    assert "paused at its spend cap" in alert.words
    assert alert.words.endswith("Raise the cap on its page to let it go on.")
    progress = selectors.progress(batch)
    assert (progress.state, progress.counts.saved, progress.counts.held) == ("paused", 7, 13)


def test_going_on_means_raising_it(world: World) -> None:
    batch = capped(world, "0.75")
    world.run_for(60)
    with pytest.raises(SpendCapReached, match="Raise the cap to"):
        resume(world, batch)
    with pytest.raises(SpendCapReached, match=r"With one more document it may have cost 0\.80 USD"):
        resume(world, batch, "0.79")
    with pytest.raises(SpendCapReached, match=r"only be raised: give at least 0\.75 USD"):
        resume(world, batch, "0.50")
    batch.refresh_from_db()
    assert batch.paused_at
    assert resume(world, batch, "2")
    world.run_to_the_end()
    world.assert_saved(NAMES)
    entry = AuditEntry.objects.get(action="resume_batch")
    assert entry.facts == {"spend_cap_before": "0.7500", "spend_cap": "2"}
    assert not Alert.objects.filter(closed_at=None).exists()


def test_a_cap_that_is_met_by_the_last_document_pauses_nothing(world: World) -> None:
    batch = capped(world, "2.00")
    world.run_to_the_end()
    batch.refresh_from_db()
    assert batch.paused_at is None
    assert selectors.progress(batch).state == "complete"


def test_what_was_refused_or_failed_unbilled_costs_nothing(world: World) -> None:
    world.provider.script("INV-01", submit=[Refuse(errors.InvalidInput)])
    world.provider.script("INV-02", status=itertools.repeat(Fail(unbilled=True)))
    batch = capped(world, "0.30", *NAMES[:5])
    world.run_for(300)
    assert not spending.why_not_go_on(batch, batch.spend_cap), "it was paused while nobody knew that"
    resume(world, batch)
    world.run_for(300)
    assert sorted(name for name, state in world.states().items() if state == "saved") == ["INV-03", "INV-04", "INV-05"]


def test_what_may_have_arrived_counts(world: World) -> None:
    world.provider.script("INV-01", submit=itertools.repeat(Lose()))
    batch = capped(world, "0.30")
    world.run_for(60)
    assert {arrival.name for arrival in world.provider.arrivals} == {"INV-01", "INV-02", "INV-03"}
    batch.refresh_from_db()
    assert batch.paused_at


@pytest.mark.parametrize(
    ("billed", "sent"),
    [("0.25", 3), ("0.01", 10)],  # the provider bills more than the price says; less changes nothing
)
def test_what_the_provider_says_that_it_billed_counts_where_it_is_more(world: World, billed: str, sent: int) -> None:
    world.provider.billed_amount = Decimal(billed)
    world.account.submit_interval_ms = 5000  # each is done before the next leaves
    world.account.save()
    capped(world, "1.00")
    world.run_for(300)
    assert len(world.provider.arrivals) in (sent, sent + 1), "what was under way when it was told is let go"
    assert set(Submission.objects.filter(result__isnull=False).values_list("billed_amount", flat=True)) == {
        Decimal(billed)
    }


def test_the_price_may_be_taken_away_and_nothing_more_leaves(world: World) -> None:
    batch = capped(world, "1.50")
    ProviderAccount.objects.update(price_per_job=None)
    world.run_for(30)
    assert not world.provider.arrivals
    batch.refresh_from_db()
    assert "names no price any more" in batch.pause_reason


def test_the_sample_counts_once_and_under_the_cap_of_its_batch(world: World) -> None:
    batch = capped(world, "0.75", sample_size=3)
    world.run_for(60)
    assert len(world.provider.arrivals) == 3
    samples.release(batch.pk, by=BY, now=world.clock.now())
    world.run_for(60)
    assert len(world.provider.arrivals) == 7
    assert spending.spent(batch.pk).amount(PRICE) == Decimal("0.70")


def test_another_batch_at_the_account_is_not_held_up(world: World) -> None:
    capped(world, "0.30")
    world.hand_over("A", "B", "C")
    world.run_for(60)
    assert {arrival.name for arrival in world.provider.arrivals} >= {"A", "B", "C"}
    assert len(world.provider.arrivals) == 6


def test_several_pumps_do_not_pass_it_either(world: World) -> None:
    """Each has jobs with bytes made and waiting; what it may commit is asked under the lock of the lane."""
    capped(world, "0.75")
    world.account.submit_interval_ms = 20
    world.account.save()
    for _round in range(6):
        for _pump in range(3):
            world.pump(stopping=lambda: len(world.provider.arrivals) >= 2).run()
        world.clock.advance(1)
    world.run_for(30)
    assert len(world.provider.arrivals) == 7


def test_what_was_refused_and_goes_out_again_counts_at_once(world: World) -> None:
    """Not counted while it was refused, and no new row when it leaves again: who adds up new ones would miss it."""
    world.provider.script("INV-01", submit=[Refuse(errors.NotSent)])
    batch = capped(world, "0.30", *NAMES[:2])
    world.run_for(120)
    assert PacingLane.objects.get(account=world.account, lane=Lane.SUBMIT).anew == 1
    refused = {"in_doubt": False, "provider_job_id": None, "accepted_at": None, "outcome": "open", "closed_at": None}
    Submission.objects.update(**refused, watch_at=None, watch_until=None)
    purse, now = spending.Purse(), world.clock.now()

    def room(anew: int) -> int:
        return purse.room(batch.pk, Decimal("0.30"), world.account, wanted=3, anew=anew, now=now)

    assert room(1) == 3, "both were refused"
    now += timedelta(seconds=1)
    Submission.objects.filter(job__version__document__business_id="INV-01").update(in_doubt=True)
    assert room(2) == 2


def test_a_pump_that_dies_before_it_paused_the_batch_leaves_that_to_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = capped(world, "0.30")
    with monkeypatch.context() as patch:
        patch.setattr(running, "stop", lambda *given, **named: False)  # an intake holds the workspace
        world.run_for(20)
    assert len(world.provider.arrivals) == 3
    batch.refresh_from_db()
    assert batch.paused_at is None, "held back all the same"
    world.run_for(20)
    batch.refresh_from_db()
    assert batch.paused_at
    assert len(world.provider.arrivals) == 3


# --- what is counted ---


@pytest.mark.parametrize(
    ("count", "known", "known_count", "price", "cap", "room"),
    [
        (0, 0, 0, "0.10", "1", 10),
        (9, 0, 0, "0.10", "1", 1),
        (10, 0, 0, "0.10", "1", 0),
        (11, 0, 0, "0.10", "1", 0),
        (4, "0.80", 4, "0.10", "1", 1),  # 0.20 each by now
        (4, "0.81", 4, "0.10", "1", 0),
        (4, "0.04", 4, "0.10", "1", 6),  # cheaper than the price: the price is reckoned with
        (4, "0.40", 2, "0.10", "1", 2),  # two are known, the other two are reckoned at the price
        (5, 0, 0, "0", "0", spending.UNLIMITED),
    ],
)
def test_how_many_more_fit(count: int, known: Any, known_count: int, price: str, cap: str, room: int) -> None:
    spent = spending.Spent(count, Decimal(known), known_count)
    assert spent.room(Decimal(cap), Decimal(price)) == room


def test_a_batch_without_a_cap_costs_no_statement(world: World) -> None:
    world.hand_over(*NAMES)
    with CaptureQueriesContext(connection) as queries:
        world.run_to_the_end()
    assert not [query for query in queries if "billed_amount" in query["sql"] and "SELECT MAX" in query["sql"].upper()]
