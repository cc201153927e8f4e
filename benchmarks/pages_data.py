"""The installation that `pages.py` asks for its pages: 1,000,000 documents in 200 batches, made by PostgreSQL itself.

Batch 0 holds 100,000 documents, the others share the rest. It and 190 of them have ended, with some failures of ten
causes; five run, four are paused, the last of them at an account that is held too. `half_done` sets batch 0 going.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from django.contrib.auth.models import Permission, User
from django.db import connection
from django.utils import timezone

from batches.engine import settled
from batches.engine.causes import fingerprint
from batches.models import (
    AccountHealth,
    Alert,
    Artifact,
    AuditEntry,
    Batch,
    BatchItem,
    BulkAction,
    Document,
    DocumentVersion,
    Duration,
    Exchange,
    HoldReason,
    Job,
    JobEvent,
    JobState,
    Membership,
    ProviderAccount,
    Role,
    Submission,
)
from benchmarks.copies import copies
from tests import factories

ENDED, RUNNING, PAUSED = 190, 5, 4
BATCHES = 1 + ENDED + RUNNING + PAUSED
AT_PROVIDER = 20
CAUSES = (
    ("invalid_input", "missing_field", "Row 12: the field customer.address is missing."),
    ("invalid_input", "too_large", "The HTML has 2200000 bytes; 2000000 are taken."),
    ("render_failed", "font", "The font Inter could not be loaded."),
    ("render_failed", "timeout", "The page did not settle in 30 s."),
    ("render_failed", "asset", "The image at https://example.invalid/logo.png could not be loaded."),
    ("bad_output", "", "The file ended after 512 bytes."),
    ("transient", "", "The service answered 503 after 6 tries."),
    ("job_not_found", "", "The provider does not know this job any more."),
    ("internal", "", "A step of ours broke."),
    ("rate_limited", "", "The service refused the pace 8 times."),
)
HISTORIES = 250_000


def fill(*, documents: int, large: int) -> User:
    """Makes the rows, and the person who looks at them: a manager of the workspace who may see alerts."""
    account = factories.make_account(name="RelayPDF / prod", price_per_job="0.0013", price_currency="USD")
    held = factories.make_account(
        name="RelayPDF / test",
        health=AccountHealth.HELD,
        held_at=factories.NOW,
        hold_reason=HoldReason.AUTH,
        hold_words="The key was refused.",
    )
    batch = factories.make_batch(account=account, name="Invoices", created_at=timezone.now() - timedelta(hours=2))
    ids = _Ids(documents=documents, large=large, account=account.pk, held=held.pk, batch=batch.pk)
    _batches(batch, ids)
    rows = _documents(batch, ids)
    _sent(batch, ids, rows)
    _told(batch, ids, rows)
    with connection.cursor() as cursor:
        for model in (Batch, Document, DocumentVersion, Job, BatchItem, Submission, Artifact, JobEvent, Exchange):
            table = model._meta.db_table
            cursor.execute(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), (SELECT max(id) FROM {table}))")
        cursor.execute("VACUUM ANALYZE")
    now = timezone.now()
    for later in (timedelta(), 2 * settled.SETTLES_AFTER):  # as the sweep does, once all of it is at rest
        settled.settle(now=now + later, most=BATCHES)
    user = User.objects.create_user("bench", "bench@example.invalid", "bench", is_staff=True)
    user.user_permissions.add(
        *Permission.objects.filter(content_type__app_label="batches", codename__startswith="view")
    )
    Membership.objects.create(workspace=batch.workspace, user=user, role=Role.MANAGER)
    return user


def half_done(batch: Batch) -> None:
    """The second half of the large batch waits to be sent, so that each of its documents has to be counted."""
    jobs = Job.objects.filter(lead_batch=batch).order_by("pk")
    middle = jobs.count() // 2
    border = jobs.values_list("pk", flat=True)[middle]
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM batches_artifact USING batches_job j WHERE j.version_id = batches_artifact.version_id "
            "AND j.lead_batch_id = %s AND j.id >= %s",
            [batch.pk, border],
        )
        cursor.execute(
            "UPDATE batches_job SET state = 'pending', failure_class = '', failure_code = '', failure_words = '', "
            "failure_cause = '' WHERE lead_batch_id = %s AND id >= %s",
            [batch.pk, border],
        )
        settled.void([batch.pk])
        cursor.execute("VACUUM ANALYZE")


class _Rows(NamedTuple):
    """The rows that all others were made like; number n has their key + n."""

    job: Job
    document: int
    version: int


class _Ids:
    """What SQL needs to tell of a document number n (from 1) to which batch it belongs and how far it has come."""

    def __init__(self, *, documents: int, large: int, account: int, held: int, batch: int) -> None:
        each = -(-(documents - large) // (BATCHES - 1))
        self.documents, self.account, self.held = documents, account, held
        self.number = f"(CASE WHEN n <= {large} THEN 0 ELSE 1 + (n - {large} - 1) / {each} END)"
        self.position = f"(CASE WHEN n <= {large} THEN n - 1 ELSE (n - {large} - 1) %% {each} END)"
        self.batch = f"({batch} + {self.number})"
        border = f"(CASE WHEN {self.number} <= {ENDED} THEN {max(each, large)} ELSE {each // 2} END)"
        is_running = f"{self.number} > {ENDED}"
        self.is_done = f"({self.position} < {border})"
        self.is_moving = (
            f"(({is_running}) AND {self.position} >= {border} AND {self.position} < {border} + {AT_PROVIDER})"
        )
        self.luck = f"({self.position} * 7919 %% 1000)"
        self.fails = f"({self.is_done} AND {self.luck} < 25)"
        self.unknown = f"({self.is_done} AND {self.luck} BETWEEN 25 AND 26)"
        self.is_saved = f"({self.is_done} AND {self.luck} > 26)"
        self.state = (
            f"CASE WHEN {self.fails} THEN 'failed' WHEN {self.unknown} THEN 'unknown' WHEN {self.is_done} THEN 'saved' "
            f"WHEN {self.is_moving} THEN 'accepted' ELSE 'pending' END"
        )
        self.account_of = f"CASE WHEN {self.number} = {BATCHES - 1} THEN {held} ELSE {account} END"
        self.at = "t.created_at + (n %% 7200) * interval '1 second'"


def _batches(batch: Batch, ids: _Ids) -> None:
    """The large one is the newest but for those that run, so it stands on the first page of each list."""
    age = f"t.created_at - (CASE WHEN n > {ENDED} THEN 0 ELSE {ENDED} - n + 1 END) * interval '3 hours'"
    copies(
        batch,
        BATCHES - 1,
        public_id="'bat_x' || n",
        creation_key="'x' || n",
        name="'Invoices of run ' || n",
        created_at=age,
        account_id=f"CASE WHEN n = {BATCHES - 1} THEN {ids.held} ELSE {ids.account} END",
        paused_at=f"CASE WHEN n > {ENDED + RUNNING} THEN t.created_at END",
    )


def _documents(batch: Batch, ids: _Ids) -> _Rows:
    job = factories.make_job(batch=batch, state=JobState.ACCEPTED, business_id="T-0")
    BatchItem.objects.update(position=1_000_000_000)  # out of the way of those that are made like it
    item = BatchItem.objects.get()
    version, document = job.version, job.version.document
    first, first_version = document.pk, version.pk
    count = ids.documents
    copies(
        document,
        count,
        id=f"{first} + n",
        public_id="'doc_x' || n",
        business_id="'INV-' || lpad(n::text, 7, '0')",
        current_version_id="NULL",
    )
    copies(version, count, id=f"{first_version} + n", document_id=f"{first} + n")
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE {Document._meta.db_table} SET current_version_id = id - %s + %s", [first, first_version]
        )
    cause = [(*each, fingerprint(*each)) for each in CAUSES]

    def of_cause(column: int) -> str:
        whens = " ".join(f"WHEN {number} THEN '{each[column].replace('%', '%%')}'" for number, each in enumerate(cause))
        lost = ("unknown_outcome", "", "No clear answer came.", fingerprint("unknown_outcome", "", ""))[column]
        of_failed = f"CASE {ids.luck} %% 10 {whens} END"
        return f"CASE WHEN {ids.fails} THEN {of_failed} WHEN {ids.unknown} THEN '{lost}' ELSE '' END"

    copies(
        job,
        count,
        id=f"{job.pk} + n",
        version_id=f"{first_version} + n",
        account_id=ids.account_of,
        lead_batch_id=ids.batch,
        state=ids.state,
        failure_class=of_cause(0),
        failure_code=of_cause(1),
        failure_words=of_cause(2),
        failure_cause=of_cause(3),
        deadline_at=f"CASE WHEN {ids.is_moving} THEN t.deadline_at END",
        state_changed_at="now() - (1000000 - n) * interval '20 milliseconds'",
    )
    copies(
        item,
        count,
        batch_id=ids.batch,
        position=ids.position,
        document_id=f"{first} + n",
        version_id=f"{first_version} + n",
        cancelled_at=f"CASE WHEN {ids.luck} BETWEEN 100 AND 101 AND {ids.is_done} THEN now() END",
    )
    item.delete()
    return _Rows(job, first, first_version)


def _sent(batch: Batch, ids: _Ids, rows: _Rows) -> None:
    job = rows.job
    submission = factories.make_submission(
        job=job, provider_job_id="pdf_t", accepted_at=batch.created_at, in_doubt=False, batch=batch, try_count=1
    )
    copies(
        submission,
        ids.documents,
        where=f"({ids.is_done} OR {ids.is_moving})",
        id=f"{submission.pk} + n",
        job_id=f"{job.pk} + n",
        account_id=ids.account_of,
        batch_id=ids.batch,
        idempotency_key="'k' || n",
        provider_job_id=f"CASE WHEN {ids.unknown} THEN NULL ELSE 'pdf_x' || n END",
        accepted_at=f"CASE WHEN {ids.unknown} THEN NULL ELSE t.accepted_at END",
        in_doubt=ids.unknown,
        outcome=f"CASE WHEN {ids.is_saved} THEN 'delivered' WHEN {ids.fails} THEN 'render_failed' ELSE 'open' END",
        closed_at=f"CASE WHEN {ids.is_saved} OR {ids.fails} THEN t.accepted_at END",
        billed_amount=f"CASE WHEN {ids.is_saved} THEN 0.0013 END",
    )
    artifact = Artifact.objects.create(
        version_id=job.version_id,
        submission=submission,
        storage_key="artifacts/t",
        sha256="0" * 64,
        byte_count=20_480,
        page_count=2,
        stored_at=batch.created_at,
        verified_at=batch.created_at,
    )
    copies(
        artifact,
        ids.documents,
        where=ids.is_saved,
        version_id=f"{rows.version} + n",
        submission_id=f"{submission.pk} + n",
        storage_key="'artifacts/x' || n",
        notice=f"CASE WHEN {ids.luck} = 999 THEN 'small' ELSE '' END",
        notice_words=f"CASE WHEN {ids.luck} = 999 THEN 'Much smaller than the others of its batch.' ELSE '' END",
        stored_at=ids.at.replace("created_at", "stored_at"),
    )
    artifact.delete()
    Submission.objects.filter(pk=submission.pk).update(batch=None)  # that all others were made like; it stays pending
    duration = Duration.objects.create(
        account_id=ids.account, job=job, submission=submission, outcome="saved", at=batch.created_at, total_seconds=3.0
    )
    copies(duration, HISTORIES, total_seconds="2 + (n %% 30) / 10.0", remote_seconds="1 + (n %% 30) / 10.0")


def _told(batch: Batch, ids: _Ids, rows: _Rows) -> None:
    """Histories of some, the log of what people did, one bulk action, alerts, webhooks."""
    job = rows.job
    with_history = min(HISTORIES, ids.documents)
    for before, after in (("pending", "submitting"), ("submitting", "accepted"), ("accepted", "rendered")):
        event = JobEvent.objects.create(
            job=job, at=batch.created_at, from_state=before, to_state=after, reason="answer", actor="engine"
        )
        copies(event, with_history, job_id=f"{job.pk} + n")
    last = JobEvent.objects.create(
        job=job, at=batch.created_at, from_state="rendered", to_state="saved", reason="stored"
    )
    copies(
        last, with_history, job_id=f"{job.pk} + n", to_state=f"CASE WHEN {ids.is_saved} THEN 'saved' ELSE 'failed' END"
    )
    for kind in ("submit", "poll", "poll", "download"):
        exchange = Exchange.objects.create(
            account_id=ids.account, job=job, kind=kind, at=batch.created_at, duration_ms=120, status=200
        )
        copies(exchange, with_history, job_id=f"{job.pk} + n")
    entry = AuditEntry.objects.create(
        workspace=batch.workspace, at=batch.created_at, actor_words="m.okoye", action="view_pdf", subject="document t"
    )
    subject = "CASE WHEN n %% 50 = 0 THEN 'batch bat_x' || (1 + n %% 190) ELSE 'document doc_x' || n END"
    action = "CASE WHEN n %% 50 = 0 THEN 'download_archive' ELSE 'view_pdf' END"
    copies(entry, 300_000, subject=subject, action=action, at="t.at - n * interval '7 seconds'")
    _acted(batch)
    for number in range(20):
        Alert.objects.create(
            kind="batch_stopped",
            subject=f"batch:{batch.pk + number}",
            batch_id=batch.pk + number,
            words="It paused by itself after 50 failures.",
            opened_at=batch.created_at,
        )
    event_row = factories.make_event(account=ProviderAccount.objects.get(pk=ids.account), at=batch.created_at)
    copies(event_row, 300_000, dedupe_key="'d' || n", received_at="t.received_at - n * interval '1 second'")


def _acted(batch: Batch) -> None:
    """One retry over failures of one cause in the large batch, after which they failed again."""
    action = factories.make_bulk_action(batch=batch, verb="retry", confirmed_at=batch.created_at)
    BulkAction.objects.filter(pk=action.pk).update(finished_at=batch.created_at)
    key = fingerprint(*CAUSES[0])
    jobs = Job.objects.filter(lead_batch=batch, failure_cause=key).select_related("version").order_by("pk")
    for job in jobs[:200]:
        factories.make_bulk_action_item(action=action, job=job, cause=key, result="done", at=batch.created_at)
