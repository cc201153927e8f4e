"""Read-only queries behind every face: the one place where counters and states are derived.

Pages, API, files and commands all ask here, so they cannot disagree. Nothing here writes, and nothing here loads a
whole batch except `batch_json`, whose shape lists every item.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User
from django.db.models import (
    Case,
    CharField,
    Exists,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)

from batches import counting, rights
from batches.models import (
    ACCOUNT_SECRETS,
    ACTIVE_STATES,
    FAILED_STATES,
    IN_FLIGHT_STATES,
    AccountHealth,
    AuditEntry,
    Batch,
    BatchItem,
    Job,
    JobState,
    Lane,
    PacingLane,
    ProviderAccount,
    SettledCounts,
    Submission,
    SubmissionOutcome,
    UnreadableSecret,
    Workspace,
)
from batches.wording import BatchState, Group

# --- counters and states ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counts:
    """The counters of one batch; `total` is the sum of the five others."""

    saved: int = 0
    failed: int = 0
    cancelled: int = 0
    held: int = 0
    in_progress: int = 0

    @property
    def total(self) -> int:
        return self.saved + self.failed + self.cancelled + self.held + self.in_progress

    def as_dict(self) -> dict[str, int]:
        return {
            "total": self.total,
            "saved": self.saved,
            "failed": self.failed,
            "cancelled": self.cancelled,
            "held": self.held,
            "in_progress": self.in_progress,
        }


@dataclass(frozen=True)
class Progress:
    """All that is derived for one batch.

    `in_progress_states` splits the counter in_progress by job state; `attention_count` are failed items that nobody
    dismissed. `repeat_count` are those being submitted that nobody sends just now: they wait to be sent again, from
    `repeat_at` on. `unneeded_count` are waiting ones that no batch needs any more: they end without being sent again.
    `stopped_at` are the accounts at which some of it may be stopped.
    """

    state: BatchState = BatchState.COMPLETE
    counts: Counts = field(default_factory=Counts)
    in_progress_states: Mapping[str, int] = field(default_factory=dict)
    attention_count: int = 0
    repeat_count: int = 0
    repeat_at: datetime | None = None
    unneeded_count: int = 0
    stopped_at: frozenset[int] = field(default=frozenset(), compare=False, repr=False)

    @property
    def waiting_count(self) -> int:
        """Those in progress that wait for their turn."""
        return self.in_progress_states.get(JobState.PENDING, 0) - self.unneeded_count

    @property
    def needs_attention(self) -> bool:
        return self.attention_count > 0


def batch_state(counts: Counts, *, is_paused: bool) -> BatchState:
    """The state that these counters mean; pure."""
    if counts.in_progress:
        return BatchState.RUNNING
    if counts.held:
        return BatchState.PAUSED if is_paused else BatchState.HELD
    if counts.saved == counts.total:
        return BatchState.COMPLETE
    if counts.cancelled and not counts.failed:
        return BatchState.CANCELLED
    if not counts.saved:
        return BatchState.FAILED
    return BatchState.PARTIALLY_COMPLETE


def with_group(items: QuerySet[BatchItem]) -> QuerySet[BatchItem]:
    """Annotate each item with `group`, the counter it belongs to.

    Held is what waits unsent on a held account, or in paused batches only: what a batch that goes on needs too, such
    as a sample, is sent for that one. Once a submission may have arrived the item is in progress whatever its account
    does, since it will be resolved, not released.
    """
    maybe_sent = Submission.objects.filter(job=OuterRef("version__job"), outcome=SubmissionOutcome.OPEN, in_doubt=True)
    state = "version__job__state"
    # Subqueries that are asked once, where joins would look both rows up for each of 100,000 items.
    held_accounts = ProviderAccount.objects.filter(health=AccountHealth.HELD).values("pk")
    paused_batches = Batch.objects.filter(paused_at__isnull=False).values("pk")
    waits = Q(**{state: JobState.PENDING}) & (
        Q(version__job__account_id__in=held_accounts) | Q(version__job__lead_batch_id__in=paused_batches)
    )
    return items.annotate(
        group=Case(
            When(Q(cancelled_at__isnull=False) | Q(**{state: JobState.CANCELLED}), then=Value(Group.CANCELLED.value)),
            When(Q(**{state: JobState.SAVED}), then=Value(Group.SAVED.value)),
            When(Q(**{f"{state}__in": FAILED_STATES}), then=Value(Group.FAILED.value)),
            When(waits & ~Exists(maybe_sent), then=Value(Group.HELD.value)),
            default=Value(Group.IN_PROGRESS.value),
            output_field=CharField(),
        )
    )


def among_its_versions(batch: Batch | int, path: str) -> Q:
    """What `path` leads to belongs to a version between the first and the last that the batch names.

    It says nothing new of rows of the batch. With it the database looks at the few failed jobs, or noticed files, that
    lie there, where it would else look at those of all batches, or at every row of this one.
    """
    versions = BatchItem.objects.filter(batch=batch).values("version")
    first, last = versions.order_by("version")[:1], versions.order_by("-version")[:1]
    return Q(**{f"{path}version__gte": Subquery(first), f"{path}version__lte": Subquery(last)})


def in_group(batch: Batch, group: str) -> QuerySet[BatchItem]:
    """The items of a batch, as `with_group`, that belong to one counter; said so that the rarer ones are found fast."""
    items, state = with_group(BatchItem.objects.filter(batch=batch)), "version__job__state"
    if group == Group.CANCELLED:
        return items.filter(Q(cancelled_at__isnull=False) | Q(**{state: JobState.CANCELLED}))
    living = items.filter(cancelled_at=None)
    if group == Group.SAVED:
        return living.filter(**{state: JobState.SAVED})
    if group == Group.FAILED:
        return living.filter(among_its_versions(batch, "version__job__"), **{f"{state}__in": FAILED_STATES})
    return living.filter(Q(group=group), **{f"{state}__in": ACTIVE_STATES})


def progress_of(batches: Iterable[Batch]) -> dict[int, Progress]:
    """The progress of each batch by primary key, in one query, or two where one of them has not come to rest for long.

    Of a batch at rest the counters are kept (`engine/settled.py`); of the others each item is counted.
    """
    by_key = {batch.pk: batch for batch in batches}
    settled = {key: _settled(by_key[key], row) for key, row in kept(by_key.values()).items()}
    moving = {key: batch for key, batch in by_key.items() if key not in settled}
    return settled | (_counted(moving) if moving else {})


#: What a query of batches reads along for `kept`, and what it leaves out of it.
WITH_KEPT, KEPT_UNREAD = "settled_counts", "settled_counts__causes"
_KEPT = Batch._meta.get_field("settled_counts")


def kept(batches: Iterable[Batch]) -> dict[int, SettledCounts]:
    """What is kept of those of these batches that are at rest, by primary key; without their causes.

    In one query, or in none where they were read `WITH_KEPT`.
    """
    # Typed by hand: a field gives what is cached of a relation as any model.
    read: dict[int, Any] = {batch.pk: _KEPT.get_cached_value(batch) for batch in batches if _KEPT.is_cached(batch)}
    unread = [batch.pk for batch in batches if batch.pk not in read]
    if unread:
        read |= SettledCounts.objects.defer("causes").in_bulk(unread)
    return {key: row for key, row in read.items() if row is not None and row.settled_at is not None}


def _settled(batch: Batch, row: SettledCounts) -> Progress:
    counts = Counts(saved=row.saved or 0, failed=row.failed or 0, cancelled=row.cancelled or 0)
    state = batch_state(counts, is_paused=batch.paused_at is not None)
    return Progress(state, counts, attention_count=row.attention or 0)


def _counted(by_key: Mapping[int, Batch]) -> dict[int, Progress]:
    found = _Found.by_batch(counting.tallies(list(by_key)))
    return {key: found[key].progress(is_paused=batch.paused_at is not None) for key, batch in by_key.items()}


@dataclass
class _Found:
    """What was counted of one batch, by (state, has no lead, is stopped): all that `with_group` asks of an item."""

    total: int = 0
    cancelled: int = 0
    dismissed: int = 0
    repeats: int = 0
    repeat_at: datetime | None = None
    unsaved: Counter[tuple[str, bool, bool]] = field(default_factory=Counter)
    in_doubt: Counter[tuple[str, bool, bool]] = field(default_factory=Counter)
    stopped_at: set[int] = field(default_factory=set)

    @classmethod
    def by_batch(cls, tallies: Iterable[counting.Tally]) -> dict[int, _Found]:
        found: dict[int, _Found] = defaultdict(cls)
        for tally in tallies:
            found[tally.batch_id]._add(tally)
        return found

    def _add(self, tally: counting.Tally) -> None:
        key = (tally.state, tally.is_unled, tally.is_stopped)
        match tally.kind:
            case "all":
                self.total = tally.count
            case "unsaved":
                self.unsaved[key] += tally.count
                if tally.is_stopped and tally.account_id is not None and tally.state in ACTIVE_STATES:
                    self.stopped_at.add(tally.account_id)
            case "cancelled":
                self.cancelled += tally.count
                if tally.state != JobState.SAVED:
                    self.unsaved[key] -= tally.count
            case "dismissed":
                self.dismissed += tally.count
            case "repeats":
                self.repeats += tally.count
                self.repeat_at = min(filter(None, (self.repeat_at, tally.due_at)))
            case "in_doubt":
                self.in_doubt[key] += tally.count

    def progress(self, *, is_paused: bool) -> Progress:
        groups: Counter[Group] = Counter({Group.CANCELLED: self.cancelled})
        moving: Counter[str] = Counter()
        unneeded = 0
        for key, count in self.unsaved.items():
            state, is_unled, is_stopped = key
            if state == JobState.CANCELLED:
                groups[Group.CANCELLED] += count
            elif state in FAILED_STATES:
                groups[Group.FAILED] += count
            else:
                held = count - self.in_doubt[key] if state == JobState.PENDING and is_stopped else 0
                groups[Group.HELD] += held
                moving[state] += count - held
                unneeded += count - held if state == JobState.PENDING and is_unled else 0
        groups[Group.IN_PROGRESS] = moving.total()
        groups[Group.SAVED] = self.total - groups.total()
        counts = Counts(**{group.value: groups[group] for group in Group})
        return Progress(
            batch_state(counts, is_paused=is_paused),
            counts,
            {state: count for state, count in moving.items() if count},
            groups[Group.FAILED] - self.dismissed,
            self.repeats,
            self.repeat_at,
            unneeded,
            frozenset(self.stopped_at),
        )


def progress(batch: Batch) -> Progress:
    return progress_of([batch])[batch.pk]


def batch_counts(batch: Batch) -> Counts:
    return progress(batch).counts


def latest_provider_job_id(job: str) -> Subquery:
    """The provider job id of the latest submission that has one; `job` is the path to the job's key."""
    known = Submission.objects.filter(job=OuterRef(job), provider_job_id__isnull=False)
    return Subquery(known.order_by("-sequence").values("provider_job_id")[:1])


def batch_json(batch: Batch, *, with_ids: bool = True) -> dict[str, Any]:
    """The batch as API, commands and files give it (docs/architecture.md, "Stable interfaces"); every item is listed.

    An item's `state` is its cancellation, else its job's state. `failure_class` is null unless the item is failed;
    `storage_key`, `sha256` and `pages` are the stored artifact's, null otherwise. `provider_job_id` is null too where
    the reader may not see it (`with_ids`): it fetches the file without a key.
    """
    now = progress(batch)
    return {
        "id": batch.public_id,
        "state": now.state.value,
        "needs_attention": now.needs_attention,
        "counts": now.counts.as_dict(),
        "items": [_item_json(row, with_ids=with_ids) for row in _item_rows_json(batch)],
    }


def _item_rows_json(batch: Batch) -> Iterable[tuple[Any, ...]]:
    return (
        BatchItem.objects.filter(batch=batch)
        .order_by("position")
        .annotate(provider_job_id=latest_provider_job_id("version__job"))
        .values_list(
            "position",
            "document__business_id",
            "version__number",
            "cancelled_at",
            "version__job__state",
            "version__job__failure_class",
            "provider_job_id",
            "version__artifact__storage_key",
            "version__artifact__sha256",
            "version__artifact__page_count",
            "version__artifact__local_deleted_at",
            "version__artifact__missing_at",
        )
    )


def _item_json(row: tuple[Any, ...], *, with_ids: bool) -> dict[str, Any]:
    position, business_id, version, cancelled_at, state, failure, provider_job_id, *stored = row
    key, sha256, pages, deleted_at, missing_at = stored
    is_cancelled = cancelled_at is not None
    is_stored = is_in_store(key, deleted_at, missing_at)
    return {
        "position": position,
        "business_id": business_id,
        "version": version,
        "state": JobState.CANCELLED.value if is_cancelled else state,
        "failure_class": None if is_cancelled else failure or None,
        "provider_job_id": provider_job_id if with_ids else None,
        "storage_key": key if is_stored else None,
        "sha256": sha256 if is_stored else None,
        "pages": pages if is_stored else None,
    }


# --- stored files -----------------------------------------------------------------------------------------------------


def in_store(path: str = "") -> Q:
    """Artifacts whose file is there, by all that we know; `path` leads to them, as in `version__artifact__`.

    Retention deletes files, and the store's sweep marks those that it misses.
    """
    return Q(**{f"{path}local_deleted_at": None, f"{path}missing_at": None})


def is_in_store(stored: object | None, deleted_at: datetime | None, missing_at: datetime | None) -> bool:
    """As `in_store`, of columns that were read; `stored` is one that every artifact has."""
    return stored is not None and deleted_at is None and missing_at is None


# --- who may see what -----------------------------------------------------------------------------------------------

Person = User | AnonymousUser


def visible_workspaces(user: Person) -> QuerySet[Workspace]:
    """Workspaces whose batches the user may see: every one for a superuser, else those of a membership."""
    if isinstance(user, AnonymousUser) or not user.is_active:
        return Workspace.objects.none()
    if user.is_superuser:
        return Workspace.objects.all()
    return Workspace.objects.filter(memberships__user=user)


def writable_workspaces(user: Person) -> QuerySet[Workspace]:
    """Workspaces in which the user may start a batch; archived ones take none."""
    return rights.workspaces(user, rights.START)


def visible_batches(user: Person) -> QuerySet[Batch]:
    batches = Batch.objects.filter(workspace__in=visible_workspaces(user)).select_related("workspace", "account")
    return batches.defer(*(f"account__{name}" for name in ACCOUNT_SECRETS))


def usable_accounts(workspaces: Iterable[Workspace] | QuerySet[Workspace]) -> QuerySet[ProviderAccount]:
    """Accounts on which these workspaces may start a batch: their own and the shared ones."""
    usable = ProviderAccount.objects.filter(
        Q(workspace__isnull=True) | Q(workspace__in=workspaces), archived_at__isnull=True
    )
    return usable.defer(*ACCOUNT_SECRETS).order_by("name", "pk")


def held_accounts(batch: Batch, progress: Progress) -> list[ProviderAccount]:
    """The held accounts on which items of this batch wait, or at which they are; not asked where nothing can be."""
    if not progress.stopped_at or not (progress.counts.held or progress.counts.in_progress):
        return []
    states = (JobState.PENDING, *IN_FLIGHT_STATES)
    waiting = Job.objects.filter(
        among_its_versions(batch, ""), account=OuterRef("pk"), state__in=states, version__items__batch=batch
    )
    held = ProviderAccount.objects.filter(Exists(waiting), pk__in=progress.stopped_at, health=AccountHealth.HELD)
    return list(held.defer(*ACCOUNT_SECRETS).order_by("pk"))


def waits_until(batch: Batch, progress: Progress, *, now: datetime) -> datetime | None:
    """Until when the provider asked that nothing new be sent, while something of this batch waits for its turn."""
    return asked_to_wait_until(batch.account, now=now) if progress.waiting_count else None


def instant(microseconds: int) -> datetime:
    """As lanes count it, since 1970."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


def cancel_reason(batch: Batch) -> str:
    """Why somebody cancelled it, as the audit log has it; empty where nobody did."""
    if batch.cancelled_at is None:
        return ""
    # The verb writes both in one transaction with one time, by which the log is indexed.
    entries = AuditEntry.objects.filter(
        at=batch.cancelled_at, action="cancel_batch", subject=f"batch {batch.public_id}"
    )
    return entries.values_list("reason", flat=True).first() or ""


def starters(batches: Iterable[Batch]) -> dict[int, str]:
    """Who started each batch by primary key: the user, else whom the audit log names, such as `root (command line)`."""
    known = {batch.pk: batch.created_by.get_username() for batch in batches if batch.created_by}
    by_subject = {f"batch {batch.public_id}": batch for batch in batches if batch.pk not in known}
    if not by_subject:
        return known
    entries = AuditEntry.objects.filter(
        at__in={batch.created_at for batch in by_subject.values()}, action="start_batch", subject__in=by_subject
    )
    return known | {by_subject[subject].pk: words for subject, words in entries.values_list("subject", "actor_words")}


def asked_to_wait_until(account: ProviderAccount, *, now: datetime) -> datetime | None:
    """Until when the provider asked that nothing new be sent; None where it did not, or that time is over."""
    lanes = PacingLane.objects.filter(account=account, lane=Lane.SUBMIT)
    until = instant(lanes.values_list("cool_down_until_us", flat=True).first() or 0)
    return until if until > now else None


def default_account(usable: QuerySet[ProviderAccount]) -> ProviderAccount | None:
    """The account to offer first: `relaypdf` where the environment names one, else `sandbox`, else the only one."""
    is_real = bool(settings.RELAYPDF_BASE_URL or settings.RELAYPDF_API_KEY)
    by_slug = {account.slug: account for account in usable}
    for slug in ("relaypdf", "sandbox") if is_real else ("sandbox", "relaypdf"):
        if slug in by_slug:
            return by_slug[slug]
    return next(iter(by_slug.values())) if len(by_slug) == 1 else None


def is_set(account: ProviderAccount, secret: str) -> bool:
    """Whether an account has this secret, readable or not."""
    try:
        return bool(getattr(account, secret))
    except UnreadableSecret:
        return True


def waiting_count(account: ProviderAccount) -> int:
    return Job.objects.filter(account=account, state=JobState.PENDING).count()


def in_flight_count(account: ProviderAccount) -> int:
    """Jobs that are at the provider, by all that we know."""
    return Job.objects.filter(account=account, state__in=IN_FLIGHT_STATES).count()
