"""`POST /webhooks/<account>`: one provider's notices. Proven by their signature, so neither session nor CSRF token."""

from __future__ import annotations

import logging

from django.db import DatabaseError
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
    """204 once it is stored; 401 not proven, 400 not readable, 413 too large, 404 no such account, 503 try again."""
    try:
        body = _body(request)
        inbox.receive(inbox.account_of(account), request.headers, body, now=timezone.now())
    except inbox.Refused as error:
        log.warning("a webhook for %s was refused (%d): %s", account, error.status, error.words)
        return HttpResponse(f"{error.words}\n", status=error.status, content_type="text/plain; charset=utf-8")
    except DatabaseError as error:
        log.warning("a webhook for %s could not be stored", account, exc_info=error)
        answer = HttpResponse("It could not be stored; send it again.\n", status=503, content_type="text/plain")
        answer["Retry-After"] = "10"
        return answer
    return HttpResponse(status=204)


def _body(request: HttpRequest) -> bytes:
    """The raw bytes, never more of them than are taken."""
    declared = request.headers.get("Content-Length", "")
    if declared.isdecimal() and int(declared) > inbox.BODY_BYTES_MOST:
        raise inbox.Refused(413, "The body is too large.")
    body: bytes = request.read(inbox.BODY_BYTES_MOST + 1)
    return body
