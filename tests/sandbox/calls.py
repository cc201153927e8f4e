"""Plain HTTP calls to a sandbox, for what the vendor's SDK hides: exact bytes, headers, half-open sockets."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any

from tests.sandbox_process import SandboxProcess


@dataclass(frozen=True)
class Reply:
    """One answer; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The vendor's error code."""
        return str(self.json()["error"]["code"])


def call(
    sandbox: SandboxProcess,
    method: str,
    path: str,
    body: bytes | dict[str, Any] | None = None,
    *,
    key: str | None = "",
    headers: dict[str, str] | None = None,
) -> Reply:
    """One request on a connection of its own. `key` "" is the sandbox's API key, None sends none."""
    connection = http.client.HTTPConnection("127.0.0.1", int(sandbox.url.rpartition(":")[2]), timeout=30)
    sent = dict(headers or {})
    if key is not None:
        sent.setdefault("Authorization", f"Bearer {key or sandbox.api_key}")
    data = json.dumps(body).encode() if isinstance(body, dict) else body
    try:
        connection.request(method, path, data, sent)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, found, response.read())
    finally:
        connection.close()


def submit(
    sandbox: SandboxProcess,
    html: str = "<p>Invoice</p>",
    *,
    idempotency_key: str | None = None,
    headers: dict[str, str] | None = None,
    **fields: Any,
) -> Reply:
    """`POST /v1/pdf`, asynchronous unless `response` says otherwise."""
    sent = dict(headers or {})
    if idempotency_key is not None:
        sent["Idempotency-Key"] = idempotency_key
    return call(sandbox, "POST", "/v1/pdf", {"html": html, "response": "async", **fields}, headers=sent)
