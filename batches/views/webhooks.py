"""`POST /webhooks/<account>`: one provider's notices. Proven by their signature, so neither session nor CSRF token."""

from __future__ import annotations

import logging
from typing import Any

from django.db import Error
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from batches.engine import inbox

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
    declared = request.headers.get("Content-Length", "").strip()
    source: Any = request
    if not declared and request.headers.get("Transfer-Encoding"):
        if not request.META.get("wsgi.input_terminated"):
            log.warning("a webhook came in chunks, which this server does not hand on; put gunicorn in its place")
            raise inbox.Refused(411, "Send it with a Content-Length.")
        source = request.META["wsgi.input"]
    elif declared.isdecimal() and int(declared[:20]) > inbox.BODY_BYTES_MOST:
        raise inbox.Refused(413, "The body is too large.")
    try:
        body: bytes = source.read(inbox.BODY_BYTES_MOST + 1)
    except Exception as error:  # each server has its own errors for a body that breaks off, hangs or is no chunk
        log.info("the body of a webhook could not be read", exc_info=error)
        raise inbox.Refused(400, "The body did not arrive whole.") from None
    if declared.isdecimal() and len(body) < int(declared[:20]):
        raise inbox.Refused(400, "The body did not arrive whole.")
    return body
