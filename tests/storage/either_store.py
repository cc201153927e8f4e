"""The fixture `store` of tests that hold for every store: one run on a disk, one in an S3 bucket of the test's own.

A module asks for it by importing `either_store` and the service that it stands on, `s3_address`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from batches.storage import ArtifactStore, open_store
from tests.storage.s3_server import BUCKET, make_bucket, s3_service


@pytest.fixture(scope="module")
def s3_address() -> Iterator[str]:
    with s3_service() as address:
        yield address


@pytest.fixture(params=["disk", "s3"], name="store")
def either_store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    if request.param == "disk":
        disk = open_store(f"file://{tmp_path}/store")
        disk.ensure()
        return disk
    address = request.getfixturevalue("s3_address")
    bucket = f"{BUCKET}-{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:16]}"
    make_bucket(address, bucket)
    return open_store(f"s3://{bucket}/pre/fix?endpoint_url={address}&region=eu-central-1")
