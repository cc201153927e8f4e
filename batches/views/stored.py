"""Stored files on their way to a person. A store that does not answer is never told as a file that is gone."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import BinaryIO

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from batches import storage

log = logging.getLogger(__name__)

COPY_BYTES = 256 * 1024


def opened(key: str, *, byte_count: int) -> BinaryIO:
    """The object for reading. A missing one is a 404, and so is one that is not as long as what was stored; any other
    `storage.StoreError` passes."""
    try:
        file = storage.open_store(settings.STORAGE_URL).open(key)
    except storage.ObjectMissing as error:
        log.error("a stored file is missing: %s", key)
        raise Http404("The stored file is missing from storage.") from error
    found = file.seek(0, os.SEEK_END)
    file.seek(0)
    if found != byte_count:
        file.close()
        log.error("a stored file is damaged: %s has %d bytes instead of %d", key, found, byte_count)
        raise Http404("The stored file is damaged.")
    return file


def chunks(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while chunk := file.read(COPY_BYTES):
            yield chunk


def store_away(request: HttpRequest) -> HttpResponse:
    """The page for a store that does not answer; called while its error is being handled."""
    log.warning("the store does not answer", exc_info=True)
    return render(request, "503.html", status=503)


def deleted(request: HttpRequest, words: str) -> HttpResponse:
    """The page for content that retention deleted: it was here, and comes back by no repeat."""
    return render(request, "410.html", {"words": words}, status=410)
