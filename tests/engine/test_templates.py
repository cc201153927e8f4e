"""Our own templates: uploaded whole or not at all, numbered under races, published, and what that leaves stale."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django_q.models import OrmQ

from batches import manifests, tasks
from batches.engine import publishing, staleness, storeorphans, template_uploads, templates, versions
from batches.engine.audit import By
from batches.engine.errors import TemplateRule
from batches.engine.orders import NewInput, Order
from batches.engine.template_uploads import Uploaded
from batches.manifests.problems import Code, Unfit
from batches.manifests.templates import MissingField, RowTemplate
from batches.models import AuditEntry, Batch, BatchItem, Document, Job, Template, TemplateVersion, Workspace
from batches.storage import open_store
from batches.templating import TemplateRefused
from tests.engine import racing
from tests.factories import NOW, make_job, make_saved_job, make_template_version, make_workspace

BY = By(None, "m.okoye", "a test")
CASES = Path(__file__).resolve().parent.parent / "cases"
PNG = b"\x89PNG\r\n\x1a\ninvented"


def zipped(**files: bytes | str) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "/").replace("_", "."), content)
    return held.getvalue()


def checked(content: bytes | str, name: str = "invoice.html") -> template_uploads.Checked:
    return template_uploads.checked(io.BytesIO(content.encode() if isinstance(content, str) else content), name)


def hand_over(workspace: Workspace, content: bytes | str, *, slug: str = "invoice", **options: Any) -> Uploaded:
    return template_uploads.upload(
        checked(content),
        workspace=workspace,
        slug=slug,
        **{"name": "Invoice", "note": "", "by": BY, "store": open_store(settings.STORAGE_URL), "now": NOW} | options,
    )


def refused(content: bytes | str) -> list[str]:
    with pytest.raises(TemplateRefused) as reason:
        checked(content)
    return [str(problem) for problem in reason.value.problems]


# --- finding one for a row --------------------------------------------------------------------------------------------


def test_a_row_gets_the_published_version_or_the_one_that_it_pins(workspace: Workspace) -> None:
    first = make_template_version(workspace=workspace, source="<p>one {{ name }}</p>")
    make_template_version(workspace=workspace, source="<p>two {{ name }}</p>", is_published=False)
    found = templates.of(workspace)
    published: RowTemplate = found.find("invoice", None)
    assert (published.key, published.slug, published.number) == (first.pk, "invoice", 1)
    assert published.fill({"name": "A & B"}) == "<p>one A &amp; B</p>"
    assert found.find("invoice", 2).fill({"name": "x"}) == "<p>two x</p>"
    assert dict(published.fields) == {"name": (1,)}


@pytest.mark.parametrize(
    ("slug", "number", "code", "words"),
    [
        ("gone", None, Code.UNKNOWN_TEMPLATE, 'no template called "gone"'),
        ("a\0b", None, Code.UNKNOWN_TEMPLATE, "no template called"),
        ("other", None, Code.UNKNOWN_TEMPLATE, "no template called"),
        ("old", None, Code.UNKNOWN_TEMPLATE, "is archived"),
        ("old", 1, Code.UNKNOWN_TEMPLATE, "is archived"),
        ("draft", None, Code.TEMPLATE_NOT_PUBLISHED, "No version"),
        ("draft", 2, Code.UNKNOWN_TEMPLATE, "no version 2"),
        ("draft", 0, Code.UNKNOWN_TEMPLATE, "no version 0"),
        ("draft", 10**12, Code.UNKNOWN_TEMPLATE, "no version"),
    ],
)
def test_what_cannot_be_found_is_told(
    workspace: Workspace, slug: str, number: int | None, code: Code, words: str, django_assert_num_queries: Any
) -> None:
    make_template_version(workspace=make_workspace(), source="x", slug="other")
    make_template_version(workspace=workspace, source="x", slug="draft", is_published=False)
    make_template_version(workspace=workspace, source="x", slug="old")
    Template.objects.filter(slug="old").update(archived_at=NOW)
    found = templates.of(workspace)
    for _ in range(2):
        with pytest.raises(Unfit, match=words) as unfit:
            found.find(slug, number)
        assert unfit.value.code == code
    with django_assert_num_queries(0), pytest.raises(Unfit):
        found.find(slug, number)


def test_a_row_that_does_not_fit_is_told_in_words_of_its_own(workspace: Workspace) -> None:
    make_template_version(workspace=workspace, source="\n{{ customer.name }}{{ total | money: 'EUR', 'de' }}")
    template = templates.of(workspace).find("invoice", None)
    with pytest.raises(MissingField) as missing:
        template.fill({"customer": {}, "total": "1"})
    assert missing.value.path == "customer.name"
    assert (missing.value.code, missing.value.message) == (
        Code.MISSING_FIELD,
        "The row has no customer.name. (Template invoice v1, line 2.)",
    )
    with pytest.raises(Unfit, match='total: "12,50" is not a number') as unfit:
        template.fill({"customer": {"name": "x"}, "total": "12,50"})
    assert unfit.value.code == Code.BAD_FIELD


# --- uploading --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"total": "8.5O"}, [("missing_field", "terms"), ("bad_field", "template")]),
        ({"total": "8.50"}, [("missing_field", "terms")]),
        ({"total": "8.50", "terms": "30 days"}, [("missing_field", "due"), ("missing_field", "lines")]),
        ({}, [("missing_field", "terms"), ("missing_field", "total")]),
    ],
)
def test_a_value_that_is_wrong_is_told_beside_the_fields_that_are_missing_and_nothing_that_stands_in_for_them(
    workspace: Workspace, data: dict[str, str], expected: list[tuple[str, str]]
) -> None:
    source = '{{ terms }}{{ total | money: "EUR", "en" }}'
    if "terms" in data:
        source += '{{ due | date: "long", "de" }}{% for line in lines %}{{ line }}{% endfor %}'
    make_template_version(workspace=workspace, source=source)
    rows = json.dumps([{"id": "A-1", "template": "invoice", "data": data}]).encode()
    upload = manifests.from_upload(io.BytesIO(rows), "rows.json")
    with manifests.read(upload, templates=templates.of(workspace)) as manifest:
        assert [(error.code, error.column) for error in manifest.errors] == expected


def test_an_upload_is_the_next_version_with_its_files_inside_and_is_kept_as_it_came(workspace: Workspace) -> None:
    given = zipped(template_html='<img src="img/logo.png">{{ name }}', img__logo_png=PNG)
    made = hand_over(workspace, given, note="First try")
    version = TemplateVersion.objects.get()
    assert made == Uploaded(version, is_new=True)
    assert version.source.startswith('<img src="data:image/png;base64,')
    assert version.fields == [{"path": "name", "lines": [1], "need": "always", "sample": ""}]
    with open_store(settings.STORAGE_URL).open(version.given_key) as kept:
        assert kept.read() == given
    assert storeorphans.named([version.given_key, version.given_key[:-1] + "x"]) == {version.given_key}
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.subject, entry.reason) == ("upload_template", "template invoice", "First try")
    assert version.template.published is None


def test_the_same_source_again_is_no_new_version_and_an_older_one_is(workspace: Workspace) -> None:
    assert hand_over(workspace, "<p>1</p>").version.number == 1
    again = hand_over(workspace, "<p>1</p>")
    assert (again.version.number, again.is_new) == (1, False)
    assert hand_over(workspace, "<p>2</p>").version.number == 2
    assert hand_over(workspace, "<p>1</p>").version.number == 3
    assert AuditEntry.objects.count() == 3


@pytest.mark.django_db(transaction=True)
def test_uploads_at_once_get_numbers_of_their_own() -> None:
    workspace = make_workspace()
    calls = [lambda number=number: hand_over(workspace, f"<p>{number}</p>") for number in range(4)]
    calls += [lambda: hand_over(workspace, "<p>0</p>", slug="other")] * 2
    made = racing.answers(calls)
    assert sorted(each.version.number for each in made[:4]) == [1, 2, 3, 4]
    assert sorted(each.is_new for each in made[4:]) == [False, True]
    assert Template.objects.count() == 2


@pytest.mark.parametrize(
    ("slug", "options", "words"),
    [
        ("new", {}, "cannot be called new"),
        ("In voice", {}, "small letters"),
        ("-x", {}, "small letters"),
        ("x" * 61, {}, "small letters"),
        ("invoice", {"is_first": True}, "There is a template invoice already"),
        ("gone", {"is_first": False}, "There is no template gone"),
        ("old", {}, "is archived"),
    ],
)
def test_a_template_that_cannot_be_called_so_is_refused(
    workspace: Workspace, slug: str, options: dict[str, Any], words: str
) -> None:
    make_template_version(workspace=workspace, source="x")
    make_template_version(workspace=workspace, source="x", slug="old")
    Template.objects.filter(slug="old").update(archived_at=NOW)
    with pytest.raises(TemplateRule, match=words):
        hand_over(workspace, "y", slug=slug, **options)
    assert TemplateVersion.objects.count() == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"%PDF-1.7", "looks like a PDF"),
        ("\xe4".encode("latin-1"), "is not utf-8"),
        (b"<p>" + b"x" * 5_000_000, "5.0 MB large"),
        (zipped(logo_png=PNG), "There is no HTML file in the ZIP"),
        (zipped(a_html="x", b_html="y"), "more than one HTML file"),
        (zipped(deep__deeper__a_html="x"), "There is no HTML file"),
        (zipped(template_html='<img src="gone.png">'), '"gone.png" is not in the ZIP'),
        (zipped(template_html='<img src="../x.png">'), "leads out of its folder"),
        ('<img src="logo.png">', 'came without the file "logo.png"'),
        ((CASES / "128-zip-slip.zip").read_bytes(), "not safe"),
        ((CASES / "025-encrypted.zip").read_bytes(), "password"),
        ((CASES / "130-size-lies.zip").read_bytes(), ""),
        ((CASES / "131-template.html").read_bytes(), "Line 1, column 214: There is no tag debug."),
    ],
)  # fmt: skip
def test_an_upload_that_cannot_be_used_is_told_why(content: bytes | str, words: str) -> None:
    assert words in " ".join(refused(content))


def test_all_that_is_wrong_is_told_at_once_by_line() -> None:
    source = '<img src="gone.png">\n{% include "x" %}\n<td width={{ w }}>\n{{ a | safe }}'
    assert [told.split(",")[0].split(":")[0] for told in refused(source)] == ["Line 1", "Line 2", "Line 3", "Line 4"]


def test_the_template_may_stand_one_folder_down_beside_its_files() -> None:
    content = zipped(tpl__page_html='<link rel=stylesheet href="a.css">{{ x }}', tpl__a_css="b{}", MACOSX="")
    assert checked(content).source == "<style>b{}</style>{{ x }}"


def test_what_lies_on_the_web_is_a_warning() -> None:
    (warning,) = checked('<img src="https://example.com/a.png">').warnings
    assert "stays on the web" in warning.message


# --- publishing -------------------------------------------------------------------------------------------------------


def test_publishing_rolling_back_and_archiving_are_written_down_and_make_nothing(workspace: Workspace) -> None:
    template = make_template_version(workspace=workspace, source="1", is_published=False).template
    make_template_version(workspace=workspace, source="2", is_published=False)
    assert publishing.publish(template.pk, 2, by=BY, now=NOW, reason="October")
    assert not publishing.publish(template.pk, 2, by=BY, now=NOW)
    assert publishing.publish(template.pk, 1, by=BY, now=NOW)
    assert publishing.unpublish(template.pk, by=BY, now=NOW)
    assert not publishing.unpublish(template.pk, by=BY, now=NOW)
    assert publishing.archive(template.pk, is_archived=True, by=BY, now=NOW)
    assert not publishing.archive(template.pk, is_archived=True, by=BY, now=NOW)
    with pytest.raises(TemplateRule, match="archived"):
        publishing.publish(template.pk, 1, by=BY, now=NOW)
    assert publishing.archive(template.pk, is_archived=False, by=BY, now=NOW)
    with pytest.raises(TemplateRule, match="no version 9"):
        publishing.publish(template.pk, 9, by=BY, now=NOW)
    told = AuditEntry.objects.order_by("pk").values_list("action", "facts", "reason")
    assert list(told) == [
        ("publish_template", {"version": 2}, "October"),
        ("publish_template", {"version": 1, "before": 2}, ""),
        ("unpublish_template", {"before": 1}, ""),
        ("archive_template", {}, ""),
        ("restore_template", {}, ""),
    ]
    assert not Job.objects.exists()
    assert OrmQ.objects.count() == 2


# --- what it leaves stale ---------------------------------------------------------------------------------------------


def made_of(version: TemplateVersion, batch: Batch, business_id: str, **data: Any) -> Document:
    """A document that the version made."""
    text = templates.fillable(version).fill(data)
    job = make_saved_job(batch=batch, business_id=business_id)
    job.version.input_inline = text.encode()
    job.version.input_sha256 = manifests.fingerprint("html", text, {})
    job.version.template_version = version
    job.version.template_data = data
    job.version.save()
    return job.version.document


@pytest.fixture
def invoice(batch: Batch) -> Callable[[str], TemplateVersion]:
    def make(source: str) -> TemplateVersion:
        return make_template_version(workspace=batch.workspace, source=source, is_published=False)

    return make


def test_a_look_tells_which_documents_would_get_another_text(batch: Batch, invoice: Any) -> None:
    first = invoice("<p>{{ name }}</p>{% if vat %}{{ vat }}{% endif %}")
    second = invoice("<p>{{ name }}</p>{% if vat %}VAT {{ vat }}{% endif %}")
    third = invoice("<p>{{ name }}</p>{{ place }}")
    other = make_template_version(workspace=batch.workspace, source="{{ name }}", slug="letter")
    made_of(first, batch, "A-1", name="a")
    made_of(first, batch, "A-2", name="b", vat="7")
    made_of(second, batch, "A-3", name="c", vat="7")
    made_of(other, batch, "A-4", name="d")
    make_job(batch=batch, business_id="A-5")
    found = staleness.look(second)
    assert (found.examined, found.same, found.after) == (2, 1, None)
    assert [(each.business_id, each.template_number) for each in found.stale] == [("A-2", 1)]
    none = staleness.look(third)
    assert [each.business_id for each in none.unfillable] == ["A-1", "A-2", "A-3"]
    assert "The row has no place." in none.unfillable[0].words


def test_a_look_ends_and_says_where_to_go_on(batch: Batch, invoice: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = invoice("{{ n }}"), invoice("no {{ n }}")
    documents = [made_of(first, batch, f"A-{number}", n=number) for number in range(5)]
    found = staleness.look(second, most=2)
    assert (found.examined, len(found.stale), found.after) == (2, 2, documents[1].pk)
    rest = staleness.look(second, after=documents[1].pk, most=3)
    assert (rest.examined, rest.after) == (3, None)
    monkeypatch.setattr(staleness, "BYTES_MOST", 5)
    assert staleness.look(second).examined == 2


def test_publishing_marks_what_is_stale_and_rolling_back_takes_the_mark_off(batch: Batch, invoice: Any) -> None:
    first, _ = invoice("{{ n }}"), invoice("{% if n > 1 %}more {% endif %}{{ n }}")
    same, stale = (made_of(first, batch, f"A-{number}", n=number) for number in (1, 2))
    offered = made_of(first, batch, "A-3", n=0)
    Document.objects.filter(pk=offered.pk).update(source_sha256="f" * 64, source_seen_at=NOW)
    publishing.publish(first.template_id, 2, by=BY, now=NOW)
    assert staleness.mark(first.template_id, now=NOW) == 1
    for each in (same, stale, offered):
        each.refresh_from_db()
    assert (same.source_sha256, offered.source_sha256) == ("", "f" * 64)
    assert stale.source_sha256 == manifests.fingerprint("html", "more 2", {})
    told = staleness.of_document(stale)
    assert told is not None
    assert (told.made, told.published, told.sha256, told.is_same) == (1, 2, stale.source_sha256, False)
    publishing.publish(first.template_id, 1, by=BY, now=NOW)
    assert staleness.mark(first.template_id, now=NOW) == 1
    assert staleness.mark(first.template_id, now=NOW) == 0, "all are examined"
    stale.refresh_from_db()
    offered.refresh_from_db()
    assert (stale.source_sha256, stale.source_seen_at, offered.source_sha256) == ("", None, "f" * 64)
    assert staleness.of_document(stale) is None


def test_marking_goes_on_in_slices(batch: Batch, invoice: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = invoice("{{ n }}"), invoice("no {{ n }}")
    for number in range(5):
        made_of(first, batch, f"A-{number}", n=number)
    publishing.publish(second.template_id, 2, by=BY, now=NOW)
    monkeypatch.setattr(staleness, "EXAMINED_MOST", 2)
    assert [staleness.mark(first.template_id, now=NOW) for _ in range(4)] == [2, 2, 1, 0]
    assert not Document.objects.filter(source_sha256="").exists()


def test_marking_goes_on_where_whoever_did_it_was_killed(
    batch: Batch, invoice: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = invoice("{{ n }}"), invoice("no {{ n }}")
    for number in range(3):
        made_of(first, batch, f"A-{number}", n=number)
    publishing.publish(second.template_id, 2, by=BY, now=NOW)
    monkeypatch.setattr(staleness, "EXAMINED_MOST", 2)
    staleness.mark(first.template_id, now=NOW)
    OrmQ.objects.all().delete()  # the message of the next slice is gone with its taker
    tasks.ensure_pumps()
    assert [message.func() for message in OrmQ.objects.all()] == ["batches.tasks.mark_stale"]
    assert staleness.mark(first.template_id, now=NOW) == 1
    OrmQ.objects.all().delete()
    tasks.ensure_pumps()
    assert not OrmQ.objects.exists()


def test_what_is_regenerated_keeps_what_made_it(batch: Batch, invoice: Any) -> None:
    first, second = invoice("{{ n }}"), invoice("no {{ n }}")
    document = made_of(first, batch, "A-1", n=1)
    item = BatchItem.objects.get(document=document)
    order = Order(by=BY, reason="Again", is_confirmed=True)
    assert versions.regenerate([item.pk], order=order, now=NOW)[item.pk].is_done
    assert current(document) == (2, first.pk, {"n": 1})
    made = NewInput("html", "no 7", template_version_id=second.pk, template_data={"n": 7})
    order = Order(by=BY, reason="Newer", is_confirmed=True, inputs={item.pk: made})
    assert versions.regenerate([item.pk], order=order, now=NOW)[item.pk].is_done
    assert current(document) == (3, second.pk, {"n": 7})
    order = Order(by=BY, reason="By hand", is_confirmed=True, inputs={item.pk: NewInput("html", "by hand")})
    assert versions.regenerate([item.pk], order=order, now=NOW)[item.pk].is_done
    assert current(document) == (4, None, None)


def current(document: Document) -> tuple[int, int | None, Any]:
    document.refresh_from_db()
    version = document.current_version
    assert version is not None
    return version.number, version.template_version_id, version.template_data
