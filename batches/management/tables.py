"""Plain tables of the commands: fixed columns, no control characters, nothing that a pipe would break."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from django.core.management.base import OutputWrapper
from django.db.models import Q
from django.utils import timezone

from batches import attention, figures, results, rownumbers, selectors, sentences, wording
from batches.models import Batch, BatchItem, JobState

CELL_CHARACTERS = 60


def write_batch(out: OutputWrapper, batch: Batch) -> None:
    """The batch's counters, what is going on in the page's words, then one line per manifest row."""
    progress = selectors.progress(batch)
    out.write(f"{batch.public_id}  {printable(batch.name)}")
    out.write(f"{_labels(batch, progress)}: {counters(progress.counts)}")
    counts = progress.counts
    held_accounts = selectors.held_accounts(batch, progress)
    waits_until = selectors.waits_until(batch, progress, now=timezone.now())
    because = selectors.cancel_reason(batch)
    sentence = sentences.status_sentence(
        batch, progress, held_accounts, waits_until=waits_until, cancelled_because=because
    )
    out.write(printable(sentence))
    if batch.paused_at is not None and progress.state not in wording.ENDED_STATES:
        out.write(f"Let it go on with: {wording.resume_command(batch.public_id)}")
    for account in held_accounts:
        out.write(f"Account {printable(sentences.held_account(account))}")
    noticed = attention.notices(batch, counts)
    for item in noticed.items:
        out.write(printable(f"Worth a look: {item.business_id}: {item.words}"))
    if noticed.more_count:
        out.write(f"Worth a look: {noticed.more_count:,} more; `results` has each in the column notice.")
    out.write("")
    held = _held_positions(batch) if progress.counts.held else frozenset()
    rows = (
        (
            str(rownumbers.said(row["row"])),
            row["id"],
            str(row["version"]),
            wording.GROUP_BADGES[wording.Group.HELD].label
            if row["row"] in held
            else wording.JOB_BADGES[row["status"]].label,
            str(row["pages"] or ""),
            str(row["bytes"] or ""),
            (row["output_sha256"] or "")[:12] if row["status"] == JobState.SAVED else row["reason"] or "",
        )
        for row in results.rows(batch, with_ids=True)
    )
    write(out, ("row", "id", "version", "state", "pages", "bytes", "sha256 / reason"), rows)


def _labels(batch: Batch, progress: selectors.Progress) -> str:
    """`Running`, or `Running, paused`."""
    second = wording.second_badge(
        progress.state, is_paused=batch.paused_at is not None, is_cancelled=batch.cancelled_at is not None
    )
    first = wording.BATCH_BADGES[progress.state].label
    return f"{first}, {second.label.lower()}" if second else first


def _held_positions(batch: Batch) -> frozenset[int]:
    held = selectors.with_group(BatchItem.objects.filter(batch=batch)).filter(Q(group=wording.Group.HELD))
    return frozenset(held.values_list("position", flat=True))


def counters(counts: selectors.Counts) -> str:
    """`12 documents: 10 saved, 2 failed`; counters that are zero are left out."""
    parts = [
        f"{number:,} {label.lower()}"
        for label, number in (
            (wording.Group.SAVED.label, counts.saved),
            (wording.Group.IN_PROGRESS.label, counts.in_progress),
            (wording.Group.HELD.label, counts.held),
            (wording.Group.FAILED.label, counts.failed),
            (wording.Group.CANCELLED.label, counts.cancelled),
        )
        if number
    ]
    return f"{figures.documents(counts.total)}: {', '.join(parts)}" if parts else figures.documents(0)


def write(out: OutputWrapper, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table with columns as wide as their widest cell, at most `CELL_CHARACTERS`; the last may be longer."""
    table = [list(headings)]
    table += [[_short(printable(cell)) for cell in row[:-1]] + [printable(row[-1])] for row in rows]
    widths = [max(_width(row[column]) for row in table) for column in range(len(headings))]
    for row in table:
        cells = [cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)]
        out.write("  ".join(cells).rstrip())


def printable(text: str) -> str:
    """`text` on one line without what a terminal would act on."""
    return "".join(" " if unicodedata.category(letter)[0] in "CZ" else letter for letter in text)


def _short(text: str) -> str:
    return text if len(text) <= CELL_CHARACTERS else text[: CELL_CHARACTERS - 1] + "…"


def _width(text: str) -> int:
    """Columns that a terminal gives the text: wide characters take two, combining ones none."""
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )
