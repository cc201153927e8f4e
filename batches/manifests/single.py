"""One document by itself, checked by the very rules of a manifest's row: what a page or a command is given."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field

from batches.manifests import contents
from batches.manifests.limits import Limits
from batches.manifests.manifest import ManifestRow
from batches.manifests.problems import ManifestRefused, Unfit
from batches.manifests.reading import read
from batches.manifests.source import from_upload

_COLUMNS = {"html": "html_content", "markdown": "markdown", "url": "url"}


@dataclass(frozen=True)
class Single:
    """The row with its text, or what is wrong with it in whole sentences."""

    row: ManifestRow | None
    text: str = field(default="", repr=False)
    errors: tuple[str, ...] = ()


def read_single(
    *, business_id: str, kind: str, content: str | bytes, filename: str, options: str, limits: Limits | None = None
) -> Single:
    """`content` is text, or the bytes of an HTML file in the encoding that it declares; `options` JSON, "" for none."""
    limits = limits or Limits()
    try:
        text = contents.checked_file(content, limits)[1] if isinstance(content, bytes) else content
    except Unfit as unfit:
        return Single(None, "", (f"The file {unfit.message} {unfit.fix}",))
    try:
        given = json.loads(options) if options.strip() else {}
    except (ValueError, RecursionError) as error:
        return Single(None, "", (f'The options are no JSON ({error}). Write them as {{"format": "A4"}}.',))
    row = {"id": business_id, _COLUMNS[kind]: text, "options": given} | ({"filename": filename} if filename else {})
    try:
        manifest = read(from_upload(io.BytesIO(json.dumps([row]).encode()), "document.json"), limits)
    except ManifestRefused as refused:
        return Single(None, "", (f"{refused.message} {refused.fix}",))
    with manifest:
        errors = tuple(f"{problem.message} {problem.fix}" for problem in manifest.errors)
        if errors or not manifest.rows:
            return Single(None, "", errors)
        return Single(manifest.rows[0], manifest.rows[0].text())
