"""Documents for which an account was refused before, and whether the account or the document is at fault.

A refusal that names no document speaks of the account, which is held. But a service, or a firewall in front of it, may
refuse one document alone and every time, and would have the whole account held again after each resume. Here is what
others have shown since; what follows from it is decided in `retries`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from batches.conf import ENGINE
from batches.engine import health
from batches.models import Exchange, ExchangeKind, HoldReason, Submission
from batches.providers import errors

#: An exchange keeps the name of its error only.
STRANGE = errors.StrangeRefusal.__name__
REFUSALS = (errors.Unauthorized.__name__, STRANGE)
LIMITED = errors.RateLimited.__name__
#: How far back `_others_pass_lately` looks for an acceptance: an old one says nothing of today.
SUBMISSIONS_LOOKED_AT = 100


@dataclass(frozen=True)
class Suspects:
    """Jobs: `refused` before, `cleared` as far as their account goes, and those whose proof is still `under_way`.

    The proof is an acceptance of others that were sent after the refusal; of a strange one, also one just before it.
    `limited`: answered with 429 several times under one key, while others that were sent since were accepted.
    """

    refused: frozenset[int] = frozenset()
    cleared: frozenset[int] = frozenset()
    under_way: frozenset[int] = frozenset()
    limited: frozenset[int] = frozenset()

    def step_back(self, job_ids: Collection[int]) -> set[int]:
        """Of these, which all could be sent now, those that let others go first.

        Otherwise the oldest document, which is refused, would be the first again after each resume, and nothing would
        ever be learned of the others.
        """
        open_ones = self.refused - self.cleared
        has_others = any(job_id not in self.refused for job_id in job_ids)
        return {job_id for job_id in job_ids if job_id in open_ones and (has_others or job_id in self.under_way)}


def look(account_id: int, job_ids: Sequence[int], *, now: datetime) -> Suspects:
    """What is known of these jobs, which were sent before. One statement while none was refused, none for no jobs."""
    if not job_ids:
        return Suspects()
    kinds = (*REFUSALS, LIMITED)
    rows = Exchange.objects.filter(job_id__in=job_ids, kind=ExchangeKind.SUBMIT, error_class__in=kinds)
    refused_at: dict[int, datetime] = {}
    strange: set[int] = set()
    limited_at: dict[int, list[datetime]] = {}  # under its last key
    last_key: dict[int, int | None] = {}
    columns = ("job_id", "submission_id", "at", "duration_ms", "error_class")
    for job_id, submission_id, at, duration_ms, error_class in rows.order_by("id").values_list(*columns):
        if job_id is None:
            continue
        if last_key.setdefault(job_id, submission_id) != submission_id:
            last_key[job_id] = submission_id
            limited_at.pop(job_id, None)
        if error_class == LIMITED:
            limited_at.setdefault(job_id, []).append(at + timedelta(milliseconds=duration_ms))
        else:
            refused_at[job_id] = at + timedelta(milliseconds=duration_ms)
            (strange.add if error_class == STRANGE else strange.discard)(job_id)
    most = ENGINE.limited_tries_most
    limited_since = {job_id: times[-most] for job_id, times in limited_at.items() if len(times) >= most}
    if not refused_at and not limited_since:
        return Suspects()
    # Sent after the refusal, so that an answer which was only slow proves nothing.
    first_at = min((*refused_at.values(), *limited_since.values()))
    since = Submission.objects.filter(account_id=account_id, last_sent_at__gt=first_at)
    others = since.exclude(job_id__in=refused_at.keys() | limited_since.keys())
    accepted = others.filter(accepted_at__isnull=False).order_by("-last_sent_at")
    newest = accepted.values_list("last_sent_at", flat=True).first()
    out = others.filter(
        accepted_at=None, closed_at=None, in_doubt=True, last_sent_at__gt=now - timedelta(seconds=ENGINE.read_timeout)
    )
    newest_out = out.order_by("-last_sent_at").values_list("last_sent_at", flat=True).first()
    cleared = {job_id for job_id, at in refused_at.items() if newest is not None and newest > at}
    if strange - cleared and _others_pass_lately(account_id):
        cleared |= strange
    return Suspects(
        refused=frozenset(refused_at),
        cleared=frozenset(cleared),
        under_way=frozenset(job_id for job_id, at in refused_at.items() if newest_out is not None and newest_out > at),
        limited=frozenset(job_id for job_id, at in limited_since.items() if newest is not None and newest > at),
    )


def hold_unless_others_pass(account_id: int, *, words: str, now: datetime) -> bool:
    """Hold the account for strange refusals, unless few documents got them and others were accepted just before.

    Called when the exchange of the refusal is committed. True when this call held the account.
    """
    if _others_pass_lately(account_id):
        return False
    return health.hold(account_id, reason=HoldReason.AUTH, words=words, now=now)


def _others_pass_lately(account_id: int) -> bool:
    """A submission was accepted not long ago, and few documents had strange refusals since."""
    sent = Exchange.objects.filter(account_id=account_id, kind=ExchangeKind.SUBMIT).order_by("-id")
    refused: set[int | None] = set()
    for job_id, error_class in sent.values_list("job_id", "error_class")[:SUBMISSIONS_LOOKED_AT]:
        if not error_class:
            return len(refused) < ENGINE.strange_documents_most
        if error_class == STRANGE:
            refused.add(job_id)
    return False
