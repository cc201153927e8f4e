"""The artifact store: where manifests, large inputs and finished PDFs lie. Imports nothing of `batches` but `conf`."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from django.conf import settings

from batches.storage.base import ArtifactStore, ObjectFacts, StoredObject
from batches.storage.disk import DiskStore
from batches.storage.errors import ObjectMissing, StoreDenied, StoreError, StoreFull, StoreUnavailable
from batches.storage.keys import (
    RECEIVED,
    artifact_key,
    aside_key,
    export_key,
    input_key,
    is_key,
    manifest_key,
    named_by_digest,
    received_key,
    request_key,
    shown,
    template_key,
    upload_key,
)

__all__ = [
    "RECEIVED",
    "ArtifactStore",
    "ObjectFacts",
    "ObjectMissing",
    "StoreDenied",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "StoredObject",
    "artifact_key",
    "aside_key",
    "export_key",
    "input_key",
    "is_key",
    "manifest_key",
    "named_by_digest",
    "open_store",
    "received_key",
    "request_key",
    "shown",
    "template_key",
    "upload_key",
]


@lru_cache(maxsize=16)
def open_store(url: str) -> ArtifactStore:
    """The store at `file:///folder` or `s3://bucket/prefix?endpoint_url=…&region=…`, one per process and address.

    Touches nothing until it is used. Raises `ValueError` for any other address.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        folder = Path(unquote(url.removeprefix("file://")))
        if not folder.is_absolute():
            raise ValueError("file:// needs an absolute folder, like file:///var/lib/artifacts")
        return DiskStore(folder)
    if parts.scheme == "s3":
        from batches.storage.s3 import S3Store  # boto3 takes a while to load, and most installations use a disk

        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        return S3Store(
            bucket=parts.netloc,
            prefix=parts.path.strip("/"),
            endpoint_url=query.get("endpoint_url"),
            region=query.get("region"),
            staging=Path(settings.STAGING_DIR),
        )
    raise ValueError("a store's address starts with file:/// or s3://")
