"""Whether webhooks come: when the last one did, how many completions they told of, and when their silence is a fault.

A provider that meets failures may switch an address off, and everything goes on at the speed of polling: nobody would
notice, so an alert says it, and closes when events come again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from batches import wording
from batches.engine import alerts, mishaps, wakeups
from batches.models import Alert, AlertKind, Duration, JobState, ProviderAccount, WebhookEvent
from batches.providers import adapter_of

#: Silence is a fault when so many documents were finished in it, over so long a time: a few lost events, or an idle
#: night, are none.
SILENT_COMPLETIONS = 20
SILENT_FOR = timedelta(minutes=30)


@dataclass(frozen=True)
class WebhookHealth:
    """One account's webhooks. `expected`: a secret is set, so they could come.

    `told` of the newest `completions` were announced before they were seen. `finished_in_silence` counts completions
    since the last event, or since they are expected, no further than is asked. `is_signed`, `is_sent`: what this kind
    of provider does.
    """

    expected: bool
    last_received_at: datetime | None
    told: int
    completions: int
    finished_in_silence: int
    is_silent: bool
    is_signed: bool = True
    is_sent: bool = True


def is_silent(finished_in_silence: int, *, since: datetime, newest_finished_at: datetime | None) -> bool:
    """The rule. `since`: the last event, or when they could first have come."""
    if newest_finished_at is None or finished_in_silence < SILENT_COMPLETIONS:
        return False
    return newest_finished_at - since >= SILENT_FOR


def of(account_id: int) -> WebhookHealth:
    account = (
        ProviderAccount.objects.filter(pk=account_id)
        .annotate(expects=Q(webhook_secret__gt="") | Q(webhook_secret_previous__gt="") | Q(webhook_id__gt=""))
        .values("kind", "expects", "webhook_registered_at", "created_at", "archived_at")
        .get()
    )
    expected = bool(account["expects"]) and account["archived_at"] is None
    events = WebhookEvent.objects.filter(account_id=account_id).order_by("-received_at")
    last = events.values_list("received_at", flat=True).first()
    expected_since = account["webhook_registered_at"] or account["created_at"]
    return _health(account_id, account["kind"], expected=expected, last=last, expected_since=expected_since)


def of_account(account: ProviderAccount, *, has_secret: bool, last: datetime | None) -> WebhookHealth:
    """As `of`, of an account that was read, with whether it has a secret and when the last event came."""
    expected = (has_secret or bool(account.webhook_id)) and account.archived_at is None
    expected_since = account.webhook_registered_at or account.created_at
    return _health(account.pk, account.kind, expected=expected, last=last, expected_since=expected_since)


def _health(
    account_id: int, kind: str, *, expected: bool, last: datetime | None, expected_since: datetime
) -> WebhookHealth:
    since = max(filter(None, (last, expected_since)))
    saved = Duration.objects.filter(account_id=account_id, outcome=JobState.SAVED).order_by("-id")
    newest = list(saved.values_list("at", flat=True)[:SILENT_COMPLETIONS])
    unheard = [at for at in newest if at > since]
    lately = wakeups.told_lately(account_id, kind=kind)
    capabilities = adapter_of(kind).capabilities
    return WebhookHealth(
        expected=expected,
        last_received_at=last,
        told=lately.told,
        completions=lately.completions,
        finished_in_silence=len(unheard),
        is_silent=expected and is_silent(len(unheard), since=since, newest_finished_at=unheard[0] if unheard else None),
        is_signed=capabilities.webhook_signature,
        is_sent=capabilities.webhook_success or capabilities.webhook_failure,
    )


def words(health: WebhookHealth) -> str:
    """What a person reads of it."""
    if not health.expected and not health.is_sent:
        return "This kind of provider sends no webhooks."
    if not health.expected and not health.is_signed:
        return (
            "This kind of provider signs no webhooks. Each document has an address of its own, which it may call where "
            "PUBLIC_URL is set; what is told there is looked at, and not believed."
        )
    if not health.expected:
        return "No secret is set, so no webhook is taken; polling finds every document."
    last = (
        f"The last came at {health.last_received_at.day} {health.last_received_at:%b %H:%M:%S} UTC."
        if health.last_received_at
        else "None has come yet."
    )
    told = f"{health.told:,} {'was' if health.told == 1 else 'were'} announced"
    share = f"Of the last {health.completions:,} documents {told}." if health.completions else ""
    silence = "They have fallen silent: documents are found by polling only." if health.is_silent else ""
    return " ".join(filter(None, (last, share, silence)))


def sweep(*, now: datetime) -> int:
    """Open and close the alert of every account that expects webhooks; how many changed."""
    changed = 0
    open_alerts = Alert.objects.filter(kind=AlertKind.WEBHOOKS_SILENT, closed_at=None)
    alerted = set(open_alerts.values_list("account_id", flat=True))
    expects = Q(webhook_secret__gt="") | Q(webhook_secret_previous__gt="") | Q(webhook_id__gt="") | Q(pk__in=alerted)
    for account in ProviderAccount.objects.filter(expects).only("name", "slug").order_by("pk"):
        with mishaps.contained(f"looking whether webhooks of {account.slug} come"):
            changed += _judge(account, is_alerted=account.pk in alerted, now=now)
    return changed


def _judge(account: ProviderAccount, *, is_alerted: bool, now: datetime) -> int:
    health = of(account.pk)
    if health.is_silent == is_alerted:
        return 0
    if health.is_silent:
        alerts.open_for_account(account, AlertKind.WEBHOOKS_SILENT, alert_words(account.name, health), now=now)
    else:
        alerts.close_for_account(account, AlertKind.WEBHOOKS_SILENT, now=now)
    return 1


def alert_words(name: str, health: WebhookHealth) -> str:
    last = f"since {health.last_received_at:%Y-%m-%d %H:%M} UTC" if health.last_received_at else "at all so far"
    return (
        f"{wording.sentence(f'No webhook of {name} has come {last}')} Its documents are finished and found by polling, "
        "only later. Look whether the provider still has our address and whether it can be reached: on the account's "
        "page in the admin, under Webhooks, or with manage.py webhook."
    )
