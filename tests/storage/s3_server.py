"""An S3 service on loopback (moto), and a server that answers every S3 request with one status."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from unittest import mock

import boto3
from moto.server import ThreadedMotoServer

BUCKET = "relaypdf-artifacts"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "invented-id",
    "AWS_SECRET_ACCESS_KEY": "invented-secret",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def s3_service() -> Iterator[str]:
    """The address of a running service without buckets; this process's environment holds what opens it meanwhile."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with mock.patch.dict(os.environ, CREDENTIALS):
        yield f"http://{host}:{port}"
    server.stop()


def s3_client(endpoint_url: str) -> Any:
    return boto3.client("s3", endpoint_url=endpoint_url, region_name="eu-central-1")


def make_bucket(endpoint_url: str, name: str = BUCKET) -> None:
    s3_client(endpoint_url).create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})


@contextmanager
def answering_always(status: int, code: str) -> Iterator[str]:
    """The address of a server that refuses every request with `status` and S3's error `code`."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = f"<Error><Code>{code}</Code><Message>No.</Message></Error>".encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = answer

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(10)
