"""One exchange over a real socket, whose address holds an id that nothing may tell; and a transport that only fails."""

from __future__ import annotations

import traceback
from datetime import UTC, datetime
from typing import Any

import pytest
from urllib3.util import Url

from batches.providers import wire
from batches.providers.errors import ProviderError
from batches.providers.http import Call, HttpClient

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
SECRET = "pdf_Zk81secretid"


def call(base_url: str, *, seconds: float = 10, body: bytes = b"", **fields: Any) -> Call:
    return Call(
        kind="submit",
        method="POST" if body else "GET",
        url=f"{base_url}/v1/{'pdf' if body else 'account'}?id={SECRET}",
        route="/v1/…",
        seconds=seconds,
        body=body,
        secrets=(SECRET,),
        **fields,
    )


def failed(kind: type[ProviderError], client: HttpClient, the_call: Call, *, max_bytes: int = 1_000_000) -> Any:
    """The error of an exchange that must fail; it must not give the secret id away."""
    with pytest.raises(kind) as caught, client.open(the_call, now=NOW) as answer:
        answer.read(max_bytes)
    error = caught.value
    told = "".join(traceback.format_exception(error)) + repr(error.exchange) + error.words + error.detail
    assert SECRET not in told
    assert error.exchange is not None
    assert error.exchange.error_class == kind.__name__
    return error


class StubAdapter(wire.WireAdapter):
    """Its pool raises what it is given, says nothing about the wire, and keeps how it was called."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error
        self.calls: list[dict[str, Any]] = []
        self.verify: bool | str | None = None

    def pool_of(self, target: Url, verify: bool | str | None) -> Any:
        self.verify = verify
        return self

    def urlopen(self, method: str, url: str, **kwargs: Any) -> Any:
        self.calls.append(kwargs)
        raise self.error
