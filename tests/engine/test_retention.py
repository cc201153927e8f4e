"""Retention over rows and a real store: what goes, what stays, and what a death in between leaves."""

from __future__ import annotations

import io
import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from batches import manifests, storage, tasks
from batches.conf import ENGINE
from batches.engine import deleting, preparing, retaining, retention, retention_rules, versionrows, versions
from batches.engine.audit import By
from batches.engine.orders import NewInput, Order
from batches.engine.retention_rules import Part, Policy
from batches.models import (
    Batch,
    BatchItem,
    Deletion,
    DeletionState,
    DocumentVersion,
    Exchange,
    ExchangeKind,
    ExportPart,
    ExportState,
    Job,
    JobState,
    Submission,
    WebhookEvent,
    Workspace,
)
from batches.storage import ArtifactStore, StoreUnavailable
from tests.commands.shell import run
from tests.engine.carried import Clock
from tests.factories import (
    NOW,
    make_bulk_action,
    make_bulk_action_item,
    make_event,
    make_job,
    make_ready_export,
    make_submission,
)
from tests.factories import make_saved_job as saved
from tests.scenarios.world import PumpKilled
from tests.web.stored import store_pdf

pytestmark = pytest.mark.django_db
#: Forty days after everything that the factories make.
LATER = NOW + timedelta(days=40)


@pytest.fixture
def store(artifact_folder: Any) -> ArtifactStore:
    return storage.open_store(settings.STORAGE_URL)


@pytest.fixture(autouse=True)
def policy(workspace: Workspace) -> None:
    Workspace.objects.filter(pk=workspace.pk).update(keep_inputs_days=30, keep_outputs_days=30, keep_evidence_days=30)


def in_store(job: Job, store: ArtifactStore) -> Job:
    """Its input and its request lie in the store, under keys as they are given, and so does its PDF."""
    store_pdf(job, b"%PDF-1.7 of it")
    slug, name = job.version.document.workspace.slug, job.version.document.business_id
    key = storage.input_key(slug, name, job.version.input_sha256)
    store.put(key, io.BytesIO(b"<h1>x</h1>"))
    DocumentVersion.objects.filter(pk=job.version_id).update(input_inline=None, input_key=key)
    sent = job.submissions.get()
    body_key = storage.request_key(slug, name, sent.request_sha256, job.version.number)
    store.put(body_key, io.BytesIO(b"{}"))
    Submission.objects.filter(pk=sent.pk).update(body_inline=None, body_key=body_key)
    return job


def keys_in(store: ArtifactStore) -> list[str]:
    return [each.key for each in store.iter_facts()]


def sweep(store: ArtifactStore, at: datetime = LATER) -> retaining.Report:
    return retaining.sweep(store, Clock(at), owner="w", seconds=timedelta(hours=1))


def states() -> dict[str, str]:
    """The state of each deletion, by what it is of."""
    return {row.what: row.state for row in Deletion.objects.order_by("pk")}


def test_content_goes_and_proof_stays(batch: Batch, store: ArtifactStore) -> None:
    job = in_store(saved(batch=batch), store)
    sent = job.submissions.get()
    event = make_event(account=job.account, provider_job_id=sent.provider_job_id, body=b'{"document": "secret"}')
    Exchange.objects.create(
        account=job.account, job=job, kind=ExchangeKind.SUBMIT, at=NOW, duration_ms=1, status=202, request={"a": "b"}
    )
    BatchItem.objects.update(original_row={"name": "Somebody"})
    assert sweep(store).is_round_over
    assert keys_in(store) == []
    assert states() == {
        "input": "confirmed",
        "request": "confirmed",
        "pdf": "confirmed",
        "evidence": "confirmed",
        "manifest": "confirmed",
    }
    job.refresh_from_db()
    version, after = DocumentVersion.objects.get(), Submission.objects.get()
    assert (version.input_inline, version.input_key, version.input_deleted_at) == (None, None, LATER)
    assert (after.body_inline, after.body_key) == (None, None)
    # What proves the submission.
    assert (job.state, after.idempotency_key, after.provider_job_id) == (
        JobState.SAVED,
        sent.idempotency_key,
        sent.provider_job_id,
    )
    assert (version.input_sha256, after.request_sha256) == (job.version.input_sha256, sent.request_sha256)
    kept_event, exchange = WebhookEvent.objects.get(), Exchange.objects.get()
    assert (bytes(kept_event.body), kept_event.dedupe_key) == (b"", event.dedupe_key)
    assert (exchange.request, exchange.status) == ({}, 202)
    assert BatchItem.objects.get().original_row == {}
    pdf = Deletion.objects.get(what="pdf")
    assert (pdf.sha256, pdf.rule, pdf.by) == (job.version.artifact.sha256, "outputs are kept for 30 days", "sweep")
    assert Deletion.objects.get(what="evidence").words == "1 requests, 1 webhooks."


def test_nothing_goes_before_its_time_or_without_a_policy(batch: Batch, store: ArtifactStore) -> None:
    in_store(saved(batch=batch), store)
    before = keys_in(store)
    sweep(store, NOW + timedelta(days=30) - timedelta(seconds=1))
    Workspace.objects.update(keep_inputs_days=None, keep_outputs_days=None, keep_evidence_days=None)
    sweep(store)
    assert (keys_in(store), Deletion.objects.count()) == (before, 0)


@pytest.mark.parametrize("state", [JobState.UNKNOWN, JobState.DEADLINE_EXCEEDED, JobState.PENDING])
def test_what_is_uncertain_keeps_everything_and_is_named(batch: Batch, store: ArtifactStore, state: JobState) -> None:
    job = make_job(batch=batch, state=state)
    make_submission(job=job)
    found = sweep(store).survey
    assert Deletion.objects.count() == 0
    assert [sum(found.parts[part].kept.values()) for part in (Part.INPUTS, Part.EVIDENCE, None)] == [1, 1, 1]


def test_what_a_living_batch_or_an_action_needs_stays(batch: Batch, store: ArtifactStore) -> None:
    shared, acted_on = saved(batch=batch), saved()
    Workspace.objects.update(keep_inputs_days=30)
    make_job(batch=batch)
    make_bulk_action_item(action=make_bulk_action(batch=batch, confirmed_at=NOW), job=shared)
    make_bulk_action_item(
        action=make_bulk_action(batch=acted_on.lead_batch, confirmed_at=NOW), job=acted_on, result="done"
    )
    tally = sweep(store).survey.parts[Part.INPUTS]
    assert tally.kept == {retention_rules.ACTED_ON: 1, retention_rules.NOT_ENDED: 1}
    assert Deletion.objects.get(what="input").version == acted_on.version
    shared.refresh_from_db()
    Job.objects.filter(pk=shared.pk).update(state_changed_at=NOW)
    shared.version.items.get().bulk_action_items.update(result="done")
    assert retention.survey(retention.policies(), now=LATER).parts[Part.INPUTS].kept == {
        retention_rules.NEEDED: 1,
        retention_rules.NOT_ENDED: 1,
    }


def test_a_dry_run_deletes_nothing_and_says_what_the_run_does(batch: Batch, store: ArtifactStore) -> None:
    Workspace.objects.update(keep_outputs_days=None)
    for job in (saved(batch=batch), saved(), make_job(state=JobState.UNKNOWN)):
        Job.objects.filter(pk=job.pk).update(state_changed_at=NOW - timedelta(days=400))
    Workspace.objects.update(keep_inputs_days=30, keep_evidence_days=30)
    Batch.objects.update(created_at=NOW - timedelta(days=400))
    before = list(DocumentVersion.objects.order_by("pk").values())
    dry = json.loads(run("retention", "--dry-run", "--json")[1])
    assert (list(DocumentVersion.objects.order_by("pk").values()), Deletion.objects.count()) == (before, 0)
    done = json.loads(run("retention", "--json")[1])
    assert dry["parts"] == done["parts"]
    assert [part["count"] for part in done["parts"]] == [2, 0, 2, 2]
    assert "1 kept: it is not known whether the provider has it" in run("retention", "--dry-run")[1]
    assert done["settled"] == Deletion.objects.filter(state=DeletionState.CONFIRMED).count() == 8


def test_a_dry_run_of_one_workspace_says_nothing_of_others(batch: Batch) -> None:
    saved(batch=batch)
    assert run("retention", "--dry-run", "--workspace", "nowhere")[0] == 2
    Workspace.objects.update(keep_inputs_days=None, keep_outputs_days=None, keep_evidence_days=None)
    assert "kept for ever" in run("retention", "--dry-run", "--workspace", batch.workspace.slug)[1]


@pytest.mark.parametrize("dies_at", ["before_the_store", "before_settling"])
def test_a_death_in_between_leaves_a_requested_row_that_the_next_one_finishes(
    batch: Batch, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, dies_at: str
) -> None:
    job = in_store(saved(batch=batch), store)

    def killed(*given: Any, **named: Any) -> None:
        raise PumpKilled

    with monkeypatch.context() as dying:
        target = "carry_out" if dies_at == "before_the_store" else "_settle"
        dying.setattr(deleting, target, killed)
        with pytest.raises(PumpKilled):
            sweep(store)
    row = Deletion.objects.get(what="input")
    assert (row.state, row.sha256) == ("requested", job.version.input_sha256)
    assert DocumentVersion.objects.get().input_deleted_at == LATER
    given = preparing.read_inputs([job.version_id])[job.version_id]
    assert (given.inline, given.key) == (None, None), "a late answer may bring it back, and nothing reads it any more"
    sweep(store, LATER + timedelta(minutes=10))
    assert keys_in(store) == []
    assert set(states().values()) == {"confirmed"}
    assert Deletion.objects.count() == 5


def test_a_store_that_is_away_puts_it_off_in_words(
    batch: Batch, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_store(saved(batch=batch), store)

    def away(_self: Any, _key: str) -> None:
        raise StoreUnavailable("The store does not answer.")

    with monkeypatch.context() as gone:
        gone.setattr(type(store), "delete", away)
        sweep(store)
    row = Deletion.objects.get(what="pdf")
    assert (row.state, row.tries, "The store does not answer." in row.words) == ("requested", 1, True)
    assert DocumentVersion.objects.get().input_key is not None
    sweep(store, LATER + timedelta(minutes=10))
    assert (keys_in(store), set(states().values())) == ([], {"confirmed"})


def test_bytes_that_another_version_still_has_stay_until_it_goes(batch: Batch, store: ArtifactStore) -> None:
    """A document regenerated as it was has the same input object."""
    first = in_store(saved(batch=batch), store)
    second = make_job()
    key = DocumentVersion.objects.get(pk=first.version_id).input_key
    DocumentVersion.objects.filter(pk=second.version_id).update(
        document=first.version.document, number=2, input_inline=None, input_key=key
    )
    sweep(store)
    row = Deletion.objects.get(what="input")
    assert (row.version, row.state, row.words) == (first.version, "requested", deleting.SHARED)
    assert key in keys_in(store)
    Job.objects.filter(pk=second.pk).update(state=JobState.CANCELLED)
    sweep(store, LATER + timedelta(hours=2))
    sweep(store, LATER + timedelta(hours=3))
    assert set(Deletion.objects.filter(what="input").values_list("state", flat=True)) == {"confirmed"}
    assert key not in keys_in(store)


@pytest.mark.parametrize("requested", ["before", "meanwhile"])
def test_a_deletion_takes_nothing_away_that_was_put_after_it_was_requested(
    batch: Batch, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, requested: str
) -> None:
    """The same bytes are handed over again, and the old ones go between their way to the store and their row's."""
    text = "x" * (ENGINE.inline_bytes_most + 1)
    job = make_job(batch=batch, state=JobState.FAILED)
    item, sha256 = batch.items.get(), manifests.fingerprint("html", text, {})
    key = storage.input_key(batch.workspace.slug, job.version.document.business_id, sha256)
    store.put(key, io.BytesIO(text.encode()))
    DocumentVersion.objects.update(input_inline=None, input_key=key, input_sha256=sha256)
    known = retention.policies()
    found, _after = retention.versions(known, after=0, now=LATER) or ([], 0)
    put = type(store).put

    def delete_then(*given: Any) -> Any:
        stored = put(*given)
        retention.request(found, known, by="w", now=LATER)
        deleting.carry_out(deleting.due(now=LATER), store, now=LATER)
        return stored

    if requested == "before":
        retention.request(found, known, by="w", now=LATER)
    order = Order(By(None, "ada", ""), reason="Again.", inputs={item.pk: NewInput("html", text)}, is_confirmed=True)
    with monkeypatch.context() as racing:
        racing.setattr(type(store), "put", delete_then)
        result = versions.regenerate([item.pk], order=order, now=LATER, store=store)[item.pk]
    assert states()["input"] == "confirmed"
    if requested == "meanwhile":
        assert result.words == versionrows.DELETED_MEANWHILE, result
        result = versions.regenerate([item.pk], order=order, now=LATER, store=store)[item.pk]
    assert result.is_done, result
    again = DocumentVersion.objects.get(number=2).input_key
    assert again is not None
    assert again in keys_in(store)


def test_files_that_hold_a_pdf_go_before_it(batch: Batch, store: ArtifactStore) -> None:
    in_store(saved(batch=batch), store)
    export = make_ready_export(batch, expires_at=LATER + timedelta(days=1))
    building = make_ready_export(batch, state=ExportState.QUEUED, due_at=LATER, built_at=None, expires_at=None)
    assert sweep(store).survey.parts[Part.OUTPUTS].kept == {retention_rules.EXPORTED: 1}
    type(building).objects.filter(pk=building.pk).update(state=ExportState.CANCELLED, due_at=None)
    sweep(store, LATER + timedelta(hours=2))
    export.refresh_from_db()
    row = Deletion.objects.get(what="pdf")
    assert (export.state, row.state, row.words) == (ExportState.EXPIRED, "requested", deleting.EXPORTED)
    ExportPart.objects.update(gone_at=LATER)
    sweep(store, LATER + timedelta(hours=4))
    row.refresh_from_db()
    assert row.state == "confirmed"


def test_one_worker_at_a_time_and_a_round_an_hour(batch: Batch, store: ArtifactStore) -> None:
    Batch.objects.update(created_at=LATER)
    assert sweep(store).is_round_over
    saved(batch=batch)
    Batch.objects.update(created_at=NOW)
    assert sweep(store, LATER + timedelta(minutes=59)).is_busy
    assert Deletion.objects.count() == 0
    # A slice that has no time ends behind its first page, and the next one goes on there.
    clock = Clock(LATER + timedelta(hours=1))
    first = retaining.sweep(store, clock, owner="w", seconds=timedelta(0))
    assert (first.is_round_over, Deletion.objects.filter(what="manifest").exists()) == (False, False)
    assert sweep(store, clock.now()).is_round_over
    assert Deletion.objects.filter(what="manifest").exists()


def test_the_task_does_it_by_the_clock(batch: Batch, store: ArtifactStore) -> None:
    saved(batch=batch)  # NOW is long ago, or far ahead, of the real clock: what counts is the day that it ended
    Job.objects.update(state_changed_at=timezone.now() - timedelta(days=31))
    tasks.retain()
    assert Deletion.objects.filter(what="input", state="confirmed").count() == 1


def test_a_policy_counts_from_the_day_that_the_job_ended(batch: Batch) -> None:
    job = saved(batch=batch)
    Job.objects.filter(pk=job.pk).update(state_changed_at=LATER)
    known = {batch.workspace_id: Policy(inputs=30)}
    assert retention.survey(known, now=LATER).parts[Part.INPUTS].count == 0
    assert retention.survey(known, now=LATER + timedelta(days=30)).parts[Part.INPUTS].count == 1
