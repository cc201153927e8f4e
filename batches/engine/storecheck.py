"""The store's sweeps: does it hold what the rows say, and nothing that no row names?

Two walks, each in slices of a few seconds that remember their place: over the rows, asking the store for each object
(size always, digest for a share of them each round), and over the store's listing, asking the rows. What is amiss
becomes a `StoreFinding`; `storerepair.py` decides what follows for a document. A store that as a whole is not there
never makes documents missing one by one: it is asked before, after, and at the first object that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice

from django.db.models import Case, Count, Q, When

from batches.engine import alerts, storerepair
from batches.engine.clock import Clock
from batches.engine.keeping import digest_of
from batches.engine.storerepair import Amiss
from batches.models import (
    ACTIVE_STATES,
    AlertKind,
    Artifact,
    Batch,
    DocumentVersion,
    FindingKind,
    Job,
    JobState,
    StoreFinding,
    StoreSweep,
    Submission,
    SweepKind,
)
from batches.storage import ArtifactStore, ObjectFacts, ObjectMissing, StoreError, artifact_key

#: One slice, so that other tasks of the cluster start soon; and how long another worker leaves a slice alone.
SLICE = timedelta(seconds=5)
LEASE = timedelta(minutes=5)
#: A new round begins this long after the last one began: a lost file is found within the hour.
ROUND_EVERY = timedelta(hours=1)
ROWS_AT_ONCE = 200
KEYS_AT_ONCE = 1000
#: Look-ups at the same time; a bucket answers one in some 20 ms.
THREADS = 8
#: Each round reads every so many-th object whole, another one each time.
DEEP_EVERY = 24
#: More than this share of a slice, and at least this many, is no accident to single files: nobody is moved.
SUSPICIOUS_SHARE, SUSPICIOUS_LEAST = 0.05, 5
#: Younger objects may belong to a row that is not committed yet, or to an upload that is still being looked at.
ORPHAN_AGE = timedelta(days=1)
#: Orphans older than this are removed by a person's repair.
ORPHAN_REMOVED_AGE = timedelta(days=30)
#: Orphans that are removed between two looks at what is at work.
REMOVED_AT_ONCE = 50
FINDINGS_MOST = 1000
#: Documents that the alert names.
NAMED_MOST = 3


@dataclass(frozen=True)
class SliceReport:
    """What one slice did.

    `is_busy`: another worker has it, or no round is due. `trouble` says why it stopped: the store is away, or too much
    is amiss at once. `others` counts listed objects that are no PDFs: manifests, inputs, requests, what was kept aside.
    """

    looked_at: int = 0
    missing: int = 0
    damaged: int = 0
    orphaned: int = 0
    others: int = 0
    is_round_over: bool = False
    is_busy: bool = False
    trouble: str = ""


@dataclass
class _Slice:
    """One slice under way: its row, what it has seen, and when it has to end."""

    sweep: StoreSweep
    store: ArtifactStore
    clock: Clock
    ends_at: datetime
    looked_at: int = 0
    others: int = 0
    amiss: list[Amiss] = field(default_factory=list)

    def is_over(self) -> bool:
        return self.clock.now() >= self.ends_at


def check_objects(
    store: ArtifactStore,
    clock: Clock,
    *,
    owner: str,
    is_deep: bool = False,
    by_person: bool = False,
    is_repair: bool = False,
    seconds: timedelta = SLICE,
) -> SliceReport:
    """One slice over the artifacts' rows. `by_person` begins a round whenever the last one is over.

    `is_repair` moves documents even where suspiciously many objects are missing.
    """
    with _leased(SweepKind.OBJECTS, owner, clock.now(), by_person=by_person) as sweep:
        if sweep is None:
            return SliceReport(is_busy=True)
        work = _Slice(sweep, store, clock, clock.now() + seconds)
        try:
            store.ready()
            is_round_over = _look_at_objects(work, is_deep=is_deep)
            store.ready()
        except StoreError as error:
            return _troubled(work, f"The store cannot be checked: {error.words} No document was changed.")
        words = _suspicion(work)
        if words and not is_repair:
            return _troubled(work, words)
        now = clock.now()
        for each in work.amiss:
            storerepair.record(each, now=now)
            storerepair.act(each, store, now=now)
        storerepair.settle(store, now=now)
        _remember(work, is_round_over=is_round_over)
        tell(now=now)
        return _report(work, is_round_over)


def _look_at_objects(work: _Slice, *, is_deep: bool) -> bool:
    """Look until the slice's time is up; true when the last row was reached."""
    turn = int(work.sweep.facts.get("round", 0)) % DEEP_EVERY
    with ThreadPoolExecutor(THREADS, thread_name_prefix="store") as pool:
        while True:
            rows = list(
                Artifact.objects.filter(
                    storage_key__gt=work.sweep.position, local_deleted_at=None, missing_at=None
                ).order_by("storage_key")[:ROWS_AT_ONCE]
            )
            if not rows:
                return True
            read_whole = [is_deep or row.pk % DEEP_EVERY == turn for row in rows]
            verdicts = list(pool.map(lambda row, deep: _verdict(work.store, row, deep), rows, read_whole))
            bad = [verdict for verdict in verdicts if verdict is not None]
            if bad and not work.amiss:
                work.store.ready()
            work.amiss += bad
            work.looked_at += len(rows)
            good = {row.pk for row in rows} - {each.artifact.pk for each in bad}
            Artifact.objects.filter(pk__in=good).update(checked_at=work.clock.now())
            work.sweep.position = rows[-1].storage_key
            if work.is_over():
                return len(rows) < ROWS_AT_ONCE


def _verdict(store: ArtifactStore, row: Artifact, is_deep: bool) -> Amiss | None:
    """What is wrong with one object. Raises `StoreError` where the store cannot say."""
    size = store.size(row.storage_key)
    if size is None:
        return Amiss(row, FindingKind.MISSING, None, "The store has no object there.")
    if size != row.byte_count:
        words = f"It is {size:,} bytes long; {row.byte_count:,} bytes were stored."
        return Amiss(row, FindingKind.DAMAGED, size, words)
    if is_deep:
        try:
            found = digest_of(store, row.storage_key)
        except ObjectMissing:
            return Amiss(row, FindingKind.MISSING, None, "The store has no object there.")
        if found != row.sha256:
            words = f"Its SHA-256 is {found[:16]}…; {row.sha256[:16]}… was stored."
            return Amiss(row, FindingKind.DAMAGED, size, words)
    return None


def _suspicion(work: _Slice) -> str:
    count = len(work.amiss)
    if count < SUSPICIOUS_LEAST or count <= work.looked_at * SUSPICIOUS_SHARE:
        return ""
    return (
        f"{count:,} of {work.looked_at:,} stored PDFs that were looked at are missing or damaged. That looks like the "
        "store, not like single files, so no document was changed. Check that STORAGE_URL names the right store, that "
        "its volume is mounted, and restore a backup where one was lost; `manage.py check_store` looks again. "
        "`manage.py check_store --repair` takes them as lost: it fetches what the provider still has."
    )


# --- objects that no row names ---


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
    with _leased(SweepKind.ORPHANS, owner, clock.now(), by_person=by_person) as sweep:
        if sweep is None:
            return SliceReport(is_busy=True)
        work = _Slice(sweep, store, clock, clock.now() + seconds)
        orphans: list[ObjectFacts] = []
        try:
            store.ready()
            is_round_over = _look_at_listing(work, orphans)
            now = clock.now()
            _record_orphans(orphans, now=now)
            if is_repair:
                _remove_old(orphans, store, now=now)
            storerepair.settle(store, now=now)
        except StoreError as error:
            return _troubled(work, f"The store cannot be listed: {error.words}")
        _remember(work, is_round_over=is_round_over)
        tell(now=now)
        return replace(_report(work, is_round_over), orphaned=len(orphans))


def _look_at_listing(work: _Slice, orphans: list[ObjectFacts]) -> bool:
    listing = work.store.iter_facts(work.sweep.position)
    while objects := list(islice(listing, KEYS_AT_ONCE)):
        old = [each for each in objects if each.changed_at < work.clock.now() - ORPHAN_AGE]
        known = named([each.key for each in old])
        orphans += [each for each in old if each.key not in known]
        work.looked_at += len(objects)
        work.others += sum(_form(each.key) != "artifact" or ".damaged-" in each.key for each in objects)
        work.sweep.position = objects[-1].key
        if work.is_over():
            return len(objects) < KEYS_AT_ONCE
    return True


def named(keys: Sequence[str]) -> set[str]:
    """Which of these keys a row names: an artifact, a version's input, a submission's body or a batch's manifest.

    Each kind of row is asked only for keys of its own form, since only artifacts have an index for it.
    """
    by_form: dict[str, list[str]] = {"input": [], "request": [], "manifest": [], "artifact": []}
    for key in keys:
        by_form[_form(key)].append(key)
    artifacts = Artifact.objects.filter(storage_key__in=by_form["artifact"], local_deleted_at=None)
    known = set(artifacts.values_list("storage_key", flat=True))
    if inputs := by_form["input"]:
        found = DocumentVersion.objects.filter(input_key__in=inputs).values_list("input_key", flat=True)
        known |= {key for key in found if key}
    if bodies := by_form["request"]:
        sent = Submission.objects.filter(body_key__in=bodies).values_list("body_key", flat=True)
        known |= {key for key in sent if key}
    if manifests := by_form["manifest"]:
        known |= set(Batch.objects.filter(manifest_key__in=manifests).values_list("manifest_key", flat=True))
    return known


def _form(key: str) -> str:
    """What kind of object a key is for: input, request, manifest, else artifact."""
    if "/manifests/" in key:
        return "manifest"
    name = key.rpartition("/")[2].partition("-")[0]
    return name if name in ("input", "request") else "artifact"


def _record_orphans(orphans: Sequence[ObjectFacts], *, now: datetime) -> None:
    room = FINDINGS_MOST - StoreFinding.objects.filter(kind=FindingKind.ORPHANED, resolved_at=None).count()
    StoreFinding.objects.bulk_create(
        [
            StoreFinding(
                kind=FindingKind.ORPHANED,
                storage_key=each.key[:400],
                byte_count=each.byte_count,
                words=f"No row names it; last changed {each.changed_at:%Y-%m-%d}.",
                found_at=now,
            )
            for each in orphans[: max(0, room)]
        ],
        ignore_conflicts=True,
    )


def _remove_old(orphans: Sequence[ObjectFacts], store: ArtifactStore, *, now: datetime) -> None:
    """Asked once more right before: a row may name it by now, or a document at work may be about to adopt it.

    `keeping.keep` adopts an object that holds its very bytes before the row is there, whatever the object's age, so
    nothing in the folder of a document with an active job is removed. The order matters: who is at work is asked
    first, so that one which is saved in between is named by its row. What begins only after both looks would have to
    submit or read, download and adopt within the few statements that are left.
    """
    keys = iter([each.key for each in orphans if each.changed_at < now - ORPHAN_REMOVED_AGE])
    while some := list(islice(keys, REMOVED_AT_ONCE)):
        at_work = _folders_at_work(some)
        free = [key for key in some if key.rpartition("/")[0] not in at_work]
        for key in set(free) - named(free):
            try:
                store.delete(key)
            except ValueError:
                continue  # not a key of ours, so not ours to remove


def _folders_at_work(keys: Sequence[str]) -> set[str]:
    """Where documents with an active job keep their objects, in the workspaces of these keys."""
    slugs = {key.partition("/")[0] for key in keys}
    jobs = Job.objects.filter(state__in=ACTIVE_STATES, version__document__workspace__slug__in=slugs)
    documents = jobs.values_list("version__document__workspace__slug", "version__document__business_id")
    return {artifact_key(slug, business_id, 1).rpartition("/")[0] for slug, business_id in documents.iterator()}


# --- places, leases, alerts ---


@contextmanager
def _leased(kind: SweepKind, owner: str, now: datetime, *, by_person: bool) -> Iterator[StoreSweep | None]:
    """The sweep's row, ours alone for the slice; None while another worker has it or no round is due."""
    StoreSweep.objects.bulk_create([StoreSweep(kind=kind)], ignore_conflicts=True)
    free = StoreSweep.objects.filter(Q(lease_until=None) | Q(lease_until__lt=now), kind=kind)
    if not free.update(lease_owner=owner, lease_until=now + LEASE):
        yield None
        return
    sweep = StoreSweep.objects.get(kind=kind)
    try:
        is_between = sweep.started_at is None or sweep.finished_at is not None
        if is_between and sweep.started_at and not by_person and now < sweep.started_at + ROUND_EVERY:
            yield None
            return
        if is_between:
            sweep.started_at, sweep.position = now, ""
            sweep.facts = {"round": int(sweep.facts.get("round", 0)) + 1}
        yield sweep
    finally:
        StoreSweep.objects.filter(pk=sweep.pk, lease_owner=owner).update(lease_owner=None, lease_until=None)


def begin_anew(kind: SweepKind) -> None:
    """A person's round starts at the first key, wherever the scheduled one stands."""
    StoreSweep.objects.filter(kind=kind, lease_until=None).update(position="", started_at=None, finished_at=None)


def _remember(work: _Slice, *, is_round_over: bool) -> None:
    sweep = work.sweep
    facts = dict(sweep.facts)
    facts["looked_at"] = int(facts.get("looked_at", 0)) + work.looked_at
    facts.pop("trouble", None)
    StoreSweep.objects.filter(pk=sweep.pk, lease_owner=sweep.lease_owner).update(
        position=sweep.position,
        started_at=sweep.started_at,
        finished_at=work.clock.now() if is_round_over else None,
        facts=facts,
    )


def _troubled(work: _Slice, words: str) -> SliceReport:
    """The place is not remembered: the next slice looks at the same objects again."""
    StoreSweep.objects.filter(pk=work.sweep.pk).update(facts={**work.sweep.facts, "trouble": words})
    tell(now=work.clock.now())
    return replace(_report(work, False), trouble=words)


def _report(work: _Slice, is_round_over: bool) -> SliceReport:
    kinds = [each.kind for each in work.amiss]
    return SliceReport(
        looked_at=work.looked_at,
        missing=kinds.count(FindingKind.MISSING),
        damaged=kinds.count(FindingKind.DAMAGED),
        others=work.others,
        is_round_over=is_round_over,
    )


def tell(*, now: datetime) -> None:
    """One alert for all that is open, closed when nothing is."""
    found = StoreFinding.objects.filter(resolved_at=None).order_by()
    counts = dict(found.values_list("kind").annotate(count=Count("pk")))
    sentences = [sweep.facts["trouble"] for sweep in StoreSweep.objects.order_by("kind") if sweep.facts.get("trouble")]
    parts = [f"{counts[kind]:,} {kind.label.lower()}" for kind in FindingKind if counts.get(kind)]
    if parts:
        sentences.append(
            f"Objects in the store that are not as the rows say: {', '.join(parts)}.{_named()} What the provider still "
            "has is fetched again by itself. The admin lists each under “Store findings”; `manage.py check_store` "
            "looks again."
        )
    if sentences:
        alerts.tell(AlertKind.STORE, alerts.STORE_OBJECTS, " ".join(sentences), now=now)
    else:
        alerts.close(AlertKind.STORE, alerts.STORE_OBJECTS, now=now)


def _named() -> str:
    """The first few documents and what happens to each, what waits for a person before the rest."""
    found = StoreFinding.objects.filter(resolved_at=None, artifact__isnull=False)
    by_need = Case(When(artifact__version__job__state=JobState.EXPIRED, then=0), default=1)
    about = found.select_related("artifact__version__document", "artifact__version__job").order_by(by_need, "pk")
    names = [
        f"{each.artifact.version} ({storerepair.what_follows(each)})" for each in about[:NAMED_MOST] if each.artifact
    ]
    return f" They are, or begin with: {'; '.join(names)}." if names else ""
