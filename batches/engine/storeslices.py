"""What both walks of the store's sweeps share: whose slice it is, where it stands, what it says, and the one alert.

A walk goes in slices of a few seconds. Its row in `StoreSweep` remembers the place, so that another worker goes on
there, and holds the lease. Nothing is looked at here: `storecheck.py` and `storeorphans.py` do that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from urllib.parse import quote, unquote_to_bytes

from django.db.models import Case, Count, When

from batches.engine import alerts, leases, storerepair
from batches.engine.clock import Clock
from batches.engine.storerepair import Amiss
from batches.models import AlertKind, FindingKind, JobState, StoreFinding, StoreSweep, SweepKind
from batches.storage import ArtifactStore, shown

#: One slice, so that other tasks of the cluster start soon; and how long another worker leaves a slice alone.
SLICE = timedelta(seconds=5)
LEASE = timedelta(minutes=5)
#: A new round begins this long after the last one began: a lost file is found within the hour.
ROUND_EVERY = timedelta(hours=1)
#: Documents that the alert names.
NAMED_MOST = 3


@dataclass(frozen=True)
class SliceReport:
    """What one slice did.

    `is_busy`: another worker has it, or no round is due. `trouble` says why it stopped: the store is away, or too much
    is amiss at once. `unread` counts what the store could not say, `others` listed objects that are no PDFs: manifests,
    inputs, requests, what was kept aside.
    """

    looked_at: int = 0
    missing: int = 0
    damaged: int = 0
    unread: int = 0
    orphaned: int = 0
    others: int = 0
    is_round_over: bool = False
    is_busy: bool = False
    trouble: str = ""


@dataclass
class Slice:
    """One slice under way: its row, what it has seen, and when it has to end. `place`: the last key it looked at."""

    sweep: StoreSweep
    store: ArtifactStore
    clock: Clock
    ends_at: datetime
    place: str
    looked_at: int = 0
    others: int = 0
    amiss: list[Amiss] = field(default_factory=list)
    unread: list[Amiss] = field(default_factory=list)

    def is_over(self) -> bool:
        return self.clock.now() >= self.ends_at


@contextmanager
def leased(kind: SweepKind, owner: str, now: datetime, *, by_person: bool) -> Iterator[StoreSweep | None]:
    """The sweep's row, ours alone for the slice; None while another worker has it or no round is due."""
    StoreSweep.objects.bulk_create([StoreSweep(kind=kind)], ignore_conflicts=True)
    rows = StoreSweep.objects.filter(kind=kind)
    if not leases.take(rows, owner, until=now + LEASE, now=now):
        yield None
        return
    sweep = StoreSweep.objects.get(kind=kind)
    try:
        is_between = sweep.started_at is None or sweep.finished_at is not None
        if is_between and sweep.started_at and not by_person and now < sweep.started_at + ROUND_EVERY:
            yield None
            return
        if is_between:
            sweep.started_at, sweep.position = now, ""
            # A round that troubles keep from its end goes on with the findings where it stood; a person's begins anew.
            settled = 0 if by_person else sweep.facts.get("settled", 0)
            sweep.facts = {"round": int(sweep.facts.get("round", 0)) + 1, "settled": settled}
        yield sweep
    finally:
        leases.give_back(rows, owner)


def begin_anew(kind: SweepKind) -> None:
    """A person's round starts at the first key, wherever the scheduled one stands."""
    StoreSweep.objects.filter(kind=kind, lease_until=None).update(position="", started_at=None, finished_at=None)


def place_of(sweep: StoreSweep) -> str:
    """The name behind which the slice goes on. The column shows it; the facts hold one that is no key of ours."""
    quoted = sweep.facts.get("after")
    return sweep.position if quoted is None else unquote_to_bytes(quoted).decode("utf-8", "surrogateescape")


def remember(work: Slice, *, is_round_over: bool) -> None:
    """The slice went well, so that the next one goes on behind it."""
    sweep = work.sweep
    sweep.position = shown(work.place)
    facts = {name: value for name, value in sweep.facts.items() if name not in ("trouble", "after")}
    facts["looked_at"] = int(facts.get("looked_at", 0)) + work.looked_at
    if sweep.position != work.place or not work.place.isascii():
        facts["after"] = quote(work.place.encode("utf-8", "surrogateescape"))
    StoreSweep.objects.filter(pk=sweep.pk, lease_owner=sweep.lease_owner).update(
        position=sweep.position,
        started_at=sweep.started_at,
        finished_at=work.clock.now() if is_round_over else None,
        facts=facts,
    )


def troubled(work: Slice, words: str) -> SliceReport:
    """The place is not remembered: the next slice looks at the same objects again."""
    StoreSweep.objects.filter(pk=work.sweep.pk).update(facts={**work.sweep.facts, "trouble": words})
    tell(now=work.clock.now())
    return replace(report(work, is_round_over=False), trouble=words)


def report(work: Slice, *, is_round_over: bool) -> SliceReport:
    kinds = [each.kind for each in work.amiss]
    return SliceReport(
        looked_at=work.looked_at,
        missing=kinds.count(FindingKind.MISSING),
        damaged=kinds.count(FindingKind.DAMAGED),
        unread=len(work.unread),
        others=work.others,
        is_round_over=is_round_over,
    )


def tell(*, now: datetime) -> None:
    """One alert for all that is open, closed when nothing is."""
    found = StoreFinding.objects.filter(resolved_at=None).order_by()
    counts = dict(found.values_list("kind").annotate(count=Count("pk")))
    sentences = [sweep.facts["trouble"] for sweep in StoreSweep.objects.order_by("kind") if sweep.facts.get("trouble")]
    parts = [f"{counts[kind]:,} {kind.label.lower()}" for kind in FindingKind if counts.get(kind)]
    if parts:
        sentences.append(
            f"Objects in the store that are not as the database says: {', '.join(parts)}.{_named()} What the provider "
            "still has is fetched again by itself. The admin lists each under “Store findings”; `manage.py "
            "check_store` looks again."
        )
    if sentences:
        alerts.tell(AlertKind.STORE, alerts.STORE_OBJECTS, " ".join(sentences), now=now)
    else:
        alerts.close(AlertKind.STORE, alerts.STORE_OBJECTS, now=now)


def _named() -> str:
    """The first few documents and what happens to each, what waits for a person before the rest."""
    found = StoreFinding.objects.filter(resolved_at=None, artifact__isnull=False)
    by_need = Case(When(artifact__version__job__state=JobState.EXPIRED, then=0), default=1)
    about = found.select_related("artifact__version__document", "artifact__version__job").order_by(by_need, "pk")
    names = [
        f"{each.artifact.version} ({storerepair.what_follows(each)})" for each in about[:NAMED_MOST] if each.artifact
    ]
    return f" They are, or begin with: {'; '.join(names)}." if names else ""
