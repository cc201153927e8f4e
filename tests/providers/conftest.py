"""What tests of RelayPDF talk with: a double on loopback that can misbehave, the adapter, and the HTTP client alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from batches.providers.base import ProviderConfig
from batches.providers.http import HttpClient
from batches.providers.relaypdf import RelayPDF
from tests.providers.relaypdf_double import API_KEY, RelayPDFDouble


@pytest.fixture
def double() -> Iterator[RelayPDFDouble]:
    with RelayPDFDouble() as double:
        yield double


@pytest.fixture
def provider(double: RelayPDFDouble) -> Iterator[RelayPDF]:
    provider = RelayPDF(ProviderConfig("relaypdf", double.url, API_KEY, read_timeout=5))
    yield provider
    provider.close()


@pytest.fixture
def client() -> Iterator[HttpClient]:
    client = HttpClient(connect_timeout=2, read_timeout=2, pool_size=4)
    yield client
    client.close()
