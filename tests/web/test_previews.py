"""A row of a draft as it would be rendered: in a frame that can do nothing, beside the row as it was given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from batches.models import Draft
from batches.storage import open_store
from tests.web.conftest import CASES

HOSTILE = (
    '<h1>Hello</h1><script>parent.document.title="x"</script><form action="https://evil.example"><input></form>'
    '<img src="https://evil.example/x.png"><iframe src="/"></iframe>'
)
ROWS = [
    {"id": "A-1", "html": HOSTILE, "meta": {"note": "<b>bold</b>"}},
    {"id": "A-2", "html": "<p>{{ name }}</p>"},
    {"id": "A-3", "html": ""},
    {"id": "A-4", "markdown": "# Title <script>alert(1)</script>"},
]


@pytest.fixture
def draft(upload: Any, artifact_folder: Path) -> Draft:
    upload(ROWS)
    return Draft.objects.get()


def row(draft: Draft, number: int) -> str:
    return reverse("batches:draft_row", args=[draft.public_id, number])


def test_the_document_stands_in_a_frame_without_origin_scripts_or_forms(draft: Draft, operator: Client) -> None:
    answer = operator.get(row(draft, 0)).text
    assert f'<iframe class="preview paper" sandbox="" src="{row(draft, 0)}?frame"' in answer
    assert "<script>parent" not in answer
    assert "&lt;b&gt;bold&lt;/b&gt;" in answer
    frame = operator.get(f"{row(draft, 0)}?frame")
    assert frame.content.decode() == HOSTILE
    assert frame["Content-Security-Policy"].split("; ") == [
        "sandbox",
        "default-src 'none'",
        "img-src data:",
        "font-src data:",
        "style-src 'unsafe-inline'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'self'",
    ]
    assert frame["X-Content-Type-Options"] == "nosniff"
    assert frame["X-Frame-Options"] == "SAMEORIGIN"
    assert "no-store" in frame["Cache-Control"]


def test_people_go_from_row_to_row(draft: Draft, operator: Client) -> None:
    assert row(draft, 0) in operator.get(reverse("batches:draft_detail", args=[draft.public_id])).text
    first, second, last = (operator.get(row(draft, number)).text for number in (0, 1, 3))
    assert 'id="previous"' not in first
    assert f'href="{row(draft, 1)}"' in first
    assert f'href="{row(draft, 0)}"' in second
    assert f'href="{row(draft, 2)}"' in second
    assert 'id="next"' not in last


def test_warnings_and_errors_of_the_row_are_said(draft: Draft, operator: Client) -> None:
    assert "placeholder" in operator.get(row(draft, 1)).text
    empty = operator.get(row(draft, 2)).text
    assert "html is empty." in empty
    assert "<iframe" not in empty
    assert operator.get(f"{row(draft, 2)}?frame").status_code == 404


def test_what_is_no_html_is_shown_as_text(draft: Draft, operator: Client) -> None:
    frame = operator.get(f"{row(draft, 3)}?frame").text
    assert "# Title &lt;script&gt;" in frame


def test_a_row_that_is_not_there_is_not_found(draft: Draft, operator: Client) -> None:
    assert operator.get(row(draft, 4)).status_code == 404
    assert operator.get(f"/drafts/{draft.public_id}/rows/99999999999999999999/").status_code == 404


def test_only_people_who_may_see_the_draft_see_its_rows(
    draft: Draft, viewer: Client, outsider: Client, operator: Client
) -> None:
    for client in (viewer, outsider):
        assert client.get(row(draft, 0)).status_code == 404
        assert client.get(f"{row(draft, 0)}?frame").status_code == 404
    assert Client().get(f"{row(draft, 0)}?frame").status_code == 302


def test_a_file_that_is_gone_is_not_found(draft: Draft, operator: Client, settings: Any) -> None:
    open_store(settings.STORAGE_URL).delete(draft.upload_key)
    assert operator.get(row(draft, 0)).status_code == 404


def test_case_125(upload: Any, artifact_folder: Path, operator: Client) -> None:
    """Markup in ids and in the name of the file is text everywhere."""
    content = (CASES / "125-markup-ids.json").read_bytes()
    upload(content, name='"><img src=x onerror=alert(1)>.json')
    draft = Draft.objects.get()
    for number in range(len(json.loads(content))):
        answer = operator.get(row(draft, number)).text
        assert "<img src=x" not in answer
        assert "onerror=alert(1)>" not in answer.replace("onerror=alert(1)&gt;", "")
