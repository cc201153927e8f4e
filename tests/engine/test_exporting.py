"""Exports are built by workers that may die at any moment; what is left is a whole export or nothing."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import openpyxl
import pypdfium2
import pytest
from django.conf import settings
from django.contrib.auth.models import User

from batches import archives, storage
from batches.conf import ENGINE
from batches.engine import exporting, exports, merging, storeorphans
from batches.engine.audit import By
from batches.models import Batch, BatchItem, Export, ExportKind, ExportPart, ExportState, Job, JobState, Membership
from batches.storage import ArtifactStore, StoreDenied, StoreUnavailable
from benchmarks.sample_pdf import one_page_pdf
from tests.engine.carried import Clock
from tests.factories import NOW, make_job, make_saved_job
from tests.scenarios.world import PumpKilled
from tests.storage.listing import keys_in
from tests.web.stored import store_pdf

pytestmark = pytest.mark.django_db
LATER = NOW + timedelta(hours=2)


@pytest.fixture
def store(artifact_folder: Path) -> ArtifactStore:
    return storage.open_store(settings.STORAGE_URL)


@pytest.fixture
def okoye(batch: Batch) -> By:
    user = User.objects.create_user("m.okoye")
    Membership.objects.create(workspace=batch.workspace, user=user, role="operator")
    return By(user, "m.okoye", "192.0.2.7")


def saved(batch: Batch, business_id: str, content: bytes = b"", **given: Any) -> Job:
    job = make_saved_job(batch=batch, business_id=business_id)
    store_pdf(job, content or f"%PDF-1.7 {business_id}".encode())
    BatchItem.objects.filter(version=job.version).update(original_row={"id": business_id, **given})
    return job


def ordered(batch: Batch, by: By, kind: ExportKind = ExportKind.ZIP, **fields: Any) -> Export:
    return exports.order(batch, exports.Order(kind, **fields), by=by, now=NOW)


def work(store: ArtifactStore, *, now: Any = NOW, stopping: Callable[[], bool] = lambda: False) -> Any:
    return exporting.carry_out(Clock(now), owner=f"host:1::{now}", store=store, stopping=stopping)


def files(export: Export, store: ArtifactStore) -> dict[str, bytes]:
    """What a person gets: each part under its name."""
    found = {}
    for part in export.parts.filter(written_at__isnull=False, dropped_at=None, gone_at=None).order_by("number"):
        with store.open(part.storage_key) as opened:
            found[part.name] = opened.read()
        assert hashlib.sha256(found[part.name]).hexdigest() == part.sha256
        assert len(found[part.name]) == part.byte_count
    return found


def exported_keys(store: ArtifactStore) -> set[str]:
    return {key for key in keys_in(store) if "/exports/" in key}


def test_a_zip_in_parts_each_of_which_stands_alone_and_names_the_others(
    batch: Batch, okoye: By, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives.plan, "__kwdefaults__", archives.plan.__kwdefaults__ | {"limits": archives.Limits(2)})
    for number in range(1, 4):
        saved(batch, f"INV-{number}")
    make_job(batch=batch, state=JobState.FAILED, business_id="INV-4")
    saved(batch, "INV-5")
    export = ordered(batch, okoye)
    work(store)
    export.refresh_from_db()
    assert (export.state, export.document_count, export.row_count) == ("ready", 4, 5)
    found = files(export, store)
    stem = f"{batch.name.replace(' ', '-')}_20260302-0900_PARTIAL"
    assert list(found) == [f"{stem}_part1of2.zip", f"{stem}_part2of2.zip"]
    rows: list[str] = []
    for number, content in enumerate(found.values(), start=1):
        with zipfile.ZipFile(io.BytesIO(content)) as opened:
            assert opened.testzip() is None
            assert {info.date_time for info in opened.infolist()} == {(2026, 3, 2, 9, 0, 0)}
            assert all(info.flag_bits & 0x800 for info in opened.infolist()), "names are UTF-8, and say so"
            top = json.loads(opened.read("manifest.json"))
            assert [each["path"] for each in top["parts"]] == list(found)
            assert (top["part"], top["complete"], top["contents_sha256"]) == (number, False, export.contents_sha256)
            assert top["counts"] | {"total": 5, "saved": 4, "needs_person": 1} == top["counts"]
            text = opened.read("manifest.csv").decode("utf-8-sig")
            part = list(csv.DictReader(io.StringIO(text, newline="")))
            rows += [row["id"] for row in part]
            packed = [f"documents/{row['filename']}" for row in part if row["filename"]]
            assert packed == [name for name in opened.namelist() if name.startswith("documents/")]
    assert rows == ["INV-1", "INV-2", "INV-3", "INV-4", "INV-5"]


def test_the_same_content_makes_the_same_bytes(batch: Batch, store: ArtifactStore) -> None:
    saved(batch, "INV-1")
    once, later = (
        b"".join(archives.build(batch, store=store, now=NOW + timedelta(hours=hours)).chunks) for hours in (0, 5)
    )
    assert once == later


def test_what_is_saved_while_it_is_planned_makes_it_outdated(
    batch: Batch, okoye: By, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(batch, "INV-1")
    export, plan = ordered(batch, okoye), archives.plan

    def planned(*given: Any, **named: Any) -> archives.Plan:
        found = plan(*given, **named)
        saved(batch, "INV-2")
        return found

    monkeypatch.setattr(archives, "plan", planned)
    work(store)
    exports.sweep(store, now=NOW)
    export.refresh_from_db()
    assert (export.state, export.document_count, export.outdated_at) == ("ready", 1, NOW)


def test_a_selection_is_frozen_when_it_is_ordered_and_goes_into_folders_by_a_column(
    batch: Batch, okoye: By, store: ArtifactStore
) -> None:
    for number, group in enumerate(("North", "../South: A", "North", "")):
        saved(batch, f"INV-{number}", group=group)
    chosen = {"selection": {"rows": "0,1,3"}, "selection_words": "3 ticked rows", "rows": [0, 1, 3]}
    export = ordered(batch, okoye, options={"folders_by": "group"}, **chosen)
    assert ordered(batch, okoye, options={"folders_by": "group"}, **chosen).pk == export.pk, "pressed twice, built once"
    saved(batch, "INV-9", group="North")
    work(store)
    (content,) = files(export, store).values()
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        assert opened.namelist()[:3] == [
            "documents/North/INV-0_v1.pdf",
            "documents/_South_ A/INV-1_v1.pdf",
            "documents/INV-3_v1.pdf",
        ]
        top = json.loads(opened.read("manifest.json"))
        assert (top["complete"], top["selection"], top["counts"]["total"]) == (True, {"rows": "0,1,3"}, 3)


def test_116_a_zip_is_marked_outdated_when_a_document_of_it_got_another_file(
    batch: Batch, okoye: By, store: ArtifactStore
) -> None:
    first, second = saved(batch, "INV-1"), saved(batch, "INV-2")
    whole = ordered(batch, okoye)
    one = ordered(batch, okoye, rows=[1], selection={"rows": "1"})
    work(store)
    assert exports.mark_outdated(now=NOW) == 0
    # Regenerated: the row names the new version by now.
    other = saved(batch, "INV-1b")
    BatchItem.objects.filter(version=other.version).delete()
    BatchItem.objects.filter(version=first.version).update(version=other.version)
    exports.sweep(store, now=LATER)
    whole.refresh_from_db()
    one.refresh_from_db()
    assert (whole.outdated_at, one.outdated_at) == (LATER, None)
    assert exports.again(whole, by=okoye, now=LATER).pk != whole.pk
    assert second.version.artifact.pk


MOMENTS = ["put_if_absent", "begin_part", "end_part", "finish"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_worker_that_is_killed_leaves_an_export_that_is_built_and_no_object_without_a_row(
    moment: str, batch: Batch, okoye: By, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives.plan, "__kwdefaults__", archives.plan.__kwdefaults__ | {"limits": archives.Limits(1)})
    for number in range(3):
        saved(batch, f"INV-{number}")
    export = ordered(batch, okoye)
    for call in (1, 2) if moment != "finish" else (1,):
        with monkeypatch.context() as patch:
            _die(patch, moment, call, store)
            with pytest.raises(PumpKilled):
                work(store, now=NOW + timedelta(hours=call))
    assert not work(store, now=NOW).exports, "it is leased until then"
    end = NOW + timedelta(hours=9)
    assert work(store, now=end).exports == 1
    export.refresh_from_db()
    assert export.state == ExportState.READY
    assert len(files(export, store)) == 3
    rows = set(ExportPart.objects.filter(gone_at=None).values_list("storage_key", flat=True))
    assert exported_keys(store) <= rows == storeorphans.named(sorted(rows))
    exports.sweep(store, now=end + timedelta(hours=2))
    assert exported_keys(store) == {part.storage_key for part in export.parts.filter(gone_at=None)}
    assert len(files(export, store)) == 3
    exports.sweep(store, now=end + exports.KEPT)
    export.refresh_from_db()
    assert (export.state, exported_keys(store)) == (ExportState.EXPIRED, set())


def _die(monkeypatch: pytest.MonkeyPatch, moment: str, call: int, store: ArtifactStore) -> None:
    """At the so-manieth call, behind what it does: the object is there, and nobody was told."""
    owner: Any = store if moment == "put_if_absent" else exports
    real, calls = getattr(owner, moment), iter(range(1, 100))

    def dying(*given: Any, **named: Any) -> Any:
        is_last = next(calls) == call
        if is_last and moment == "finish":
            raise PumpKilled
        done = real(*given, **named)
        if is_last:
            raise PumpKilled
        return done

    monkeypatch.setattr(owner, moment, dying)


def test_a_worker_that_lost_its_lease_writes_nothing_over_what_its_successor_made(
    batch: Batch, okoye: By, store: ArtifactStore
) -> None:
    saved(batch, "INV-1")
    export = ordered(batch, okoye)
    slow = exports.take(export.pk, "a worker", now=NOW)
    assert slow is not None
    exports.begin(slow, contents_sha256="a" * 64, row_count=1, document_count=1, had=exports.Stored("", 0), now=NOW)
    part = exports.begin_part(slow, 1, ending="zip", document_count=1, now=NOW)
    work(store, now=LATER)
    before = files(export, store)
    with pytest.raises(exports.NotOurs):
        exports.beat(slow, done=1, now=LATER)
    store.put(part.storage_key, io.BytesIO(b"late"))
    with pytest.raises(exports.NotOurs):
        exports.end_part(slow, part, name="late.zip", sha256="b" * 64, byte_count=4, now=LATER)
    with pytest.raises(exports.NotOurs):
        exports.finish(slow, now=LATER)
    exports.sweep(store, now=LATER)
    assert files(export, store) == before
    assert len(exported_keys(store)) == 1


def test_118_a_changed_file_fails_the_export_loudly_and_a_missing_one_makes_it_partial(
    batch: Batch, okoye: By, store: ArtifactStore
) -> None:
    saved(batch, "INV-1")
    job = saved(batch, "INV-2")
    key = job.version.artifact.storage_key
    with store.open(key) as opened:
        right = opened.read()
    store.put(key, io.BytesIO(right[:-1] + b"?"))
    export = ordered(batch, okoye)
    work(store)
    export.refresh_from_db()
    assert export.state == ExportState.FAILED
    assert "The PDF of INV-2 has changed since it was verified" in export.words
    store.delete(key)
    export = exports.again(export, by=okoye, now=NOW)
    work(store)
    export.refresh_from_db()
    assert (export.state, export.document_count, export.row_count) == ("ready", 1, 2)
    (name,) = files(export, store)
    assert "_PARTIAL" in name


def test_a_store_that_is_away_puts_it_off_and_then_says_why(
    batch: Batch, okoye: By, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(batch, "INV-1")
    export = ordered(batch, okoye)
    Export.objects.update(tries=exports.TRIES_MOST - 1)  # workers were killed at it before

    def away(key: str) -> int:
        raise StoreUnavailable("The store does not answer.")

    with monkeypatch.context() as outage:
        outage.setattr(store, "size", away)
        waits = []
        for minutes in (0, 1, 60, 600):  # a night, however often it is asked meanwhile
            now = NOW + timedelta(minutes=minutes)
            work(store, now=now)
            export.refresh_from_db()
            assert (export.state, export.words, export.tries) == ("building", "The store does not answer.", 0)
            assert export.due_at is not None
            waits.append((export.due_at - now).total_seconds())
        assert waits == [5, 30, 300, 300]
        late = exports.order(batch, exports.Order(ExportKind.CSV), by=okoye, now=now)
    work(store, now=now)
    work(store, now=now + timedelta(minutes=5))
    for each in (export, late):
        each.refresh_from_db()
        assert (each.state, each.waits_since) == ("ready", None)


def test_a_store_that_stays_away_fails_the_export_in_words(
    batch: Batch, okoye: By, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it answers some calls: what counts is that nothing gets written."""
    saved(batch, "INV-1")
    export = ordered(batch, okoye)

    def away(key: str, path: Path) -> None:
        raise StoreUnavailable("The store does not answer.")

    monkeypatch.setattr(store, "put_if_absent", away)
    work(store)
    work(store, now=NOW + timedelta(hours=ENGINE.export_wait_hours, seconds=-1))
    export.refresh_from_db()
    assert export.state == ExportState.BUILDING
    work(store, now=NOW + timedelta(hours=ENGINE.export_wait_hours, minutes=5))
    export.refresh_from_db()
    words = "The store does not answer. It waited 14 hours for the store. Order it again once the store answers."
    assert (export.state, export.words) == (ExportState.FAILED, words)
    assert export.lease_owner is None


def test_what_is_given_up_says_what_stopped_it_and_what_to_do(
    batch: Batch, okoye: By, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(batch, "INV-1")
    killed, faulty = ordered(batch, okoye), ordered(batch, okoye, ExportKind.CSV)
    Export.objects.filter(pk=killed.pk).update(tries=exports.TRIES_MOST)

    def broken(_turn: Any) -> None:
        raise RuntimeError

    monkeypatch.setitem(exporting._BUILD, ExportKind.CSV, broken)
    for hours in range(exports.TRIES_MOST):
        faulty.refresh_from_db()
        assert faulty.state != ExportState.FAILED
        work(store, now=NOW + timedelta(hours=hours))
    for export, words in ((killed, exports.GAVE_UP), (faulty, f"{exporting.FAULT} {exports.GAVE_UP}")):
        export.refresh_from_db()
        assert (export.state, export.words) == (ExportState.FAILED, words)


def test_a_slow_store_takes_no_export_from_the_worker_that_plans_it(
    batch: Batch, okoye: By, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100,000 sizes of a slow bucket take longer than a lease: another worker would begin the same from the front."""
    monkeypatch.setattr(archives, "SLICE", 1)
    for number in range(3):
        saved(batch, f"INV-{number}")
    export, clock, size, taken = ordered(batch, okoye), Clock(NOW), store.size, []

    def slow(key: str) -> int | None:
        clock.advance(exports.LEASE.total_seconds() * 0.8)
        return size(key)

    monkeypatch.setattr(store, "size", slow)
    _slices = archives._slices

    def watched(*given: Any, **named: Any) -> Any:
        for rows in _slices(*given, **named):
            yield rows
            taken.append(exports.due(now=clock.now()))

    monkeypatch.setattr(archives, "_slices", watched)
    exporting.carry_out(clock, owner="host:1::a", store=store, stopping=lambda: False)
    export.refresh_from_db()
    assert (export.state, export.tries, taken) == ("ready", 1, [[], [], []])


def test_a_file_that_may_not_be_removed_keeps_no_other(
    batch: Batch, okoye: By, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(batch, "INV-1")
    for kind in (ExportKind.ZIP, ExportKind.CSV):
        ordered(batch, okoye, kind)
    work(store)
    first, _second = ExportPart.objects.order_by("pk")
    delete = store.delete

    def denied(key: str) -> None:
        if key == first.storage_key:
            raise StoreDenied("Kept by a lock of its own.")
        delete(key)

    monkeypatch.setattr(store, "delete", denied)
    exports.sweep(store, now=NOW + exports.KEPT)
    assert exported_keys(store) == {first.storage_key}
    monkeypatch.undo()
    exports.sweep(store, now=NOW + exports.KEPT)
    assert exported_keys(store) == set()


def test_who_lost_the_right_meanwhile_gets_nothing(batch: Batch, okoye: By, store: ArtifactStore) -> None:
    saved(batch, "INV-1")
    export = ordered(batch, okoye)
    Membership.objects.update(role="viewer")
    work(store)
    export.refresh_from_db()
    assert (export.state, export.words) == (ExportState.FAILED, exporting.MAY_NOT)
    assert exported_keys(store) == set()


def test_a_worker_that_has_to_stop_gives_it_back_uncounted_and_a_cancelled_one_is_left(
    batch: Batch, okoye: By, store: ArtifactStore
) -> None:
    saved(batch, "INV-1")
    export = ordered(batch, okoye)
    asked = iter([False, True, True, True])
    work(store, stopping=lambda: next(asked, True))
    export.refresh_from_db()
    assert (export.state, export.tries, export.lease_owner) == (ExportState.BUILDING, 0, None)
    exports.cancel(export, by=okoye, now=NOW)
    assert not work(store).exports
    with pytest.raises(exports.Refused):
        exports.cancel(export, by=okoye, now=NOW)


# --- merged PDFs and results ----------------------------------------------------------------------------------------


def two_pages() -> bytes:
    made = pypdfium2.PdfDocument.new()
    for _ in range(2):
        made.new_page(300, 400)
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()


def test_merged_by_group_each_document_begins_on_an_odd_page_and_the_list_says_where(
    batch: Batch, okoye: By, store: ArtifactStore
) -> None:
    one, two = one_page_pdf(2000), two_pages()
    saved(batch, "INV-1", one, region="South")
    saved(batch, "INV-2", two, region="North")
    saved(batch, "INV-3", one, region="South")
    saved(batch, "INV-4", b"%PDF-1.7 is none", region="South")
    options = {"folders_by": "region", "by_group": True, "odd_starts": True}
    export = ordered(batch, okoye, ExportKind.MERGED, options=options)
    work(store)
    export.refresh_from_db()
    assert (export.state, export.document_count) == (ExportState.READY, 3), export.words
    *merged, (index_name, index) = files(export, store).items()
    pages = {name.partition("_merged_")[2]: len(pypdfium2.PdfDocument(content)) for name, content in merged}
    assert pages == {"North_part1of2.pdf": 2, "South_PARTIAL_part2of2.pdf": 3}
    assert index_name.endswith("_merged_index_PARTIAL.csv")
    lines = list(csv.DictReader(io.StringIO(index.decode("utf-8-sig"), newline="")))
    assert [(line["id"], line["group"], line["first_page"], line["pages"]) for line in lines] == [
        ("INV-2", "North", "1", "2"),
        ("INV-1", "South", "1", "1"),
        ("INV-3", "South", "3", "1"),
        ("INV-4", "South", "", ""),
    ]
    assert "cannot be opened as a PDF" in lines[-1]["note"]


def test_what_cannot_be_merged_in_one_turn_says_so_and_is_not_begun_for_ever(
    batch: Batch, okoye: By, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "DOCUMENTS_MOST", 1)
    for number in range(2):
        saved(batch, f"INV-{number}", one_page_pdf(2000))
    export, clock, merge = ordered(batch, okoye, ExportKind.MERGED), Clock(NOW), merging.merge

    def slow(*given: Any, **named: Any) -> Any:
        clock.advance(exporting.TURN_MOST.total_seconds())
        return merge(*given, **named)

    monkeypatch.setattr(merging, "merge", slow)
    exporting.carry_out(clock, owner="host:1::a", store=store, stopping=lambda: False)
    export.refresh_from_db()
    assert (export.state, export.words) == (ExportState.FAILED, exporting.TOO_LONG)
    exports.sweep(store, now=clock.now())
    assert exported_keys(store) == set()


def test_a_merge_goes_on_behind_the_files_that_are_there_whoever_dies(
    batch: Batch, okoye: By, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many turns it takes, and however many workers die, as long as each comes to a file."""
    monkeypatch.setattr(merging, "DOCUMENTS_MOST", 1)
    count = exports.TRIES_MOST + 3
    for number in range(count):
        saved(batch, f"INV-{number}", one_page_pdf(2000) if number != 1 else b"%PDF-1.7 no pages")
    saved(batch, "INV-1b", one_page_pdf(2000))
    monkeypatch.setattr(merging, "DOCUMENTS_MOST", 2)
    export, clock, merged, merge = ordered(batch, okoye, ExportKind.MERGED), Clock(NOW), [], merging.merge

    def dying(sheet: merging.Sheet, *given: Any, **named: Any) -> Any:
        if len(merged) % 2:
            merged.append(())
            raise PumpKilled
        merged.append([file.business_id for file in sheet.files])
        return merge(sheet, *given, **named)

    monkeypatch.setattr(merging, "merge", dying)
    for _ in range(2 * count):
        with contextlib.suppress(PumpKilled):
            exporting.carry_out(clock, owner=f"host:1::{clock.now()}", store=store, stopping=lambda: False)
        clock.advance(exports.LEASE.total_seconds() + 1)
    export.refresh_from_db()
    assert (export.state, export.document_count) == ("ready", count)
    done = [run for run in merged if run]
    assert len(done) == len({tuple(run) for run in done}) == 5, "each file was merged once"
    found = files(export, store)
    (index,) = (content for name, content in found.items() if name.endswith(".csv"))
    lines = list(csv.DictReader(io.StringIO(index.decode("utf-8-sig"), newline="")))
    assert [line["id"] for line in lines] == [each for run in done for each in run]
    assert {line["file"] for line in lines} == {name for name in found if name.endswith(".pdf")}
    assert [line["id"] for line in lines if line["note"]] == ["INV-1"]
    assert len(found) == 6


def test_a_pdf_that_is_committed_behind_a_newer_one_still_makes_it_outdated(
    batch: Batch, okoye: By, store: ArtifactStore
) -> None:
    """PostgreSQL gives keys out before the commit: what was stored first may be seen last."""
    saved(batch, "INV-1")
    hidden = saved(batch, "INV-2")
    saved(batch, "INV-3")
    row = BatchItem.objects.get(version=hidden.version)
    BatchItem.objects.filter(pk=row.pk).delete()  # as if its transaction were still open
    export, other = ordered(batch, okoye), ordered(batch, okoye, rows=[0], selection={"rows": "0"})
    work(store)
    exports.sweep(store, now=NOW)
    export.refresh_from_db()
    assert (export.state, export.document_count, export.outdated_at) == ("ready", 2, None)
    row.save(force_insert=True)
    exports.sweep(store, now=NOW + timedelta(minutes=1))
    export.refresh_from_db()
    other.refresh_from_db()
    assert (export.outdated_at, other.outdated_at) == (NOW + timedelta(minutes=1), None)


def test_124_a_workbook_holds_every_text_as_it_is_and_runs_nothing(
    batch: Batch, okoye: By, store: ArtifactStore
) -> None:
    ids = ['=HYPERLINK("http://example.invalid")', "+44-555", "@SUM(1)", "-5", "0010", "1E5", "a\x01b"]
    for business_id in ids:
        make_job(batch=batch, state=JobState.FAILED, business_id=business_id)
    export = ordered(batch, okoye, ExportKind.XLSX)
    work(store)
    export.refresh_from_db()
    assert export.state == ExportState.READY, export.words
    (content,) = files(export, store).values()
    sheet = openpyxl.load_workbook(io.BytesIO(content)).worksheets[0]
    head, *rows = list(sheet.iter_rows())
    column = [cell.value for cell in head].index("id")
    assert [row[column].value for row in rows] == [*ids[:-1], "a\ufffdb"]
    assert {row[column].data_type for row in rows} == {"s"}
    assert [row[column].quotePrefix for row in rows][:4] == [True] * 4
    assert rows[0][1].value == 0, "numbers stay numbers"
