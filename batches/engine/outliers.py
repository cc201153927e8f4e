"""Stored PDFs that are worth a look though they open well: far from their batch's sizes, or the same file twice.

An error page that was printed into a valid PDF is small; a file that was mixed up has the same digest as another
document's. Owns the rule, a pure function, and its pass over a batch. A notice stops nothing and changes no state.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from django.db.models import Exists, F, Max, Min, OuterRef, Q, QuerySet

from batches import figures
from batches.engine import bulk, mishaps
from batches.engine.contention import again_after_deadlock
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

#: Batches that are looked at again, whole, while they are being saved; larger ones wait for the sweep.
SMALL_BATCH = 1000
#: Of the larger ones each pass judges one, and each of them at most this often, so that its last PDFs wait no longer
#: than this. A sample of its items tells what is usual, and the database picks out what is odd.
LARGE_EVERY = timedelta(minutes=10)
SAMPLE = 2000
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


def notices(siblings: Sequence[Sibling], sizes: Usual | None = None) -> dict[int, Notice]:
    """The notice of each artifact that deserves one, by its key. Pure.

    `sizes`: what is usual, where the siblings are only those of the batch that may deserve one.
    """
    sizes = sizes or usual([each.byte_count for each in siblings])
    odd = {each.artifact_id: sizes.notice(each.byte_count) for each in siblings} if sizes else {}
    found = {artifact_id: notice for artifact_id, notice in odd.items() if notice}
    found |= _same_files(siblings)  # the stronger word wins
    return found


@dataclass(frozen=True)
class Usual:
    """The sizes of a batch: the middle, and from which factors on (as logarithms) one is small or large beside it."""

    middle: float
    small: float
    large: float

    def notice(self, size: int) -> Notice | None:
        distance = math.log(size / self.middle)
        if abs(size - self.middle) < BYTES_APART_LEAST or -self.small < distance < self.large:
            return None
        kind = ArtifactNotice.SMALL if distance < 0 else ArtifactNotice.LARGE
        word = "smaller" if distance < 0 else "larger"
        words = (
            f"{figures.size(size)}: much {word} than the others of its batch, which have about "
            f"{figures.size(round(self.middle))}. Look at it before it is sent out."
        )
        return Notice(kind, words)

    def bounds(self) -> tuple[int, int]:
        """Sizes between these deserve no notice. A byte more is asked, for what rounding does to logarithms."""
        return math.floor(self.middle * math.exp(-self.small)) + 1, math.ceil(self.middle * math.exp(self.large)) - 1


def usual(sizes: Sequence[int]) -> Usual | None:
    """None: of so few none can be told to be the odd one. Pure."""
    if len(sizes) < SIBLINGS_LEAST:
        return None
    middle = median(sizes)
    distance = median(abs(math.log(size / middle)) for size in sizes)
    small = max(math.log(SMALL_FACTOR), SPREAD_TIMES * distance)
    large = max(math.log(LARGE_FACTOR), SPREAD_TIMES * distance)
    return Usual(middle, small, large)


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
                f"Look at {'them all' if more else 'both'} before they are sent out."
            )
            found[each.artifact_id] = Notice(ArtifactNotice.SAME, words)
    return found


# --- the pass ---


def look_at_versions(version_ids: Iterable[int]) -> int:
    """Judge the small batches of PDFs that were just saved. Returns how many notices were changed."""
    batches = sorted(set(_homes(sorted(version_ids)).values()))
    return sum(_look_at(batch_id) for batch_id in batches[:BATCHES_MOST] if not _is_large(batch_id))


def sweep(*, now: datetime) -> int:
    """Judge every batch with a PDF that was stored since the last pass but one; a few batches at a time.

    The pass before is repeated, since a row may be committed after one with a higher key.
    """
    StoreSweep.objects.bulk_create([StoreSweep(kind=SweepKind.NOTICES)], ignore_conflicts=True)
    place = StoreSweep.objects.get(kind=SweepKind.NOTICES)
    start, seen = int(place.position or 0), int(place.facts.get("seen", 0))
    large = Large.of(place.facts)
    new = Artifact.objects.filter(pk__gt=start).order_by("pk").values_list("pk", "version_id")
    rows = list(new[:ROWS_MOST])
    if not rows and not large.owed:
        return 0
    batches, reached = _batches_of(rows, start)
    small = {batch_id for batch_id in batches if not _is_large(batch_id)}
    large.owe(batches - small)
    due = large.due(now=now)
    changed = 0
    for batch_id in sorted(small):
        with mishaps.contained(f"judging batch {batch_id}"):  # or no pass would ever come past it
            changed += _look_at(batch_id)
    if due is not None:
        with mishaps.contained(f"judging batch {due}"):
            changed += _look_at_large(due)
    StoreSweep.objects.filter(pk=place.pk).update(
        position=str(min(max(seen, start), reached)), facts={"seen": reached, **large.as_dict()}, finished_at=now
    )
    return changed


@dataclass
class Large:
    """The large batches with PDFs that were not judged yet, and when such batches were judged last."""

    owed: list[int]  # who waits longest comes first
    judged: dict[int, datetime]

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Large:
        judged = {int(key): datetime.fromisoformat(at) for key, at in facts.get("judged", {}).items()}
        return cls(list(facts.get("owed", [])), judged)

    def owe(self, batch_ids: Iterable[int]) -> None:
        self.owed += sorted(set(batch_ids) - set(self.owed))

    def due(self, *, now: datetime) -> int | None:
        """The one to judge now; it is owed no more."""
        self.judged = {key: at for key, at in self.judged.items() if now - at < LARGE_EVERY}
        ready = next((batch_id for batch_id in self.owed if batch_id not in self.judged), None)
        if ready is not None:
            self.owed.remove(ready)
            self.judged[ready] = now
        return ready

    def as_dict(self) -> dict[str, Any]:
        return {"owed": self.owed, "judged": {str(key): at.isoformat() for key, at in self.judged.items()}}


def _batches_of(rows: Sequence[tuple[int, int]], start: int) -> tuple[set[int], int]:
    """The batches in which to judge these artifacts, as far as one pass goes, and the last artifact of them."""
    homes = _homes([version_id for _, version_id in rows])
    batches: set[int] = set()
    reached = start
    for artifact_id, version_id in rows:
        home = {homes[version_id]} if version_id in homes else set()
        if len(batches | home) > BATCHES_MOST:
            break
        batches |= home
        reached = artifact_id
    return batches, reached


def _homes(version_ids: Sequence[int]) -> dict[int, int]:
    """The batch that each version is judged in: the first that named it."""
    homes: dict[int, int] = {}
    for chunk in bulk.chunks(version_ids, bulk.VALUES_PER_LIST):
        items = BatchItem.objects.filter(version__in=chunk).order_by("-batch_id")
        homes |= dict(items.values_list("version_id", "batch_id"))  # the lowest comes last and stays
    return homes


def _is_large(batch_id: int) -> bool:
    return len(BatchItem.objects.filter(batch=batch_id).values_list("pk")[: SMALL_BATCH + 1]) > SMALL_BATCH


def _stored(batch_id: int) -> QuerySet[BatchItem]:
    return BatchItem.objects.filter(
        batch=batch_id,
        version__artifact__isnull=False,
        version__artifact__local_deleted_at=None,
        version__artifact__missing_at=None,
    )


def _siblings(batch_id: int, stored: QuerySet[BatchItem], most: int) -> tuple[list[Sibling], dict[int, str]]:
    """The first of these items, and what is told of those that are judged in this batch, by artifact."""
    earlier = BatchItem.objects.filter(version=OuterRef("version"), batch_id__lt=batch_id)
    columns = ("artifact__pk", "artifact__byte_count", "artifact__sha256", "input_sha256", "artifact__notice_words")
    rows = list(
        stored.order_by("position")
        .annotate(is_guest=Exists(earlier))
        .values_list("document__business_id", "is_guest", *(f"version__{name}" for name in columns))[:most]
    )
    siblings = [Sibling(pk, name, size, sha256, given) for name, _, pk, size, sha256, given, _ in rows]
    return siblings, {pk: words for _, is_guest, pk, _, _, _, words in rows if not is_guest}


def _look_at(batch_id: int) -> int:
    siblings, known = _siblings(batch_id, _stored(batch_id), SMALL_BATCH)
    return _write(known, notices(siblings))


def _look_at_large(batch_id: int) -> int:
    """Judge a large batch without reading all of it: at most `ROWS_MOST` odd sizes and as many equal files."""
    stored = _stored(batch_id)
    sizes = usual(_sample(batch_id))
    suspect = ~Q(version__artifact__notice="")
    if sizes is not None:
        smallest, largest = sizes.bounds()
        suspect |= Q(version__artifact__byte_count__lte=smallest) | Q(version__artifact__byte_count__gte=largest)
    siblings, known = _siblings(batch_id, stored.filter(suspect), ROWS_MOST)
    by_digest = (
        stored.values("version__artifact__sha256")
        .annotate(first=Min("version__input_sha256"), last=Max("version__input_sha256"))
        .exclude(first=F("last"))
    )
    digests = list(by_digest.values_list("version__artifact__sha256", flat=True).order_by("version__artifact__sha256"))
    same: dict[int, Sibling] = {}
    for chunk in bulk.chunks(digests, bulk.VALUES_PER_LIST):
        of_digests = stored.filter(version__artifact__sha256__in=chunk)
        more, their_words = _siblings(batch_id, of_digests, ROWS_MOST - len(same))
        same |= {each.artifact_id: each for each in more}
        known |= their_words
        if len(same) >= ROWS_MOST:
            break
    # Whose equals lie beyond what was read keeps the notice that it has.
    shared = set(digests)
    unread = {each.artifact_id for each in siblings if each.sha256 in shared} - set(same)
    siblings = [*same.values(), *(each for each in siblings if each.artifact_id not in same)]
    found = notices(siblings, sizes) if sizes else _same_files(siblings)
    return _write({pk: words for pk, words in known.items() if pk not in unread}, found)


def _sample(batch_id: int) -> list[int]:
    """Sizes of PDFs from all over the batch, or the first ones where hardly any are stored yet."""
    stored = _stored(batch_id)
    last = BatchItem.objects.filter(batch=batch_id).aggregate(last=Max("position"))["last"] or 0
    spread = stored.filter(position__in=range(0, last + 1, last // SAMPLE + 1))
    sizes = list(spread.values_list("version__artifact__byte_count", flat=True))
    if len(sizes) >= SAMPLE // 10:
        return sizes
    first = stored.order_by("position").values_list("version__artifact__byte_count", flat=True)
    return list(first[:SAMPLE])


@again_after_deadlock
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
