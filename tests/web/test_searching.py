"""The search box of a batch: each token narrows to what it says, and none that cannot be read lets more through."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from batches import listings, searching
from batches.actions import Chosen
from batches.models import Artifact, Batch, Document, DocumentVersion, JobState
from tests.factories import make_accepted_job, make_job, make_saved_job


@pytest.fixture
def mixed(batch: Batch) -> Batch:
    """Rows 1 to 6: waiting, rendering, saved with 12 pages and stale, saved as version 2, failed, past its deadline."""
    make_job(batch=batch, business_id="waiting")
    make_accepted_job(batch=batch, business_id="rendering")
    long = make_saved_job(batch=batch, business_id="long")
    Artifact.objects.filter(version=long.version).update(page_count=12)
    Document.objects.filter(business_id="long").update(source_sha256="e" * 64)
    again = make_saved_job(batch=batch, business_id="again")
    DocumentVersion.objects.filter(pk=again.version_id).update(number=2)
    make_job(batch=batch, business_id="refused", state=JobState.FAILED, failure_code="422")
    make_job(batch=batch, business_id="late", state=JobState.DEADLINE_EXCEEDED)
    return batch


def found(batch: Batch, q: str) -> list[str]:
    return [row.business_id for row in listings.items_page(batch, q=q).rows]


@pytest.mark.parametrize(
    ("q", "names"),
    [
        ("state:deadline", ["late"]),
        ("state:failed", ["refused", "late"]),
        ("state:waiting", ["waiting"]),
        ("state:in_progress", ["waiting", "rendering"]),
        ("state:saved", ["long", "again"]),
        ("code:422", ["refused"]),
        ("row:3-4", ["long", "again"]),
        ("row:>4", ["refused", "late"]),
        ("row:1", ["waiting"]),
        ("row:0", []),
        ("pages:>10", ["long"]),
        ("pages:<=12", ["long", "again"]),
        ("version:>1", ["again"]),
        ("stale:yes", ["long"]),
        ("stale:no row:<=4", ["waiting", "rendering", "again"]),
        ("state:saved again", ["again"]),
        ("state:failed pages:1", []),
    ],
)
def test_tokens_narrow_to_what_they_say(q: str, names: list[str], mixed: Batch) -> None:
    assert found(mixed, q) == names
    assert searching.read(q).notes == ()


@pytest.mark.parametrize(
    "q", ["state:lost", "row:a", "row:>2-3", "row:1-", "pages:many", "version:", "stale:perhaps", "row:9999999999"]
)
def test_what_cannot_be_read_matches_nothing_and_says_so(q: str, mixed: Batch, operator: Client) -> None:
    if q == "version:":  # no value yet: plain text
        assert not searching.read(q).is_unreadable
        return
    assert found(mixed, q) == []
    assert not Chosen.of({"q": f"{q} state:failed"}).matching(mixed, reads_content=True).exists()
    page = operator.get(f"/batches/{mixed.public_id}/", {"q": q}).text
    assert re.search(r'id="search-notes".*cannot be read, so nothing matches\. Write ', page, re.S)


def test_a_name_that_is_no_token_is_searched_for_and_told(mixed: Batch, operator: Client) -> None:
    Document.objects.filter(business_id="long").update(business_id="inv:7")
    assert found(mixed, "inv:7") == ["inv:7"]
    page = operator.get(f"/batches/{mixed.public_id}/", {"q": "inv:7"}).text
    assert "There is no “inv:”, so “inv:7” is searched for as it stands." in page
