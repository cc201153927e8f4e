"""Downloads that outlive the tab: ordered, watched, fetched in pieces, built again; and by whom."""

from __future__ import annotations

import io
import struct
import subprocess
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from batches import archives, storage
from batches.engine import exporting, exports
from batches.models import Artifact, AuditEntry, Batch, BatchItem, Export, ExportState, JobState
from benchmarks.sample_pdf import one_page_pdf
from tests.engine.carried import Clock
from tests.factories import NOW, make_job, make_ready_export, make_saved_job
from tests.web.stored import store_pdf

pytestmark = pytest.mark.django_db


def saved(batch: Batch, business_id: str, content: bytes = b"", **given: Any) -> Any:
    job = make_saved_job(batch=batch, business_id=business_id)
    store_pdf(job, content or f"%PDF-1.7 {business_id}".encode())
    BatchItem.objects.filter(version=job.version).update(original_row={"id": business_id, **given})
    return job


def built(export: Export) -> Export:
    store = storage.open_store(settings.STORAGE_URL)
    exporting.carry_out(Clock(timezone.now()), owner="a:1::b", store=store, stopping=lambda: False)
    export.refresh_from_db()
    return export


def body(answer: Any) -> bytes:
    return b"".join(answer.streaming_content) if answer.streaming else answer.content


def test_122_a_zip_is_ordered_watched_and_fetched_and_fetching_changes_nothing(batch: Batch, operator: Client) -> None:
    saved(batch, "INV-1")
    make_job(batch=batch, state=JobState.FAILED, business_id="INV-2")
    page = operator.get(f"/batches/{batch.public_id}/download/")
    assert "1 of 2 PDF" in page.text
    answer = operator.post(f"/batches/{batch.public_id}/download/", {"kind": "zip", "which": "all"})
    export = Export.objects.get()
    assert answer["Location"] == f"/exports/{export.public_id}/"
    page = operator.get(answer["Location"])
    assert "Queued" in page.text
    assert "Waits for a worker." in page.text
    revision = page.context["summary_revision"]
    live = f"/exports/{export.public_id}/live/?summary={revision}"
    assert operator.get(live).status_code == 204
    built(export)
    assert "Ready" in operator.get(live).text
    listed = operator.get("/exports/").text
    assert "1 of 2 documents" in listed
    assert "in 7 days" in listed
    for _ in range(2):
        answer = operator.get(f"/exports/{export.public_id}/files/1/")
        assert zipfile.ZipFile(io.BytesIO(body(answer))).testzip() is None
        assert "_PARTIAL.zip" in answer["Content-Disposition"]
    export.refresh_from_db()
    assert export.state == ExportState.READY
    Export.objects.update(expires_at=timezone.now())  # whether a sweep came by or not
    assert operator.get(f"/exports/{export.public_id}/files/1/").status_code == 404
    assert [entry.action for entry in AuditEntry.objects.order_by("pk")] == ["order_export", *["download_export"] * 2]


def test_what_waits_for_the_store_says_so_and_when_it_is_tried_next(batch: Batch, operator: Client) -> None:
    saved(batch, "INV-1")
    operator.post(f"/batches/{batch.public_id}/download/", {"kind": "zip"})
    now = timezone.now()
    export = exports.take(Export.objects.get().pk, "a worker", now=now)
    assert export is not None
    page = operator.get(f"/exports/{export.public_id}/")
    exports.wait_for_store(export, "The store does not answer.", now=now)
    assert "Waits for the store; next try in less than a minute. The store does not answer." in (
        operator.get(f"/exports/{export.public_id}/live/?summary={page.context['summary_revision']}").text
    )
    assert "Waits for the store; next try" in operator.get("/exports/").text


def test_115_what_failed_says_why_and_is_built_again(batch: Batch, operator: Client) -> None:
    job = saved(batch, "INV-1")
    store = storage.open_store(settings.STORAGE_URL)
    store.put(job.version.artifact.storage_key, io.BytesIO(b"%PDF-1.7 INV-?"))
    operator.post(f"/batches/{batch.public_id}/download/", {"kind": "zip"})
    export = built(Export.objects.get())
    page = operator.get(f"/exports/{export.public_id}/")
    assert "The PDF of INV-1 has changed since it was verified" in page.text
    assert ">Order again</button>" in page.text
    assert operator.get(f"/exports/{export.public_id}/files/1/").status_code == 404
    store.put(job.version.artifact.storage_key, io.BytesIO(b"%PDF-1.7 INV-1"))
    answer = operator.post(f"/exports/{export.public_id}/again/")
    again = built(Export.objects.exclude(pk=export.pk).get())
    assert answer["Location"] == f"/exports/{again.public_id}/"
    assert again.state == ExportState.READY


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"state": "zzz"}, "no such state, so nothing is handed out"),
        ({"state": "failed", "cause": "zzz"}, "no such cause"),
        ({"rows": "0,x"}, "cannot be read"),
        ({"which": "zzz"}, "no such choice of documents"),
        ({"group_column": "zzz", "group_value": "North"}, "no such column"),
        ({"group_column": "region"}, "one of them is missing"),
        ({"group_value": "North"}, "one of them is missing"),
    ],
)
def test_what_cannot_be_read_of_a_choice_is_refused_and_never_means_all(
    batch: Batch, operator: Client, asked: dict[str, str], words: str
) -> None:
    Batch.objects.update(report={"columns": ["id", "region"], "columns_are_all": True})
    saved(batch, "INV-1", region="North")
    address = f"/batches/{batch.public_id}"
    pages = ("archive/", "results.csv", "results.xlsx", "download/")
    answers = [
        *(operator.get(f"{address}/{page}", asked) for page in pages),
        *(operator.post(f"{address}/download/", {**asked, **more}) for more in ({"kind": "csv"}, {"choose": "1"})),
    ]
    for answer in answers:
        assert answer.status_code == 400
        assert words in answer.text
    assert not Export.objects.exists()
    assert not AuditEntry.objects.exists()


def test_119_nothing_saved_builds_nothing(batch: Batch, operator: Client) -> None:
    make_job(batch=batch, state=JobState.FAILED)
    answer = operator.post(f"/batches/{batch.public_id}/download/", {"kind": "zip"})
    assert answer.status_code == 422
    assert "None of these documents is saved yet." in answer.text
    assert not Export.objects.exists()


def test_116_chosen_rows_one_group_and_saved_ones_are_what_the_archive_holds(batch: Batch, operator: Client) -> None:
    Batch.objects.update(report={"columns": ["id", "region"], "columns_are_all": True})
    for number, region in enumerate(("North", "South", "North")):
        saved(batch, f"INV-{number}", region=region)
    make_job(batch=batch, state=JobState.FAILED, business_id="INV-3")

    def packed(query: str) -> list[str]:
        answer = operator.get(f"/batches/{batch.public_id}/archive/?{query}")
        with zipfile.ZipFile(io.BytesIO(body(answer))) as opened:
            assert ("PARTIAL" in answer["Content-Disposition"]) == (
                b'"complete": false' in opened.read("manifest.json")
            )
            return [name[10:] for name in opened.namelist() if name.startswith("documents/")]

    assert packed("rows=0,2,3") == ["INV-0_v1.pdf", "INV-2_v1.pdf"]
    assert packed("group_column=region&group_value=North") == ["INV-0_v1.pdf", "INV-2_v1.pdf"]
    assert packed("state=saved&folders_by=region")[1] == "South/INV-1_v1.pdf"
    operator.post(
        f"/batches/{batch.public_id}/download/",
        {"kind": "zip", "which": "saved", "group_column": "region", "group_value": "South", "folders_by": "region"},
    )
    export = Export.objects.get()
    assert (export.rows, export.selection_words) == ([1], "State: Saved, region: South")


def test_what_is_chosen_on_the_page_of_a_batch_is_offered_for_download(batch: Batch, operator: Client) -> None:
    for number in range(3):
        saved(batch, f"INV-{number}")
    make_job(batch=batch, state=JobState.FAILED)
    page = operator.get(f"/batches/{batch.public_id}/?state=saved")
    assert f"/batches/{batch.public_id}/download/?state=saved" in page.text
    page = operator.post(f"/batches/{batch.public_id}/download/", {"choose": "1", "rows": ["0", "2"], "verb": "retry"})
    assert page.status_code == 200
    assert "2 PDFs" in page.text
    assert "2 ticked rows." in page.text
    assert page.context["fields"] == {"rows": "0,2"}
    assert not Export.objects.exists()
    operator.post(f"/batches/{batch.public_id}/download/", {"kind": "zip", **page.context["fields"]})
    assert Export.objects.get().rows == [0, 2]


def test_118_the_sums_of_an_archive_hold_and_the_button_counts_what_is_there(
    batch: Batch, operator: Client, tmp_path: Path
) -> None:
    for number in range(7):
        job = saved(batch, f"INV-{number} Łódź", one_page_pdf(2000 + number))
    make_job(batch=batch, state=JobState.FAILED)
    Artifact.objects.filter(version=job.version).update(missing_at=NOW)
    page = operator.get(f"/batches/{batch.public_id}/")
    assert "6 of 8, 12.0 kB" in page.text
    answer = operator.get(f"/batches/{batch.public_id}/archive/")
    with zipfile.ZipFile(io.BytesIO(body(answer))) as opened:
        opened.extractall(tmp_path)
        assert opened.read("failed.csv").count(b"\r\n") == 2
    done = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout.count(": OK")) == (0, 8), done.stdout + done.stderr


def test_116_an_outdated_export_says_so_at_once(batch: Batch, operator: Client) -> None:
    saved(batch, "INV-1")
    operator.post(f"/batches/{batch.public_id}/download/", {"kind": "zip"})
    export = built(Export.objects.get())
    assert "Outdated" not in operator.get("/exports/").text
    saved(batch, "INV-2")
    assert "Outdated" in operator.get("/exports/").text
    page = operator.get(f"/exports/{export.public_id}/")
    assert "It still holds what it held then" in page.text


def test_what_is_too_large_for_one_file_comes_in_parts(
    batch: Batch, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives.plan, "__kwdefaults__", archives.plan.__kwdefaults__ | {"limits": archives.Limits(1)})
    saved(batch, "INV-1")
    saved(batch, "INV-2")
    address = f"/batches/{batch.public_id}/archive/"
    page = operator.get(address, follow=True)
    assert "it comes in 2" in page.text
    assert "Build in the background" in page.text
    answer = operator.get(f"{address}?part=2")
    assert "_part2of2.zip" in answer["Content-Disposition"]
    assert "documents/INV-2_v1.pdf" in zipfile.ZipFile(io.BytesIO(body(answer))).namelist()
    assert operator.get(f"{address}?part=3").status_code == 404


# --- resuming -------------------------------------------------------------------------------------------------------

CONTENT = bytes(range(100))


def test_a_download_that_broke_off_goes_on_where_it_stopped(batch: Batch, operator: Client) -> None:
    export = make_ready_export(batch, content=CONTENT)
    address = f"/exports/{export.public_id}/files/1/"
    whole = operator.get(address)
    assert (whole.status_code, whole["Accept-Ranges"], whole["Content-Length"]) == (200, "bytes", "100")
    assert body(whole) == CONTENT
    etag = whole["ETag"]

    def ranged(value: str, **more: str) -> Any:
        return operator.get(address, headers={"Range": value, **more})

    for value, told, piece in (
        ("bytes=40-", "bytes 40-99/100", CONTENT[40:]),
        ("bytes=0-9", "bytes 0-9/100", CONTENT[:10]),
        ("bytes=90-500", "bytes 90-99/100", CONTENT[90:]),
        ("bytes=-5", "bytes 95-99/100", CONTENT[95:]),
    ):
        answer = ranged(value)
        assert (answer.status_code, answer["Content-Range"]) == (206, told)
        assert body(answer) == piece
        assert answer["Content-Length"] == str(len(piece))
    assert ranged("bytes=40-", **{"If-Range": etag}).status_code == 206
    for value, more in (("bytes=40-", {"If-Range": '"another"'}), ("bytes=0-1,5-6", {}), ("lines=1-2", {})):
        answer = ranged(value, **more)
        assert (answer.status_code, body(answer)) == (200, CONTENT)
    beyond = ranged("bytes=100-")
    assert (beyond.status_code, beyond["Content-Range"]) == (416, "bytes */100")
    head = operator.head(address)
    assert (head.status_code, head["Content-Length"], head["ETag"], head.content) == (200, "100", etag, b"")
    resumed = AuditEntry.objects.filter(facts__resumed_at=40)
    assert resumed.count() == 2
    assert AuditEntry.objects.filter(action="download_export").count() == 9


def test_a_single_pdf_resumes_and_is_written_down_once(batch: Batch, operator: Client) -> None:
    document = saved(batch, "INV-1", CONTENT).version.document
    address = f"/documents/{document.public_id}/v1.pdf"
    assert body(operator.get(address)) == CONTENT
    answer = operator.get(address, headers={"Range": "bytes=60-"})
    assert (answer.status_code, body(answer)) == (206, CONTENT[60:])
    assert answer["Content-Security-Policy"].startswith("sandbox")
    assert operator.head(address)["Content-Length"] == "100"
    assert [entry.action for entry in AuditEntry.objects.all()] == ["view_pdf"]


def test_a_file_that_was_lost_is_no_empty_download(batch: Batch, operator: Client) -> None:
    export = make_ready_export(batch, content=CONTENT)
    store = storage.open_store(settings.STORAGE_URL)
    store.put(export.parts.get().storage_key, io.BytesIO(b""))
    assert operator.get(f"/exports/{export.public_id}/files/1/").status_code == 404
    assert not AuditEntry.objects.exists()


def test_who_may_not_see_content_or_ids_gets_no_file_with_them(batch: Batch, operator: Client, viewer: Client) -> None:
    export = make_ready_export(batch)
    address = f"/exports/{export.public_id}/files/1/"
    assert operator.get(address).status_code == 200
    assert viewer.get(address).status_code == 403
    assert "all.zip" not in viewer.get("/exports/?view=all").text
    Export.objects.update(expires_at=NOW)
    exports.sweep(storage.open_store(settings.STORAGE_URL), now=NOW)
    assert operator.get(address).status_code == 404
    assert "Expired" in operator.get(f"/exports/{export.public_id}/").text


# --- pictures -------------------------------------------------------------------------------------------------------


def test_a_first_page_is_drawn_once_for_each_browser_and_a_bomb_hurts_nobody(batch: Batch, operator: Client) -> None:
    document = saved(batch, "INV-1", one_page_pdf(2000)).version.document
    address = f"/documents/{document.public_id}/v1.png"
    answer = operator.get(address)
    assert (answer.status_code, answer["Content-Type"]) == (200, "image/png")
    width, height = struct.unpack(">LL", answer.content[16:24])
    assert (width, 440 < height < 470) == (320, True)
    pixels = zlib.decompress(answer.content[answer.content.index(b"IDAT") + 4 : -16])
    assert len(set(pixels)) > 2, "something is drawn on it"
    again = operator.get(address, headers={"If-None-Match": answer["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    bomb = saved(batch, "INV-2", one_page_pdf(2000).replace(b"[0 0 595 842]", b"[0 0 1e9 1e9]"))
    assert operator.get(f"/documents/{bomb.version.document.public_id}/v1.png").status_code in (200, 404)
    none = saved(batch, "INV-3", b"%PDF-1.7 is none")
    assert operator.get(f"/documents/{none.version.document.public_id}/v1.png").status_code == 404


def test_results_come_as_a_workbook_too(batch: Batch, operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(batch, "0010")
    answer = operator.get(f"/batches/{batch.public_id}/results.xlsx")
    assert body(answer).startswith(b"PK")
    monkeypatch.setattr("batches.exports.SMALL_SHEET_ROWS", 0)
    page = operator.get(f"/batches/{batch.public_id}/results.xlsx", follow=True)
    assert 'value="xlsx" checked' in page.text
