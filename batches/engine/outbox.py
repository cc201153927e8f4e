"""A pump's outcomes on their way to the database: gathered for a moment, written in groups, kept while it is away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from batches.conf import EngineConf
from batches.engine import changes, durations, effects, stopping, writes
from batches.engine.changes import Change, FollowStep


class Outbox:
    """What is judged and not yet written. Only the pump's own thread uses it."""

    def __init__(self, conf: EngineConf) -> None:
        self._conf = conf
        self._waiting: dict[int, Change] = {}  # by identity, in order
        self._fetching: dict[int, Change] = {}  # of these, by job: a later step is under way already
        self._since: datetime | None = None
        self._patience = conf.flush_seconds
        self._set_aside: dict[int, Change] = {}
        self._book = durations.Book()
        self._watch = stopping.Watch()
        self._committed: list[tuple[list[Change], set[int]]] = []  # which the pump has not been told of
        self._effects = effects.Waiting()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._effects)

    def add_effect(self, account_id: int, effect: effects.AccountEffect, now: datetime) -> None:
        """What an answer says about the account that is no job's outcome."""
        self._effects.add(account_id, effect)
        if len(self._effects):
            self._since = self._since or now

    def take_held_back(self) -> bool:
        """Whether an effect was applied, since this was asked last, that may change what may be sent."""
        return self._effects.take_held_back()

    def add(self, change: Change, now: datetime) -> None:
        """Write it soon. What was set aside for the same job goes with it."""
        earlier = self._set_aside.pop(change.claim.job_id, None)
        if earlier is not None:
            change = replace(change, exchanges=earlier.exchanges + change.exchanges)
        change = self._with_step_before(change)
        self._waiting[id(change)] = change
        if change.follow is not None and change.follow.step is FollowStep.FETCHING:
            self._fetching[change.claim.job_id] = change
        self._since = self._since or now

    def _with_step_before(self, change: Change) -> Change:
        """The change, and with it what waits of the step before where that needs no write of its own."""
        before = self._fetching.pop(change.claim.job_id, None)
        both = changes.together(before, change) if before is not None else None
        if before is None or both is None:
            return change
        del self._waiting[id(before)]
        return both

    def set_aside(self, change: Change) -> None:
        """Still rendering: the row need not know at once. The newest facts replace older ones, exchanges add up."""
        earlier = self._set_aside.get(change.claim.job_id)
        if earlier is not None:
            change = replace(
                change,
                job_fields={**earlier.job_fields, **change.job_fields},
                exchanges=earlier.exchanges + change.exchanges,
            )
        self._set_aside[change.claim.job_id] = change

    def bring_forward(self, now: datetime, *, let_go: bool = False) -> None:
        """Write what was set aside too; with `let_go` its leases are given back by the same write."""
        for change in self._set_aside.values():
            change = replace(change, follow=None) if let_go else change
            self._waiting[id(change)] = change
            self._since = self._since or now
        self._set_aside.clear()

    def due_at(self) -> datetime | None:
        """When the oldest waiting outcome should be written; None when nothing waits."""
        return self._since + timedelta(seconds=self._patience) if self._since else None

    def is_due(self, now: datetime) -> bool:
        due_at = self.due_at()
        return due_at is not None and (now >= due_at or len(self._waiting) >= self._conf.flush_rows)

    def write(self, now: datetime) -> Iterator[tuple[list[Change], set[int]]]:
        """Write everything, group by group: each with the jobs whose claim had gone stale.

        A group leaves the outbox when it is committed, and only then: nothing is lost and nothing is written twice
        when the database goes away half way. What the answers say about their accounts is an item of its own.
        """
        # While outcomes come thick and fast, each write may as well carry more of them: a write has a price of its own.
        is_busy = len(self._waiting) >= self._patience * self._conf.flush_busy_rate
        self._patience = self._conf.flush_busy_seconds if is_busy else self._conf.flush_seconds
        yield from self._take_committed()  # of a write that the database ended half way
        for group in changes.rounds(list(self._waiting.values())):
            writes.write_round(group, now=now, book=self._book, watch=self._watch, committed=self._leave)
            yield from self._take_committed()
        self._effects.apply(now=now)
        self._since = now if self._waiting else None

    def _leave(self, part: Sequence[Change], stale: set[int]) -> None:
        for change in part:
            del self._waiting[id(change)]
            self._fetching.pop(change.claim.job_id, None)
        self._effects.add_all(part)
        self._committed.append((list(part), stale))

    def _take_committed(self) -> Iterator[tuple[list[Change], set[int]]]:
        while self._committed:
            yield self._committed.pop(0)
