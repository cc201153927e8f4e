"""What must hold at the end of a run: the promises, held against the vendor's own ledger. It only looks."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from batches import selectors
from batches.conf import ENGINE
from batches.models import Batch
from batches.wording import BatchState
from tests.simulation import budgets
from tests.simulation.database import read
from tests.simulation.people import AGAIN
from tests.simulation.remote import RemoteJob

if TYPE_CHECKING:
    from tests.simulation.world import World

#: What an alert about an uncertain document says that a person can do about it.
VERBS_NAMED = ("Check again", "Reconcile", "reconcile it")
ENDED = (BatchState.COMPLETE, BatchState.CANCELLED, BatchState.FAILED, BatchState.PARTIALLY_COMPLETE)


def check_end(world: World) -> None:
    """After the quiet time: every batch ended, rows add up, nothing was paid twice, nothing is lost."""
    _check_batches(world)
    _check_jobs(world)
    _check_ledger(world)
    _check_tries(world)
    _check_late_successes(world)
    _check_lost_objects(world)
    _check_stop_rules(world)
    budgets.check_samples(world)
    budgets.check_caps(world)
    if not world.plan.has("clock_jumps"):
        _check_pace(world)


def _check_batches(world: World) -> None:
    for batch in Batch.objects.order_by("pk"):
        progress = selectors.progress(batch)
        rows = world.handed_over[batch.pk]
        if progress.counts.total != rows or batch.items.count() != rows:
            world.report(f"batch {batch.pk} counts {progress.counts.as_dict()} of {rows} rows")
        if progress.state not in ENDED:
            states = read(
                "SELECT j.id, j.state, j.due_at, j.failure_words FROM batches_job j"
                " WHERE j.state IN ('pending', 'submitting', 'accepted', 'rendered')"
            )
            world.report(f"batch {batch.pk} never ended: {progress.state.value} {states}")


def _check_jobs(world: World) -> None:
    for job_id, owner in read("SELECT id, lease_owner FROM batches_job WHERE lease_owner IS NOT NULL"):
        world.report(f"job {job_id} is still leased to {owner}")
    for job_id, state, failure_class in read("SELECT id, state, failure_class FROM batches_job ORDER BY id"):
        if state == "saved":
            world.commits.check_saved(job_id)
        if state in ("unknown", "deadline_exceeded"):
            alerts = read("SELECT words FROM batches_alert WHERE job_id = ? AND closed_at IS NULL", job_id)
            if not any(any(verb in words for verb in VERBS_NAMED) for (words,) in alerts):
                world.report(f"job {job_id} is {state}, and no alert says what to do")
        if failure_class == "internal":
            world.report(f"job {job_id} was parked as internal")


def _check_ledger(world: World) -> None:
    remote = world.remote
    known = {
        key: (job_id, sequence, provider_job_id)
        for key, job_id, sequence, provider_job_id in read(
            "SELECT idempotency_key, job_id, sequence, provider_job_id FROM batches_submission"
        )
    }
    states = dict(read("SELECT id, state FROM batches_job"))
    bills: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for key, jobs in remote.accepted_keys.items():
        if key not in known:
            world.report(f"{jobs[0].name} was accepted under a key that no submission has")
            continue
        job_id, _sequence, provider_job_id = known[key]
        billed = sum(job.bills for job in jobs)
        if key not in remote.doubled:
            bills[jobs[0].name][job_id] += billed
            if billed > 1:
                world.report(f"{jobs[0].name} was billed {billed} times for one key")
        if provider_job_id is not None and provider_job_id not in {job.id for job in jobs}:
            world.report(f"{jobs[0].name}: the recorded id {provider_job_id} is not the vendor's")
        if provider_job_id is None and states[job_id] in ("pending", "failed", "cancelled", "saved"):
            world.report(f"{jobs[0].name} was accepted, its id is lost, and its job is {states[job_id]}")
        if len([job for job in jobs if _was_heard(world, job)]) > 1:
            world.trace("heard of two jobs for one key", jobs[0].name)
            found = read("SELECT 1 FROM batches_alert WHERE job_id = ? AND kind = 'surplus'", job_id)
            if not found:
                world.report(f"{jobs[0].name} was made twice under one key, and no alert says so")
    again = {
        job_id
        for (job_id,) in read(
            "SELECT j.id FROM batches_job j JOIN batches_documentversion v ON v.id = j.version_id WHERE v.reason = ?",
            AGAIN,
        )
    }
    for name, count_of in bills.items():
        if max(count_of.values()) > 1 or sum(count for job_id, count in count_of.items() if job_id not in again) > 1:
            world.report(f"{name} was billed {dict(count_of)} times, by job; a person wanted {sorted(again)}")


def _check_tries(world: World) -> None:
    """No key arrives more often than six times, but for refusals that spend no try, and what a person sent again."""
    retried: dict[str, int] = dict(
        read(
            "SELECT s.idempotency_key, count(*) FROM batches_submission s"
            " JOIN batches_jobevent e ON e.job_id = s.job_id WHERE e.reason = 'retry' GROUP BY s.idempotency_key"
        )
    )
    for key, arrived in world.remote.arrivals.items():
        most = ENGINE.submit_tries_most + world.remote.limited[key] + retried.get(key, 0)
        if arrived > most:
            world.report(f"a key arrived {arrived} times, more than {most}: {key[:6]}")


def _was_heard(world: World, job: RemoteJob) -> bool:
    """Was its id told to a process that lived to write it down?"""
    process = world.remote.told.get(job.id)
    return process is not None and process.alive and process.name not in world.forgetful


def _check_late_successes(world: World) -> None:
    """What the vendor finished after we had given it up, but in the time that it is watched, is saved or surplus."""
    now = world.scheduler.now_us
    for provider_job_id, outcome, job_id, state in read(
        "SELECT s.provider_job_id, s.outcome, j.id, j.state FROM batches_submission s"
        " JOIN batches_job j ON j.id = s.job_id WHERE s.watch_until IS NOT NULL"
    ):
        job = world.remote.jobs[provider_job_id]
        if not world.remote.has_finished(provider_job_id) or now >= job.file_until_us:
            continue
        world.trace("finished late", job.name, job.id, state, outcome)
        if state in ("failed", "deadline_exceeded", "unknown") and outcome != "surplus":
            classes = read("SELECT failure_class FROM batches_job WHERE id = ?", job_id)[0]
            if classes[0] in ("render_failed", "deadline_exceeded", "unknown_outcome"):
                world.report(f"{job.name}: {job.id} was finished late, and its job is {state} ({outcome})")
        elif state == "saved" and outcome not in ("delivered", "surplus"):
            world.report(f"{job.name}: {job.id} was finished too, and its submission is only {outcome}")


def _check_lost_objects(world: World) -> None:
    """What vanished from the store is stored again while the vendor has it; else its document says that it is gone."""
    for version in sorted(world.lost_versions):
        job_id, state, failure_class, provider_job_id = read(
            "SELECT j.id, j.state, j.failure_class, s.provider_job_id FROM batches_job j"
            " JOIN batches_artifact a ON a.version_id = j.version_id"
            " JOIN batches_submission s ON s.id = a.submission_id WHERE j.version_id = ?",
            version,
        )[0]
        world.trace("was lost", job_id, state)
        if state == "saved" or (state == "failed" and failure_class == "bad_output"):
            continue  # that a saved one is whole is seen with the others
        if state != "expired":
            world.report(f"job {job_id}: its stored PDF was lost, and it is {state} ({failure_class})")
        elif world.scheduler.now_us < world.remote.jobs[provider_job_id].file_until_us:
            world.report(f"job {job_id} is expired, but the provider still has its PDF")
    if read(
        "SELECT 1 FROM batches_storefinding f JOIN batches_artifact a ON a.id = f.artifact_id"
        " JOIN batches_job j ON j.version_id = a.version_id WHERE f.resolved_at IS NULL AND j.state = 'saved'"
    ):
        world.report("a saved document has an open finding")


def _check_stop_rules(world: World) -> None:
    """Whose rule is fulfilled is paused, and an alert says so while anything waits. The last sweep was a moment ago."""
    for batch_id, limit, since, paused_at in read(
        "SELECT id, stop_after_failures, max(created_at, coalesce(stop_counts_from, created_at)), paused_at"
        " FROM batches_batch WHERE stop_after_failures IS NOT NULL AND cancelled_at IS NULL"
    ):
        (failed,) = read(
            "SELECT count(*) FROM batches_batchitem i JOIN batches_job j ON j.version_id = i.version_id"
            " WHERE i.batch_id = ? AND i.cancelled_at IS NULL AND j.state_changed_at >= ?"
            " AND j.state IN ('failed', 'unknown', 'deadline_exceeded', 'expired')",
            batch_id,
            since,
        )[0]
        alert = read(
            "SELECT 1 FROM batches_alert WHERE batch_id = ? AND kind = 'batch_stopped' AND closed_at IS NULL", batch_id
        )
        waits = read("SELECT 1 FROM batches_job WHERE lead_batch_id = ? AND state = 'pending' LIMIT 1", batch_id)
        if failed >= limit and (paused_at is None or (waits and not alert)):
            world.report(f"batch {batch_id}: {failed} documents failed, its limit is {limit}, and it goes on")


def _check_pace(world: World) -> None:
    """Section 5's rule for every pair of departures, and no window passed, by the limits of their time."""
    ends = [at for at, _limits in world.limits[1:]] + [world.scheduler.now_us + 1]
    for (since, limits), end in zip(world.limits, ends, strict=True):
        begins = since + world.grace_us if since else 0
        times = sorted(at for at in world.remote.departures_us if begins <= at < end)
        _check_pace_of(world, times, limits)


def _check_pace_of(world: World, times: list[int], account: dict[str, Any]) -> None:
    interval = account["submit_interval_ms"] * 1000
    tolerance = max(20_000, interval // 10)
    burst = account["submit_burst"]
    for first in range(len(times)):
        for last in range(first + burst, len(times)):
            span, allowed = times[last] - times[first], (last - first - burst + 1) * interval - tolerance
            if span < allowed:
                world.report(
                    f"{last - first + 1} submissions left within {span / 1e6:.3f} s, less than {allowed / 1e6:.3f}"
                )
                return
    for count, seconds in account["submit_windows"]:
        for first in range(len(times) - count):
            if times[first + count] - times[first] < seconds * 1_000_000:
                world.report(f"more than {count} submissions left within {seconds} s")
                return
