"""Stored PDFs that are worth a look though they open well: far from their batch's sizes, or the same file twice.

An error page that was printed into a valid PDF is small; a file that was mixed up has the same digest as another
document's. Owns the rule, a pure function, and its pass over a batch. A notice stops nothing and changes no state.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from django.db.models import Exists, OuterRef

from batches import wording
from batches.engine import bulk
from batches.models import Artifact, ArtifactNotice, BatchItem, StoreSweep, SweepKind

#: Of fewer, none can be told to be the odd one.
SIBLINGS_LEAST = 8
#: Smaller or larger than the middle by these factors is worth a look: an error page is mostly a tenth of an invoice,
#: while the invoices of one template seldom differ fourfold.
SMALL_FACTOR, LARGE_FACTOR = 4.0, 8.0
#: Where sizes differ widely anyhow, the factor grows with them: so many times the usual distance from the middle.
SPREAD_TIMES = 5.0
#: Small differences of small files say nothing.
BYTES_APART_LEAST = 512

#: Batches that are looked at again while they are being saved; larger ones wait for the sweep.
SMALL_BATCH = 1000
#: Of one pass.
BATCHES_MOST = 20
ROWS_MOST = 10_000


@dataclass(frozen=True)
class Sibling:
    """One stored PDF of a batch, with its document's id and what it was made from."""

    artifact_id: int
    business_id: str
    byte_count: int
    sha256: str
    input_sha256: str


@dataclass(frozen=True)
class Notice:
    kind: ArtifactNotice
    words: str


def notices(siblings: Sequence[Sibling]) -> dict[int, Notice]:
    """The notice of each artifact that deserves one, by its key. Pure."""
    found = _odd_sizes(siblings)
    found |= _same_files(siblings)  # the stronger word wins
    return found


def _odd_sizes(siblings: Sequence[Sibling]) -> dict[int, Notice]:
    if len(siblings) < SIBLINGS_LEAST:
        return {}
    middle = median(each.byte_count for each in siblings)
    distances = {each.artifact_id: math.log(each.byte_count / middle) for each in siblings}
    usual = median(abs(distance) for distance in distances.values())
    small = max(math.log(SMALL_FACTOR), SPREAD_TIMES * usual)
    large = max(math.log(LARGE_FACTOR), SPREAD_TIMES * usual)
    found = {}
    for each in siblings:
        distance = distances[each.artifact_id]
        if abs(each.byte_count - middle) < BYTES_APART_LEAST or -small < distance < large:
            continue
        kind = ArtifactNotice.SMALL if distance < 0 else ArtifactNotice.LARGE
        word = "smaller" if distance < 0 else "larger"
        words = (
            f"{wording.size(each.byte_count)}: much {word} than the others of its batch, which have about "
            f"{wording.size(round(middle))}. Look at it before it is sent out."
        )
        found[each.artifact_id] = Notice(kind, words)
    return found


def _same_files(siblings: Sequence[Sibling]) -> dict[int, Notice]:
    """The same bytes from another input. The same input under two ids may well be the same file."""
    by_digest: dict[str, list[Sibling]] = defaultdict(list)
    for each in siblings:
        by_digest[each.sha256].append(each)
    found = {}
    for same in by_digest.values():
        if len({each.input_sha256 for each in same}) < 2:
            continue
        first, second = same[0], next(each for each in same if each.input_sha256 != same[0].input_sha256)
        for each in same:
            other = first if each.input_sha256 != first.input_sha256 else second
            more = f" and of {len(same) - 2:,} more" if len(same) > 2 else ""
            words = (
                f"The very same file as that of {other.business_id}{more}, though it was made from another input. "
                "Look at both before they are sent out."
            )
            found[each.artifact_id] = Notice(ArtifactNotice.SAME, words)
    return found


# --- the pass ---


def look_at_versions(version_ids: Iterable[int]) -> int:
    """Judge the small batches of PDFs that were just saved. Returns how many notices were changed."""
    return _look_at_batches(set(_homes(sorted(version_ids)).values()), most_items=SMALL_BATCH)


def sweep(*, now: datetime) -> int:
    """Judge every batch with a PDF that was stored since the last pass but one; a few batches at a time.

    The pass before is repeated, since a row may be committed after one with a higher key.
    """
    StoreSweep.objects.bulk_create([StoreSweep(kind=SweepKind.NOTICES)], ignore_conflicts=True)
    place = StoreSweep.objects.get(kind=SweepKind.NOTICES)
    start, seen = int(place.position or 0), int(place.facts.get("seen", 0))
    new = Artifact.objects.filter(pk__gt=start).order_by("pk").values_list("pk", "version_id")
    rows = list(new[:ROWS_MOST])
    if not rows:
        return 0
    homes = _homes([version_id for _, version_id in rows])
    batches: set[int] = set()
    reached = start
    for artifact_id, version_id in rows:
        home = {homes[version_id]} if version_id in homes else set()
        if len(batches | home) > BATCHES_MOST:
            break
        batches |= home
        reached = artifact_id
    changed = _look_at_batches(batches)
    StoreSweep.objects.filter(pk=place.pk).update(
        position=str(min(max(seen, start), reached)), facts={"seen": reached}, finished_at=now
    )
    return changed


def _homes(version_ids: Sequence[int]) -> dict[int, int]:
    """The batch that each version is judged in: the first that named it."""
    homes: dict[int, int] = {}
    for start in range(0, len(version_ids), 1000):
        items = BatchItem.objects.filter(version__in=version_ids[start : start + 1000]).order_by("-batch_id")
        homes |= dict(items.values_list("version_id", "batch_id"))  # the lowest comes last and stays
    return homes


def _look_at_batches(batch_ids: Iterable[int], *, most_items: int | None = None) -> int:
    return sum(_look_at(batch_id, most_items=most_items) for batch_id in sorted(batch_ids)[:BATCHES_MOST])


def _look_at(batch_id: int, *, most_items: int | None) -> int:
    items = BatchItem.objects.filter(batch=batch_id)
    if most_items is not None and len(items.values_list("pk")[: most_items + 1]) > most_items:
        return 0
    earlier = BatchItem.objects.filter(version=OuterRef("version"), batch_id__lt=batch_id)
    stored = items.filter(
        version__artifact__isnull=False,
        version__artifact__local_deleted_at=None,
        version__artifact__missing_at=None,
    )
    columns = ("artifact__pk", "artifact__byte_count", "artifact__sha256", "input_sha256", "artifact__notice_words")
    rows = list(
        stored.order_by("position")
        .annotate(is_guest=Exists(earlier))
        .values_list("document__business_id", "is_guest", *(f"version__{name}" for name in columns))
    )
    siblings = [Sibling(pk, name, size, sha256, given) for name, _, pk, size, sha256, given, _ in rows]
    known = {pk: words for _, is_guest, pk, _, _, _, words in rows if not is_guest}
    return _write(known, notices(siblings))


def _write(known: Mapping[int, str], found: Mapping[int, Notice]) -> int:
    """Only what differs is written; a notice that is no longer deserved goes away."""
    rows = []
    for artifact_id, words in known.items():
        notice = found.get(artifact_id)
        if (notice.words if notice else "") != words:
            kind = notice.kind.value if notice else ""
            rows.append({"pk": artifact_id, "notice": kind, "notice_words": notice.words if notice else ""})
    if rows:
        bulk.guarded_update(Artifact, rows)
    return len(rows)
