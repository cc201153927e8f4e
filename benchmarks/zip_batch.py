"""A batch of stored PDFs and somebody who is signed in, made in this process: the child of `benchmarks/zip.py`.

Says as JSON the address of the archive, its parts, and the cookie of the session.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import sys
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from batches import archives
from batches.models import (
    Artifact,
    Batch,
    BatchItem,
    Document,
    DocumentVersion,
    Job,
    JobEvent,
    ProviderAccount,
    Submission,
    Workspace,
)
from batches.storage import artifact_key, open_store
from benchmarks.sample_pdf import one_page_pdf

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


def main(count: int, size: int) -> None:
    call_command("migrate", verbosity=0)
    store = open_store(settings.STORAGE_URL)
    store.ensure()
    workspace = Workspace.objects.create(slug="bench", name="Bench", created_at=NOW)
    account = ProviderAccount.objects.create(
        slug="bench", name="Bench", base_url="http://127.0.0.1:9", api_key="x", submit_interval_ms=50, created_at=NOW
    )
    batch = Batch.objects.create(
        public_id="bat_bench",
        workspace=workspace,
        account=account,
        name="Bench",
        manifest_name="m.json",
        manifest_key="m",
        manifest_sha256="0" * 64,
        manifest_bytes=2,
        creation_key="bench",
        created_at=NOW,
    )
    versions = _versions(workspace, count)
    _saved(batch, versions, one_page_pdf(size))
    client = Client(headers={"host": "localhost"})
    client.force_login(User.objects.create_superuser("bench"))
    cookie = client.cookies[settings.SESSION_COOKIE_NAME]
    said = {
        "address": f"/batches/{batch.public_id}/archive/",
        "cookie": f"{settings.SESSION_COOKIE_NAME}={cookie.value}",
        "parts": -(-count // archives.LIMITS.documents),
    }
    sys.stdout.write(json.dumps(said) + "\n")


def _versions(workspace: Workspace, count: int) -> list[DocumentVersion]:
    documents = Document.objects.bulk_create(
        Document(workspace=workspace, public_id=f"doc_{n}", business_id=f"INV-{n:06}", created_at=NOW)
        for n in range(count)
    )
    given = {"number": 1, "kind": "html", "input_inline": b"x", "input_sha256": "0" * 64, "input_bytes": 1}
    return DocumentVersion.objects.bulk_create(
        DocumentVersion(document=document, created_at=NOW, **given) for document in documents
    )


def _saved(batch: Batch, versions: list[DocumentVersion], pdf: bytes) -> None:
    """Each was sent once, rendered and saved, with the events that say so; no two files are the same."""
    jobs = Job.objects.bulk_create(
        Job(
            version=version,
            account=batch.account,
            lead_batch=batch,
            state="saved",
            due_at=NOW,
            created_at=NOW,
            state_changed_at=NOW,
        )
        for version in versions
    )
    sent = Submission.objects.bulk_create(_submission(job, n) for n, job in enumerate(jobs))
    states = ("pending", "submitting", "accepted", "rendered", "saved")
    JobEvent.objects.bulk_create(
        JobEvent(job=job, at=NOW, from_state=before, to_state=after, reason="bench", actor="bench")
        for job in jobs
        for before, after in itertools.pairwise(states)
    )
    store, artifacts = open_store(settings.STORAGE_URL), []
    for n, (version, submission) in enumerate(zip(versions, sent, strict=True)):
        content = pdf[:-6] + f"{n:05}\n".encode()
        key = artifact_key("bench", version.document.business_id, 1)
        store.put(key, io.BytesIO(content))
        artifacts.append(
            Artifact(
                version=version,
                submission=submission,
                storage_key=key,
                sha256=hashlib.sha256(content).hexdigest(),
                byte_count=len(content),
                page_count=1,
                stored_at=NOW,
                verified_at=NOW,
            )
        )
    Artifact.objects.bulk_create(artifacts)
    BatchItem.objects.bulk_create(
        BatchItem(
            batch=batch,
            position=n,
            document=version.document,
            version=version,
            original_row={"id": version.document.business_id, "group": f"region {n % 7}"},
            intake_outcome="new",
        )
        for n, version in enumerate(versions)
    )


def _submission(job: Job, n: int) -> Submission:
    return Submission(
        job=job,
        account=job.account,
        sequence=1,
        idempotency_key=f"{n:064}",
        route="POST /v1/pdf",
        request_sha256="0" * 64,
        body_inline=b"{}",
        first_sent_at=NOW,
        last_sent_at=NOW,
        resend_until=NOW + timedelta(hours=1),
        provider_job_id=f"pdf_{n}",
        accepted_at=NOW,
        try_count=1,
        in_doubt=False,
        outcome="delivered",
        closed_at=NOW,
    )
