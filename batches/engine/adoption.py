"""Taking up a provider job that a person, or the provider's own look-up, says is a document's.

The id is read at the account, what can be proven of it is proven and what cannot is said; only then, and after a person
has seen that list, does it go on a submission. From there on polling and collection do the rest: nothing here sends a
document, and no transaction is open across a network call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import unquote, urlsplit

from django.db import IntegrityError, transaction

from batches import queue, wording
from batches.engine import audit, deadlines, exchanges, giving_way, kept, polling, proofs, transitions, wakeups
from batches.engine.contention import again_after_deadlock
from batches.engine.exchanges import Evidence
from batches.engine.orders import Order, Result
from batches.engine.pdfcheck import PdfChecker
from batches.engine.proofs import Proof
from batches.engine.transitions import Move
from batches.engine.wakeups import Event
from batches.models import (
    FAILED_STATES,
    MAYBE_THERE,
    ItemResult,
    Job,
    JobState,
    ProviderAccount,
    Submission,
    SubmissionOutcome,
    WebhookEvent,
    WebhookOutcome,
)
from batches.providers import errors
from batches.providers.base import ExchangeFacts, JobPhase, JobStatus, Provider
from batches.storage import ArtifactStore

ID_LENGTH_MOST = 200
_ID = re.compile(r"[^\s/\\?#%\x00-\x1f\x7f]+")


@dataclass(frozen=True)
class Inspection:
    """What was found out about a provider job id. With `refusal` it cannot be adopted, and the words say why."""

    provider_job_id: str = ""
    submission_id: int | None = None
    status: JobStatus | None = None
    proofs: tuple[Proof, ...] = ()
    exchanges: tuple[ExchangeFacts, ...] = ()
    refusal: str = ""

    @property
    def proven(self) -> list[str]:
        return [proof.words for proof in self.proofs if proof.holds]

    @property
    def against(self) -> list[str]:
        return [proof.words for proof in self.proofs if proof.holds is False]

    @property
    def not_proven(self) -> list[str]:
        return [proof.words for proof in self.proofs if proof.holds is None]


@dataclass(frozen=True)
class Adoption:
    """What became of it, and what it was decided by."""

    result: Result
    inspection: Inspection


@dataclass(frozen=True)
class Taking:
    """A provider job on its way to a submission: whose it is to be, what was read of it, and who says so."""

    job_id: int
    submission_id: int
    status: JobStatus
    reason: str
    words: str = ""
    actor: str = "engine"


def sanitised(pasted: str) -> str:
    """The provider job id in what a person pasted: a bare id, or an address that ends in one. Raises `ValueError`."""
    text = pasted.strip().strip("\"'<>").strip()
    if "://" in text:
        try:
            path = urlsplit(text).path
        except ValueError:
            raise ValueError("That address cannot be read. Paste the provider's job id alone.") from None
        text = unquote(path.rstrip("/").rpartition("/")[2])
    if not text:
        raise ValueError("Paste the provider's job id, or the address that ends in it.")
    if len(text) > ID_LENGTH_MOST:
        raise ValueError(f"That is too long for a provider's job id: {ID_LENGTH_MOST} characters at most.")
    if not _ID.fullmatch(text) or not text.isprintable() or set(text) == {"."}:
        raise ValueError("That is no provider job id: it holds spaces, slashes or characters that no id has.")
    return text


def inspect(
    job_id: int, pasted: str, *, provider: Provider, store: ArtifactStore, checker: PdfChecker, now: datetime
) -> Inspection:
    """Read the job at the account and prove what can be proven. Writes nothing. Call it outside a transaction."""
    try:
        found = sanitised(pasted)
    except ValueError as error:
        return Inspection(refusal=str(error))
    job = Job.objects.select_related("version__document").defer("version__input_inline").get(pk=job_id)
    refusal = _owned(job, found)
    target = _target(job)
    if not refusal and job.state not in FAILED_STATES:
        refusal = "Nothing about it is uncertain any more."
    if not refusal and target is None:
        refusal = (
            "Each of its submissions has a provider job id already, or never arrived, so that no other job can be its "
            "own. Check again reads the known one."
        )
    if refusal or target is None:
        return Inspection(found, refusal=refusal)
    try:
        status = provider.fetch_status(found, now=now)
    except errors.ProviderError as error:
        if isinstance(error, errors.NotFound):
            refusal = "This account has no job with that id. Look whether it belongs to another account."
        else:
            refusal = f"The provider could not be asked, and nothing was changed: {error.words}"
        return Inspection(found, target.pk, exchanges=proofs.exchange_of(error), refusal=refusal)
    inspection = Inspection(found, target.pk, status, exchanges=(status.exchange,))
    if words := _unfinished(status):
        return replace(inspection, refusal=words)
    proven, seen = proofs.of(job, target, status, provider, store, checker, now=now)
    return replace(inspection, proofs=proven, exchanges=(status.exchange, *seen))


def adopt(
    job_id: int,
    pasted: str,
    *,
    order: Order,
    provider: Provider,
    store: ArtifactStore,
    checker: PdfChecker,
    now: datetime,
) -> Adoption:
    """Give the document the provider job that a person named, and let the pumps fetch it. Bills nothing.

    Without `order.is_confirmed` it only says what is proven and what is not.
    """
    seen = inspect(job_id, pasted, provider=provider, store=store, checker=checker, now=now)
    if not seen.refusal and order.is_confirmed and seen.status is not None and seen.submission_id is not None:
        summary = f"Provider job {wording.masked(seen.provider_job_id)} was adopted. {_summary(seen)}"
        taking = Taking(job_id, seen.submission_id, seen.status, "adopted", summary, order.by.words)
        refusal = _adopt(taking, seen, order, now=now)
        if not refusal:
            queue.ring()
            return Adoption(Result(ItemResult.DONE, summary), seen)
        seen = replace(seen, refusal=refusal)
    _keep_exchanges(job_id, seen)
    words = seen.refusal or f"Confirm that it is this document's. {_summary(seen)}"
    return Adoption(Result(ItemResult.SKIPPED, words), seen)


def _summary(seen: Inspection) -> str:
    parts = [("Proven", seen.proven), ("Speaks against it", seen.against), ("Not proven", seen.not_proven)]
    return " ".join(f"{title}: {' '.join(words)}" for title, words in parts if words)


def _adopt(taking: Taking, seen: Inspection, order: Order, *, now: datetime) -> str:
    """Write it with its audit entry; why not, where another one came first."""
    try:
        return _adopt_together(taking, seen, order, now=now)
    except IntegrityError:  # the same id at the same moment: the constraint let one of the two through
        job = Job.objects.select_related("version__document").defer("version__input_inline").get(pk=taking.job_id)
        return _owned(job, seen.provider_job_id) or "It was changed at this moment by somebody else; look again."


@again_after_deadlock
@transaction.atomic
def _adopt_together(taking: Taking, seen: Inspection, order: Order, *, now: datetime) -> str:
    refusal = take_up(taking, now=now)
    if refusal:
        return refusal
    job = Job.objects.select_related("version__document__workspace").get(pk=taking.job_id)
    document = job.version.document
    _record_exchanges(job, seen)
    audit.record(
        "adopt",
        subject=f"document {document.public_id}",
        workspace=document.workspace,
        by=order.by,
        now=now,
        reason=order.reason,
        facts={
            "provider_job": wording.masked(seen.provider_job_id),
            "version": job.version.number,
            "proven": seen.proven,
            "against": seen.against,
            "not_proven": seen.not_proven,
        },
    )
    return ""


def take_up(taking: Taking, *, now: datetime) -> str:
    """Put the id on its submission and the job on its way to saved. Returns why not, or nothing.

    Within the caller's transaction. Raises `IntegrityError` where another submission of the account has the id.
    """
    jobs = Job.objects.select_related("version__document").defer("version__input_inline")
    job = jobs.select_for_update(no_key=True, of=("self",)).get(pk=taking.job_id)
    rows = Submission.objects.defer("body_inline").filter(job=job)
    target = rows.get(pk=taking.submission_id)
    status, to_state = taking.status, _to_state(taking.status)
    if target.provider_job_id not in (None, status.provider_job_id):
        return "Its submission has got another provider job id meanwhile; look again."
    if job.state not in FAILED_STATES or (JobState(job.state), to_state) not in transitions.EDGES:
        return f"It is “{JobState(job.state).label}” meanwhile; look again."
    account = ProviderAccount.objects.only("deadline_seconds").get(pk=job.account_id)
    fields: dict[str, Any] = {
        "due_at": now,
        "deadline_at": deadlines.of_account(account, now) if to_state is JobState.ACCEPTED else job.deadline_at or now,
        "poll_count": 0,
        "fetch_count": 0,
        "provider_status": status.status_word[:100],
        "provider_status_at": now,
        **transitions.taken_over(job.fencing_token),
    }
    state = JobState(job.state)
    others = rows.filter(outcome=SubmissionOutcome.OPEN).exclude(pk=target.pk)
    lost = others.filter(MAYBE_THERE).first()
    if lost is not None and to_state is not JobState.RENDERED:
        return f"Submission {lost.sequence} of it may have been accepted as well, so nothing was changed."
    move = Move(
        job.pk, job.fencing_token, state, to_state, taking.reason, taking.words, actor=taking.actor, fields=fields
    )
    business_id = job.version.document.business_id
    giving_way.close_others(target, business_id=business_id, why="is the one that is taken", now=now)
    Submission.objects.filter(pk=target.pk).update(**_taken(target, status, now=now))
    transitions.move(move, now=now)
    _settle_events(job.account_id, status.provider_job_id, now=now)
    return ""


def _taken(target: Submission, status: JobStatus, *, now: datetime) -> dict[str, Any]:
    result: dict[str, Any] = {}
    if status.result:
        result = polling.result_columns(status.result, status.warnings, known=target.result, now=now)
    return {
        "provider_job_id": status.provider_job_id,
        "accepted_at": target.accepted_at or now,
        "in_doubt": False,
        "outcome": SubmissionOutcome.OPEN,
        "closed_at": None,
        "failed_at": None,
        "failed_again_at": None,
        "watch_at": None,
        # Also the mark that nobody saw how long it took, so that nothing is learned from it.
        "watch_until": now + kept.at_account(target.account_id),
        **result,
    }


def _settle_events(account_id: int, provider_job_id: str, *, now: datetime) -> None:
    waiting = WebhookEvent.objects.filter(
        account=account_id, provider_job_id=provider_job_id, outcome=WebhookOutcome.UNMATCHED
    )
    events = [Event(pk, account_id, provider_job_id, False) for pk in waiting.values_list("pk", flat=True)]
    if events:
        wakeups.settle(events, now=now)


def owner_of(account_id: int, provider_job_id: str) -> Submission | None:
    """The submission of the account that has the id, with its document."""
    rows = Submission.objects.filter(account=account_id, provider_job_id=provider_job_id)
    return rows.select_related("job__version__document").defer("body_inline", "job__version__input_inline").first()


def _unfinished(status: JobStatus) -> str:
    """Why there is nothing to take up, or nothing. Only a PDF that is there settles anything: the job may be another
    document's, and if it failed, or fails later, this one would be sent anew although its own was accepted."""
    if status.phase is JobPhase.FAILED:
        return (
            f"It failed there (“{status.status_word}”), so there is no PDF to fetch, and whether it was this "
            "document's cannot be told. If it was, Regenerate makes a new version."
        )
    if _to_state(status) is not JobState.RENDERED:
        return f"It is not finished there (“{status.status_word}”). Adopt it when it is; until then nothing is lost."
    return ""


def _owned(job: Job, provider_job_id: str) -> str:
    owner = owner_of(job.account_id, provider_job_id)
    if owner is None:
        return ""
    if owner.job_id == job.pk:
        return "That is this document's own provider job already. Check again reads it."
    document = owner.job.version.document
    mine = document.workspace_id == job.version.document.workspace_id
    whose = f"document {document.business_id}" if mine else "a document of another workspace"
    return f"That provider job belongs to {whose}, which was given its id. It cannot be adopted twice."


def _target(job: Job) -> Submission | None:
    """The submission that may have been accepted without our knowing its id: the open one first, then the newest."""
    rows = Submission.objects.defer("body_inline").filter(MAYBE_THERE, job=job)
    is_open = rows.filter(outcome=SubmissionOutcome.OPEN).first()
    return is_open or rows.order_by("-sequence").first()


def _to_state(status: JobStatus) -> JobState:
    is_done = status.phase is JobPhase.SUCCEEDED and status.result is not None
    return JobState.RENDERED if is_done else JobState.ACCEPTED


def _keep_exchanges(job_id: int, seen: Inspection) -> None:
    job = Job.objects.only("account_id").get(pk=job_id)
    with transaction.atomic():
        _record_exchanges(job, seen)


def _record_exchanges(job: Job, seen: Inspection) -> None:
    exchanges.record(Evidence(facts, job.account_id, job.pk, seen.submission_id) for facts in seen.exchanges)
