"""One document by itself, checked by the very rules of a manifest's row: what a page or a command is given."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from typing import Any

from batches.manifests import contents
from batches.manifests.choices import NO_CHOICES, Choices
from batches.manifests.limits import Limits
from batches.manifests.manifest import ManifestRow
from batches.manifests.problems import ManifestRefused, Unfit
from batches.manifests.reading import read
from batches.manifests.source import from_upload

_COLUMNS = {"html": "html_content", "markdown": "markdown", "url": "url"}
_AT_PROVIDER = Choices(are_provider_templates=True)


@dataclass(frozen=True)
class Single:
    """The row with its text, or what is wrong with it in whole sentences."""

    row: ManifestRow | None
    text: str = field(default="", repr=False)
    errors: tuple[str, ...] = ()


def read_single(
    *, business_id: str, kind: str, content: str | bytes, filename: str, options: str, limits: Limits | None = None
) -> Single:
    """`content` is text, or the bytes of an HTML file in the encoding that it declares; `options` JSON, "" for none.

    For a template that the provider keeps, the text is JSON of `template`, `version` and `data`.
    """
    limits = limits or Limits()
    try:
        text = contents.checked_file(content, limits)[1] if isinstance(content, bytes) else content
    except Unfit as unfit:
        return Single(None, "", (f"The file {unfit.message} {unfit.fix}",))
    try:
        given = json.loads(options) if options.strip() else {}
    except (ValueError, RecursionError) as error:
        return Single(None, "", (f'The options are no JSON ({error}). Write them as {{"format": "A4"}}.',))
    source = _template(text) if kind == "template" else {_COLUMNS[kind]: text}
    if source is None:
        return Single(None, "", (_NO_TEMPLATE,))
    row = {"id": business_id, **source, "options": given} | ({"filename": filename} if filename else {})
    upload = from_upload(io.BytesIO(json.dumps([row]).encode()), "document.json")
    try:
        manifest = read(upload, limits, choices=_AT_PROVIDER if kind == "template" else NO_CHOICES)
    except ManifestRefused as refused:
        return Single(None, "", (f"{refused.message} {refused.fix}",))
    with manifest:
        errors = tuple(f"{problem.message} {problem.fix}" for problem in manifest.errors)
        if errors or not manifest.rows:
            return Single(None, "", errors)
        return Single(manifest.rows[0], manifest.rows[0].text())


def _template(text: str) -> dict[str, Any] | None:
    try:
        stored = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(stored, dict):
        return None
    return {"template": stored.get("template"), "template_version": stored.get("version"), "data": stored.get("data")}


_NO_TEMPLATE = 'The content is no JSON object. Write it as {"template": "invoice", "version": 3, "data": {}}.'
