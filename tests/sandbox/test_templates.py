"""Templates that the account keeps: which there are, and what is printed of their data."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batches.sandbox import source
from batches.sandbox.answers import ApiError
from batches.sandbox.switches import Switches, changed
from tests.sandbox.calls import call
from tests.sandbox_process import SandboxProcess

DATA = {
    "customer": {"name": "O'Neill & Sons <Ltd>"},
    "lines": [{"sku": "A-1"}, {"sku": "B-2"}],
    "paid": True,
    "note": None,
}
SWITCHES = changed(Switches(), {"templates": {"published": {"letter": 2}, "reads": {"letter": ["customer.name"]}}})


def parsed(**fields: Any) -> source.Submission:
    body = {"templateId": "letter", "templateData": DATA, **fields}
    return source.parse(json.dumps(body).encode(), SWITCHES)


def test_its_data_is_printed_as_a_table_and_never_as_markup() -> None:
    submission = parsed(templateVersion=1, filename="a.pdf", response="async")
    assert (submission.kind, submission.mode, submission.filename, submission.warnings) == (
        "html",
        "async",
        "a.pdf",
        (),
    )
    for words in (
        "<h1>letter, version 1</h1>",
        "<th>customer.name</th><td>O&#x27;Neill &amp; Sons &lt;Ltd&gt;</td>",
        "<th>lines[1].sku</th><td>B-2</td>",
        "<th>paid</th><td>true</td>",
        "<th>note</th><td></td>",
    ):
        assert words in submission.source


def test_without_a_version_it_is_the_newest() -> None:
    assert "<h1>letter, version 2</h1>" in parsed().source


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"templateId": "invoice"}, 404),
        ({"templateVersion": 3}, 404),
        ({"templateData": {"customer": {}}, "strict": True}, 400),
        ({"templateData": {"customer": "x"}, "strict": True}, 400),
        ({"strict": True, "templateData": None}, 400),
        ({"templateVersion": "latest"}, 400),
        ({"html": "<p>"}, 400),
    ],
)
def test_what_is_not_published_or_lacks_a_value_is_refused(fields: dict[str, Any], status: int) -> None:
    with pytest.raises(ApiError) as refused:
        parsed(**fields)
    assert refused.value.status == status


def test_a_gap_is_only_refused_where_strict_is_asked_for() -> None:
    assert parsed(templateData={}).kind == parsed(strict=True).kind == "html"


@pytest.mark.processes
def test_a_document_is_made_of_it(sandbox: SandboxProcess) -> None:
    fields = {"templateId": "sandbox-table", "templateVersion": 3, "templateData": DATA, "strict": True}
    made = call(sandbox, "POST", "/v1/pdf", fields)
    assert made.status == 200
    assert made.body.startswith(b"%PDF-")
