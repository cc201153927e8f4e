"""The first look at a draft's upload: what its head shows, and what a person has to answer before it is checked."""

from __future__ import annotations

from typing import Any, BinaryIO

from batches import manifests
from batches.engine import draftfiles, templates
from batches.manifests import ManifestRefused
from batches.manifests.choices import Choices
from batches.models import Draft


def look(draft: Draft, stream: BinaryIO) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """What the head shows, as JSON values; where the file cannot be used at all, nothing and the refusal's report."""
    source = draftfiles.source(draft, stream)
    try:
        seen = manifests.look(source, choices=Choices.from_dict(draft.choices), templates=templates.of(draft.workspace))
    except ManifestRefused as refused:
        return {}, refusal_report(refused)
    return seen.as_dict(), None


def refusal_report(refused: ManifestRefused) -> dict[str, Any]:
    """Of a draft whose file cannot be used at all: the answer of a check, with nothing to be started."""
    return refused.report() | {"ok": False, "left_out": 0, "notices": [], "renders": 0}
