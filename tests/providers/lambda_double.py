"""AWS Lambda and S3 on one address: the Invoke API with the team's function behind it, and a bucket.

The function is `examples/lambda_renderer/handler.py` itself, run here against the S3 of moto, which keeps the bucket;
with the switch `engine` at `plain` it draws a page of text, with `plutoprint` what the example draws. Every request's
signature is checked, by the published recipe and not by botocore. The facts are those that `batches/providers/
aws_lambda*.py` name by their tags; nothing of that code is used here.
Run it with `python -m tests.providers.lambda_double --port 0`.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import importlib.util
import json
import logging
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self
from unittest import mock
from urllib.parse import quote, unquote
from uuid import uuid4

import boto3
from moto.server import ThreadedMotoServer

from tests.providers import httpdouble
from tests.providers.httpdouble import ROOT, Double, Process, Reply, Seen

EXAMPLE = ROOT / "examples" / "lambda_renderer"
REGION = "eu-central-1"
FUNCTION = "pdf-renderer"
KEY_ID, SECRET, TOKEN = "AKIAINVENTED0KEY", "invented+secret/Q7rT2mVx81LkZp", "invented//token=="
API_KEY = f"{KEY_ID}:{SECRET}:{TOKEN}"
SYNC_BYTES, EVENT_BYTES = 6_291_456, 1_048_576
EVENT_REPEATS = 2  # 5.7: C(A2)
#: What the plain engine refuses.
BAD = "no engine can draw this"

_running: ContextVar[LambdaDouble] = ContextVar("running")


@dataclass(frozen=True)
class Context:
    function_version: str = "7"


@contextlib.contextmanager
def s3_service() -> Iterator[str]:
    """The address of a running S3 without buckets."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@lru_cache(maxsize=1)
def s3_client(url: str) -> Any:
    return boto3.client(
        "s3", endpoint_url=url, region_name=REGION, aws_access_key_id="invented", aws_secret_access_key="invented"
    )


class LambdaDouble(Double):
    switches = {
        "invocation": "RequestResponse",
        "large": "refuse",
        "engine": "plain",
        # Whether the account's key may list the bucket; without it a missing file is a 403 (5.5: C(A1)).
        "lists": True,
        # How often each event is delivered, and how long before (5.7: C(A2)).
        "deliveries": 1,
        "event_delay": 0.0,
        # So many runs end in an error of the function, before they do anything and after they have stored.
        "throws_before": 0,
        "throws_after": 0,
    }
    # Three in a row that do not get through hold the account, and each probe may meet a fault of its own: so half
    # of the documents meet none, or the hour would go by in waits.
    HOSTILE = {
        "submit": (
            None,
            {
                "do": "answer",
                "status": 429,
                "headers": {"Retry-After": "1", "x-amzn-ErrorType": "TooManyRequestsException"},
                "body": {"Reason": "ConcurrentInvocationLimitExceeded", "message": "Rate Exceeded."},
            },
            None,
            {"do": "drop", "effect": True},
            None,
            {
                "do": "answer",
                "status": 200,
                "headers": {"X-Amz-Function-Error": "Unhandled"},
                "body": {"errorType": "Sandbox.Timedout", "errorMessage": "Task timed out after 10.00 seconds"},
                "effect": True,
            },
        ),
        "poll": ({"do": "drop"}, {"do": "answer", "status": 503, "body": ""}),
        "download": ({"do": "truncate"}, {"do": "drop"}, {"do": "answer", "status": 503, "body": "<Error/>"}),
    }

    def __init__(self, *, port: int = 0, s3_url: str = "", **switches: Any) -> None:
        super().__init__(port=port, **switches)
        self._closing = contextlib.ExitStack()
        self.s3_url = s3_url or self._closing.enter_context(s3_service())
        self.s3 = s3_client(self.s3_url)
        # On an S3 of its own the same in each run, and so the keys, by which the hostile hour chooses.
        self.bucket = f"documents-{uuid4().hex[:12]}" if s3_url else "documents"
        self.s3.create_bucket(Bucket=self.bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
        self.function = loaded(self.s3_url, self.set["engine"])
        self.deliveries: list[threading.Thread] = []

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def stop(self) -> None:
        super().stop()
        self._closing.close()

    def account_fields(self) -> dict[str, Any]:
        return {
            "kind": "lambda",
            "base_url": self.url,
            "api_key": API_KEY,
            "options": {
                "function": FUNCTION,
                "region": REGION,
                "bucket": self.bucket,
                "invocation": self.set["invocation"],
                "large": self.set["large"],
                "s3_url": self.url,
            },
        }

    # --- what is asked ---------------------------------------------------------------------------------------------

    def point_of(self, method: str, path: str) -> str:
        if path.startswith("/2015-03-31/functions/"):
            return "submit"
        if "list-type" in path:
            return "list"
        kinds = {"HEAD": "poll", "PUT": "input", "DELETE": "delete"}
        return kinds.get(method) or ("download" if path.endswith(".pdf") else "marker")

    def document_of(self, request: Seen) -> str:
        if request.point == "submit":
            return str(request.json().get("job_key", ""))
        return request.name.partition(".")[0]

    def fault_for(self, request: Seen) -> httpdouble.Fault | None:
        if request.headers.get("X-Amz-Invocation-Type") == "DryRun":
            return None
        return super().fault_for(request)

    def behave(self, request: Seen) -> Reply:
        service = "lambda" if request.point == "submit" else "s3"
        wrong = unsigned(request, service)
        if service == "lambda":
            return refused(403, wrong, "The request signature does not match.") if wrong else self.invoke(request)
        if wrong:
            return Reply(403, f"<Error><Code>{wrong}</Code></Error>".encode(), {"Content-Type": "application/xml"})
        reply = forwarded(self.s3_url, request)
        if reply.status == 404 and not self.set["lists"]:
            return Reply(403, b"<Error><Code>AccessDenied</Code></Error>", {"Content-Type": "application/xml"})
        return reply

    # --- the function ------------------------------------------------------------------------------------------------

    def invoke(self, request: Seen) -> Reply:
        name = unquote(request.path.removeprefix("/2015-03-31/functions/").partition("/")[0])
        kind = request.headers.get("X-Amz-Invocation-Type")
        if name.rpartition(":")[2] != FUNCTION:
            return refused(404, "ResourceNotFoundException", f"Function not found: {name}")
        if kind == "DryRun":
            return Reply(204, b"")
        most = EVENT_BYTES if kind == "Event" else SYNC_BYTES
        if len(request.body) > most:
            return refused(413, "RequestTooLargeException", f"Request must be smaller than {most} bytes")
        with self.lock:
            self.jobs[self.document_of(request)] = kind
        if kind == "Event":
            for _ in range(self.set["deliveries"]):
                delivery = threading.Thread(target=self.deliver, args=[request.body], daemon=True)
                self.deliveries.append(delivery)
                delivery.start()
            return Reply(202, b"")
        try:
            return Reply(200, self.run(request.body))
        except Exception as error:  # noqa: BLE001  # whatever the code throws
            told = {"errorType": type(error).__name__, "errorMessage": str(error), "stackTrace": ["handler.py"]}
            return Reply(200, told, {"X-Amz-Function-Error": "Unhandled"})

    def deliver(self, body: bytes) -> None:
        self.finished.wait(self.set["event_delay"])
        for _ in range(1 + EVENT_REPEATS):
            with contextlib.suppress(Exception):
                self.run(body)
                return

    def settled(self) -> None:
        """Wait until every event is over: a run that looks once more for its PDF, and finds none, is run again."""
        for delivery in list(self.deliveries):
            delivery.join(30)

    def run(self, body: bytes) -> Any:
        """One execution. What the function returns goes through JSON, as there."""
        token = _running.set(self)
        try:
            self._throw("throws_before")
            answer = self.function(json.loads(body), Context())
            self._throw("throws_after")
            return json.loads(json.dumps(answer))
        finally:
            _running.reset(token)

    def _throw(self, switch: str) -> None:
        with self.lock:
            self.set[switch] -= 1
            if self.set[switch] >= 0:
                raise RuntimeError("the network of the function was away")

    def count(self, html: str) -> None:
        """A render, which is what costs."""
        with self.lock:
            self.billed[hashlib.sha256(html.encode()).hexdigest()] += 1


def refused(status: int, code: str, message: str) -> Reply:
    """5.9: C(A1); the header's form is that of Amazon's JSON services (INFERRED)."""
    return Reply(status, {"Type": "User", "message": message}, {"x-amzn-ErrorType": f"{code}:http://internal/"})


def forwarded(s3_url: str, request: Seen) -> Reply:
    """What the bucket answers."""
    connection = http.client.HTTPConnection(s3_url.removeprefix("http://"), timeout=30)
    try:
        kept = {name: value for name, value in request.headers.items() if name.lower() not in ("host", "connection")}
        connection.request(request.method, request.path, request.body or None, kept)
        answer = connection.getresponse()
        body = answer.read()
        drop = {"connection", "transfer-encoding", "server", "date"} | (
            set() if request.method == "HEAD" else {"content-length"}
        )
        headers = {name: value for name, value in answer.getheaders() if name.lower() not in drop}
        return Reply(answer.status, body, headers)
    finally:
        connection.close()


# --- the example's code ----------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def loaded(s3_url: str, engine: str) -> Callable[[dict[str, Any], Any], Any]:
    """The example's handler, as the runtime loads it: beside its engine, and with a role that opens the bucket."""
    drawing = plain_engine() if engine == "plain" else _module("engine", EXAMPLE / "engine.py")
    draw = drawing.render

    def counted(html: str) -> bytes:
        _running.get().count(html)
        return bytes(draw(html))

    drawing.render = counted  # type: ignore[attr-defined]  # a module's own name
    role = {
        "AWS_ENDPOINT_URL_S3": s3_url,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "invented",
        "AWS_SECRET_ACCESS_KEY": "invented",
    }
    with mock.patch.dict(sys.modules, {"engine": drawing}), mock.patch.dict(os.environ, role):
        handler: Callable[[dict[str, Any], Any], Any] = _module("lambda_handler", EXAMPLE / "handler.py").handler
        return handler


def _module(name: str, path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plain_engine() -> types.ModuleType:
    """A page of text instead of a drawn one, for tests of all but the drawing."""
    module = types.ModuleType("engine")

    class BadDocument(Exception):
        def __init__(self, code: str, words: str) -> None:
            super().__init__(words)
            self.code = code

    def render(html: str) -> bytes:
        if BAD in html:
            raise BadDocument("render_failed", "The engine gave up.")
        return httpdouble.pdf(httpdouble.shown_text(html))

    module.BadDocument = BadDocument  # type: ignore[attr-defined]  # a module's own name
    module.render = render  # type: ignore[attr-defined]  # a module's own name
    return module


# --- signatures, by Amazon's published recipe (version 4) -------------------------------------------------------------


def unsigned(request: Seen, service: str) -> str:
    """What is wrong with the request's signature, in the service's own word; empty where nothing is."""
    no_key, no_match = (
        ("UnrecognizedClientException", "InvalidSignatureException")
        if service == "lambda"
        else ("InvalidAccessKeyId", "SignatureDoesNotMatch")
    )
    given = {name.lower(): value for name, value in request.headers.items()}
    scheme, _, rest = given.get("authorization", "").partition(" ")
    parts = dict(part.strip().partition("=")[::2] for part in rest.split(",") if part)
    key_id, _, scope = parts.get("Credential", "").partition("/")
    if scheme != "AWS4-HMAC-SHA256" or key_id != KEY_ID or given.get("x-amz-security-token") != TOKEN:
        return no_key
    names = parts["SignedHeaders"].split(";")
    payload = hashlib.sha256(request.body).hexdigest()
    if "host" not in names or "x-amz-security-token" not in names:
        return no_match
    path, _, query = request.path.partition("?")
    canonical = "\n".join(
        [
            request.method,
            path if service == "s3" else quote(path, safe="/~"),
            "&".join(sorted(part if "=" in part else f"{part}=" for part in query.split("&") if part)),
            *(f"{name}:{' '.join(given[name].split())}" for name in names),
            "",
            ";".join(names),
            payload,
        ]
    )
    day, region, named, _end = scope.split("/")
    key = f"AWS4{SECRET}".encode()
    for part in (day, region, named, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{given['x-amz-date']}\n{scope}\n{digest}"
    wanted = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    is_right = (region, named) == (REGION, service) and hmac.compare_digest(wanted, parts.get("Signature", ""))
    return "" if is_right else no_match


def start(folder: Path, **switches: Any) -> Process:
    """Lambda and its bucket as a process of their own."""
    return httpdouble.start_process(__name__, folder, switches)


if __name__ == "__main__":
    httpdouble.run(LambdaDouble)
