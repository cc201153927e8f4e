"""Events wake the pump that holds the job; their order, number and words decide nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from batches.models import Job, WebhookEvent
from tests import factories
from tests.engine.simulated import Complete, Word
from tests.scenarios.test_learned_polling import finish_after, hand_over
from tests.scenarios.world import World


def event(world: World, provider_job_id: str, kind: str) -> WebhookEvent:
    return factories.make_event(account=world.account, provider_job_id=provider_job_id, type=kind, at=world.clock.now())


def test_an_event_has_its_job_read_at_once_by_the_pump_that_holds_it(make_world: Callable[..., World]) -> None:
    world = make_world(webhook_secret="whsec_invented", poll_initial_ms=30_000, poll_max_ms=30_000)
    world.provider.script("INV-1", status=[Complete()])
    world.hand_over("INV-1")
    told: list[WebhookEvent] = []

    def tell() -> None:
        accepted = world.provider.jobs_of("INV-1")
        if accepted and not told and world.clock.now() >= accepted[0].accepted_at + timedelta(seconds=3):
            told.append(event(world, accepted[0].id, "job.completed"))

    world.clock.on_look = tell
    world.run_until(lambda: world.states() == {"INV-1": "saved"}, within=10)
    world.clock.on_look = None
    assert len(world.provider.reads) == 1
    told[0].refresh_from_db()
    assert told[0].outcome == "woke"


def test_events_in_any_order_and_number_only_cause_reads(make_world: Callable[..., World]) -> None:
    world = make_world(webhook_secret="whsec_invented", poll_initial_ms=2000)
    world.provider.script("INV-1", status=[Word("processing"), Complete()])
    world.hand_over("INV-1")
    world.run_until(lambda: world.states() == {"INV-1": "accepted"})
    job_id = world.provider.jobs_of("INV-1")[0].id
    for kind in ("job.completed", "job.completed", "job.processing", "job.failed"):
        event(world, job_id, kind)
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    before = world.reasons("INV-1")
    for kind in ("job.processing", "job.failed", "job.queued"):
        event(world, job_id, kind)
    world.hand_over("INV-2")
    world.run_to_the_end()
    assert world.states() == {"INV-1": "saved", "INV-2": "saved"}
    assert world.reasons("INV-1") == before


def test_where_events_prove_reliable_a_document_costs_one_read_and_its_end_is_seen_at_once(
    make_world: Callable[..., World],
) -> None:
    world = make_world(webhook_secret="whsec_invented", max_in_flight=500, poll_interval_ms=0, poll_max_ms=15_000)
    durations = finish_after(world, lambda rng: rng.uniform(2, 12))
    told: set[str] = set()

    def tell() -> None:
        now = world.clock.now()
        for job in list(world.provider.jobs.values()):
            took = durations.setdefault(job.name, 2.0 + (len(durations) * 37 % 100) / 10)
            if job.id not in told and now >= job.accepted_at + timedelta(seconds=took):
                told.add(job.id)
                event(world, job.id, "job.completed")

    world.clock.on_look = tell
    hand_over(world, 1, 60)
    world.run_to_the_end()
    world.run_for(6)
    before = len(world.provider.reads)
    hand_over(world, 2, 60)
    world.run_to_the_end()
    world.clock.on_look = None
    assert (len(world.provider.reads) - before) / 60 <= 1.1
    late = [
        (world.job(name).state_changed_at - world.provider.jobs_of(name)[0].accepted_at).total_seconds() - took
        for name, took in durations.items()
        if name.startswith("B2")
    ]
    assert sorted(late)[len(late) // 2] < 1.0
    assert not Job.objects.exclude(state="saved").exists()
