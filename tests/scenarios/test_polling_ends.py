"""Every wait for the provider ends: with the result, with its failure, or at the deadline with all that is known."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta

import pytest

from batches import wording
from batches.engine import health
from batches.models import Alert, HoldReason, Submission
from batches.providers import errors
from tests.engine.simulated import Complete, Fail, Refuse, Word
from tests.scenarios.world import World


def test_at_the_deadline_the_id_and_the_last_word_are_kept_and_the_alert_says_what_to_do(world: World) -> None:
    world.provider.script("INV-1", status=itertools.repeat(Word("rendering-v2")))
    world.hand_over("INV-1", "INV-2")
    world.run_to_the_end()
    assert world.states() == {"INV-1": "deadline_exceeded", "INV-2": "saved"}
    job = world.job("INV-1")
    assert (job.failure_class, job.provider_status) == ("deadline_exceeded", "rendering-v2")
    row = job.submissions.get()
    assert (row.provider_job_id, row.outcome) == (world.provider.jobs_of("INV-1")[0].id, "open")
    (alert,) = Alert.objects.filter(closed_at=None)
    assert alert.job == job
    told = ("INV-1", "“rendering-v2”", "deadline 60 s", "sent once", "in a batch of 2", "id is kept")
    for part in (*told, f"Provider job {wording.masked(row.provider_job_id)}.", "Check again (free) looks at once"):
        assert part in alert.words
    assert f"{job.poll_count} status reads" in job.failure_words
    assert "in a batch of 2" in job.events.last().words
    last_read_at = job.events.last().at
    assert last_read_at >= job.deadline_at, "declared only after a read at the deadline"
    assert len(world.provider.arrivals_of("INV-1")) == 1


def test_words_that_nobody_knows_are_never_final(world: World) -> None:
    words = ["queued", "warming_up", "Completed", "FAILED", "done", "", "null"]
    world.provider.script("INV-1", status=[Word(word) for word in words])
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    assert len(world.provider.reads) == len(words) + 1


def test_a_failed_job_shows_the_providers_reason_and_is_not_sent_again(world: World) -> None:
    world.provider.script("INV-1", status=[Word("processing"), Fail("font_missing", "A font is missing.")])
    world.hand_over("INV-1")
    world.run_to_the_end()
    job = world.job("INV-1")
    assert (job.state, job.failure_class, job.failure_code) == ("failed", "render_failed", "font_missing")
    assert job.failure_words == "A font is missing."
    assert Submission.objects.get().outcome == "render_failed"
    world.run_for(60)
    assert len(world.provider.arrivals) == 1


@pytest.mark.parametrize(
    "trouble", [errors.NotSent, errors.AnswerLost, errors.ServerFault, errors.ContractBroken, errors.NotFound]
)
def test_reads_that_fail_for_a_while_delay_the_result_and_nothing_else(
    world: World, trouble: type[errors.ProviderError]
) -> None:
    world.provider.script("INV-1", status=[Refuse(trouble)] * 6)
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])


def test_a_job_that_the_provider_never_heard_of_keeps_its_id_and_is_not_sent_again(world: World) -> None:
    world.provider.script("INV-1", status=itertools.repeat(Refuse(errors.NotFound)))
    world.hand_over("INV-1")
    world.run_to_the_end()
    assert world.states() == {"INV-1": "deadline_exceeded"}
    assert world.failures() == {"INV-1": "job_not_found"}
    assert Submission.objects.get().provider_job_id
    assert len(world.provider.arrivals) == 1


def test_a_429_on_status_reads_slows_reads_and_not_submissions(world: World) -> None:
    world.provider.script("INV-1", status=[Refuse(errors.RateLimited, retry_after=20.0)])
    world.hand_over("INV-1", "INV-2", "INV-3")
    world.run_to_the_end()
    world.assert_saved(["INV-1", "INV-2", "INV-3"])
    sent = [arrival.at for arrival in world.provider.arrivals]
    assert (max(sent) - min(sent)).total_seconds() < 5


def test_a_key_that_goes_bad_while_jobs_render_ends_none_of_them(make_world: Callable[..., World]) -> None:
    world = make_world(deadline_seconds=30)
    world.provider.script("INV-1", status=[Complete()])
    world.hand_over("INV-1")
    world.run_until(lambda: world.states() == {"INV-1": "accepted"})
    world.provider.key_is_good = False
    world.run_for(90)
    assert world.states() == {"INV-1": "accepted"}
    assert world.account_now().hold_reason == HoldReason.AUTH
    world.provider.key_is_good = True
    health.resume(world.account.pk, now=world.clock.now())
    world.run_to_the_end()
    world.assert_saved(["INV-1"])


def test_a_long_render_outlives_pump_after_pump(make_world: Callable[..., World]) -> None:
    world = make_world(deadline_seconds=600)
    world.provider.script("INV-1", status=[*[Word("processing")] * 40, Complete()])
    world.hand_over("INV-1")
    world.run_to_the_end(within=900)
    world.assert_saved(["INV-1"])
    reads = len(world.provider.reads)
    assert reads == 41
    job = world.job("INV-1")
    assert job.exchanges.filter(kind="poll").count() == reads, "each read left its exchange"
    assert job.poll_count == reads


def test_a_render_that_failed_unbilled_is_sent_twice_more_and_then_it_is_final(world: World) -> None:
    fails = itertools.repeat(Fail("render_failed", "The page would not render.", unbilled=True))
    world.provider.script("INV-1", status=fails)
    world.hand_over("INV-1")
    world.run_to_the_end()
    assert world.failures() == {"INV-1": "render_failed"}
    rows = list(Submission.objects.order_by("sequence"))
    assert [(row.sequence, row.outcome) for row in rows] == [(number, "render_failed") for number in (1, 2, 3)]
    assert len({row.provider_job_id for row in rows} - {None}) == 3, "each closed one keeps its id"
    assert len({row.idempotency_key for row in rows}) == 3
    cap = timedelta(milliseconds=world.account.poll_max_ms)
    assert all(row.closed_at - row.failed_at >= cap for row in rows[:2]), "believed at the second reading only"
    assert world.reasons("INV-1").count("render_again") == 2


def test_a_render_that_works_the_second_time_is_saved(world: World) -> None:
    fail = Fail("render_failed", unbilled=True)
    world.provider.script("INV-1", status=[fail, fail])
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"], billed_once=False)
    assert list(Submission.objects.order_by("sequence").values_list("outcome", flat=True)) == [
        "render_failed",
        "delivered",
    ]


def test_a_failure_that_is_taken_back_renders_nothing_again(world: World) -> None:
    fail = Fail("render_failed", unbilled=True)
    world.provider.script("INV-1", status=[fail, Word("processing"), fail, Word("retrying")])
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    assert Submission.objects.get().failed_at is None


def test_the_first_reading_of_a_failure_outlives_the_pump_that_read_it(world: World) -> None:
    fail = Fail("render_failed", unbilled=True)
    world.provider.script("INV-1", status=[fail, fail])
    world.hand_over("INV-1")
    world.run_until(lambda: Submission.objects.exclude(failed_at=None).exists())
    first = Submission.objects.get().failed_at
    world.run_until(lambda: Submission.objects.count() == 2)
    assert Submission.objects.get(sequence=1).failed_at == first
