"""What proves a submission cannot be deleted, through Django or past it."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, connection, models, transaction

from batches.models import (
    Artifact,
    Batch,
    BatchItem,
    Document,
    DocumentVersion,
    Exchange,
    Job,
    JobEvent,
    PacingLane,
    ProviderAccount,
    Submission,
    WebhookEvent,
    Workspace,
)
from tests.factories import make_saved_job
from tests.test_models import in_batch_of, make_exchange

pytestmark = pytest.mark.django_db


def proof() -> dict[str, models.Model]:
    """A row of each model on the path from workspace and account to a submission and its evidence."""
    job = make_saved_job()
    submission = job.submissions.get()
    make_exchange(account=job.account, job=job, submission=submission)
    return {
        "workspace": job.version.document.workspace,
        "account": job.account,
        "batch": in_batch_of(job).batch,
        "document": job.version.document,
        "version": job.version,
        "job": job,
        "submission": submission,
    }


def delete_past_django(row: models.Model) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {row._meta.db_table} WHERE id = %s", [row.pk])
    connection.check_constraints()  # foreign keys are only checked at the end of a transaction


@pytest.mark.parametrize("what", ["workspace", "account", "batch", "document", "version", "job", "submission"])
def test_what_proves_a_submission_cannot_be_deleted(what: str) -> None:
    """Case 101: a row was deleted while its task ran, and the task brought it back half empty."""
    row = proof()[what]
    with pytest.raises(models.ProtectedError), transaction.atomic():
        row.delete()
    with pytest.raises(IntegrityError), transaction.atomic():
        delete_past_django(row)


def test_every_foreign_key_towards_the_evidence_protects() -> None:
    evidence = {
        Artifact,
        Batch,
        BatchItem,
        Document,
        DocumentVersion,
        Exchange,
        Job,
        JobEvent,
        PacingLane,
        ProviderAccount,
        Submission,
        WebhookEvent,
        Workspace,
    }
    soft = [
        f"{model.__name__}.{field.name}"
        for model in evidence
        for field in model._meta.get_fields()
        if isinstance(field, models.ForeignKey) and field.remote_field.on_delete is not models.PROTECT
    ]
    assert soft == []
