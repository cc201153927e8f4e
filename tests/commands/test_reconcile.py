"""`reconcile`: a verdict for each document, adopting in two steps, and its exit codes."""

from __future__ import annotations

import itertools
import json
from datetime import timedelta

import pytest
from django.utils import timezone

from batches.engine import accounts
from batches.models import AuditEntry, Batch, Job, JobState, Submission
from tests import factories
from tests.commands.shell import run
from tests.engine.simulated import Complete, SimulatedJob, SimulatedProvider
from tests.engine.virtual_time import VirtualClock

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> SimulatedProvider:
    simulated = SimulatedProvider(VirtualClock(timezone.now()))
    monkeypatch.setattr(accounts, "make_provider", lambda *_: simulated)
    return simulated


@pytest.fixture
def lost(batch: Batch) -> Job:
    job = factories.make_job(batch=batch, state=JobState.UNKNOWN, business_id="INV-2041")
    at = timezone.now() - timedelta(hours=2)
    factories.make_submission(job=job, first_sent_at=at, last_sent_at=at, resend_until=at)
    return job


def test_it_tells_the_verdict_and_writes_it_down_but_not_on_a_dry_run(
    lost: Job, batch: Batch, provider: SimulatedProvider
) -> None:
    code, out, _ = run("reconcile", "--batch", batch.public_id, "--dry-run")
    assert code == 0
    assert not AuditEntry.objects.exists()
    code, out, _ = run("reconcile", "--batch", batch.public_id)
    assert code == 0
    assert "INV-2041: Cannot be known" in out
    assert AuditEntry.objects.get().action == "reconcile"


def test_a_job_is_adopted_when_it_is_confirmed(lost: Job, provider: SimulatedProvider) -> None:
    row = Submission.objects.get()
    made = SimulatedJob("pdf_9f3a7c21d0", "INV-2041", row.idempotency_key, row.request_sha256, row.first_sent_at)
    provider.jobs[made.id] = made
    provider.script("INV-2041", status=itertools.repeat(Complete()))
    arguments = ("reconcile", "--workspace", lost.version.document.workspace.slug, "--document", "INV-2041")
    code, out, _ = run(*arguments, "--adopt", made.id)
    assert code == 0
    assert "Proven: The PDF's text shows INV-2041." in out
    assert "--confirm" in out
    assert Job.objects.get().state == "unknown"
    code, out, _ = run(*arguments, "--adopt", made.id, "--confirm", "--json")
    assert (code, json.loads(out)["result"]) == (0, "done")
    assert Job.objects.get().state == "rendered"


def test_what_cannot_be_adopted_is_refused_with_exit_code_2(lost: Job, provider: SimulatedProvider) -> None:
    where = ("reconcile", "--workspace", lost.version.document.workspace.slug, "--document", "INV-2041")
    code, _, err = run(*where, "--adopt", "pdf_of_nobody", "--confirm")
    assert code == 2
    assert "has no job with that id" in err
