"""`template`: upload, list, show and publish, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from batches.models import AuditEntry, Template, TemplateVersion, Workspace
from tests.commands.shell import run

pytestmark = pytest.mark.django_db


def test_a_template_is_uploaded_published_and_shown(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "Invoice.html"
    path.write_text("<p>{{ name }}</p>\n{{ note | default: '-' }}<img src='https://example.com/a.png'>")
    code, out, _ = run("template", "upload", str(path), "--name", "Our invoice", "--note", "First")
    assert code == 0
    assert "Version 1 of invoice was stored." in out
    assert "stays on the web" in out
    assert "template publish invoice 1" in out
    code, out, _ = run("template", "publish", "invoice", "--reason", "October", "--json")
    assert (code, json.loads(out)["published"], json.loads(out)["stale"]) == (0, 1, 0)
    assert "invoice: Our invoice, version 1 is published" in run("template", "list")[1]
    shown = run("template", "show", "invoice")[1]
    assert "name: always, line 1" in shown
    assert "note: never, line 2" in shown
    again = json.loads(run("template", "upload", str(path), "--json")[1])
    assert (again["is_new"], again["version"]) == (False, 1)
    entries = AuditEntry.objects.order_by("pk").values_list("action", "reason", "from_where")
    assert list(entries) == [
        ("upload_template", "First", "command line"),
        ("publish_template", "October", "command line"),
    ]


def test_what_is_wrong_is_told_line_by_line(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "x.html"
    path.write_text("{% include 'a' %}\n{{ a | safe }}")
    code, _, err = run("template", "upload", str(path))
    assert code == 2
    assert "Line 1, column 4: The tag include is refused" in err
    assert "Line 2, column 8: There is no filter safe." in err
    assert not Template.objects.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("upload", "gone.html"), "cannot be read"),
        (("show", "gone"), "There is no template 'gone'"),
        (("publish", "gone"), "There is no template 'gone'"),
    ],
)
def test_what_is_not_there_is_refused(workspace: Workspace, arguments: tuple[str, ...], words: str) -> None:
    code, _, err = run("template", *arguments)
    assert (code, words in err) == (2, True)


def test_a_dry_run_publishes_nothing(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "letter.html"
    path.write_text("x")
    assert "is published" in run("template", "upload", str(path), "--publish")[1]
    path.write_text("y")
    run("template", "upload", str(path))
    code, out, _ = run("template", "publish", "letter", "--dry-run")
    assert (code, out.strip()) == (0, "No document was made with another version of it.")
    assert TemplateVersion.objects.get(number=1).template.published.number == 1  # type: ignore[union-attr] # it is


def test_a_file_called_as_people_call_files_gets_the_short_name_that_the_page_would_give_it(
    workspace: Workspace, tmp_path: Path
) -> None:
    path = tmp_path / "Meine Rechnung (neu).html"
    path.write_text("x")
    assert "Version 1 of meine-rechnung-neu was stored." in run("template", "upload", str(path))[1]
