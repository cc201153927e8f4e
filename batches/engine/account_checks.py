"""Testing an account's connection: the one free call that proves address and key, made now because a person asks.

It bills nothing, ends no hold and changes no limit; what it showed is kept as an exchange, like that of any request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import urlsplit

from django.db import transaction

from batches.engine import audit, exchanges
from batches.engine.accounts import provider_config
from batches.engine.audit import By
from batches.engine.exchanges import Evidence
from batches.models import ProviderAccount, UnreadableSecret
from batches.providers import make_provider
from batches.providers.base import ExchangeFacts, Provider
from batches.providers.errors import ProviderError

#: Somebody waits in front of a page.
CONNECT_SECONDS, READ_SECONDS = 4.0, 8.0

Make = Callable[[ProviderAccount], Provider]


@dataclass(frozen=True)
class Checked:
    """What was asked and what came of it, as sentences."""

    is_well: bool
    words: str


def open_provider(account: ProviderAccount) -> Provider:
    config = replace(provider_config(account), connect_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS)
    return make_provider(account.kind, config)


def check(account_id: int, *, by: By, now: datetime, make: Make = open_provider) -> Checked:
    """Ask the provider who we are. No transaction is open meanwhile."""
    try:
        account = ProviderAccount.objects.select_related("workspace").get(pk=account_id)
        provider = make(account)
    except UnreadableSecret as error:
        return Checked(False, f"Nothing was asked. {error}")
    except (TypeError, ValueError, LookupError, ProviderError):
        return Checked(False, "Nothing was asked: the account's address or key cannot be used. Correct them.")
    host = urlsplit(account.base_url).netloc
    try:
        state = provider.check_account(now=now)
    except ProviderError as error:
        exchange, words = error.exchange, f"{_asked(error.exchange, host)} It did not work: {error.words}"
        checked = Checked(False, words)
    else:
        exchange, said = state.exchange, []
        said += [f"plan {state.plan}"] if state.plan else []
        said += [f"rate tier {state.rate_tier}"] if state.rate_tier else []
        said += [f"balance {state.balance} in the provider's own unit"] if state.balance is not None else []
        told = f"It names {', '.join(said)}." if said else "It names neither plan nor balance."
        words = f"{_asked(exchange, host)} It answered in {exchange.duration_ms:,} ms: the key is good. {told}"
        checked = Checked(True, words)
    finally:
        provider.close()
    _keep(account, exchange, checked, by=by, now=now)
    return checked


def _asked(exchange: ExchangeFacts | None, host: str) -> str:
    if exchange is None:
        return f"{host} was to be asked for the account (free)."
    method, route = exchange.request.get("method", "GET"), exchange.request.get("route", "")
    status = f" Status {exchange.status}." if exchange.status is not None else ""
    return f"{host} was asked for {method} {route} (free).{status}"


def _keep(account: ProviderAccount, exchange: ExchangeFacts | None, checked: Checked, *, by: By, now: datetime) -> None:
    with transaction.atomic():
        if exchange is not None:
            exchanges.record([Evidence(exchange, account.pk, job_id=None, submission_id=None)])
        audit.record(
            "test_account",
            subject=f"account {account.slug}",
            workspace=account.workspace,
            by=by,
            now=now,
            facts={"worked": checked.is_well},
        )
