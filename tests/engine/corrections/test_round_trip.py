"""Corrected rows: the list of failed rows goes out, is edited in a spreadsheet program, and comes back."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

from django.contrib.auth.models import User

from batches.manifests.choices import Choices
from batches.models import AuditEntry, Batch, Draft, DraftState, Template, TemplateVersion, Workspace
from tests.engine.corrections.lists import edited, failed_list, manifest, summary, versions_of

CASES = Path(__file__).parent.parent.parent / "cases"


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
