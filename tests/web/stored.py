"""Puts real bytes under the rows that `tests/factories.py` makes."""

from __future__ import annotations

import hashlib
import io

from django.conf import settings

from batches import storage
from batches.models import Job


def store_pdf(job: Job, content: bytes) -> None:
    """Put `content` where the artifact of a saved job says that it lies, and make the row fit."""
    artifact = job.version.artifact
    storage.open_store(settings.STORAGE_URL).put(artifact.storage_key, io.BytesIO(content))
    artifact.sha256, artifact.byte_count = hashlib.sha256(content).hexdigest(), len(content)
    artifact.save()
