"""How a document is named in a request to RelayPDF: exactly one source of those that it takes.

Tags beside facts: README, "Tags of vendor facts".
"""

from __future__ import annotations

import json
from typing import Any

from batches.providers.base import DocumentSource
from batches.providers.errors import InvalidInput

#: Exactly one among these and `templateId` (A2: CONFIRMED M).
_FIELDS = {"html": "html", "markdown": "markdown", "url": "url"}


def fields(source: DocumentSource) -> dict[str, Any]:
    """The document as the body names it. Raises InvalidInput."""
    if not source.text.strip():
        raise InvalidInput("The document is empty.")
    if source.kind == "template":
        return _template_fields(source.text)
    field = _FIELDS.get(source.kind)
    if field is None:
        raise InvalidInput(f"RelayPDF takes html, markdown, url or template, not {source.kind!r}.")
    return {field: source.text}


def _template_fields(text: str) -> dict[str, Any]:
    """A template that the account keeps, with its data (A2: `templateId`, `templateVersion`, `templateData`, `strict`,
    CONFIRMED N). Always a version, since "latest" could print two layouts for one document, and always strict: a
    document with a gap is no document."""
    try:
        stored = json.loads(text)
        template, version, data = stored["template"], stored["version"], stored["data"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidInput("The document names no template with its version and its data.") from None
    if not isinstance(template, str) or not template or type(version) is not int or version < 1:
        raise InvalidInput("The document names no template with its version.")
    if not isinstance(data, dict):
        raise InvalidInput("The data of the template is no JSON object.")
    return {"templateId": template, "templateVersion": version, "templateData": data, "strict": True}
