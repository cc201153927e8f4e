"""Bulk actions until they begin: one verb over the items that a filter matches, planned, looked at, confirmed, aborted.

A plan freezes which items it is about and says what would become of each. Nothing is done to a document here:
`carrying.py` does that, and judges each item again. Which items a filter matches is for the caller to say, and so is
who may.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import BooleanField, Count, ExpressionWrapper, F, Q, QuerySet

from batches import queue
from batches.engine import accounts, audit, bulk, elsewhere, keys, standings, verbs
from batches.engine.audit import By
from batches.engine.contention import again_after_deadlock
from batches.engine.verbs import Answer, Asked, Planned, Standing
from batches.models import (
    ACCOUNT_SECRETS,
    Batch,
    BatchItem,
    BulkAction,
    BulkActionItem,
    ItemResult,
    JobState,
    ProviderAccount,
    Verb,
    Workspace,
)

#: What somebody looked at yesterday is no longer what would be done.
CONFIRMED_WITHIN = timedelta(days=1)
#: From more billed renders than this on, the person types their number.
TYPED_ABOVE = 100
#: Where more match, an offer says how many there are at most, by what needs no look at each one's submissions.
OFFERED_EXACTLY = 1000
#: Batches that the plan of an action over several names.
BATCHES_NAMED = 20

#: The option of an action that names another account than that of the batch, by its slug.
ACCOUNT = "account"

NOT_CHOSEN = "Choose a state, a cause or a search, or say that all documents are meant."
NOTHING_MATCHES = "No document matches, so there is nothing to do."
GIVEN_UP = "It was given up before it was confirmed. Plan it again."
REPLACED = "Another version took its place after this was planned."


class Refused(Exception):
    """It is not done; the words say why, and what to do instead."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


@dataclass(frozen=True)
class Drift:
    """What differs between the plan and now: planned items that fell out, by reason, and what matches only now.

    `eligible` and `renders_most` are what confirming it would do now; never more than was planned.
    """

    eligible: int
    renders_most: int
    fell_out: Mapping[str, int] = field(default_factory=dict)
    joined: int = 0

    @property
    def fell_out_count(self) -> int:
        return sum(self.fell_out.values())


@dataclass(frozen=True)
class Offer:
    """How many items a verb could be applied to, and what that bills at most. `is_exact`: each one was looked at."""

    verb: Verb
    count: int
    renders_most: int
    is_exact: bool

    @property
    def price_words(self) -> str:
        return verbs.price_of_many(self.verb, self.renders_most)


# --- what could be done ---------------------------------------------------------------------------------------------


def offers(
    matching: QuerySet[BatchItem], count: int, *, now: datetime, asked: Asked | None = None
) -> dict[Verb, Offer]:
    """What each verb could be applied to of the `count` that match: looked at one by one where it is not much, else at
    most."""
    looks = count <= OFFERED_EXACTLY
    few = matching.order_by().values("pk")[: OFFERED_EXACTLY + 1]
    seen = standings.of_items(BatchItem.objects.filter(pk__in=few)) if looks else {}
    is_exact = looks and len(seen) <= OFFERED_EXACTLY
    found = _alike(seen.values()) if is_exact else _possible(matching, now=now)
    counts: Counter[Verb] = Counter()
    renders: Counter[Verb] = Counter()
    for shapes, count in found:
        for verb in Verb:
            allowed = [
                each for each in (verbs.answer(verb, one, now=now, asked=asked) for one in shapes) if each.allowed
            ]
            if allowed:
                counts[verb] += count
                renders[verb] += count * max(each.renders_most for each in allowed)
    return {verb: Offer(verb, counts[verb], renders[verb], is_exact) for verb in Verb}


def _alike(seen: Iterable[Standing]) -> Iterator[tuple[list[Standing], int]]:
    return (([standing], count) for standing, count in Counter(seen).items())


def _possible(matching: QuerySet[BatchItem], *, now: datetime) -> Iterator[tuple[list[Standing], int]]:
    """How many stand alike by their own columns, and every way in which their submissions may tell them apart."""
    asks = {
        "cancelled": Q(cancelled_at__isnull=False),
        "dismissed": Q(dismissed_at__isnull=False),
        "is_latest": Q(document__current_version=F("version")),
        "stopped": Q(batch__cancelled_at__isnull=False),
    }
    told = {name: ExpressionWrapper(ask, output_field=BooleanField()) for name, ask in asks.items()}
    columns = ("version__job__state", "version__job__failure_class", "document__is_final", *told)
    rows = matching.order_by().annotate(**told).values_list(*columns).annotate(count=Count("pk"))
    for state, failure_class, is_final, is_cancelled, is_dismissed, is_latest, is_stopped, count in rows:
        unsent = Standing(
            state=JobState(state),
            failure_class=failure_class,
            is_cancelled=is_cancelled,
            batch_is_cancelled=is_stopped,
            is_dismissed=is_dismissed,
            is_current=is_latest,
            is_final=is_final,
        )
        known = replace(unsent, has_id=True, may_bill=True)
        in_doubt = replace(unsent, in_doubt=True, may_bill=True, resend_until=now + CONFIRMED_WITHIN)
        yield [unsent, known, in_doubt], count


# --- the plan -------------------------------------------------------------------------------------------------------


def plan(
    where: Batch | Workspace,
    verb: Verb,
    matching: QuerySet[BatchItem],
    *,
    chosen_by: Mapping[str, Any],
    by: By,
    creation_key: str,
    now: datetime,
    asked: Asked | None = None,
    account: ProviderAccount | None = None,
) -> BulkAction:
    """Freeze what matches now, and say of each item what would become of it. The same key returns the same action.

    `where`: items of one batch, or of several of one workspace. `chosen_by` is what the person chose, in words of the
    address of the page where that was. `account` is one to regenerate at instead of that of each batch. Raises
    `Refused` where nothing was chosen or matches, or a batch's documents cannot go to that account. Asks one query for
    each thousand items, and writes in one transaction.
    """
    creation_key = hashlib.sha256(creation_key.encode()).hexdigest()
    batch, workspace_id = (where, where.workspace_id) if isinstance(where, Batch) else (None, where.pk)
    known = BulkAction.objects.filter(workspace=workspace_id, creation_key=creation_key).first()
    if known:
        return known
    if not chosen_by:
        raise Refused(NOT_CHOSEN)
    if batch is not None and account is not None and (words := elsewhere.why_not(account, batch)):
        raise Refused(words)
    asked = at(asked or Asked(), account)
    rows = _planned_rows(verb, _within(matching, workspace_id, batch), now=now, asked=asked)
    if not rows:
        raise Refused(NOTHING_MATCHES)
    action = BulkAction(
        public_id=keys.public_id("act"),
        workspace_id=workspace_id,
        batch=batch,
        verb=verb,
        filter=dict(chosen_by),
        options=_options(asked),
        plan=summary(rows, batch, account) if batch else summary_across(rows, account),
        actor=by.actor,
        actor_words=by.words[:150],
        from_where=by.from_where[:100],
        creation_key=creation_key,
        planned_at=now,
    )
    try:
        return _stored(action, rows)
    except IntegrityError:
        return BulkAction.objects.get(workspace=workspace_id, creation_key=creation_key)


def _within(matching: QuerySet[BatchItem], workspace_id: int, batch: Batch | None) -> QuerySet[BatchItem]:
    return matching.filter(batch=batch) if batch else matching.filter(batch__workspace=workspace_id)


@dataclass(frozen=True)
class Judged:
    """One item as it stood, with what the verb's rules say of it. `cause` is its failure's, empty where it has none."""

    item_id: int
    version_id: int
    cause: str
    state: JobState
    answer: Answer
    batch_id: int = 0


def _planned_rows(verb: Verb, matching: QuerySet[BatchItem], *, now: datetime, asked: Asked) -> list[Judged]:
    columns = matching.order_by("batch_id", "position").values_list(
        "pk", "version_id", "version__job__failure_cause", "batch_id"
    )
    rows = []
    for chunk in bulk.chunks(list(columns), bulk.VALUES_PER_LIST):
        found = standings.of_items(BatchItem.objects.filter(pk__in=[pk for pk, *_ in chunk]))
        for pk, version, cause, batch_id in chunk:
            answer = verbs.answer(verb, found[pk], now=now, asked=asked)
            rows.append(Judged(pk, version, cause or "", found[pk].state, answer, batch_id))
    return rows


def summary(rows: Sequence[Judged], batch: Batch, account: ProviderAccount | None = None) -> dict[str, Any]:
    """What the person is shown before: counts by reason, renders, cost. Reasons come the most frequent first.

    `account` is the one that was chosen instead of the batch's.
    """
    plan, account = _totals(rows), account or batch.account
    estimate = _estimate(account, plan["renders_most"])
    return plan | {"estimate": estimate, "currency": account.price_currency}


def summary_across(rows: Sequence[Judged], chosen: ProviderAccount | None = None) -> dict[str, Any]:
    """As `summary`, of items of several batches: besides, what falls to each batch, the largest first, and to each
    account. One estimate for all only where every account has a price, in the same currency."""
    batches = Batch.objects.select_related("account").in_bulk({row.batch_id for row in rows})
    of_batch = Counter(row.batch_id for row in rows)
    sending: dict[int, tuple[ProviderAccount, int]] = {}
    for row in rows:
        account = chosen or batches[row.batch_id].account
        sending[account.pk] = (account, sending.get(account.pk, (account, 0))[1] + row.answer.renders_most)
    billed = [(account, renders) for account, renders in sending.values() if renders]
    by_account = [
        {
            "account": account.name,
            "renders_most": renders,
            "estimate": _estimate(account, renders),
            "currency": account.price_currency,
        }
        for account, renders in billed
    ]
    amounts = [Decimal(each["estimate"]) for each in by_account if each["estimate"] is not None]
    currencies = {account.price_currency for account, _renders in billed}
    is_summed = len(amounts) == len(by_account) and len(currencies) <= 1
    return _totals(rows) | {
        "estimate": str(sum(amounts, Decimal(0))) if is_summed else None,
        "currency": currencies.pop() if len(currencies) == 1 else "",
        "by_account": by_account,
        "batch_count": len(of_batch),
        "by_batch": [
            {"id": batches[key].public_id, "name": batches[key].name, "count": count}
            for key, count in of_batch.most_common(BATCHES_NAMED)
        ],
    }


def _totals(rows: Sequence[Judged]) -> dict[str, Any]:
    eligible = [row for row in rows if row.answer.allowed]
    return {
        "total": len(rows),
        "eligible": len(eligible),
        "skipped": _by_words(row.answer.words for row in rows if not row.answer.allowed),
        "to_confirm": _by_words(row.answer.to_confirm for row in eligible if row.answer.to_confirm),
        "renders_most": sum(row.answer.renders_most for row in eligible),
    }


def _estimate(account: ProviderAccount, renders: int) -> str | None:
    return None if account.price_per_job is None else str(account.price_per_job * renders)


def _by_words(words: Iterator[str]) -> list[dict[str, Any]]:
    return [{"words": each, "count": count} for each, count in Counter(words).most_common()]


@again_after_deadlock
@transaction.atomic
def _stored(action: BulkAction, rows: Sequence[Judged]) -> BulkAction:
    action.pk = None
    action.save(force_insert=True)
    skipped_at = action.planned_at
    outcomes = [
        (ItemResult.WAITING, "", None) if row.answer.allowed else (ItemResult.SKIPPED, row.answer.words, skipped_at)
        for row in rows
    ]
    insert_items(action, rows, outcomes)
    return action


def insert_items(
    action: BulkAction, rows: Sequence[Judged], outcomes: Sequence[tuple[ItemResult, str, datetime | None]]
) -> None:
    """Freeze which items the action is about, each with its result by now, the words for it, and when it came."""
    bulk.insert(
        BulkActionItem,
        [
            {
                "action_id": action.pk,
                "position": position,
                "item_id": row.item_id,
                "version_id": row.version_id,
                "cause": row.cause,
                "job_state": row.state,
                "to_confirm": row.answer.to_confirm,
                "renders_most": row.answer.renders_most,
                "result": result,
                "words": words,
                "at": at,
            }
            for position, (row, (result, words, at)) in enumerate(zip(rows, outcomes, strict=True))
        ],
    )


def drift(
    action: BulkAction, matching: QuerySet[BatchItem] | None, *, now: datetime, asked: Asked | None = None
) -> Drift:
    """What confirming it would do now, against the plan. `matching` is what its filter matches now; None: not asked.

    `asked` holds the rights of whoever would confirm it; None: those of whoever planned it.
    """
    waiting = BulkActionItem.objects.filter(action=action, result=ItemResult.WAITING).order_by("position")
    frozen = list(waiting.only("item_id", "version_id", "job_state", "to_confirm"))
    verb, asked = Verb(action.verb), at(asked or asked_of(action), account_of(action))
    eligible = renders_most = 0
    fell_out: Counter[str] = Counter()
    for chunk in bulk.chunks(frozen, bulk.VALUES_PER_LIST):
        items = BatchItem.objects.filter(pk__in=[row.item_id for row in chunk])
        versions = dict(items.values_list("pk", "version_id"))
        found = standings.of_items(items)
        for row in chunk:
            standing = found[row.item_id]
            judged = verbs.answer(verb, standing, now=now, asked=asked)
            words = judged.words if not judged.allowed else verbs.moved_on(verb, planned_of(row), standing, judged)
            if words or versions[row.item_id] != row.version_id:
                fell_out[words if versions[row.item_id] == row.version_id else REPLACED] += 1
                continue
            eligible += 1
            renders_most += judged.renders_most
    joined = 0
    if matching is not None:
        planned = BulkActionItem.objects.filter(action=action).values("item")
        wider = _within(matching, action.workspace_id, action.batch)
        joined = wider.exclude(pk__in=planned).order_by().count()
    return Drift(eligible, renders_most, dict(fell_out.most_common()), joined)


def _options(asked: Asked) -> dict[str, Any]:
    final = {"may_regenerate_final": True} if asked.may_regenerate_final else {}
    return final | ({ACCOUNT: asked.elsewhere.slug} if asked.elsewhere else {})


def planned_of(row: BulkActionItem) -> Planned:
    return Planned(JobState(row.job_state), row.to_confirm)


def asked_of(action: BulkAction) -> Asked:
    return Asked(may_regenerate_final=bool(action.options.get("may_regenerate_final")))


def account_of(action: BulkAction) -> ProviderAccount | None:
    """The account at which it regenerates instead of that of each batch, where one was chosen."""
    slug = action.options.get(ACCOUNT)
    return ProviderAccount.objects.defer(*ACCOUNT_SECRETS).get(slug=slug) if slug else None


def at(asked: Asked, account: ProviderAccount | None) -> Asked:
    """The same, with the account that was chosen."""
    return replace(asked, elsewhere=accounts.elsewhere(account) if account else None)


# --- confirming and aborting ----------------------------------------------------------------------------------------


def confirm(
    action: BulkAction, *, by: By, reason: str = "", typed: str = "", now: datetime, asked: Asked | None = None
) -> BulkAction:
    """Let the workers carry it out; a second time changes nothing. Raises `Refused` with what is missing.

    `typed` is the number of renders that the person copied, asked for above `TYPED_ABOVE`: those of the plan, or those
    that are left of it. `asked` holds the rights of whoever confirms: those of whoever planned it do not count.
    """
    asked = at(asked or Asked(), account_of(action))
    if action.confirmed_at is None:
        _refuse_unless_confirmable(action, reason=reason.strip(), typed=typed, now=now, asked=asked)
    return _confirmed(action.pk, by=by, reason=reason.strip(), now=now, asked=asked)


def _refuse_unless_confirmable(action: BulkAction, *, reason: str, typed: str, now: datetime, asked: Asked) -> None:
    if action.finished_at is not None or action.aborted_at is not None:
        raise Refused(GIVEN_UP)
    if is_outdated(action, now=now):
        raise Refused("It was planned more than a day ago, and much may have changed. Plan it again.")
    if Verb(action.verb) in verbs.NEEDS_REASON and not reason:
        raise Refused("Give a reason: it is kept with each document.")
    found = drift(action, None, now=now, asked=asked)
    if not found.eligible:
        raise Refused("Nothing of it can be done any more. Plan it again.")
    if found.renders_most <= TYPED_ABOVE:
        return
    digits = "".join(each for each in typed if each not in " ,.\u00a0")
    if digits not in (str(found.renders_most), str(action.plan["renders_most"])):
        raise Refused(f"Type {found.renders_most:,}, the number of renders that may be billed.")


def is_outdated(action: BulkAction, *, now: datetime) -> bool:
    return action.confirmed_at is None and now >= action.planned_at + CONFIRMED_WITHIN


@again_after_deadlock
@transaction.atomic
def _confirmed(action_id: int, *, by: By, reason: str, now: datetime, asked: Asked) -> BulkAction:
    action = _locked(action_id)
    if action.confirmed_at is not None:
        return action
    if action.finished_at is not None:
        raise Refused(GIVEN_UP)
    action.confirmed_at, action.reason, action.options = now, reason, _options(asked)
    action.actor, action.actor_words, action.from_where = by.actor, by.words[:150], by.from_where[:100]
    action.save(update_fields=["confirmed_at", "reason", "options", "actor", "actor_words", "from_where"])
    facts = {name: action.plan[name] for name in ("total", "eligible", "renders_most")}
    record(action, "confirm_bulk_action", by, reason=reason, now=now, facts=facts)
    queue.ring_bulk_actions()
    return action


@again_after_deadlock
@transaction.atomic
def abort(action: BulkAction, *, by: By, now: datetime) -> bool:
    """Do nothing more of it: what is under way this moment is finished first. True when this call ended it."""
    action = _locked(action.pk)
    if action.finished_at is not None:
        return False
    end(action, "The action was aborted before its turn.", by=by, now=now)
    return True


def end(action: BulkAction, words: str, *, by: By, now: datetime) -> None:
    """Leave undone what waits, for the reason in `words`. The action's row is locked by the caller."""
    rest = BulkActionItem.objects.filter(action=action, result=ItemResult.WAITING)
    rest.update(result=ItemResult.ABORTED, at=now, words=words)
    action.aborted_at, action.aborted_by, action.finished_at = now, by.words[:150], now
    action.lease_owner = action.lease_until = None
    action.results = counts(action.pk)
    action.save(update_fields=["aborted_at", "aborted_by", "finished_at", "results", "lease_owner", "lease_until"])
    record(action, "abort_bulk_action", by, now=now, reason=words, facts=action.results)


def _locked(action_id: int) -> BulkAction:
    return BulkAction.objects.select_for_update(no_key=True, of=("self",)).get(pk=action_id)


def counts(action_id: int) -> dict[str, int]:
    """How many items have which result; every result is named."""
    rows = BulkActionItem.objects.filter(action=action_id).order_by().values_list("result").annotate(count=Count("pk"))
    return dict.fromkeys(ItemResult.values, 0) | dict(rows)


def _where(action: BulkAction) -> dict[str, Any]:
    return {"batch": action.batch.public_id} if action.batch else {"batches": action.plan.get("batch_count", 0)}


def record(
    action: BulkAction, what: str, by: By, *, now: datetime, reason: str = "", facts: Mapping[str, Any] | None = None
) -> None:
    audit.record(
        what,
        subject=f"bulk action {action.public_id}",
        workspace=action.workspace,
        by=by,
        reason=reason,
        now=now,
        facts={"verb": action.verb, **_where(action), **(facts or {})},
    )
