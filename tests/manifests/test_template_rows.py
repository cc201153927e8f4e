"""Rows that name a template: which one, what it is filled from, what is missing, and what is kept of it."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from batches.manifests import Code, Limits, Manifest, ManifestRefused, fingerprint, from_upload, read
from batches.manifests.choices import Choices
from tests.manifests.faketemplates import FakeTemplate, FakeTemplates
from tests.manifests.samples import CASES, case, codes, error_codes, listed, uploaded, warning_codes

INVOICE = "<h1>Invoice {{ id }}</h1>\n<p>{{ customer.name }}, {{ customer.address }}</p>\n<p>{{ total }}</p>"
GOOD = {"customer": {"name": "O'Neill & Sons", "address": "Quay 7"}, "total": 12.5}


def filled_from(rows: list[Any], *templates: FakeTemplate, choices: Choices | None = None, **asked: Any) -> Manifest:
    found = FakeTemplates(*(templates or (FakeTemplate(INVOICE),)))
    return listed(rows, choices=choices or Choices(), templates=found, **asked)


def row(**changes: Any) -> dict[str, Any]:
    return {"id": "A-1", "template": "invoice", "data": GOOD} | changes


def test_a_row_of_a_template_is_html_with_its_version_and_its_data_kept() -> None:
    with filled_from([row()]) as manifest:
        assert (manifest.errors, manifest.warnings) == ((), ())
        (only,) = manifest.rows
        text = "<h1>Invoice A-1</h1>\n<p>O&#x27;Neill &amp; Sons, Quay 7</p>\n<p>12.5</p>"
        assert (only.kind, only.text(), only.read()) == ("html", text, text.encode())
        assert only.input_sha256 == fingerprint("html", text, {})
        assert only.template_key == 1
        assert only.template_data == GOOD | {"id": "A-1"}
        assert only.original["data"] == GOOD


def test_a_row_without_a_template_has_none() -> None:
    with listed([{"id": "A", "html": "<p>1</p>"}]) as manifest:
        (only,) = manifest.rows
    assert (only.template_key, only.template_data) == (None, None)


def test_the_version_that_a_row_names_is_taken_else_the_published_one() -> None:
    versions = [FakeTemplate(f"<p>{number} {{{{ id }}}}</p>", number=number, key=number) for number in (1, 2, 3)]
    rows = [
        row(id="A", data={}),
        row(id="B", data={}, template_version=1),
        row(id="C", data={}, template_version=" 2 "),
    ]
    with filled_from(rows, *versions) as manifest:
        assert [(each.template_key, each.text()) for each in manifest.rows] == [
            (3, "<p>3 A</p>"),
            (1, "<p>1 B</p>"),
            (2, "<p>2 C</p>"),
        ]


def test_a_chosen_template_is_for_the_rows_that_name_no_document() -> None:
    versions = [FakeTemplate(f"<p>{number} {{{{ id }}}}</p>", number=number, key=number) for number in (1, 2)]
    rows = [{"id": "A"}, {"id": "B", "html": "<p>own</p>"}, row(id="C", data={})]
    with filled_from(rows, *versions, choices=Choices(template="invoice", template_version=1)) as manifest:
        assert manifest.errors == ()
        assert [each.text() for each in manifest.rows] == ["<p>1 A</p>", "<p>own</p>", "<p>2 C</p>"]


def test_a_template_is_looked_up_once_however_many_rows_name_it() -> None:
    templates = FakeTemplates(FakeTemplate("<p>{{ id }}</p>"))
    with listed([row(id=str(n), template=["invoice", "nope"][n % 2]) for n in range(10)], templates=templates):
        assert templates.asked == [("invoice", None), ("nope", None)]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"html": "<p>"}, ("several_sources", None)),
        ({"url": "https://example.com"}, ("several_sources", None)),
        ({"template": 7}, ("wrong_type", "template")),
        ({"template": "  "}, ("unknown_template", "template")),
        ({"template": "x" * 300}, ("unknown_template", "template")),
        ({"template": "reminder"}, ("unknown_template", "template")),
        ({"template_version": 13}, ("template_not_published", "template")),
        ({"template_version": "latest"}, ("wrong_type", "template_version")),
        ({"template_version": 0}, ("wrong_type", "template_version")),
        ({"template_version": 1.5}, ("wrong_type", "template_version")),
        ({"template_version": True}, ("wrong_type", "template_version")),
        ({"template_version": [14]}, ("wrong_type", "template_version")),
        ({"template_version": "9" * 5000}, ("wrong_type", "template_version")),
        ({"data": []}, ("wrong_type", "data")),
        ({"data": "name"}, ("wrong_type", "data")),
        ({"total": 3}, ("duplicate_key", "data")),
        ({"data": GOOD | {"id": "B-2"}}, ("duplicate_key", "data")),
        ({"data": GOOD | {"total": {}}}, ("wrong_type", "template")),
        ({"data": GOOD | {"total": "\0"}}, ("bad_text", "data")),
        ({"data": {"customer": {"name": "Lindqvist"}, "total": 1}}, ("missing_field", "customer.address")),
        ({"data": {"customer": "Lindqvist", "total": 1}}, ("missing_field", "customer.name")),
    ],
)
def test_what_keeps_a_template_from_being_filled_is_an_error_of_the_row(
    changes: dict[str, Any], problem: tuple[str, str | None]
) -> None:
    found = [(code, column) for code, column, _ in error_codes(filled_from([row(**changes)]))]
    assert found == [problem]


def test_a_row_names_every_field_that_it_lacks_and_a_field_every_row_that_lacks_it() -> None:
    rows = [
        row(id="A"),
        row(id="B", data={"customer": {"name": "Lindqvist"}, "total": 1}),
        row(id="C", data={"customer": {"address": "Quay 7"}}),
        row(id="D", data={}),
        row(id="E", data={"customer": {"name": "Okoye"}, "total": 2}),
    ]
    with filled_from(rows) as manifest:
        assert codes(manifest.errors) == [
            ("missing_field", "customer.address", (1, 3, 4)),
            ("missing_field", "customer.name", (2, 3)),
            ("missing_field", "total", (2, 3)),
        ]
        assert manifest.errors[0].places[0].message == "Template invoice v14 needs customer.address."
        assert manifest.errors[0].message == "Template invoice v14 needs customer.address. (And 2 more.)"
        assert [each.business_id for each in manifest.rows] == ["A"]


def test_keys_beside_data_are_data_too_and_the_id_is_the_rows() -> None:
    given = {"id": 7, "template": "invoice", "data": {"total": 1}, "customer": {"name": "A", "address": "B"}}
    with filled_from([given, given | {"id": "8", "data": {"id": 8, "total": 1}, "_error": "empty"}]) as manifest:
        assert (manifest.errors, manifest.warnings) == ((), ())
        assert [each.template_data["id"] for each in manifest.rows if each.template_data] == ["7", "8"]
        assert "<h1>Invoice 7</h1>" in manifest.rows[0].text()


def test_data_that_no_template_reads_is_one_warning_for_all_rows() -> None:
    extra = GOOD | {"note": "call", "customer": GOOD["customer"] | {"vat": 3, "phone": {"home": 1}}}  # type: ignore[operator]
    rows = [row(id="A", data=extra), row(id="B", data=extra), row(id="C")]
    with filled_from(rows) as manifest:
        assert manifest.ok
        assert [(each.code, each.column, each.rows) for each in manifest.warnings] == [
            (Code.UNKNOWN_COLUMN, "customer.vat", ()),
            (Code.UNKNOWN_COLUMN, "customer.phone", ()),
            (Code.UNKNOWN_COLUMN, "note", ()),
        ]
        assert manifest.warnings[-1].message == 'The template invoice v14 does not read "note", which 2 rows give.'


def test_a_template_that_reads_an_object_or_a_list_reads_what_is_inside() -> None:
    class Whole(FakeTemplate):
        @property
        def fields(self) -> dict[str, tuple[int, ...]]:  # type: ignore[override]
            return {"customer": (1,), "lines[].sku": (2,)}

    data = {"customer": {"a": {"b": 1}}, "lines": [{"sku": 1, "note": 2}], "other": 1}
    assert warning_codes(filled_from([row(data=data)], Whole("<p>"))) == [("unknown_column", "other", ())]


def test_the_filled_text_is_checked_like_any_document() -> None:
    assert error_codes(filled_from([row(data={"x": ""})], FakeTemplate("{{ x }}"))) == [
        ("empty_html", "template", (0,))
    ]
    assert error_codes(filled_from([row()], limits=Limits(max_document_bytes=50))) == [
        ("file_too_large", "template", (0,))
    ]
    placeholder = filled_from([row(data={"x": "{{ customer.name }}"})], FakeTemplate("<p>{{ x }}</p>"))
    assert warning_codes(placeholder) == [("unresolved_placeholder", "template", (0,))]


def test_numbers_of_data_stay_numbers_and_the_same_data_is_the_same_document() -> None:
    rows = """[{"id":"A","template":"invoice","data":{"n":12345678901234567890,"f":1.50}},
        {"data":{"f":1.5,"n":12345678901234567890},"template":"invoice","id":"B"}]"""
    with uploaded(rows, templates=FakeTemplates(FakeTemplate("<p>{{ n }} {{ f }}</p>"))) as manifest:
        first, second = manifest.rows
        assert first.text() == "<p>12345678901234567890 1.5</p>"
        assert first.template_data == {"n": 12345678901234567890, "f": 1.5, "id": "A"}
        assert first.input_sha256 == second.input_sha256


def test_a_document_is_filled_again_when_it_is_used_and_compared_with_what_was_checked() -> None:
    template = FakeTemplate("<p>{{ id }}</p>")
    with filled_from([row(data={})], template) as manifest:
        assert manifest.rows[0].text() == "<p>A-1</p>"
        assert template.filled == 2
        template.source = "<p>{{ id }}!</p>"
        with pytest.raises(ManifestRefused) as refused:
            manifest.rows[0].text()
    assert refused.value.code is Code.CHANGED_WHILE_READING


def test_data_that_changes_under_our_feet_is_never_used() -> None:
    stream = io.BytesIO(json.dumps([row(data=GOOD | {"total": 1})]).encode())
    with read(from_upload(stream, "m.json"), templates=FakeTemplates(FakeTemplate(INVOICE))) as manifest:
        stream.seek(0)
        stream.write(json.dumps([row(data=GOOD | {"total": 2})]).encode())
        with pytest.raises(ManifestRefused):
            manifest.rows[0].text()


class TestTemplatesAtTheProvider:
    CHOICES = Choices(template="invoice", template_version=3, are_provider_templates=True)

    def test_what_is_sent_has_one_spelling(self) -> None:
        rows = [
            {"id": "A", "data": {"b": 1, "a": "é"}},
            {"data": {"a": "é", "b": 1, "id": "A"}, "id": "B2", "template": "x"},
            {"id": "B", "a": "é", "b": 1, "template": "letter", "template_version": 2},
        ]
        with listed(rows[:1] + rows[2:], choices=self.CHOICES) as manifest:
            assert (manifest.errors, manifest.warnings) == ((), ())
            first, second = manifest.rows
            assert first.kind == second.kind == "template"
            assert first.text() == '{"data":{"a":"é","b":1,"id":"A"},"template":"invoice","version":3}'
            assert second.text() == '{"data":{"a":"é","b":1,"id":"B"},"template":"letter","version":2}'
            assert first.input_sha256 == fingerprint("template", first.text(), {})
            assert (first.template_key, first.template_data) == (None, None)

    @pytest.mark.parametrize(
        ("given", "problem"),
        [
            ({"template": "letter"}, ("missing_field", "template_version")),
            ({"template": "letter", "template_version": "latest"}, ("wrong_type", "template_version")),
            ({"data": []}, ("wrong_type", "data")),
            ({"data": {"x": "x" * 6_000_000}}, ("file_too_large", "data")),
            ({"template": 1}, ("wrong_type", "template")),
            ({"template": "letter", "template_version": 1, "markdown": "# x"}, ("several_sources", None)),
        ],
    )
    def test_a_row_that_cannot_be_sent_says_why(self, given: dict[str, Any], problem: tuple[str, str | None]) -> None:
        found = error_codes(listed([{"id": "A"} | given], choices=self.CHOICES))
        assert [(code, column) for code, column, _ in found] == [problem]

    def test_it_is_foundagain_from_the_upload(self) -> None:
        stream = io.BytesIO(b'[{"id":"A","data":{"n":1}}]')
        with read(from_upload(stream, "m.json"), choices=self.CHOICES) as manifest:
            stream.seek(0)
            stream.write(b'[{"id":"A","data":{"n":2}}]')
            with pytest.raises(ManifestRefused):
                manifest.rows[0].text()


def test_case_37_a_field_of_one_row_never_stands_on_another_and_nobody_else_is_known() -> None:
    source = (CASES / "037-template.html").read_text()
    known = FakeTemplate(source.replace("({{ user }}, {{ request }})", ""), slug="statement", number=1)
    unknown = FakeTemplate(source, slug="statement", number=2, key=2)
    templates = FakeTemplates(known, unknown)
    with case(
        "037-rows.jsonl", choices=Choices(template="statement", template_version=1), templates=templates
    ) as found:
        assert codes(found.errors) == [("missing_field", "bank_ref", (1,))]
        assert found.errors[0].places[0].line == 2
        texts = {each.business_id: each.text() for each in found.rows}
        assert texts.keys() == {"ST-1", "ST-3"}
        assert "REF-AAA-111" in texts["ST-1"]
        assert "REF-CCC-333" in texts["ST-3"]
    with case(
        "037-rows.jsonl", choices=Choices(template="statement", template_version=2), templates=templates
    ) as found:
        assert codes(found.errors) == [
            ("missing_field", "user", (0, 1, 2)),
            ("missing_field", "request", (0, 1, 2)),
            ("missing_field", "bank_ref", (1,)),
        ]


def _rows_of(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((CASES / name).read_text())))


def test_case_38_what_rows_hold_is_printed_as_it_was_typed_and_never_evaluated() -> None:
    template = FakeTemplate((CASES / "038-template.html").read_text(), slug="order")
    rows = _rows_of("038-hostile-rows.csv")
    with filled_from(rows, template, choices=Choices(template="order")) as manifest:
        assert (manifest.errors, manifest.warnings) == ((), ())
        texts = [each.text() for each in manifest.rows]
    assert "O&#x27;Neill &amp; Sons &lt;Ltd&gt;" in texts[0]
    assert "{{ 7|add:7 }}" in texts[1]
    assert "{% include &quot;secret.html&quot; %}" in texts[1]
    assert all(text.count("<tr>") == text.count("</table>") == 1 for text in texts)
    assert all("<script" not in text and "<meta http-equiv" not in text and "<img" not in text for text in texts)


def test_case_131_a_template_that_reaches_for_more_than_the_row_is_an_error_of_the_row() -> None:
    template = FakeTemplate((CASES / "131-template.html").read_text(), slug="t")
    with filled_from(_rows_of("131-rows.csv"), template, choices=Choices(template="t")) as manifest:
        assert [problem.column for problem in manifest.errors] == [
            "settings.SECRET_KEY",
            "request.META",
            "user.password",
            "id.__class__.__mro__",
        ]
        assert {problem.code for problem in manifest.errors} == {Code.MISSING_FIELD}
        assert manifest.rows == ()
