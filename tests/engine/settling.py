"""Kept counters beside what they count, in one statement, so in one snapshot; and one process of a race over them.

`python -m tests.engine.settling DATABASE ROLE ROUNDS`: a `writer` sends its half of the batch round failed, waiting
and failed again, then fetched, saved and lost again, dismisses and reopens; a `reader` settles the batch as often as
it can, and says what it saw wrong.
"""

from __future__ import annotations

import sys
from datetime import timedelta

from tests.engine import racing

#: Batches whose kept counters are not what a count gives. Any row is one too many.
WRONG = """
SELECT * FROM (
    SELECT s.batch_id, s.saved, s.failed, s.cancelled, s.attention, s.delivered, s.billed, s.billed_count,
        (SELECT COUNT(*) FROM batches_submission t WHERE t.batch_id = s.batch_id AND t.outcome = 'delivered')
            AS is_delivered,
        (SELECT COUNT(t.billed_amount) FROM batches_submission t WHERE t.batch_id = s.batch_id
            AND t.outcome = 'delivered') AS is_billed_count,
        (SELECT COALESCE(SUM(t.billed_amount), 0) FROM batches_submission t WHERE t.batch_id = s.batch_id
            AND t.outcome = 'delivered') AS is_billed,
        SUM(CASE WHEN i.cancelled_at IS NULL AND j.state = 'saved' THEN 1 ELSE 0 END) AS is_saved,
        SUM(CASE WHEN i.cancelled_at IS NULL AND j.state IN ('failed', 'unknown', 'deadline_exceeded', 'expired')
            THEN 1 ELSE 0 END) AS is_failed,
        SUM(CASE WHEN i.cancelled_at IS NOT NULL OR j.state = 'cancelled' THEN 1 ELSE 0 END) AS is_cancelled,
        SUM(CASE WHEN i.cancelled_at IS NULL AND j.state IN ('failed', 'unknown', 'deadline_exceeded', 'expired')
            AND i.dismissed_at IS NULL THEN 1 ELSE 0 END) AS needs_a_person,
        SUM(1) AS total
    FROM batches_settledcounts s
    JOIN batches_batchitem i ON i.batch_id = s.batch_id JOIN batches_job j ON j.version_id = i.version_id
    WHERE s.settled_at IS NOT NULL
    GROUP BY s.batch_id, s.saved, s.failed, s.cancelled, s.attention, s.delivered, s.billed, s.billed_count
) each_one
WHERE saved <> is_saved OR failed <> is_failed OR cancelled <> is_cancelled OR attention <> needs_a_person
    OR saved + failed + cancelled <> total
    OR delivered <> is_delivered OR billed_count <> is_billed_count OR ABS(billed - is_billed) > 0.0000001
"""


def _write(half: int, rounds: int) -> None:
    from django.db import transaction
    from django.utils import timezone

    from batches.engine import transitions
    from batches.engine.audit import By
    from batches.engine.orders import Order
    from batches.engine.transitions import Move
    from batches.engine.withdrawals import dismiss, reopen
    from batches.models import BatchItem, FailureClass, Job, JobState, Submission, SubmissionOutcome

    order = Order(By(None, "ada", "127.0.0.1"), reason="Seen.")
    failed = {"failure_class": FailureClass.INTERNAL}
    for number in range(rounds):
        now = timezone.now()
        jobs = [job for job in Job.objects.order_by("pk") if job.pk % 2 == half]
        back, again = JobState.PENDING, JobState.FAILED
        with transaction.atomic():
            transitions.move_many([Move(job.pk, 0, again, back, "retry") for job in jobs], now=now)
        transitions.move_many([Move(job.pk, 0, back, again, "parked", fields=failed) for job in jobs], now=now)
        sent, fetched, saved = Submission.objects.filter(job__in=jobs), JobState.RENDERED, JobState.SAVED
        transitions.move_many([Move(job.pk, 0, again, fetched, "finished_late") for job in jobs], now=now)
        with transaction.atomic():
            transitions.move_many([Move(job.pk, 0, fetched, saved, "stored") for job in jobs], now=now)
            sent.update(outcome=SubmissionOutcome.DELIVERED, billed_amount="0.0013", closed_at=now)
        with transaction.atomic():
            transitions.move_many([Move(job.pk, 0, saved, fetched, "object_lost") for job in jobs], now=now)
            sent.update(outcome=SubmissionOutcome.OPEN, closed_at=None)
        transitions.move_many([Move(job.pk, 0, fetched, again, "expired", fields=failed) for job in jobs], now=now)
        items = list(BatchItem.objects.filter(version__job__in=jobs).values_list("pk", flat=True))
        (dismiss if number % 2 else reopen)(items, order=order, now=now)


def _read(rounds: int) -> None:
    from django.db import connection
    from django.utils import timezone

    from batches.engine import settled

    settled.SETTLES_AFTER = timedelta(0)
    kept = 0
    for _ in range(rounds * 10):
        kept += settled.settle(now=timezone.now())
        with connection.cursor() as cursor:
            cursor.execute(WRONG)
            for row in cursor.fetchall():
                racing.say(f"wrong:{row}".replace(" ", ""))
    racing.say(f"kept:{kept}")


def main(database: str, role: str, rounds: str) -> None:
    racing.set_up(database)
    racing.wait_for_the_others()
    if role == "reader":
        _read(int(rounds))
    else:
        _write(int(role), int(rounds))


if __name__ == "__main__":
    main(*sys.argv[1:])
