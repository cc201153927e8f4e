"""A stored file as an answer that can be resumed: `Range` and `If-Range` (RFC 9110), on every store alike.

The bytes go through us and not by an address of the bucket: rights are asked at each request, each download is written
down, and a bucket that only we can reach is enough. The store reads no byte that nobody asked for.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from batches import filenames, storage

log = logging.getLogger(__name__)

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


@dataclass(frozen=True)
class StoredFile:
    """What is sent: where it lies, what was verified of it, and what it is called."""

    key: str
    byte_count: int
    sha256: str
    content_type: str
    name: str
    is_inline: bool = False

    @property
    def etag(self) -> str:
        return f'"{self.sha256}"'


@dataclass(frozen=True)
class Asked:
    """The bytes that are wanted; `is_beyond` where there are none such."""

    start: int
    length: int
    is_part: bool = False
    is_beyond: bool = False

    @property
    def is_beginning(self) -> bool:
        """Of a download, and not its going on: that is written down once."""
        return self.start == 0 and not self.is_beyond


def asked(request: HttpRequest, file: StoredFile) -> Asked:
    """One range of bytes, where the file is still the one that the reader began with; else all of it."""
    whole = Asked(0, file.byte_count)
    condition = request.headers.get("If-Range", "")
    found = _RANGE.fullmatch(request.headers.get("Range", "").strip().lower())
    if request.method not in ("GET", "HEAD") or found is None or (condition and condition != file.etag):
        return whole
    first, last = found.groups()
    if not first and not last:
        return whole
    if not first:  # so many of the end
        count = min(int(last), file.byte_count)
        return Asked(file.byte_count - count, count, is_part=True, is_beyond=count == 0)
    start = int(first)
    end = min(int(last), file.byte_count - 1) if last else file.byte_count - 1
    if last and int(last) < start:
        return whole
    return Asked(start, end - start + 1, is_part=True, is_beyond=start >= file.byte_count)


def answer(request: HttpRequest, file: StoredFile, wanted: Asked) -> HttpResponseBase:
    """The bytes, or for HEAD what they would be told with.

    A missing object is a 404, and so is one that is not as long as what was stored; any other `storage.StoreError`
    passes.
    """
    store = storage.open_store(settings.STORAGE_URL)
    response: HttpResponseBase
    if wanted.is_beyond:
        response = HttpResponse(status=416)
        response["Content-Range"] = f"bytes */{file.byte_count}"
        return response
    found = store.size(file.key)
    if found != file.byte_count:
        log.error("a stored file is missing or damaged: %s has %s bytes, not %d", file.key, found, file.byte_count)
        raise Http404("The stored file is missing from storage or damaged.")
    if request.method == "HEAD":
        response = HttpResponse(content_type=file.content_type)
    else:
        response = StreamingHttpResponse(_opened(store, file, wanted), content_type=file.content_type)
    response.status_code = 206 if wanted.is_part else 200
    if wanted.is_part:
        last = wanted.start + wanted.length - 1
        response["Content-Range"] = f"bytes {wanted.start}-{last}/{file.byte_count}"
    response["Content-Length"] = str(wanted.length)
    response["Accept-Ranges"] = "bytes"
    response["ETag"] = file.etag
    response["Content-Disposition"] = filenames.content_disposition(file.name, inline=file.is_inline)
    response["X-Content-Type-Options"] = "nosniff"
    response["Cache-Control"] = "private, no-store"
    return response


def _opened(store: storage.ArtifactStore, file: StoredFile, wanted: Asked) -> Iterator[bytes]:
    try:
        return store.open_range(file.key, start=wanted.start, length=wanted.length)
    except storage.ObjectMissing as error:
        raise Http404("The stored file is missing from storage.") from error
