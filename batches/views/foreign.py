"""Answers that hold somebody else's document, for a frame: they run nothing, send nothing and have no origin."""

from __future__ import annotations

from django.http.response import HttpResponseBase

#: HTML, with what it brings along: styles, pictures and fonts that stand in it.
HTML_POLICY = (
    "sandbox; default-src 'none'; img-src data:; font-src data:; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'"
)
#: A PDF, even if a browser took it for a page.
PDF_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"


def shut_in(response: HttpResponseBase, policy: str) -> None:
    """Under its policy, as what it says that it is, and kept by nobody in between."""
    response["Content-Security-Policy"] = policy
    response["X-Content-Type-Options"] = "nosniff"
    response["Cache-Control"] = "private, no-store"
