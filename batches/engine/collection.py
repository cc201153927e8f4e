"""Collecting: download, verify, store durably, and only then `saved`.

Each step is one request at most: a link that turns out to be dead is told, and asked for anew by a step of its own, so
that downloads and status reads each leave in slots of their own lane (`fetches.py`).

A step runs without the database. What it stored lies under a key that the version determines, so that a repeated
step writes the same object again and has no second effect; the mark is a compare-and-set under the claim's token.
"""

from __future__ import annotations

import hashlib
import logging
import random
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

from batches import wording
from batches.conf import ENGINE
from batches.engine import keeping, links, polling, retries, storerepair
from batches.engine.changes import ArtifactFacts, Change, moving
from batches.engine.claims import Claim
from batches.engine.effects import NO_EFFECT, AccountEffect
from batches.engine.pdfcheck import PdfChecker
from batches.engine.polling import PollContext
from batches.models import AlertKind, ExchangeKind, FailureClass, HoldReason, JobState, Lane, SubmissionOutcome
from batches.providers import errors
from batches.providers.base import Downloaded, ExchangeFacts, JobPhase, Provider, ResultRef
from batches.storage import ArtifactStore, StoreError, artifact_key

log = logging.getLogger(__name__)

#: `%PDF-` stands at the start and `%%EOF` this near the end.
TAIL_BYTES = 2048
GONE = "The provider no longer has the file."


@dataclass(frozen=True)
class Collected:
    """The PDF lies in the store, verified and whole. `result` is what a fresh status read said about it, if any."""

    storage_key: str
    sha256: str
    byte_count: int
    page_count: int
    exchanges: tuple[ExchangeFacts, ...]
    result: dict[str, Any] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class NotCollected:
    """Why there is no PDF yet. `kind` is gone, unfinished, bad_output, unreached or store; `words` are for people.

    `error` is what the provider answered instead, if it did, and `lane` the one that asked. `result` is what a fresh
    status read said about where the PDF lies: the next try starts from it.
    """

    kind: str
    words: str
    exchanges: tuple[ExchangeFacts, ...]
    error: errors.ProviderError | None = None
    lane: Lane = Lane.DOWNLOAD
    result: dict[str, Any] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Trail:
    """What was asked on the way to a file before its download. `result`: a fresh status read said where it lies."""

    exchanges: tuple[ExchangeFacts, ...] = ()
    result: dict[str, Any] | None = field(default=None, repr=False)


NO_TRAIL = Trail()


@dataclass(frozen=True)
class LinkDead:
    """The link leads nowhere any more: one status read for another one comes next."""

    trail: Trail


class HashingSink:
    """Writes through to a file and knows the digest, the length and both ends of what passed."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.byte_count = 0
        self.head = b""
        self.tail = b""

    def write(self, data: bytes) -> int:
        self._file.write(data)
        self._digest.update(data)
        self.byte_count += len(data)
        if len(self.head) < 8:
            self.head += data[: 8 - len(self.head)]
        self.tail = data[-TAIL_BYTES:] if len(data) >= TAIL_BYTES else (self.tail + data)[-TAIL_BYTES:]
        return len(data)

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


def collect(
    claim: Claim,
    provider: Provider,
    store: ArtifactStore,
    checker: PdfChecker,
    *,
    now: datetime,
    trail: Trail = NO_TRAIL,
) -> Collected | NotCollected | LinkDead:
    """Fetch the result of a rendered job into the store. Never raises for what a provider or a store does."""
    return _Collection(claim, provider, store, checker, now, list(trail.exchanges), trail.result).run()


def is_link_dead(claim: Claim, trail: Trail, *, now: datetime) -> bool:
    """The provider said that it would be dead by now, so another link is asked for first. A fresh one is tried."""
    if trail.result is not None:
        return False
    expires_at = result_ref(claim).expires_at
    return expires_at is not None and expires_at <= now


def ask_for_link(claim: Claim, provider: Provider, *, now: datetime, trail: Trail) -> Trail | NotCollected:
    """One status read for another link, then stop. Nothing is ever submitted again here."""
    exchanges = trail.exchanges
    try:
        status = polling.read(claim, provider, now=now)
    except errors.ProviderError as error:
        exchanges = (*exchanges, error.exchange) if error.exchange is not None else exchanges
        if isinstance(error, errors.NotFound):
            return NotCollected("gone", GONE, exchanges)
        return NotCollected("unreached", error.words, exchanges, error=error, lane=Lane.POLL)
    exchanges = (*exchanges, status.exchange)
    if status.phase is not JobPhase.SUCCEEDED or status.result is None:
        kind = "unfinished" if status.phase is JobPhase.RUNNING else "gone"
        words = f"The link is dead and the provider now says “{status.status_word}”."
        return NotCollected(kind, words, exchanges, lane=Lane.POLL)
    kept, known = claim.submission.result if claim.submission else None, result_ref(claim)
    result = polling.result_facts(status.result, status.warnings, known=kept, now=now)
    if status.result.expires_at is None and status.result.url == known.url and known.expires_at:
        result["expires_at"] = known.expires_at.isoformat()  # the same link, so it ends when it was said to
    return Trail(exchanges, result)


@dataclass
class _Collection:
    """One attempt, with the exchanges that it made on the way. `result` is of a link that was asked for just now."""

    claim: Claim
    provider: Provider
    store: ArtifactStore
    checker: PdfChecker
    now: datetime
    exchanges: list[ExchangeFacts]
    result: dict[str, Any] | None

    def run(self) -> Collected | NotCollected | LinkDead:
        if is_link_dead(self.claim, Trail(result=self.result), now=self.now):
            return LinkDead(Trail(tuple(self.exchanges)))
        try:
            gate = keeping.gate_of(self.store)
            with gate.passing(self.store, now=self.now):
                return self._fetch_and_store(result_ref(self.claim, self.result), gate)
        except errors.NotFound as error:
            self._keep(error)
            if self.result is None:
                return LinkDead(Trail(tuple(self.exchanges)))
            return self._missed("gone", GONE)
        except errors.ProviderError as error:
            self._keep(error)
            return replace(self._missed("bad_output" if _is_wrong(error) else "unreached", error.words), error=error)
        except StoreError as error:
            return self._missed("store", error.words)

    def _fetch_and_store(self, ref: ResultRef, gate: keeping.StoreGate) -> Collected | NotCollected:
        with self.store.staging() as path:
            with path.open("wb") as file:
                sink = HashingSink(file)
                downloaded = self.provider.download(
                    ref,
                    cast(BinaryIO, sink),  # it is only ever written to
                    max_bytes=ENGINE.download_bytes_most,
                    now=self.now,
                )
            self.exchanges.append(downloaded.exchange)
            problem, pages = verify(path, sink.head, sink.tail, downloaded, self.checker)
            if problem:
                return self._missed("bad_output", problem)
            claim = self.claim
            key = artifact_key(claim.workspace_slug, claim.business_id, claim.version_number)
            stored = keeping.keep(self.store, key, path, sha256=sink.hexdigest())
            gate.stored()
        return Collected(
            stored.key, sink.hexdigest(), sink.byte_count, pages, tuple(self.exchanges), result=self.result
        )

    def _keep(self, error: errors.ProviderError) -> None:
        if error.exchange is not None:
            self.exchanges.append(error.exchange)

    def _missed(self, kind: str, words: str) -> NotCollected:
        return NotCollected(kind, words, tuple(self.exchanges), result=self.result)


def _is_wrong(error: errors.ProviderError) -> bool:
    """The provider did answer the download, and its answer is no file: asked for ever, it would say the same."""
    if isinstance(error, errors.TargetRefused | errors.TooLarge):
        return True
    is_download = error.exchange is not None and error.exchange.kind == ExchangeKind.DOWNLOAD
    return isinstance(error, errors.ContractBroken) and is_download


def verify(path: Path, head: bytes, tail: bytes, downloaded: Downloaded, checker: PdfChecker) -> tuple[str, int]:
    """The first thing that is wrong with a downloaded file, in words, and its pages; ("", n) when all is well.

    `head` and `tail` are its first bytes and its last `TAIL_BYTES`.
    """
    size = downloaded.byte_count
    wrong = [declared for declared in downloaded.declared_sizes if declared != size]
    if not head.startswith(b"%PDF-"):
        announced = f"; {wrong[0]} were announced" if wrong else ""
        kind = downloaded.content_type or "no type"
        return f"{_instead(head, downloaded.content_type)} (sent as {kind}, {size} bytes{announced}).", 0
    if wrong:
        return f"It is {size} bytes long, but {wrong[0]} were announced.", 0
    if b"%%EOF" not in tail:
        return f"It has no end mark, so it is cut short ({size} bytes).", 0
    facts = checker.check(path)
    return facts.problem, facts.pages


def _instead(head: bytes, content_type: str) -> str:
    """What a file is that is no PDF, by its first bytes and by what it was sent as."""
    start, kind = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower(), content_type.lower()
    if not head:
        return "It is empty, not a PDF"
    if start.startswith((b"<!doc", b"<html", b"<head", b"<body")) or (start.startswith(b"<") and "html" in kind):
        return "It is HTML, not a PDF"
    if start.startswith(b"<"):
        return "It is XML, not a PDF"
    if start.startswith((b"{", b"[")):
        return "It is JSON, not a PDF"
    return "It is not a PDF"


def result_ref(claim: Claim, learned: dict[str, Any] | None = None) -> ResultRef:
    """Where the PDF lies, as it was last read: just now, or before."""
    assert claim.submission is not None
    assert claim.submission.provider_job_id is not None
    result = learned or claim.submission.result or {}
    return ResultRef(
        provider_job_id=claim.submission.provider_job_id,
        url=result.get("url") or "",
        size_bytes=result.get("size_bytes"),
        expires_at=_instant(result.get("expires_at")),
        filename=result.get("filename") or "",
    )


def _instant(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def judge_collected(claim: Claim, collected: Collected, *, now: datetime) -> Change:
    """Stored and verified: now, and only now, it is saved."""
    assert claim.submission is not None
    return Change(
        claim=claim,
        at=now,
        move=moving(claim, JobState.SAVED, reason="stored", fields={"fetch_count": claim.fetch_count + 1}),
        submission_id=claim.submission.id,
        submission_fields={"outcome": SubmissionOutcome.DELIVERED, "closed_at": now, **_learned(collected)},
        exchanges=_of(claim, collected.exchanges),
        artifact=ArtifactFacts(
            submission_id=claim.submission.id,
            storage_key=collected.storage_key,
            sha256=collected.sha256,
            byte_count=collected.byte_count,
            page_count=collected.page_count,
        ),
    )


def judge_not_collected(claim: Claim, missed: NotCollected, context: PollContext, *, tries_in_vain: int = 0) -> Change:
    """Try again, or stop with a name: nothing here ever renders a second time.

    `tries_in_vain`: how often this file alone was cut off (`cutoff.py`), so that it is given up on.
    """
    assert claim.submission is not None
    now, rng = context.now, context.rng
    fetches = claim.fetch_count + 1
    change = Change(
        claim=claim,
        at=now,
        submission_id=claim.submission.id,
        submission_fields=_learned(missed),
        exchanges=_of(claim, missed.exchanges),
        effect=_effect(missed, context),
    )
    if missed.kind == "unfinished":
        return _unfinished(change, missed, fetches, now=now, rng=rng)
    if missed.kind == "gone":
        words = f"{missed.words} The provider's job id is kept, and nothing was submitted again."
        return _expired(change, words, fetches)
    if missed.kind == "bad_output" and fetches >= ENGINE.bad_output_fetches:
        words = f"Fetched {fetches} times, and each time it was no usable PDF. {missed.words}"
        return _ending(change, JobState.FAILED, FailureClass.BAD_OUTPUT, words, fetches)
    if tries_in_vain:
        words = (
            f"Its download was begun {tries_in_vain} times and never came to its end, while other files did. "
            f"{missed.words} The provider's job id is kept, and nothing was submitted again."
        )
        return _ending(change, JobState.FAILED, FailureClass.BAD_OUTPUT, words, claim.fetch_count)
    dies_at = link_dies_at(claim, missed.result)
    if missed.kind != "bad_output":
        fetches = claim.fetch_count  # the file was never judged; waiting is not failing
        if now >= dies_at:
            return _expired(change, f"The file could not be fetched while its link lived. {missed.words}", fetches)
    # A store that is full, or a provider that is away for a while, is not asked every second.
    patient = missed.kind == "store" or (now - claim.state_changed_at).total_seconds() > 60
    tries = fetches + (5 if patient else 1)
    alert = None
    if missed.kind == "store":
        log.warning("the PDF of job %s cannot be stored: %s", claim.job_id, missed.words)
        words = f"A finished PDF cannot be stored: {missed.words} Until it can, PDFs wait at the provider."
        alert = (AlertKind.STORE, words)
    wait = max(retries.backoff(tries, rng), retries.asked_wait(missed.error.retry_after if missed.error else None))
    due_at = max(now + wait, change.effect.cool_down_until or now)
    fields = {"fetch_count": fetches, "due_at": min(due_at, max(dies_at, now))}
    return replace(change, job_fields=fields, alert=alert)


def _effect(missed: NotCollected, context: PollContext) -> AccountEffect:
    """What it says about the account: a limit pauses the lane that met it, for every document behind this one."""
    error = missed.error
    if error is None:
        return NO_EFFECT
    if missed.lane is Lane.POLL:
        return polling.effect_of(error, context.account, now=context.now, rng=context.rng)
    if isinstance(error, errors.Unauthorized):
        return AccountEffect(hold=HoldReason.AUTH, words=missed.words)
    if isinstance(error, errors.RateLimited):
        until = context.now + retries.retry_after(error, context.rng)
        return AccountEffect(cool_down_until=until, cool_down_lane=missed.lane)
    return NO_EFFECT


def untold(claim: Claim, trail: Trail, *, now: datetime) -> Change:
    """What was asked and learned for a download that a pump, which ends, does not begin any more."""
    assert claim.submission is not None
    return Change(
        claim=claim,
        at=now,
        job_fields={"due_at": now},
        submission_id=claim.submission.id,
        submission_fields={"result": trail.result} if trail.result else {},
        exchanges=_of(claim, trail.exchanges),
    )


def _unfinished(change: Change, missed: NotCollected, fetches: int, *, now: datetime, rng: random.Random) -> Change:
    """It was read as finished, there is no file, and now it is read as not finished: it is read on, further apart.

    A provider may say so for ever, and its status reads alone never come past the deadline, which ends it here.
    """
    claim = change.claim
    ends_at = claim.deadline_at or now  # none: it came as finished, and was never waited for
    # Taken up again by the late watch, whose deadline is over: one read says whether it goes back to being watched.
    is_first_read = bool(claim.submission and claim.submission.watch_until) and claim.poll_count == 0
    if now >= ends_at and not is_first_read:
        words = (
            f"The provider said that it is finished and had no file, until the deadline had passed. {missed.words} "
            "The provider's job id is kept, and nothing was submitted again."
        )
        return _expired(change, words, fetches)
    # Each way there and back is one more status read, which is counted from the acceptance on.
    due_at = min(now + retries.backoff(claim.poll_count, rng), max(ends_at, now))
    fields = {"due_at": due_at}
    return replace(
        change,
        move=moving(claim, JobState.ACCEPTED, reason="not_finished_after_all", words=missed.words, fields=fields),
    )


def link_dies_at(claim: Claim, learned: dict[str, Any] | None = None) -> datetime:
    """When the provider's copy is gone, as it said last, else by the lifetime that is believed.

    Not counted from when the job's state changed, where it is known when the file was made: a job comes back to here.
    """
    known = claim.submission.result if claim.submission else None
    return links.dies_at(claim.state_changed_at, learned or known)


def _learned(outcome: Collected | NotCollected) -> dict[str, Any]:
    """Where the PDF lies, as a fresh status read said: kept, so that the next try does not begin at a dead link."""
    return {"result": outcome.result} if outcome.result else {}


def _expired(change: Change, words: str, fetches: int) -> Change:
    """The provider's file is gone. One that was saved once may still lie in a backup, and its key says where to."""
    if change.claim.lost_key is None:
        return _ending(change, JobState.EXPIRED, FailureClass.EXPIRED, words, fetches)
    lost = storerepair.lost_words(change.claim.lost_key)
    return _ending(change, JobState.EXPIRED, FailureClass.EXPIRED, lost, fetches, code=wording.OBJECT_LOST)


def _ending(
    change: Change, to_state: JobState, failure_class: FailureClass, words: str, fetches: int, *, code: str = ""
) -> Change:
    fields: dict[str, Any] = {
        "failure_class": failure_class,
        "failure_code": code,
        "failure_words": words,
        "fetch_count": fetches,
    }
    return replace(change, move=moving(change.claim, to_state, reason=failure_class.value, words=words, fields=fields))


def _of(claim: Claim, facts: tuple[ExchangeFacts, ...]) -> tuple[tuple[ExchangeFacts, int | None], ...]:
    submission_id = claim.submission.id if claim.submission else None
    return tuple((exchange, submission_id) for exchange in facts)
