"""Plain functions that make rows, named by the state that they make. Everything invented."""

from __future__ import annotations

import hashlib
import io
import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.utils import timezone

from batches import storage, templating
from batches.engine import causes
from batches.models import (
    FAILED_STATES,
    Artifact,
    Batch,
    BatchItem,
    BulkAction,
    BulkActionItem,
    Deletion,
    Document,
    DocumentVersion,
    Draft,
    Duration,
    Export,
    ExportPart,
    FailureClass,
    Job,
    JobState,
    ProviderAccount,
    Submission,
    Template,
    TemplateVersion,
    WebhookEvent,
    Workspace,
)

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
_numbers = itertools.count(1)


def make_workspace(**fields: Any) -> Workspace:
    number = next(_numbers)
    defaults = {"slug": f"workspace-{number}", "name": f"Workspace {number}", "created_at": NOW}
    return Workspace.objects.create(**defaults | fields)


def make_account(**fields: Any) -> ProviderAccount:
    number = next(_numbers)
    defaults = {
        "slug": f"account-{number}",
        "name": f"Account {number}",
        "base_url": "http://127.0.0.1:9",
        "api_key": "pdf_live_invented",
        "submit_interval_ms": 50,
        "created_at": NOW,
    }
    return ProviderAccount.objects.create(**defaults | fields)


def make_batch(*, workspace: Workspace | None = None, account: ProviderAccount | None = None, **fields: Any) -> Batch:
    number = next(_numbers)
    defaults = {
        "public_id": f"bat_{number}",
        "workspace": workspace or make_workspace(),
        "account": account or make_account(),
        "name": f"Batch {number}",
        "manifest_name": "manifest.json",
        "manifest_key": f"manifests/{number}",
        "manifest_sha256": hashlib.sha256(b"[]").hexdigest(),
        "manifest_bytes": 2,
        "creation_key": f"creation-{number}",
        "created_at": NOW,
    }
    return Batch.objects.create(**defaults | fields)


def make_template_version(
    *, workspace: Workspace, source: str, slug: str = "invoice", is_published: bool = True
) -> TemplateVersion:
    """The next version of a template, with the template where there is none."""
    template, _ = Template.objects.get_or_create(
        workspace=workspace, slug=slug, defaults={"name": slug.capitalize(), "created_at": NOW}
    )
    reads = templating.compiled(source).reads.values()
    version = TemplateVersion.objects.create(
        template=template,
        number=template.versions.count() + 1,
        source=source,
        sha256=hashlib.sha256(source.encode()).hexdigest(),
        fields=[read.as_dict() for read in reads],
        filename=f"{slug}.html",
        created_at=NOW,
    )
    if is_published:
        Template.objects.filter(pk=template.pk).update(published=version)
    return version


def make_version(*, workspace: Workspace, business_id: str = "", html: str = "", **fields: Any) -> DocumentVersion:
    number = next(_numbers)
    business_id = business_id or f"INV-{number:04}"
    document, _ = Document.objects.get_or_create(
        workspace=workspace,
        business_id=business_id,
        defaults={"public_id": f"doc_{number}", "created_at": NOW},
    )
    text = (html or f"<h1>Invoice {business_id}</h1>").encode()
    defaults = {
        "number": document.versions.count() + 1,
        "kind": "html",
        "input_inline": text,
        "input_sha256": hashlib.sha256(text).hexdigest(),
        "input_bytes": len(text),
        "created_at": NOW,
    }
    version = DocumentVersion.objects.create(document=document, **defaults | fields)
    document.current_version = version
    document.save()
    return version


def make_job(*, batch: Batch | None = None, state: str = JobState.PENDING, business_id: str = "", **fields: Any) -> Job:
    """A job in `state` with whatever the database asks of that state, and an item of `batch` that needs it."""
    batch = batch or make_batch()
    version = make_version(workspace=batch.workspace, business_id=business_id)
    defaults: dict[str, Any] = {"due_at": NOW, "created_at": NOW, "state_changed_at": NOW}
    if state == JobState.ACCEPTED:
        defaults["deadline_at"] = NOW + timedelta(minutes=30)
    if state == JobState.FAILED:
        defaults |= {"failure_class": FailureClass.RENDER_FAILED, "failure_words": "The page would not render."}
    if state in (JobState.UNKNOWN, JobState.DEADLINE_EXCEEDED, JobState.EXPIRED):
        defaults["failure_class"] = {
            JobState.UNKNOWN: FailureClass.UNKNOWN_OUTCOME,
            JobState.DEADLINE_EXCEEDED: FailureClass.DEADLINE_EXCEEDED,
            JobState.EXPIRED: FailureClass.EXPIRED,
        }[JobState(state)]
    defaults["lead_batch"] = batch
    if state in FAILED_STATES:
        failure = {**defaults, **fields}
        words = (str(failure.get(name, "")) for name in ("failure_class", "failure_code", "failure_words"))
        defaults["failure_cause"] = causes.fingerprint(*words)
    job = Job.objects.create(version=version, account=batch.account, state=state, **defaults | fields)
    position = batch.items.count()
    BatchItem.objects.create(
        batch=batch, position=position, document=version.document, version=version, intake_outcome="new"
    )
    return job


def make_submission(*, job: Job, **fields: Any) -> Submission:
    number = next(_numbers)
    body = b'{"html":"<h1>x</h1>"}'
    defaults = {
        "account": job.account,
        "sequence": job.submissions.count() + 1,
        "idempotency_key": hashlib.sha256(str(number).encode()).hexdigest(),
        "route": "POST /v1/pdf",
        "request_sha256": hashlib.sha256(body).hexdigest(),
        "body_inline": body,
        "first_sent_at": NOW,
        "last_sent_at": NOW,
        "resend_until": NOW + timedelta(hours=1),
    }
    return Submission.objects.create(job=job, **defaults | fields)


def make_accepted_job(*, batch: Batch | None = None, provider_job_id: str = "", **fields: Any) -> Job:
    job = make_job(batch=batch, state=JobState.ACCEPTED, **fields)
    make_submission(
        job=job,
        provider_job_id=provider_job_id or f"pdf_{next(_numbers)}",
        accepted_at=NOW,
        try_count=1,
        in_doubt=False,
    )
    return job


def make_saved_job(*, batch: Batch | None = None, **fields: Any) -> Job:
    job = make_job(batch=batch, state=JobState.SAVED, **fields)
    submission = make_submission(
        job=job,
        provider_job_id=f"pdf_{next(_numbers)}",
        accepted_at=NOW,
        try_count=1,
        in_doubt=False,
        outcome="delivered",
        closed_at=NOW,
    )
    number = next(_numbers)
    Artifact.objects.create(
        version=job.version,
        submission=submission,
        storage_key=f"artifacts/{number}/v1.pdf",
        sha256=hashlib.sha256(str(number).encode()).hexdigest(),
        byte_count=1234,
        page_count=1,
        stored_at=NOW,
        verified_at=NOW,
    )
    return job


def make_duration(*, job: Job | None = None, **fields: Any) -> Duration:
    """What one submission of a saved job took."""
    job = job or make_saved_job()
    defaults = {"job": job, "submission": job.submissions.get(), "account": job.account, "outcome": "saved", "at": NOW}
    return Duration.objects.create(**{"total_seconds": 2} | defaults | fields)


def make_event(*, account: ProviderAccount | None = None, at: datetime = NOW, **fields: Any) -> WebhookEvent:
    """A webhook that was signed and received `at`, unlike every other."""
    defaults = {
        "account": account or make_account(),
        "body": b"{}",
        "body_sha256": hashlib.sha256(b"{}").hexdigest(),
        "dedupe_key": f"event-{next(_numbers)}",
        "signed_at": at,
        "received_at": at,
    }
    return WebhookEvent.objects.create(**defaults | fields)


def make_draft(*, batch: Batch | None = None, **fields: Any) -> Draft:
    """A draft in the workspace and at the account of a batch; it was not looked at."""
    batch = batch or make_batch()
    number = next(_numbers)
    uploader = User.objects.create_user(f"uploader {number}")
    defaults: dict[str, Any] = {
        "public_id": f"dft_{number}",
        "workspace": batch.workspace,
        "account": batch.account,
        "filename": "invoices.csv",
        "upload_key": f"{batch.workspace.slug}/uploads/dft_{number}",
        "upload_sha256": "d" * 64,
        "upload_bytes": 100,
        "created_by": uploader,
        "created_at": NOW,
        "touched_at": NOW,
    }
    return Draft.objects.create(**defaults | fields)


def make_bulk_action(*, batch: Batch | None = None, across: Workspace | None = None, **fields: Any) -> BulkAction:
    """A planned action over no items: of a batch, or over several of a workspace."""
    batch = None if across else batch or make_batch()
    number = next(_numbers)
    defaults = {
        "public_id": f"act_{number}",
        "workspace": across or (batch and batch.workspace),
        "batch": batch,
        "verb": "retry",
        "actor_words": "okoye",
        "creation_key": f"action-{number}",
        "planned_at": NOW,
    }
    return BulkAction.objects.create(**defaults | fields)


def make_bulk_action_item(*, action: BulkAction, job: Job, **fields: Any) -> BulkActionItem:
    """The action's next item: the one of its batch that names the job's version."""
    defaults = {
        "position": action.items.count(),
        "item": job.version.items.get(batch=action.batch) if action.batch else job.version.items.get(),
        "version": job.version,
        "job_state": job.state,
    }
    return BulkActionItem.objects.create(action=action, **defaults | fields)


def make_ready_export(batch: Batch, *, content: bytes = b"PK", name: str = "all.zip", **fields: Any) -> Export:
    """A ZIP that is built and lies in the store."""
    number = next(_numbers)
    user = User.objects.create_user(f"orderer {number}")
    defaults: dict[str, Any] = {
        "public_id": f"exp_{number}",
        "workspace": batch.workspace,
        "batch": batch,
        "kind": "zip",
        "order_sha256": f"{number:064}",
        "requested_by": user,
        "requester_words": user.username,
        "state": "ready",
        "token": 1,
        "document_count": 1,
        "row_count": 1,
        "created_at": NOW,
        "begun_at": NOW,
        "built_at": NOW,
        "expires_at": timezone.now() + timedelta(days=7),
    }
    export = Export.objects.create(**defaults | fields)
    key = storage.export_key(batch.workspace.slug, export.public_id, 1, 1, name.rpartition(".")[2])
    storage.open_store(settings.STORAGE_URL).put(key, io.BytesIO(content))
    ExportPart.objects.create(
        export=export,
        number=1,
        token=1,
        name=name,
        storage_key=key,
        sha256=hashlib.sha256(content).hexdigest(),
        byte_count=len(content),
        document_count=1,
        created_at=NOW,
        written_at=NOW,
    )
    return export


def make_deletion(**fields: Any) -> Deletion:
    """A requested one; give it a version, a submission or a batch, in whose workspace it is."""
    subject = fields.get("version") or fields.get("submission") or fields["batch"]
    if isinstance(subject, Submission):
        workspace = subject.job.version.document.workspace
    else:
        workspace = subject.document.workspace if isinstance(subject, DocumentVersion) else subject.workspace
    defaults = {
        "workspace": workspace,
        "what": "input",
        "where": "here",
        "rule": "inputs are kept for 30 days",
        "by": "sweep",
        "requested_at": NOW,
        "due_at": NOW,
    }
    return Deletion.objects.create(**defaults | fields)
