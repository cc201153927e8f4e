"""A webhook that really came over HTTP, signed by the sandbox, is proven and understood."""

from __future__ import annotations

import json
import queue
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from batches.providers.base import DocumentSource, ProviderConfig, ProviderEvent, SignatureRefused
from batches.providers.relaypdf import RelayPDF
from tests.providers.conformance import open_gate, utc_now
from tests.sandbox_process import start_sandbox

Delivery = tuple[dict[str, str], bytes]


@pytest.fixture
def receiver() -> Iterator[tuple[str, queue.Queue[Delivery]]]:
    deliveries: queue.Queue[Delivery] = queue.Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            deliveries.put((dict(self.headers), body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/webhooks/relaypdf", deliveries
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.mark.processes
@pytest.mark.parametrize("field", ["data.id", "id", "jobId", "data.jobId"])
def test_a_delivery_is_proven_and_names_its_job_wherever_the_id_stands(
    tmp_path: Path, receiver: tuple[str, queue.Queue[Delivery]], field: str
) -> None:
    address, deliveries = receiver
    sandbox = start_sandbox(tmp_path, webhooks={"job_id_field": field, "event_id": field == "data.id"})
    provider = RelayPDF(ProviderConfig("relaypdf", sandbox.url, sandbox.api_key))
    try:
        request = urllib.request.Request(
            f"{sandbox.url}/v1/webhooks",
            data=json.dumps({"url": address}).encode(),
            headers={"Authorization": f"Bearer {sandbox.api_key}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            secret = json.loads(answer.read())["secret"]
        prepared = provider.prepare(DocumentSource("html", "<p>Invoice for Nils Lindqvist</p>"))
        accepted = provider.submit(prepared, idempotency_key="key-1", now=utc_now(), gate=open_gate)
        headers, body = deliveries.get(timeout=60)
        provider.verify_webhook(headers, body, ["whsec_old", secret], now=utc_now())
        assert provider.parse_webhook(body) == [ProviderEvent("job.completed", accepted.provider_job_id)]
        with pytest.raises(SignatureRefused):
            provider.verify_webhook(headers, body, ["whsec_old"], now=utc_now())
    finally:
        provider.close()
        sandbox.stop()
