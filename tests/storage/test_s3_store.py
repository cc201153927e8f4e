"""The store in S3: how objects lie there, and what a refusing service is not taken for."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from batches.engine import keeping
from batches.storage import ObjectMissing, StoreDenied, StoreError, StoreFull, StoreUnavailable, artifact_key
from batches.storage import s3 as s3_module
from batches.storage.s3 import S3Store
from tests.storage.listing import keys_in
from tests.storage.s3_server import BUCKET, CREDENTIALS, answering_always, make_bucket, s3_client, s3_service

STAGING = Path(tempfile.gettempdir()) / f"staging-of-tests-{os.getpid()}"
KEY = artifact_key("main", "INV-1", 1)
PDF = b"%PDF-1.4\n%%EOF\n"


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with s3_service() as address:
        make_bucket(address)
        yield address


@pytest.fixture
def client(service: str) -> Any:
    return s3_client(service)


@pytest.fixture
def store(service: str, client: Any) -> Iterator[S3Store]:
    yield make_store(service)
    for entry in client.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
        client.delete_object(Bucket=BUCKET, Key=entry["Key"])


def make_store(address: str, *, bucket: str = BUCKET, prefix: str = "pre/fix") -> S3Store:
    return S3Store(bucket=bucket, prefix=prefix, endpoint_url=address, region="eu-central-1", staging=STAGING)


def uses(store: S3Store) -> list[Callable[[], Any]]:
    return [
        lambda: store.size(KEY),
        lambda: store.open(KEY),
        lambda: store.put(KEY, io.BytesIO(PDF)),
        lambda: store.delete(KEY),
        lambda: keys_in(store),
        lambda: store.sweep_temporaries(timedelta(0), datetime.now(UTC)),
        lambda: store.ready(),
    ]


@pytest.mark.parametrize("prefix", ["pre/fix", ""])
def test_an_object_lies_under_the_prefix_with_its_type_and_no_encoding(
    service: str, store: S3Store, client: Any, prefix: str
) -> None:
    store = make_store(service, prefix=prefix)
    store.put(KEY, io.BytesIO(PDF))
    store.put("main/uploads/x.csv.gz", io.BytesIO(PDF))
    start = f"{prefix}/" if prefix else ""
    head = client.head_object(Bucket=BUCKET, Key=start + KEY, ChecksumMode="ENABLED")
    assert head["ContentType"] == "application/pdf"
    assert "ContentEncoding" not in head
    assert any(name.startswith("Checksum") for name in head)
    other = client.head_object(Bucket=BUCKET, Key=start + "main/uploads/x.csv.gz")
    assert other["ContentType"] == "application/octet-stream"
    assert "ContentEncoding" not in other
    assert keys_in(store) == [KEY, "main/uploads/x.csv.gz"]


def test_settings_of_the_site_do_not_change_how_objects_are_kept(service: str, store: S3Store, settings: Any) -> None:
    settings.AWS_S3_FILE_OVERWRITE = False
    settings.AWS_IS_GZIPPED = True
    settings.AWS_LOCATION = "elsewhere"
    settings.AWS_DEFAULT_ACL = "public-read"
    settings.AWS_S3_OBJECT_PARAMETERS = {"ContentEncoding": "gzip"}
    store = make_store(service)
    for _ in range(2):
        assert store.put(KEY, io.BytesIO(PDF)).key == KEY
    assert keys_in(store) == [KEY]
    with store.open(KEY) as stream:
        assert stream.read() == PDF


def test_a_large_object_goes_in_parts_and_unfinished_parts_are_swept(
    service: str, store: S3Store, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_module, "MULTIPART_BYTES", 6_000_000)
    store = make_store(service)
    large = bytes(20_000_000)
    assert store.put(KEY, io.BytesIO(large)).byte_count == len(large)
    assert "-" in client.head_object(Bucket=BUCKET, Key=f"pre/fix/{KEY}")["ETag"]  # the mark of a multipart object
    client.create_multipart_upload(Bucket=BUCKET, Key="pre/fix/main/uploads/begun")
    client.create_multipart_upload(Bucket=BUCKET, Key="not/ours")
    begun_at = client.list_multipart_uploads(Bucket=BUCKET)["Uploads"][0]["Initiated"]
    assert store.sweep_temporaries(timedelta(hours=1), begun_at + timedelta(minutes=59)) == 0
    assert store.sweep_temporaries(timedelta(hours=1), begun_at + timedelta(minutes=61)) == 1
    (left,) = client.list_multipart_uploads(Bucket=BUCKET)["Uploads"]
    assert left["Key"] == "not/ours"
    client.abort_multipart_upload(Bucket=BUCKET, Key=left["Key"], UploadId=left["UploadId"])


def test_a_forbidden_object_is_never_called_missing() -> None:
    with answering_always(403, "AccessDenied") as address:
        for use in uses(make_store(address)):
            with pytest.raises(StoreDenied) as caught:
                use()
            assert not isinstance(caught.value, ObjectMissing)
            assert "s3:ListBucket" in caught.value.words


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (500, "InternalError", StoreUnavailable),
        (503, "SlowDown", StoreUnavailable),
        (507, "XMinioStorageFull", StoreFull),
        (400, "QuotaExceeded", StoreFull),
        (400, "InvalidRequest", StoreUnavailable),
    ],
)
def test_a_service_in_trouble_is_never_called_an_empty_store(status: int, code: str, kind: type[StoreError]) -> None:
    with answering_always(status, code) as address:
        store = make_store(address)
        with pytest.raises(kind):
            store.put(KEY, io.BytesIO(PDF))
        for use in (lambda: store.size(KEY), lambda: keys_in(store)):
            with pytest.raises(StoreError) as caught:
                use()
            assert not isinstance(caught.value, ObjectMissing)


def test_a_bucket_that_does_not_exist_is_not_a_missing_object(service: str) -> None:
    for use in uses(make_store(service, bucket="no-such-bucket")):
        with pytest.raises(StoreUnavailable, match="bucket does not exist"):
            use()


def test_a_service_that_does_not_answer_is_unavailable() -> None:
    for use in uses(make_store("http://127.0.0.1:1")):
        with pytest.raises(StoreUnavailable):
            use()


def test_missing_credentials_are_said_to_be_missing(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(StoreDenied, match="AWS_ACCESS_KEY_ID"):
        make_store(service).ready()


def test_an_object_that_is_shorter_in_the_bucket_is_reported(
    store: S3Store, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = store.size
    monkeypatch.setattr(store, "size", lambda key: (size(key) or 0) - 1)
    with pytest.raises(StoreUnavailable, match=f"given {len(PDF)} bytes"):
        store.put(KEY, io.BytesIO(PDF))


def test_an_object_that_goes_in_parts_is_left_to_a_name_of_its_own(
    store: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_module, "MULTIPART_BYTES", 6_000_000)
    path = tmp_path / "large.pdf"
    path.write_bytes(bytes(7_000_000))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert store.put_if_absent(KEY, path) is None
    kept = keeping.keep(store, KEY, path, sha256=digest)
    assert (kept.key, kept.byte_count) == (KEY.replace(".pdf", f"-{digest[:32]}.pdf"), 7_000_000)
    assert keeping.digest_of(store, kept.key) == digest


def test_a_service_that_knows_no_condition_is_looked_at_first(
    store: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.pdf"
    path.write_bytes(PDF)
    client = store._client()
    put_object, given = client.put_object, []

    def not_implemented(**call: Any) -> Any:
        given.append("IfNoneMatch" in call)
        if "IfNoneMatch" in call:
            answer = {"Error": {"Code": "NotImplemented"}, "ResponseMetadata": {"HTTPStatusCode": 501}}
            raise ClientError(answer, "PutObject")  # type: ignore[arg-type]  # a shorter answer than boto3's own
        return put_object(**call)

    monkeypatch.setattr(client, "put_object", not_implemented)
    assert store.put_if_absent(KEY, path) is not None
    assert given == [True, False]
    assert store.put_if_absent(KEY, path) is None
    assert given == [True, False], "what is there is never put over"


def test_a_put_if_absent_is_private_checked_and_typed(store: S3Store, client: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.pdf"
    path.write_bytes(PDF)
    store.put_if_absent(KEY, path)
    head = client.head_object(Bucket=BUCKET, Key=f"pre/fix/{KEY}", ChecksumMode="ENABLED")
    assert (head["ContentType"], head.get("ContentEncoding")) == ("application/pdf", None)
    assert any(name.startswith("Checksum") for name in head)
    grants = client.get_object_acl(Bucket=BUCKET, Key=f"pre/fix/{KEY}")["Grants"]
    assert not [grant for grant in grants if "URI" in grant["Grantee"]], "nobody but the owner"


def test_names_that_somebody_else_gave_are_listed_and_walked_behind(store: S3Store, client: Any) -> None:
    names = ["a b", "..", "x/../y", "folder/", "a//b", "Lindqvist-é-👍", "100%25", "+", "x" * 900]
    for name in ("", *names):  # the first is what consoles make to show the prefix as a folder
        client.put_object(Bucket=BUCKET, Key=f"pre/fix/{name}", Body=b"x")
    store.put(KEY, io.BytesIO(PDF))
    everything = sorted([KEY, *names], key=lambda name: name.encode())
    assert keys_in(store) == everything
    for index, name in enumerate(everything):
        assert [facts.key for facts in store.iter_facts(name)] == everything[index + 1 :]


# --- staging files ---


def in_staging(store: S3Store, folder: Path) -> S3Store:
    store._staging = folder
    return store


KILLED_WHILE_DOWNLOADING = """
import sys, time
from pathlib import Path
from batches.storage.s3 import S3Store
store = S3Store(bucket="b", prefix="", endpoint_url="http://127.0.0.1:9", region="eu", staging=Path(sys.argv[1]))
with store.staging() as path:
    path.write_bytes(b"x" * 1_000_000)
    print("there", flush=True)
    time.sleep(60)
"""


def test_what_a_killed_process_was_downloading_is_swept_by_its_age_and_nothing_else_is(
    service: str, tmp_path: Path
) -> None:
    folder = tmp_path / "data" / "staging"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED_WHILE_DOWNLOADING, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    (left,) = folder.iterdir()
    assert (left.stat().st_size, left.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (
        1_000_000,
        0o600,
        0o700,
    )
    (folder / "of-somebody-else").touch()
    store, now = in_staging(make_store(service), folder), datetime.now(UTC)
    assert store.sweep_temporaries(timedelta(hours=1), now) == 0
    assert store.sweep_temporaries(timedelta(hours=1), now + timedelta(hours=2)) == 1
    assert [path.name for path in folder.iterdir()] == ["of-somebody-else"]


def test_no_room_for_a_staging_file_is_a_full_store_and_never_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = in_staging(make_store("http://127.0.0.1:9"), tmp_path / "staging")
    (tmp_path / "staging").mkdir()
    monkeypatch.setattr(tempfile._os, "open", full)  # type: ignore[attr-defined]  # by which mkstemp makes it
    with pytest.raises(StoreFull, match="No space is left"), store.staging():
        pass


def test_a_staging_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = in_staging(make_store("http://127.0.0.1:9"), tmp_path / "file" / "staging")
    with pytest.raises(StoreUnavailable, match="where downloads lie first, cannot be used"), store.staging():
        pass
