"""For how long a provider is believed to keep a finished PDF, where it names no end of this one: as its adapter says,
else as we assume. One room, for links, watches, evidence and the repair of the store."""

from __future__ import annotations

from datetime import timedelta

from batches.conf import ENGINE
from batches.models import ProviderAccount
from batches.providers import PROVIDERS
from batches.providers.base import Capabilities


def by(capabilities: Capabilities | None) -> timedelta:
    """As these say. A link that is renewed by asking ends sooner than its file, of which nothing is known then."""
    said = capabilities.link_lifetime_seconds if capabilities and not capabilities.link_refresh else None
    return timedelta(seconds=said or ENGINE.link_lifetime_seconds)


def at_kind(kind: str) -> timedelta:
    """At an account of this kind, by what its adapter declares: needs no key, and no row but the account's kind."""
    adapter = PROVIDERS.get(kind)
    return by(adapter.capabilities if adapter else None)


def at_account(account_id: int) -> timedelta:
    """As `at_kind`, in one query that reads no secret."""
    return at_kind(ProviderAccount.objects.values_list("kind", flat=True).get(pk=account_id))
