"""What follows for a document when its stored PDF is missing or damaged, and what ends a finding.

Owns the evidence edges out of saved, and back. What the provider still has is fetched again, free of charge; nothing
is ever rendered again here. A damaged object is kept aside before anything takes its place.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from batches import wording
from batches.engine import keeping, links, transitions
from batches.engine.transitions import Move
from batches.models import (
    Artifact,
    FailureClass,
    FindingKind,
    Job,
    JobState,
    StoreFinding,
    Submission,
    SubmissionOutcome,
)
from batches.storage import ArtifactStore, StoreError, aside_key

log = logging.getLogger(__name__)

#: Open findings that one pass looks at again.
SETTLED_MOST = 500


@dataclass(frozen=True)
class Amiss:
    """One artifact whose object is not as its row says. `byte_count` is what was found, None for nothing."""

    artifact: Artifact
    kind: FindingKind
    byte_count: int | None
    words: str


def record(amiss: Amiss, *, now: datetime) -> None:
    """One open finding per object, however often it is seen."""
    StoreFinding.objects.bulk_create(
        [
            StoreFinding(
                kind=amiss.kind,
                storage_key=amiss.artifact.storage_key,
                artifact=amiss.artifact,
                byte_count=amiss.byte_count,
                words=amiss.words,
                found_at=now,
            )
        ],
        ignore_conflicts=True,
    )


def act(amiss: Amiss, store: ArtifactStore, *, now: datetime) -> None:
    """Keep a damaged object aside, then take the document out of saved: to be fetched again, or as expired."""
    if amiss.kind is FindingKind.DAMAGED and not _moved_aside(amiss, store, now=now):
        return  # it stays where it is, and so does the document
    with transaction.atomic():
        artifact = Artifact.objects.select_for_update().select_related("submission").get(pk=amiss.artifact.pk)
        if artifact.missing_at or artifact.local_deleted_at or artifact.storage_key != amiss.artifact.storage_key:
            return  # stored anew, or deleted on purpose, since it was looked at
        job = Job.objects.get(version_id=artifact.version_id)
        lives = may_live(artifact, now=now)
        move = _to_rendered(job, amiss, now=now) if lives else _to_expired(job, amiss)
        if job.state != JobState.SAVED or not transitions.move_many([move], now=now):
            return
        Artifact.objects.filter(pk=artifact.pk).update(missing_at=now)
        if lives:  # a job that is fetched for has an open submission
            Submission.objects.filter(pk=artifact.submission_id).update(outcome=SubmissionOutcome.OPEN, closed_at=None)


def _moved_aside(amiss: Amiss, store: ArtifactStore, *, now: datetime) -> bool:
    """Looked at once more first: nothing whole is ever moved."""
    artifact = amiss.artifact
    try:
        if keeping.holds(store, artifact.storage_key, sha256=artifact.sha256, byte_count=artifact.byte_count):
            return False
        keep_aside(store, artifact.storage_key, now=now)
    except StoreError as error:
        log.warning("%s is damaged and cannot be kept aside: %s", artifact.storage_key, error.words)
        return False
    return True


def _what(amiss: Amiss) -> str:
    return f"Its PDF is {amiss.kind.label.lower()} in the store. {amiss.words}"


def _to_rendered(job: Job, amiss: Amiss, *, now: datetime) -> Move:
    words = f"{_what(amiss)} It is fetched again from the provider, which costs nothing."
    fields: dict[str, Any] = {"due_at": now, "fetch_count": 0, "deadline_at": job.deadline_at or now}
    return Move(job.pk, job.fencing_token, JobState.SAVED, JobState.RENDERED, "object_lost", words, fields=fields)


def lost_words(key: str, kind: FindingKind = FindingKind.MISSING) -> str:
    """Why a document that was saved counts as failed: neither the store has its PDF at `key`, nor the provider."""
    state = "is missing from the store" if kind is FindingKind.MISSING else "was damaged in the store"
    return (
        f"Its stored PDF ({key}) {state}, and the provider no longer has it. Put the file back from a backup under "
        "the same key and run `manage.py check_store`: the document is saved again then. Nothing was submitted again."
    )


def what_follows(finding: StoreFinding) -> str:
    """What happens to the document of an open finding, as a clause; needs its artifact, version and job."""
    if finding.artifact is None:
        return "named by no row"
    state = finding.artifact.version.job.state
    if state == JobState.EXPIRED:
        return f"to be put back from a backup as {finding.storage_key}"
    if state == JobState.SAVED:
        return "looked at again by the next check"
    return "being fetched again from the provider"


def _to_expired(job: Job, amiss: Amiss) -> Move:
    words = lost_words(amiss.artifact.storage_key, amiss.kind)
    fields = {"failure_class": FailureClass.EXPIRED, "failure_code": wording.OBJECT_LOST, "failure_words": words}
    return Move(job.pk, job.fencing_token, JobState.SAVED, JobState.EXPIRED, "object_lost", words, fields=fields)


def may_live(artifact: Artifact, *, now: datetime) -> bool:
    """Whether the provider may still have the PDF, by all that is known. To ask costs nothing."""
    submission = artifact.submission
    if artifact.remote_deleted_at or artifact.remote_delete_requested_at or not submission.provider_job_id:
        return False
    if now >= links.dies_at(artifact.stored_at, submission.result):
        return False
    return not Submission.objects.filter(job_id=submission.job_id, outcome=SubmissionOutcome.OPEN).exists()


def keep_aside(store: ArtifactStore, key: str, *, now: datetime) -> str:
    """Move an object beside its place, for whoever wants to know what happened to it. Raises `StoreError`."""
    aside = aside_key(key, f"{now:%Y%m%d%H%M%S}")
    with store.open(key) as stream:
        store.put(aside, stream)
    store.delete(key)
    return aside


def settle(store: ArtifactStore, *, now: datetime) -> None:
    """Close the findings that are over: stored again, put back, deleted, or named by a row."""
    open_now = StoreFinding.objects.filter(resolved_at=None).select_related("artifact").order_by("found_at")
    for finding in open_now[:SETTLED_MOST]:
        try:
            resolution = _resolution(finding, store, now=now)
        except (StoreError, ValueError):
            continue  # the store cannot say, or it is no key of ours
        if resolution:
            StoreFinding.objects.filter(pk=finding.pk).update(resolved_at=now, resolution=resolution)


def _resolution(finding: StoreFinding, store: ArtifactStore, *, now: datetime) -> str:
    artifact = finding.artifact
    if artifact is None:
        if store.size(finding.storage_key) is None:
            return "The object is gone."
        is_named = Artifact.objects.filter(storage_key=finding.storage_key, local_deleted_at=None).exists()
        return "A row names it." if is_named else ""
    if artifact.local_deleted_at:
        return "The file was deleted on purpose."
    if artifact.missing_at is None:
        if finding.found_at < artifact.stored_at:
            return "Fetched again from the provider and stored."
        is_whole = keeping.holds(store, artifact.storage_key, sha256=artifact.sha256, byte_count=artifact.byte_count)
        return "The object is there and whole." if is_whole else ""
    return _put_back(artifact, store, now=now)


def _put_back(artifact: Artifact, store: ArtifactStore, *, now: datetime) -> str:
    """An expired document whose very bytes are back is saved; one that is being fetched is left to that."""
    if not keeping.holds(store, artifact.storage_key, sha256=artifact.sha256, byte_count=artifact.byte_count):
        return ""
    with transaction.atomic():
        job = Job.objects.get(version_id=artifact.version_id)
        if job.state != JobState.EXPIRED:
            return ""
        words = "Its stored PDF is back, with the digest that was verified."
        back = Move(job.pk, job.fencing_token, JobState.EXPIRED, JobState.SAVED, "object_back", words)
        if not transitions.move_many([back], now=now):
            return ""
        Artifact.objects.filter(pk=artifact.pk).update(missing_at=None, checked_at=now)
        left = Submission.objects.filter(pk=artifact.submission_id, outcome=SubmissionOutcome.OPEN)
        left.update(outcome=SubmissionOutcome.DELIVERED, closed_at=now)
    return "The object is back and whole."
