"""What was given up on is read on, slowly: a late success is saved, a second one is surplus, and each watch ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from batches.conf import ENGINE
from batches.engine import (
    applying,
    collection,
    durations,
    health,
    latewatch,
    pacing,
    slots,
    standings,
    verbs,
    work,
)
from batches.engine.audit import By
from batches.engine.blocks import Blocks
from batches.engine.orders import Order
from batches.models import (
    Alert,
    Artifact,
    BatchItem,
    Duration,
    HoldReason,
    Job,
    Lane,
    PacingLane,
    Submission,
    Verb,
)
from batches.providers import errors
from batches.selectors import in_flight_count
from tests import factories
from tests.engine.simulated import Complete, Fail, Page, Refuse, SimulatedJob, Word
from tests.engine.vendor import pdf
from tests.scenarios.watching import FIRST, given_up, watched_for
from tests.scenarios.world import World


def test_a_job_that_finishes_after_its_deadline_is_saved_and_its_alert_closes(world: World) -> None:
    row = given_up(world)
    assert row.watch_at is not None
    assert world.open_alerts() == ["deadline_exceeded"]
    reads = len(world.provider.reads)
    world.run_for(FIRST / 2)
    assert len(world.provider.reads) == reads, "slowly"
    world.provider.script("INV-1", status=[Word("processing"), Complete()])
    world.clock.advance(FIRST)
    world.run_until(lambda: world.states() == {"INV-1": "saved"}, within=3600)
    world.assert_saved(["INV-1"])
    assert world.open_alerts() == []
    row.refresh_from_db()
    assert (row.outcome, row.watch_at) == ("delivered", None)
    assert "finished_late" in world.reasons("INV-1")
    assert len(world.provider.arrivals) == 1


def test_a_late_success_is_recorded_and_neither_polls_nor_deadlines_learn_from_it(world: World) -> None:
    given_up(world)
    world.provider.script("INV-1", status=[Complete()])
    world.clock.advance(FIRST)
    world.run_until(lambda: world.states() == {"INV-1": "saved"}, within=3600)
    rows = list(Duration.objects.order_by("pk").values_list("outcome", "remote_seconds"))
    assert rows == [("deadline_exceeded", None), ("saved", None)]
    assert durations.latest(world.account.pk) == []


def test_a_due_watch_wants_a_pump_although_nothing_else_is_due(world: World) -> None:
    given_up(world)
    slots.ensure(1)
    assert work.pumps_wanted(now=world.clock.now()) == 0
    world.clock.advance(FIRST + 60)
    assert work.pumps_wanted(now=world.clock.now()) == 1
    assert in_flight_count(world.account) == 0, "a late watch is not in progress"


def test_a_failure_that_turns_into_success_is_fetched(world: World) -> None:
    world.provider.script("INV-1", status=[Fail("font_missing", "A font is missing.")])
    world.hand_over("INV-1")
    world.run_to_the_end()
    assert world.states() == {"INV-1": "failed"}
    world.clock.advance(FIRST + 60)
    world.run_until(lambda: world.states() == {"INV-1": "saved"}, within=60)
    world.assert_saved(["INV-1"])


@pytest.mark.parametrize("not_found", [False, True])
def test_one_past_its_deadline_that_is_read_as_failed_and_unbilled_twice_may_be_retried(
    world: World, *, not_found: bool
) -> None:
    """Until then nothing but Regenerate, which bills for sure, would have led on."""
    if not_found:
        world.provider.script("INV-1", status=itertools.repeat(Refuse(errors.NotFound)))
        world.hand_over("INV-1")
        world.run_to_the_end()
    else:
        given_up(world)
    row = world.job("INV-1").submissions.get()
    world.provider.script("INV-1", status=itertools.repeat(Fail(unbilled=True)))
    world.clock.advance(FIRST + 60)
    world.run_until(lambda: Submission.objects.get(pk=row.pk).failed_at is not None, within=60)
    assert world.states() == {"INV-1": "deadline_exceeded"}, "read once it proves nothing"
    watched_for(world, 1)
    row.refresh_from_db()
    assert (world.states(), world.failures()) == ({"INV-1": "failed"}, {"INV-1": "render_failed"})
    assert (row.outcome, row.failed_again_at is not None, world.open_alerts()) == ("render_failed", True, [])
    item = world.job("INV-1").version.items.get()
    standing = standings.of_items(BatchItem.objects.filter(pk=item.pk))[item.pk]
    assert verbs.answer(Verb.RETRY, standing, now=world.clock.now()) == verbs.MAYBE
    world.provider.script("INV-1", status=itertools.repeat(Complete()))
    applying.apply(Verb.RETRY, [item.pk], order=Order(By(None, "ada", "a test"), "It may."), now=world.clock.now())
    world.run_until(lambda: world.states() == {"INV-1": "saved"}, within=60)
    assert len(world.provider.arrivals) == 2


def test_one_that_failed_late_and_is_finished_all_the_same_is_fetched(world: World) -> None:
    given_up(world)
    world.provider.script("INV-1", status=itertools.repeat(Fail(unbilled=True)))
    watched_for(world, 2)
    assert world.failures() == {"INV-1": "render_failed"}
    world.provider.script("INV-1", status=itertools.repeat(Complete()))
    watched_for(world, 3)
    world.assert_saved(["INV-1"])
    assert len(world.provider.arrivals) == 1


def closed_and_watched(world: World, job: Job, *, provider_job_id: str, name: str) -> Submission:
    """A submission that was closed as failed, has its late read due, and is finished at the provider after all."""
    now = world.clock.now()
    row = factories.make_submission(
        job=job,
        provider_job_id=provider_job_id,
        accepted_at=now,
        in_doubt=False,
        outcome="render_failed",
        closed_at=now,
        watch_at=now,
        watch_until=now + timedelta(hours=1),
    )
    world.provider.jobs[provider_job_id] = SimulatedJob(provider_job_id, name, "k", "d", now, read_count=5)
    return row


def test_a_second_success_is_surplus_and_the_stored_file_is_untouched(world: World) -> None:
    """The first submission was closed as failed; another one was made and saved; then the first one is finished too."""
    world.hand_over("INV-1")
    world.run_to_the_end()
    job = world.job("INV-1")
    artifact = Artifact.objects.get()
    extra = closed_and_watched(world, job, provider_job_id="pdf_extra", name="INV-1")
    world.run_for(10)
    extra.refresh_from_db()
    assert (extra.outcome, extra.watch_at) == ("surplus", None)
    assert world.open_alerts() == ["surplus"]
    assert "billed" in Alert.objects.get(closed_at=None).words
    assert world.stored("INV-1") == pdf("INV-1")
    assert Artifact.objects.get().stored_at == artifact.stored_at
    assert world.states() == {"INV-1": "saved"}


def test_while_another_submission_is_under_way_the_late_one_waits(world: World) -> None:
    job = factories.make_accepted_job(batch=factories.make_batch(workspace=world.workspace, account=world.account))
    Job.objects.filter(pk=job.pk).update(due_at=world.clock.now() + timedelta(hours=2))
    closed = closed_and_watched(world, job, provider_job_id="pdf_old", name="x")
    world.run_for(10)
    job.refresh_from_db()
    closed.refresh_from_db()
    assert (job.state, closed.outcome) == ("accepted", "render_failed")
    assert closed.watch_at is not None, "it is looked at again"
    assert "finished_meanwhile" in list(job.events.values_list("reason", flat=True)), "and nothing of it is silent"


def test_a_watch_ends_with_the_providers_retention_and_its_reads_grow_apart(world: World) -> None:
    row = given_up(world)
    reads = len(world.provider.reads)
    for _ in range(200):
        row.refresh_from_db()
        if row.watch_at is None:
            break
        world.clock.advance(max(0.0, (row.watch_at - world.clock.now()).total_seconds()))
        world.run_for(1)
    assert row.watch_at is None
    assert 15 < len(world.provider.reads) - reads < 60
    assert world.states() == {"INV-1": "deadline_exceeded"}
    assert world.job("INV-1").failure_class == "deadline_exceeded"


@pytest.mark.parametrize(
    ("said", "is_renewed", "kept_for"),
    [
        (7 * 86400, False, 7 * 86400),
        (None, False, ENGINE.link_lifetime_seconds),
        (3600, True, ENGINE.link_lifetime_seconds),  # the link's hour is not the file's
    ],
)
def test_a_watch_lasts_for_as_long_as_the_provider_says_that_it_keeps_results(
    world: World, said: int | None, is_renewed: bool, kept_for: float
) -> None:
    world.provider.capabilities = replace(
        world.provider.capabilities, link_lifetime_seconds=said, link_refresh=is_renewed
    )
    row = given_up(world)
    assert row.watch_until is not None
    last_read_at = world.job("INV-1").state_changed_at
    assert abs((row.watch_until - last_read_at).total_seconds() - kept_for) < 5


def test_two_pumps_never_make_the_same_late_read(world: World) -> None:
    given_up(world)
    world.clock.advance(FIRST + 60)
    now = world.clock.now()
    account = world.account_now()
    first = latewatch.claim_due(account, Blocks(Lane.POLL, ENGINE), now=now, most=5)
    second = latewatch.claim_due(account, Blocks(Lane.POLL, ENGINE), now=now, most=5)
    assert (len(first), len(second)) == (1, 0)


def test_a_job_that_was_not_found_is_watched_too_with_its_id(world: World) -> None:
    world.provider.script("INV-1", status=itertools.repeat(Refuse(errors.NotFound)))
    world.hand_over("INV-1")
    world.run_to_the_end()
    assert world.failures() == {"INV-1": "job_not_found"}
    world.provider.script("INV-1", status=[Complete()])
    world.clock.advance(FIRST + 60)
    world.run_until(lambda: world.states() == {"INV-1": "saved"}, within=60)
    assert len(world.provider.arrivals) == 1


def test_a_refused_key_on_a_late_read_holds_the_account(world: World) -> None:
    given_up(world)
    world.provider.key_is_good = False
    world.clock.advance(FIRST + 60)
    world.run_for(10)
    assert world.account_now().hold_reason == HoldReason.AUTH
    assert world.states() == {"INV-1": "deadline_exceeded"}


def late_answer(world: World, answer: Refuse) -> None:
    world.provider.script("INV-1", status=[answer, *itertools.repeat(Word("processing"), 50)])
    world.clock.advance(FIRST + 60)
    world.run_for(2)


def test_an_empty_wallet_that_a_late_read_meets_holds_the_account(world: World) -> None:
    given_up(world)
    late_answer(world, Refuse(errors.InsufficientCredit, "No funds."))
    assert (world.account_now().hold_reason, world.account_now().hold_words) == (HoldReason.CREDIT, "No funds.")


def test_a_late_read_that_does_not_get_through_counts_and_one_that_does_ends_the_count(world: World) -> None:
    given_up(world)
    late_answer(world, Refuse(errors.AnswerLost))
    assert world.account_now().transport_failure_count == 1
    world.clock.advance(2 * FIRST + 60)
    world.run_for(2)
    assert world.account_now().transport_failure_count == 0


def test_a_pause_that_a_late_read_is_asked_for_ends_the_slots_that_its_pump_holds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_up(world)
    forgotten: list[Lane] = []
    monkeypatch.setattr(Blocks, "forget", lambda blocks: forgotten.append(blocks._lane))
    late_answer(world, Refuse(errors.RateLimited, retry_after=40.0))
    assert forgotten == [Lane.POLL, Lane.DOWNLOAD]
    lane = PacingLane.objects.get(account=world.account, lane=Lane.POLL)
    assert lane.cool_down_until_us > pacing.to_us(world.clock.now() + timedelta(seconds=30))


@pytest.mark.parametrize("kind", [errors.AnswerLost, errors.ServerFault, errors.ContractBroken, errors.NotFound])
def test_a_late_read_that_fails_proves_nothing(world: World, kind: type[errors.ProviderError]) -> None:
    row = given_up(world)
    world.provider.script("INV-1", status=[Refuse(kind)])
    world.clock.advance(FIRST + 60)
    world.run_for(10)
    row.refresh_from_db()
    assert world.states() == {"INV-1": "deadline_exceeded"}
    assert row.watch_at is not None
    assert row.watch_at > world.clock.now()


def crash(*_given: object, **_named: object) -> None:
    raise RuntimeError("a fault of ours")


ENDS: dict[str, tuple[Callable[[World], None], str, int]] = {
    "deadline_exceeded": (
        lambda world: world.provider.script("INV-1", status=itertools.repeat(Word("processing"))),
        "deadline_exceeded",
        0,
    ),
    "job_not_found": (
        lambda world: world.provider.script("INV-1", status=itertools.repeat(Refuse(errors.NotFound))),
        "job_not_found",
        0,
    ),
    "render_failed": (
        lambda world: world.provider.script("INV-1", status=itertools.repeat(Fail())),
        "render_failed",
        0,
    ),
    "internal": (lambda world: None, "internal", ENGINE.rescues_most),
    "bad_output": (
        lambda world: world.provider.script(
            "INV-1", status=itertools.repeat(Complete()), download=itertools.repeat(Page())
        ),
        "bad_output",
        0,
    ),
    "expired": (
        lambda world: world.provider.script(
            "INV-1", status=itertools.repeat(Complete()), download=itertools.repeat(Refuse(errors.NotFound))
        ),
        "expired",
        0,
    ),
    "invalid_input": (
        lambda world: world.provider.script("INV-1", submit=[Refuse(errors.InvalidInput)]),
        "invalid_input",
        0,
    ),
}
#: A finished job's failures are not watched: the provider has delivered, or has nothing any more.
WATCHED = {"deadline_exceeded", "job_not_found", "render_failed", "internal"}


@pytest.mark.parametrize("name", sorted(ENDS))
def test_every_failure_that_lasts_comes_to_rest_and_only_what_may_be_delivered_yet_is_watched(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    begin, failure_class, rescues = ENDS[name]
    begin(world)
    if name == "internal":
        monkeypatch.setattr(collection, "collect", crash)
    world.hand_over("INV-1")
    world.run_to_the_end()
    row = world.job("INV-1").submissions.get()
    assert world.failures() == {"INV-1": failure_class}
    assert (row.watch_at is not None) == (name in WATCHED)
    downloads = len(world.provider.downloads)
    watched_for(world, 26)
    row.refresh_from_db()
    assert row.watch_at is None, "it has come to rest"
    assert world.failures() == {"INV-1": failure_class}
    assert world.reasons("INV-1").count("finished_late") == rescues
    assert ("not_rescued_again" in world.reasons("INV-1")) == bool(rescues)
    assert len(world.provider.downloads) == downloads


def test_a_word_that_keeps_changing_between_finished_and_not_does_not_go_on_for_ever(world: World) -> None:
    given_up(world)
    world.provider.script(
        "INV-1",
        status=itertools.cycle([Complete(), Word("processing"), Word("processing")]),
        download=itertools.repeat(Refuse(errors.NotFound)),
    )
    watched_for(world, 30)
    assert world.reasons("INV-1").count("finished_late") == ENGINE.rescues_most
    assert world.job("INV-1").submissions.get().watch_at is None


def test_a_due_watch_of_a_refused_key_rings_no_pump_until_the_key_is_good(world: World) -> None:
    given_up(world)
    slots.ensure(1)
    health.hold(world.account.pk, reason=HoldReason.AUTH, words="It cannot be read.", now=world.clock.now())
    world.clock.advance(FIRST + 60)
    assert work.pumps_wanted(now=world.clock.now()) == 0
    health.resume(world.account.pk, now=world.clock.now())
    assert work.pumps_wanted(now=world.clock.now()) == 1
