"""A list of failed rows as it goes out and comes back, and what was made of it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

from batches import results
from batches.engine import checking
from batches.models import Batch, Draft
from batches.storage.disk import DiskStore
from tests.engine.virtual_time import VirtualClock
from tests.factories import NOW


def manifest(*ids: str, **more: Any) -> bytes:
    return json.dumps([{"id": name, "html": f"<h1>{name}</h1>", **more} for name in ids]).encode()


def failed_list(batch: Batch) -> bytes:
    return b"".join(results.Written.as_given(batch).encoded(results.failed_lines(batch)))


def edited(content: bytes, edit: Callable[[dict[str, str]], Any] = lambda row: None, *, ends: str = "\r\n") -> bytes:
    """The list as a spreadsheet program saves it. `edit` changes a row in place; what returns False is left out."""
    text = content.decode("utf-8-sig")
    delimiter = ";" if ";" in text.partition("\r\n")[0] else ","  # as the table that was handed over
    lines = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    rows = [row for row in lines if edit(row) is not False]
    written = io.StringIO(newline="")
    writer = csv.DictWriter(written, lines.fieldnames or [], lineterminator=ends, delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return b"\xef\xbb\xbf" + written.getvalue().encode()


def worked(draft: Draft, store: DiskStore) -> Draft:
    assert checking.work_on(draft.pk, VirtualClock(NOW), owner="a", store=store)
    return Draft.objects.get(pk=draft.pk)


def summary(draft: Draft) -> tuple[int, ...]:
    """corrected, unchanged, left alone, refused"""
    assert draft.report is not None, draft.words
    assert not draft.report["errors"], draft.report["errors"]
    return tuple(draft.report["summary"][name] for name in ("corrected", "unchanged", "left_alone", "refused"))


def words(draft: Draft, outcome: str) -> dict[str, str]:
    assert draft.report is not None
    return {row["id"]: row["words"] for row in draft.report["rows_by_outcome"][outcome]}


def versions_of(batch: Batch) -> dict[str, int]:
    return dict(batch.items.order_by("position").values_list("document__business_id", "version__number"))
