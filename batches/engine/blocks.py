"""Slots of a lane taken ahead in blocks, so that a status read costs no statement of its own.

A block is twice as large as the last one was used. What passes unused is lost, which can only make us slower. A lane
without a pace is looked at once a block's length all the same, since the provider may have asked for a pause.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from batches.conf import EngineConf
from batches.engine import pacing
from batches.engine.pacing import Limits, Reservation
from batches.models import Lane


@dataclass
class _Block:
    """What is left of a lane's slots. `free_until`: without a pace, reads may leave at once until then."""

    limits: Limits
    slots: deque[datetime] = field(default_factory=deque)
    used: int = 0
    ask_again_at: datetime = pacing.EPOCH
    free_until: datetime = pacing.EPOCH
    lead: pacing.Lead = field(default_factory=pacing.Lead)


class Blocks:
    """One pump's slots of one lane, by account. Only the pump's own thread uses it."""

    def __init__(self, lane: Lane, conf: EngineConf) -> None:
        self._lane = lane
        self._conf = conf
        self._blocks: dict[int, _Block] = {}

    def take(self, account_id: int, limits: Limits, *, wanted: int, now: datetime) -> Reservation:
        """Up to `wanted` slots, as `pacing.reserve` gives them; the row is asked only when the block has too few."""
        block = self._blocks.get(account_id)
        if block is None or block.limits != limits:
            block = self._blocks[account_id] = _Block(limits)
        if limits.unpaced and now < block.free_until:
            return Reservation((now,) * wanted, now)
        while block.slots and not pacing.may_still_leave(block.slots[0], limits, now + block.lead.ahead):
            block.slots.popleft()
        if len(block.slots) < wanted and now >= block.ask_again_at:
            self._refill(account_id, block, wanted=wanted, now=now)
        taken = tuple(block.slots.popleft() for _ in range(min(wanted, len(block.slots))))
        block.used += len(taken)
        return Reservation(taken, max(now, block.ask_again_at))

    def missed(self, account_id: int) -> None:
        """A thread woke too late for its slot."""
        if account_id in self._blocks:
            self._blocks[account_id].lead.missed()

    def met(self, account_id: int) -> None:
        """A request has left in its slot."""
        if account_id in self._blocks:
            self._blocks[account_id].lead.met()

    def forget(self) -> None:
        """Give up what is left: an answer has asked for a pause, which the row knows and the blocks do not."""
        self._blocks.clear()

    def _refill(self, account_id: int, block: _Block, *, wanted: int, now: datetime) -> None:
        missing = wanted - len(block.slots)
        size = max(missing, min(2 * block.used, pacing.slots_in(block.limits, self._conf.slot_horizon_seconds)))
        block.used = 0
        reservation = pacing.reserve(
            account_id,
            self._lane,
            block.limits,
            wanted=missing if block.limits.unpaced else size,
            now=now,
            horizon_seconds=self._conf.slot_horizon_seconds,
            lead=block.lead.ahead,
        )
        block.slots.extend(reservation.slots)
        block.ask_again_at = reservation.ask_again_at
        if block.limits.unpaced and reservation.slots and reservation.slots[0] <= now:
            block.free_until = now + timedelta(seconds=self._conf.slot_horizon_seconds)
