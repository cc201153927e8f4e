"""Where a document stands in the list of a batch that it was opened from: what comes before and after it, read only.

The filter of the list travels in the address of the document, as `in`, `row` and what the list itself says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.urls import reverse

from batches import cursors, listings
from batches.actions import Chosen
from batches.models import Batch, BatchItem


@dataclass(frozen=True)
class Neighbour:
    business_id: str
    url: str


@dataclass(frozen=True)
class Place:
    """`back` leads to the list, as it was filtered."""

    batch: Batch
    back: str
    chosen: Chosen
    before: Neighbour | None
    after: Neighbour | None


def query(batch: Batch, chosen: Chosen) -> str:
    """What the addresses of the rows of a list carry, but for the row itself."""
    return urlencode({"in": batch.public_id, **chosen.as_dict()})


def place(items: Iterable[BatchItem], given: Mapping[str, str], *, reads_content: bool) -> Place | None:
    """In two queries; None where the address names no list, or one in which the document is not (any more).

    `items` are those of the document, which the reader may see.
    """
    row = cursors.number(given.get("row"))
    item = next((each for each in items if each.batch.public_id == given.get("in") and each.position == row), None)
    if item is None:
        return None
    chosen = Chosen.of(given)
    matching = listings.items_matching(
        item.batch,
        group=chosen.group,
        cause=chosen.cause,
        q=chosen.q,
        is_noticed=chosen.is_noticed,
        reads_content=reads_content,
    )
    before = matching.filter(position__lt=item.position).order_by("-position")
    after = matching.filter(position__gt=item.position).order_by("position")
    address = reverse("batches:batch_detail", args=[item.batch.public_id])
    return Place(
        item.batch,
        f"{address}?{chosen.query}" if chosen.query else address,
        chosen,
        _neighbour(before, item.batch, chosen),
        _neighbour(after, item.batch, chosen),
    )


def _neighbour(found: QuerySet[BatchItem], batch: Batch, chosen: Chosen) -> Neighbour | None:
    columns = ("document__business_id", "document__public_id", "version__number", "position")
    row = found.values_list(*columns).first()
    if row is None:
        return None
    business_id, public_id, version, position = row
    carried = urlencode({"version": version, "row": position})
    address = reverse("batches:document_detail", args=[public_id])
    return Neighbour(business_id, f"{address}?{carried}&{query(batch, chosen)}")
