"""One batch page with many failures of six causes, asked for in this process: the child of `benchmarks/causes.py`.

Says as JSON: seconds of each request, of the part that groups failures, and the statements of one request.
"""

from __future__ import annotations

import json
import random
import sys
import time
import uuid
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, reset_queries
from django.test import Client
from django.test.utils import CaptureQueriesContext

from batches import failures
from batches.engine.causes import fingerprint
from batches.models import Batch, BatchItem, Document, DocumentVersion, Job, ProviderAccount, Workspace

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
CAUSES = (
    ("transient", "", "The service answered {n} after {n} s."),
    ("invalid_input", "missing_field", "Row {n}: field 'customer.address' of “{id}” is missing."),
    ("render_failed", "font", "Job {id} failed: the font is missing."),
    ("bad_output", "", "The file of {id} ended after {n} bytes."),
    ("internal", "", "Step {n} broke."),
    ("rate_limited", "", "The service refused the pace {n} times."),
)
ROUNDS = 15


def _fill(count: int) -> Batch:
    rng = random.Random(7)
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
    documents = Document.objects.bulk_create(
        Document(workspace=workspace, public_id=f"doc_{n}", business_id=f"INV-{n:06}", created_at=NOW)
        for n in range(count)
    )
    versions = DocumentVersion.objects.bulk_create(
        DocumentVersion(
            document=document,
            number=1,
            kind="html",
            input_inline=b"x",
            input_sha256="0" * 64,
            input_bytes=1,
            created_at=NOW,
        )
        for document in documents
    )
    Job.objects.bulk_create(_job(version, account, batch, rng) for version in versions)
    BatchItem.objects.bulk_create(
        BatchItem(batch=batch, position=n, document=version.document, version=version, intake_outcome="new")
        for n, version in enumerate(versions)
    )
    return batch


def _job(version: DocumentVersion, account: ProviderAccount, batch: Batch, rng: random.Random) -> Job:
    failure_class, code, words = CAUSES[rng.randrange(len(CAUSES))]
    words = words.format(n=rng.randrange(10_000), id=uuid.UUID(int=rng.getrandbits(128)))
    return Job(
        version=version,
        account=account,
        lead_batch=batch,
        state="failed",
        failure_class=failure_class,
        failure_code=code,
        failure_words=words,
        failure_cause=fingerprint(failure_class, code, words),
        due_at=NOW,
        created_at=NOW,
        state_changed_at=NOW,
    )


def _seconds(what: Any) -> list[float]:
    taken = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        what()
        taken.append(time.perf_counter() - started)
    return taken


def main(count: int) -> None:
    settings.DEBUG = False  # as in use: no statement is kept for a report
    call_command("migrate", verbosity=0)
    batch = _fill(count)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    client = Client(headers={"host": "localhost"})
    client.force_login(User.objects.create_superuser("bench"))
    address = f"/batches/{batch.public_id}/"
    reset_queries()
    with CaptureQueriesContext(connection) as captured:
        answer = client.get(address)
    statement_count = len(captured)  # at once: the next request clears the connection's list
    assert answer.status_code == 200, answer.status_code
    groups = failures.causes(batch, total=count)
    page = _seconds(lambda: client.get(address))
    grouping = _seconds(lambda: failures.causes(batch, total=count))
    said = {
        "page": page,
        "grouping": grouping,
        "statements": statement_count,
        "groups": len(groups.shown) + groups.more_count,
        "plan": failures.failed_items(batch).order_by().values("version__job__failure_cause").explain(),
    }
    sys.stdout.write(json.dumps(said))
