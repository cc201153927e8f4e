"""The grouped write: where the results of steps meet the database, many changes at once.

One group is one short transaction; a group that fails for its data is repeated one by one, so that a bad row parks
itself and never stops the others. Nothing is judged here: what a `Change` says is written, or refused when its holder
is no longer the job's.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from batches.engine import alerts, bulk, deadlines, durations, exchanges, latewatch, mishaps, stopping, transitions
from batches.engine.changes import Change, accepting, parking
from batches.engine.contention import again_after_deadlock
from batches.engine.exchanges import Evidence
from batches.engine.transitions import Move
from batches.models import (
    FAILED_STATES,
    AlertKind,
    Artifact,
    FailureClass,
    Job,
    JobState,
    ProviderAccount,
    Submission,
)

log = logging.getLogger(__name__)

#: What a stored PDF sets on its row, beside its own facts, when the row is there already.
RESTORED = {"checked_at": None, "missing_at": None, "notice": "", "notice_words": ""}

#: What `_record_ids` writes of a submission, whatever becomes of the rest.
ID_FIELDS = ("provider_job_id", "accepted_at")

Committed = Callable[[Sequence[Change], set[int]], None]


def _nobody_asks(_part: Sequence[Change], _stale: set[int]) -> None:
    """Of a caller that writes once and for all."""


def write_round(
    group: Sequence[Change],
    *,
    now: datetime,
    book: durations.Book | None = None,
    watch: stopping.Watch | None = None,
    committed: Committed = _nobody_asks,
) -> set[int]:
    """Write changes of different jobs in one transaction. Returns the jobs that are no longer their holder's.

    Their claim had gone stale, or they were parked or given back instead of what was asked.

    What a stale holder learned is still kept: exchanges always, a provider job id on its own submission. `book` records
    how long the submissions took that end here; `watch` asks the stop rules of the batches with failures among these.

    `committed` is told of each part as soon as it is committed, and of which jobs in it are stale. When the database
    goes away half way, what was told is written and must not be written again. The accounts' effects are not applied.
    """
    book = book or durations.Book()
    group, disputed = _without_taken_ids(group)
    try:
        stale = _write_together(group, book, now=now) if group else set()
    except mishaps.DATABASE_AWAY:
        raise  # the pump keeps the group and tries again
    except Exception as error:  # whatever it is, it may be one row's; not `contained`, for nothing is left out yet
        log.exception("a grouped write failed; its rows are written one by one", exc_info=mishaps.without_row(error))
        stale = _write_one_by_one(group, book, committed, now=now)
    else:
        committed(group, stale)
    if disputed:
        stale |= _write_one_by_one(disputed, book, committed, now=now)
        group = [*group, *disputed]
    failed = [change.claim.job_id for change in group if change.move and change.move.to_state in FAILED_STATES]
    if failed:
        with mishaps.contained("the look whether a batch stops itself"):
            (watch or stopping.Watch()).after_failures(failed, now=now)
    return stale


def _without_taken_ids(group: Sequence[Change]) -> tuple[Sequence[Change], Sequence[Change]]:
    """The group, and apart from it what brought a provider job id that another submission of the account has already.

    The database would refuse the group for it. Those are few, and each is written by itself: its job is parked. Two
    that bring one id at this moment are still found by the constraint.
    """
    brought = {
        id(change): (change.claim.account_id, str(change.submission_fields["provider_job_id"]))
        for change in group
        if change.submission_fields.get("provider_job_id")
    }
    if not brought:
        return group, ()
    owners: dict[tuple[int, str | None], set[int | None]] = defaultdict(set)
    for change in group:
        if id(change) in brought:
            owners[brought[id(change)]].add(change.submission_id)
    accounts, ids = zip(*brought.values(), strict=True)
    rows = Submission.objects.filter(account__in=set(accounts), provider_job_id__in=set(ids)).order_by()
    for pk, account_id, provider_job_id in rows.values_list("pk", "account", "provider_job_id"):
        owners[(account_id, provider_job_id)].add(pk)
    taken = {key for key, named in brought.items() if len(owners[named]) > 1}
    return [each for each in group if id(each) not in taken], [each for each in group if id(each) in taken]


def _write_one_by_one(
    group: Sequence[Change], book: durations.Book, committed: Committed, *, now: datetime
) -> set[int]:
    all_stale: set[int] = set()
    for change in group:
        try:
            stale = _write_together([change], book, now=now)
        except mishaps.DATABASE_AWAY:
            raise
        except Exception as error:  # not `contained`: the job is parked, and its words name the error
            owner = _owner_of_id(change)
            if owner:
                log.error("job %s is parked: %s", change.claim.job_id, owner)
            else:
                trace = mishaps.without_row(error)
                log.exception("job %s is parked: its outcome cannot be written", change.claim.job_id, exc_info=trace)
            _park_unwritable(change, error, owner, book, now=now)
            stale = {change.claim.job_id}
        committed([change], stale)
        all_stale |= stale
    return all_stale


@transaction.atomic
def _park_unwritable(change: Change, error: Exception, owner: str, book: durations.Book, *, now: datetime) -> None:
    """Stop the job where a person sees it, and keep what of its outcome can be kept: the id and the exchanges.

    Where the id is kept, a job that was being sent does not stop: it is accepted, and read on. That is tried once. Its
    reads end it, should their outcome be one that cannot be written either; and what was given up is still watched.
    `owner` says whose the id is that it brought, where that is the reason.
    """
    claim = change.claim
    words = f"Its outcome could not be stored ({type(error).__name__}); the log has the trace."
    failure_class = FailureClass.UNKNOWN_OUTCOME if owner else FailureClass.INTERNAL
    parked = latewatch.begun(parking(claim, owner or words, failure_class=failure_class, now=now))
    # Each in a savepoint of its own, for any of them may hold what cannot be written; and no part is written twice.
    if not owner:
        _try_part(change, lambda: _record_ids([change], now=now))
    _try_part(change, lambda: _record_exchanges([change]))
    if claim.state is JobState.SUBMITTING and (known := _known_id(change)):
        deadline_at = _deadline_at(claim.account_id, now=now)
        kept = accepting(claim, reason="outcome_not_stored", words=words, deadline_at=deadline_at, now=now)
        kept = replace(kept, alert=parked.alert, submission_id=known[0], submission_fields=known[1])
        if _try_part(change, lambda: _write_group([kept], book, now=now)):
            return
    _try_part(change, lambda: _write_group([parked], book, now=now, is_last_word=True))


def _try_part(change: Change, write: Callable[[], object]) -> bool:
    written: list[object] = []  # empty, should it fail
    with mishaps.contained(f"writing a part of the outcome of job {change.claim.job_id}"), transaction.atomic():
        written.append(write())
    return bool(written)


def _known_id(change: Change) -> tuple[int, dict[str, Any]] | None:
    """The submission that is being sent, with the provider job id that its row has; None without an id."""
    submission = change.claim.submission
    if submission is None:
        return None
    row = Submission.objects.filter(pk=submission.id, provider_job_id__isnull=False)
    found = row.values(*ID_FIELDS).first()
    return (submission.id, dict(found)) if found else None


def _deadline_at(account_id: int, *, now: datetime) -> datetime:
    """For what turns out to be accepted: by its account's seconds, whatever a change says that may be unwritable."""
    return deadlines.of_account(ProviderAccount.objects.only("deadline_seconds").get(pk=account_id), now)


@again_after_deadlock
@transaction.atomic
def _write_together(group: Sequence[Change], book: durations.Book, *, now: datetime) -> set[int]:
    return _write_group(group, book, now=now)


def _write_group(
    group: Sequence[Change], book: durations.Book, *, now: datetime, is_last_word: bool = False
) -> set[int]:
    """`is_last_word`: what is unknown becomes unknown, also with an id, for looking again has come to nothing."""
    asked, group = group, _record_ids(group, now=now)
    if not is_last_word:
        group = _known_after_all(group, now=now)
    given_back = {change.claim.job_id for change, wanted in zip(group, asked, strict=True) if change is not wanted}
    moves = []
    for change in group:
        if change.move is None:
            continue
        lease = {} if change.follow else {"lease_owner": None, "lease_until": None}
        moves.append(replace(change.move, fields={**change.move.fields, **lease}))
    moved = transitions.move_many(moves, now=now)
    kept = _write_unmoved([change for change in group if change.move is None])
    alive = moved | kept
    stale = {change.claim.job_id for change in group} - alive
    for change in group:
        if change.claim.job_id in stale:
            _note_stale(change, now=now)
    current = [change for change in group if change.claim.job_id in alive]
    _update_submissions(current)
    _write_artifacts(current, now=now)
    _record_exchanges(group)
    saved = [change.claim.job_id for change in current if change.artifact is not None]
    if saved:
        alerts.close_for_jobs(saved, now=now)
    for change in current:
        if change.alert and change.alert[0] is AlertKind.STORE:
            alerts.open_for_store(change.alert[1], now=now)
        elif change.alert:
            alerts.open_for_job(change.claim.job_id, *change.alert, now=now)
    book.record(current, now=now)
    return stale | given_back


def _write_artifacts(group: Sequence[Change], *, now: datetime) -> None:
    """What is stored, by version. A row is there already where the sweep had found its object gone or damaged."""
    rows = [
        {
            "version_id": change.claim.version_id,
            "submission_id": change.artifact.submission_id,
            "storage_key": change.artifact.storage_key,
            "sha256": change.artifact.sha256,
            "byte_count": change.artifact.byte_count,
            "page_count": change.artifact.page_count,
            "stored_at": now,
            "verified_at": now,
        }
        for change in group
        if change.artifact is not None
    ]
    if not rows:
        return
    lost = Artifact.objects.filter(version__in=[row["version_id"] for row in rows], missing_at__isnull=False)
    restored = dict(lost.values_list("version_id", "pk"))
    # An intact one is never replaced: the database refuses a second artifact of a version.
    bulk.insert(Artifact, [row for row in rows if row["version_id"] not in restored])
    for row in rows:
        if row["version_id"] in restored:
            pk = restored[row["version_id"]]
            Artifact.objects.filter(pk=pk, missing_at__isnull=False).update(**RESTORED | row)


def _write_unmoved(group: Sequence[Change]) -> set[int]:
    """Facts without a change of state, under the same fencing."""
    by_columns: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for change in group:
        fields = dict(change.job_fields)
        if not change.follow:
            fields |= {"lease_owner": None, "lease_until": None}
        row = {"pk": change.claim.job_id, "guard:fencing_token": change.claim.token, **fields}
        by_columns[tuple(sorted(fields))].append(row)
    kept: set[int] = set()
    for columns, rows in by_columns.items():
        if columns:
            kept |= bulk.guarded_update(Job, rows, guard=("fencing_token",))
        else:
            tokens = {row["pk"]: row["guard:fencing_token"] for row in rows}
            found = Job.objects.filter(pk__in=tokens).values_list("pk", "fencing_token")
            kept |= {pk for pk, token in found if tokens[pk] == token}
    return kept


def _record_ids(group: Sequence[Change], *, now: datetime) -> list[Change]:
    """Put each provider job id on its own submission, whatever became of the claim: an id is never dropped.

    Returns the group, with each change that brought a second id for one key reduced to a look at the first one. An
    id that another submission of the account owns breaks the database's rule; `_park_unwritable` then names both.
    """
    arrived = [change for change in group if change.submission_fields.get("provider_job_id")]
    if not arrived:
        return list(group)
    submissions = Submission.objects.filter(pk__in=[change.submission_id for change in arrived]).order_by("pk")
    if connection.features.has_select_for_update:
        submissions = submissions.select_for_update()
    known = dict(submissions.values_list("pk", "provider_job_id"))
    rows = []
    seconds: set[int] = set()
    for change in arrived:
        assert change.submission_id is not None
        new_id = change.submission_fields["provider_job_id"]
        if known[change.submission_id] is None:
            accepted_at = change.submission_fields["accepted_at"]
            row = {"pk": change.submission_id, "provider_job_id": new_id, "accepted_at": accepted_at, "in_doubt": False}
            rows.append(row)
        elif known[change.submission_id] != new_id:
            seconds.add(id(change))
            words = f"The provider answered the same key with another job ({new_id}). Both may be billed; compare them."
            alerts.open_for_job(change.claim.job_id, AlertKind.SURPLUS, f"{change.claim.business_id}: {words}", now=now)
            transitions.record_ignored(
                change.claim.job_id, change.claim.state, reason="second_id_for_one_key", words=words, now=now
            )
    if rows:
        bulk.guarded_update(Submission, rows)
    return [_look_again(change, now=now) if id(change) in seconds else change for change in group]


def _known_after_all(group: Sequence[Change], *, now: datetime) -> list[Change]:
    """The group, where no job becomes unknown whose submission has an id by now: a stale holder had brought it."""
    lost = [change for change in group if change.move and change.move.to_state is JobState.UNKNOWN]
    if not lost:
        return list(group)
    ids = [change.claim.submission.id for change in lost if change.claim.submission]
    submissions = Submission.objects.filter(pk__in=ids).order_by("pk")
    if connection.features.has_select_for_update:
        submissions = submissions.select_for_update()  # whoever brings an id waits for this, and finds it unknown
    known = {job_id for job_id, found in submissions.values_list("job_id", "provider_job_id") if found}
    return [_keeping_id(change, now=now) if change.claim.job_id in known else change for change in group]


def _keeping_id(change: Change, *, now: datetime) -> Change:
    """As `_look_again`; should its holder be stale, the id that it brought itself still counts."""
    again = _look_again(change, now=now)
    return replace(again, submission_id=change.submission_id, submission_fields=_id_of(change))


def _id_of(change: Change) -> dict[str, Any]:
    return {name: value for name, value in change.submission_fields.items() if name in ID_FIELDS}


def _look_again(change: Change, *, now: datetime) -> Change:
    """Give the job back, due at once: whoever claims it next finds the id that its submission has already."""
    return Change(claim=change.claim, at=change.at, job_fields={"due_at": now}, exchanges=change.exchanges)


def _update_submissions(group: Sequence[Change]) -> None:
    by_columns: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for change in group:
        fields = {name: value for name, value in change.submission_fields.items() if name not in ID_FIELDS}
        if fields:
            by_columns[tuple(sorted(fields))].append({"pk": change.submission_id, **fields})
    for rows in by_columns.values():
        bulk.guarded_update(Submission, rows)


def _record_exchanges(group: Sequence[Change]) -> None:
    exchanges.record(
        Evidence(facts, change.claim.account_id, change.claim.job_id, submission_id)
        for change in group
        for facts, submission_id in change.exchanges
    )


def _note_stale(change: Change, *, now: datetime) -> None:
    """Keep what a holder said whose lease had run out; an id that it brought takes the job out of `unknown`."""
    job = Job.objects.get(pk=change.claim.job_id)
    reason = change.move.reason if change.move else "facts"
    if job.state == JobState.UNKNOWN and change.submission_fields.get("provider_job_id"):
        deadline_at = _deadline_at(change.claim.account_id, now=now)
        late = Move(
            job.pk,
            job.fencing_token,
            JobState.UNKNOWN,
            JobState.ACCEPTED,
            reason="id_arrived_late",
            words="A worker whose lease had run out brought the provider's answer after all.",
            fields={"deadline_at": deadline_at, "due_at": now, "poll_count": 0, "fetch_count": 0},
        )
        if transitions.move_many([late], now=now):
            alerts.close_for_jobs([job.pk], now=now)
            return
    transitions.record_ignored(
        job.pk,
        JobState(job.state),
        reason="stale_write_refused",
        words=f"A worker whose lease had run out reported “{reason}”; its write was refused.",
        now=now,
    )


def _owner_of_id(change: Change) -> str:
    """Which other submission owns the provider job id that this change brought, in words; empty when none does."""
    new_id = change.submission_fields.get("provider_job_id")
    if not new_id:
        return ""
    other = (
        Submission.objects.filter(account_id=change.claim.account_id, provider_job_id=new_id)
        .exclude(pk=change.submission_id or 0)
        .select_related("job__version__document")
        .first()
    )
    if other is None:
        return ""
    return (
        f"The provider answered with the job of another document ({other.job.version}); "
        f"{change.claim.business_id} may or may not exist there."
    )
