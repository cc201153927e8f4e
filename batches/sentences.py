"""What is going on, in sentences for people, from facts that `selectors.py` derived. Pure: asks no query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from batches import figures, wording
from batches.models import ACTIVE_STATES, AccountHealth, Batch, HoldReason, JobState, ProviderAccount
from batches.models.accounts import pace_seconds, sound_limit, sound_windows
from batches.selectors import Progress
from batches.wording import BatchState


def status_sentence(
    batch: Batch,
    progress: Progress,
    held: Sequence[ProviderAccount] = (),
    *,
    waits_until: datetime | None = None,
    cancelled_because: str = "",
) -> str:
    """One sentence on what a batch does and, where that differs, one on what it needs.

    `waits_until`: the provider asked that nothing new be sent before. `cancelled_because`: a person's words.
    """
    counts = progress.counts
    cancelled = _with_reason("Cancelled", cancelled_because)
    if batch.cancelled_at is not None and progress.state in (BatchState.RUNNING, BatchState.HELD):
        sentence = _cancelled(progress, cancelled)
    elif progress.state == BatchState.RUNNING:
        sentence = _running(batch, progress, held)
        if waits_until is not None and not held and progress.waiting_count:
            sentence += f" Waiting for the service until {waits_until:%H:%M:%S} UTC: it asked for a pause."
    elif progress.state == BatchState.PAUSED and batch.waits_for_release:
        sentence = f"{_wait(counts.held)} until somebody has looked at the sample and releases the batch."
    elif progress.state == BatchState.PAUSED:
        sentence = f"Paused: {_wait(counts.held)} and nothing new is sent."
    elif progress.state == BatchState.HELD:
        sentence = f"Nothing is sent {_while_held(held or [batch.account])}: {_wait(counts.held)}, nothing is lost."
    elif progress.state == BatchState.COMPLETE:
        sentence = (
            f"All {figures.documents(counts.total)} are saved." if counts.total != 1 else "The document is saved."
        )
    elif progress.state == BatchState.CANCELLED:
        sentence = f"{cancelled}; {counts.saved:,} of {figures.documents(counts.total)} had been saved."
    elif progress.state == BatchState.FAILED:
        sentence = f"Ended: none of {figures.documents(counts.total)} was saved."
    elif progress.attention_count == counts.failed:
        sentence = f"Ended: {counts.saved:,} of {figures.documents(counts.total)} are saved."
    else:
        sentence = f"Ended: {counts.saved:,} of {figures.documents(counts.total)} are saved, {counts.failed:,} failed."
    if cancelled_because and progress.state in (BatchState.PARTIALLY_COMPLETE, BatchState.FAILED):
        sentence += f" It was cancelled because: {wording.sentence(cancelled_because)}"
    return " ".join(part for part in (sentence, _why_paused(batch, progress), attention_sentence(progress)) if part)


def _why_paused(batch: Batch, progress: Progress) -> str:
    """Why nothing new is sent, where the sentence before does not say it, and what ends that."""
    if batch.paused_at is None or progress.state in wording.ENDED_STATES or batch.waits_for_release:
        return ""
    is_said = progress.state == BatchState.RUNNING or not batch.pause_reason
    because = "" if is_said else f"It was paused because: {wording.sentence(batch.pause_reason)} "
    if batch.writing_at is not None:
        return f"{because}It begins by itself when all of them are there."
    return f"{because}When it may go on, resume it on its page."


def sample_sentence(batch: Batch, progress: Progress, sample: Progress) -> str:
    """What the few documents that are rendered first have come to, and what follows for their batch."""
    counts = sample.counts
    if not batch.waits_for_release:
        return _sample_after(batch, counts.saved, counts.total)
    rest = progress.counts.total - counts.total
    if sample.state not in wording.ENDED_STATES:
        return (
            f"{figures.documents(counts.total)} of it {_are(counts.total)} rendered first; the other {rest:,} "
            f"{'waits' if rest == 1 else 'wait'} until somebody has looked at {'it' if counts.total == 1 else 'them'}."
        )
    if counts.saved == counts.total:
        return "The sample is rendered: look at it, then release the batch or cancel it."
    if counts.failed:
        is_all = counts.failed == counts.total > 1
        some = "All" if is_all else f"{counts.failed:,} of the"
        return (
            f"{some} {figures.documents(counts.total)} failed. See why before you release the batch: "
            "the others may fail alike."
        )
    return f"The sample was cancelled; {counts.saved:,} of {figures.documents(counts.total)} had been rendered."


def _sample_after(batch: Batch, saved: int, total: int) -> str:
    rendered = f"{saved:,} of {figures.documents(total)} {_are(saved)} rendered"
    return f"It was cancelled; {rendered}." if batch.cancelled_at is not None else f"It was released; {rendered}."


def sample_in_short(batch: Batch, sample: Progress) -> str:
    """Beside the name of its batch in a list."""
    saved = f"{sample.counts.saved:,} of {sample.counts.total:,} rendered"
    if batch.waits_for_release and sample.state in wording.ENDED_STATES:
        return f"Sample: {saved}, to be looked at"
    return f"Sample: {saved}"


def correction_name(batch: Batch) -> str:
    """Of an upload of corrected rows; cut to what a draft's name can hold."""
    return f"Corrected rows of {batch.name}"[:200]


def held_account(account: ProviderAccount) -> str:
    """Why nothing is sent on a held account, and what ends that; its slug stands first."""
    what_to_do = wording.HOLD_WHAT_TO_DO[account.hold_reason]
    return f"{account.slug} is held: {wording.sentence(account.hold_words)} {what_to_do}"


def attention_sentence(progress: Progress) -> str:
    """`3 documents need a person.`, or nothing."""
    count = progress.attention_count
    return f"{figures.documents(count)} need{'s' if count == 1 else ''} a person." if count else ""


def breakdown(progress: Progress) -> str:
    """What the counter in progress is made of: `463 waiting, 4 rendering, 2 fetching`."""
    numbers = {**progress.in_progress_states, JobState.PENDING: progress.waiting_count}
    parts = [
        f"{numbers[state]:,} {wording.JOB_BADGES[state].label.lower()}" for state in ACTIVE_STATES if numbers.get(state)
    ]
    parts += [f"{progress.unneeded_count:,} not sent again"] if progress.unneeded_count else []
    return ", ".join(parts)


def sending_estimate(batch: Batch, progress: Progress) -> str:
    """How long sending the rest takes at the account's pace, or nothing where it is nearly done."""
    takes = sending_duration(batch, progress)
    return f"Sending the rest takes {takes} at this account's pace." if takes else ""


def sending_duration(batch: Batch, progress: Progress) -> str:
    """`about 24 min`, or nothing where all is sent, or nearly."""
    seconds = pace_seconds(batch.account, progress.waiting_count)
    return figures.duration(seconds) if progress.state == BatchState.RUNNING and seconds >= 15 else ""


def text_alternative(progress: Progress) -> str:
    """The segmented bar in words: `812 of 1,284 saved, 6 in progress, 463 waiting, 3 failed`."""
    counts = progress.counts
    waiting = progress.in_progress_states.get(JobState.PENDING, 0)
    parts = [
        (counts.in_progress - waiting, "in progress"),
        (waiting, "waiting"),
        (counts.held, "held"),
        (counts.failed, "failed"),
        (counts.cancelled, "cancelled"),
    ]
    rest = "".join(f", {number:,} {word}" for number, word in parts if number)
    return f"{counts.saved:,} of {counts.total:,} saved{rest}"


def _running(batch: Batch, progress: Progress, held: Sequence[ProviderAccount]) -> str:
    states = progress.in_progress_states
    waiting = progress.waiting_count
    sending = states.get(JobState.SUBMITTING, 0) - progress.repeat_count
    at_provider = sending + states.get(JobState.ACCEPTED, 0)
    fetched = states.get(JobState.RENDERED, 0)
    is_paused = batch.paused_at is not None
    still = "still " if is_paused else ""
    parts = [f"{at_provider:,} {still}at the provider"] if at_provider else []
    parts += [f"{fetched:,} being fetched"] if fetched else []
    turn = f"for {'its' if waiting == 1 else 'their'} turn"
    at_pace = figures.pace(interval_ms(batch.account))
    said = []
    if held and (waiting or states.get(JobState.SUBMITTING) or progress.counts.held):
        said.append(f"Nothing new is sent {_while_held(held)}; nothing is lost.")
    parts += [f"{waiting:,} waiting {turn} at {at_pace}"] if waiting and (parts or is_paused) else []
    if is_paused:
        said.append(
            f"{'; '.join([_with_reason('Paused', batch.pause_reason), *([', '.join(parts)] if parts else [])])}."
        )
    elif parts:
        said.append(f"{_doing(states, sending)}: {', '.join(parts)}.")
    elif waiting:
        said.append(f"Waiting {turn}: {figures.documents(waiting)}, {at_pace}.")
    said += [_repeats(progress)] if progress.repeat_count else []
    if progress.counts.held:
        said.append(f"{progress.counts.held:,} held.")
    return " ".join(said)


def _cancelled(progress: Progress, cancelled: str) -> str:
    """Of a batch that somebody cancelled and of which something still moves; `cancelled` says so, with the reason."""
    states, waiting, unneeded = progress.in_progress_states, progress.waiting_count, progress.unneeded_count
    sending = states.get(JobState.SUBMITTING, 0) - progress.repeat_count
    at_provider = sending + states.get(JobState.ACCEPTED, 0) + states.get(JobState.RENDERED, 0)
    said = [f"{cancelled}; {at_provider:,} {_are(at_provider)} still at the provider and will be saved."]
    if not at_provider:
        said = [f"{cancelled}; nothing new of it is sent."]
    if unneeded:
        said.append(f"{unneeded:,} could not be rendered and {_are(unneeded)} not sent again.")
    if waiting:
        said.append(f"{waiting:,} {_are(waiting)} sent all the same, for another batch.")
    said += [_repeats(progress)] if progress.repeat_count else []
    if progress.counts.held:
        said.append(f"{progress.counts.held:,} held.")
    return " ".join(said)


def _repeats(progress: Progress) -> str:
    """Of those whose submission may have arrived and was not answered clearly."""
    count = progress.repeat_count
    since = f" from {figures.clock(progress.repeat_at)} on" if progress.repeat_at else ""
    it = "it" if count == 1 else "they"
    return (
        f"No clear answer came for {figures.documents(count)}; {it} {_are(count)} sent again with the same key{since}."
    )


def _with_reason(word: str, reason: str) -> str:
    """`Paused because: month end`, without a full stop, so that more may follow."""
    reason = reason.strip()
    return f"{word} because: {reason.removesuffix('.')}" if reason else word


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _while_held(held: Sequence[ProviderAccount]) -> str:
    names = " and ".join(account.name for account in held)
    return f"while {names} {'are' if len(held) > 1 else 'is'} held"


def _doing(states: Mapping[str, int], sending: int) -> str:
    """What the furthest-reaching work of a running batch is."""
    if states.get(JobState.ACCEPTED):
        return "Rendering"
    return "Sending" if sending else "Fetching"


def _wait(count: int) -> str:
    return f"{figures.documents(count)} wait{'s' if count == 1 else ''}"


@dataclass(frozen=True)
class Estimate:
    """What a start would do: how many documents it sends, how long that takes at least, and the price where known."""

    renders: int
    duration: str
    cost: str
    basis: str = ""
    seconds_basis: str = ""


def estimate(account: ProviderAccount, renders: int) -> Estimate:
    cost = ""
    if account.price_per_job is not None:
        cost = figures.money(account.price_per_job * renders, account.price_currency)
    return Estimate(renders, figures.duration(pace_seconds(account, renders)), cost)


def interval_ms(account: ProviderAccount) -> float:
    """Milliseconds between two documents in the long run; the account's slowest limit decides."""
    windows = [float(seconds * 1000 / most) for most, seconds in sound_windows(account.submit_windows)]
    return max([float(sound_limit(account, "submit_interval_ms")), *windows])


def data_terms(account: ProviderAccount) -> str:
    """What whoever starts a batch should know of where its content goes; empty where nothing is written down."""
    said = []
    if account.processing_region or account.processor:
        where = f" in {account.processing_region}" if account.processing_region else ""
        who = f" by {account.processor}" if account.processor else ""
        said.append(f"Rendered{where}{who}.")
    kept = [f"the content after {account.source_retention}"] if account.source_retention else []
    kept += [f"the PDF after {account.output_retention}"] if account.output_retention else []
    if kept:
        said.append(f"Deleted there: {', '.join(kept)}.")
    return " ".join([*said, wording.sentence(account.data_notes)]).strip()


def terms_rows(terms: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What `engine/terms.py` keeps of an account, as (label, words); what nobody wrote down is said to be so."""
    if not terms:
        return []
    provider = " at ".join(filter(None, (str(terms.get("provider", "")), str(terms.get("host", "")))))
    said = [
        ("Provider", provider),
        ("Rendered in", terms.get("processing_region")),
        ("Content kept there for", terms.get("source_retention")),
        ("PDF kept there for", terms.get("output_retention")),
        ("Deleted there after saving", "asked for" if terms.get("deletes_after_saving") else "not asked for"),
        ("Processor", terms.get("processor")),
        ("Price of a document", terms.get("price")),
    ]
    rows = [(label, str(words or "not written down")) for label, words in said]
    return [*rows, ("Notes", str(terms["notes"]))] if terms.get("notes") else rows


def account_state(account: ProviderAccount, *, is_asked_to_wait: bool = False) -> str:
    """The word of `wording.ACCOUNT_BADGES`."""
    if account.archived_at is not None:
        return "archived"
    if account.health == AccountHealth.HELD:
        return AccountHealth.HELD
    if account.on_probation:
        return "trial"
    return "paused" if is_asked_to_wait else AccountHealth.OPEN


def breaker(account: ProviderAccount, *, opens_at: int) -> str:
    """What the row of failed calls means."""
    failed = account.transport_failure_count
    if account.health == AccountHealth.HELD and account.hold_reason == HoldReason.UNREACHABLE:
        probe = f" The next probe leaves at {figures.clock(account.probe_at)}." if account.probe_at else ""
        return f"Open: {failed:,} calls in a row did not get through.{probe}"
    if failed:
        calls = f"{failed:,} call{'' if failed == 1 else 's'} in a row did"
        return f"Closed; {calls} not get through. With {opens_at:,} the account is held and probed by itself."
    return "Closed: the last call got through."


def credit(account: ProviderAccount) -> str:
    """What is known of the account's money."""
    seen = f" Balance last seen: {account.balance_seen:f}, in the provider's own unit." if account.balance_seen else ""
    if account.hold_reason == HoldReason.CREDIT:
        look = f" The balance is read again at {figures.clock(account.probe_at)}." if account.probe_at else ""
        return f"The provider says that there is none.{seen}{look}"
    if account.on_probation:
        return f"On trial: one document at a time, until one is accepted.{seen}"
    return f"Nothing says that it is short.{seen}"
