"""The store's sweep over its listing: is there something that no row names?

Such objects become findings, and a person's repair removes the old ones. This walk alone ends its findings: what it
has not met again when a round is over is there no more. A folder that cannot be read is a finding too, and is passed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice

from django.db.models import Q, QuerySet

from batches.engine import bulk, storeslices
from batches.engine.clock import Clock
from batches.engine.storeslices import SLICE, Slice, SliceReport
from batches.models import (
    ACTIVE_STATES,
    UPLOAD_IS_UNNEEDED,
    Artifact,
    Batch,
    DocumentVersion,
    Draft,
    ExportPart,
    FindingKind,
    Job,
    StoreFinding,
    StoreSweep,
    Submission,
    SweepKind,
    TemplateVersion,
)
from batches.storage import RECEIVED, ArtifactStore, ObjectFacts, StoreError, artifact_key, is_key, shown

log = logging.getLogger(__name__)

KEYS_AT_ONCE = 1000
#: Younger objects may belong to a row that is not committed yet, or to an upload that is still being looked at.
ORPHAN_AGE = timedelta(days=1)
#: Orphans older than this are removed by a person's repair.
ORPHAN_REMOVED_AGE = timedelta(days=30)
#: Orphans that are removed between two looks at what is at work.
REMOVED_AT_ONCE = 50
#: Open findings of each kind: more say nothing new.
FINDINGS_MOST = 1000


def check_orphans(
    store: ArtifactStore,
    clock: Clock,
    *,
    owner: str,
    by_person: bool = False,
    is_repair: bool = False,
    seconds: timedelta = SLICE,
) -> SliceReport:
    """One slice over the store's listing. Orphans are reported; a person's repair removes the old ones."""
    with storeslices.leased(SweepKind.ORPHANS, owner, clock.now(), by_person=by_person) as sweep:
        if sweep is None:
            return SliceReport(is_busy=True)
        work = Slice(sweep, store, clock, clock.now() + seconds, storeslices.place_of(sweep))
        orphans: list[ObjectFacts] = []
        unread: list[ObjectFacts] = []
        try:
            store.ready()
            is_round_over = _look_at_listing(work, orphans, unread)
            now = clock.now()
            _record(FindingKind.ORPHANED, orphans, now=now)
            _record(FindingKind.UNREADABLE, unread, now=now)
            if is_repair:
                _remove_old(orphans, store, now=now)
        except StoreError as error:
            return storeslices.troubled(work, f"The store cannot be listed: {error.words}")
        if is_round_over:
            _end_unmet(sweep, now=now)
        storeslices.remember(work, is_round_over=is_round_over)
        storeslices.tell(now=now)
        done = storeslices.report(work, is_round_over=is_round_over)
        return replace(done, orphaned=len(orphans), unread=len(unread))


def _look_at_listing(work: Slice, orphans: list[ObjectFacts], unread: list[ObjectFacts]) -> bool:
    """Look until the slice's time is up; true when the last object was reached."""
    listing = work.store.iter_facts(work.place)
    while objects := list(islice(listing, KEYS_AT_ONCE)):
        unread += [each for each in objects if each.trouble]
        seen = [each for each in objects if not each.trouble]
        old = [each for each in seen if each.changed_at < work.clock.now() - ORPHAN_AGE]
        known = named([each.key for each in old])
        orphans += [each for each in old if each.key not in known]
        work.looked_at += len(seen)
        work.others += sum(_form(each.key) != "artifact" or ".damaged-" in each.key for each in seen)
        work.place = objects[-1].key
        if work.is_over():
            return len(objects) < KEYS_AT_ONCE
    return True


_FORMS = ("input", "request", "manifest", "upload", "template", "export", "received", "artifact")


def named(keys: Sequence[str]) -> set[str]:
    """Which of these keys a row names: an artifact, a version's input, a submission's body, a batch's manifest, a
    draft's upload, a template's, or a file of an export.

    Each kind of row is asked only for keys of its own form, since only artifacts have an index for it.
    """
    by_form: dict[str, list[str]] = {form: [] for form in _FORMS}
    for key in filter(is_key, keys):  # no row names anything else
        by_form[_form(key)].append(key)
    artifacts = Artifact.objects.filter(storage_key__in=by_form["artifact"], local_deleted_at=None)
    known = set(artifacts.values_list("storage_key", flat=True))
    known |= set(by_form["received"])  # no row names these; `received.sweep` removes them
    if inputs := by_form["input"]:
        found = DocumentVersion.objects.filter(input_key__in=inputs).values_list("input_key", flat=True)
        known |= {key for key in found if key}
    if bodies := by_form["request"]:
        sent = Submission.objects.filter(body_key__in=bodies).values_list("body_key", flat=True)
        known |= {key for key in sent if key}
    if uploads := by_form["upload"]:
        kept = Draft.objects.filter(upload_key__in=uploads).exclude(UPLOAD_IS_UNNEEDED)
        known |= set(kept.values_list("upload_key", flat=True))
    if given := by_form["template"]:
        known |= set(TemplateVersion.objects.filter(given_key__in=given).values_list("given_key", flat=True))
    if built := by_form["export"]:
        parts = ExportPart.objects.filter(storage_key__in=built, gone_at=None)
        known |= set(parts.values_list("storage_key", flat=True))
    if manifests := by_form["manifest"]:
        known |= set(Batch.objects.filter(manifest_key__in=manifests).values_list("manifest_key", flat=True))
        left_out = Batch.objects.filter(left_out_key__in=manifests).values_list("left_out_key", flat=True)
        known |= {key for key in left_out if key}
    return known


def _form(key: str) -> str:
    """What kind of object a key is for: input, request, manifest, upload, template, export, received, else
    artifact."""
    if key.startswith(f"{RECEIVED}/"):
        return "received"
    if "/manifests/" in key:
        return "manifest"
    if "/uploads/" in key:
        return "upload"
    if "/templates/" in key:
        return "template"
    if "/exports/" in key:
        return "export"
    name = key.rpartition("/")[2].partition("-")[0]
    return name if name in ("input", "request") else "artifact"


def _open_orphans() -> QuerySet[StoreFinding]:
    return StoreFinding.objects.filter(kind=FindingKind.ORPHANED, resolved_at=None)


def _record(kind: FindingKind, met: Sequence[ObjectFacts], *, now: datetime) -> None:
    """One open finding for each, and when it was met last. Names that are no keys of ours are told as `shown`."""
    by_name = {shown(each.key): each for each in met}
    ours = StoreFinding.objects.filter(kind=kind, artifact=None, resolved_at=None)
    known: set[str] = set()
    for names in bulk.chunks(list(by_name), bulk.VALUES_PER_LIST):
        again = ours.filter(storage_key__in=names)
        known |= set(again.values_list("storage_key", flat=True))
        again.update(seen_at=now)
    room = max(0, FINDINGS_MOST - ours.count())
    StoreFinding.objects.bulk_create(
        [
            StoreFinding(
                kind=kind,
                storage_key=name,
                byte_count=None if each.trouble else each.byte_count,
                words=_words(each),
                found_at=now,
                seen_at=now,
            )
            for name, each in islice(((name, each) for name, each in by_name.items() if name not in known), room)
        ],
        ignore_conflicts=True,
    )


def _words(each: ObjectFacts) -> str:
    if each.trouble:
        return f"It cannot be looked at: {each.trouble}. Let this program's user read it, or move it out of the store."
    last = f"last changed {each.changed_at:%Y-%m-%d}"
    if not is_key(each.key):
        return f"Somebody else put it there ({last}): its name is none that this program gives, so it is left alone."
    return f"No row names it; {last}."


def _end_unmet(sweep: StoreSweep, *, now: datetime) -> None:
    """End the findings that this round, which is over, did not meet again."""
    ours = StoreFinding.objects.filter(artifact=None, resolved_at=None)
    unmet = ours.filter(Q(seen_at=None) | Q(seen_at__lt=sweep.started_at))
    unmet.filter(kind=FindingKind.UNREADABLE).update(resolved_at=now, resolution="It was looked at without trouble.")
    # What lies in a folder that could not be read was not met either, and may be there all the same.
    unread = tuple(ours.filter(kind=FindingKind.UNREADABLE).values_list("storage_key", flat=True))
    gone = [
        (pk, key)
        for pk, key in unmet.filter(kind=FindingKind.ORPHANED).values_list("pk", "storage_key")
        if not key.startswith(unread)
    ]
    known = named([key for _, key in gone])
    for words, ids in (
        ("A row names it.", [pk for pk, key in gone if key in known]),
        ("It is there no more as it was found.", [pk for pk, key in gone if key not in known]),
    ):
        StoreFinding.objects.filter(pk__in=ids).update(resolved_at=now, resolution=words)


def _remove_old(orphans: Sequence[ObjectFacts], store: ArtifactStore, *, now: datetime) -> None:
    """Asked once more right before: a row may name it by now, or a document at work may be about to adopt it.

    `keeping.keep` adopts an object that holds its very bytes before the row is there, whatever the object's age, so
    nothing in the folder of a document with an active job is removed. The order matters: who is at work is asked
    first, so that one which is saved in between is named by its row. What begins only after both looks would have to
    submit or read, download and adopt within the few statements that are left.
    """
    keys = iter([each.key for each in orphans if each.changed_at < now - ORPHAN_REMOVED_AGE and is_key(each.key)])
    while some := list(islice(keys, REMOVED_AT_ONCE)):
        at_work = _folders_at_work(some)
        free = [key for key in some if key.rpartition("/")[0] not in at_work]
        for key in sorted(set(free) - named(free)):
            try:
                store.delete(key)
            except StoreError as error:
                store.ready()  # else it is the store's trouble, not this object's
                log.warning("%s is named by no row and cannot be removed: %s", key, error.words)
                continue
            _open_orphans().filter(storage_key=key).update(resolved_at=now, resolution="It was removed by a repair.")


def _folders_at_work(keys: Sequence[str]) -> set[str]:
    """Where documents with an active job keep their objects, in the workspaces of these keys."""
    slugs = {key.partition("/")[0] for key in keys}
    jobs = Job.objects.filter(state__in=ACTIVE_STATES, version__document__workspace__slug__in=slugs)
    documents = jobs.values_list("version__document__workspace__slug", "version__document__business_id")
    return {artifact_key(slug, business_id, 1).rpartition("/")[0] for slug, business_id in documents.iterator()}
