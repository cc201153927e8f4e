"""One document by itself: a template that the provider keeps is given as JSON, and has the spelling of a row's."""

from __future__ import annotations

import json

import pytest

from batches.manifests import fingerprint
from batches.manifests.choices import Choices
from batches.manifests.single import Single, read_single
from tests.manifests.samples import listed


def single(content: str, kind: str = "template") -> Single:
    return read_single(business_id="A", kind=kind, content=content, filename="", options="")


def test_the_template_of_a_row_stays_the_same_document_however_it_is_laid_out() -> None:
    rows = [{"id": "A", "template": "invoice", "template_version": 3, "data": {"b": 1.5, "a": {"n": "é"}}}]
    with listed(rows, choices=Choices(are_provider_templates=True)) as manifest:
        text = manifest.rows[0].text()
    found = single(json.dumps(json.loads(text), indent=2))
    assert found.errors == ()
    assert found.row is not None
    assert (found.row.kind, found.text) == ("template", text)
    assert found.row.input_sha256 == fingerprint("template", text, {})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("<p>", "no JSON object"),
        ("[]", "no JSON object"),
        ("[" * 5_000, "no JSON object"),
        ('{"version": 1, "data": {}}', "names no document"),
        ('{"template": "invoice", "data": {}}', "names no version"),
        ('{"template": "invoice", "version": "latest", "data": {}}', "whole number"),
        ('{"template": "invoice", "version": 1, "data": []}', "has to be an object"),
        ('{"template": "invoice", "version": 1, "data": {"total": "#REF!"}}', "formula that failed"),
    ],
)
def test_what_is_no_template_says_why(content: str, words: str) -> None:
    found = single(content)
    assert found.row is None
    assert words in " ".join(found.errors)


def test_other_kinds_are_as_they_were() -> None:
    assert single("<p>{}</p>", "html").text == "<p>{}</p>"
    assert single("# x", "markdown").text == "# x"
