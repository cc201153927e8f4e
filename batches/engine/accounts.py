"""From an account's row to the adapter that speaks for it, and what its documents may hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.conf import settings
from django.utils.crypto import constant_time_compare, salted_hmac

from batches.conf import ENGINE
from batches.engine import received
from batches.engine.verbs import Elsewhere
from batches.manifests import Limits
from batches.models import ProviderAccount, UnreadableSecret
from batches.models.accounts import sound_hosts
from batches.providers import PROVIDERS, adapter_of, make_provider
from batches.providers.base import Capabilities, Provider, ProviderConfig
from batches.providers.base import Option as Option  # forms are made of them
from batches.storage import ArtifactStore, open_store


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
        options=sound_options(account),
        callback_url=callback_url(account),
    )


def sound_options(account: ProviderAccount) -> Mapping[str, str]:
    """The options of its kind, each with its value or its default. A row may have been written past the model."""
    return options_of(account.kind, account.options)


def options_of(kind: str, given: object) -> dict[str, str]:
    """What `given` says of each option of this kind, or its default."""
    said = given if isinstance(given, dict) else {}
    return {
        option.name: value if isinstance(value := said.get(option.name), str) and value else option.default
        for option in adapter_of(kind).options
    }


def callback_url(account: ProviderAccount) -> str:
    """Where the provider may call about this account's jobs; empty where no public address is known.

    Known to nobody else: it ends in a token that this installation alone can make, since not every provider signs.
    """
    base = account.webhook_url or (f"{settings.PUBLIC_URL}/webhooks/{account.slug}" if settings.PUBLIC_URL else "")
    return f"{base.rstrip('/')}/{_token(account.slug, settings.SECRET_KEY)}" if base else ""


def is_callback_token(slug: str, token: str) -> bool:
    """Whether an address with this token was given out for the account, with the key of now or one of before."""
    secrets = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return any(constant_time_compare(token, _token(slug, secret)) for secret in secrets)


def hears(account: ProviderAccount) -> bool:
    """Whether events about this account's jobs may come: signed ones, or calls to the address that each of them has.
    Reads an encrypted column."""
    capabilities = adapter_of(account.kind).capabilities
    if capabilities.webhook_signature:
        return bool(account.webhook_secret)
    return capabilities.webhook_success and bool(account.webhook_url or settings.PUBLIC_URL)


def _token(slug: str, secret: str | bytes) -> str:
    return salted_hmac("batches.callback", slug, secret=secret, algorithm="sha256").hexdigest()[:40]


def adapters() -> Mapping[str, type[Provider]]:
    """Every kind of account that there can be, with the class that speaks for it."""
    return PROVIDERS


def defaults(kind: str) -> dict[str, Any]:
    """The columns that fit an account of this kind before anybody has said anything. Raises as `adapter_of`."""
    adapter = adapter_of(kind)
    most = adapter.capabilities.most_at_once
    own = {"kind": kind, "name": adapter.label, "base_url": adapter.base_url}
    return own | ({"max_in_flight": most} if most else {})


def problems(account: ProviderAccount) -> list[str]:
    """Why this account cannot be used safely as it is set, as sentences that say what to do; none when it can."""
    try:
        config, adapter = provider_config(account), adapter_of(account.kind)
    except UnreadableSecret:
        return []  # said where it is held for that
    wrong = list(_option_problems(account, adapter.options, config))
    return wrong or adapter.problems(config)


def _option_problems(account: ProviderAccount, known: Sequence[Option], config: ProviderConfig) -> Iterator[str]:
    names = {option.name for option in known}
    given = account.options if isinstance(account.options, dict) else {}
    for name in sorted(given.keys() - names):
        there_are = f"it has: {', '.join(sorted(names))}" if names else "it has none"
        yield f"{account.get_kind_display()} has no option {name!r}; {there_are}."
    for option in known:
        value, allowed = config.options[option.name], [each for each, _words in option.choices]
        if option.required and not value:
            yield f"{option.label} ({option.name}) is missing. {option.help}"
        elif value and allowed and value not in allowed:
            yield f"{option.label} ({option.name}) is one of {', '.join(allowed)}, not {value!r}."


def label(account: ProviderAccount) -> str:
    """The provider's name. Raises `ValueError` for a kind that no adapter serves."""
    return adapter_of(account.kind).label


def capabilities(account: ProviderAccount) -> Capabilities:
    """What the account can do as it is set. Reads no secret. Raises `ValueError` for a kind that no adapter serves."""
    config = ProviderConfig(
        slug=account.slug,
        base_url=account.base_url.rstrip("/"),
        api_key="",
        options=sound_options(account),
        callback_url=callback_url(account),
    )
    provider = make_provider(account.kind, config)
    try:
        return provider.capabilities
    finally:
        provider.close()


def document_limits(account: ProviderAccount) -> Limits:
    """The limits of documents that go to this account. It takes some kinds of them only, and where it renders inside
    our network, none may refer to a private address."""
    sources = capabilities(account).sources
    return Limits(blocks_private=account.renders_inside, sources=sources, account=account.slug)


def not_taken(account: ProviderAccount, kind: str) -> str:
    """Why a document of this kind (`models.SourceKind`) cannot be sent to the account; empty where it can."""
    return elsewhere(account).why_not(kind)


def elsewhere(account: ProviderAccount) -> Elsewhere:
    """The account as the rules of the verbs ask about one that is chosen instead of a batch's own."""
    return Elsewhere(account.slug, capabilities(account).sources)


class Providers:
    """The adapters of one process, one per account, made anew when the account's address or key has changed.

    Files that a provider sends to us are kept in `store`, the installation's own if none is given.
    """

    def __init__(self, store: ArtifactStore | None = None) -> None:
        self._store = store
        self._made: dict[int, tuple[ProviderConfig, Provider]] = {}

    def of(self, account: ProviderAccount) -> Provider:
        config = provider_config(account)
        known = self._made.get(account.pk)
        if known is not None and known[0] == config:
            return known[1]
        store = self._store or open_store(settings.STORAGE_URL)
        provider = received.receiving(make_provider(account.kind, config), store, account.slug)
        self._made[account.pk] = (config, provider)
        return provider

    def close(self) -> None:
        for _config, provider in self._made.values():
            provider.close()
        self._made.clear()
