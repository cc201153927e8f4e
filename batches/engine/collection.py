"""Collecting: download, verify, store durably, and only then `saved`.

The step runs without the database. What it stored lies under a key that the version determines, so that a repeated
step writes the same object again and has no second effect; the mark is a compare-and-set under the claim's token.
"""

from __future__ import annotations

import hashlib
import logging
import random
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO, cast

from batches.conf import ENGINE
from batches.engine import polling, retries
from batches.engine.changes import AccountEffect, ArtifactFacts, Change, moving
from batches.engine.claims import Claim
from batches.engine.pdfcheck import PdfChecker
from batches.models import AlertKind, FailureClass, HoldReason, JobState, SubmissionOutcome
from batches.providers import errors
from batches.providers.base import Downloaded, ExchangeFacts, JobPhase, Provider, ResultRef
from batches.storage import ArtifactStore, StoreError, artifact_key

log = logging.getLogger(__name__)

#: `%PDF-` stands at the start and `%%EOF` this near the end.
TAIL_BYTES = 2048


@dataclass(frozen=True)
class Collected:
    """The PDF lies in the store, verified and whole."""

    storage_key: str
    sha256: str
    byte_count: int
    page_count: int
    exchanges: tuple[ExchangeFacts, ...]


@dataclass(frozen=True)
class NotCollected:
    """Why there is no PDF yet. `kind` is gone, unfinished, bad_output, unreached or store; `words` are for people."""

    kind: str
    words: str
    exchanges: tuple[ExchangeFacts, ...]
    retry_after: float | None = None
    unauthorized: bool = False


class _HashingSink:
    """Writes through to a file and knows the digest, the length and the first bytes of what passed."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.byte_count = 0
        self.head = b""

    def write(self, data: bytes) -> int:
        self._file.write(data)
        self._digest.update(data)
        self.byte_count += len(data)
        if len(self.head) < 8:
            self.head += data[: 8 - len(self.head)]
        return len(data)

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


def collect(
    claim: Claim, provider: Provider, store: ArtifactStore, checker: PdfChecker, *, now: datetime
) -> Collected | NotCollected:
    """Fetch the result of a rendered job into the store. Never raises for what a provider or a store does."""
    return _Collection(claim, provider, store, checker, now).run()


@dataclass
class _Collection:
    """One attempt, with the exchanges that it made on the way."""

    claim: Claim
    provider: Provider
    store: ArtifactStore
    checker: PdfChecker
    now: datetime
    exchanges: list[ExchangeFacts] = field(default_factory=list)

    def run(self) -> Collected | NotCollected:
        try:
            try:
                return self._fetch_and_store(result_ref(self.claim))
            except errors.NotFound as error:
                self._keep(error)
            return self._fetch_by_fresh_link()
        except errors.NotFound as error:
            self._keep(error)
            return self._missed("gone", "The provider no longer has the file.")
        except errors.ProviderError as error:
            self._keep(error)
            is_bad = isinstance(error, errors.TargetRefused | errors.TooLarge)
            return replace(
                self._missed("bad_output" if is_bad else "unreached", error.words),
                retry_after=error.retry_after,
                unauthorized=isinstance(error, errors.Unauthorized),
            )
        except StoreError as error:
            return self._missed("store", error.words)

    def _fetch_by_fresh_link(self) -> Collected | NotCollected:
        """The link is dead: one status read for another one, then stop. Nothing is ever submitted again here."""
        status = polling.read(self.claim, self.provider, now=self.now)
        self.exchanges.append(status.exchange)
        if status.phase is not JobPhase.SUCCEEDED or status.result is None:
            kind = "unfinished" if status.phase is JobPhase.RUNNING else "gone"
            return self._missed(kind, f"The link is dead and the provider now says “{status.status_word}”.")
        return self._fetch_and_store(status.result)

    def _fetch_and_store(self, ref: ResultRef) -> Collected | NotCollected:
        with self.store.staging() as path:
            with path.open("wb") as file:
                sink = _HashingSink(file)
                downloaded = self.provider.download(
                    ref,
                    cast(BinaryIO, sink),  # it is only ever written to
                    max_bytes=ENGINE.download_bytes_most,
                    now=self.now,
                )
            self.exchanges.append(downloaded.exchange)
            problem, pages = verify(path, sink.head, downloaded, self.checker)
            if problem:
                return self._missed("bad_output", problem)
            claim = self.claim
            key = artifact_key(claim.workspace_slug, claim.business_id, claim.version_number)
            self.store.put(key, path)
        return Collected(key, sink.hexdigest(), sink.byte_count, pages, tuple(self.exchanges))

    def _keep(self, error: errors.ProviderError) -> None:
        if error.exchange is not None:
            self.exchanges.append(error.exchange)

    def _missed(self, kind: str, words: str) -> NotCollected:
        return NotCollected(kind, words, tuple(self.exchanges))


def verify(path: Path, head: bytes, downloaded: Downloaded, checker: PdfChecker) -> tuple[str, int]:
    """The first thing that is wrong with a downloaded file, in words, and its pages; ("", n) when all is well."""
    size = downloaded.byte_count
    wrong = [declared for declared in downloaded.declared_sizes if declared != size]
    if wrong:
        return f"It is {size} bytes long, but {wrong[0]} were announced.", 0
    if not head.startswith(b"%PDF-"):
        kind = downloaded.content_type or "no type"
        return f"It is not a PDF (sent as {kind}, {size} bytes).", 0
    with path.open("rb") as file:
        file.seek(max(0, size - TAIL_BYTES))
        if b"%%EOF" not in file.read():
            return f"It has no end mark, so it is cut short ({size} bytes).", 0
    facts = checker.check(path)
    return facts.problem, facts.pages


def result_ref(claim: Claim) -> ResultRef:
    """Where the PDF lies, as it was last read."""
    assert claim.submission is not None
    assert claim.submission.provider_job_id is not None
    result = claim.submission.result or {}
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
        submission_fields={"outcome": SubmissionOutcome.DELIVERED, "closed_at": now},
        exchanges=_of(claim, collected.exchanges),
        artifact=ArtifactFacts(
            submission_id=claim.submission.id,
            storage_key=collected.storage_key,
            sha256=collected.sha256,
            byte_count=collected.byte_count,
            page_count=collected.page_count,
        ),
    )


def judge_not_collected(claim: Claim, missed: NotCollected, *, now: datetime, rng: random.Random) -> Change:
    """Try again, or stop with a name: nothing here ever renders a second time."""
    fetches = claim.fetch_count + 1
    exchanges = _of(claim, missed.exchanges)
    if missed.kind == "unfinished":
        back = moving(
            claim, JobState.ACCEPTED, reason="not_finished_after_all", words=missed.words, fields={"due_at": now}
        )
        return Change(claim=claim, at=now, move=back, exchanges=exchanges)
    if missed.kind == "gone":
        words = f"{missed.words} The provider's job id is kept, and nothing was submitted again."
        return _end(claim, JobState.EXPIRED, FailureClass.EXPIRED, words, fetches, exchanges, now=now)
    if missed.kind == "bad_output" and fetches >= ENGINE.bad_output_fetches:
        words = f"Fetched {fetches} times, and each time it was no usable PDF. {missed.words}"
        return _end(claim, JobState.FAILED, FailureClass.BAD_OUTPUT, words, fetches, exchanges, now=now)
    if missed.kind != "bad_output":
        fetches = claim.fetch_count  # the file was never judged; waiting is not failing
        if now >= link_dies_at(claim):
            words = f"The file could not be fetched while its link lived. {missed.words}"
            return _end(claim, JobState.EXPIRED, FailureClass.EXPIRED, words, fetches, exchanges, now=now)
    # A store that is full, or a provider that is away for a while, is not asked every second.
    patient = missed.kind == "store" or (now - claim.state_changed_at).total_seconds() > 60
    tries = fetches + (5 if patient else 1)
    alert = None
    if missed.kind == "store":
        log.warning("the PDF of job %s cannot be stored: %s", claim.job_id, missed.words)
        alert = (AlertKind.STORE, f"{claim.business_id}: {missed.words} Its PDF waits at the provider meanwhile.")
    wait = max(retries.backoff(tries, rng), timedelta(seconds=missed.retry_after or 0))
    return Change(
        claim=claim,
        at=now,
        job_fields={"fetch_count": fetches, "due_at": min(now + wait, max(link_dies_at(claim), now))},
        exchanges=exchanges,
        alert=alert,
        effect=AccountEffect(hold=HoldReason.AUTH, words=missed.words) if missed.unauthorized else AccountEffect(),
    )


def link_dies_at(claim: Claim) -> datetime:
    """When the provider's copy is gone, as it said, else by the lifetime that is believed."""
    expires_at = result_ref(claim).expires_at
    return expires_at or claim.state_changed_at + timedelta(seconds=ENGINE.link_lifetime_seconds)


def _end(
    claim: Claim,
    to_state: JobState,
    failure_class: FailureClass,
    words: str,
    fetches: int,
    exchanges: tuple[tuple[ExchangeFacts, int | None], ...],
    *,
    now: datetime,
) -> Change:
    fields: dict[str, Any] = {
        "failure_class": failure_class,
        "failure_code": "",
        "failure_words": words,
        "fetch_count": fetches,
    }
    return Change(
        claim=claim,
        at=now,
        move=moving(claim, to_state, reason=failure_class.value, words=words, fields=fields),
        exchanges=exchanges,
    )


def _of(claim: Claim, facts: tuple[ExchangeFacts, ...]) -> tuple[tuple[ExchangeFacts, int | None], ...]:
    submission_id = claim.submission.id if claim.submission else None
    return tuple((exchange, submission_id) for exchange in facts)
