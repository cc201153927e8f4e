"""A provider without keys, where a document is made as a draft and begun by a second call: one bill, come what may."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from batches.conf import ENGINE
from batches.engine import drafting, health, polling
from batches.models import AccountHealth, HoldReason, Job, ProviderAccount, Submission
from batches.providers import errors
from tests.engine.simulated import Lose, Refuse, Word
from tests.engine.simulated_drafts import DraftingProvider
from tests.scenarios.test_pumps_together import run_together
from tests.scenarios.world import World

NAMES = [f"INV-{number}" for number in range(1, 7)]
NEVER_ARRIVED = Refuse(errors.AnswerLost, "The connection was reset.")


class DraftWorld:
    """A `World` whose provider makes drafts."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.provider = world.provider = DraftingProvider(world.clock)

    def assert_saved(self, names: Sequence[str] = NAMES) -> None:
        """Each is saved, and each was billed once."""
        self.world.assert_saved(names, billed_once=False)
        assert {name: self.provider.bills_of(name) for name in names} == dict.fromkeys(names, 1)

    def run_to_the_end(self) -> None:
        self.world.run_to_the_end()


@pytest.fixture
def drafts(make_world: Callable[..., World]) -> DraftWorld:
    return DraftWorld(make_world(deadline_seconds=400))


def committed() -> bool:
    """That a start is tried stands in the database."""
    return Submission.objects.filter(started_at__isnull=False).exists()


def test_each_document_is_made_read_begun_and_saved(drafts: DraftWorld) -> None:
    drafts.world.hand_over(*NAMES)
    drafts.run_to_the_end()
    drafts.assert_saved()
    assert len(drafts.provider.jobs) == len(drafts.provider.starts) == len(NAMES)
    for start in drafts.provider.starts:
        submission = Submission.objects.get(provider_job_id=start.job_id)
        assert submission.started_at is not None
        assert submission.started_at <= start.at, "the intent comes first"
        assert drafts.provider.reads.index(start.job_id) >= 0


def test_a_lost_answer_to_the_draft_leaves_a_stray_draft_and_no_bill(drafts: DraftWorld) -> None:
    drafts.provider.script("INV-1", submit=[Lose(), Lose(errors.ServerFault)])
    drafts.world.hand_over("INV-1")
    drafts.run_to_the_end()
    drafts.assert_saved(["INV-1"])
    assert len(drafts.provider.jobs_of("INV-1")) == 3, "it is made again until its id is known"
    assert len({arrival.key for arrival in drafts.provider.arrivals}) == 1
    assert len(drafts.provider.starts_of("INV-1")) == 1
    assert drafts.provider.starts[0].job_id == Submission.objects.get().provider_job_id


@pytest.mark.parametrize("kind", [errors.AnswerLost, errors.ServerFault, errors.ContractBroken])
def test_a_lost_answer_to_the_start_is_settled_by_a_read(drafts: DraftWorld, kind: type[errors.OutcomeUnknown]) -> None:
    drafts.provider.script_start("INV-1", Lose(kind))
    drafts.world.hand_over("INV-1")
    drafts.run_to_the_end()
    drafts.assert_saved(["INV-1"])
    assert len(drafts.provider.starts) == 1


def test_a_start_that_never_arrived_is_sent_again_once_that_is_settled(drafts: DraftWorld) -> None:
    drafts.provider.script_start("INV-1", NEVER_ARRIVED, NEVER_ARRIVED)
    drafts.world.hand_over("INV-1")
    drafts.run_to_the_end()
    drafts.assert_saved(["INV-1"])
    times = [start.at for start in drafts.provider.starts]
    assert len(times) == 3
    for earlier, later in itertools.pairwise(times):
        assert later - earlier >= drafting.SETTLED_AFTER - drafting.LEAVES_WITHIN


def test_a_provider_that_shows_a_start_late_is_not_told_twice(drafts: DraftWorld) -> None:
    drafts.provider.shows_starts_after = timedelta(seconds=20)
    drafts.provider.script_start("INV-1", Lose())
    drafts.world.hand_over("INV-1", "INV-2")
    drafts.run_to_the_end()
    drafts.assert_saved(["INV-1", "INV-2"])
    assert len(drafts.provider.starts) == 2


def test_a_rate_limit_of_the_start_is_waited_out_and_costs_nothing(drafts: DraftWorld) -> None:
    drafts.provider.script_start("INV-1", Refuse(errors.RateLimited, retry_after=5))
    drafts.world.hand_over("INV-1")
    drafts.run_to_the_end()
    drafts.assert_saved(["INV-1"])
    refused, begun = drafts.provider.starts
    assert timedelta(seconds=5) <= begun.at - refused.at < drafting.SETTLED_AFTER


def test_a_start_keeps_its_slot_although_its_connection_takes_a_while(drafts: DraftWorld) -> None:
    drafts.provider.connect_seconds = 0.3
    ProviderAccount.objects.update(poll_interval_ms=100)
    drafts.world.hand_over(*NAMES)
    drafts.run_to_the_end()
    drafts.assert_saved()


# --- killed, suspended, overtaken ---


@pytest.mark.parametrize("has_left", [False, True], ids=["before the call", "after the call"])
def test_killed_around_the_start_it_is_begun_once(drafts: DraftWorld, has_left: bool) -> None:
    drafts.world.hand_over("INV-1")
    drafts.world.kill_when(lambda: len(drafts.provider.starts) == 1 if has_left else committed())
    assert drafts.world.killed()
    assert len(drafts.provider.starts) == has_left
    committed_at = Submission.objects.get().started_at
    assert committed_at is not None
    drafts.run_to_the_end()
    drafts.assert_saved(["INV-1"])
    assert len(drafts.provider.starts) == 1
    if not has_left:
        assert drafts.provider.starts[0].at >= committed_at + drafting.SETTLED_AFTER


@pytest.mark.parametrize("look", range(4, 90, 9))
def test_killed_at_any_look_at_the_clock_nothing_is_lost_and_nothing_is_billed_twice(
    drafts: DraftWorld, look: int
) -> None:
    drafts.provider.script("INV-2", submit=[Lose()])
    drafts.provider.script_start("INV-3", Lose())
    drafts.world.hand_over(*NAMES[:3])
    looks = 0

    def count() -> bool:
        nonlocal looks
        looks += 1
        return looks >= look

    for _ in range(3):
        looks = 0
        drafts.world.kill_when(count)
        drafts.world.killed()
        drafts.world.clock.advance(ENGINE.lease_seconds + 1)
    drafts.run_to_the_end()
    drafts.assert_saved(NAMES[:3])
    assert len(drafts.provider.starts) == 3


def test_a_start_that_was_committed_long_ago_does_not_leave_on_the_word_of_an_old_read(drafts: DraftWorld) -> None:
    """The pump is suspended between commit and call: what it read by then is too old to begin anything on."""
    drafts.world.hand_over("INV-1")

    def suspend() -> None:
        if committed():
            drafts.world.clock.on_look = None
            drafts.world.clock.advance(drafting.LEAVES_WITHIN.total_seconds() + 1)

    drafts.world.clock.on_look = suspend
    drafts.run_to_the_end()
    drafts.assert_saved(["INV-1"])
    (start,) = drafts.provider.starts
    submission = Submission.objects.get()
    assert submission.started_at is not None
    assert start.at <= submission.started_at + drafting.LEAVES_WITHIN


def test_an_overtaken_pump_begins_nothing(drafts: DraftWorld) -> None:
    drafts.world.hand_over("INV-1")

    def overtake() -> None:
        if committed() and not drafts.provider.starts:
            drafts.world.clock.on_look = None
            drafts.world.clock.advance(ENGINE.lease_seconds + 5)
            drafts.run_to_the_end()

    drafts.world.clock.on_look = overtake
    drafts.world.pump().run()
    drafts.run_to_the_end()
    drafts.assert_saved(["INV-1"])
    assert len(drafts.provider.starts) == 1


def test_pumps_at_the_same_time_begin_each_draft_once(drafts: DraftWorld) -> None:
    drafts.provider.script_start("INV-2", Lose())
    drafts.provider.script("INV-3", submit=[Lose()])
    drafts.world.hand_over(*NAMES)
    run_together(drafts.world, 3)
    drafts.run_to_the_end()
    drafts.assert_saved()
    assert len(drafts.provider.starts) == len(NAMES)


def test_a_pump_that_ends_gives_its_drafts_back_and_the_next_begins_them_at_once(drafts: DraftWorld) -> None:
    drafts.world.hand_over(*NAMES)
    drafts.world.pump(stopping=committed).run()
    assert not Job.objects.exclude(lease_owner=None).exists()
    stopped_at = drafts.world.clock.now()
    drafts.run_to_the_end()
    drafts.assert_saved()
    assert drafts.world.clock.now() < stopped_at + drafting.SETTLED_AFTER


# --- the account ---


@pytest.mark.parametrize("moment", ["before it is committed", "after it is committed"])
def test_an_account_that_is_held_in_between_begins_nothing_until_it_is_open(drafts: DraftWorld, moment: str) -> None:
    drafts.world.hand_over("INV-1")

    def hold() -> None:
        if committed() if moment.startswith("after") else Submission.objects.exists():
            drafts.world.clock.on_look = None
            health.hold(drafts.world.account.pk, reason=HoldReason.AUTH, words="By hand.", now=drafts.world.clock.now())

    drafts.world.clock.on_look = hold
    drafts.world.run_for(90)
    assert drafts.provider.starts == []
    assert drafts.world.states()["INV-1"] in ("accepted", "submitting")
    ProviderAccount.objects.update(health=AccountHealth.OPEN, hold_reason="", hold_words="", held_at=None)
    drafts.run_to_the_end()
    drafts.assert_saved(["INV-1"])
    assert len(drafts.provider.starts) == 1


def test_without_credit_the_account_is_held_and_its_drafts_begin_once_there_is_some(drafts: DraftWorld) -> None:
    drafts.provider.has_credit = False
    drafts.world.hand_over("INV-1", "INV-2")
    drafts.world.run_until(lambda: drafts.world.account_now().health == AccountHealth.HELD)
    assert drafts.world.account_now().hold_reason == HoldReason.CREDIT
    drafts.world.run_for(30)
    assert not any(start.is_billed for start in drafts.provider.starts)
    drafts.provider.has_credit = True
    ProviderAccount.objects.update(health=AccountHealth.OPEN, hold_reason="", hold_words="", held_at=None)
    drafts.run_to_the_end()
    drafts.assert_saved(["INV-1", "INV-2"])


# --- what never begins ---


def test_a_draft_that_can_never_begin_ends_at_its_deadline_in_words(drafts: DraftWorld) -> None:
    drafts.provider.script_start("INV-1", *[Refuse(errors.RateLimited, retry_after=3)] * 400)
    drafts.provider.script_start("INV-2", *[NEVER_ARRIVED] * 400)
    drafts.world.hand_over("INV-1", "INV-2")
    drafts.run_to_the_end()
    assert drafts.world.failures() == dict.fromkeys(["INV-1", "INV-2"], "deadline_exceeded")
    assert "“draft”" in drafts.world.job("INV-1").failure_words
    assert polling.NEVER_BEGUN in drafts.world.job("INV-1").failure_words
    assert polling.MAYBE_BEGUN in drafts.world.job("INV-2").failure_words
    assert len(drafts.provider.starts_of("INV-2")) <= 400 / (drafting.SETTLED_AFTER.total_seconds() - 1) + 1
    before = len(drafts.provider.starts)
    drafts.world.run_for(600)
    assert len(drafts.provider.starts) == before, "the late watch begins nothing"


def test_a_start_that_is_refused_for_its_document_ends_that_document_alone(drafts: DraftWorld) -> None:
    drafts.provider.script_start("INV-1", Refuse(errors.InvalidInput, "The template needs a name.", code="422"))
    drafts.provider.script("INV-2", status=[Word("generating")] * 3)
    drafts.world.hand_over("INV-1", "INV-2")
    drafts.run_to_the_end()
    assert drafts.world.failures() == {"INV-1": "invalid_input"}
    drafts.assert_saved(["INV-2"])
