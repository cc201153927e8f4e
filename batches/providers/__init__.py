"""The outside world: one adapter per provider behind `base.Provider`. No Django models, no retries, no decisions."""

from __future__ import annotations

from collections.abc import Callable

from batches.providers.base import Provider, ProviderConfig
from batches.providers.relaypdf import RelayPDF

#: One line per vendor; the names are those of `ProviderAccount.kind`.
PROVIDERS: dict[str, Callable[[ProviderConfig], Provider]] = {
    RelayPDF.kind: RelayPDF,
}


def make_provider(kind: str, config: ProviderConfig) -> Provider:
    """The adapter for an account of `kind`. Raises `ValueError` for a kind that no adapter serves."""
    try:
        make = PROVIDERS[kind]
    except KeyError:
        raise ValueError(f"No provider is called {kind!r}; there are: {', '.join(sorted(PROVIDERS))}.") from None
    return make(config)
