"""A double of DocRaptor on a real socket, with code of its own: nothing of `batches` is imported here.

The service itself is `docraptor_service.py`; here it gets an address and misbehaves on demand. It runs in a thread
(`with DocRaptorDouble() as double`), or as a program of its own that prints its address, with the same controls over
HTTP:

    python -m tests.providers.docraptor_double --port 0
    POST /__double__/misbehave {"action": "drop_after_acceptance"}      GET  /__double__/ledger
    POST /__double__/switches  {"most_at_once": 3}                      POST /__double__/hostile
"""

from __future__ import annotations

import argparse
import base64
import dataclasses
import hashlib
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.providers.docraptor_service import TEST_KEY, XML, Reply, Service, errors

API_KEY = "d0craptorQ7rT2mVx81LkZp"


@dataclass
class Seen:
    """One request as it arrived."""

    point: str
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Fault:
    """What the next request of `point` meets. `act` gets what would be answered: calling it has its effect."""

    point: str
    act: Callable[[_Handler, Callable[[], Reply]], None]


class DocRaptorDouble(Service):
    """Use as a context manager; `url` is its base URL."""

    def __init__(self, *, port: int = 0, api_key: str = API_KEY, **switches: Any) -> None:
        super().__init__(**switches)
        self.api_key = api_key
        self.requests: list[Seen] = []
        self.finished = threading.Event()
        self._hostile = False
        self._faults: deque[Fault] = deque()
        self._met: Counter[str] = Counter()
        double = self

        class Handler(_Handler):
            owner = double

        self._server = _Server(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> DocRaptorDouble:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.finished.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def seen(self, point: str) -> list[Seen]:
        return [request for request in self.requests if request.point == point]

    def account_fields(self) -> dict[str, Any]:
        return _account_fields(self.url, self.api_key)

    def hostile(self) -> None:
        """Each document meets some trouble from now on, all of which ends well. Lost answers are not among it: with no
        key at this vendor they can only end as unknown."""
        self._hostile = True

    # --- misbehaviour ------------------------------------------------------------------------------------------------

    def fault(self, point: str, act: Callable[[_Handler, Callable[[], Reply]], None], *, first: bool = False) -> None:
        with self.lock:
            (self._faults.appendleft if first else self._faults.append)(Fault(point, act))

    def fault_for(self, point: str) -> Fault | None:
        with self.lock:
            for fault in self._faults:
                if fault.point == point:
                    self._faults.remove(fault)
                    return fault
        return None

    def misbehave(self, action: str, **parameters: Any) -> None:
        """The next exchange that `action` is about goes wrong, once."""
        point, act = self._misbehaviour(action, parameters)
        if point:
            self.fault(point, act)

    def _misbehaviour(self, action: str, told: dict[str, Any]) -> tuple[str, Any]:
        retry = _retry_after(told)
        status = int(told.get("status", 0))
        if action in ("drop_before_acceptance", "drop_after_acceptance"):
            return "submit", _dropping(effect=action == "drop_after_acceptance")
        if action.startswith(("error_", "html_502_")) and action.endswith("_acceptance"):
            page = Reply(status or 502, errors("Internal Server Error"), XML, retry)
            if action.startswith("html"):
                page = Reply(502, b"<html>502 Bad Gateway</html>", "text/html")
            return "submit", _answering(page, effect="_after_" in action)
        if action == "too_many":
            return "submit", _answering(Reply(403, errors("You may not do that now."), XML))
        if action == "rate_limited":
            return "submit", _answering(Reply(429, errors("Slow down."), XML, retry))
        if action == "no_credit":
            return "submit", _answering(Reply(402, errors("The plan is used up."), XML))
        if action == "slow_after_acceptance":
            return "submit", self._holding
        if action == "answer_after_acceptance":
            page = Reply(200, told["body"].encode(), told["content_type"])
            return "submit", _answering(page, effect=True)
        if action == "fail":
            self.failing.append(str(told.get("message", "Something went wrong.")))
            return "", None
        if action == "poll_drop":
            return "poll", _dropping(effect=False)
        if action == "poll_error":
            return "poll", _answering(Reply(status, errors("Not now."), XML, retry))
        if action == "poll_answer":
            return "poll", _answering(Reply(200, json.dumps(told["body"]).encode()))
        if action == "expired_file":
            return "download", _answering(Reply(int(told["answer"][:3]), b"<Error/>", XML))
        if action == "truncated_file":
            return "download", _cutting(announced=told.get("content_length") != "wrong")
        if action == "error_page":
            return "download", _answering(Reply(200, b"<html>Something went wrong</html>", "text/html"), effect=True)
        if action == "download_drop":
            return "download", _dropping(effect=True)
        if action == "garbage_list":
            return "logs", _answering(Reply(200, b"<html>Welcome</html>", "text/html"))
        raise ValueError(f"the double does not know {action}")

    def _holding(self, handler: _Handler, behave: Callable[[], Reply]) -> None:
        behave()
        self.finished.wait(30)
        handler.hang_up()

    def hostile_fault(self, point: str, reference: str) -> Fault | None:
        """What a document meets at its first request of a kind, by its own number among the troubles."""
        with self.lock:
            if not self._hostile or self._met[f"{point} {reference}"]:
                return None
            self._met[f"{point} {reference}"] += 1
        troubles: dict[str, list[tuple[str, dict[str, Any]]]] = {
            "submit": [("too_many", {}), ("rate_limited", {"retry_after": 1}), ("", {})],
            "poll": [
                ("poll_error", {"status": 400}),
                ("poll_error", {"status": 500}),
                ("poll_drop", {}),
                ("poll_answer", {"body": {"status": "warming_up"}}),
                ("poll_answer", {"body": []}),
            ],
            "download": [("truncated_file", {}), ("download_drop", {}), ("", {}), ("error_page", {})],
        }
        mine = troubles.get(point)
        if not mine:
            return None
        action, told = mine[int(hashlib.sha256(f"{point} {reference}".encode()).hexdigest(), 16) % len(mine)]
        if action == "too_many" and not any(job.status in ("queued", "working") for job in self.jobs.values()):
            return None  # with nothing in flight that answer would mean the key, and ends in a hold
        return Fault(*self._misbehaviour(action, told)) if action else None


def _retry_after(told: dict[str, Any]) -> dict[str, str]:
    form = told.get("form", "seconds" if "retry_after" in told else "missing")
    if form == "missing":
        return {}
    seconds = told["retry_after"]
    return {"Retry-After": str(seconds) if form == "seconds" else formatdate(time.time() + seconds, usegmt=True)}


# --- what a fault does ---


def _answering(reply: Reply, *, effect: bool = False) -> Callable[[_Handler, Callable[[], Reply]], None]:
    def act(handler: _Handler, behave: Callable[[], Reply]) -> None:
        if effect:
            behave()
        handler.reply(reply)

    return act


def _dropping(*, effect: bool) -> Callable[[_Handler, Callable[[], Reply]], None]:
    def act(handler: _Handler, behave: Callable[[], Reply]) -> None:
        if effect:
            behave()
        handler.hang_up()

    return act


def _cutting(*, announced: bool) -> Callable[[_Handler, Callable[[], Reply]], None]:
    def act(handler: _Handler, behave: Callable[[], Reply]) -> None:
        whole = behave()
        half = whole.content[: len(whole.content) // 2]
        length = len(whole.content if announced else half)
        handler.reply(Reply(whole.status, half, whole.content_type, {"Content-Length": str(length)}))

    return act


# --- the server ---


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is what several tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: DocRaptorDouble
    wbufsize = -1  # one segment per answer

    POINTS = (
        ("GET", "/status/", "poll"),
        ("GET", "/download/", "download"),
        ("GET", "/hosted/", "download"),
        ("GET", "/doc_logs.json", "logs"),
        ("GET", "/docs.json", "account"),
        ("PATCH", "/expire/", "delete"),
        ("POST", "/async_docs", "submit"),
        ("POST", "/hosted_async_docs", "submit"),
        ("POST", "/docs", "submit"),
        ("POST", "/hosted_docs", "submit"),
    )

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PATCH = do_DELETE = do_GET

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = urlsplit(self.path).path
        if path.startswith("/__double__/"):
            self.reply(self._controlled(path.rpartition("/")[2], body))
            return
        found = (name for method, start, name in self.POINTS if method == self.command and path.startswith(start))
        point = next(found, "other")
        self.owner.requests.append(Seen(point, self.command, self.path, dict(self.headers), body))
        fault = self.owner.fault_for(point) or self.owner.hostile_fault(point, self._reference(point, path, body))
        if fault is not None:
            fault.act(self, lambda: self._behaved(point, path, body))
            return
        self.reply(self._behaved(point, path, body))

    def _reference(self, point: str, path: str, body: bytes) -> str:
        if point == "submit":
            return hashlib.sha256(body).hexdigest()
        return unquote(path.rpartition("/")[2])

    def _controlled(self, what: str, body: bytes) -> Reply:
        told = json.loads(body or b"{}")
        if what == "misbehave":
            self.owner.misbehave(told.pop("action"), **told)
        elif what == "switches":
            self.owner.switches = dataclasses.replace(self.owner.switches, **told)
        elif what == "hostile":
            self.owner.hostile()
        elif what != "ledger":
            return Reply(404)
        return Reply(200, json.dumps(self.owner.ledger()).encode())

    def _behaved(self, point: str, path: str, body: bytes) -> Reply:
        double, name = self.owner, unquote(path.rpartition("/")[2])
        if path.startswith("/hosted/"):
            return double.download(name, is_hosted=True)
        key = self._key(body)
        if key not in (double.api_key, TEST_KEY):
            return Reply(401, errors("The API key is not recognised."), XML)
        if point == "submit":
            return double.submit(
                body, is_async="async" in path, is_hosted="hosted" in path, with_test_key=key == TEST_KEY
            )
        if point == "poll":
            return double.status(name)
        if point == "download":
            return double.download(name, is_hosted=False)
        if point == "delete":
            return double.expire(name)
        if point in ("logs", "account"):
            return double.logs(parse_qs(urlsplit(self.path).query), only_created=point == "account")
        return Reply(404, errors("There is nothing here."), XML)

    def _key(self, body: bytes) -> str:
        """Basic authentication with an empty password; or, as of old, `user_credentials` in the query or the body."""
        scheme, _, encoded = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "basic":
            user, _, password = base64.b64decode(encoded).decode().partition(":")
            return user if not password else ""
        query = parse_qs(urlsplit(self.path).query)
        if "user_credentials" in query:
            return query["user_credentials"][0]
        try:
            return str(json.loads(body).get("user_credentials", ""))
        except (ValueError, AttributeError):
            return ""

    def reply(self, reply: Reply) -> None:
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.content_type)
        if "Content-Length" not in reply.headers:
            self.send_header("Content-Length", str(len(reply.content)))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.content)
        self.wfile.flush()
        if "Content-Length" in reply.headers:
            self.hang_up()

    def hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def finish(self) -> None:
        try:
            super().finish()
        except (OSError, ValueError):
            return

    def log_message(self, format: str, *args: Any) -> None:
        return


# --- as a program of its own ---


def _account_fields(url: str, api_key: str) -> dict[str, Any]:
    options = {"mode": "live", "hosting": "once", "network": "no"}
    return {"kind": "docraptor", "base_url": url, "api_key": api_key, "options": options}


class Double:
    """The double in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self._process = process
        self.url = url

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        if self._process.stdout:
            self._process.stdout.close()

    def account_fields(self) -> dict[str, Any]:
        return _account_fields(self.url, API_KEY)

    def ledger(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/__double__/ledger", timeout=10) as answer:
            return dict(json.load(answer))

    def hostile(self) -> None:
        self.control("hostile")

    def misbehave(self, action: str, **parameters: Any) -> None:
        self.control("misbehave", action=action, **parameters)

    def control(self, what: str, **told: Any) -> None:
        request = urllib.request.Request(f"{self.url}/__double__/{what}", json.dumps(told).encode(), method="POST")
        urllib.request.urlopen(request, timeout=10).close()


def start(folder: Path, **switches: Any) -> Double:
    """Start the program; what it says of trouble goes to a file in `folder`."""
    command = [sys.executable, "-m", "tests.providers.docraptor_double", "--port", "0"]
    with (folder / "docraptor_double.log").open("w") as log:
        root = Path(__file__).resolve().parents[2]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=root)
    assert process.stdout is not None
    double = Double(process, process.stdout.readline().strip())
    if switches:
        double.control("switches", **switches)
    return double


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]  # it has one
    parser.add_argument("--port", type=int, default=0)
    with DocRaptorDouble(port=parser.parse_args().port) as double:
        sys.stdout.write(f"{double.url}\n")
        sys.stdout.flush()
        double.finished.wait()


if __name__ == "__main__":
    main()
