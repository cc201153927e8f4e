"""Collecting: download, verify, store durably, and only then `saved`.

Each step is one request at most: a link that turns out to be dead is told, and asked for anew by a step of its own, so
that downloads and status reads each leave in slots of their own lane (`fetches.py`).

A step runs without the database. What it stored lies under a key that the version determines, so that a repeated
step writes the same object again and has no second effect; what it came to is judged in `fetched.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

from batches.conf import ENGINE
from batches.engine import keeping, polling
from batches.engine.claims import Claim
from batches.engine.pdfcheck import PdfChecker
from batches.models import ExchangeKind, Lane, Submission
from batches.providers import errors
from batches.providers.base import Downloaded, ExchangeFacts, JobPhase, Provider, ResultRef
from batches.storage import ArtifactStore, StoreError, artifact_key

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
        kind = "gone" if status.phase in (JobPhase.SUCCEEDED, JobPhase.FAILED) else "unfinished"
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
    return _ref(claim.submission.provider_job_id, learned or claim.submission.result or {})


def stored_ref(submission: Submission) -> ResultRef:
    """The same, of a submission's row."""
    assert submission.provider_job_id is not None, "only what the provider named has a result there"
    return _ref(submission.provider_job_id, submission.result or {})


def _ref(provider_job_id: str, result: Mapping[str, Any]) -> ResultRef:
    return ResultRef(
        provider_job_id=provider_job_id,
        url=result.get("url") or "",
        size_bytes=result.get("size_bytes"),
        expires_at=_instant(result.get("expires_at")),
        filename=result.get("filename") or "",
        file_id=result.get("file_id") or "",
    )


def _instant(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
