"""What follows for a document when its stored PDF is missing or damaged, and what ends a finding.

Owns the evidence edges out of saved, and back. What the provider still has is fetched again, free of charge; nothing
is ever rendered again here. A damaged object is kept aside before anything takes its place.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from batches import wording
from batches.engine import keeping, kept, links, transitions
from batches.engine.clock import Clock
from batches.engine.contention import again_after_deadlock
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

#: Open findings that are read at once, to be looked at again.
SETTLED_AT_ONCE = 100
#: Open findings of objects that cannot be read: more say nothing new.
UNREADABLE_MOST = 1000


@dataclass(frozen=True)
class Amiss:
    """One artifact whose object is not as its row says. `byte_count` is what was found, None for nothing."""

    artifact: Artifact
    kind: FindingKind
    byte_count: int | None
    words: str


def follow(amiss: Sequence[Amiss], store: ArtifactStore, *, now: datetime) -> None:
    """Record each, and do what it asks for. What cannot be read asks for nothing: it may be whole."""
    unreadable = StoreFinding.objects.filter(kind=FindingKind.UNREADABLE, artifact__isnull=False, resolved_at=None)
    room = max(0, UNREADABLE_MOST - unreadable.count())
    lost = [each for each in amiss if each.kind is not FindingKind.UNREADABLE]
    for each in lost:
        _record([each], now=now)  # each just before what follows from it, so that no move is without its finding
        act(each, store, now=now)
    _record([each for each in amiss if each.kind is FindingKind.UNREADABLE][:room], now=now)


def _record(amiss: Sequence[Amiss], *, now: datetime) -> None:
    """One open finding per object, however often it is seen."""
    StoreFinding.objects.bulk_create(
        [
            StoreFinding(
                kind=each.kind,
                storage_key=each.artifact.storage_key,
                artifact=each.artifact,
                byte_count=each.byte_count,
                words=each.words,
                found_at=now,
            )
            for each in amiss
        ],
        ignore_conflicts=True,
    )


def act(amiss: Amiss, store: ArtifactStore, *, now: datetime) -> None:
    """Keep a damaged object aside, then take the document out of saved: to be fetched again, or as expired."""
    if amiss.kind is FindingKind.DAMAGED and not _moved_aside(amiss, store, now=now):
        return  # it stays where it is, and so does the document
    _take_out(amiss, now=now)


@again_after_deadlock
@transaction.atomic
def _take_out(amiss: Amiss, *, now: datetime) -> None:
    """Out of saved. The rows are locked in the order of the grouped write: a job first, its artifact last."""
    job = Job.objects.select_for_update(no_key=True).get(version_id=amiss.artifact.version_id)
    artifact = Artifact.objects.select_related("submission").get(pk=amiss.artifact.pk)
    if artifact.missing_at or artifact.local_deleted_at or artifact.storage_key != amiss.artifact.storage_key:
        return  # stored anew, or deleted on purpose, since it was looked at
    lives = may_live(artifact, now=now)
    move = _to_rendered(job, amiss, now=now) if lives else _to_expired(job, amiss)
    if job.state != JobState.SAVED or not transitions.move_many([move], now=now):
        return
    if lives:  # a job that is fetched for has an open submission
        Submission.objects.filter(pk=artifact.submission_id).update(outcome=SubmissionOutcome.OPEN, closed_at=None)
    Artifact.objects.filter(pk=artifact.pk).update(missing_at=now)


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
        return "passed by until it can be read" if finding.kind == FindingKind.UNREADABLE else "named by no row"
    state = finding.artifact.version.job.state
    if state == JobState.EXPIRED:
        return f"to be put back from a backup as {finding.storage_key}"
    if state == JobState.SAVED and finding.kind == FindingKind.UNREADABLE:
        return "left saved, and tried again by the next check; see to it that the store can read the object"
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
    if now >= links.dies_at(artifact.stored_at, submission.result, kept.at_account(submission.account_id)):
        return False
    return not Submission.objects.filter(job_id=submission.job_id, outcome=SubmissionOutcome.OPEN).exists()


def keep_aside(store: ArtifactStore, key: str, *, now: datetime) -> str:
    """Move an object beside its place, for whoever wants to know what happened to it. Raises `StoreError`."""
    aside = aside_key(key, f"{now:%Y%m%d%H%M%S}")
    with store.open(key) as stream:
        store.put(aside, stream)
    store.delete(key)
    return aside


def settle(store: ArtifactStore, clock: Clock, *, after: int, ends_at: datetime) -> int | None:
    """Close the findings about documents that are over: stored again, put back, deleted, or read without trouble.

    Looks at the findings behind `after`, by primary key, one at least and until `ends_at`. Returns the last one, from
    which the next call goes on; None when there are no more. (Those of the listing are ended by it.)
    """
    while True:
        found = StoreFinding.objects.filter(resolved_at=None, artifact__isnull=False, pk__gt=after)
        some = list(found.select_related("artifact").order_by("pk")[:SETTLED_AT_ONCE])
        for finding in some:
            try:
                resolution = _resolution(finding, store, now=clock.now())
            except (StoreError, ValueError):
                resolution = ""  # the store cannot say, or it is no key of ours
            if resolution:
                StoreFinding.objects.filter(pk=finding.pk).update(resolved_at=clock.now(), resolution=resolution)
            after = finding.pk
            if clock.now() >= ends_at:
                return after
        if len(some) < SETTLED_AT_ONCE:
            return None


def _resolution(finding: StoreFinding, store: ArtifactStore, *, now: datetime) -> str:
    artifact = finding.artifact
    assert artifact is not None
    if artifact.local_deleted_at:
        return "The file was deleted on purpose."
    if artifact.missing_at is None and finding.found_at < artifact.stored_at:
        return "Fetched again from the provider and stored."
    if artifact.missing_at and finding.kind == FindingKind.UNREADABLE:
        return "It could be read again, and was not as its row says; that is a finding of its own."
    if artifact.missing_at and Job.objects.get(version_id=artifact.version_id).state != JobState.EXPIRED:
        return ""  # it is being fetched, and left to that
    is_whole = keeping.holds(store, artifact.storage_key, sha256=artifact.sha256, byte_count=artifact.byte_count)
    if finding.kind == FindingKind.UNREADABLE and not is_whole:
        return "It can be read again, and is not as its row says; the next look says what it is."
    if artifact.missing_at is None:
        return "The object is there and whole." if is_whole else ""
    return "The object is back and whole." if is_whole and _put_back(artifact, now=now) else ""


@again_after_deadlock
@transaction.atomic
def _put_back(artifact: Artifact, *, now: datetime) -> bool:
    """Save an expired document whose very bytes are back. Locks as `_take_out` does."""
    job = Job.objects.select_for_update(no_key=True).get(version_id=artifact.version_id)
    if job.state != JobState.EXPIRED:
        return False
    words = "Its stored PDF is back, with the digest that was verified."
    back = Move(job.pk, job.fencing_token, JobState.EXPIRED, JobState.SAVED, "object_back", words)
    if not transitions.move_many([back], now=now):
        return False
    left = Submission.objects.filter(pk=artifact.submission_id, outcome=SubmissionOutcome.OPEN)
    left.update(outcome=SubmissionOutcome.DELIVERED, closed_at=now)
    Artifact.objects.filter(pk=artifact.pk).update(missing_at=None, checked_at=now)
    return True
