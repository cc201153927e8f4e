"""One sandbox process for all tests of this folder, made new for each: records and switches go, the process stays.

Tests that kill it, or that need it to be started in a special way, start their own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from relaypdf import RelayPDF

from tests.sandbox.receiver import Receiver
from tests.sandbox_process import SandboxProcess, start_sandbox


@pytest.fixture(scope="session")
def shared_sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxProcess]:
    # Per-second prices would make amounts depend on how busy the machine is.
    sandbox = start_sandbox(
        tmp_path_factory.mktemp("shared"),
        account={"price_per_second_microdollars": 0},
        webhooks={"retry_seconds": [0.1, 0.1]},
    )
    yield sandbox
    sandbox.stop()


@pytest.fixture
def sandbox(shared_sandbox: SandboxProcess) -> SandboxProcess:
    shared_sandbox.control("DELETE", "config")
    shared_sandbox.reset()
    client = RelayPDF(shared_sandbox.api_key, base_url=shared_sandbox.url)
    for endpoint in client.webhooks.list()["endpoints"]:
        client.webhooks.delete(endpoint["id"])
    return shared_sandbox


@pytest.fixture
def client(sandbox: SandboxProcess) -> RelayPDF:
    return RelayPDF(sandbox.api_key, base_url=sandbox.url)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()
