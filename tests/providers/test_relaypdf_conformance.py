"""RelayPDF's adapter against the double on a socket, and against a real sandbox process."""

from __future__ import annotations

import hashlib
import hmac
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from batches.providers import make_provider
from batches.providers.base import JobPhase, JobStatus, Provider, ProviderConfig
from tests.providers.conformance import ProviderConformance, utc_now
from tests.providers.relaypdf_double import API_KEY, RelayPDFDouble
from tests.sandbox_process import SandboxProcess, start_sandbox

WEBHOOK_SECRET = "whsec_p7Yk3vQe5"


class RelayPDFPeer:
    """What both peers share."""

    webhook_secret = WEBHOOK_SECRET

    def __init__(self, url: str, api_key: str) -> None:
        self._config: dict[str, Any] = {"slug": "relaypdf", "base_url": url, "api_key": api_key}
        self.secrets = [api_key]
        self.provider = self.provider_with()

    def provider_with(self, **config: Any) -> Provider:
        return make_provider("relaypdf", ProviderConfig(**self._config | config))

    def finished(self, provider_job_id: str) -> JobStatus:
        self.secrets.append(provider_job_id)
        deadline = time.monotonic() + 60
        while True:
            status = self.provider.fetch_status(provider_job_id, now=utc_now())
            if status.phase is not JobPhase.RUNNING:
                return status
            assert time.monotonic() < deadline, f"the job is still {status.status_word}"
            threading.Event().wait(0.02)

    def sign(self, body: bytes, at: datetime) -> dict[str, str]:
        seconds = int(at.timestamp())
        digest = hmac.new(WEBHOOK_SECRET.encode(), b"%d." % seconds + body, hashlib.sha256).hexdigest()
        return {"RelayPDF-Signature": f"t={seconds},v1={digest}", "RelayPDF-Event": "job.completed"}


class DoublePeer(RelayPDFPeer):
    def __init__(self, double: RelayPDFDouble) -> None:
        super().__init__(double.url, API_KEY)
        self.double = double

    def misbehave(self, action: str, **parameters: Any) -> None:
        self.double.misbehave(action, **parameters)

    def accepted_count(self) -> int:
        return len(self.double.jobs)

    def empty_wallet(self) -> None:
        self.double.credit = False


class SandboxPeer(RelayPDFPeer):
    def __init__(self, sandbox: SandboxProcess) -> None:
        super().__init__(sandbox.url, sandbox.api_key)
        self.sandbox = sandbox

    def misbehave(self, action: str, **parameters: Any) -> None:
        rule = {"name": str(time.monotonic_ns()), "when": {"times": 1}, "do": action, **parameters}
        self.sandbox.configure(faults=[rule])

    def accepted_count(self) -> int:
        return len(self.sandbox.ledger()["jobs"])

    def empty_wallet(self) -> None:
        self.sandbox.fund(balance_microdollars=0)


class TestAgainstTheDouble(ProviderConformance):
    @pytest.fixture
    def peer(self) -> Iterator[DoublePeer]:
        with RelayPDFDouble() as double:
            peer = DoublePeer(double)
            yield peer
            peer.provider.close()


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxProcess]:
    sandbox = start_sandbox(tmp_path_factory.mktemp("conformance"))
    yield sandbox
    sandbox.stop()


@pytest.mark.processes
class TestAgainstTheSandbox(ProviderConformance):
    @pytest.fixture
    def peer(self, sandbox: SandboxProcess) -> Iterator[SandboxPeer]:
        sandbox.configure(faults=[])
        sandbox.reset()
        peer = SandboxPeer(sandbox)
        yield peer
        peer.provider.close()
