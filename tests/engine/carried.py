"""What the tests of carrying bulk actions out share: a clock, a slice, and documents in every state."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from batches.actions import Chosen
from batches.engine import bulk_actions, carrying
from batches.engine.carrying import Tally
from batches.models import (
    Batch,
    BatchItem,
    BulkAction,
    FailureClass,
    JobState,
    Verb,
)
from tests import factories
from tests.engine.test_bulk_actions import confirm, fail, plan
from tests.factories import NOW
from tests.scenarios.world import PumpKilled

EVERYTHING = Chosen(is_everything=True)


class Clock:
    """Stands still, unless a test moves it. See `engine.clock.Clock`."""

    def __init__(self, now: datetime) -> None:
        self._now = now

    def now(self) -> datetime:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.advance(seconds)
        return event.is_set()

    def cpu_seconds(self) -> float:
        return 0.0


def carry_out(owner: str = "a worker", *, now: datetime = NOW, stopping: Callable[[], bool] = lambda: False) -> Tally:
    return carrying.carry_out(Clock(now), owner=owner, stopping=stopping)


def counts(action: BulkAction) -> dict[str, int]:
    return {name: count for name, count in bulk_actions.counts(action.pk).items() if count}


def confirmed(batch: Batch, verb: Verb = Verb.RETRY, chosen: Chosen = EVERYTHING, key: str = "one click") -> BulkAction:
    action = plan(batch, verb, chosen, key)
    return confirm(action, typed=str(action.plan["renders_most"]))


def one_of_each(batch: Batch) -> None:
    """Documents in every state that a verb may meet."""
    fail(batch, 3)
    fail(batch, 2, failure_class=FailureClass.INVALID_INPUT)
    factories.make_accepted_job(batch=batch)
    factories.make_saved_job(batch=batch)
    factories.make_job(batch=batch)
    factories.make_job(batch=batch, state=JobState.CANCELLED)
    late = factories.make_job(batch=batch, state=JobState.DEADLINE_EXCEEDED)
    factories.make_submission(job=late, provider_job_id="pdf_late", accepted_at=NOW, in_doubt=False)
    expired = factories.make_job(batch=batch, state=JobState.EXPIRED)
    factories.make_submission(job=expired, provider_job_id="pdf_expired", accepted_at=NOW, in_doubt=False)
    factories.make_submission(job=factories.make_job(batch=batch, state=JobState.UNKNOWN), try_count=1)
    dismissed = fail(batch, 1)[0]
    BatchItem.objects.filter(version=dismissed.version).update(dismissed_at=NOW, dismissed_note="Known.")


def kill_at(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, *, call: int) -> None:
    """The process is gone in the given call of a function, after it has done its work; nothing is committed of it."""
    real, calls = getattr(where, name), []

    def dying(*given: Any, **named: Any) -> Any:
        done = real(*given, **named)
        calls.append(1)
        if len(calls) == call:
            raise PumpKilled
        return done

    monkeypatch.setattr(where, name, dying)
