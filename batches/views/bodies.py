"""How large a request may be: asked by every view that takes a file before anything of it is read, its token too."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

#: Room for the other fields of a form beside the file.
FORM_BYTES = 64 * 1024


def too_large(request: HttpRequest, most: int, words: str, *, room: int = FORM_BYTES) -> HttpResponse | None:
    """The refusal, in `words`, of a request that says no length or a greater one than `most` bytes and the form."""
    length = request.META.get("CONTENT_LENGTH") or "0"
    if length.isdigit() and int(length) <= most + room:
        return None
    return render(request, "413.html", {"words": words}, status=413)
