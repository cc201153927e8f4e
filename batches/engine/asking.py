"""Asking the provider about a document whose end is not certain: status reads, and its own look-up where it has one.

It only asks and says what was said, with the exchanges. What follows from it is `reconcile.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from batches import figures, wording
from batches.engine import proofs
from batches.engine.evidence import SHOWN_MOST, Candidate, Ours, Sentence, time_of
from batches.engine.readpace import ReadPace
from batches.models import ProviderAccount, Submission, SubmissionOutcome
from batches.providers import errors
from batches.providers.base import ExchangeFacts, JobStatus, Provider

#: A look-up that knows nothing is believed so long after the last try: until then that may still be on its way. A
#: vendor may need longer (`Capabilities.look_up_after`).
NONE_BELIEVED_AFTER = timedelta(minutes=5)


@dataclass
class Said:
    """What the provider said just now, by submission: the jobs of a look-up, the status reads, and who is not there.

    `nameless` counts the jobs of a look-up that it shows without an id: they exist, and nothing can be read of them.
    `is_put_off`: there was no slot for all questions, so what is here is not all.
    """

    sentences: list[Sentence] = field(default_factory=list)
    seen: list[tuple[ExchangeFacts, int]] = field(default_factory=list)
    found: dict[int, tuple[JobStatus, ...]] = field(default_factory=dict)
    nameless: dict[int, int] = field(default_factory=dict)
    read: dict[int, JobStatus] = field(default_factory=dict)
    absent: set[int] = field(default_factory=set)
    billed: list[Candidate] = field(default_factory=list)
    is_put_off: bool = False


def ask(ours: Ours, provider: Provider | None, pace: ReadPace | None, *, now: datetime) -> Said:
    """Each of its jobs is read, and each submission in doubt looked up, where the provider can tell.

    With `pace` each question waits for its slot. Without a provider nobody is asked.
    """
    said = Said()
    if provider is None:
        said.sentences.append(Sentence("The provider was not asked: the account's key cannot be read.", now))
        return said
    settled = (SubmissionOutcome.DELIVERED, SubmissionOutcome.SURPLUS)
    questions = [partial(_read, row) for row in ours.named if row.outcome not in settled]
    if provider.capabilities.look_up:
        questions += [partial(_look_up, row, is_called=row.pk in ours.called) for row in ours.doubtful]
    if ours.doubtful and provider.capabilities.receipts:
        questions.append(partial(_read_receipts, ours))
    account = ProviderAccount.objects.get(pk=ours.job.account_id) if pace and questions else None
    for question in questions:
        asked_at = pace.next(account) if pace and account else now
        if asked_at is None:
            said.is_put_off = True
            return said
        question(provider, said, now=asked_at)
    for row in ours.doubtful:
        if not provider.capabilities.look_up:
            words = "The provider offers no look-up by key, so it cannot be asked whether it has submission"
            said.sentences.append(Sentence(f"{words} {row.sequence}."))
    return said


def _read(row: Submission, provider: Provider, said: Said, *, now: datetime) -> None:
    assert row.provider_job_id is not None
    shown = wording.masked(row.provider_job_id)
    try:
        status = provider.fetch_status(row.provider_job_id, now=now)
    except errors.ProviderError as error:
        _failed(row, error, said, what=f"{shown} could not be read", now=now)
        return
    said.seen.append((status.exchange, row.pk))
    said.read[row.pk] = status
    said.sentences.append(Sentence(f"The provider says of {shown}: “{status.status_word}”.", now))


def _look_up(row: Submission, provider: Provider, said: Said, *, is_called: bool, now: datetime) -> None:
    try:
        looked = provider.find_submission(row.idempotency_key, first_sent_at=row.first_sent_at, now=now)
    except errors.ProviderError as error:
        _failed(row, error, said, what=f"Submission {row.sequence} could not be looked up", now=now)
        return
    if looked is None:
        words = f"The provider keeps too little of that time to tell whether it has submission {row.sequence}."
        said.sentences.append(Sentence(words, now))
        return
    said.seen.append((looked.exchange, row.pk))
    if looked.jobs:
        said.found[row.pk] = looked.jobs
        shown = " and ".join(wording.masked(job.provider_job_id) for job in looked.jobs)
        said.sentences.append(Sentence(f"The provider has submission {row.sequence} as {shown}.", now))
    if looked.nameless:
        said.nameless[row.pk] = looked.nameless
        jobs = "a job" if looked.nameless == 1 else f"{looked.nameless} jobs"
        words = f"The provider shows {jobs} of submission {row.sequence} without an id"
        said.sentences.append(Sentence(f"{words}: it arrived and may be billed, and its PDF cannot be fetched.", now))
    elif not looked.jobs and is_called:
        words = f"The provider has no job of submission {row.sequence}, and called its address all the same."
        said.sentences.append(Sentence(words, now))
    elif not looked.jobs:
        _has_none(row, provider, said, now=now)


def _has_none(row: Submission, provider: Provider, said: Said, *, now: datetime) -> None:
    wait = max(NONE_BELIEVED_AFTER, timedelta(seconds=provider.capabilities.look_up_after or 0))
    if now < row.last_sent_at + wait:
        left = figures.duration((row.last_sent_at + wait - now).total_seconds())
        when = f"in {left}" if wait > NONE_BELIEVED_AFTER else "soon"
        words = f"The provider has no job of submission {row.sequence} yet; it may still be on its way."
        said.sentences.append(Sentence(f"{words} Ask again {when}.", now))
        return
    said.absent.add(row.pk)
    said.sentences.append(Sentence(f"The provider has no job of submission {row.sequence}: it never arrived.", now))


def _read_receipts(ours: Ours, provider: Provider, said: Said, *, now: datetime) -> None:
    """Jobs that were billed in the time of the submissions in doubt, and that no submission of the account has."""
    row = ours.doubtful[0]
    try:
        receipts = provider.list_receipts(now=now)
    except errors.ProviderError as error:
        _failed(row, error, said, what="The provider's receipts could not be read", now=now)
        return
    if receipts is None:
        return
    said.seen.append((receipts.exchange, row.pk))
    begins, ends = time_of(ours.doubtful)
    of_that_time = [
        each for each in receipts.entries if each.at is None or begins - proofs.CLOCK_SKEW <= each.at <= ends
    ]
    ids = {job_id for each in of_that_time for job_id in each.job_ids}
    known = set(
        Submission.objects.filter(account=ours.job.account_id, provider_job_id__in=ids).values_list(
            "provider_job_id", flat=True
        )
    )
    strange = [each for each in of_that_time if known.isdisjoint(each.job_ids)]
    for each in strange[:SHOWN_MOST]:
        shown = wording.masked(each.job_ids[0])
        words = f"The provider billed {shown}, a job that none of our documents has. A hint, no proof."
        said.sentences.append(Sentence(words, each.at))
        said.billed.append(Candidate(each.job_ids[0], "named by a receipt of that time"))
    if not receipts.entries:
        said.sentences.append(Sentence("The provider shows no receipts.", now))
    elif not strange:
        of_all = f"None of the {len(receipts.entries):,} receipts that the provider shows"
        said.sentences.append(Sentence(f"{of_all} is of a job of that time that is unknown to us.", now))


def _failed(row: Submission, error: errors.ProviderError, said: Said, *, what: str, now: datetime) -> None:
    if error.exchange is not None:
        said.seen.append((error.exchange, row.pk))
    words = "the provider does not know it." if isinstance(error, errors.NotFound) else error.words
    said.sentences.append(Sentence(f"{what}: {words}", now))
