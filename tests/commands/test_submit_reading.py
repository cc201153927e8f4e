"""`submit` of files that do not speak for themselves: how they are read is said beside them."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from batches.models import Batch, DocumentVersion, Template, TemplateVersion
from tests.commands.shell import run

pytestmark = pytest.mark.django_db

SEMICOLONS = "Nr;Kunde;Betrag\nR-1;Müller;1,50\nR-2;Größe;\n"


@pytest.fixture
def invoices(tmp_path: Path, default_workspace: Any) -> Path:
    """A table that says neither its encoding nor what its columns are, and a template for it."""
    template = Template.objects.create(workspace=default_workspace, slug="invoice", name="Invoice")
    for number in (1, 2):
        source = f"<!doctype html><h1>{{{{ customer }}}} {number}</h1>"
        TemplateVersion.objects.create(template=template, number=number, source=source, sha256="a" * 64)
    template.published = template.versions.get(number=2)
    template.save()
    path = tmp_path / "april.csv"
    path.write_bytes(SEMICOLONS.encode("cp1252"))
    return path


MAPPED = ("--encoding", "cp1252", "--map", "Nr=id", "--map", "Kunde=data.customer", "--template", "invoice")


@pytest.mark.usefixtures("sandbox")
def test_a_table_is_read_as_it_is_told(invoices: Path) -> None:
    assert run("submit", str(invoices), *MAPPED)[0] == 0
    texts = [
        bytes(text).decode() for text in DocumentVersion.objects.order_by("pk").values_list("input_inline", flat=True)
    ]
    assert texts == ["<!doctype html><h1>Müller 2</h1>", "<!doctype html><h1>Größe 2</h1>"]
    code, _, err = run(
        "submit", str(invoices), *MAPPED, "--template-version", "1", "--on-conflict", "new-version", "--confirm"
    )
    assert code == 0, err
    assert DocumentVersion.objects.filter(number=2).count() == 2


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "choose the encoding that it has"),
        ((), "--encoding cp1252 says so here"),
        (("--encoding", "cp1252"), "--map 'Invoice no=id' says so here"),
        (("--encoding", "cp1252", "--map", "Nummer=id"), "no column 'Nummer'"),
        (("--encoding", "cp1252", "--map", "Nr"), "--map takes COLUMN=TARGET"),
        (("--template-version", "1"), "give --template as well"),
        (("--template", "x", "--template-at-provider"), "it is pinned"),
        (("--encoding", "cp1252", "--map", "Nr=id", "--template", "letter"), "no template called"),
        (("--encoding", "no such", "--map", "Nr=id"), "no such"),
    ],
)
def test_what_cannot_be_read_as_it_is_told_is_refused_in_words(
    options: tuple[str, ...], words: str, invoices: Path
) -> None:
    code, _, err = run("submit", str(invoices), *options)
    assert (code, words in err) == (2, True), err
    assert not Batch.objects.exists()


@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_the_good_rows_are_started_where_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "mixed.json"
    path.write_text(json.dumps([{"id": "A", "html_content": "<p>1</p>"}, {"html_content": "<p>2</p>"}]))
    assert run("submit", str(path))[0] == 2
    code, out, err = run("submit", str(path), "--take", "good")
    assert (code, Batch.objects.get().items.count()) == (0, 1)
    assert "Left out, the other rows are taken: 1 kind of error." in err
    assert "1 of 2 rows are left out." in err
    assert "Refused" not in err + out


@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_html_files_without_a_manifest_need_to_be_confirmed(tmp_path: Path) -> None:
    path = tmp_path / "pages.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.html", "<!doctype html><p>a</p>")
        archive.writestr("b.html", "<!doctype html><p>b</p>")
    assert run("submit", str(path))[0] == 2
    assert run("submit", str(path), "--propose-rows")[0] == 0
    assert sorted(Batch.objects.get().items.values_list("document__business_id", flat=True)) == ["a", "b"]
