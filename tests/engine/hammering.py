"""A process that works on the same rows as others: `python -m tests.engine.hammering DATABASE ROLE SEED ROUNDS`.

A `person` pauses and resumes the batches. A `pump` claims, renews and writes, in another order each time, and now and
then lets its jobs be taken from it before it writes. Prints how many rounds it got through.
"""

from __future__ import annotations

import random
import sys

from tests.engine import racing


def main(database: str, role: str, seed: int, rounds: int) -> None:
    racing.set_up(database)
    racing.wait_for_the_others()
    rng = random.Random(seed)
    work = {"person": _pause_and_resume, "pump": _claim_renew_and_write}[role]
    for done in range(rounds):
        work(f"{role}-{seed}", rng)
        racing.say(done + 1)


def _pause_and_resume(name: str, rng: random.Random) -> None:
    from batches.engine import running
    from batches.engine.audit import By
    from batches.models import Batch
    from tests.factories import NOW

    by = By(None, name, "command line")
    batch_ids = list(Batch.objects.values_list("pk", flat=True))
    rng.shuffle(batch_ids)
    for batch_id in batch_ids:
        running.pause(batch_id, reason="A look first.", by=by, now=NOW)
    rng.shuffle(batch_ids)
    for batch_id in batch_ids:
        running.resume(batch_id, reason="All is well.", by=by, now=NOW)


def _claim_renew_and_write(name: str, rng: random.Random) -> None:
    from batches.engine import changes, claims, writes
    from batches.models import Job, JobState, ProviderAccount
    from tests.factories import NOW

    account = ProviderAccount.objects.get()
    claimed = claims.claim_due(account, (JobState.PENDING,), owner=name, now=NOW, most=60)
    rng.shuffle(claimed)
    claims.renew(name, [claim.job_id for claim in claimed], now=NOW)
    if rng.random() < 0.3:  # another pump has them by the time of the write: both write the same rows
        Job.objects.filter(pk__in=[claim.job_id for claim in claimed], lease_owner=name).update(
            lease_owner=None, lease_until=None
        )
    rng.shuffle(claimed)
    group = [changes.Change(claim=claim, at=NOW, job_fields={"due_at": NOW}) for claim in claimed]
    if group:
        writes.write_round(group, now=NOW)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
