"""The first look at a draft's upload: what its head shows, and what a person has to answer before it is checked."""

from __future__ import annotations

from typing import Any, BinaryIO

from batches.models import Draft


def look(draft: Draft, stream: BinaryIO) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """What the head shows, as JSON values, and the refusal's report where the file cannot be used at all."""
    return {"filename": draft.filename, "is_empty": not stream.read(1), "questions": []}, None
