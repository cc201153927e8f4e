"""PDFs that come to us instead of being fetched: in the answer to a submission, or by a call to our own address.

Such a file exists nowhere else, so it is kept in our own store before anybody is told: before the answer becomes a row,
and before the provider's call is answered 2xx. From there it takes the road of every other: a status read finds it
here, its download copies it, and only what `collection` has verified and stored is saved. What was kept is removed by
the sweep once its submission is closed. Runs without the database, on a pump's threads, but for `sweep`.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, BinaryIO, cast

from batches.engine.keeping import COPY_BYTES
from batches.models import ExchangeKind, Submission, SubmissionOutcome
from batches.providers.base import (
    Accepted,
    Capabilities,
    Delivery,
    Downloaded,
    ExchangeFacts,
    Finished,
    JobPhase,
    JobStatus,
    PreparedRequest,
    Provider,
    ProviderEvent,
    ResultRef,
)
from batches.providers.errors import AnswerLost, ContractBroken, NotFound, TooLarge
from batches.storage import RECEIVED, ArtifactStore, ObjectMissing, StoreError, received_key

WAITING, HERE, REFUSED = "waiting for the callback", "received", "reported as failed"
#: What is kept of a reported failure.
TELL_BYTES = 64 * 1024
#: What was received stays so long after it came, so that a repeat of the call or of a step finds it.
KEPT_FOR = timedelta(days=1)
SWEPT_AT_ONCE = 500


def keeps(capabilities: Capabilities) -> bool:
    """Whether files of this account may come to us."""
    return capabilities.delivery is not Delivery.DOWNLOAD


def keep_file(store: ArtifactStore, account_slug: str, provider_job_id: str, source: Path | BinaryIO) -> None:
    """Keep a PDF that came. The first one of a job stays: a repeat of the call brings the same. Raises store errors."""
    key = _key(account_slug, provider_job_id, "pdf")
    if store.size(key) is None:
        store.put(key, source)


def keep_failure(store: ArtifactStore, account_slug: str, event: ProviderEvent) -> None:
    """Keep that a job was reported as failed, by a provider whose word at its callback is all there is."""
    told = {"type": event.type, "code": event.error_code, "words": event.error_words}
    store.put(_key(account_slug, event.provider_job_id, "json"), io.BytesIO(json.dumps(told).encode()))


def receiving(provider: Provider, store: ArtifactStore, account_slug: str) -> Provider:
    """`provider`, whose files that come to us are kept in `store` and read from there."""
    return cast(Provider, _Receiving(provider, store, account_slug)) if keeps(provider.capabilities) else provider


class _Receiving:
    """Every call is the adapter's but for those about a file that came, or may come, to us."""

    def __init__(self, provider: Provider, store: ArtifactStore, account_slug: str) -> None:
        self._provider = provider
        self._store = store
        self._slug = account_slug

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    def submit(
        self, request: PreparedRequest, *, idempotency_key: str, now: datetime, gate: Callable[[], None]
    ) -> Accepted | Finished:
        """As the adapter's. An answer whose file could not be kept is lost: its row must not say that it is there."""
        answer = self._provider.submit(request, idempotency_key=idempotency_key, now=now, gate=gate)
        if not isinstance(answer, Finished) or answer.content is None:
            return answer
        try:
            keep_file(self._store, self._slug, answer.provider_job_id, io.BytesIO(answer.content))
        except StoreError as error:
            words = f"The answer held the PDF, which our store could not take: {error.words}"
            raise AnswerLost(words, exchange=answer.exchange) from None
        result = replace(answer.result, size_bytes=len(answer.content))
        return replace(answer, content=None, result=result)

    def fetch_status(self, provider_job_id: str, *, now: datetime) -> JobStatus:
        """What came of it, where there is nobody else to ask; else the adapter's."""
        try:
            size = self._store.size(_key(self._slug, provider_job_id, "pdf"))
            if size is not None:
                result = ResultRef(provider_job_id, size_bytes=size)
                return self._read(provider_job_id, JobPhase.SUCCEEDED, HERE, now, result=result)
            if self._provider.capabilities.status_poll:
                return self._provider.fetch_status(provider_job_id, now=now)
            if self._provider.capabilities.delivery is Delivery.ANSWER:
                facts = _facts(ExchangeKind.POLL, now, "NotFound")
                raise NotFound(
                    "What the answer held is no longer here, and the provider keeps nothing.", exchange=facts
                )
            told = self._told(provider_job_id)
        except StoreError as error:
            raise ContractBroken(f"Our store cannot say whether its PDF has come: {error.words}") from None
        if told is None:
            return self._read(provider_job_id, JobPhase.RUNNING, WAITING, now)
        code, words = str(told.get("code") or ""), str(told.get("words") or "")
        unbilled = code in self._provider.capabilities.unbilled_failure_codes
        return self._read(
            provider_job_id, JobPhase.FAILED, REFUSED, now, error_code=code, error_words=words, unbilled=unbilled
        )

    def download(self, ref: ResultRef, sink: BinaryIO, *, max_bytes: int, now: datetime) -> Downloaded:
        """Copy what came. Raises store errors, and as the adapter's where it came by no call of ours."""
        try:
            source = self._store.open(_key(self._slug, ref.provider_job_id, "pdf"))
        except ObjectMissing:
            if self._provider.capabilities.delivery is Delivery.CALLBACK:
                raise NotFound(
                    "What the provider sent is no longer here, and it keeps nothing.",
                    exchange=_facts(ExchangeKind.DOWNLOAD, now, "NotFound"),
                ) from None
            return self._provider.download(ref, sink, max_bytes=max_bytes, now=now)
        count = 0
        with source:
            while chunk := source.read(COPY_BYTES):
                count += len(chunk)
                if count > max_bytes:
                    raise TooLarge(f"What came is larger than the limit of {max_bytes} bytes.")
                sink.write(chunk)
        return Downloaded(count, "application/pdf", (), _facts(ExchangeKind.DOWNLOAD, now))

    def _told(self, provider_job_id: str) -> dict[str, Any] | None:
        try:
            with self._store.open(_key(self._slug, provider_job_id, "json")) as stream:
                told = json.loads(stream.read(TELL_BYTES))
        except ObjectMissing:
            return None
        return told if isinstance(told, dict) else {}

    @staticmethod
    def _read(provider_job_id: str, phase: JobPhase, word: str, now: datetime, **more: Any) -> JobStatus:
        return JobStatus(provider_job_id, phase, word, _facts(ExchangeKind.POLL, now), **more)


def _facts(kind: ExchangeKind, now: datetime, error_class: str = "") -> ExchangeFacts:
    """A look into our own store, in the place of a request."""
    request = {"method": "", "route": "[what came to us]", "bytes": 0}
    return ExchangeFacts(kind, now, 0, None, error_class=error_class, request=request)


def _key(account_slug: str, provider_job_id: str, ending: str) -> str:
    return received_key(account_slug, hashlib.sha256(provider_job_id.encode()).hexdigest(), ending)


def sweep(store: ArtifactStore, *, now: datetime) -> int:
    """Remove what came and is not needed any more: its submission is closed, or no row knows it. How much there was.

    Raises store errors.
    """
    start = f"{RECEIVED}/"
    objects = takewhile(lambda each: each.key.startswith(start), store.iter_facts(after=start))
    old = [each.key for each in islice(objects, SWEPT_AT_ONCE) if each.changed_at < now - KEPT_FOR]
    needed = _open_keys({key.split("/")[1] for key in old}) if old else set()
    for key in (unneeded := [key for key in old if key not in needed]):
        store.delete(key)
    return len(unneeded)


def _open_keys(account_slugs: set[str]) -> set[str]:
    """The places of what open submissions of these accounts may still ask for.

    One whose answer was lost has no job id yet; what came for it lies under its key, and is all that there may ever be.
    """
    rows = Submission.objects.filter(account__slug__in=account_slugs, outcome=SubmissionOutcome.OPEN)
    known = rows.values_list("account__slug", "provider_job_id", "idempotency_key")
    return {
        _key(slug, name, ending)
        for slug, job_id, key in known.iterator()
        for name in {job_id or key, key}
        for ending in ("pdf", "json")
    }
