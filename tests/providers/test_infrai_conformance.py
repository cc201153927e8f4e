"""Infrai's adapter under the suite of every adapter, in each of the shapes that its answers are said to have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.providers.conformance import ProviderConformance
from tests.providers.doublepeer import DoublePeer
from tests.providers.infrai_double import InfraiDouble


class TestAgainstTheDouble(ProviderConformance):
    says_conflict = False  # B6: INFERRED 68290687700: the first document comes back, silently
    tells_size = False  # B5: no size field of a job's result is known

    @pytest.fixture
    def peer(self) -> Iterator[DoublePeer]:
        with InfraiDouble() as double:
            peer = DoublePeer(double)
            yield peer
            peer.provider.close()
