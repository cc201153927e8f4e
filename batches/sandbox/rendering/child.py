"""The life of one rendering child: read the work, raise the fences, render, check the text, answer.

Runs in a process of its own that ends afterwards. Everything a document can do wrong becomes a sentence; what
kills the process is noticed by the other end of the socket.
"""

from __future__ import annotations

import socket
import time

import plutoprint

from batches.sandbox.rendering import coverage, document, fences, fonts, options, plutoprint_engine, text_check
from batches.sandbox.rendering.coverage import Coverage
from batches.sandbox.rendering.work import RenderLimits, receive_message, send_message

MAX_SOURCE_BYTES = 64 << 20

_WARM_UP = "<p>Aa1 \u05d0 \u0628 \u0915 \u0e01 \u4e2d \ud55c</p>"


def warm_up() -> Coverage:
    """Load the engine and the fonts once, so that each forked child starts with them in memory.

    Gives what the fonts can show. What is not loaded here can't be loaded later: the zygote gives up its right
    to read files.
    """
    setup = options.page_setup({})
    pdf, _ = plutoprint_engine.render(_WARM_UP, setup, max_pages=1)
    covered = coverage.of_folders(fonts.font_directories())
    text_check.require_text(document.from_markdown("# Aa"), pdf, covered)
    return covered


def serve_one(channel: socket.socket, covered: Coverage, *, started: float) -> None:
    """Answer exactly one piece of work on `channel`."""
    head, source = receive_message(channel, max_payload=MAX_SOURCE_BYTES)
    limits = RenderLimits(**head["limits"])
    fences.limit_child(limits)
    try:
        pdf, facts = _rendered(head, source.decode("utf-8", "replace"), limits, covered)
    except (
        options.BadOption,
        plutoprint_engine.TooManyPages,
        plutoprint_engine.NoSuchPages,
        text_check.TextMissing,
    ) as error:
        send_message(channel, {"refused": str(error)}, b"")
    except (plutoprint.Error, ValueError, RecursionError) as error:
        send_message(channel, {"refused": f"The engine could not render the document ({error})."}, b"")
    except MemoryError:
        send_message(channel, {"refused": "The document needs more memory than the renderer may use."}, b"")
    else:
        facts["seconds"] = time.monotonic() - started
        send_message(channel, facts, pdf)


def _rendered(head: dict, source: str, limits: RenderLimits, covered: Coverage) -> tuple[bytes, dict]:
    setup = options.page_setup(head["options"])
    html = document.from_markdown(source) if head["kind"] == "markdown" else source
    html = document.prepared(html)
    pdf, pages = plutoprint_engine.render(html, setup, max_pages=limits.pages)
    if setup.ranges:
        # Chosen pages need not hold the whole text, so the check looks at all of them.
        whole, _ = plutoprint_engine.render(html, options.whole(setup), max_pages=limits.pages)
        text_check.require_text(html, whole, covered)
    else:
        text_check.require_text(html, pdf, covered)
    return pdf, {"pages": pages, "engine": plutoprint_engine.NAME}
