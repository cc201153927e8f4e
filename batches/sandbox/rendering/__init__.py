"""Turning one document into one PDF, behind fences.

Owns the engine, the fonts, the process that renders and the check that the PDF holds the document's text.
Knows nothing of HTTP, jobs or money: `RendererPool.render` takes `Work` and gives `Rendered`, or raises
`RenderRefused` with a sentence for the person who sent the document.
"""

from __future__ import annotations

from batches.sandbox.rendering.pool import ENGINE, RendererPool
from batches.sandbox.rendering.work import Rendered, RendererUnavailable, RenderLimits, RenderRefused, Work

__all__ = ["ENGINE", "RenderLimits", "RenderRefused", "Rendered", "RendererPool", "RendererUnavailable", "Work"]
