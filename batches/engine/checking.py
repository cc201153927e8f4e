"""Checking and starting drafts: one at a time under a lease, on a worker, or in the request where the upload is small.

Who dies leaves the draft in its turn: its lease runs out, or is given back when its cluster is proven dead, and the
next one begins the turn anew. A start that died goes on with the batch that it had begun, which the draft's own id
names. What a check of older choices found is dropped. A mishap is tried again a few times, then a person is told.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, QuerySet

from batches import rights
from batches.engine import (
    agreed,
    correcting,
    draftfiles,
    drafts,
    intake,
    keys,
    leases,
    looks,
    mishaps,
    stopping,
    versions,
    writing,
)
from batches.engine.clock import Clock
from batches.engine.errors import IntakeRefused
from batches.manifests import ManifestRefused
from batches.manifests.choices import Choices
from batches.models import WORKING_STATES, Batch, Draft, DraftState
from batches.storage import ArtifactStore, ObjectMissing, StoreError

log = logging.getLogger(__name__)

#: A worker takes the next draft while this has not passed; one that was begun is carried to its end.
SLICE = timedelta(seconds=4)
#: Renewed with the progress; opening a large archive tells of none for half a minute.
LEASE = timedelta(seconds=60)
BEAT = timedelta(seconds=1)
#: A turn that takes longer is ended in words, before django-q2 kills its worker (`queue.DRAFTS_TIMEOUT`), and with it
#: the work of all others: templates that take a second a row need a day for the largest upload.
LONGEST = timedelta(minutes=25)
#: Turns that may end in a mishap, a killed worker's too; some two minutes together.
TRIES_MOST = 5
PUT_OFF_FIRST, PUT_OFF_MOST = timedelta(seconds=5), timedelta(seconds=60)
#: Uploads up to this size are done in the request as well: their answer is there at once. What takes longer than
#: this all the same, such as a megabyte of very short rows, is handed to a worker.
SMALL_BYTES = 1_000_000
IN_REQUEST = timedelta(seconds=10)

GONE = "The file is no longer in the store. Upload it again."
GAVE_UP = "It was tried several times, and the worker ended each time before it was done. Report it."
FAULT = "A fault of our own stopped it; the log has the details. Report it."
TOO_LONG = (
    f"It took longer than {LONGEST.seconds // 60} minutes, so it was ended. Split the file into several uploads, or "
    "make its template do less for each row."
)
MAY_NOT_START = "Whoever uploaded it may no longer start a batch in this workspace."


@dataclass(frozen=True)
class Tally:
    """What one slice did. `is_work_left`: somebody should go on at once."""

    drafts: int = 0
    is_work_left: bool = False


class _NotOurs(Exception):
    """The choices were changed, the draft was discarded, or another worker has it."""


class _Stopping(Exception):
    """This worker has to stop; the next one begins the turn anew."""


class _TooLong(Exception):
    """It would go on for hours; nobody begins it anew until a person asks."""


def never() -> bool:
    return False


def carry_out(clock: Clock, *, owner: str, store: ArtifactStore, stopping: Callable[[], bool]) -> Tally:
    """One slice over the drafts that wait for a worker. Harmless when there are none."""
    ends_at = clock.now() + SLICE
    done = 0
    while not stopping() and clock.now() < ends_at:
        waiting = due(now=clock.now())
        if not waiting:
            break
        done += work_on(waiting[0], clock, owner=owner, store=store, stopping=stopping)
    return Tally(done, is_work_left=bool(due(now=clock.now())))


def due(*, now: datetime) -> list[int]:
    """Drafts in the worker's turn that no worker has, the one that waits longest first."""
    return list(leases.free(_waiting(now), now=now).order_by("due_at", "pk").values_list("pk", flat=True)[:100])


def is_busy(*, now: datetime) -> bool:
    """Whether some worker has a draft in hand, for perhaps a minute."""
    return leases.is_any_held(Draft.objects.filter(state__in=WORKING_STATES), now=now)


def release_life(life: str) -> int:
    """Give back the drafts that workers of a cluster had which is proven dead (`batches/lives.py`); how many."""
    return leases.release_life(Draft.objects.all(), life)


def work_on(
    draft_id: int, clock: Clock, *, owner: str, store: ArtifactStore, stopping: Callable[[], bool] = never
) -> bool:
    """Do the turn of one draft, if nobody else has it; true when it was this call that did it.

    Raises only what says that the database is away; the draft is then taken up again.
    """
    turn = _taken(draft_id, clock, owner, stopping)
    if turn is None:
        return False
    try:
        if turn.draft.tries > TRIES_MOST:
            turn.end(_BACK[DraftState(turn.draft.state)], words=turn.draft.words or GAVE_UP)
            return True
        _carry_out(turn, store)
    except _NotOurs:
        return False
    except _Stopping:
        drafts.put_off(draft_id, owner, until=clock.now(), words="", is_counted=False)
        return False
    except _TooLong:
        turn.end(_BACK[DraftState(turn.draft.state)], words=TOO_LONG)
    except ObjectMissing:
        turn.end(DraftState.SWEPT, words=GONE)
    except StoreError as error:
        log.warning("a draft waits for the store: %s", error)
        turn.put_off(error.words)
    except mishaps.DATABASE_AWAY:
        with contextlib.suppress(*mishaps.DATABASE_AWAY):
            turn.put_off("The database did not answer.")
        raise
    except Exception as error:  # whatever it is, it is this upload's: the others are not to wait for it
        log.exception("draft %s could not be done", turn.draft.public_id, exc_info=mishaps.without_row(error))
        turn.put_off(FAULT)
    return True


# --- the turn -------------------------------------------------------------------------------------------------------


@dataclass
class _Turn:
    """A draft as it was taken, with the lease that lasts while its progress is told."""

    draft: Draft
    owner: str
    clock: Clock
    stopping: Callable[[], bool]
    beats_at: datetime
    ends_at: datetime

    def beat(self, row_count: int) -> None:
        """Renew the lease and show how far it is. Raises where this worker may or need not go on."""
        if self.stopping():
            raise _Stopping
        now = self.clock.now()
        if now < self.beats_at:
            return
        if now > self.ends_at:
            raise _TooLong
        self.beats_at = now + BEAT
        mine = Draft.objects.filter(pk=self.draft.pk, generation=self.draft.generation, state=self.draft.state)
        if not leases.renew(mine, self.owner, until=now + LEASE, rows_done=row_count):
            raise _NotOurs

    def end(self, state: DraftState, **told: Any) -> bool:
        return drafts.end_turn(self.draft.pk, self.owner, self.draft.generation, state, now=self.clock.now(), **told)

    def put_off(self, words: str) -> None:
        """It is tried again later, or where that was often enough, a person reads why not."""
        if self.draft.tries >= TRIES_MOST:
            self.end(_BACK[DraftState(self.draft.state)], words=words)
            return
        wait = min(PUT_OFF_MOST, PUT_OFF_FIRST * 2 ** (self.draft.tries - 1))
        drafts.put_off(self.draft.pk, self.owner, until=self.clock.now() + wait, words=words)


def _waiting(now: datetime) -> QuerySet[Draft]:
    return Draft.objects.filter(state__in=WORKING_STATES, due_at__lte=now + leases.CLOCKS_APART)


def _taken(draft_id: int, clock: Clock, owner: str, stopping: Callable[[], bool]) -> _Turn | None:
    now = clock.now()
    # Counted when it is taken: a file that kills its worker each time must not do so for ever.
    mine = _waiting(now).filter(pk=draft_id)
    if not leases.take(mine, owner, until=now + LEASE, now=now, tries=F("tries") + 1):
        return None
    draft = Draft.objects.select_related("workspace", "account", "target", "created_by").get(pk=draft_id)
    return _Turn(draft, owner, clock, stopping, beats_at=now + BEAT, ends_at=now + LONGEST)


@contextmanager
def _read(turn: _Turn, store: ArtifactStore) -> Iterator[intake.Check]:
    """The upload checked and planned as its draft says, open until the end of the block."""
    draft = turn.draft
    with store.open(draft.upload_key) as stream:
        checked = intake.check(
            draftfiles.source(draft, stream),
            workspace=draft.workspace,
            account=draft.account,
            on_conflict=draft.on_conflict,
            choices=Choices.from_dict(draft.choices),
            take=draft.take,
            progress=turn.beat,
        )
        with checked.manifest:
            yield checked


@contextmanager
def _read_corrections(turn: _Turn, store: ArtifactStore) -> Iterator[correcting.Correction]:
    """The upload of a draft with a target, read and planned against that batch, open until the end of the block."""
    with store.open(turn.draft.upload_key) as stream:
        source = draftfiles.source(turn.draft, stream)
        now = turn.clock.now()
        with correcting.of_draft(turn.draft, source, store=store, now=now, progress=turn.beat) as correction:
            yield correction


def _carry_out(turn: _Turn, store: ArtifactStore) -> None:
    """What its state asks for, be it rows of a new batch or corrected ones of another."""
    draft = turn.draft
    try:
        _TURNS[DraftState(draft.state), draft.target is not None](turn, store)
    except ManifestRefused as refused:
        turn.end(DraftState.CHECKED, report=looks.refusal_report(refused))


def _check(turn: _Turn, store: ArtifactStore) -> None:
    with _read(turn, store) as checked:
        if turn.end(DraftState.CHECKED, report=checked.report()):
            versions.note_offered(checked, now=turn.clock.now())


def _check_corrections(turn: _Turn, store: ArtifactStore) -> None:
    with _read_corrections(turn, store) as correction:
        turn.end(DraftState.CHECKED, report=correction.report())


def _replace(turn: _Turn, store: ArtifactStore) -> None:
    """The rows of a draft with a target take the place of that batch's failed ones. Its upload is kept as evidence."""
    with _read_corrections(turn, store) as correction:
        try:
            correcting.carry_out(correction, turn.draft, store=store, now=turn.clock.now())
        except IntakeRefused as refused:
            turn.end(DraftState.CHECKED, words=refused.words, report=correction.report())
            return
    turn.end(DraftState.STARTED)


def _start(turn: _Turn, store: ArtifactStore) -> None:
    draft = turn.draft
    batch = Batch.objects.filter(
        workspace=draft.workspace, creation_key=keys.kept(draft.public_id), writing_at=None
    ).first()
    if batch is None:
        if draft.created_by is None or not rights.may(draft.created_by, rights.START, draft.workspace):
            turn.end(DraftState.CHECKED, words=MAY_NOT_START)
            return
        with _read(turn, store) as checked:
            batch = _started(turn, checked, store)
    if batch is not None and turn.end(DraftState.STARTED, batch=batch):
        draftfiles.forget(draft, store, now=turn.clock.now())


def _started(turn: _Turn, checked: intake.Check, store: ArtifactStore) -> Batch | None:
    """The batch; None where it was refused, which the draft says then, with what the check finds by now."""
    draft, now = turn.draft, turn.clock.now()
    assert draft.created_by is not None, "nobody may start nothing"
    try:
        return intake.start(
            checked,
            name=draft.name,
            actor=draft.created_by,
            actor_words=draft.created_by.get_username(),
            from_where=draft.from_where,
            creation_key=draft.public_id,
            store=store,
            now=now,
            confirmed=draft.is_confirmed,
            shown=agreed.of_report(draft.report or {}, draft.renders_shown or 0),
            rules=stopping.Rules(
                stop_after_failures=draft.stop_after_failures, stop_after_percent=draft.stop_after_percent
            ),
            spend_cap=draft.spend_cap,
            sample_size=draft.sample_size,
            notify=[draft.created_by] if draft.wants_notices else (),
            progress=turn.beat,
        )
    except IntakeRefused as refused:
        is_outdated = refused.words in (writing.RACED, writing.CANCELLED, intake.BEGUN_OTHERWISE)
        state = DraftState.OPEN if is_outdated else DraftState.CHECKED
        turn.end(state, words=refused.words, report=checked.report())
        return None


#: By state, and whether the draft has a target.
_TURNS: dict[tuple[DraftState, bool], Callable[[_Turn, ArtifactStore], None]] = {
    (DraftState.CHECKING, False): _check,
    (DraftState.CHECKING, True): _check_corrections,
    (DraftState.STARTING, False): _start,
    (DraftState.STARTING, True): _replace,
}
#: Where a draft goes whose turn came to nothing.
_BACK = {DraftState.CHECKING: DraftState.OPEN, DraftState.STARTING: DraftState.CHECKED}
