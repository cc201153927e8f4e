"""`POST /webhooks/<account>`: one provider's notices. Proven by their signature, so neither session nor CSRF token."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import Error
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST

from batches.engine import callbacks, inbox
from batches.engine.keeping import COPY_BYTES
from batches.storage import StoreError, open_store

log = logging.getLogger(__name__)


@csrf_exempt
@never_cache
@require_POST
def webhook(request: HttpRequest, account: str) -> HttpResponse:
    """204 once it is stored; 401 not proven, 400 not readable, 413 too large, 404 no such account, 503 try again.

    411 where the server in front of us hands on no body of unknown length. Never a 500: whatever goes wrong here, the
    provider is to try again, and polling finds its jobs meanwhile.
    """
    now = timezone.now()
    try:
        body = _body(request)
        inbox.receive(inbox.account_of(account), request.headers, body, now=now)
    except inbox.Refused as error:
        inbox.note_refused(account, error, now=now)
        log.warning("a webhook for %s was refused (%d): %s", account, error.status, error.words)
        return _answer(error.status, error.words)
    except Error as error:
        log.warning("a webhook for %s could not be stored", account, exc_info=error)
        return _answer(503, "It could not be stored; send it again.")
    except Exception:  # whatever it is: a 500 would tell the provider nothing, and show a trace to whoever asks
        log.exception("a webhook for %s met a fault of ours", account)
        return _answer(503, "It could not be taken; send it again.")
    return HttpResponse(status=204)


@csrf_exempt
@never_cache
@require_http_methods(["POST", "PUT", "PATCH"])
def callback(request: HttpRequest, account: str, token: str, key: str) -> HttpResponse:
    """As `webhook`, at the address that one submission has; the body may be the PDF itself, which is streamed."""
    now = timezone.now()
    try:
        store = open_store(settings.STORAGE_URL)
        row = callbacks.account_of(account, token, key)
        if callbacks.brings_file(row, request.headers, now=now):
            with store.staging() as path:
                _pour(request, path, most=callbacks.FILE_BYTES_MOST)
                callbacks.take_file(row, key, path, request.headers, store, now=now)
        else:
            callbacks.take_notice(row, key, _body(request), request.headers, store, now=now)
    except inbox.Refused as error:
        inbox.note_refused(account, error, now=now)
        log.warning("a callback for %s was refused (%d): %s", account, error.status, error.words)
        return _answer(error.status, error.words)
    except (Error, StoreError) as error:
        log.warning("a callback for %s could not be stored", account, exc_info=error)
        return _answer(503, "It could not be stored; send it again.")
    except Exception:  # as in `webhook`
        log.exception("a callback for %s met a fault of ours", account)
        return _answer(503, "It could not be taken; send it again.")
    return HttpResponse(status=204)


def _pour(request: HttpRequest, path: Path, *, most: int) -> None:
    """Write the body to `path`, never more of it than is taken. Raises `inbox.Refused`."""
    source, declared = _source(request)
    if declared is not None and declared > most:
        raise inbox.Refused(413, "The body is too large.")
    count = 0
    with path.open("wb") as file:
        while chunk := _read(source, COPY_BYTES):
            count += len(chunk)
            if count > most:
                raise inbox.Refused(413, "The body is too large.")
            file.write(chunk)
    if declared is not None and count < declared:
        raise inbox.Refused(400, "The body did not arrive whole.")


def _answer(status: int, words: str) -> HttpResponse:
    answer = HttpResponse(f"{words}\n", status=status, content_type="text/plain; charset=utf-8")
    if status == 503:
        answer["Retry-After"] = "10"
    return answer


def _body(request: HttpRequest) -> bytes:
    """The raw bytes, never more of them than are taken. Raises `inbox.Refused`.

    Django reads no further than Content-Length says, and without one nothing: a body in chunks is read from the server
    itself, where that says that it knows the end (gunicorn does; the interface is named in docs/architecture.md).
    """
    source, declared = _source(request)
    if declared is not None and declared > inbox.BODY_BYTES_MOST:
        raise inbox.Refused(413, "The body is too large.")
    body = _read(source, inbox.BODY_BYTES_MOST + 1)
    if declared is not None and len(body) < declared:
        raise inbox.Refused(400, "The body did not arrive whole.")
    return body


def _source(request: HttpRequest) -> tuple[Any, int | None]:
    """Where the body is read from, and how long it is said to be. Raises `inbox.Refused`."""
    declared = request.headers.get("Content-Length", "").strip()
    if not declared and request.headers.get("Transfer-Encoding"):
        if not request.META.get("wsgi.input_terminated"):
            log.warning("a webhook came in chunks, which this server does not hand on; put gunicorn in its place")
            raise inbox.Refused(411, "Send it with a Content-Length.")
        return request.META["wsgi.input"], None
    return request, int(declared[:20]) if declared.isdecimal() else None


def _read(source: Any, most: int) -> bytes:
    try:
        body: bytes = source.read(most)
    except Exception as error:  # each server has its own errors for a body that breaks off, hangs or is no chunk
        log.info("the body of a webhook could not be read", exc_info=error)
        raise inbox.Refused(400, "The body did not arrive whole.") from None
    return body
