"""How gunicorn serves the pages and the API: `gunicorn -c python:relaypdf_site.gunicorn_conf relaypdf_site.wsgi`.

Threads, since a request waits for the database or streams a file far more than it computes.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from batches import processes

worker_class = "gthread"
workers = 2
threads = 8
#: A worker that does not beat for this long is replaced; gthread beats while requests run, so uploads may be long.
timeout = 60
graceful_timeout = 15
keepalive = 5
errorlog = "-"
#: Requests are logged by the proxy in front; here the pages would only fill the log with their own refreshing.
accesslog = None
control_socket_disable = True
if Path("/dev/shm").is_dir():  # noqa: S108 - gunicorn's own heartbeat files; on a slow disk they look like dead workers
    worker_tmp_dir = "/dev/shm"  # noqa: S108 - as above


#: A client that sends or takes nothing for this long gives its thread back. gunicorn's threads know no such limit.
SILENT_SECONDS = 30
#: So long may the whole body of a webhook take, which comes from strangers and is small: byte by byte, silence ends it
#: never.
WEBHOOK_SECONDS = 30


def pre_request(worker: Any, request: Any) -> None:
    """A body that never comes must not hold a thread for ever. A proxy that buffers is still the better gate."""
    unreader = request.unreader
    sock = getattr(unreader, "sock", None)
    if sock is None:
        return
    sock.settimeout(SILENT_SECONDS)
    vars(unreader).pop("chunk", None)  # of the request before on this connection
    if request.path.startswith("/webhooks/"):
        unreader.chunk = _bounded(unreader.chunk, sock, ends_at=time.monotonic() + WEBHOOK_SECONDS)


def _bounded(read: Callable[..., bytes], sock: Any, *, ends_at: float) -> Callable[..., bytes]:
    def chunk(*given: Any) -> bytes:
        left = ends_at - time.monotonic()
        if left <= 0:
            raise TimeoutError("the body took too long")
        sock.settimeout(min(SILENT_SECONDS, left))
        return read(*given)

    return chunk


def post_worker_init(worker: Any) -> None:
    """Once the application is loaded: what never becomes garbage is looked through no more."""
    freeze()


def freeze() -> None:
    """Load what the first request would, and take it all out of the garbage collector's rounds.

    A round over all that Django has loaded takes as long as a page; without this one request in twenty paid for it
    (`benchmarks/results/pages.md`).
    """
    from django.urls import reverse  # only possible once the application is loaded

    reverse("batches:home")
    gc.collect()
    gc.freeze()


def post_fork(server: Any, worker: Any) -> None:
    """A worker that outlives its master would keep the port."""
    processes.die_with_parent(parent=worker.ppid)
