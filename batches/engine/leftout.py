"""Rows that were left out when the good ones were taken: kept as they were given, so that they can be corrected.

They are no items of the batch. What was wrong with each stands in the batch's report; the list that a person gets, with
both, is made in `results.py`.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

from batches.manifests import Manifest, Plan
from batches.models import Batch
from batches.storage import ArtifactStore, manifest_key

_IN_MEMORY_BYTES = 4_000_000


def keep(
    manifest: Manifest, plan: Plan, store: ArtifactStore, *, workspace_slug: str, progress: Callable[[int], None]
) -> str | None:
    """Put them into the store, under a key that their content names; None where there are none. Store errors pass.

    Documents that stood in such a row are replaced by their length, as in every row that is kept as evidence.
    """
    left_out = manifest.left_out(plan)
    if not left_out:
        return None
    digest = hashlib.sha256()
    with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as file:
        for each in left_out:
            # Escaped: half of a character may be what is wrong with it.
            line = json.dumps([each.position, dict(manifest.original_of(each))]).encode() + b"\n"
            digest.update(line)
            file.write(line)
            progress(each.position)
        file.seek(0)
        key = manifest_key(workspace_slug, digest.hexdigest())
        store.put(key, cast(BinaryIO, file))
    return key


def rows(batch: Batch, store: ArtifactStore) -> Iterator[tuple[int, dict[str, Any]]]:
    """Position and cells of each, in the order of the file; empty cells where a row could not be read at all. Store
    errors pass."""
    if batch.left_out_key is None:
        return
    with store.open(batch.left_out_key) as stream:
        for line in stream:
            position, cells = json.loads(line)
            yield int(position), cells
