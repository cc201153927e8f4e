"""Bulk actions whose verb asks the provider: item by item, at its pace, and with no transaction open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from batches.engine import accounts, applying, carrying, pacing, reconcile
from batches.engine.orders import Order, Result
from batches.models import (
    AuditEntry,
    Batch,
    ItemResult,
    JobState,
    Lane,
    ProviderAccount,
    Verb,
)
from batches.providers.base import ExchangeFacts, JobPhase, JobStatus
from tests import factories
from tests.engine.carried import Clock, carry_out, confirmed, counts, kill_at, one_of_each
from tests.engine.simulated import SimulatedProvider
from tests.engine.test_bulk_actions import BY
from tests.engine.vendor import Vendor
from tests.factories import NOW
from tests.scenarios.world import PumpKilled


class Asked(Vendor):
    """Says of every job that it is still at it, and what was open while it was asked."""

    capabilities = SimulatedProvider.capabilities

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.in_transaction: list[bool] = []
        self.trouble: Exception | None = None

    def fetch_status(self, provider_job_id: str, *, now: datetime) -> JobStatus:
        self.asked.append(provider_job_id)
        self.in_transaction.append(connection.in_atomic_block)
        if self.trouble is not None and len(self.asked) == 2:
            raise self.trouble
        facts = ExchangeFacts("poll", now, 1, 200)
        return JobStatus(provider_job_id, JobPhase.RUNNING, "processing", facts)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked()
    monkeypatch.setattr(accounts, "make_provider", lambda *_: asked)
    return asked


def past_their_deadline(batch: Batch, count: int) -> list[int]:
    for number in range(count):
        job = factories.make_job(batch=batch, state=JobState.DEADLINE_EXCEEDED)
        factories.make_submission(job=job, provider_job_id=f"pdf_{number}", accepted_at=NOW, in_doubt=False)
    return list(batch.items.order_by("pk").values_list("pk", flat=True))


@pytest.mark.django_db(transaction=True)
def test_no_transaction_is_open_while_the_provider_is_asked_and_its_pace_holds(provider: Asked) -> None:
    batch = factories.make_batch()
    ProviderAccount.objects.update(poll_interval_ms=500)
    past_their_deadline(batch, 10)
    action = confirmed(batch, Verb.RECONCILE)
    clock = Clock(NOW)
    carrying.carry_out(clock, owner="a worker", stopping=lambda: False)
    assert (provider.in_transaction, counts(action)) == ([False] * 10, {"done": 10})
    assert clock.now() >= NOW + timedelta(seconds=0.5 * 5), "a few may leave together, the others wait for their slots"


@pytest.mark.django_db(transaction=True)
def test_a_provider_that_asks_for_a_pause_is_not_asked_and_the_items_wait(provider: Asked) -> None:
    batch = factories.make_batch()
    past_their_deadline(batch, 2)
    action = confirmed(batch, Verb.RECONCILE)
    pacing.cool_down(batch.account_id, Lane.POLL, NOW + timedelta(minutes=1))
    clock = Clock(NOW)
    assert carrying.carry_out(clock, owner="a worker", stopping=lambda: False).is_work_left
    assert (provider.asked, counts(action)) == ([], {"waiting": 2})
    clock.advance(60)
    assert not carrying.carry_out(clock, owner="a worker", stopping=lambda: False).is_work_left
    assert counts(action) == {"done": 2}


@pytest.mark.django_db(transaction=True)
def test_a_death_between_asking_and_writing_asks_that_one_once_more(
    provider: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = factories.make_batch()
    past_their_deadline(batch, 3)
    action = confirmed(batch, Verb.RECONCILE)
    with monkeypatch.context() as killing:
        kill_at(killing, carrying, "_write", call=2)
        with pytest.raises(PumpKilled):
            carry_out()
    assert counts(action) == {"done": 1, "waiting": 2}
    carry_out("the next", now=NOW + carrying.ASKING_LEASE + timedelta(seconds=1))
    assert counts(action) == {"done": 3}
    assert provider.asked == ["pdf_0", "pdf_1", "pdf_1", "pdf_2"]
    assert AuditEntry.objects.filter(action="finish_bulk_action").count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_fault_over_one_of_many_neither_stops_nor_repeats_the_others(provider: Asked) -> None:
    """Each is recorded once in the audit log, also where the slice is done without a bulk action."""
    ids = past_their_deadline(factories.make_batch(), 4)
    provider.trouble = RuntimeError("a fault of ours")
    results = applying.apply(Verb.RECONCILE, ids, order=Order(BY), now=NOW)
    assert [results[pk].result.value for pk in ids] == ["done", "failed", "done", "done"]
    assert AuditEntry.objects.filter(action="reconcile").count() == 3
    assert len(provider.asked) == 4


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("verb", [Verb.RECONCILE, Verb.RETRY])
def test_only_a_verb_that_asks_nobody_is_applied_inside_a_transaction(
    verb: Verb, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    factories.make_submission(job=factories.make_job(batch=batch, state=JobState.UNKNOWN), try_count=1)
    one_of_each(batch)
    inside: list[bool] = []

    def ask(item_ids: Iterable[int], **_: Any) -> dict[int, Result]:
        inside.append(connection.in_atomic_block)
        return {item_id: Result(ItemResult.DONE, "Asked.") for item_id in item_ids}

    action = confirmed(batch, verb)
    monkeypatch.setitem(applying.APPLY, verb, ask)  # type: ignore[arg-type]  # it is a dictionary
    monkeypatch.setattr(reconcile, "reconcile", ask)
    while carry_out().is_work_left:
        pass
    assert set(inside) == {verb is Verb.RETRY}
    action.refresh_from_db()
    assert action.finished_at == NOW
    assert counts(action)["done"] == action.plan["eligible"]


@pytest.mark.django_db(transaction=True)
def test_a_fault_of_a_verb_that_asks_marks_its_item_and_opens_no_transaction_around_the_others(
    batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        factories.make_submission(job=factories.make_job(batch=batch, state=JobState.UNKNOWN), try_count=1)
    action = confirmed(batch, Verb.RECONCILE)
    poison = action.items.order_by("position")[1].item_id
    inside: list[bool] = []

    def ask(item_ids: Sequence[int], **_: Any) -> dict[int, Result]:
        inside.append(connection.in_atomic_block)
        if poison in item_ids:
            raise ZeroDivisionError
        return {item_id: Result(ItemResult.DONE, "Asked.") for item_id in item_ids}

    monkeypatch.setattr(reconcile, "reconcile", ask)
    monkeypatch.setitem(applying.APPLY, Verb.RECONCILE, ask)  # type: ignore[arg-type]  # it is a dictionary
    while carry_out().is_work_left:
        pass
    assert inside == [False] * 3
    assert list(action.items.order_by("position").values_list("result", flat=True)) == ["done", "failed", "done"]
