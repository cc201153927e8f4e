"""The first look: what an upload is, what it asks, and that it reads no more than the head."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import pytest

from batches.manifests import (
    Choices,
    Code,
    Look,
    ManifestRefused,
    from_path,
    from_text,
    from_upload,
    look,
    read,
)
from batches.manifests.problems import Unfit
from tests.manifests.samples import CASES, PAGE, check_look, codes, refusal, row, uploaded, workbook, zipped

FIELDS = {"customer.name": (2,), "customer.address": (3, 9), "lines[].sku": (5,)}


class OneTemplate:
    """A workspace with one template, `invoice`."""

    key, slug, number = 7, "invoice", 3
    fields: Mapping[str, tuple[int, ...]] = FIELDS
    optional: frozenset[str] = frozenset()

    def fill(self, data: Mapping[str, Any]) -> str:
        return f"<p>{json.dumps(data, sort_keys=True)}"

    def find(self, slug: str, number: int | None) -> OneTemplate:
        if slug != self.slug:
            raise Unfit(Code.UNKNOWN_TEMPLATE, f"There is no template {slug}.", "Upload it first.")
        return self


def seen(content: bytes | str, **asked: Any) -> Look:
    raw = content.encode() if isinstance(content, str) else content
    return look(from_upload(io.BytesIO(raw), "upload.csv"), **asked)


def test_a_table_shows_its_columns_rows_and_what_they_become() -> None:
    found = seen("id;customer;html\n" + "".join(f"A{n};Zoë;<p>{n}\n" for n in range(9)))

    assert (found.container, found.format, found.encoding, found.delimiter) == ("file", "csv", "utf-8", ";")
    assert found.columns == ("id", "customer", "html")
    assert found.mapping == {"id": "id", "customer": "", "html": "html"}
    assert [dict(row) for row in found.sample_rows] == [
        {"id": f"A{n}", "customer": "Zoë", "html": f"<p>{n}"} for n in range(5)
    ]
    assert found.questions == ()
    assert found.header_sha256 == seen("id;customer;html\nother;rows;here\n").header_sha256
    assert found.header_sha256 != seen("id;html;customer\nother;rows;here\n").header_sha256


def test_fields_of_the_chosen_template_without_a_column_are_asked_for() -> None:
    text = "id,Customer Name,lines[0].sku\nA,Zoë,X\n"
    found = seen(text, choices=Choices(template="invoice"), templates=OneTemplate())

    assert found.mapping == {"id": "id", "Customer Name": "data.customer.name", "lines[0].sku": "data.lines[0].sku"}
    assert found.unmapped_fields == {"customer.address": (3, 9)}
    assert found.questions == ("mapping",)
    assert found.as_dict()["unmapped_fields"] == [{"path": "customer.address", "lines": [3, 9]}]

    mapping = {**found.mapping, "Customer Name": "data.customer"}
    answered = seen(text, choices=Choices(template="invoice", mapping=mapping), templates=OneTemplate())
    assert answered.questions == ()
    assert answered.mapping["Customer Name"] == "data.customer"


def test_a_template_that_is_not_there_is_refused() -> None:
    with pytest.raises(ManifestRefused) as refused:
        seen("id,a\nA,b\n", choices=Choices(template="letter"), templates=OneTemplate())
    assert refused.value.code is Code.UNKNOWN_TEMPLATE


@pytest.mark.parametrize(
    ("text", "synonyms", "problem"),
    [
        ("Invoice Number,html\nA,<p>\n", {"Invoice Number": "id"}, ""),
        ("name,html\nA,<p>\n", {}, "No column becomes the id"),
    ],
)
def test_a_header_that_does_not_say_it_all_is_a_question(text: str, synonyms: dict[str, str], problem: str) -> None:
    found = seen(text)
    assert found.questions == ("mapping",)
    assert found.synonyms == synonyms
    assert problem in found.mapping_problem
    assert bool(problem) == bool(found.mapping_problem)


def test_an_answer_that_does_not_hold_stays_a_question_with_its_reason() -> None:
    found = seen("a,b\n1,2\n", choices=Choices(mapping={"a": "id", "b": "id"}))
    assert found.questions == ("mapping",)
    assert 'would both become "id"' in found.mapping_problem


def test_a_workbook_shows_its_sheets() -> None:
    raw = workbook([["id", "html"], [7, "<p>"]], Other=[["id", "markdown"], ["B", "# x"]])
    found = seen(raw)
    assert (found.format, found.encoding, found.sheet, found.sheets) == ("xlsx", "", "Sheet", ("Sheet", "Other"))
    assert [dict(row) for row in found.sample_rows] == [{"id": "7", "html": "<p>"}]
    assert seen(raw, choices=Choices(sheet="Other")).columns == ("id", "markdown")


def test_json_shows_its_first_rows() -> None:
    rows = [row(id=f"A{n}", meta={"n": n, "bad\0": "\ud800"}) for n in range(9)]
    for content, form in ((json.dumps(rows), "json"), ("\n".join(map(json.dumps, rows)), "jsonl")):
        found = seen(content)
        assert (found.format, found.columns, found.mapping, found.questions) == (form, ("id", "html", "meta"), {}, ())
        assert [sample["id"] for sample in found.sample_rows] == ["A0", "A1", "A2", "A3", "A4"]
        assert found.sample_rows[1]["meta"] == {"n": 1, "bad\\u0000": "\\ud800"}


def test_pages_without_a_manifest_are_proposed_and_asked_for(tmp_path: Path) -> None:
    files: dict[str, bytes | str] = {"b.html": PAGE, "sub/ä 1.htm": "<p>ä</p>", "logo.png": "x", "<i>.html": "<p>i</p>"}
    raw = zipped(files)
    found = seen(raw)
    assert (found.container, found.format, found.proposed_rows, found.questions) == (
        "zip",
        "files",
        3,
        ("propose_rows",),
    )
    assert [sample["id"] for sample in found.sample_rows] == ["<i>", "b", "ä 1"]
    assert refusal(raw).code is Code.NO_MANIFEST
    assert "the ZIP holds 3 HTML files" in refusal(raw).message

    with uploaded(raw, choices=Choices(propose_rows=True)) as manifest:
        assert manifest.format == "files"
        assert [(row.business_id, row.path) for row in manifest.rows] == [
            ("<i>", "<i>.html"),
            ("b", "b.html"),
            ("ä 1", "sub/ä 1.htm"),
        ]
        assert manifest.rows[2].text() == "<p>ä</p>"
        assert codes(manifest.warnings) == [("unreferenced_file", None, ())]

    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert look(from_path(tmp_path)).questions == ("propose_rows",)
    with read(from_path(tmp_path), choices=Choices(propose_rows=True)) as manifest:
        assert manifest.container == "folder"
        assert sorted(row.business_id for row in manifest.rows) == ["<i>", "b", "ä 1"]


def test_two_pages_of_one_name_are_an_error_of_both() -> None:
    with uploaded(zipped({"a/x.html": PAGE, "b/x.html": "<p>"}), choices=Choices(propose_rows=True)) as manifest:
        assert codes(manifest.errors) == [("duplicate_id", "id", (0, 1))]


def test_a_manifest_that_stands_too_deep_is_no_reason_to_propose_rows() -> None:
    raw = zipped({"x/y/manifest.csv": "id,html\n", "a.html": PAGE})
    with pytest.raises(ManifestRefused) as refused:
        seen(raw)
    assert "too deep" in refused.value.message


class Counted(io.BytesIO):
    """Counts the bytes that are read of it."""

    count = 0

    def read(self, size: int | None = -1, /) -> bytes:
        chunk = super().read(size)
        self.count += len(chunk)
        return chunk


def test_a_look_reads_the_head_only() -> None:
    body = "".join(f"A{n},<p>{'x' * 200}\n" for n in range(200_000))
    for content in (
        f"id,html\n{body}",
        '[{"id": "A", "html": "<p>"}' + f',\n{{"id": "B", "html": "{"x" * 1_000}"}}' * 40_000 + "]",
    ):
        stream: IO[bytes] = Counted(content.encode())
        found = look(from_upload(stream, "large"))
        assert found.sample_rows
        assert isinstance(stream, Counted)
        assert stream.count < len(content) / 2


def test_a_head_that_ends_in_a_row_is_no_fault() -> None:
    page = "<p>" + "x\n" * 400_000
    found = seen('id,html\nA,<p>\nB,"' + page + '"\n')
    assert [sample["id"] for sample in found.sample_rows] == ["A"]
    found = seen(json.dumps([{"id": "A", "html": "<p>"}, {"id": "B", "html": page}]))
    assert [sample["id"] for sample in found.sample_rows] == ["A"]


@pytest.mark.parametrize("name", sorted(path.name for path in CASES.iterdir() if path.name[:3].isdigit()))
def test_every_case_can_be_looked_at_or_is_refused_in_words(name: str) -> None:
    check_look((CASES / name).read_bytes())


def test_a_pasted_table_can_be_looked_at() -> None:
    found = look(from_text("id\thtml\nA\t<p>\n"))
    assert (found.delimiter, found.columns) == ("\t", ("id", "html"))
