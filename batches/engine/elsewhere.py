"""Rendering at another account than that of its batch: whether it may be, and which accounts could take what waits.

A person chooses it, never the engine. It makes a new version there; the older version's job keeps its own account.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from django.conf import settings
from django.db.models import Q

from batches import figures
from batches.engine import accounts
from batches.engine.orders import Order
from batches.manifests.single import read_single
from batches.models import (
    ACCOUNT_SECRETS,
    AccountHealth,
    Batch,
    BatchItem,
    DocumentVersion,
    Job,
    JobState,
    ProviderAccount,
)
from batches.storage import ArtifactStore, open_store

#: Of so many that wait the kinds are looked at.
KINDS_OF = 200

_LARGE = (
    "Its content is large and lies in the store, so that it is not looked at for private addresses here; regenerate it "
    "at {name} on its own page."
)


def why_not(account: ProviderAccount, batch: Batch) -> str:
    """Why nothing of the batch can be rendered at the account, which is not its own; empty where it can."""
    if account.archived_at or account.workspace_id not in (None, batch.workspace_id):
        return f"The account {account.slug} cannot be used for this; choose another account."
    if problems := accounts.problems(account):
        return f"The account {account.slug} cannot be used as it is set. {problems[0]}"
    return _beyond_cap(account, batch)


def _beyond_cap(account: ProviderAccount, batch: Batch) -> str:
    """A batch's cap is reckoned at its own account's price: what costs more elsewhere would pass it unseen."""
    if batch.spend_cap is None:
        return ""
    own, price = batch.account, account.price_per_job
    is_kept = price is not None and account.price_currency == own.price_currency
    if is_kept and own.price_per_job is not None and price is not None and price <= own.price_per_job:
        return ""
    cap = figures.money(batch.spend_cap, own.price_currency)
    return (
        f"The batch has a spend cap of {cap}, which is reckoned at the price of {own.name}, and at {account.name} a "
        "document may cost more. Take the cap off on the batch's page first."
    )


def unfit(item_ids: Sequence[int], order: Order, store: ArtifactStore | None) -> Mapping[int, str]:
    """Items whose content was never looked at by the rules of the account that is chosen, and breaks one: with why.

    Only an account that renders inside our network has rules of its own for content. Reads inputs, so it is called
    before a transaction; of what a plan holds, which is carried out within one, only those that lie in their rows.
    Store errors pass.
    """
    account = order.account
    if account is None or not account.renders_inside:
        return {}
    items = BatchItem.objects.filter(pk__in=[pk for pk in item_ids if pk not in order.inputs])
    rows = items.filter(version__job__account__renders_inside=False, version__input_deleted_at=None).select_related(
        "version", "document"
    )
    found: dict[int, str] = {}
    for item in rows.iterator(chunk_size=50):
        if item.version.input_inline is None and not item.version.input_key:
            continue  # deleted by retention: the verb itself is refused for that
        if item.version.input_key and item.pk in order.planned:
            found[item.pk] = _LARGE.format(name=account.name)
        elif errors := _errors(item, account, store):
            found[item.pk] = f"It cannot be rendered at {account.name}, which stands inside our network. {errors[0]}"
    return found


def _errors(item: BatchItem, account: ProviderAccount, store: ArtifactStore | None) -> Sequence[str]:
    version = item.version
    return read_single(
        business_id=item.document.business_id,
        kind=version.kind,
        content=_text(version, store),
        filename=version.filename,
        options=json.dumps(version.options),
        limits=accounts.document_limits(account),
    ).errors


def _text(version: DocumentVersion, store: ArtifactStore | None) -> str:
    if version.input_inline is not None or not version.input_key:
        return bytes(version.input_inline or b"").decode()
    with (store or open_store(settings.STORAGE_URL)).open(version.input_key) as file:
        return file.read().decode()


def could_take_of(batch: Batch, held: Sequence[ProviderAccount]) -> list[ProviderAccount]:
    """Accounts at which what of the batch waits for these held ones could be rendered instead. By the kinds of the
    first few that wait: the plan says which of the others could not go there."""
    if not held:
        return []
    waiting = Job.objects.filter(account__in=held, state=JobState.PENDING, version__items__batch=batch).order_by()
    kinds = set(waiting.values_list("version__kind", flat=True)[:KINDS_OF])
    usable = ProviderAccount.objects.filter(
        Q(workspace=None) | Q(workspace=batch.workspace_id), health=AccountHealth.OPEN, archived_at=None
    )
    others = usable.exclude(pk__in=[account.pk for account in held]).defer(*ACCOUNT_SECRETS)
    fit = could_take(others.order_by("name", "pk"), kinds) if kinds else []
    return [account for account in fit if account.pk == batch.account_id or not _beyond_cap(account, batch)]


def could_take(others: Iterable[ProviderAccount], kinds: Iterable[str]) -> list[ProviderAccount]:
    """Of these accounts those that nothing keeps from sending documents of these kinds (`models.SourceKind`) now."""
    wanted = frozenset(kinds)
    return [
        account
        for account in others
        if account.health == AccountHealth.OPEN
        and not accounts.problems(account)
        and wanted <= accounts.capabilities(account).sources
    ]
