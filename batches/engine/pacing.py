"""When may this account send? One row per account and lane, advanced by one guarded statement.

The arithmetic is pure (`take`): GCRA for interval and burst, and the exact times of the last slots for the windows, so
that no window is ever exceeded, which a second GCRA could promise only by giving away rate. A slot is an instant at
which one request may leave. Slots are given out a short time ahead, are never caught up with when missed, and a
killed pump wastes at most the ones that it held: it can make us slower, never faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction

from batches.conf import ENGINE
from batches.models import Lane, PacingLane, ProviderAccount
from batches.models.accounts import sound_limit, sound_windows

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Without a pace, what waited for the end of a pause leaves over this long.
COOL_DOWN_SPREAD_US = 1_000_000
NO_LEAD = timedelta(0)
#: After the first slot that was missed.
LEAST_LEAD = timedelta(seconds=0.02)


@dataclass(frozen=True)
class Limits:
    """Microseconds. `windows` are (count, length) pairs: never more than `count` slots in any such length."""

    interval_us: int
    burst: int = 1
    windows: tuple[tuple[int, int], ...] = ()

    @property
    def unpaced(self) -> bool:
        """No pace at all: only a pause that the provider asked for holds anything back."""
        return not self.interval_us and not self.windows


@dataclass(frozen=True)
class LaneState:
    """What the row holds. `next_slot_us` is GCRA's theoretical arrival time; `recent` is oldest first.

    `interval_us` is the interval that `next_slot_us` was reckoned with; 0 when that is not known.
    """

    next_slot_us: int = 0
    cool_down_until_us: int = 0
    recent: tuple[int, ...] = ()
    interval_us: int = 0


@dataclass
class Lead:
    """How far ahead one pump takes a lane's slots, so that its threads are awake when they come: longer with each slot
    that was missed, shorter again with each that was met. On a machine that is busy, or slow to commit, a slot of this
    very instant is missed each time, and so would be whatever waits for one alone."""

    ahead: timedelta = NO_LEAD

    def missed(self) -> None:
        most = timedelta(seconds=ENGINE.slot_horizon_seconds) / 2
        self.ahead = min(max(2 * self.ahead, LEAST_LEAD), most)

    def met(self) -> None:
        self.ahead *= 0.9
        if self.ahead < LEAST_LEAD / 2:
            self.ahead = NO_LEAD


@dataclass(frozen=True)
class Reservation:
    """`slots` are instants, oldest first. When fewer came back than were wanted, ask again at `ask_again_at`."""

    slots: tuple[datetime, ...]
    ask_again_at: datetime


def take(
    state: LaneState, limits: Limits, *, now_us: int, wanted: int, horizon_us: int
) -> tuple[list[int], int, LaneState]:
    """Give out up to `wanted` slots that lie at most `horizon_us` ahead; without a pace the first lies there, and what
    waits for the end of a pause is spread out behind it.

    Returns the slots, the instant at which the next one would lie, and the row's new state. Pure.
    """
    if limits.unpaced:
        slot = max(now_us, state.cool_down_until_us)
        if slot > now_us + horizon_us:
            return [], slot, state
        # What waits for the end of a pause does not leave in one instant.
        step = COOL_DOWN_SPREAD_US // max(1, wanted) if slot > now_us else 0
        return [slot + step * place for place in range(wanted)], slot, state
    untouched, state = state, at_interval(state, limits.interval_us)
    slots: list[int] = []
    while True:
        slot = _earliest(state, limits, now_us)
        if len(slots) == wanted or slot > now_us + horizon_us:
            return slots, slot, state if slots else untouched
        slots.append(slot)
        keep = max((count for count, _length in limits.windows), default=0)
        state = replace(
            state,
            next_slot_us=max(state.next_slot_us, slot) + limits.interval_us,
            recent=(*state.recent, slot)[-keep:] if keep else (),
        )


def _earliest(state: LaneState, limits: Limits, now_us: int) -> int:
    slot = max(now_us, state.cool_down_until_us, state.next_slot_us - (limits.burst - 1) * limits.interval_us)
    for count, length in limits.windows:
        if len(state.recent) >= count:
            slot = max(slot, state.recent[-count] + length)
    return slot


def at_interval(state: LaneState, interval_us: int) -> LaneState:
    """The row as if its last slot had been reckoned with this interval, so that a changed pace holds at once. Pure.

    Only the row itself tells that: the caller's `now` may be from before a long wait for the row, and what other
    pumps were given meanwhile must stay taken.
    """
    shift = interval_us - state.interval_us if state.interval_us else 0  # 0: nobody knows, so nothing is moved
    return replace(state, next_slot_us=max(0, state.next_slot_us + shift), interval_us=interval_us)


def submit_limits(account: ProviderAccount) -> Limits:
    """The account's submission limits, each window a little longer than the provider's, for the way there."""
    margin = int(ENGINE.window_margin_seconds * 1_000_000)
    return Limits(
        interval_us=sound_limit(account, "submit_interval_ms") * 1000,
        burst=sound_limit(account, "submit_burst"),
        windows=tuple(
            (count, int(length * 1_000_000) + margin) for count, length in sound_windows(account.submit_windows)
        ),
    )


def poll_limits(account: ProviderAccount) -> Limits:
    """Status reads have a budget of their own; a few may leave together."""
    return Limits(interval_us=sound_limit(account, "poll_interval_ms") * 1000, burst=4)


def download_limits(account: ProviderAccount) -> Limits:
    """Downloads too; without a pace, as most accounts are, only a pause holds them back."""
    return Limits(interval_us=sound_limit(account, "download_interval_ms") * 1000)


def is_unpaced(account: ProviderAccount) -> bool:
    """Whether nothing of the account ever waits for a slot, but for a pause that the provider asks for."""
    return all(limits(account).unpaced for limits in (submit_limits, poll_limits, download_limits))


def reserve(
    account_id: int,
    lane: Lane,
    limits: Limits,
    *,
    wanted: int,
    now: datetime,
    horizon_seconds: float,
    lead: timedelta = NO_LEAD,
    row: PacingLane | None = None,
    also: Callable[[int], Mapping[str, Any]] = lambda _given: {},
) -> Reservation:
    """Take slots from the shared row. Call it inside a transaction whose other writes belong to the slots.

    `row` is what `lock` gave in the same transaction, if it was called. No slot lies nearer than `lead`, which is
    shorter than the horizon.

    The row is locked while it is read (PostgreSQL; SQLite's transactions are alone anyway) and the UPDATE repeats
    its revision, so that two pumps can never be given the same slot. `also` names further columns of the row that
    the same UPDATE sets, from the number of slots that were given.
    """
    now_us, horizon_us = to_us(now), int(horizon_seconds * 1_000_000)
    with transaction.atomic(savepoint=False):
        row = row or lock(account_id, lane)
        state = LaneState(row.next_slot_us, row.cool_down_until_us, tuple(row.recent), row.interval_us)
        lead_us = 0 if limits.unpaced else lead // timedelta(microseconds=1)
        slots, following, new_state = take(
            state, limits, now_us=now_us + lead_us, wanted=wanted, horizon_us=horizon_us - lead_us
        )
        extra = also(len(slots)) if slots else {}
        if (new_state != state or extra) and not _advance(row, new_state, extra):
            slots, following = [], now_us  # another pump was first; the caller asks again
    # Asking a little before the slot comes near is soon enough, and late enough for the others.
    ask_again_us = max(now_us, following - horizon_us * 4 // 5)
    # The limits may be changed meanwhile, and then hold within about a second.
    ask_again_us = min(ask_again_us, now_us + int(ENGINE.account_refresh_seconds * 1_000_000))
    return Reservation(tuple(from_us(slot) for slot in slots), from_us(ask_again_us))


@dataclass(frozen=True)
class Outlook:
    """When the next submission may leave, and until when the provider asked for a pause (None: it did not)."""

    next_at: datetime
    pause_until: datetime | None


def outlook(account: ProviderAccount, row: PacingLane | None, *, now: datetime) -> Outlook:
    """What the lane's row means at this moment; takes nothing. Without a row nothing was ever sent. Pure."""
    now_us = to_us(now)
    if row is None:
        return Outlook(now, None)
    state = LaneState(row.next_slot_us, row.cool_down_until_us, tuple(row.recent), row.interval_us)
    _slots, next_us, _state = take(state, submit_limits(account), now_us=now_us, wanted=0, horizon_us=0)
    pause_us = row.cool_down_until_us
    return Outlook(from_us(max(next_us, pause_us)), from_us(pause_us) if pause_us > now_us else None)


def cool_down(account_id: int, lane: Lane, until: datetime) -> None:
    """Nobody sends on this lane before `until`: the provider asked for it. Never shortens a pause."""
    with transaction.atomic():
        row = lock(account_id, lane)
        if row.cool_down_until_us < to_us(until):
            row.cool_down_until_us = to_us(until)
            row.save(update_fields=["cool_down_until_us"])


def may_still_leave(slot: datetime, limits: Limits, now: datetime) -> bool:
    """False when a slot was missed by so much that using it would put two requests too close together."""
    if limits.unpaced:
        return True
    late = max(ENGINE.slot_late_seconds, ENGINE.slot_late_share * limits.interval_us / 1_000_000)
    return now <= slot + timedelta(seconds=late)


def lock(account_id: int, lane: Lane) -> PacingLane:
    """Hold the lane's row until the surrounding transaction ends, so that what is counted under it stays true.

    Only the lane's own columns are as fresh as the lock: ask for anything else by a statement after it.
    """
    lanes = PacingLane.objects.filter(account_id=account_id, lane=lane).select_for_update()
    row = lanes.first()
    if row is None:
        PacingLane.objects.bulk_create([PacingLane(account_id=account_id, lane=lane)], ignore_conflicts=True)
        row = lanes.get()
    return row


def _advance(row: PacingLane, state: LaneState, also: Mapping[str, Any]) -> bool:
    return bool(
        PacingLane.objects.filter(pk=row.pk, revision=row.revision).update(
            next_slot_us=state.next_slot_us,
            recent=list(state.recent),
            interval_us=state.interval_us,
            revision=row.revision + 1,
            **also,
        )
    )


def to_us(instant: datetime) -> int:
    """Whole microseconds since the epoch, without a float on the way."""
    return (instant - EPOCH) // timedelta(microseconds=1)


def from_us(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


def slots_in(limits: Limits, seconds: float) -> int:
    """About how many slots the interval allows in `seconds`, at least one."""
    return max(1, int(seconds * 1_000_000 // max(1, limits.interval_us)))
