"""rasterkit's adapter under the suite of every adapter."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pytest

from tests.providers.conformance import ProviderConformance
from tests.providers.doublepeer import DoublePeer
from tests.providers.rasterkit_double import SIGNING_SECRET, RasterkitDouble, signature


class RasterkitPeer(DoublePeer):
    webhook_secret = SIGNING_SECRET

    def sign(self, body: bytes, at: datetime) -> dict[str, str]:
        return {"X-RasterKit-Signature": signature(body, int(at.timestamp()))}


class TestAgainstTheDouble(ProviderConformance):
    tells_size = False  # 6: only the webhook names a size, and it is a hint

    def notice(self) -> bytes:
        return b'{"id":  "job_1",  "status": "succeeded"}'

    @pytest.fixture
    def peer(self) -> Iterator[RasterkitPeer]:
        with RasterkitDouble() as double:
            peer = RasterkitPeer(double)
            yield peer
            peer.provider.close()
