"""The store's sweep over the rows: does it hold what they say? (What no row names: `storeorphans.py`.)

The store is asked for each object: its size always, its digest for a share of them each round. What is amiss becomes a
`StoreFinding`; `storerepair.py` decides what follows for a document. A store that as a whole is not there never makes
documents missing one by one: it is asked before, after, and at the first object that is not there. One object that it
cannot say anything about is noted and passed, as long as others can be read.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta
from itertools import chain
from typing import cast

from django.db.models import QuerySet

from batches.engine import storerepair, storeslices
from batches.engine.clock import Clock
from batches.engine.contention import again_after_deadlock
from batches.engine.keeping import digest_of
from batches.engine.storerepair import Amiss
from batches.engine.storeslices import SLICE, Slice, SliceReport
from batches.models import Artifact, FindingKind, SweepKind
from batches.storage import ArtifactStore, ObjectMissing, StoreError, StoreUnavailable

ROWS_AT_ONCE = 200
#: Look-ups at the same time; a bucket answers one in some 20 ms.
THREADS = 8
#: Each round reads every so many-th object whole, another one each time.
DEEP_EVERY = 24
#: More than this share of a slice, and at least this many, is no accident to single files: nobody is moved.
SUSPICIOUS_SHARE, SUSPICIOUS_LEAST = 0.05, 5
#: Objects of each kind (first, last, newest) that are tried before the whole store counts as unreadable.
TRIED_ELSEWHERE = 5

_Answer = Amiss | StoreError | None


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
    """One slice over the artifacts' rows, then over the open findings. Each may take `seconds`.

    `by_person` begins a round whenever the last one is over; a round is over when all rows and all findings were looked
    at. `is_repair` moves documents even where suspiciously many objects are missing.
    """
    with storeslices.leased(SweepKind.OBJECTS, owner, clock.now(), by_person=by_person) as sweep:
        if sweep is None:
            return SliceReport(is_busy=True)
        work = Slice(sweep, store, clock, clock.now() + seconds, storeslices.place_of(sweep))
        try:
            store.ready()
            are_rows_done = _look_at_objects(work, is_deep=is_deep)
            store.ready()
        except StoreError as error:
            return storeslices.troubled(work, f"The store cannot be checked: {error.words} No document was changed.")
        words = "" if is_repair else _suspicion(work)
        if not words:
            storerepair.follow(work.amiss + work.unread, store, now=clock.now())
        settled = storerepair.settle(store, clock, after=sweep.facts.get("settled", 0), ends_at=clock.now() + seconds)
        sweep.facts["settled"] = settled or 0
        if words:
            return storeslices.troubled(work, words)
        is_round_over = are_rows_done and settled is None
        storeslices.remember(work, is_round_over=is_round_over)
        storeslices.tell(now=clock.now())
        return storeslices.report(work, is_round_over=is_round_over)


def _present() -> QuerySet[Artifact]:
    """The rows whose objects should be there."""
    return Artifact.objects.filter(local_deleted_at=None, missing_at=None)


def _look_at_objects(work: Slice, *, is_deep: bool) -> bool:
    """Look until the slice's time is up; true when the last row was reached."""
    turn = int(work.sweep.facts.get("round", 0)) % DEEP_EVERY
    with ThreadPoolExecutor(THREADS, thread_name_prefix="store") as pool:
        while rows := list(_present().filter(storage_key__gt=work.place).order_by("storage_key")[:ROWS_AT_ONCE]):
            read_whole = [is_deep or row.pk % DEEP_EVERY == turn for row in rows]
            answers = pool.map(lambda row, deep: _answer(work.store, row, deep), rows, read_whole)
            done = _take(work, rows, cast("Generator[_Answer]", answers))  # closing it asks no more
            work.looked_at += len(done)
            bad = {each.artifact.pk for each in chain(work.amiss, work.unread)}
            _mark_good([row.pk for row in done if row.pk not in bad], now=work.clock.now())
            work.place = done[-1].storage_key
            if work.is_over():
                return len(done) < ROWS_AT_ONCE and len(done) == len(rows)
    return True


def _take(work: Slice, rows: Sequence[Artifact], answers: Generator[_Answer]) -> Sequence[Artifact]:
    """Note what is amiss with these rows; returns those that were looked at. Raises where the whole store is away.

    A store that has one object it cannot read is one finding; it is another matter when none can be read, or when each
    answer is only a time-out: then the slice ends in time.
    """
    are_others_read = False
    with closing(answers):
        for count, (row, answer) in enumerate(zip(rows, answers, strict=False), start=1):
            if isinstance(answer, StoreError):
                if not are_others_read:
                    work.store.ready()
                    if not _is_any_read(work.store, row):
                        raise answer
                    are_others_read = True
                words = f"It cannot be read, so nobody knows whether it is whole: {answer.words}"
                work.unread.append(Amiss(row, FindingKind.UNREADABLE, None, words))
                if work.is_over():
                    return rows[:count]
            elif answer is not None:
                if not work.amiss:
                    work.store.ready()
                work.amiss.append(answer)
    return rows


def _is_any_read(store: ArtifactStore, unread: Artifact) -> bool:
    """Whether an object somewhere else in the store can be read whole: then it is there, and one object is the trouble.

    The first, the last and the newest ones, since what lies beside the one that is `unread` may share its trouble.
    """
    orders = ("storage_key", "-storage_key", "-pk")
    others = chain.from_iterable(_present().exclude(pk=unread.pk).order_by(each)[:TRIED_ELSEWHERE] for each in orders)
    for row in others:
        answer = _answer(store, row, is_deep=True)
        if answer is None or (isinstance(answer, Amiss) and answer.byte_count is not None):
            return True
    return False


@again_after_deadlock
def _mark_good(ids: Sequence[int], *, now: datetime) -> None:
    Artifact.objects.filter(pk__in=ids).update(checked_at=now)


def _answer(store: ArtifactStore, row: Artifact, is_deep: bool) -> _Answer:
    """What is wrong with one object, None for nothing; the error where the store cannot say."""
    try:
        return _verdict(store, row, is_deep)
    except StoreError as error:
        return error
    except ValueError:
        return StoreUnavailable("Its row names it by what is no key of this program.")


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


def _suspicion(work: Slice) -> str:
    count = len(work.amiss)
    if count < SUSPICIOUS_LEAST or count <= work.looked_at * SUSPICIOUS_SHARE:
        return ""
    return (
        f"{count:,} of {work.looked_at:,} stored PDFs that were looked at are missing or damaged. That looks like the "
        "store, not like single files, so no document was changed. Check that STORAGE_URL names the right store, that "
        "its volume is mounted, and restore a backup where one was lost; `manage.py check_store` looks again. "
        "`manage.py check_store --repair` takes them as lost: it fetches what the provider still has."
    )
