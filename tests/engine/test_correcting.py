"""Corrected rows: the list of failed rows goes out, is edited in a spreadsheet program, and comes back."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from batches import manifests, results
from batches.engine import agreed, checking, correcting, drafts, intake, replacing
from batches.engine.audit import By
from batches.manifests.choices import NO_CHOICES, Choices
from batches.models import (
    AuditEntry,
    Batch,
    Draft,
    DraftState,
    Job,
    JobState,
    Membership,
    ProviderAccount,
    Role,
    Template,
    TemplateVersion,
    Workspace,
)
from batches.storage.disk import DiskStore
from tests import factories
from tests.engine.virtual_time import VirtualClock
from tests.factories import NOW
from tests.web.conftest import make_member

CASES = Path(__file__).parent.parent / "cases"


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    store = DiskStore(tmp_path / "store")
    store.ensure()
    return store


@pytest.fixture
def person(workspace: Workspace) -> User:
    return make_member(workspace, "h.brandt", Role.MANAGER)


@pytest.fixture
def started(workspace: Workspace, account: ProviderAccount, store: DiskStore) -> Callable[..., Batch]:
    """Starts a batch of an upload; all of its documents then fail, but for those in `saved`."""

    def start(content: bytes, name: str, *, saved: tuple[str, ...] = (), choices: Choices = NO_CHOICES) -> Batch:
        source = manifests.from_upload(io.BytesIO(content), name)
        checked = intake.check(source, workspace=workspace, account=account, on_conflict="refuse", choices=choices)
        with checked.manifest:
            assert checked.ok, checked.report()["errors"]
            batch = intake.start(
                checked,
                name="March",
                actor=None,
                actor_words="submit",
                from_where="here",
                creation_key=name,
                store=store,
                now=NOW,
            )
        failure = {"failure_class": "render_failed", "failure_words": "-1 pages: it would not render."}
        jobs = Job.objects.filter(version__items__batch=batch)
        jobs.exclude(version__document__business_id__in=saved).update(state=JobState.FAILED, **failure)
        jobs.filter(version__document__business_id__in=saved).update(state=JobState.SAVED)
        return batch

    return start


def failed_list(batch: Batch) -> bytes:
    return "".join(results.failed_lines(batch)).encode()


def edited(content: bytes, edit: Callable[[dict[str, str]], Any] = lambda row: None, *, ends: str = "\r\n") -> bytes:
    """The list as a spreadsheet program saves it. `edit` changes a row in place; what returns False is left out."""
    lines = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""))
    rows = [row for row in lines if edit(row) is not False]
    written = io.StringIO(newline="")
    writer = csv.DictWriter(written, lines.fieldnames or [], lineterminator=ends)
    writer.writeheader()
    writer.writerows(rows)
    return b"\xef\xbb\xbf" + written.getvalue().encode()


@pytest.fixture
def upload(person: User, store: DiskStore) -> Callable[..., Draft]:
    """Hands corrected rows of a batch over and has them checked."""

    def hand_over(batch: Batch, content: bytes, name: str = "failed.csv", reason: str = "Prices corrected.") -> Draft:
        given = drafts.Upload(io.BytesIO(content), name, batch.workspace, batch.account, target=batch, reason=reason)
        draft = drafts.receive(given, by=By(person, "h.brandt", "here"), store=store, now=NOW)
        choices = correcting.remembered_choices(batch).as_dict()
        Draft.objects.filter(pk=draft.pk).update(choices=choices)
        drafts.ask_check(draft.pk, now=NOW)
        return worked(draft, store)

    return hand_over


def worked(draft: Draft, store: DiskStore) -> Draft:
    assert checking.work_on(draft.pk, VirtualClock(NOW), owner="a", store=store)
    return Draft.objects.get(pk=draft.pk)


@pytest.fixture
def replace(person: User, store: DiskStore) -> Callable[..., Draft]:
    def carry_out(draft: Draft, *, shown: int | None = None) -> Draft:
        renders = draft.report["renders"] if shown is None else shown  # type: ignore[index] # it was checked
        run = drafts.Run(generation=draft.generation, renders_shown=renders)
        drafts.ask_start(draft.pk, run, by=By(person, "h.brandt", "here"), now=NOW)
        return worked(draft, store)

    return carry_out


def summary(draft: Draft) -> tuple[int, ...]:
    """corrected, unchanged, left alone, refused"""
    assert draft.report is not None, draft.words
    assert not draft.report["errors"], draft.report["errors"]
    return tuple(draft.report["summary"][name] for name in ("corrected", "unchanged", "left_alone", "refused"))


def words(draft: Draft, outcome: str) -> dict[str, str]:
    assert draft.report is not None
    return {row["id"]: row["words"] for row in draft.report["rows_by_outcome"][outcome]}


def versions_of(batch: Batch) -> dict[str, int]:
    return dict(batch.items.order_by("position").values_list("document__business_id", "version__number"))


# --- the round trip ---


def manifest(*ids: str, **more: Any) -> bytes:
    return json.dumps([{"id": name, "html": f"<h1>{name}</h1>", **more} for name in ids]).encode()


HARD_IDS = ["=1+1", "+49 30", "-7", "@SUM(A1)", "'=x", "''", "'abc", "\tx".strip(), "00123", "发票-1", 'a"b,c;d', "1e5"]


def test_ids_that_look_like_formulas_come_back_as_they_were(
    started: Callable[..., Batch], upload: Callable[..., Draft], replace: Callable[..., Draft]
) -> None:
    batch = started(manifest(*HARD_IDS), "invoices.json")
    listed = failed_list(batch)
    assert b"'=1+1" in listed

    def correct(row: dict[str, str]) -> None:
        row["html"] = f"<h1>New {row['_row']}</h1>"

    draft = upload(batch, edited(listed, correct))
    assert summary(draft) == (len(HARD_IDS), 0, 0, 0)
    assert replace(draft).state == DraftState.STARTED
    assert versions_of(batch) == dict.fromkeys(HARD_IDS, 2)
    assert {row["id"] for row in batch.items.values_list("original_row", flat=True)} == set(HARD_IDS)
    assert batch.items.count() == len(HARD_IDS), "no apostrophe made a new document"


def test_case_124(started: Callable[..., Batch], upload: Callable[..., Draft], replace: Callable[..., Draft]) -> None:
    batch = started((CASES / "124-formula-ids.csv").read_bytes(), "124-formula-ids.csv")
    before = set(versions_of(batch))
    listed = failed_list(batch)
    cells = [cell for line in csv.reader(io.StringIO(listed.decode("utf-8-sig"), newline="")) for cell in line]
    assert not [cell for cell in cells if cell.lstrip()[:1] in ("=", "+", "-", "@")], "nothing runs when it is opened"
    draft = upload(batch, edited(listed, lambda row: row.update(html="<p>new</p>")))
    assert summary(draft) == (len(before), 0, 0, 0)
    replace(draft)
    assert versions_of(batch) == dict.fromkeys(before, 2)


def test_an_untouched_list_changes_nothing_though_its_documents_are_not_in_it(
    started: Callable[..., Batch], upload: Callable[..., Draft]
) -> None:
    batch = started(
        manifest("A-1", "A-2", options={"format": "A4", "landscape": True}, meta={"note": "two\r\nlines", "n": 7}),
        "invoices.json",
    )
    for ends in ("\r\n", "\n"):
        draft = upload(batch, edited(failed_list(batch), ends=ends))
        assert summary(draft) == (0, 2, 0, 0)
        assert draft.report is not None
        assert draft.report["ok"] is False, "there is nothing to replace"


def test_only_the_rows_that_were_edited_are_corrected(
    started: Callable[..., Batch], upload: Callable[..., Draft], replace: Callable[..., Draft]
) -> None:
    batch = started(manifest(*(f"A-{n}" for n in range(1, 6))), "invoices.json", saved=("A-5",))

    def correct(row: dict[str, str]) -> bool | None:
        if row["id"] == "A-2":
            row["html"] = "<h1>New</h1>"
        return False if row["id"] == "A-4" else None

    draft = upload(batch, edited(failed_list(batch), correct))
    assert summary(draft) == (1, 2, 0, 0)
    assert draft.report is not None
    assert draft.report["summary"]["untouched"] == 4
    replace(draft)
    assert versions_of(batch) == {"A-1": 1, "A-2": 2, "A-3": 1, "A-4": 1, "A-5": 1}
    (entry,) = AuditEntry.objects.filter(action="replace_rows")
    assert (entry.reason, entry.actor_words, entry.facts["summary"]["corrected"]) == (
        "Prices corrected.",
        "h.brandt",
        1,
    )


def test_options_beside_a_document_that_the_list_could_not_hold_are_corrected_and_the_document_stays(
    started: Callable[..., Batch], upload: Callable[..., Draft], replace: Callable[..., Draft]
) -> None:
    batch = started(manifest("A-1", "A-2", options={"format": "A4"}), "invoices.json")
    draft = upload(batch, edited(failed_list(batch), lambda row: row.update(options='{"format": "A5"}')))
    assert summary(draft) == (2, 0, 0, 0)
    replace(draft)
    versions = [item.version for item in batch.items.order_by("position").select_related("version")]
    assert [(each.number, each.options) for each in versions] == [(2, {"format": "A5"})] * 2
    assert [bytes(each.input_inline or b"") for each in versions] == [b"<h1>A-1</h1>", b"<h1>A-2</h1>"]


def test_columns_that_were_mapped_are_completed_by_what_they_become(
    started: Callable[..., Batch],
    upload: Callable[..., Draft],
    replace: Callable[..., Draft],
    person: User,
) -> None:
    choices = Choices(mapping={"Nr": "id", "Inhalt": "html_content", "Format": "option.format"})
    long = f"<h1>{'x' * 12_000}</h1>"
    batch = started(f"Nr;Inhalt;Format\r\n001;{long};A4\r\n002;{long};A4\r\n".encode(), "texte.csv", choices=choices)
    Draft.objects.create(
        public_id="dft_of_batch",
        workspace=batch.workspace,
        account=batch.account,
        batch=batch,
        filename="texte.csv",
        upload_key="k",
        upload_sha256="0" * 64,
        upload_bytes=1,
        choices=choices.as_dict(),
        created_by=person,
    )
    listed = failed_list(batch)
    assert b"(text, 12,009 characters)" in listed
    assert summary(upload(batch, edited(listed))) == (0, 2, 0, 0)
    draft = upload(batch, edited(listed, lambda row: row.update(Format="A5") if row["Nr"] == "002" else None))
    assert summary(draft) == (1, 1, 0, 0)
    replace(draft)
    version = batch.items.get(document__business_id="002").version
    assert (version.number, version.options, bytes(version.input_inline or b"").decode()) == (2, {"format": "A5"}, long)
    assert batch.items.get(document__business_id="002").original_row["Inhalt"] == "(text, 12,009 characters)"


def test_data_of_a_template_that_the_list_could_not_hold_is_no_content(
    started: Callable[..., Batch], upload: Callable[..., Draft], workspace: Workspace, person: User
) -> None:
    template = Template.objects.create(workspace=workspace, slug="letter", name="Letter")
    source = "<p>{{ name }}: {{ body }}</p>"
    template.published = TemplateVersion.objects.create(template=template, number=1, source=source, sha256="0" * 64)
    template.save()
    rows = [{"id": f"A-{n}", "template": "letter", "name": "Ada", "body": "x" * 12_000} for n in range(2)]
    batch = started(json.dumps(rows).encode(), "letters.json")
    listed = failed_list(batch)
    choices = Choices(mapping={"id": "id", "template": "template", "name": "data.name", "body": "data.body"})
    Draft.objects.create(
        public_id="dft_of_batch",
        workspace=workspace,
        account=batch.account,
        batch=batch,
        filename="letters.json",
        upload_key="k",
        upload_sha256="0" * 64,
        upload_bytes=1,
        choices=choices.as_dict(),
        created_by=person,
    )
    assert summary(upload(batch, edited(listed))) == (0, 2, 0, 0)
    draft = upload(batch, edited(listed, lambda row: row.update(name="Bob")))
    assert draft.report is not None
    (problem,) = draft.report["errors"]
    assert (problem["code"], problem["count"]) == ("unresolved_placeholder", 2)
    assert "it is no content" in problem["message"]


def test_a_zip_batch_takes_the_list_with_the_corrected_files(
    started: Callable[..., Batch], upload: Callable[..., Draft], replace: Callable[..., Draft]
) -> None:
    def zipped(files: dict[str, str | bytes]) -> bytes:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        return packed.getvalue()

    rows = [{"id": f"A-{n}", "html": f"pages/{n}.html"} for n in range(1, 4)]
    pages: dict[str, str | bytes] = {f"pages/{n}.html": f"<h1>{n}</h1>" for n in range(1, 4)}
    batch = started(zipped({"manifest.json": json.dumps(rows), **pages}), "invoices.zip")
    listed = failed_list(batch)
    assert summary(upload(batch, edited(listed))) == (0, 3, 0, 0)
    draft = upload(batch, edited(listed, lambda row: row.update(html=f"new/{row['id']}.html")))
    assert draft.report is not None
    (problem,) = draft.report["errors"]
    assert "ZIP" in problem["fix"], problem
    with_files = zipped({"manifest.csv": edited(listed), "pages/2.html": "<h1>Two</h1>"})
    draft = upload(batch, with_files, "corrected.zip")
    assert summary(draft) == (1, 2, 0, 0)
    replace(draft)
    assert versions_of(batch) == {"A-1": 1, "A-2": 2, "A-3": 1}


def test_rows_of_a_template_come_back_with_their_cells_and_keep_their_mapping(
    started: Callable[..., Batch],
    upload: Callable[..., Draft],
    replace: Callable[..., Draft],
    workspace: Workspace,
    person: User,
) -> None:
    template = Template.objects.create(workspace=workspace, slug="invoice", name="Invoice")
    source = "<h1>{{ id }}</h1><p>{{ customer.name }}: {{ total }}</p>"
    template.published = TemplateVersion.objects.create(template=template, number=1, source=source, sha256="0" * 64)
    template.save()
    choices = Choices(
        mapping={"Nr": "id", "Kunde": "data.customer.name", "Summe": "data.total", "Notiz": ""}, template="invoice"
    )
    table = 'Nr;Kunde;Summe;Notiz\r\n007;Müller;-5,00;"zwei\nZeilen"\r\n008;Söhne;=2,50;\r\n'.encode()
    batch = started(table, "rechnungen.csv", choices=choices)
    Draft.objects.create(
        public_id="dft_of_batch",
        workspace=workspace,
        account=batch.account,
        batch=batch,
        filename="rechnungen.csv",
        upload_key="k",
        upload_sha256="0" * 64,
        upload_bytes=1,
        choices=choices.as_dict(),
        created_by=person,
    )
    assert summary(upload(batch, edited(failed_list(batch)))) == (0, 2, 0, 0)
    draft = upload(batch, edited(failed_list(batch), lambda row: row.update(Summe="6,00") if row["Nr"] == "007" else 0))
    assert summary(draft) == (1, 1, 0, 0)
    replace(draft)
    version = batch.items.get(document__business_id="007").version
    assert version.template_data["total"] == "6,00"
    assert bytes(version.input_inline or b"").decode() == "<h1>007</h1><p>Müller: 6,00</p>"
    assert versions_of(batch) == {"007": 2, "008": 1}


# --- what spreadsheets and people do to it ---


def test_zeros_that_a_spreadsheet_cut_never_reach_another_document(
    started: Callable[..., Batch], upload: Callable[..., Draft], replace: Callable[..., Draft]
) -> None:
    batch = started(manifest("0012", "12", "7"), "invoices.json")

    def cut(row: dict[str, str]) -> bool | None:
        row["html"] = f"<h1>New {row['id']}</h1>"
        if row["id"] == "12":
            return False
        row["id"] = row["id"].lstrip("0")
        return None

    draft = upload(batch, edited(failed_list(batch), cut))
    assert summary(draft) == (2, 0, 0, 1)
    assert "Row 0 of the batch has the id “0012”." in words(draft, "refused")["12"]
    assert draft.report is not None
    assert not draft.report["ok"]
    with pytest.raises(drafts.Refused):
        replace(draft)
    assert set(versions_of(batch).values()) == {1}


def test_a_row_that_the_batch_has_not_is_refused(started: Callable[..., Batch], upload: Callable[..., Draft]) -> None:
    batch = started(manifest("A-1"), "invoices.json")
    draft = upload(batch, manifest("A-1", "B-9", meta={"x": 1}), "corrected.json")
    assert summary(draft) == (0, 1, 0, 1)
    assert words(draft, "refused") == {"B-9": replacing.NO_SUCH_ROW}


def test_the_same_row_twice_is_an_error_of_the_file(
    started: Callable[..., Batch], upload: Callable[..., Draft]
) -> None:
    batch = started(manifest("A-1"), "invoices.json")
    twice = json.dumps([{"id": "A-1", "html": "<p>1</p>"}, {"id": "A-1", "html": "<p>2</p>"}]).encode()
    draft = upload(batch, twice, "corrected.json")
    assert draft.report is not None
    assert [problem["code"] for problem in draft.report["errors"]] == ["duplicate_id"]


def test_a_row_that_was_saved_meanwhile_is_left_alone(
    started: Callable[..., Batch], upload: Callable[..., Draft], replace: Callable[..., Draft]
) -> None:
    batch = started(manifest("A-1", "A-2"), "invoices.json")
    draft = upload(batch, edited(failed_list(batch), lambda row: row.update(html=f"<p>{row['id']} new</p>")))
    assert summary(draft) == (2, 0, 0, 0)
    Job.objects.filter(version__document__business_id="A-2").update(state=JobState.SAVED, failure_class="")
    replace(draft)
    assert versions_of(batch) == {"A-1": 2, "A-2": 1}


def test_more_than_was_shown_is_not_sent(
    started: Callable[..., Batch], upload: Callable[..., Draft], replace: Callable[..., Draft]
) -> None:
    batch = started(manifest("A-1", "A-2"), "invoices.json")
    draft = upload(batch, edited(failed_list(batch), lambda row: row.update(html=f"<p>{row['id']} new</p>")))
    done = replace(draft, shown=1)
    assert (done.state, done.words) == (DraftState.CHECKED, agreed.MORE_RENDERS)
    assert set(versions_of(batch).values()) == {1}


def test_rows_of_a_template_that_was_published_since_the_check_are_looked_at_first(
    workspace: Workspace, started: Callable[..., Batch], upload: Callable[..., Draft], replace: Callable[..., Draft]
) -> None:
    factories.make_template_version(workspace=workspace, source="<p>{{ name }}</p>", slug="letter")
    rows = [{"id": "A-1", "template": "letter", "name": "Ada"}]
    batch = started(json.dumps(rows).encode(), "letters.json")
    draft = upload(batch, edited(failed_list(batch), lambda row: row.update(name="Ada L.")))
    factories.make_template_version(workspace=workspace, source="<h1>{{ name }}</h1>", slug="letter")
    done = replace(draft)
    assert (done.state, done.words) == (DraftState.CHECKED, agreed.OTHER_CONTENT)
    assert versions_of(batch) == {"A-1": 1}
    assert replace(done).state == DraftState.STARTED


def test_a_worker_that_died_after_the_replacement_leaves_it_done_whatever_changed_since(
    started: Callable[..., Batch],
    upload: Callable[..., Draft],
    replace: Callable[..., Draft],
    store: DiskStore,
    person: User,
) -> None:
    batch = started(manifest("A-1"), "invoices.json")
    draft = upload(batch, edited(failed_list(batch), lambda row: row.update(html="<p>new</p>")))
    assert replace(draft).state == DraftState.STARTED
    Draft.objects.update(state=DraftState.STARTING, due_at=NOW)
    Membership.objects.filter(user=person).delete()
    assert worked(draft, store).state == DraftState.STARTED
    assert versions_of(batch) == {"A-1": 2}


def test_whoever_lost_the_right_meanwhile_replaces_nothing(
    started: Callable[..., Batch], upload: Callable[..., Draft], replace: Callable[..., Draft], person: User
) -> None:
    batch = started(manifest("A-1"), "invoices.json")
    draft = upload(batch, edited(failed_list(batch), lambda row: row.update(html="<p>new</p>")))
    person.memberships.update(role=Role.VIEWER)
    done = replace(draft)
    assert (done.state, done.words) == (DraftState.CHECKED, correcting.NO_RIGHT)
    assert versions_of(batch) == {"A-1": 1}


def test_a_worker_that_dies_after_it_replaced_the_rows_replaces_them_once(
    started: Callable[..., Batch],
    upload: Callable[..., Draft],
    replace: Callable[..., Draft],
    monkeypatch: pytest.MonkeyPatch,
    store: DiskStore,
) -> None:
    class Died(BaseException):
        pass

    def dies(*given: object, **named: object) -> bool:
        raise Died

    batch = started(manifest("A-1"), "invoices.json")
    draft = upload(batch, edited(failed_list(batch), lambda row: row.update(html="<p>new</p>")))
    with monkeypatch.context() as patch:
        patch.setattr(drafts, "end_turn", dies)
        with pytest.raises(Died):
            replace(draft)
    assert versions_of(batch) == {"A-1": 2}
    Draft.objects.update(lease_until=NOW, lease_owner="dead")
    clock = VirtualClock(NOW)
    clock.advance(1)
    assert checking.work_on(draft.pk, clock, owner="b", store=store)
    assert Draft.objects.get().state == DraftState.STARTED
    assert versions_of(batch) == {"A-1": 2}
    assert AuditEntry.objects.filter(action="replace_rows").count() == 1


def test_a_thousand_rows_come_back(
    started: Callable[..., Batch], upload: Callable[..., Draft], replace: Callable[..., Draft]
) -> None:
    ids = [f"{n:05}" for n in range(1000)]
    batch = started(manifest(*ids), "invoices.json")

    def correct(row: dict[str, str]) -> None:
        if int(row["_row"]) % 2:
            row["html"] = f"<h1>New {row['id']}</h1>"

    draft = upload(batch, edited(failed_list(batch), correct))
    assert summary(draft) == (500, 500, 0, 0)
    replace(draft)
    assert sum(number == 2 for number in versions_of(batch).values()) == 500


def test_any_file_may_hold_the_corrected_rows(
    started: Callable[..., Batch], upload: Callable[..., Draft], replace: Callable[..., Draft]
) -> None:
    batch = started(manifest("A-1", "A-2"), "invoices.json")
    draft = upload(batch, "id;html\r\nA-2;<p>neu €</p>\r\n".encode(), "korrektur.csv")
    assert summary(draft) == (1, 0, 0, 0)
    replace(draft)
    assert versions_of(batch) == {"A-1": 1, "A-2": 2}


def test_what_is_no_manifest_ends_in_a_sentence(started: Callable[..., Batch], upload: Callable[..., Draft]) -> None:
    batch = started(manifest("A-1"), "invoices.json")
    draft = upload(batch, b"%PDF-1.7", "failed.csv")
    assert draft.state == DraftState.CHECKED
    assert draft.report is not None
    assert draft.report["ok"] is False
    assert draft.report["errors"]


def test_a_table_of_somebodys_own_keeps_its_quotes() -> None:
    table = b"id,html\r\n'=1,<p>x</p>\r\n"
    with manifests.read(manifests.from_upload(io.BytesIO(table), "a.csv")) as read:
        assert [row.business_id for row in read.rows] == ["'=1"]
