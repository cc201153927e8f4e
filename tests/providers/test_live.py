"""Real services, asked only where a person gives a key for it: `<KIND>_LIVE_KEY=… pytest tests/providers/test_live.py`.

Each makes one small document, which costs what it costs there. Nothing here is part of an ordinary run.
"""

from __future__ import annotations

import io
import os
import time
import uuid
from dataclasses import dataclass, field

import pytest

from batches.providers import adapter_of, make_provider
from batches.providers.base import Accepted, DocumentSource, Finished, JobPhase, ProviderConfig, ResultRef
from tests.providers.conformance import MAX_BYTES, open_gate, utc_now


@dataclass(frozen=True)
class Live:
    """How one service is asked. `options` are the account's; `seconds` is how long one document may take."""

    kind: str
    options: dict[str, str] = field(default_factory=dict)
    seconds: float = 120

    @property
    def name(self) -> str:
        return f"{self.kind.upper()}_LIVE_KEY"


SERVICES = (
    # A test document: free, watermarked, and the key YOUR_API_KEY_HERE will do.
    Live("docraptor", {"mode": "test", "hosting": "once", "network": "no"}, seconds=660),
    # A container of your own at GOTENBERG_LIVE_URL; where it asks for no password, any user:password will do.
    Live("gotenberg", {"mode": "sync", "network": "files"}),
    # Its links lead to INFRAI_LIVE_HOSTS, or the file is in the answer.
    Live("infrai"),
    # The account's template for whole HTML, which prints the variable `html`, and the host of its files.
    Live("pdfmonkey", {"template": os.environ.get("PDFMONKEY_LIVE_TEMPLATE", ""), "variable": "html"}),
    # No mode is free there, not even with a key that begins with rk_test_.
    Live("rasterkit"),
    # A function that keeps docs/lambda-renderer.md; the key is id:secret, its address LAMBDA_LIVE_URL.
    Live(
        "lambda", {name: os.environ.get(f"LAMBDA_LIVE_{name.upper()}", "") for name in ("function", "region", "bucket")}
    ),
)


@pytest.mark.parametrize("live", SERVICES, ids=[each.kind for each in SERVICES])
def test_one_document_is_made_and_fetched(live: Live) -> None:
    key = os.environ.get(live.name)
    if not key:
        pytest.skip(f"asks the real service, and only where {live.name} is set")
    base_url = os.environ.get(f"{live.kind.upper()}_LIVE_URL", adapter_of(live.kind).base_url)
    hosts = tuple(filter(None, os.environ.get(f"{live.kind.upper()}_LIVE_HOSTS", "").split(",")))
    provider = make_provider(
        live.kind, ProviderConfig(live.kind, base_url, key, options=live.options, download_hosts=hosts)
    )
    provider.check_account(now=utc_now())
    request = provider.prepare(DocumentSource("html", "<!doctype html><title>t</title><h1>INV-LIVE</h1>"))
    reference = f"{uuid.uuid4().hex}{uuid.uuid4().hex}"
    answer = provider.submit(request, idempotency_key=reference, now=utc_now(), gate=open_gate)
    if isinstance(answer, Finished) and answer.content is not None:  # it keeps nothing that could be fetched later
        assert answer.content.startswith(b"%PDF-")
        provider.close()
        return
    result: ResultRef | None = None if isinstance(answer, Accepted) else answer.result
    if isinstance(answer, Accepted) and answer.is_draft:
        provider.start(answer.provider_job_id, request, idempotency_key=reference, now=utc_now(), gate=open_gate)
    ends_at = time.monotonic() + live.seconds
    while result is None:
        status = provider.fetch_status(answer.provider_job_id, now=utc_now())
        assert status.phase is not JobPhase.FAILED, status.error_words
        assert time.monotonic() < ends_at, f"it is still “{status.status_word}”"
        result = status.result
        time.sleep(2)
    sink = io.BytesIO()
    provider.download(result, sink, max_bytes=MAX_BYTES, now=utc_now())
    assert sink.getvalue().startswith(b"%PDF-")
    provider.close()
