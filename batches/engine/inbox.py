"""Receiving webhooks: proven over their raw bytes, stored, and only then answered. What they say is never believed.

The provider's adapter knows how a delivery is proven and where it names a job; what follows from it is `wakeups.py`.
Rows are never deleted here: the same bytes must be known for at least 30 days, longer than any provider tries again.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

from django.db.models import F

from batches import queue
from batches.engine import credit, mishaps, wakeups
from batches.engine.accounts import provider_config
from batches.engine.wakeups import Event
from batches.models import (
    ACCOUNT_SECRETS,
    ProviderAccount,
    Submission,
    UnreadableSecret,
    WebhookEvent,
    WebhookOutcome,
    WebhookRefusal,
)
from batches.providers import capabilities_of, make_provider, redaction
from batches.providers.base import Capabilities, Provider, ProviderConfig, ProviderEvent, SignatureRefused
from batches.providers.errors import ProviderError

#: The largest body that is taken. Events are notices of a few hundred bytes; this leaves room for a vendor's growth.
BODY_BYTES_MOST = 256 * 1024
KEPT_HEADERS = ("content-type", "user-agent")
#: Refusals of one hour, account and answer are counted no further: whoever sends thousands costs no more writes.
REFUSALS_COUNTED = 1000
#: How long an unmatched event is read again for another job's id in it. Polling has long found the job by then.
OTHERS_FOR = timedelta(days=1)


class Refused(Exception):
    """A delivery that is not taken; `status` is the HTTP answer and `words` say why, without a secret."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.words = words


def account_of(slug: str) -> ProviderAccount:
    """The account that an address names. Raises `Refused`."""
    try:
        account = ProviderAccount.objects.filter(slug=slug, archived_at=None).first()
    except UnreadableSecret:
        raise Refused(503, "The account's secrets cannot be read; nothing is taken until they can.") from None
    if account is None:
        raise Refused(404, "There is no such account.")
    return account


def receive(account: ProviderAccount, headers: Mapping[str, str], body: bytes, *, now: datetime) -> int:
    """Prove and store one delivery. Returns how many events it brought that were not stored before.

    The caller answers 2xx only after this has returned. Raises `Refused`, and database errors, after which the
    provider is to try again.
    """
    if len(body) > BODY_BYTES_MOST:
        raise Refused(413, "The body is too large.")
    with opened(account) as (provider, config):
        if not provider.capabilities.webhook_signature:
            raise Refused(401, "This provider signs nothing: its calls come to the address that each document has.")
        signed_at = verify(provider, headers, body, config, now=now)
        try:
            found = provider.parse_webhook(body)
        except ValueError as error:
            raise Refused(400, "The body is no event that can be read.") from error
    return take(account, found, body, headers, signed_at=signed_at, now=now)


@contextmanager
def opened(account: ProviderAccount) -> Iterator[tuple[Provider, ProviderConfig]]:
    """The account's adapter and its settings. Raises `Refused`."""
    try:
        config = provider_config(account)
        provider = make_provider(account.kind, config)
    except (TypeError, ValueError, LookupError, ProviderError):
        raise Refused(503, "The account's settings cannot be used; nothing is taken until they can.") from None
    try:
        yield provider, config
    finally:
        provider.close()


def verify(
    provider: Provider, headers: Mapping[str, str], body: bytes, config: ProviderConfig, *, now: datetime
) -> datetime:
    """The signed time of a proven delivery. Raises `Refused`."""
    try:
        return provider.verify_webhook(headers, body, config.webhook_secrets, now=now)
    except SignatureRefused as error:
        raise Refused(401, error.words) from error


def take(
    account: ProviderAccount,
    found: Sequence[ProviderEvent],
    body: bytes,
    headers: Mapping[str, str],
    *,
    signed_at: datetime,
    now: datetime,
) -> int:
    """Store what was proven, then wake what it is about. How many events were not stored before."""
    digest = hashlib.sha256(body).hexdigest()
    events = {digest if not index else f"{digest}:{index}": event for index, event in enumerate(found)}
    kept = {name.lower(): redaction.cleaned(value, limit=300) for name, value in headers.items()}
    delivery = WebhookEvent(
        account_id=account.pk,
        body=_without_key(body, account),
        headers={name: value for name, value in kept.items() if name in KEPT_HEADERS},
        body_sha256=digest,
        signed_at=signed_at,
        received_at=now,
    )
    new = _store(events, delivery)
    _wake(account.pk, list(events), now=now)
    _heed(account.pk, {event.type for event in new}, capabilities_of(account.kind), signed_at=signed_at, now=now)
    return len(new)


def _without_key(body: bytes, account: ProviderAccount) -> bytes:
    """As it came, but for our own key, which a vendor may repeat in its words: what is kept is shown to people."""
    try:
        key = account.api_key
    except UnreadableSecret:
        return body
    return body.replace(key.encode(), b"[key]") if key else body


def note_refused(slug: str, refused: Refused, *, now: datetime) -> None:
    """Count a delivery that was not taken, for who looks after the account. Never raises; nothing of it is kept."""
    with mishaps.contained("counting a refused webhook", also_away=True):
        account_id = ProviderAccount.objects.filter(slug=slug, archived_at=None).values_list("pk", flat=True).first()
        if account_id is None:
            return
        key = {"account_id": account_id, "hour": now.replace(minute=0, second=0, microsecond=0)}
        key |= {"status": refused.status}
        rows = WebhookRefusal.objects.filter(**key)
        counted = rows.values_list("count", flat=True).first()
        if counted is None:
            WebhookRefusal.objects.bulk_create([WebhookRefusal(**key, last_at=now)], ignore_conflicts=True)
        elif counted >= REFUSALS_COUNTED:
            return
        rows.update(count=F("count") + 1, words=refused.words[:200], last_at=now)


def _store(events: Mapping[str, ProviderEvent], delivery: WebhookEvent) -> list[ProviderEvent]:
    """Add a row, like `delivery` and under its dedupe key, for each event that has none. Committed when it returns."""
    account_id = delivery.account_id
    mine = WebhookEvent.objects.filter(account_id=account_id, dedupe_key__in=list(events))
    known = set(mine.values_list("dedupe_key", flat=True))
    if known:
        mine.update(repeat_count=F("repeat_count") + 1)
    fresh = {key: event for key, event in events.items() if key not in known}
    rows = []
    for key, event in fresh.items():
        row = copy.copy(delivery)
        row.dedupe_key, row.type = key, event.type[:100]
        if event.is_about_account:
            row.outcome, row.processed_at = WebhookOutcome.IGNORED, delivery.received_at
        else:
            row.provider_job_id = _likeliest(account_id, event)[:200]
        rows.append(row)
    WebhookEvent.objects.bulk_create(rows, ignore_conflicts=True)  # two deliveries of the same bytes at once: one row
    return list(fresh.values())


def _likeliest(account_id: int, event: ProviderEvent) -> str:
    """Of the values that may be the job's id the one that is known here, else the first."""
    ids = (event.provider_job_id, *event.other_ids)
    if len(ids) == 1:
        return ids[0]
    known = Submission.objects.filter(account_id=account_id, provider_job_id__in=ids)
    known_ids = set(known.values_list("provider_job_id", flat=True))
    return next((each for each in ids if each in known_ids), ids[0])


def _wake(account_id: int, keys: Sequence[str], *, now: datetime) -> None:
    """Have read what these events name. A convenience: what fails here is done by a pump, the sweep or a poll.

    Nor does a database that is locked or gone by now fail the delivery: it is stored, and the same bytes sent again
    would be nothing new.
    """
    with mishaps.contained("waking by a webhook", also_away=True):
        waiting = WebhookEvent.objects.filter(account_id=account_id, dedupe_key__in=keys, processed_at=None)
        rows = waiting.values_list("pk", "provider_job_id")
        wakeups.settle([Event(pk, account_id, job_id, False) for pk, job_id in rows], now=now)


def _heed(
    account_id: int, types: Collection[str], capabilities: Capabilities, *, signed_at: datetime, now: datetime
) -> None:
    """What new events say about the account's money; each is looked into, none believed."""
    with mishaps.contained("heeding a webhook about the account", also_away=True):
        if capabilities.topup_events.intersection(types) and credit.heed_topup(account_id, now=now):
            queue.ring()
        if capabilities.no_credit_events.intersection(types):
            credit.heed_shortage(account_id, told_at=signed_at)


def match_others(*, now: datetime, most: int) -> int:
    """Look whether an unmatched event means a job by another of its values; how many were told apart so.

    Its first value may be the event's own id, and which of them is the job's is known only once that is recorded.
    """
    since = now - OTHERS_FOR
    young = WebhookEvent.objects.filter(outcome=WebhookOutcome.UNMATCHED, received_at__gt=since)
    without_secrets = young.select_related("account").defer(*(f"account__{name}" for name in ACCOUNT_SECRETS))
    rows = list(without_secrets.order_by("-pk")[:most])
    named: dict[int, list[str]] = {}
    for row in rows:
        with mishaps.contained(f"reading webhook event {row.pk} again"):
            named[row.pk] = _ids_in(row)
    of_all = {each for ids in named.values() for each in ids}
    submissions = Submission.objects.filter(account__in={row.account_id for row in rows}, provider_job_id__in=of_all)
    known = set(submissions.values_list("account_id", "provider_job_id"))
    changed = 0
    for row in rows:
        meant = next((each for each in named.get(row.pk, ()) if (row.account_id, each) in known), "")
        if meant and meant != row.provider_job_id:  # few are: an event usually names its job first
            with mishaps.contained(f"matching webhook event {row.pk}"):
                WebhookEvent.objects.filter(pk=row.pk, outcome=WebhookOutcome.UNMATCHED).update(provider_job_id=meant)
                wakeups.settle([Event(row.pk, row.account_id, meant, False)], now=now)
                changed += 1
    return changed


def _ids_in(row: WebhookEvent) -> list[str]:
    """Every value in its body that may be a provider job's id, the likeliest first.

    None where the body is no event of the vendor's: a call to the address of one job (`callbacks.py`) needs none.
    """
    provider = make_provider(row.account.kind, ProviderConfig(row.account.slug, row.account.base_url, api_key=""))
    try:
        events = provider.parse_webhook(bytes(row.body))
    except ValueError:
        return []
    finally:
        provider.close()
    return [each for event in events for each in (event.provider_job_id, *event.other_ids)]
