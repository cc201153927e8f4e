"""What status reads and downloads say about the way to the provider: pure judgements for the account's breaker.

Submissions are judged by `retries`, which owns the list of errors that count. A hold adds nothing to a hold, and a
success is worth a write only where failures were counted, so in quiet times none of this costs a statement.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from batches.engine import retries
from batches.engine.changes import Change
from batches.engine.effects import NO_EFFECT, AccountEffect
from batches.models import AccountHealth, ExchangeKind, ProviderAccount
from batches.providers import errors
from batches.providers.http import origin_of

#: A file that has been out of reach for longer says no more of the way to the provider than it did: one that is always
#: cut off would have its account held again and again. Fresh ones, submissions and status reads speak for the way.
TELLS_SECONDS = 5.0


def reached(account: ProviderAccount) -> AccountEffect:
    """A call got through."""
    return AccountEffect(reached=True) if account.transport_failure_count else NO_EFFECT


def failed(account: ProviderAccount, error: errors.ProviderError) -> AccountEffect:
    """A status read brought nothing: a transport failure or a 5xx counts, any other answer of the provider does not."""
    if account.health == AccountHealth.HELD or not isinstance(error, retries.TRANSPORT_ERRORS):
        return NO_EFFECT
    return AccountEffect(transport_failure=True, words=error.words)


def with_download(change: Change, account: ProviderAccount, words: str = "") -> Change:
    """The change with what its download says about the provider, where the file lies on the provider's own host."""
    submission = change.claim.submission
    url = (submission.result or {}).get("url", "") if submission else ""
    if change.effect != NO_EFFECT or not _lies_there(url, account):
        return change
    facts = next((facts for facts, _id in reversed(change.exchanges) if facts.kind == ExchangeKind.DOWNLOAD), None)
    if facts is None:
        return change
    if facts.status is not None and facts.status < 500:
        return replace(change, effect=reached(account)) if not facts.error_class else change
    if account.health == AccountHealth.HELD or facts.error_class not in retries.TRANSPORT_ERROR_NAMES:
        return change
    if change.at - change.claim.state_changed_at > timedelta(seconds=TELLS_SECONDS):
        return change
    return replace(change, effect=AccountEffect(transport_failure=True, words=words))


def _lies_there(url: str, account: ProviderAccount) -> bool:
    """On the provider's own host, as a link without a host does; one that cannot be read is never asked for."""
    return origin_of(url) in (None, origin_of(account.base_url))
