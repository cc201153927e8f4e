"""Baseline (iii): a plain asyncio client that stores nothing: `python -m benchmarks.plain_asyncio`.

Submit, poll at 0.2 s x 1.6^k, download into memory; 64 keep-alive connections; no database, no file, no retry. The
standard library has no asyncio HTTP client, so a small one stands here; with `--client aiohttp` (in a Python that has
it, see the Makefile) the same loop runs on aiohttp. Prints one JSON line: seconds from the first submission to the
last document.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import time
from typing import Any, Protocol
from urllib.parse import urlsplit

CONNECTIONS = 64
FIRST_POLL, GROWTH, MOST = 0.2, 1.6, 15.0
API_KEY = "pdf_live_benchmark"


class Client(Protocol):
    async def request(
        self, method: str, url: str, headers: dict[str, str], body: bytes = b""
    ) -> tuple[int, dict[str, str], bytes]: ...

    async def close(self) -> None: ...


class StreamsClient:
    """Keep-alive HTTP/1.1 on asyncio's streams: one request at a time per connection, bodies by Content-Length."""

    def __init__(self) -> None:
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._free = asyncio.Semaphore(CONNECTIONS)

    async def request(
        self, method: str, url: str, headers: dict[str, str], body: bytes = b""
    ) -> tuple[int, dict[str, str], bytes]:
        address = urlsplit(url)
        async with self._free:
            if self._idle:
                reader, writer = self._idle.pop()
            else:
                reader, writer = await asyncio.open_connection(address.hostname, address.port)
            lines = [f"{method} {address.path} HTTP/1.1", f"Host: {address.netloc}", f"Content-Length: {len(body)}"]
            lines += [f"{name}: {value}" for name, value in headers.items()]
            writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            status = int(head[0].split(" ", 2)[1])
            answered = {}
            for line in head[1:]:
                name, colon, value = line.partition(":")
                if colon:
                    answered[name.lower()] = value.strip()
            content = await reader.readexactly(int(answered.get("content-length", 0)))
            self._idle.append((reader, writer))
        return status, answered, content

    async def close(self) -> None:
        for _reader, writer in self._idle:
            writer.close()


class AiohttpClient:
    """The same on aiohttp, with its usual session."""

    def __init__(self) -> None:
        import aiohttp

        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONNECTIONS))

    async def request(
        self, method: str, url: str, headers: dict[str, str], body: bytes = b""
    ) -> tuple[int, dict[str, str], bytes]:
        async with self._session.request(method, url, headers=headers, data=body or None) as answer:
            return answer.status, dict(answer.headers), await answer.read()

    async def close(self) -> None:
        await self._session.close()


async def one(client: Client, base_url: str, number: int) -> None:
    auth = {"Authorization": f"Bearer {API_KEY}"}
    body = json.dumps({"html": f"<h1>Invoice {number}</h1>", "response": "async"}).encode()
    headers = {**auth, "Content-Type": "application/json", "Idempotency-Key": f"plain-{number}"}
    status, _, content = await client.request("POST", f"{base_url}/v1/pdf", headers, body)
    assert status == 202, status
    job: dict[str, Any] = json.loads(content)
    wait = FIRST_POLL
    while job["status"] != "completed":
        await asyncio.sleep(wait)
        wait = min(MOST, wait * GROWTH)
        _, _, content = await client.request("GET", f"{base_url}/v1/jobs/{job['id']}", auth)
        job = json.loads(content)
    status, _, content = await client.request("GET", job["url"], {})
    assert status == 200
    assert content.startswith(b"%PDF-")


async def run(base_url: str, documents: int, kind: str) -> float:
    client: Client = AiohttpClient() if kind == "aiohttp" else StreamsClient()
    begun = time.monotonic()
    await asyncio.gather(*(one(client, base_url, number) for number in range(documents)))
    seconds = time.monotonic() - begun
    await client.close()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base_url")
    parser.add_argument("documents", type=int)
    parser.add_argument("--client", choices=("streams", "aiohttp"), default="streams")
    options = parser.parse_args()
    seconds = asyncio.run(run(options.base_url, options.documents, options.client))
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"seconds": seconds, "cpu_seconds": used.ru_utime + used.ru_stime}))


if __name__ == "__main__":
    main()
