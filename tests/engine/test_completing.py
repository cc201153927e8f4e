"""The whole way of a list of failed rows: taken, edited, handed over again, and what becomes of each row then."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

import pytest

from batches import manifests, results
from batches.engine import intake, replacing, versions
from batches.engine.audit import By
from batches.engine.errors import IntakeRefused
from batches.engine.orders import NewInput, Order
from batches.engine.replacing import Replacement, ReplacementPlan
from batches.manifests import Manifest, OnConflict, from_upload
from batches.models import AuditEntry, Batch, BatchItem, DocumentVersion, FailureClass, Job, JobState
from batches.storage.disk import DiskStore
from tests.factories import NOW, make_account, make_workspace

pytestmark = pytest.mark.django_db

BY = By(None, "m.okoye", "a test")
ORDER = Order(BY, reason="The price was wrong.")
LARGE = f"<h1>large</h1><!-- {'x' * 70_000} -->"


def upload(rows: list[dict[str, Any]], files: Mapping[str, str] | None = None) -> manifests.ManifestSource:
    manifest = json.dumps(rows).encode()
    if files is None:
        return from_upload(io.BytesIO(manifest), "failed.json")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("manifest.json", manifest)
        for name, html in files.items():
            archive.writestr(name, html)
    return from_upload(packed, "failed.zip")


def started(store: DiskStore, rows: list[dict[str, Any]], files: Mapping[str, str] | None = None) -> Batch:
    """A batch through the real intake, every document of which failed."""
    account = make_account()
    checked = intake.check(
        upload(rows, files), workspace=make_workspace(), account=account, on_conflict=OnConflict.REFUSE
    )
    with checked.manifest:
        batch = intake.start(
            checked,
            name="",
            actor=None,
            actor_words="a test",
            from_where="a test",
            creation_key="1",
            store=store,
            now=NOW,
        )
    failed()
    return batch


def failed() -> None:
    """Whatever waited to be sent has failed."""
    words = {"failure_class": FailureClass.INVALID_INPUT, "failure_words": "A table is too wide."}
    Job.objects.filter(state=JobState.PENDING).update(state=JobState.FAILED, **words)


def listed(batch: Batch) -> list[dict[str, Any]]:
    """The rows of failed.csv as a program reads them: text, but for the cells of objects; an empty one is none."""
    text = "".join(results.failed_lines(Batch.objects.get(pk=batch.pk))).removeprefix("\ufeff")
    return [
        {
            name: json.loads(cell) if name in ("options", "meta") and cell[:1] == "{" else cell
            for name, cell in row
            if cell
        }
        for row in (tuple(line.items()) for line in csv.DictReader(io.StringIO(text, newline="")))
    ]


def read(rows: list[dict[str, Any]], files: Mapping[str, str] | None = None) -> Manifest:
    return manifests.read(upload(rows, files), corrects=True)


def planned(
    batch: Batch, rows: list[dict[str, Any]], files: Mapping[str, str] | None = None, *, store: DiskStore | None = None
) -> ReplacementPlan:
    with read(rows, files) as manifest:
        assert manifest.errors == ()
        return replacing.plan_replacement(batch, manifest, now=NOW, store=store)


def outcomes(plan: ReplacementPlan) -> dict[str, str]:
    return {row.row.business_id: row.outcome.value for row in plan.rows}


def replaced(
    batch: Batch, rows: list[dict[str, Any]], store: DiskStore, files: Mapping[str, str] | None = None
) -> dict[str, int]:
    """What replacing came to; what it made has failed too."""
    with read(rows, files) as manifest:
        assert manifest.errors == ()
        plan = replacing.plan_replacement(batch, manifest, now=NOW, store=store)
        assert plan.ok, plan.rows
        key = str(AuditEntry.objects.count())
        summary = replacing.replace_rows(plan, manifest, key=key, order=ORDER, store=store, now=NOW)
    failed()
    return summary


def regenerated(batch: Batch, store: DiskStore, **new: Any) -> None:
    """As the page does it: the row that was handed over stays what it was."""
    (item,) = batch.items.all()
    order = Order(BY, reason="By hand.", inputs={item.pk: NewInput(**new)}, versions={item.pk: item.version_id})
    assert versions.regenerate([item.pk], order=order, now=NOW, store=store)[item.pk].is_done
    failed()


def texts(name: str, store: DiskStore) -> list[str]:
    """The inputs of a document's versions, oldest first."""
    found = []
    for version in DocumentVersion.objects.filter(document__business_id=name).order_by("number"):
        if version.input_inline is not None:
            found.append(bytes(version.input_inline).decode())
        else:
            with store.open(version.input_key or "") as stream:
                found.append(stream.read().decode())
    return found


def newest(name: str) -> DocumentVersion:
    version = DocumentVersion.objects.filter(document__business_id=name).order_by("number").last()
    assert version is not None
    return version


INLINE = [
    {"id": "A", "html_content": "<h1>a</h1>"},
    {"id": "B", "markdown": "# b"},
    {"id": "C", "html": "<h1>c</h1>"},
    {"id": "D", "html_content": LARGE},
]


def test_a_list_that_nobody_changed_sends_nothing(store: DiskStore) -> None:
    batch = started(store, INLINE)
    assert listed(batch)[0]["html_content"] == "(document, 10 characters)"
    assert outcomes(planned(batch, listed(batch))) == dict.fromkeys("ABCD", "unchanged")
    assert replaced(batch, listed(batch), store)["renders"] == 0
    assert DocumentVersion.objects.count() == 4


def test_cells_that_were_emptied_mean_the_same(store: DiskStore) -> None:
    batch = started(store, INLINE)
    rows = [{**row, **{name: "" for name in row if name in ("html", "markdown")}} for row in listed(batch)]
    del rows[3]["html_content"]
    assert outcomes(planned(batch, rows)) == dict.fromkeys("ABCD", "unchanged")


def test_options_that_were_added_leave_the_documents_as_they_are_and_stay_for_two_rounds(store: DiskStore) -> None:
    batch = started(store, INLINE)
    before = {name: texts(name, store) for name in "ABCD"}
    first = [{**row, "options": {"format": "A3"}, "filename": f"{row['id']}.pdf"} for row in listed(batch)]
    assert replaced(batch, first, store)["renders"] == 4
    for name in "ABCD":
        version = newest(name)
        assert texts(name, store) == before[name] * 2
        assert (version.number, version.options, version.filename) == (2, {"format": "A3"}, f"{name}.pdf")
        text = texts(name, store)[1]
        assert version.input_sha256 == manifests.fingerprint(version.kind, text, {"format": "A3"})
    rows = listed(batch)
    assert [row["options"] for row in rows] == [{"format": "A3"}] * 4, (
        "the second list has the columns of the first round"
    )
    assert outcomes(planned(batch, rows)) == dict.fromkeys("ABCD", "unchanged")
    second = [{**row, "options": row["options"] | {"landscape": True}, "note": "checked"} for row in rows]
    assert replaced(batch, second, store)["renders"] == 4
    rows = listed(batch)
    assert [row["note"] for row in rows] == ["checked"] * 4
    assert [row.get("html_content") or row.get("markdown") or row["html"] for row in rows] == [
        "(document, 10 characters)",
        "(document, 3 characters)",
        "(document, 10 characters)",
        f"(document, {len(LARGE):,} characters)",
    ]
    assert {name: texts(name, store) for name in "ABCD"} == {name: before[name] * 3 for name in "ABCD"}
    assert newest("A").options == {"format": "A3", "landscape": True}


def test_documents_are_corrected_in_the_row_or_in_a_file_and_other_rows_are_left(store: DiskStore) -> None:
    batch = started(store, INLINE)
    rows = {row["id"]: row for row in listed(batch)}
    rows["A"]["html_content"] = "<h1>better a</h1>"
    rows["B"]["markdown"] = "'- better b"
    rows["C"]["html"] = "c.html"
    assert replaced(batch, list(rows.values()), store, {"c.html": "<h1>better c</h1>"})["renders"] == 3
    assert [texts(name, store)[-1] for name in "ABC"] == ["<h1>better a</h1>", "'- better b", "<h1>better c</h1>"]
    assert newest("D").number == 1
    assert {row["id"]: row.get("html") for row in listed(batch)} == {"A": None, "B": None, "C": "c.html", "D": None}


def test_rows_with_files_are_corrected_for_two_rounds_and_an_empty_cell_names_no_document(store: DiskStore) -> None:
    rows = [{"id": "A", "html": "a.html", "n": "007"}, {"id": "B", "html": "b.html", "n": "08"}]
    files = {"a.html": "<h1>a</h1>", "b.html": "<h1>b</h1>"}
    batch = started(store, rows, files)
    assert outcomes(planned(batch, listed(batch), files)) == {"A": "unchanged", "B": "unchanged"}
    better = files | {"a.html": "<h1>better a</h1>"}
    assert replaced(batch, listed(batch), store, better)["renders"] == 1
    assert [(row["html"], row["n"]) for row in listed(batch)] == [("a.html", "007"), ("b.html", "08")]
    assert replaced(batch, listed(batch), store, better | {"b.html": "<h1>better b</h1>"})["renders"] == 1
    assert [texts(name, store)[-1] for name in "AB"] == ["<h1>better a</h1>", "<h1>better b</h1>"]
    without = [{name: cell for name, cell in row.items() if name != "html"} for row in listed(batch)]
    plan = planned(batch, without)
    assert outcomes(plan) == {"A": "refused", "B": "refused"}
    assert plan.rows[0].words == "It names no document."


ODD_IDS = ["=1+1", "+44", "-5", "@SUM(1)", "'=quoted", "''=twice", "'tis", "007", "0010", "plain"]


def test_odd_ids_and_cells_come_back_as_they_were(store: DiskStore) -> None:
    cells = {"note": "=cmd()\nsecond line", "=head": "'@x", "zeros": "000", "tab": "\tx", "quote": 'a "b", c'}
    batch = started(store, [{"id": each, "html_content": "<h1>x</h1>", **cells} for each in ODD_IDS])
    rows = listed(batch)
    assert [row["id"] for row in rows] != ODD_IDS, "they are guarded"
    assert outcomes(planned(batch, rows)) == dict.fromkeys(ODD_IDS, "unchanged")
    for _ in range(2):
        changed = [{**row, "options": {"scale": 0.5 + len(texts(ODD_IDS[0], store)) / 10}} for row in listed(batch)]
        assert replaced(batch, changed, store)["renders"] == len(ODD_IDS)
        for item in batch.items.select_related("document"):
            kept = {name: value for name, value in item.original_row.items() if name not in ("options", "html_content")}
            assert kept == {"id": item.document.business_id, **cells}
    assert set(DocumentVersion.objects.values_list("number", flat=True)) == {1, 2, 3}


def test_a_guard_is_undone_in_a_list_of_ours_only(store: DiskStore) -> None:
    batch = started(store, [{"id": "=1", "html_content": "<h1>x</h1>"}, {"id": "'=1", "html_content": "<h1>y</h1>"}])
    rows = [{"id": "'=1", "html_content": "<h1>z</h1>"}]
    assert planned(batch, rows).named(Replacement.CORRECTED) == ["'=1"]
    assert planned(batch, [{**rows[0], "_row": "0", "_last_state": "failed"}]).named(Replacement.CORRECTED) == ["=1"]
    with manifests.read(upload([{**rows[0], "_row": "0", "_last_state": "failed"}])) as manifest:
        assert manifest.rows[0].business_id == "'=1"


def test_very_long_options_and_meta_stay_as_they_were(store: DiskStore) -> None:
    options = {"headerTemplate": f"<p>{'h' * 21_000}</p>"}
    meta = {f"key {number}": "ü" * 90 for number in range(50)}
    batch = started(store, [{"id": "A", "html_content": "<h1>a</h1>", "options": options, "meta": meta}])
    rows = listed(batch)
    assert (rows[0]["options"], rows[0]["meta"]) == ("(object, too long to keep here)",) * 2
    assert outcomes(planned(batch, rows)) == {"A": "unchanged"}
    assert replaced(batch, [{**rows[0], "html_content": "<h1>better a</h1>"}], store)["renders"] == 1
    version = newest("A")
    assert (texts("A", store)[-1], version.options) == ("<h1>better a</h1>", options)
    assert version.input_sha256 == manifests.fingerprint("html", "<h1>better a</h1>", options)
    assert listed(batch)[0]["options"] == "(object, too long to keep here)"


# --- what was made between the list and its return --------------------------------------------------------------------


def test_a_list_from_before_a_regenerate_does_not_bring_its_content_back(store: DiskStore) -> None:
    batch = started(store, [{"id": "A", "html": "a.html"}], {"a.html": "<h1>a</h1>"})
    regenerated(batch, store, kind="html", text="<h1>by hand</h1>", options={"format": "A3"})
    plan = planned(batch, listed(batch), {"a.html": "<h1>a</h1>"})
    assert outcomes(plan) == {"A": "unchanged"}
    assert plan.rows[0].words == "Its content and options are those of version 1, which failed too; nothing is sent."
    assert replaced(batch, listed(batch), store, {"a.html": "<h1>a</h1>"})["renders"] == 0
    assert texts("A", store) == ["<h1>a</h1>", "<h1>by hand</h1>"]


@pytest.mark.parametrize("options", [{}, {"format": "A3"}])
def test_a_document_left_as_it_is_is_the_newest_one(options: dict[str, Any], store: DiskStore) -> None:
    batch = started(store, [{"id": "A", "html_content": "<h1>a</h1>"}])
    regenerated(batch, store, kind="html", text="<h1>by hand</h1>", options=options)
    assert outcomes(planned(batch, listed(batch))) == {"A": "unchanged"}
    assert replaced(batch, [{**listed(batch)[0], "options": {"scale": 0.5}}], store)["renders"] == 1
    assert (texts("A", store)[-1], newest("A").options) == ("<h1>by hand</h1>", {"scale": 0.5})


def test_content_that_an_earlier_version_was_saved_with_is_attached_to(store: DiskStore) -> None:
    batch = started(store, [{"id": "A", "html": "a.html"}], {"a.html": "<h1>a</h1>"})
    regenerated(batch, store, kind="html", text="<h1>by hand</h1>")
    nothing = {"failure_class": "", "failure_words": "", "failure_cause": ""}
    Job.objects.filter(version__number=1).update(state=JobState.SAVED, **nothing)
    assert outcomes(planned(batch, listed(batch), {"a.html": "<h1>a</h1>"})) == {"A": "corrected"}
    summary = replaced(batch, listed(batch), store, {"a.html": "<h1>a</h1>"})
    assert (summary["corrected"], summary["renders"]) == (1, 0)
    assert batch.items.get().version.number == 1


def test_where_several_versions_have_the_content_the_newest_of_them_decides(store: DiskStore) -> None:
    batch = started(store, [{"id": "A", "html": "a.html"}], {"a.html": "<h1>a</h1>"})
    (item,) = batch.items.all()
    assert versions.regenerate([item.pk], order=ORDER, now=NOW, store=store)[item.pk].is_done
    failed()
    regenerated(batch, store, kind="html", text="<h1>by hand</h1>")
    plan = planned(batch, listed(batch), {"a.html": "<h1>a</h1>"})
    assert "version 2, which failed too" in plan.rows[0].words


def test_a_row_that_another_batch_gave_a_newer_version_is_left_alone_and_the_others_go_on(store: DiskStore) -> None:
    batch = started(store, INLINE[:2])
    document = batch.items.get(position=0).document
    newer = DocumentVersion.objects.create(
        document=document, number=2, kind="html", input_inline=b"<h1>x</h1>", input_sha256="2" * 64, input_bytes=10
    )
    document.current_version = newer
    document.save()
    rows = [
        {**row, name: "<h1>better</h1>"} for row, name in zip(listed(batch), ("html_content", "markdown"), strict=True)
    ]
    plan = planned(batch, rows)
    assert outcomes(plan) == {"A": "left_alone", "B": "corrected"}
    assert plan.rows[0].words == "A newer version of its document exists; this row is left as it is."
    assert replaced(batch, rows, store)["renders"] == 1
    assert (plan.ok, batch.items.get(position=0).version.number) == (True, 1)


def test_a_version_made_since_the_check_is_looked_at_first(store: DiskStore) -> None:
    batch = started(store, INLINE[:1])
    with read([{**listed(batch)[0], "options": {"format": "A3"}}]) as manifest:
        plan = replacing.plan_replacement(batch, manifest, now=NOW, store=store)
        regenerated(batch, store, kind="html", text="<h1>by hand</h1>")
        with pytest.raises(IntakeRefused, match="got another version"):
            replacing.replace_rows(plan, manifest, key="1", order=ORDER, store=store, now=NOW)
    assert DocumentVersion.objects.count() == 2


# --- what stands for a document is no document ------------------------------------------------------------------------

PLACEHOLDERS = ["(document, 1,234 characters)", "(text, 1200 characters)", " (Document, 1.234 characters) "]


@pytest.mark.parametrize("words", PLACEHOLDERS)
@pytest.mark.parametrize("column", ["html_content", "markdown", "html", "url"])
def test_what_stands_for_a_document_is_refused_outside_a_correction(column: str, words: str) -> None:
    with manifests.read(upload([{"id": "A", column: words}])) as manifest:
        (problem,) = manifest.errors
    assert (problem.code, problem.column) == ("missing_field", column)
    assert "shows in place of what it does not hold" in problem.message


@pytest.mark.parametrize("corrects", [False, True])
def test_nor_is_a_file_of_it_sent(corrects: bool) -> None:
    source = upload([{"id": "A", "html": "a.html"}], {"a.html": PLACEHOLDERS[0]})
    with manifests.read(source, corrects=corrects) as manifest:
        (problem,) = manifest.errors
    assert problem.code == "missing_field"


def test_beside_another_document_it_is_one_too_many() -> None:
    row = {"id": "A", "html_content": PLACEHOLDERS[0], "markdown": "# a"}
    with read([row]) as manifest:
        assert [problem.code for problem in manifest.errors] == ["several_sources"]


# --- what is written down ---------------------------------------------------------------------------------------------


def test_the_log_names_each_document_that_was_replaced_in_statements_for_many(
    store: DiskStore, django_assert_max_num_queries: Any
) -> None:
    batch = started(store, [{"id": f"A-{number}", "html_content": f"<h1>{number}</h1>"} for number in range(40)])
    with read([{**row, "options": {"format": "A3"}} for row in listed(batch)]) as manifest:
        plan = replacing.plan_replacement(batch, manifest, now=NOW, store=store)
        with django_assert_max_num_queries(150):
            replacing.replace_rows(plan, manifest, key="1", order=ORDER, store=store, now=NOW)
    document = BatchItem.objects.get(position=7).document
    entry = AuditEntry.objects.get(subject=f"document {document.public_id}")
    assert (entry.action, entry.reason, entry.facts["from_version"], entry.facts["version"]) == (
        "regenerate",
        "The price was wrong.",
        1,
        2,
    )
    assert entry.facts["batch"] == batch.public_id
    assert AuditEntry.objects.filter(action="replace_rows").count() == 1
