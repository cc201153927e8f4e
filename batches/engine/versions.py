"""Regenerate: a new version of a document, with a reason; and the two marks of a document, final and stale.

Which item may be regenerated, and what has to be confirmed first, is `verbs.py`. Version n is left as it is: what the
provider has of it finishes under n, and is stored as n's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction

from batches.engine import accounts, audit, bulk, elsewhere, making, standings, verbs, versionrows
from batches.engine.audit import By
from batches.engine.contention import again_after_deadlock
from batches.engine.intake import Check
from batches.engine.making import Made, Wanted
from batches.engine.orders import Order, Result
from batches.engine.verbs import Asked
from batches.engine.versionrows import Content
from batches.manifests import Action, PlannedRow
from batches.models import BatchItem, Document, ItemResult, ProviderAccount, Verb, Workspace
from batches.storage import ArtifactStore, StoreError, open_store

NO_REASON = "Say why: a new version is billed, so it needs a reason."
_TWO_CONTENTS = "Another chosen row gives the same document other content."
_NO_SUCH = "There is no such row."


def regenerate(
    item_ids: Sequence[int], *, order: Order, now: datetime, store: ArtifactStore | None = None
) -> dict[int, Result]:
    """Make the next version of what each item names, with the same input or the one in `order.inputs`, at the account
    of its batch or the one in `order.account`. An older version's job keeps the account that it has.

    Items of one document share one new version. Other content that another version of the document has already, saved
    or on its way, makes none: the item moves to that one. An item that names another version than when it was looked
    at (`order.versions`, else when this was called) is skipped, so that two people make one version.
    """
    if not order.reason.strip():
        return dict.fromkeys(item_ids, _skipped(NO_REASON))
    looked_at = dict(BatchItem.objects.filter(pk__in=item_ids).values_list("pk", "version_id"))
    try:
        contents = _stored(item_ids, order, store)
        refused = {pk: _skipped(words) for pk, words in elsewhere.unfit(item_ids, order, store).items()}
    except StoreError as error:
        words = f"The content could not be stored or read. {error.words} Nothing was changed; try again in a moment."
        return dict.fromkeys(item_ids, Result(ItemResult.FAILED, words))
    fit = [pk for pk in item_ids if pk not in refused]
    return refused | _regenerate(fit, {**looked_at, **order.versions}, contents, order=order, now=now)


def _stored(item_ids: Sequence[int], order: Order, store: ArtifactStore | None) -> dict[int, Content]:
    """The new inputs' facts, with the large ones in the store: before the transaction."""
    given = {pk: order.inputs[pk] for pk in item_ids if pk in order.inputs}
    if not given:
        return {}
    store = store or open_store(settings.STORAGE_URL)
    rows = BatchItem.objects.filter(pk__in=given).order_by()
    return {
        pk: versionrows.of_input(given[pk], workspace_slug=slug, business_id=business_id, store=store)
        for pk, slug, business_id in rows.values_list("pk", "document__workspace__slug", "document__business_id")
    }


@again_after_deadlock
@transaction.atomic
def _regenerate(
    item_ids: Sequence[int],
    looked_at: Mapping[int, int],
    contents: Mapping[int, Content],
    *,
    order: Order,
    now: datetime,
) -> dict[int, Result]:
    making.lock(item_ids)
    chosen = BatchItem.objects.filter(pk__in=item_ids)
    items = {item.pk: item for item in chosen.select_related("batch__account", "document__workspace", "version")}
    standing = standings.of_items(chosen)
    there = accounts.elsewhere(order.account) if order.account else None
    put = ((items[pk].document_id, content) for pk, content in contents.items() if pk in items)
    deleted_since = versionrows.deleted_since(put)
    results: dict[int, Result] = {}
    wanted: dict[int, Wanted] = {}
    for pk in dict.fromkeys(item_ids):
        item = items.get(pk)
        if item is None:
            results[pk] = _skipped(_NO_SUCH)
            continue
        content = contents.get(pk)
        is_new = content is not None and (
            content.sha256 != item.version.input_sha256 or item.version.input_deleted_at is not None
        )
        if content is not None and not is_new and content.filename == item.version.filename:
            content = None
        asked = Asked(has_new_input=is_new, may_regenerate_final=order.may_regenerate_final, elsewhere=there)
        words = _why_not(item, standing[pk], asked, looked_at.get(pk), order=order, now=now)
        if content is not None and item.document_id in deleted_since:
            words = words or versionrows.DELETED_MEANWHILE
        if not words:
            words = _join(wanted, item, content, order.account)
        if words:
            results[pk] = _skipped(words)
    made = making.make(list(wanted.values()), by=order.by, reason=order.reason, now=now)
    for each in wanted.values():
        for item in each.items:
            one = made[each.document.pk]
            results[item.pk] = Result(ItemResult.DONE, made_words(one, order.account))
            if order.is_audited:
                _record(item, each, one, order, now=now)
    return results


def _why_not(
    item: BatchItem, standing: verbs.Standing, asked: Asked, looked_at: int | None, *, order: Order, now: datetime
) -> str:
    if looked_at != item.version_id:
        return verbs.NEWER_EXISTS
    answer = verbs.answer(Verb.REGENERATE, standing, now=now, asked=asked)
    words = order.why_not(Verb.REGENERATE, item.pk, standing, answer) or _why_not_at(order.account, item)
    kind = order.inputs[item.pk].kind if item.pk in order.inputs else item.version.kind
    return words or accounts.not_taken(order.account or item.batch.account, kind)


def _why_not_at(account: ProviderAccount | None, item: BatchItem) -> str:
    """Why nothing new can be sent at the account that was chosen, or at that of the item's batch."""
    if account is None or account.pk == item.batch.account_id:
        return unusable(item)
    return elsewhere.why_not(account, item.batch)


def unusable(item: BatchItem) -> str:
    """Why nothing new can be sent at the account of the item's batch; empty where it can."""
    account = item.batch.account
    if account.archived_at or account.workspace_id not in (None, item.batch.workspace_id):
        return f"The account {account.slug} of its batch cannot be used any more; choose another account."
    return ""


def _join(wanted: dict[int, Wanted], item: BatchItem, content: Content | None, account: ProviderAccount | None) -> str:
    """Put the item among those that get a version; why not where another item of its document wants another one."""
    known = wanted.get(item.document_id)
    if known is None:
        wanted[item.document_id] = Wanted(
            item.document, item.version, item.batch, account or item.batch.account, content, [item]
        )
        return ""
    if known.sha256 != (content.sha256 if content else item.version.input_sha256):
        return _TWO_CONTENTS
    known.items.append(item)
    return ""


def made_words(made: Made, account: ProviderAccount | None = None) -> str:
    if made.is_new:
        return f"Version {made.number} was made{f', at {account.name}' if account else ''}."
    return f"Version {made.number} has this very input; nothing is sent again."


def _record(item: BatchItem, wanted: Wanted, made: Made, order: Order, *, now: datetime) -> None:
    audit.record(
        Verb.REGENERATE.value,
        subject=f"document {item.document.public_id}",
        workspace=item.document.workspace,
        by=order.by,
        now=now,
        reason=order.reason,
        facts={"batch": item.batch.public_id, **facts_of(wanted, made)},
    )


def facts_of(wanted: Wanted, made: Made) -> dict[str, Any]:
    """What the log says of a document that got its next version."""
    return {
        "from_version": wanted.version.number,
        "version": made.number,
        "input_sha256": wanted.sha256,
        "is_new": made.is_new,
        "account": wanted.account.slug,
    }


def _skipped(words: str) -> Result:
    return Result(ItemResult.SKIPPED, words)


# --- the two marks of a document --------------------------------------------------------------------------------------


@again_after_deadlock
@transaction.atomic
def finalise(document_id: int, *, is_final: bool, by: By, now: datetime, reason: str = "") -> bool:
    """Mark a document as final, or take the mark off; true when this call did it.

    It takes the workspace first, as intake and Regenerate do: neither makes a version of it at the same time.
    """
    document = Document.objects.select_related("workspace").get(pk=document_id)
    Workspace.objects.select_for_update(no_key=True).get(pk=document.workspace_id)
    changed = Document.objects.filter(pk=document_id).exclude(is_final=is_final).update(is_final=is_final)
    if changed:
        audit.record(
            "mark_final" if is_final else "take_final_off",
            subject=f"document {document.public_id}",
            workspace=document.workspace,
            by=by,
            now=now,
            reason=reason,
        )
    return bool(changed)


def note_offered(checked: Check, *, now: datetime) -> int:
    """Mark documents as stale for which a manifest that was checked holds other content, and it is not taken; take the
    mark off those for which it holds the content of the current version. Returns how many rows of documents changed.
    """
    planned = checked.plan.rows
    refused = [row for row in planned if row.action is Action.REFUSED]
    same = [row for row in planned if row.action in (Action.UNCHANGED, Action.ATTACHED_FAILED, Action.ATTACHED_DELETED)]
    return _mark_stale(checked.workspace, refused, now=now) + _clear_stale(checked.workspace, same)


@again_after_deadlock
def _mark_stale(workspace: Workspace, refused: Sequence[PlannedRow], *, now: datetime) -> int:
    count = 0
    for chunk in bulk.chunks(refused, bulk.ROWS_PER_STATEMENT):
        offered = {planned.row.business_id: planned.row.input_sha256 for planned in chunk}
        documents = Document.objects.filter(workspace=workspace, business_id__in=offered).order_by("pk")
        rows = [
            {"pk": pk, "source_sha256": offered[business_id], "source_seen_at": now}
            for pk, business_id in documents.values_list("pk", "business_id")
        ]
        count += len(bulk.guarded_update(Document, rows))
    return count


@again_after_deadlock
def _clear_stale(workspace: Workspace, same: Sequence[PlannedRow]) -> int:
    count = 0
    for chunk in bulk.chunks(same, bulk.ROWS_PER_STATEMENT):
        offered = {planned.row.business_id: planned.row.input_sha256 for planned in chunk}
        stale = Document.objects.filter(workspace=workspace, business_id__in=offered).exclude(source_sha256="")
        current = stale.values_list("pk", "business_id", "current_version__input_sha256")
        ids = [pk for pk, business_id, sha256 in current if sha256 == offered[business_id]]
        count += Document.objects.filter(pk__in=ids).update(source_sha256="", source_seen_at=None)
    return count
