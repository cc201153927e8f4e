"""A few documents first: a batch waits, paused, until somebody has looked at its sample and releases it.

The sample is a batch of its own over the same document versions, so that releasing the other one attaches to what was
rendered: each is sent and billed once. It is made in the transaction that writes the last rows of the batch
(`writing.py`); releasing and cancelling are `running.resume` and `running.cancel`, which know of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from batches import figures
from batches.engine import audit, bulk, keys, running, turns
from batches.engine.audit import By
from batches.manifests import SENDING_ACTIONS
from batches.models import SAMPLE_MOST, Batch, BatchItem, Job

#: Why a batch with a sample does not go on; shown on every face.
WAITS = "It waits until somebody has looked at its sample."


@dataclass(frozen=True)
class Chosen:
    """The rows of a sample by their positions, in manifest order; none with the reason in `words`."""

    positions: tuple[int, ...] = ()
    words: str = ""


def choose(sent: Sequence[int], size: int) -> Chosen:
    """First, last and evenly between of the positions of the rows that are sent. Pure.

    None where nothing is sent, and where no document would be left to wait: then the batch itself is the sample.
    """
    size = min(size, SAMPLE_MOST)
    if size < 1:
        return Chosen()
    if not sent:
        return Chosen(words="No sample was rendered first, since nothing of it is sent; it started at once.")
    if len(sent) <= size:
        few = f"it sends only {figures.documents(len(sent))}, no more than the sample would be"
        return Chosen(words=f"No sample was rendered first: {few}; it started at once.")
    if size == 1:
        return Chosen((sent[0],))
    places = (round(index * (len(sent) - 1) / (size - 1)) for index in range(size))
    return Chosen(tuple(sent[place] for place in places))


def choose_of(batch: Batch, size: int) -> Chosen:
    """As `choose`, of a batch whose items are all written."""
    if size < 1:
        return Chosen()
    sent = BatchItem.objects.filter(batch=batch, intake_outcome__in=SENDING_ACTIONS).order_by("position")
    return choose(list(sent.values_list("position", flat=True)), size)


def make(batch: Batch, positions: Sequence[int], *, by: By, now: datetime) -> Batch:
    """Write the sample of a batch that was written in this transaction with all its items; its rows keep their
    positions, which are those of the file."""
    sample = Batch(
        public_id=keys.public_id("bat"),
        workspace=batch.workspace,
        account=batch.account,
        name=f"Sample of {batch.name}"[:200],
        manifest_name=batch.manifest_name,
        manifest_key=batch.manifest_key,
        manifest_sha256=batch.manifest_sha256,
        manifest_bytes=batch.manifest_bytes,
        report={name: batch.report[name] for name in ("columns", "columns_are_all") if name in batch.report},
        on_conflict=batch.on_conflict,
        creation_key=keys.kept(f"sample of {batch.public_id}"),
        terms=batch.terms,
        created_by=batch.created_by,
        created_at=now,
        weight=batch.weight,
        sample_of=batch,
    )
    sample.save(force_insert=True)
    columns = ("position", "document", "version", "original_row", "intake_outcome")
    rows = BatchItem.objects.filter(batch=batch, position__in=positions).order_by("position").values(*columns)
    bulk.insert(BatchItem, [{"batch": sample.pk, **row} for row in rows])
    turns.choose_leads(Job.objects.filter(version__items__batch=sample))
    audit.record(
        "start_batch",
        subject=f"batch {sample.public_id}",
        workspace=batch.workspace,
        by=by,
        now=now,
        facts={"name": sample.name, "sample_of": batch.public_id, "documents": len(positions)},
    )
    return sample


def release(batch_id: int, *, reason: str = "", by: By, now: datetime) -> bool:
    """Let a batch go on that waits for it; true when this call did it. Raises as `running.resume`."""
    return running.resume(batch_id, reason=reason, by=by, now=now, only_release=True)


def of(batch: Batch) -> Batch | None:
    """The sample of a batch, where it has one."""
    return Batch.objects.filter(sample_of=batch).first()
