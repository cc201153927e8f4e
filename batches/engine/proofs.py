"""What can be proven of a provider job before it is taken for a document's, and what cannot. Writes nothing.

It reads the job's PDF once, through the provider, and throws it away; call it outside a transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import BinaryIO, cast

from batches import figures
from batches.conf import ENGINE
from batches.engine import collection
from batches.engine.pdfcheck import PdfChecker
from batches.models import Job, Submission
from batches.providers import errors
from batches.providers.base import ExchangeFacts, JobPhase, JobStatus, Provider
from batches.storage import ArtifactStore, StoreError

#: A clock of the provider may be so much ahead of ours, or behind.
CLOCK_SKEW = timedelta(minutes=5)
#: A business id shorter than this stands in any document.
TELLING_LENGTH = 4


@dataclass(frozen=True)
class Proof:
    """One thing that was looked at. `holds`: it speaks for the document; False, against it; None, it cannot be told."""

    words: str
    holds: bool | None


def of(
    job: Job,
    target: Submission,
    status: JobStatus,
    provider: Provider,
    store: ArtifactStore,
    checker: PdfChecker,
    *,
    now: datetime,
) -> tuple[tuple[Proof, ...], tuple[ExchangeFacts, ...]]:
    proofs = [Proof(f"The job exists at this account, and is “{status.status_word}”.", True)]
    proofs.append(_made_in_time(target, status))
    name = status.result.filename if status.result else ""
    if name and job.version.filename:
        is_same = name == job.version.filename
        words = "is the one that we sent" if is_same else "is not the one that we sent"
        proofs.append(Proof(f"The file's name at the provider {words}.", is_same))
    pdf, seen = _looked_into(job, status, provider, store, checker, now=now)
    unproven = Proof("No reference of ours is named, so that it was made of this very input cannot be told.", None)
    return (*proofs, *pdf, unproven), seen


def _made_in_time(target: Submission, status: JobStatus) -> Proof:
    if status.created_at is None:
        return Proof("The provider does not say when it was made.", None)
    begins = target.first_sent_at - CLOCK_SKEW
    ends = target.last_sent_at + timedelta(seconds=ENGINE.read_timeout) + CLOCK_SKEW
    at = f"{status.created_at:%Y-%m-%d %H:%M:%S} UTC"
    if begins <= status.created_at <= ends:
        return Proof(f"It was made at {at}, while we were sending this document.", True)
    return Proof(f"It was made at {at}, when we were not sending this document.", False)


def _looked_into(
    job: Job, status: JobStatus, provider: Provider, store: ArtifactStore, checker: PdfChecker, *, now: datetime
) -> tuple[list[Proof], tuple[ExchangeFacts, ...]]:
    """What its PDF shows. It is fetched, looked at and thrown away; collecting fetches it again."""
    if status.phase is not JobPhase.SUCCEEDED or status.result is None:
        return [Proof("It is not finished, so there is no PDF yet to look into.", None)], ()
    business_id = job.version.document.business_id
    find = business_id if len(business_id) >= TELLING_LENGTH else ""
    try:
        with store.staging() as path:
            with path.open("wb") as file:
                sink = collection.HashingSink(file)
                downloaded = provider.download(
                    status.result, cast(BinaryIO, sink), max_bytes=ENGINE.download_bytes_most, now=now
                )
            problem, pages = collection.verify(path, sink.head, sink.tail, downloaded, checker)
            is_found = checker.check(path, find=find).found if find and not problem else None
    except errors.ProviderError as error:
        return [Proof(f"Its PDF could not be fetched to look into it: {error.words}", None)], exchange_of(error)
    except StoreError as error:
        return [Proof(f"There is no room to look into its PDF: {error.words}", None)], ()
    seen = (downloaded.exchange,)
    if problem:
        return [Proof(f"What it delivers is no usable PDF. {problem}", False)], seen
    shown = f"a whole PDF of {pages} page{'' if pages == 1 else 's'}, {figures.size(downloaded.byte_count)}"
    proofs = [Proof(f"It delivers {shown}.", True)]
    if is_found is None:
        proofs.append(Proof(f"The id {business_id} is too short to tell its text from another's.", None))
    elif is_found:
        proofs.append(Proof(f"The PDF's text shows {business_id}.", True))
    else:
        proofs.append(Proof(f"The PDF's text does not show {business_id}: it may be another document's.", False))
    return proofs, seen


def exchange_of(error: errors.ProviderError) -> tuple[ExchangeFacts, ...]:
    return (error.exchange,) if error.exchange else ()
