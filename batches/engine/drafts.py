"""Drafts: an upload is kept and gets an address before anything of it is read; then it is looked at, chosen for,
checked and started. Owns the state of a draft: each move is one guarded write under the row's lock. What becomes of its
file is `draftfiles.py`.

Nothing of a file is read here but its head. The check and the start are `checking.py`, on a worker or in the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, BinaryIO

from django.db import transaction
from django.db.models import F, QuerySet

from batches import queue
from batches.engine import audit, draftfiles, keys, leases, looks, writing
from batches.engine.audit import By
from batches.engine.contention import again_after_deadlock
from batches.manifests.choices import Choices
from batches.models import WORKING_STATES, Batch, ColumnMapping, Draft, DraftState, ProviderAccount, Workspace
from batches.storage import ArtifactStore, upload_key

#: A draft that nobody touched for so long is swept: its upload is deleted, its row stays.
KEPT = timedelta(days=7)
SWEPT_AT_ONCE = 100
#: What a person may still change.
CHANGEABLE = (DraftState.OPEN, DraftState.CHECKING, DraftState.CHECKED)
DISCARDED = "It was discarded; the file is deleted."
FORGOTTEN = f"Nobody came back to it for {KEPT.days} days; the file is deleted."
OVER = "This draft is over. Upload the file again to make another one."
CHANGED_MEANWHILE = "Something was changed in another window meanwhile. Look at it again."


class Refused(Exception):
    """It is not done; `words` say why, and what to do instead."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


@dataclass(frozen=True)
class Upload:
    """What was handed over: the file whole and seekable, its name, and for what."""

    stream: BinaryIO
    filename: str
    workspace: Workspace
    account: ProviderAccount
    name: str = ""
    on_conflict: str = "refuse"
    target: Batch | None = None
    reason: str = ""


@dataclass(frozen=True)
class Run:
    """How it is to be started, as a person chose it beside the Start button."""

    generation: int
    renders_shown: int
    is_confirmed: bool = False
    name: str = ""
    sample_size: int = 0
    stop_after_failures: int | None = None
    stop_after_percent: int | None = None
    spend_cap: Decimal | None = None
    wants_notices: bool = False


@dataclass(frozen=True)
class Changes:
    """What a person chose anew; what is None or not named stays."""

    choices: Mapping[str, Any] = field(default_factory=dict)
    """Some of the fields of `manifests.Choices`."""
    account: ProviderAccount | None = None
    on_conflict: str | None = None
    take: str | None = None


# --- receiving and looking ------------------------------------------------------------------------------------------


def receive(upload: Upload, *, by: By, store: ArtifactStore, now: datetime) -> Draft:
    """Keep an upload byte for byte and give it an address. Nothing of it was read, but to hash it.

    Store errors pass, with nothing kept.
    """
    public_id = keys.public_id("dft")
    sha256, size = draftfiles.digest(upload.stream)
    key = upload_key(upload.workspace.slug, public_id)
    store.put(key, upload.stream)
    with transaction.atomic():
        draft = Draft.objects.create(
            public_id=public_id,
            workspace=upload.workspace,
            account=upload.account,
            target=upload.target,
            name=upload.name[:200],
            filename=upload.filename[-255:],
            upload_key=key,
            upload_sha256=sha256,
            upload_bytes=size,
            on_conflict=upload.on_conflict,
            reason=upload.reason,
            created_by=by.actor,
            from_where=by.from_where[:100],
            created_at=now,
            touched_at=now,
        )
        facts = {"filename": draft.filename[:200], "bytes": size, "sha256": sha256}
        facts |= {"corrects": upload.target.public_id} if upload.target else {}
        _record("upload_file", draft, by=by, now=now, facts=facts)
    return draft


def look(draft: Draft, stream: BinaryIO, *, now: datetime) -> Draft:
    """Look at the head of the upload with the choices as they are, and keep what it shows.

    A file that cannot be used at all is refused here: then its draft is checked, with that as its only error, and what
    an earlier look showed stays, so that another choice can be made.
    """
    seen, refusal = looks.look(draft, stream)
    ours = Draft.objects.filter(pk=draft.pk, generation=draft.generation, state=DraftState.OPEN)
    if refusal is None:
        ours.update(look=seen)
    else:
        ours.update(look=seen or draft.look, report=refusal, state=DraftState.CHECKED)
    return _whole().get(pk=draft.pk)


# --- choosing -------------------------------------------------------------------------------------------------------


def choose(draft_id: int, changes: Changes, *, by: By, now: datetime) -> Draft:
    """Take over what was chosen. What was checked before counts no more, and a check that runs is dropped.

    A batch that a failed start left half written is given up: its other half would be read by other choices. Raises
    `Refused` once it is being started.
    """
    draft = _choose(draft_id, changes, by=by, now=now)
    writing.give_up_begun(draft.workspace_id, draft.public_id, writing.CHOSEN_ANEW, now=now)
    return draft


@again_after_deadlock
@transaction.atomic
def _choose(draft_id: int, changes: Changes, *, by: By, now: datetime) -> Draft:
    draft = _locked(draft_id)
    if draft.state not in CHANGEABLE:
        raise Refused(_why_fixed(draft))
    before = Choices.from_dict(draft.choices)
    chosen = Choices.from_dict({**before.as_dict(), **changes.choices})
    given = {
        "account": changes.account or draft.account,
        "on_conflict": changes.on_conflict or draft.on_conflict,
        "take": changes.take or draft.take,
    }
    for name, value in given.items():
        setattr(draft, name, value)
    draft.choices = chosen.as_dict()
    draft.generation += 1
    draft.report = None
    draft.renders_shown = None
    _move(draft, DraftState.OPEN, now=now)
    told = {name: value for name, value in chosen.as_dict().items() if value != getattr(before, name)}
    facts = {**told, "account": draft.account.slug, "on_conflict": draft.on_conflict, "take": draft.take}
    _record("choose_for_upload", draft, by=by, now=now, facts=facts)
    _remember(draft, chosen, now=now)
    return draft


def _remember(draft: Draft, chosen: Choices, *, now: datetime) -> None:
    """The next file with this header is offered the same mapping."""
    header = draft.look.get("header_sha256")
    if header and chosen.mapping is not None:
        values = {"mapping": dict(chosen.mapping), "used_at": now}
        ColumnMapping.objects.update_or_create(workspace=draft.workspace, header_sha256=header, defaults=values)


def remembered(draft: Draft) -> Mapping[str, str] | None:
    """What the workspace mapped such a header to last time; None for one that it has not seen."""
    header = draft.look.get("header_sha256") or ""
    mapping = ColumnMapping.objects.filter(workspace=draft.workspace_id, header_sha256=header)
    found: Mapping[str, str] | None = mapping.values_list("mapping", flat=True).first()
    return found


# --- the worker's turn ----------------------------------------------------------------------------------------------


@again_after_deadlock
@transaction.atomic
def ask_check(draft_id: int, *, now: datetime) -> Draft:
    """Have it checked as it is chosen for now, and ring. Asked twice it is checked once.

    Pages that show an earlier check of the same choices start nothing any more: this one may find something else.
    """
    draft = _locked(draft_id)
    if draft.state not in CHANGEABLE:
        raise Refused(_why_fixed(draft))
    if draft.state != DraftState.CHECKING:
        draft.generation += draft.report is not None
        draft.rows_done = 0
        draft.report = None
        _move(draft, DraftState.CHECKING, now=now)
        queue.ring_drafts()
    return draft


@again_after_deadlock
@transaction.atomic
def ask_start(draft_id: int, run: Run, *, by: By, now: datetime) -> Draft:
    """Have it started as it was shown, and ring. Pressed twice, or in two windows, it is started once.

    Raises `Refused` with what is missing; the draft is then as it was.
    """
    draft = _locked(draft_id)
    if draft.state in (DraftState.STARTING, DraftState.STARTED):
        return draft
    if draft.state == DraftState.SWEPT:
        raise Refused(_why_fixed(draft))
    if draft.state != DraftState.CHECKED or draft.report is None or draft.generation != run.generation:
        raise Refused(CHANGED_MEANWHILE)
    if not draft.report.get("ok"):
        raise Refused("The check found errors. Correct the file, or choose to take the good rows.")
    if asks_confirmation(draft) and not run.is_confirmed:
        raise Refused("Confirm the notices first.")
    draft.is_confirmed, draft.renders_shown = run.is_confirmed, run.renders_shown
    draft.name = run.name.strip()[:200] or draft.name
    draft.sample_size, draft.spend_cap = run.sample_size, run.spend_cap
    draft.stop_after_failures, draft.stop_after_percent = run.stop_after_failures, run.stop_after_percent
    draft.wants_notices = run.wants_notices
    draft.from_where = by.from_where[:100]
    draft.rows_done = 0
    _move(draft, DraftState.STARTING, now=now)
    facts: dict[str, Any] = {"renders": run.renders_shown, "sample": run.sample_size}
    facts |= {"spend_cap": str(run.spend_cap)} if run.spend_cap is not None else {}
    _record("start_upload", draft, by=by, now=now, facts=facts)
    queue.ring_drafts()
    return draft


def asks_confirmation(draft: Draft) -> bool:
    notices = (draft.report or {}).get("notices", [])
    return any(notice["needs_confirmation"] for notice in notices)


@again_after_deadlock
@transaction.atomic
def end_turn(
    draft_id: int,
    owner: str,
    generation: int,
    state: DraftState,
    *,
    words: str = "",
    report: Mapping[str, Any] | None = None,
    batch: Batch | None = None,
    now: datetime,
) -> bool:
    """Write down what the worker's turn came to; false, with nothing written, where it is this worker's no more.

    `report` None keeps the one that is there. One that a start found instead of it has to be seen before the next.
    """
    draft = _locked(draft_id)
    if draft.lease_owner != owner or draft.generation != generation or draft.state not in WORKING_STATES:
        return False
    if report is not None:
        draft.generation += draft.state == DraftState.STARTING
        draft.report = dict(report)
    draft.batch = batch
    _move(draft, state, words=words, now=now, is_touched=False)
    return True


def put_off(draft_id: int, owner: str, *, until: datetime, words: str, is_counted: bool = True) -> None:
    """Give the turn back, to be taken again `until` then. Not counted: the worker only had to stop."""
    working = Draft.objects.filter(pk=draft_id, state__in=WORKING_STATES)
    tries = {} if is_counted else {"tries": F("tries") - 1}
    leases.give_back(working, owner, due_at=until, words=words, **tries)


def note_done(draft_id: int, *, now: datetime) -> None:
    """Of one whose rows whoever handed it over has replaced already: a command needs no turn of a worker."""
    Draft.objects.filter(pk=draft_id, state=DraftState.OPEN).update(state=DraftState.STARTED, touched_at=now)


# --- ends -----------------------------------------------------------------------------------------------------------


def discard(draft_id: int, *, by: By, store: ArtifactStore, now: datetime) -> bool:
    """Give it up and delete the upload; false where it was over before. Raises `Refused` while it is being started."""
    with transaction.atomic():
        draft = _locked(draft_id)
        if draft.state == DraftState.STARTING:
            raise Refused(_why_fixed(draft))
        if draft.state not in CHANGEABLE:
            return False
        draft.generation += 1
        _move(draft, DraftState.SWEPT, words=DISCARDED, now=now)
        _record("discard_upload", draft, by=by, now=now, facts={"filename": draft.filename[:200]})
    writing.give_up_begun(draft.workspace_id, draft.public_id, writing.CHOSEN_ANEW, now=now)
    draftfiles.forget(draft, store, now=now)
    return True


def sweep(store: ArtifactStore, *, now: datetime) -> int:
    """End drafts that nobody came back to, and delete their uploads; how many.

    Uploads of drafts that were over before go too, where a death or the store kept somebody from deleting them.
    """
    old = Draft.objects.filter(state__in=(DraftState.OPEN, DraftState.CHECKED), touched_at__lt=now - KEPT)
    swept = 0
    for draft_id in list(old.order_by("touched_at").values_list("pk", flat=True)[:SWEPT_AT_ONCE]):
        with transaction.atomic():
            draft = _locked(draft_id)
            if draft.state not in (DraftState.OPEN, DraftState.CHECKED) or draft.touched_at >= now - KEPT:
                continue
            draft.generation += 1
            _move(draft, DraftState.SWEPT, words=FORGOTTEN, now=now, is_touched=False)
            _record("sweep_upload", draft, by=audit.ENGINE, now=now, facts={"filename": draft.filename[:200]})
        draftfiles.forget(draft, store, now=now)
        swept += 1
    draftfiles.forget_left(store, now=now)
    return swept


def _why_fixed(draft: Draft) -> str:
    if draft.state == DraftState.STARTING:
        return "It is being started, so nothing of it can be changed any more."
    if draft.state == DraftState.STARTED:
        return "It was started already."
    return draft.words or OVER


def _locked(draft_id: int) -> Draft:
    return _whole().select_for_update(of=("self",), no_key=True).get(pk=draft_id)


def _whole() -> QuerySet[Draft]:
    return Draft.objects.select_related("workspace", "account", "batch", "target", "created_by")


def _move(draft: Draft, state: DraftState, *, words: str = "", now: datetime, is_touched: bool = True) -> None:
    """Write the row with its new state; every lease ends with a move."""
    draft.state = state
    draft.words = words
    draft.tries = 0
    draft.due_at = now if state in WORKING_STATES else None
    draft.lease_owner = draft.lease_until = None
    if is_touched:
        draft.touched_at = now
    draft.save()


def _record(action: str, draft: Draft, *, by: By, now: datetime, facts: Mapping[str, Any]) -> None:
    audit.record(
        action,
        subject=f"draft {draft.public_id}",
        workspace=draft.workspace,
        by=by,
        now=now,
        reason=draft.reason,
        facts=facts,
    )
