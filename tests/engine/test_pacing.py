"""The arithmetic of slots: interval, burst and windows hold together, and what was missed is never made up for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from batches.conf import ENGINE
from batches.engine import pacing
from batches.engine.pacing import LaneState, Limits
from batches.models import Lane, PacingLane, ProviderAccount
from tests import factories
from tests.engine.samples import account as unsaved_account
from tests.factories import NOW

SECOND = 1_000_000
FAR = 10**9 * SECOND  # a horizon that never ends
T0 = 1_700_000_000 * SECOND


def given_out(limits: Limits, count: int, *, state: LaneState | None = None, now_us: int = T0) -> list[float]:
    """`count` slots asked for at once with an endless horizon, as seconds after T0."""
    slots, _following, _state = pacing.take(state or LaneState(), limits, now_us=now_us, wanted=count, horizon_us=FAR)
    return [(slot - T0) / SECOND for slot in slots]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(3 * SECOND), [0, 3, 6, 9]),
        (Limits(3 * SECOND, burst=3), [0, 0, 0, 3]),
        (Limits(0, windows=((2, 10 * SECOND),)), [0, 0, 10, 10]),
        (Limits(SECOND, windows=((2, 10 * SECOND),)), [0, 1, 10, 11]),
        (Limits(SECOND, windows=((3, 5 * SECOND), (4, 60 * SECOND))), [0, 1, 2, 5, 60, 61]),
        (Limits(SECOND, burst=5, windows=((3, 5 * SECOND),)), [0, 0, 0, 5, 5, 5, 10]),
    ],
)
def test_slots_of_an_idle_lane(limits: Limits, expected: list[float]) -> None:
    assert given_out(limits, len(expected)) == expected


def test_the_two_windows_of_the_vendor_hold_at_once() -> None:
    limits = Limits(0, burst=100, windows=((20, 60 * SECOND), (5, 10 * SECOND)))
    slots = given_out(limits, 45)
    assert slots[:21] == [0] * 5 + [10] * 5 + [20] * 5 + [30] * 5 + [60]
    assert slots[40] == 120


def test_time_that_passed_unused_is_not_made_up_for() -> None:
    limits = Limits(3 * SECOND)
    _slots, _next, state = pacing.take(LaneState(), limits, now_us=T0, wanted=1, horizon_us=0)
    assert given_out(limits, 3, state=state, now_us=T0 + 60 * SECOND) == [60, 63, 66]


def test_a_quiet_time_earns_no_more_than_the_burst() -> None:
    limits = Limits(SECOND, burst=2)
    _slots, _next, state = pacing.take(LaneState(), limits, now_us=T0, wanted=5, horizon_us=FAR)
    assert given_out(limits, 4, state=state, now_us=T0 + 3600 * SECOND) == [3600, 3600, 3601, 3602]


def test_nothing_is_given_out_beyond_the_horizon() -> None:
    slots, following, state = pacing.take(LaneState(), Limits(SECOND), now_us=T0, wanted=100, horizon_us=2 * SECOND)
    assert [slot - T0 for slot in slots] == [0, SECOND, 2 * SECOND]
    assert following == T0 + 3 * SECOND
    again, following, state = pacing.take(state, Limits(SECOND), now_us=T0, wanted=100, horizon_us=2 * SECOND)
    assert (again, following) == ([], T0 + 3 * SECOND)


def test_asking_for_nothing_changes_nothing() -> None:
    state = LaneState(next_slot_us=T0 + 5, recent=(T0,))
    assert pacing.take(state, Limits(10), now_us=T0, wanted=0, horizon_us=FAR)[0::2] == ([], state)


def test_a_cool_down_holds_every_slot_back_also_those_of_a_burst() -> None:
    state = LaneState(cool_down_until_us=T0 + 30 * SECOND)
    assert given_out(Limits(SECOND, burst=2), 3, state=state) == [30, 30, 31]


def test_only_as_many_slots_are_remembered_as_the_largest_window_counts() -> None:
    limits = Limits(1, windows=((2, SECOND), (5, 10 * SECOND)))
    _slots, _next, state = pacing.take(LaneState(), limits, now_us=T0, wanted=50, horizon_us=FAR)
    assert len(state.recent) == 5
    _slots, _next, state = pacing.take(LaneState(), Limits(1), now_us=T0, wanted=50, horizon_us=FAR)
    assert state.recent == ()


_limits = st.builds(
    Limits,
    interval_us=st.integers(0, 5 * SECOND),
    burst=st.integers(1, 6),
    windows=st.lists(st.tuples(st.integers(1, 8), st.integers(1, 20 * SECOND)), max_size=3).map(tuple),
)
_asks = st.lists(
    st.tuples(st.integers(0, 8 * SECOND), st.integers(0, 7), st.integers(0, 10 * SECOND), st.booleans()), max_size=40
)


@settings(max_examples=150, deadline=None)
@given(_limits, _asks)
@example(Limits(0), [(3, 0, 1251, True), (2, 3, 4, False), (0, 3, 3280, False)])
@example(Limits(0), [(3 * SECOND, 4, 3_250_000, True), (0, 2, 10 * SECOND, False)])
def test_whoever_asks_and_whenever_no_limit_is_ever_passed(
    limits: Limits, asks: list[tuple[int, int, int, bool]]
) -> None:
    state, now_us, given_slots = LaneState(), T0, []
    for passed, wanted, horizon, trouble in asks:
        now_us += passed
        if trouble:
            cool_down = max(state.cool_down_until_us, now_us + passed)
            state = LaneState(state.next_slot_us, cool_down, state.recent)
        slots, following, state = pacing.take(state, limits, now_us=now_us, wanted=wanted, horizon_us=horizon)
        assert len(slots) <= wanted
        latest = now_us + horizon + (pacing.COOL_DOWN_SPREAD_US if limits.unpaced else 0)
        assert all(max(now_us, state.cool_down_until_us) <= slot <= latest for slot in slots)
        assert len(slots) == wanted or following > now_us + horizon
        given_slots += slots
    if limits.unpaced:
        return  # nothing but the pause holds anything back, so who asks twice may be given the same instants
    assert given_slots == sorted(given_slots)
    for index, first in enumerate(given_slots):
        for further, last in enumerate(given_slots[index:]):
            assert last - first >= (further - limits.burst + 1) * limits.interval_us
        for count, length in limits.windows:
            if index + count < len(given_slots):
                assert given_slots[index + count] - first >= length


def test_what_was_missed_is_looked_for_further_ahead_and_what_is_met_nearer_again() -> None:
    lead = pacing.Lead()
    lead.met()
    assert lead.ahead == pacing.NO_LEAD
    seen = [lead.missed() or lead.ahead.total_seconds() for _ in range(6)]
    assert seen == [0.02, 0.04, 0.08, 0.16, ENGINE.slot_horizon_seconds / 2, ENGINE.slot_horizon_seconds / 2]
    for _ in range(40):
        lead.met()
    assert lead.ahead == pacing.NO_LEAD


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 60), st.integers(1, 4), st.integers(1, 120))
def test_a_lane_that_is_asked_often_enough_loses_no_rate(interval_ms: int, burst: int, seconds: int) -> None:
    """Holding the limits is easy by sending too little: after n intervals, n slots have been given out."""
    limits, state, count = Limits(interval_ms * 1000, burst), LaneState(), 0
    steps = seconds * 10
    for step in range(steps):
        now_us = T0 + step * SECOND // 10
        slots, _next, state = pacing.take(state, limits, now_us=now_us, wanted=1000, horizon_us=SECOND // 10)
        count += len(slots)
    assert count >= (steps * SECOND // 10) // limits.interval_us


# --- what an account's settings mean ---


def test_an_accounts_settings_become_limits_with_a_margin_on_windows() -> None:
    margin = int(ENGINE.window_margin_seconds * SECOND)
    given_account = unsaved_account(submit_interval_ms=3000, submit_burst=2, submit_windows=[[20, 60], [5, 10.5]])
    assert pacing.submit_limits(given_account) == Limits(
        3 * SECOND, 2, ((20, 60 * SECOND + margin), (5, 10_500_000 + margin))
    )
    assert pacing.poll_limits(unsaved_account(poll_interval_ms=20)).interval_us == 20_000


@pytest.mark.parametrize(
    ("interval_ms", "late_ms", "may"),
    [
        (50, -100, True),
        (50, 0, True),
        (50, 8, True),  # a fixed bound for short intervals
        (50, 9, False),
        (3000, 120, True),  # a share of long ones
        (3000, 121, False),
    ],
)
def test_a_slot_missed_by_more_than_the_tolerance_is_given_up(interval_ms: int, late_ms: int, may: bool) -> None:
    limits = Limits(interval_ms * 1000)
    assert pacing.may_still_leave(NOW, limits, NOW + timedelta(milliseconds=late_ms)) is may


@pytest.mark.parametrize(
    ("interval_us", "seconds", "count"), [(50_000, 1.0, 20), (3 * SECOND, 1.0, 1), (0, 1.0, SECOND), (1, 0.0, 1)]
)
def test_about_how_many_slots_fit_into_a_time(interval_us: int, seconds: float, count: int) -> None:
    assert pacing.slots_in(Limits(interval_us), seconds) == count


@given(st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001 - given a zone here
def test_instants_survive_the_way_through_whole_microseconds(instant: datetime) -> None:
    assert pacing.from_us(pacing.to_us(instant)) == instant


# --- the shared row ---


def reserve(account: ProviderAccount, wanted: int, now: datetime, horizon: float = 60.0) -> pacing.Reservation:
    return pacing.reserve(account.pk, Lane.SUBMIT, Limits(SECOND), wanted=wanted, now=now, horizon_seconds=horizon)


def test_reservations_go_on_where_the_row_stands(account: ProviderAccount, now: datetime) -> None:
    first, second = reserve(account, 2, now), reserve(account, 2, now)
    assert [(slot - now).total_seconds() for slot in first.slots + second.slots] == [0, 1, 2, 3]
    assert PacingLane.objects.get().revision == 2


def test_who_got_too_little_is_told_when_to_ask_again(account: ProviderAccount, now: datetime) -> None:
    reservation = reserve(account, 5, now, horizon=0.5)
    assert reservation.slots == (now,)
    assert now < reservation.ask_again_at <= now + timedelta(seconds=1)
    later = reserve(account, 5, reservation.ask_again_at, horizon=0.5)
    assert later.slots == (now + timedelta(seconds=1),)


def test_the_lanes_of_an_account_and_the_accounts_have_budgets_of_their_own(
    account: ProviderAccount, now: datetime
) -> None:
    other = factories.make_account()
    for account_id, lane in ((account.pk, Lane.SUBMIT), (account.pk, Lane.POLL), (other.pk, Lane.SUBMIT)):
        reservation = pacing.reserve(account_id, lane, Limits(SECOND), wanted=1, now=now, horizon_seconds=0.5)
        assert reservation.slots == (now,)


def test_a_cool_down_is_shared_and_never_shortened(account: ProviderAccount, now: datetime) -> None:
    pacing.cool_down(account.pk, Lane.SUBMIT, now + timedelta(seconds=30))
    pacing.cool_down(account.pk, Lane.SUBMIT, now + timedelta(seconds=10))
    assert reserve(account, 1, now, horizon=20).slots == ()
    assert reserve(account, 1, now, horizon=40).slots == (now + timedelta(seconds=30),)
    poll = pacing.reserve(account.pk, Lane.POLL, Limits(1), wanted=1, now=now, horizon_seconds=0.5)
    assert poll.slots == (now,)


class TestNoPace:
    """Interval 0 and no windows: nothing but a pause that the provider asked for."""

    def test_gives_out_whatever_is_wanted_at_once_and_writes_nothing(self) -> None:
        state = LaneState(next_slot_us=T0 + SECOND)
        assert pacing.take(state, Limits(0), now_us=T0, wanted=3, horizon_us=0) == ([T0] * 3, T0, state)

    def test_waits_for_the_end_of_a_pause(self) -> None:
        state = LaneState(cool_down_until_us=T0 + 9 * SECOND)
        assert pacing.take(state, Limits(0), now_us=T0, wanted=3, horizon_us=SECOND) == ([], T0 + 9 * SECOND, state)

    def test_what_waited_for_the_end_of_a_pause_does_not_leave_in_one_instant(self) -> None:
        paused = LaneState(cool_down_until_us=T0 + SECOND // 2)
        slots, following, state = pacing.take(paused, Limits(0), now_us=T0, wanted=40, horizon_us=SECOND // 2)
        assert (slots[0], following, state) == (T0 + SECOND // 2, T0 + SECOND // 2, paused)
        assert len(set(slots)) == 40
        assert slots[-1] - slots[0] <= pacing.COOL_DOWN_SPREAD_US
        assert pacing.take(paused, Limits(0), now_us=T0 - 1, wanted=40, horizon_us=SECOND // 2)[0] == []
        assert set(pacing.take(paused, Limits(0), now_us=T0 + SECOND, wanted=40, horizon_us=0)[0]) == {T0 + SECOND}

    def test_knows_no_slot_that_was_missed(self) -> None:
        assert pacing.may_still_leave(NOW, Limits(0), NOW + timedelta(minutes=1))
        assert not pacing.may_still_leave(NOW, Limits(0, windows=((5, SECOND),)), NOW + timedelta(minutes=1))


# --- limits that change while pumps run ---


def test_a_faster_pace_holds_from_the_next_slot_on() -> None:
    """The next slot is one new interval after the last one that was given out."""
    fast = Limits(SECOND // 10)
    _slots, _next, state = pacing.take(LaneState(), Limits(60 * SECOND), now_us=T0, wanted=1, horizon_us=SECOND // 2)
    slots, _next, _state = pacing.take(state, fast, now_us=T0, wanted=2, horizon_us=FAR)
    assert [(slot - T0) / SECOND for slot in slots] == [0.1, 0.2]


def test_whoever_waited_long_for_the_row_is_given_no_slot_that_others_have() -> None:
    """Its `now` is from before its wait; ten slots were given out since."""
    limits = Limits(SECOND // 20)
    state = LaneState()
    taken: list[int] = []
    for at in range(0, 3 * SECOND, SECOND // 4):
        slots, _next, state = pacing.take(state, limits, now_us=T0 + at, wanted=99, horizon_us=SECOND // 2)
        taken += slots
    late, _next, _state = pacing.take(state, limits, now_us=T0 + SECOND, wanted=5, horizon_us=FAR)
    assert min(late) >= max(taken) + limits.interval_us


def test_two_pumps_that_know_different_limits_for_a_moment_shift_the_row_by_nothing() -> None:
    slow, fast = Limits(3 * SECOND), Limits(SECOND // 10)
    _slots, _next, state = pacing.take(LaneState(), slow, now_us=T0, wanted=1, horizon_us=0)
    for _ in range(5):
        state = pacing.at_interval(pacing.at_interval(state, fast.interval_us), slow.interval_us)
    assert state.next_slot_us == T0 + 3 * SECOND


def test_a_slower_pace_holds_from_the_next_slot_on() -> None:
    slots, _next, state = pacing.take(LaneState(), Limits(SECOND // 10), now_us=T0, wanted=99, horizon_us=SECOND // 2)
    assert len(slots) == 6
    later, _next, _state = pacing.take(state, Limits(3 * SECOND), now_us=T0 + SECOND // 2, wanted=3, horizon_us=FAR)
    assert [(slot - T0) / SECOND for slot in later] == [3.5, 6.5, 9.5]


@pytest.mark.parametrize(
    ("windows", "kept"),
    [
        ([[0, 5]], 0),
        ([[20]], 0),
        ("nonsense", 0),
        ([None, ["a", "b"], [5, 10]], 1),
        ({"count": 5}, 0),
        ([[5, -1]], 0),
        ([[True, 5]], 0),
        ([[10**30, 5], [5, 10**30], [5, float("inf")], [5, float("nan")]], 3),
        (None, 0),
    ],
)
def test_a_row_that_was_written_past_the_rules_still_has_a_pace(windows: object, kept: int) -> None:
    limits = pacing.submit_limits(unsaved_account(submit_windows=windows))
    assert len(limits.windows) == kept
    assert len(given_out(limits, 3)) == 3
