"""What every page shares when something outside it goes wrong: a calm answer in words instead of a bare 500."""

from __future__ import annotations

import codecs
import contextlib
import ipaddress
import logging
from collections.abc import Callable

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

log = logging.getLogger(__name__)

FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
RETRY_AFTER_SECONDS = "10"


class ForwardedAddress:
    """Behind a proxy every request comes from the proxy: the address of who asks is the last that its header names, the
    one that it wrote itself. Those before it are the caller's to invent."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        named = request.META.get("HTTP_X_FORWARDED_FOR", "").rpartition(",")[2].strip()
        with contextlib.suppress(ValueError):
            request.META["REMOTE_ADDR"] = str(ipaddress.ip_address(named))
        return self.get_response(request)


class CalmAnswers:
    """A database that is away or busy is 503 and "try again"; a form in another charset than our pages' is 400, and
    one whose fields are too long is 413.

    Django reads a form in whatever charset its sender names, and meets the failure where no handler stands any more.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.content_type in FORMS and not _is_utf8((request.content_params or {}).get("charset", "utf-8")):
            return render(request, "400.html", status=400)
        if request.content_type == FORMS[0] and _length(request) > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            return _too_long(request)  # Django would answer a bare 400 before any view is asked
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if isinstance(error, RequestDataTooBig):
            return _too_long(request)
        if not isinstance(error, OperationalError | InterfaceError):
            return None
        log.warning("the database did not answer %s %s", request.method, request.path, exc_info=error)
        answer = render(request, "503_busy.html", status=503)
        answer["Retry-After"] = RETRY_AFTER_SECONDS
        return answer


def _too_long(request: HttpRequest) -> HttpResponse:
    return render(request, "413_form.html", {"most": settings.DATA_UPLOAD_MAX_MEMORY_SIZE}, status=413)


def _length(request: HttpRequest) -> int:
    length = request.META.get("CONTENT_LENGTH") or ""
    return int(length) if length.isascii() and length.isdigit() and len(length) < 18 else 0


def _is_utf8(charset: str) -> bool:
    try:
        return codecs.lookup(charset).name in ("utf-8", "ascii")
    except LookupError:
        return False
