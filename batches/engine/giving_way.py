"""One submission of a job is taken; whatever else of it is open gives way. The one place that supersedes a submission.

What never arrived is refused. Of anything else that was given up nobody knows what became of it: it keeps its id, its
doubt and its own watch, and where its answer was lost, an alert says that it may be billed too.
"""

from __future__ import annotations

from datetime import datetime

from batches.engine import alerts
from batches.models import NOTHING_THERE, AlertKind, Submission, SubmissionOutcome


def close_others(taken: Submission, *, business_id: str, why: str, now: datetime) -> list[str]:
    """Close the open submissions of its job but this one; a sentence for each. `why` it is taken: "is fetched".

    Within the caller's transaction, which holds the job's row.
    """
    others = Submission.objects.filter(job_id=taken.job_id, outcome=SubmissionOutcome.OPEN).exclude(pk=taken.pk)
    nothing_there = set(others.filter(NOTHING_THERE).values_list("pk", flat=True))
    said = []
    for other in others.defer("body_inline"):
        never_arrived = other.pk in nothing_there
        outcome = SubmissionOutcome.REFUSED if never_arrived else SubmissionOutcome.SUPERSEDED
        Submission.objects.filter(pk=other.pk).update(outcome=outcome, closed_at=now)
        if never_arrived:
            said.append(f"Submission {other.sequence} never arrived and is not sent any more.")
            continue
        said.append(f"Submission {other.sequence} was given up; what became of it is not known.")
        if other.provider_job_id is None:  # nothing is left that could be read, and an alert of the job ends with it
            alert = (
                f"{business_id}: submission {taken.sequence} {why}. Submission {other.sequence} may have been accepted "
                "and billed too: its answer was lost. Look for it at the provider."
            )
            alerts.open_for_job(taken.job_id, AlertKind.SURPLUS, alert, now=now)
    return said
