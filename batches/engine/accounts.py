"""From an account's row to the adapter that speaks for it, and what its documents may hold."""

from __future__ import annotations

from batches.conf import ENGINE
from batches.manifests import Limits
from batches.models import ProviderAccount
from batches.models.accounts import sound_hosts
from batches.providers import make_provider
from batches.providers.base import Provider, ProviderConfig


def provider_config(account: ProviderAccount) -> ProviderConfig:
    """The account's settings as an adapter needs them. Reads the encrypted columns."""
    return ProviderConfig(
        slug=account.slug,
        base_url=account.base_url.rstrip("/"),
        api_key=account.api_key,
        webhook_secrets=tuple(secret for secret in (account.webhook_secret, account.webhook_secret_previous) if secret),
        download_hosts=tuple(sound_hosts(account.download_hosts)),
        connect_timeout=ENGINE.connect_timeout,
        read_timeout=ENGINE.read_timeout,
        download_timeout=ENGINE.download_timeout,
        pool_size=ENGINE.submit_threads + ENGINE.poll_threads + ENGINE.fetch_threads,
    )


def document_limits(account: ProviderAccount) -> Limits:
    """The limits of documents that go to this account. Where it renders inside our network, none of them may refer to
    a private address."""
    return Limits(blocks_private=account.renders_inside)


class Providers:
    """The adapters of one process, one per account, made anew when the account's address or key has changed."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[ProviderConfig, Provider]] = {}

    def of(self, account: ProviderAccount) -> Provider:
        config = provider_config(account)
        known = self._made.get(account.pk)
        if known is not None and known[0] == config:
            return known[1]
        provider = make_provider(account.kind, config)
        self._made[account.pk] = (config, provider)
        return provider

    def close(self) -> None:
        for _config, provider in self._made.values():
            provider.close()
        self._made.clear()
