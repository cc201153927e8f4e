"""Read-only queries over stored webhook events: a page of them, one of them, what they mean, and what was refused.

What becomes of an event is `engine/wakeups.py`. Its body may name a provider job, which at RelayPDF opens the PDF: it
is read for one event alone, and whether a person may see it is asked of the workspace that it is about.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet

from batches import account_rows, cursors, rights, selectors, wording
from batches.cursors import Page
from batches.models import (
    ACCOUNT_SECRETS,
    Document,
    ProviderAccount,
    Submission,
    WebhookEvent,
    WebhookOutcome,
    WebhookRefusal,
    Workspace,
)
from batches.selectors import Person
from batches.wording import Badge

EVENTS_PER_PAGE = 50
#: Submissions of the documents of one business id.
IDS_MOST = 100
#: Of a body, in bytes.
BODY_SHOWN_MOST = 64 * 1024
REFUSALS_FOR = timedelta(days=7)
REFUSALS_SHOWN = 50

#: Which events did that, by the words of `wording.EVENT_BADGES`.
_CONDITIONS: Mapping[str, Q] = {
    "woke": Q(outcome=WebhookOutcome.WOKE),
    "late": Q(outcome=WebhookOutcome.IGNORED) & ~Q(provider_job_id=""),
    "unmatched": Q(outcome=WebhookOutcome.UNMATCHED),
    "other": Q(outcome=WebhookOutcome.IGNORED, provider_job_id=""),
    "waiting": Q(outcome=WebhookOutcome.WAITING),
}


def effect(event: WebhookEvent) -> str:
    """The word for what it did, of `wording.EVENT_BADGES`."""
    if event.outcome == WebhookOutcome.IGNORED:
        return "late" if event.provider_job_id else "other"
    return str(event.outcome)


@dataclass(frozen=True)
class Filters:
    """What the list is narrowed to; empty says nothing. `q` is a provider job id or a business id, whole."""

    account: str = ""
    effect: str = ""
    q: str = ""
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class EventRow:
    """One event. `document` is the matched one where the person may see it; `is_elsewhere`: it is in a workspace that
    they do not see."""

    event: WebhookEvent
    document: Document | None
    is_elsewhere: bool

    @property
    def badge(self) -> Badge:
        return wording.EVENT_BADGES[effect(self.event)]


def accounts(person: Person) -> list[ProviderAccount]:
    """Those whose events the person may read."""
    return list(account_rows.accounts_with(person, rights.VIEW_EVENTS).order_by("name", "pk"))


def events_page(
    person: Person, mine: Sequence[ProviderAccount], filters: Filters, *, after: str = "", before: str = ""
) -> Page[EventRow]:
    """Newest first, by keyset. Cursors that make no sense are ignored."""
    page = cursors.page(_found(person, mine, filters), "received_at", after=after, before=before, limit=EVENTS_PER_PAGE)
    return Page(_rows(person, page.rows), page.before, page.after)


def event_row(person: Person, mine: Sequence[ProviderAccount], pk: int) -> EventRow | None:
    event = _events().filter(pk=pk, account__in=[account.pk for account in mine]).first()
    return None if event is None else _rows(person, [event])[0]


def _events() -> QuerySet[WebhookEvent]:
    without_secrets = (f"account__{name}" for name in ACCOUNT_SECRETS)
    return WebhookEvent.objects.select_related("account").defer("body", "headers", *without_secrets)


def _found(person: Person, mine: Sequence[ProviderAccount], filters: Filters) -> QuerySet[WebhookEvent]:
    keys = [account.pk for account in mine if filters.account in ("", account.slug)]
    found = _events()
    # One account is an equality, which its index serves in the order of time.
    found = found.filter(account=keys[0]) if len(keys) == 1 else found.filter(account__in=keys)
    if filters.effect in _CONDITIONS:
        found = found.filter(_CONDITIONS[filters.effect])
    if filters.since:
        found = found.filter(received_at__gte=filters.since)
    if filters.until:
        found = found.filter(received_at__lte=filters.until)
    if filters.q:
        found = found.filter(provider_job_id__in=[filters.q, *_ids_of(person, filters.q)])
    return found


def _ids_of(person: Person, business_id: str) -> list[str]:
    """Provider jobs of the documents of that id which the person may see."""
    documents = Document.objects.filter(workspace__in=selectors.visible_workspaces(person), business_id=business_id)
    sent = Submission.objects.filter(job__version__document__in=documents, provider_job_id__isnull=False)
    return [each for each in sent.order_by("-pk").values_list("provider_job_id", flat=True)[:IDS_MOST] if each]


def _rows(person: Person, events: Sequence[WebhookEvent]) -> list[EventRow]:
    """The events with what each is about: the page's submissions in one query, whatever their number."""
    ids = {event.provider_job_id for event in events} - {""}
    sent = Submission.objects.filter(account__in={event.account_id for event in events}, provider_job_id__in=ids)
    known = {
        (submission.account_id, submission.provider_job_id): submission.job.version.document
        for submission in sent.select_related("job__version__document").only(
            "account_id",
            "provider_job_id",
            "job__version__document__business_id",
            "job__version__document__public_id",
            "job__version__document__workspace_id",
        )
    }
    visible = set(selectors.visible_workspaces(person).values_list("pk", flat=True)) if known else set()
    return [_row(event, known.get((event.account_id, event.provider_job_id)), visible) for event in events]


def _row(event: WebhookEvent, document: Document | None, visible: Collection[int]) -> EventRow:
    is_seen = document is not None and document.workspace_id in visible
    return EventRow(event, document if is_seen else None, document is not None and not is_seen)


def body_workspace(row: EventRow) -> Workspace | None:
    """Whose content its body is: the document's workspace, else the account's; None for what nobody here can tell."""
    if row.document is not None:
        return row.document.workspace
    return None if row.is_elsewhere else row.event.account.workspace


@dataclass(frozen=True)
class Body:
    """What came, as far as it is shown. `pretty` is empty where it is no JSON."""

    raw: str
    pretty: str
    byte_count: int
    is_cut: bool
    headers: Mapping[str, str]


def body(event: WebhookEvent) -> Body:
    """The raw bytes, bounded; read only for the one event that somebody asked for."""
    stored, headers = WebhookEvent.objects.values_list("body", "headers").get(pk=event.pk)
    content = bytes(stored)
    shown = content[:BODY_SHOWN_MOST]
    try:
        pretty = json.dumps(json.loads(shown), ensure_ascii=False, indent=2) if len(shown) == len(content) else ""
    except (ValueError, RecursionError):
        pretty = ""
    raw = shown.decode("utf-8", "replace").replace("\0", "\ufffd")
    return Body(raw, pretty, len(content), len(content) > len(shown), headers if isinstance(headers, dict) else {})


def refusals(mine: Sequence[ProviderAccount], *, now: datetime) -> list[WebhookRefusal]:
    """The newest hours in which deliveries to these accounts were not taken, with how many and why."""
    found = WebhookRefusal.objects.filter(account__in=[account.pk for account in mine], hour__gte=now - REFUSALS_FOR)
    named = found.select_related("account").defer(*(f"account__{name}" for name in ACCOUNT_SECRETS))
    return list(named.order_by("-hour", "-pk")[:REFUSALS_SHOWN])
