"""The file of a draft: what it comes to, how it is read, and deleting it once nothing needs it any more.

Reads nothing of its content and moves no draft: what state one is in is `drafts.py`.
"""

from __future__ import annotations

import hashlib
import logging
from datetime import datetime
from typing import Any, BinaryIO, cast

from batches import manifests
from batches.models import UPLOAD_IS_UNNEEDED, Draft
from batches.storage import ArtifactStore, StoreError

log = logging.getLogger(__name__)

FORGOTTEN_AT_ONCE = 100


def digest(stream: BinaryIO) -> tuple[str, int]:
    """SHA-256 and size; it stands at its beginning then."""
    stream.seek(0)
    sha256 = hashlib.file_digest(cast(Any, stream), "sha256").hexdigest()
    size = stream.seek(0, 2)
    stream.seek(0)
    return sha256, size


def source(draft: Draft, stream: BinaryIO) -> manifests.ManifestSource:
    """The upload as `manifests` reads it."""
    return manifests.from_upload(stream, draft.filename)


def forget(draft: Draft, store: ArtifactStore, *, now: datetime) -> bool:
    """Delete the draft's own copy of the file; a batch that came of it keeps the manifest under a key of its own.

    False where the store cannot: the sweep tries again.
    """
    try:
        store.delete(draft.upload_key)
    except StoreError:
        log.warning("the upload of draft %s stays in the store for now", draft.public_id, exc_info=True)
        return False
    Draft.objects.filter(pk=draft.pk).update(upload_deleted_at=now)
    return True


def forget_left(store: ArtifactStore, *, now: datetime) -> None:
    """Delete those of drafts that are over, where a death or the store kept somebody from it."""
    left = Draft.objects.filter(UPLOAD_IS_UNNEEDED, upload_deleted_at=None).order_by("pk")
    for draft in list(left.only("public_id", "upload_key")[:FORGOTTEN_AT_ONCE]):
        if not forget(draft, store, now=now):
            break  # the store takes no deletes just now
