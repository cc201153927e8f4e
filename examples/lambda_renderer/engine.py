"""The engine of the example: PlutoPrint, which draws HTML and CSS without a browser and loads nothing."""

from __future__ import annotations

import io

import plutoprint


class BadDocument(Exception):
    """The document is at fault: the same HTML would fail again. `code` is for tables, the text for people."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code = code


class _NothingFetched(plutoprint.ResourceFetcher):
    """Refuses every reference, so that no document reaches what the function can reach. `data:` URLs need none."""

    def fetch_url(self, url: str) -> plutoprint.ResourceData:
        raise ValueError("the renderer loads nothing from files or the network")


def render(html: str) -> bytes:
    """The PDF of a page. Raises `BadDocument` where another try could not help; anything else is worth one."""
    book = plutoprint.Book(plutoprint.PAGE_SIZE_A4, plutoprint.PAGE_MARGINS_NORMAL, plutoprint.MEDIA_TYPE_PRINT)
    book.custom_resource_fetcher = _NothingFetched()
    try:
        book.load_html(html)
        out = io.BytesIO()
        book.write_to_pdf_stream(out)
    except plutoprint.Error as error:
        raise BadDocument("render_failed", f"The engine gave up: {error}") from error
    return out.getvalue()
