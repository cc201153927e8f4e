"""The outside world: one adapter per provider behind `base.Provider`. No Django models, no retries, no decisions."""

from __future__ import annotations

from collections.abc import Callable

from batches.providers.aws_lambda import AWSLambda
from batches.providers.base import Capabilities, Provider, ProviderConfig
from batches.providers.docraptor import DocRaptor
from batches.providers.gotenberg import Gotenberg
from batches.providers.infrai import Infrai
from batches.providers.pdfmonkey import PDFMonkey
from batches.providers.rasterkit import Rasterkit
from batches.providers.relaypdf import RelayPDF

#: One line per vendor; the names are those of `ProviderAccount.kind`.
PROVIDERS: dict[str, type[Provider]] = {
    RelayPDF.kind: RelayPDF,
    DocRaptor.kind: DocRaptor,
    Gotenberg.kind: Gotenberg,
    PDFMonkey.kind: PDFMonkey,
    Infrai.kind: Infrai,
    Rasterkit.kind: Rasterkit,
    AWSLambda.kind: AWSLambda,
}


def capabilities_of(kind: str) -> Capabilities:
    """What the vendor of an account of `kind` can do by default. Raises `ValueError` as `make_provider`."""
    return adapter_of(kind).capabilities


def make_provider(kind: str, config: ProviderConfig) -> Provider:
    """The adapter for an account of `kind`. Raises `ValueError` for a kind that no adapter serves."""
    make: Callable[[ProviderConfig], Provider] = adapter_of(kind)
    return make(config)


def adapter_of(kind: str) -> type[Provider]:
    """The class of adapters for accounts of `kind`. Raises `ValueError` as `make_provider`."""
    try:
        return PROVIDERS[kind]
    except KeyError:
        raise ValueError(f"No provider is called {kind!r}; there are: {', '.join(sorted(PROVIDERS))}.") from None
