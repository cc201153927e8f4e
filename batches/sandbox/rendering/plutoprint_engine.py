"""The PlutoPrint engine: HTML text in, PDF bytes out, nothing fetched.

Not thread-safe and able to crash on hostile documents (measured), so it runs in a child that renders one
document and exits; see `zygote`.
"""

from __future__ import annotations

import io

import plutoprint

from batches.sandbox.rendering import options
from batches.sandbox.rendering.options import PageSetup

NAME = f"plutoprint {plutoprint.__version__} (plutobook {plutoprint.plutobook_version_string()})"

# One fixed instant, so that the same document gives the same bytes.
_METADATA_DATE = "2026-01-01T00:00:00Z"

_NO_BACKGROUND = "*, ::before, ::after { background-color: transparent !important; background-image: none !important; }"


class TooManyPages(Exception):
    """The document came out longer than it may."""


class NoSuchPages(Exception):
    """`pageRanges` names no page of the document."""


class _NothingFetched(plutoprint.ResourceFetcher):
    """Refuses every reference. `data:` URLs never get here: the engine decodes them itself."""

    def fetch_url(self, url: str) -> plutoprint.ResourceData:
        raise ValueError("the sandbox loads nothing from files or the network")


def render(html: str, setup: PageSetup, *, max_pages: int) -> tuple[bytes, int]:
    """The PDF and its number of pages. Raises TooManyPages, NoSuchPages or plutoprint.Error."""
    scale = setup.scale
    book = plutoprint.Book(
        plutoprint.PageSize(setup.width / scale, setup.height / scale),
        plutoprint.PageMargins(
            setup.margin_top / scale,
            setup.margin_right / scale,
            setup.margin_bottom / scale,
            setup.margin_left / scale,
        ),
        plutoprint.MEDIA_TYPE_PRINT,
    )
    book.custom_resource_fetcher = _NothingFetched()
    book.load_html(html, user_style="" if setup.print_background else _NO_BACKGROUND)
    for entry in (plutoprint.PDF_METADATA_CREATION_DATE, plutoprint.PDF_METADATA_MODIFICATION_DATE):
        book.set_metadata(entry, _METADATA_DATE)
    count = book.get_page_count()
    if count > max_pages:
        raise TooManyPages(f"the document has {count} pages; the sandbox stops at {max_pages}")
    pages = options.chosen_pages(setup.ranges, count)
    if not pages:
        raise NoSuchPages(f"options.pageRanges names no page of the {count} there are")
    out = io.BytesIO()
    if scale == 1 and len(pages) == count:
        book.write_to_pdf_stream(out)
    else:
        _write_pages(book, out, pages, scale)
    return out.getvalue(), len(pages)


def _write_pages(book: plutoprint.Book, out: io.BytesIO, pages: list[int], scale: float) -> None:
    """Draw some pages, scaled, on a canvas: the engine's own writer knows neither gaps nor scale."""
    canvas = plutoprint.PDFCanvas.create_for_stream(out, plutoprint.PAGE_SIZE_A4)
    for entry in (plutoprint.PDF_METADATA_CREATION_DATE, plutoprint.PDF_METADATA_MODIFICATION_DATE):
        canvas.set_metadata(entry, _METADATA_DATE)
    for index in pages:
        size = book.get_page_size_at(index)
        canvas.set_size(plutoprint.PageSize(size.width * scale, size.height * scale))
        canvas.save_state()
        # Pages are drawn in CSS pixels, the canvas counts in points.
        canvas.scale(scale * plutoprint.UNITS_PX, scale * plutoprint.UNITS_PX)
        book.render_page(canvas, index)
        canvas.restore_state()
        canvas.show_page()
    canvas.finish()
