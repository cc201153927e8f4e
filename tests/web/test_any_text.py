"""Whatever text a row holds: uploaded, stored, shown and exported, it stays what it was, character for character."""

from __future__ import annotations

import csv
import html
import io
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from batches import cells
from batches.models import Batch, BatchItem, Draft, Job, JobState
from tests.web.starting import start

#: All that a database keeps: no NUL, no half of a character. A carriage return in a page is a line feed to its parser.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=60)
HARD = [
    "=1+1",
    "'=1+1",
    " -5",
    "\t=x",
    "a\r\nb\rc\n",
    "{{ 7|add:7 }}",
    "<script>&amp;</script>",
    '"quoted", and; more|\t',
    "\u2028\u0085\u000b\u000c",
    "e\u0301 \u00e9",
    "\ufeff\u200b\u202e",
    "\U0001f600\uffff",
    "0010",
    "1e3",
    "\ufffd",
]
NUMBERS = itertools.count()


def streamed(client: Client, address: str) -> bytes:
    return b"".join(client.get(address).streaming_content)  # type: ignore[attr-defined] # it streams


@pytest.mark.django_db
@settings(max_examples=3, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(texts=st.lists(TEXTS, min_size=1, max_size=8))
@example(texts=HARD)
def test_any_text_survives_upload_store_page_and_export(
    texts: list[str], upload: Callable[..., Any], operator: Client
) -> None:
    series = next(NUMBERS)
    rows = [
        {"id": f"T-{series}-{number}", "html": f"<p>{text}", "note": text, "meta": {"m": text}}
        for number, text in enumerate(texts)
    ]
    sent = json.dumps(rows, ensure_ascii=bool(series % 2)).encode()
    page = upload(sent)
    draft = Draft.objects.latest("pk")
    for number, text in enumerate(texts):
        shown = operator.get(f"/drafts/{draft.public_id}/rows/{number}/").content.decode()
        assert f'<dd class="wrap">{html.escape(text)}</dd>' in shown.replace("&#39;", "&#x27;")
        framed = operator.get(f"/drafts/{draft.public_id}/rows/{number}/?frame")
        assert framed.content == f"<p>{text}".encode()
    start(operator, page)
    batch = Batch.objects.latest("pk")
    for item, text in zip(BatchItem.objects.filter(batch=batch).order_by("position"), texts, strict=True):
        assert bytes(item.version.input_inline or b"") == f"<p>{text}".encode()
        assert (item.original_row["note"], item.original_row["meta"]) == (text, {"m": text})
    assert streamed(operator, f"/batches/{batch.public_id}/manifest/") == sent
    jobs = Job.objects.filter(version__items__batch=batch)
    jobs.update(state=JobState.FAILED, failure_class="render_failed", failure_words="It would not render.")
    listed = streamed(operator, f"/batches/{batch.public_id}/failed.csv").decode("utf-8-sig")
    exported = list(csv.DictReader(io.StringIO(listed, newline="")))
    assert [cells.unguarded(row["note"]) for row in exported] == texts
    assert [json.loads(cells.unguarded(row["meta"])) for row in exported] == [{"m": text} for text in texts]
