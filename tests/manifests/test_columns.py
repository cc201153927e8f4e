"""Columns: what their names mean, what is refused, and the row that they make."""

from __future__ import annotations

from typing import Any

import pytest

from batches.manifests import Choices, Code, ManifestRefused, columns
from batches.manifests.jsonrows import Number
from tests.manifests.samples import codes, refusal, uploaded


@pytest.mark.parametrize(
    ("names", "fields", "has_template", "mapping"),
    [
        (["id", "html"], [], False, {"id": "id", "html": "html"}),
        (
            ["ID", "Html", "Template Version"],
            [],
            False,
            {"ID": "id", "Html": "html", "Template Version": "template_version"},
        ),
        (["custom_id", "path"], [], False, {"custom_id": "id", "path": "html"}),
        (["Invoice Number", "html file"], [], False, {"Invoice Number": "id", "html file": "html"}),
        (["number", "external_id"], [], False, {"number": "", "external_id": "id"}),
        (["id", "number", "html", "file"], [], False, {"id": "id", "number": "", "html": "html", "file": ""}),
        (["id", "markdown", "file"], [], False, {"id": "id", "markdown": "markdown", "file": ""}),
        (["id", "template", "name"], [], False, {"id": "id", "template": "template", "name": "data.name"}),
        (["id", "customer.name"], [], True, {"id": "id", "customer.name": "data.customer.name"}),
        (["id", "Customer Name"], ["customer.name"], True, {"id": "id", "Customer Name": "data.customer.name"}),
        (
            ["id", "Customer Name", "customer.name"],
            ["customer.name"],
            True,
            {"id": "id", "Customer Name": "data.Customer Name", "customer.name": "data.customer.name"},
        ),
        (
            ["id", "lines[0].sku", "lines[1].sku"],
            [],
            True,
            {"id": "id", "lines[0].sku": "data.lines[0].sku", "lines[1].sku": "data.lines[1].sku"},
        ),
        (
            ["id", "data.a", "meta.b.c", "option.margin.top"],
            [],
            False,
            {"id": "id", "data.a": "data.a", "meta.b.c": "meta.b.c", "option.margin.top": "option.margin.top"},
        ),
        (
            ["id", "options", "meta", "data"],
            [],
            False,
            {"id": "id", "options": "options", "meta": "meta", "data": "data"},
        ),
        (["id", "data", "data.a"], [], True, {"id": "id", "data": "data", "data.a": ""}),
        (["id", "a", "a.b"], [], True, {"id": "id", "a": "data.a", "a.b": ""}),
        (["id", "a..b", "c[", "d."], [], True, {"id": "id", "a..b": "", "c[": "", "d.": ""}),
        (["id", "_error", "", "html"], [], True, {"id": "id", "html": "html"}),
        (["id", "language", "group"], [], True, {"id": "id", "language": "language", "group": "group"}),
    ],
)
def test_a_name_proposes_what_its_column_becomes(
    names: list[str], fields: list[str], has_template: bool, mapping: dict[str, str]
) -> None:
    assert columns.proposed(names, fields=fields, has_template=has_template) == mapping


def test_a_proposal_with_an_id_always_holds() -> None:
    names = [
        "id",
        "ID",
        "data",
        "data.x",
        "a",
        "a.b",
        "a[0]",
        "a[0].b",
        "meta",
        "meta.x",
        "options",
        "option.scale",
        "c.d",
        "c[1]",
    ]
    mapping = columns.proposed(names, has_template=True)
    assert columns.checked(names, mapping, 1).id_index == 0


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({"a": "id", "b": "id"}, 'The columns "a" and "b" would both become "id".'),
        ({"a": "id", "b": "data.x", "c": "data.x.y"}, 'The column "b" would be a value, and hold the column "c" too.'),
        ({"a": "id", "b": "data.x[0]", "c": "data.x.y"}, "make a list of what other columns make an object of"),
        ({"a": "id", "b": "options", "c": "option.scale"}, "would be a value"),
        ({"a": "id", "b": "colour"}, "there is no such target"),
        ({"a": "id", "b": "data."}, "there is no such target"),
        ({"a": "id", "b": "data.x[1000]"}, "too deep or too long"),
        ({"a": "id", "b": "data." + ".".join("abcdefghijklmn")}, "too deep or too long"),
    ],
)
def test_columns_that_cannot_go_together_are_refused(mapping: dict[str, str], words: str) -> None:
    refused = refusal("a,b,c\n1,2,3\n", choices=Choices(mapping=mapping))

    assert refused.code is Code.COLUMN_CONFLICT
    assert words in refused.message
    assert refused.line == 1


def test_no_column_for_the_id_is_refused_with_what_there_is() -> None:
    with pytest.raises(ManifestRefused) as refused:
        columns.checked(["a", "b"], {"a": "html"}, 3)
    assert refused.value.code is Code.MISSING_COLUMN
    assert '2 columns found: "a" and "b"' in refused.value.message


@pytest.mark.parametrize(
    ("target", "cell", "row"),
    [
        ("html", "<p>", {"html": "<p>"}),
        ("html", "", {}),
        ("html", " ", {"html": " "}),
        ("template_version", " 3 ", {"template_version": Number("3")}),
        ("template_version", "three", {"template_version": "three"}),
        ("meta.a.b", "x", {"meta": {"a.b": "x"}}),
        ("meta", '{"a": 1}', {"meta": {"a": Number("1")}}),
        ("meta", "[1]", {"meta": "[1]"}),
        ("option.scale", "1.5", {"options": {"scale": Number("1.5")}}),
        ("option.scale", "1,5", {"options": {"scale": "1,5"}}),
        ("option.landscape", "TRUE", {"options": {"landscape": True}}),
        ("option.margin.top", "10mm", {"options": {"margin": {"top": "10mm"}}}),
        ("option.margin", '{"top": "1cm"}', {"options": {"margin": {"top": "1cm"}}}),
        ("data.a.b", "0010", {"data": {"a": {"b": "0010"}}}),
        ("data.a", "TRUE", {"data": {"a": "TRUE"}}),
        ("data.a", "1e3", {"data": {"a": "1e3"}}),
        ("data.a", '[{"sku": "X", "n": 2}]', {"data": {"a": [{"sku": "X", "n": Number("2")}]}}),
        ("data.a", '{"b": "c"}', {"data": {"a": {"b": "c"}}}),
        ("data.a", '["x", "y"]', {"data": {"a": ["x", "y"]}}),
        ("data.a", "[]", {"data": {"a": []}}),
        # a person's brackets are text
        ("data.a", "[2026]", {"data": {"a": "[2026]"}}),
        ("data.a", "[draft]", {"data": {"a": "[draft]"}}),
        ("data.a", "{{ name }}", {"data": {"a": "{{ name }}"}}),
        ("data.a", '{"b": 1, "b": 2}', {"data": {"a": '{"b": 1, "b": 2}'}}),
        ("data.a", "[" * 10_000 + "]" * 10_000, {"data": {"a": "[" * 10_000 + "]" * 10_000}}),
        ("data.lines[1].sku", "X", {"data": {"lines": [{"sku": "X"}]}}),
    ],
)
def test_a_cell_makes_its_part_of_the_row(target: str, cell: str, row: dict[str, Any]) -> None:
    known = columns.checked(["id", "c"], {"id": "id", "c": target}, 1)
    assert known.row({"id": "A", "c": cell}) == {"id": "A", **row}


def test_numbered_columns_make_a_list_and_entries_without_a_value_are_left_out() -> None:
    names = ["id", *(f"lines[{n}].{key}" for n in (0, 1, 2) for key in ("sku", "price"))]
    known = columns.checked(names, columns.proposed(names, has_template=True), 1)
    cells = dict(zip(names, ["A", "one", "1.00", "", "", "three", ""], strict=True))
    assert known.row(cells)["data"] == {"lines": [{"sku": "one", "price": "1.00"}, {"sku": "three"}]}


def test_fields_that_no_column_gives_are_found_with_the_templates_lines() -> None:
    fields = {
        "id": (1,),
        "customer.name": (2,),
        "customer.city": (3, 4),
        "lines[].sku": (5,),
        "total": (6,),
        "a.b.c": (7,),
    }
    mapping = {"i": "id", "n": "data.customer.name", "l": "data.lines", "a": "data.a"}
    assert columns.unmapped(fields, mapping) == {"customer.city": (3, 4), "total": (6,)}
    assert columns.unmapped(fields, {"d": "data"}) == {}


def test_synonyms_are_taken_with_a_warning_and_unused_columns_named() -> None:
    with uploaded("Invoice Number,file text,html_content\nA,x,<p>\n") as manifest:
        assert codes(manifest.warnings) == [("missing_column", "id", ()), ("unknown_column", None, ())]
        assert manifest.warnings[0].message == 'The column "Invoice Number" is taken as id.'
        assert manifest.warnings[1].files == ("file text",)
        assert manifest.mapping == {"Invoice Number": "id", "file text": "", "html_content": "html_content"}


def test_what_was_chosen_for_a_column_counts() -> None:
    choices = Choices(mapping={"html": "meta.note", "text": "html_content", "no": "id"})
    with uploaded("id,html,text,no\nA,x,<p>y,7\n", choices=choices) as manifest:
        (row,) = manifest.rows
        assert (row.business_id, row.text(), dict(row.meta)) == ("7", "<p>y", {"note": "x"})
        assert dict(row.original) == {"id": "A", "html": "x", "text": "<p>y", "no": "7"}
