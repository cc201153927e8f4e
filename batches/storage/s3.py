"""The store in an S3 bucket, through django-storages and boto3.

Credentials come from the standard AWS environment (variables, profile, instance role), never from our settings.
Objects get no ACL: a bucket's default is private, and buckets that enforce their owner refuse any ACL (AWS S3 user
guide, "Controlling ownership of objects"). boto3 adds a CRC checksum to each upload, which the service verifies before
it stores anything; AWS_REQUEST_CHECKSUM_CALCULATION=when_required turns that off for a service that does not know it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO, cast

from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError
from django.core.files import File
from storages.backends.s3 import S3Storage

from batches.storage.base import ObjectFacts, StoredObject
from batches.storage.disk import full_disk_words
from batches.storage.errors import ObjectMissing, StoreDenied, StoreError, StoreFull, StoreUnavailable
from batches.storage.keys import checked_key

#: Above this an upload goes in parts; below it is one PUT, which is there whole or not at all. (So is a finished
#: multipart upload; its leftovers cost money until they are swept.)
MULTIPART_BYTES = 64 * 1024 * 1024
#: An object that is read is kept in memory up to this size, else in a temporary file.
MEMORY_BYTES = 8 * 1024 * 1024
#: What is passed on at a time of an object that is read from a place on.
PIECE_BYTES = 256 * 1024
#: How staging files begin: the sweep removes nothing else.
STAGED = "relaypdf-"
BUCKET_MISSING = "The bucket does not exist. Check STORAGE_URL."


class _Objects(S3Storage):  # type: ignore[misc]  # django-storages has no types
    def get_object_parameters(self, name: str) -> dict[str, str]:
        """Given, not guessed: from a name like x.csv.gz the guess makes a Content-Encoding, and readers unpack."""
        return {"ContentType": "application/pdf" if name.endswith(".pdf") else "application/octet-stream"}


class S3Store:
    """See `base.ArtifactStore`."""

    def __init__(
        self, *, bucket: str, prefix: str, endpoint_url: str | None, region: str | None, staging: Path
    ) -> None:
        self.bucket = bucket
        self.prefix = prefix
        self._endpoint_url = endpoint_url
        self._region = region
        #: Of this host alone: where a PDF lies until it is verified and put.
        self._staging = staging
        #: By process id: connections may not be carried over a fork, and a lock might stay locked in the child.
        self._storages: dict[int, _Objects] = {}

    def put(self, key: str, source: Path | BinaryIO) -> StoredObject:
        if isinstance(source, Path):
            with source.open("rb") as opened:
                return self.put(key, opened)
        if not source.seekable():
            with self.staging() as path:
                with path.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
                return self.put(key, path)
        byte_count = source.seek(0, os.SEEK_END)
        source.seek(0)
        with _store_words(key):
            # `File` is Django's wrapper; django-storages keeps boto3 from closing what it wraps.
            name = self._storage().save(checked_key(key), File(source, name=key))
        if name != key:
            raise StoreUnavailable(f"The store kept {key} under another name, {name}.")
        found = self.size(key)
        if found != byte_count:
            raise StoreUnavailable(f"The store was given {byte_count} bytes for {key} but holds {found}.")
        return StoredObject(key, byte_count)

    def put_if_absent(self, key: str, source: Path) -> StoredObject | None:
        """One PUT under the condition that nothing is there (`If-None-Match: *`).

        A service that does not know the condition ignores or refuses it, so the key is looked at first all the same.
        Uploads in parts have no such condition in boto3's transfers: None, and the caller names the object by its
        content.
        """
        byte_count = source.stat().st_size
        if byte_count >= MULTIPART_BYTES or self._is_there(key):
            return None
        given = {"Bucket": self.bucket, "Key": self._full(key), **self._storage().get_object_parameters(key)}
        for condition in ({"IfNoneMatch": "*"}, {}):
            try:
                with source.open("rb") as opened:
                    self._client().put_object(Body=opened, **given, **condition)
                break
            except ClientError as error:
                status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
                if status in (409, 412):  # somebody else was first, or is about to be
                    return None
                if not (status == 501 and condition):
                    raise _error_for(error, key) from error
            except (BotoCoreError, Boto3Error, OSError) as error:
                raise _error_of_the_way(error) from error
        found = self.size(key)
        if found != byte_count:
            raise StoreUnavailable(f"The store was given {byte_count} bytes for {key} but holds {found}.")
        return StoredObject(key, byte_count)

    def _is_there(self, key: str) -> bool:
        """Without the second question that calling it missing would need: whoever asks here writes next."""
        try:
            with _store_words(key):
                self._client().head_object(Bucket=self.bucket, Key=self._full(key))
        except ObjectMissing:
            return False
        return True

    def open(self, key: str) -> BinaryIO:
        spool = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115  # handed to the caller
        try:
            with self._missing_confirmed(), _store_words(key):
                self._client().download_fileobj(self.bucket, self._full(key), spool, Config=self._transfer())
        except BaseException:
            spool.close()
            raise
        spool.seek(0)
        return cast(BinaryIO, spool)

    def open_range(self, key: str, *, start: int, length: int) -> Iterator[bytes]:
        given = {"Bucket": self.bucket, "Key": self._full(key)}
        if not length:
            return iter(())
        with self._missing_confirmed(), _store_words(key):
            answer = self._client().get_object(**given, Range=f"bytes={start}-{start + length - 1}")
        return _pieces(answer["Body"], key)

    def size(self, key: str) -> int | None:
        try:
            with self._missing_confirmed(), _store_words(key):
                head = self._client().head_object(Bucket=self.bucket, Key=self._full(key))
        except ObjectMissing:
            return None
        return int(head["ContentLength"])

    def delete(self, key: str) -> None:
        # Not through django-storages, which takes any 404 as done, also that of a bucket that does not exist.
        with contextlib.suppress(ObjectMissing), self._missing_confirmed(), _store_words(key):
            self._client().delete_object(Bucket=self.bucket, Key=self._full(key))

    def iter_facts(self, after: str = "") -> Iterator[ObjectFacts]:
        start = f"{self.prefix}/" if self.prefix else ""
        given = {"StartAfter": start + after} if after else {}
        with _store_words("(list)"):
            pages = self._client().get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=start, **given)
            for page in pages:
                for entry in page.get("Contents", ()):
                    key = entry["Key"].removeprefix(start)
                    if key:  # else the empty object that consoles make for a prefix, to show it as a folder
                        yield ObjectFacts(key, int(entry["Size"]), entry["LastModified"])

    def sweep_temporaries(self, older_than: timedelta, now: datetime) -> int:
        """Aborts multipart uploads that were begun and never finished, and removes this host's old staging files."""
        swept = self._sweep_staging(oldest=(now - older_than).timestamp())
        client = self._client()
        start = f"{self.prefix}/" if self.prefix else ""
        with _store_words("(unfinished uploads)"):
            for page in client.get_paginator("list_multipart_uploads").paginate(Bucket=self.bucket, Prefix=start):
                for upload in page.get("Uploads", ()):
                    if upload["Initiated"] < now - older_than:
                        client.abort_multipart_upload(
                            Bucket=self.bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                        )
                        swept += 1
        return swept

    def _sweep_staging(self, *, oldest: float) -> int:
        """What a killed process was downloading, up to the size of the largest PDF each."""
        removed = 0
        with _staging_words(self._staging), contextlib.suppress(FileNotFoundError):
            for path in self._staging.glob(f"{STAGED}*"):
                with contextlib.suppress(FileNotFoundError):
                    if path.stat().st_mtime < oldest:
                        path.unlink()
                        removed += 1
        return removed

    @contextmanager
    def staging(self) -> Iterator[Path]:
        with _staging_words(self._staging):
            # Not the system's: there the name of a folder that is full is looked for in vain, and nobody sweeps it.
            self._staging.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=STAGED, dir=self._staging)
            os.close(handle)
        path = Path(name)
        try:
            with full_disk_words(self._staging):
                yield path
        finally:
            path.unlink(missing_ok=True)

    def ensure(self) -> None:
        """Nothing to make: buckets are made by whoever owns the account."""
        self.ready()

    def ready(self) -> None:
        """Lists one key: without the right to list, S3 answers 403 for a missing object, and nothing could ever be
        told to be missing."""
        with _store_words("(list)"):
            self._client().list_objects_v2(Bucket=self.bucket, Prefix=self.prefix, MaxKeys=1)

    def free_bytes(self) -> int | None:
        return None  # a bucket has no end that it tells of

    # --- the connection ------------------------------------------------------------------------------------------

    def _storage(self) -> _Objects:
        """django-storages' storage for this process.

        Everything that Django settings could change from outside is given here, so that no AWS_* setting of a site
        changes how the store behaves.
        """
        pid = os.getpid()
        if pid not in self._storages:
            storage = _Objects(
                bucket_name=self.bucket,
                location=self.prefix,
                endpoint_url=self._endpoint_url,
                region_name=self._region,
                file_overwrite=True,
                default_acl=None,
                gzip=False,
                custom_domain=None,
                transfer_config=self._transfer(),
                client_config=Config(
                    # A bucket in the host name needs wildcard DNS, which a service at an own endpoint rarely has.
                    s3={"addressing_style": "path" if self._endpoint_url else "auto"},
                    connect_timeout=5,
                    read_timeout=20,
                    # One more try for a dropped connection; what fails longer is tried again by the engine.
                    retries={"mode": "standard", "total_max_attempts": 2},
                    max_pool_connections=32,
                ),
            )
            # django-storages makes the client at first use, by threads side by side; so it is made before it is shared.
            _ = storage.bucket
            self._storages.setdefault(pid, storage)
        return self._storages[pid]

    def _client(self) -> Any:
        """The one low-level client of this process; clients, unlike resources, are safe to share between threads."""
        return self._storage().bucket.meta.client

    @contextmanager
    def _missing_confirmed(self) -> Iterator[None]:
        """Before an object is called missing, its bucket must be there: the answer to HEAD is 404 for both."""
        try:
            yield
        except ObjectMissing as missing:
            try:
                with _store_words("(bucket)"):
                    self._client().head_bucket(Bucket=self.bucket)
            except ObjectMissing:
                raise StoreUnavailable(BUCKET_MISSING) from missing
            raise

    def _transfer(self) -> TransferConfig:
        return TransferConfig(multipart_threshold=MULTIPART_BYTES, use_threads=False)

    def _full(self, key: str) -> str:
        return f"{self.prefix}/{checked_key(key)}" if self.prefix else checked_key(key)


def _pieces(body: Any, key: str) -> Iterator[bytes]:
    with contextlib.closing(body), _store_words(key):
        yield from body.iter_chunks(PIECE_BYTES)


@contextmanager
def _store_words(key: str) -> Iterator[None]:
    """Turns boto3's errors into the store's. A 403 is never "missing": without the right to list, S3 gives it for a
    missing object and for a forbidden one alike."""
    try:
        yield
    except StoreError:
        raise
    except ClientError as error:
        raise _error_for(error, key) from error
    except (BotoCoreError, Boto3Error, OSError) as error:
        raise _error_of_the_way(error) from error


@contextmanager
def _staging_words(folder: Path) -> Iterator[None]:
    """Turns the system's errors about the staging folder into the store's: documents wait until there is room."""
    try:
        with full_disk_words(folder):
            yield
    except OSError as error:
        said = error.strerror or type(error).__name__
        raise StoreUnavailable(f"The folder {folder}, where downloads lie first, cannot be used: {said}.") from error


def _error_of_the_way(error: Exception) -> StoreError:
    """No answer came."""
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return StoreDenied(
            "There are no credentials for the bucket. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the "
            "machine a role."
        )
    return StoreUnavailable(f"The bucket cannot be reached ({type(error).__name__}).")


def _error_for(error: ClientError, key: str) -> StoreError:
    answer = error.response
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    code = str(answer.get("Error", {}).get("Code", ""))
    if code == "NoSuchBucket":
        return StoreUnavailable(BUCKET_MISSING)
    if status == 404:
        return ObjectMissing(key)
    if status in (401, 403):
        return StoreDenied(
            f"The bucket refuses access to {key} ({code}). The credentials need s3:GetObject, s3:PutObject, "
            "s3:DeleteObject and s3:ListBucket."
        )
    if status == 507 or "Quota" in code or "StorageFull" in code:
        return StoreFull(f"The bucket has no space left ({code}).")
    return StoreUnavailable(f"The bucket answered {status} ({code}).")
