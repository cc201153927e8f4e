"""Committing intents: slot, key, bytes and state in one transaction, under the account's cap, by the holder alone."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from batches.conf import ENGINE
from batches.engine import claims, health, keys, pacing, submission
from batches.engine.preparing import Prepared
from batches.models import Batch, HoldReason, Job, JobEvent, JobState, Lane, PacingLane, ProviderAccount, Submission
from batches.providers.base import Capabilities, PreparedRequest
from tests import factories
from tests.engine import racing
from tests.factories import NOW

pytestmark = pytest.mark.django_db
LATER = NOW + timedelta(minutes=1)


def prepared(account: ProviderAccount, state: JobState = JobState.PENDING) -> list[Prepared]:
    """Every due job of the account in `state`, claimed and with its bytes made."""
    return [
        Prepared(
            claim=claim,
            request=PreparedRequest(route="/v1/pdf", body=f"body of {claim.business_id}".encode()),
            request_sha256=hashlib.sha256(f"body of {claim.business_id}".encode()).hexdigest(),
            body_key=None,
            doubt_before=bool(claim.submission and claim.submission.in_doubt),
        )
        for claim in claims.claim_due(account, [state], owner="a", now=NOW, most=100)
    ]


def commit(
    account: ProviderAccount, ready: Sequence[Prepared], *, now: datetime = NOW, most: int = 100
) -> submission.Intents:
    takes_key = Capabilities(client_key=True)
    return submission.commit_intents(account, ready, now=now, capabilities=takes_key, most=most)


def jobs_of(intents: submission.Intents) -> list[int]:
    return [sending.prepared.claim.job_id for sending in intents.sendings]


@pytest.fixture
def fast(batch: Batch) -> ProviderAccount:
    """The batch's account, with no pace to speak of."""
    ProviderAccount.objects.update(submit_interval_ms=1, max_in_flight=50)
    batch.account.refresh_from_db()
    return batch.account


def test_an_intent_is_a_row_with_the_key_and_the_bytes_before_anything_leaves(
    batch: Batch, fast: ProviderAccount
) -> None:
    job = factories.make_job(batch=batch, business_id="INV-1")
    (ready,) = prepared(fast)
    (sending,) = commit(fast, [ready]).sendings
    row = Submission.objects.get(job=job)
    assert (bytes(row.body_inline), row.request_sha256, row.route) == (
        b"body of INV-1",
        ready.request_sha256,
        "/v1/pdf",
    )
    assert row.idempotency_key == keys.idempotency_key(
        workspace_id=batch.workspace_id,
        account_id=fast.pk,
        route="/v1/pdf",
        body_sha256=ready.request_sha256,
        document_id=job.version.document_id,
        version=1,
        sequence=1,
    )
    assert (row.in_doubt, row.try_count, row.outcome, row.provider_job_id) == (True, 1, "open", None)
    assert (row.first_sent_at, row.last_sent_at) == (NOW, NOW)
    assert row.resend_until == NOW + timedelta(seconds=0.9 * fast.key_retention_seconds)
    job.refresh_from_db()
    assert (job.state, job.lease_owner, job.fencing_token) == ("submitting", "a", ready.claim.token)
    assert JobEvent.objects.get().reason == "intent_committed"
    assert sending.prepared.claim.state is JobState.SUBMITTING
    assert sending.submission.id == row.pk
    assert sending.slot == NOW


def test_a_large_body_is_named_and_not_copied_into_the_row(batch: Batch, fast: ProviderAccount) -> None:
    factories.make_job(batch=batch)
    (ready,) = prepared(fast)
    commit(fast, [replace(ready, body_key="default/doc/request-1")])
    row = Submission.objects.get()
    assert (row.body_inline, row.body_key) == (None, "default/doc/request-1")


def test_only_what_has_a_slot_is_committed(batch: Batch, account: ProviderAccount) -> None:
    ProviderAccount.objects.update(submit_interval_ms=200)
    account.refresh_from_db()
    for _ in range(10):
        factories.make_job(batch=batch)
    ready = prepared(account)
    intents = commit(account, ready)
    assert [(sending.slot - NOW).total_seconds() for sending in intents.sendings] == [0, 0.2, 0.4]
    assert intents.ask_again_at > NOW
    assert Job.objects.filter(state="submitting").count() == Submission.objects.count() == 3
    assert jobs_of(intents) == [each.claim.job_id for each in ready[:3]], "the oldest first"


@pytest.mark.parametrize(("there", "committed"), [(0, 3), (1, 2), (2, 1), (3, 0), (7, 0)])
def test_the_cap_counts_what_may_be_at_the_provider(
    batch: Batch, fast: ProviderAccount, there: int, committed: int
) -> None:
    ProviderAccount.objects.update(max_in_flight=3)
    fast.refresh_from_db()
    for number in range(there):
        factories.make_job(batch=batch, state=JobState.ACCEPTED if number % 2 else JobState.SUBMITTING)
    for _ in range(5):
        factories.make_job(batch=batch)
    intents = commit(fast, prepared(fast))
    assert len(intents.sendings) == committed
    if not committed:
        assert intents.ask_again_at == NOW + timedelta(seconds=ENGINE.claim_interval_seconds)
        assert not PacingLane.objects.exclude(next_slot_us=0).exists(), "no slot is used up for nothing"


def test_a_repeat_is_counted_already_and_takes_a_slot(batch: Batch, fast: ProviderAccount) -> None:
    ProviderAccount.objects.update(max_in_flight=1)
    fast.refresh_from_db()
    job = factories.make_job(batch=batch, state=JobState.SUBMITTING)
    row = factories.make_submission(job=job)
    factories.make_job(batch=batch)
    again, fresh = prepared(fast, JobState.SUBMITTING), prepared(fast)
    intents = commit(fast, again + fresh, now=LATER)
    assert jobs_of(intents) == [job.pk]
    row.refresh_from_db()
    assert (row.first_sent_at, row.last_sent_at) == (NOW, LATER), "the key's time runs from the first send"
    assert row.try_count == 1, "its try is counted before it leaves, and so if its pump dies"
    assert PacingLane.objects.get(lane=Lane.SUBMIT).revision == 1
    assert Submission.objects.count() == 1


def test_a_repeat_is_found_behind_first_sends_that_have_no_room(batch: Batch, fast: ProviderAccount) -> None:
    ProviderAccount.objects.update(max_in_flight=1)
    fast.refresh_from_db()
    job = factories.make_job(batch=batch, state=JobState.SUBMITTING)
    factories.make_submission(job=job)
    for _ in range(5):
        factories.make_job(batch=batch)
    again, fresh = prepared(fast, JobState.SUBMITTING), prepared(fast)
    assert jobs_of(commit(fast, fresh + again, now=LATER, most=2)) == [job.pk]


def test_no_more_leave_than_there_are_threads_for_and_repeats_go_first(batch: Batch, fast: ProviderAccount) -> None:
    for _ in range(5):
        factories.make_job(batch=batch)
    again = factories.make_job(batch=batch, state=JobState.SUBMITTING)
    factories.make_submission(job=again)
    fresh = prepared(fast)
    intents = commit(fast, fresh + prepared(fast, JobState.SUBMITTING), most=3)
    assert set(jobs_of(intents)) == {again.pk, fresh[0].claim.job_id, fresh[1].claim.job_id}
    assert not intents.lost


def test_what_was_definitely_refused_goes_again_with_its_key_and_the_time_of_its_first_send(
    batch: Batch, fast: ProviderAccount
) -> None:
    """The provider may reckon a key's age from its first sight, whatever it answered then."""
    first, until = NOW - timedelta(minutes=20), NOW + timedelta(minutes=34)
    job = factories.make_job(batch=batch)
    row = factories.make_submission(job=job, in_doubt=False, first_sent_at=first, resend_until=until)
    (ready,) = prepared(fast)
    (sending,) = commit(fast, [ready]).sendings
    row.refresh_from_db()
    assert (row.first_sent_at, row.last_sent_at, row.resend_until) == (first, NOW, until)
    assert (row.in_doubt, row.sequence, row.outcome) == (True, 1, "open")
    assert sending.submission.resend_until == until
    assert sending.submission.idempotency_key == row.idempotency_key
    assert sending.prepared.claim.state_changed_at == NOW
    assert Submission.objects.count() == 1


@pytest.mark.parametrize("left", [None, timedelta(0), timedelta(minutes=26)])
def test_what_was_refused_for_half_of_its_keys_time_goes_again_under_another(
    batch: Batch, fast: ProviderAccount, left: timedelta | None
) -> None:
    job = factories.make_job(batch=batch)
    until = None if left is None else NOW + left
    old = factories.make_submission(job=job, in_doubt=False, first_sent_at=NOW - timedelta(days=1), resend_until=until)
    other = factories.make_job(batch=batch)
    kept = factories.make_submission(job=other, in_doubt=False)
    intents = commit(fast, [replace(each, sent_before=True) for each in prepared(fast)])
    (sending,) = [each for each in intents.sendings if each.prepared.claim.job_id == job.pk]
    old.refresh_from_db()
    assert (old.outcome, old.closed_at, old.in_doubt, old.resend_until) == ("refused", NOW, False, until)
    anew = job.submissions.get(sequence=2)
    assert (anew.first_sent_at, anew.in_doubt, anew.outcome) == (NOW, True, "open")
    assert anew.resend_until == NOW + timedelta(seconds=0.9 * fast.key_retention_seconds)
    assert sending.submission.idempotency_key == anew.idempotency_key != old.idempotency_key
    assert (sending.prepared.sent_before, bytes(anew.body_inline)) == (False, sending.prepared.request.body)
    assert other.submissions.get() == kept


def test_a_later_submission_of_a_job_has_a_key_of_its_own(batch: Batch, fast: ProviderAccount) -> None:
    job = factories.make_job(batch=batch)
    proven = {
        "failed_at": NOW,
        "failed_again_at": NOW,
        "in_doubt": False,
        "provider_job_id": "pdf_1",
        "accepted_at": NOW,
    }
    first = factories.make_submission(job=job, outcome="render_failed", closed_at=NOW, **proven)
    commit(fast, prepared(fast))
    second = job.submissions.get(sequence=2)
    assert second.idempotency_key != first.idempotency_key


@pytest.mark.parametrize(
    "earlier",
    [
        {"outcome": "superseded", "in_doubt": True},
        {
            "outcome": "render_failed",
            "in_doubt": False,
            "provider_job_id": "pdf_1",
            "accepted_at": NOW,
            "failed_at": NOW,
        },
        {"outcome": "surplus", "in_doubt": False, "provider_job_id": "pdf_1", "accepted_at": NOW},
    ],
)
def test_no_other_key_beside_an_earlier_submission_that_may_be_billed(
    earlier: dict[str, Any], batch: Batch, fast: ProviderAccount
) -> None:
    job = factories.make_job(batch=batch)
    factories.make_submission(job=job, closed_at=NOW, **earlier)
    intents = commit(fast, prepared(fast))
    assert intents.sendings == []
    assert job.submissions.count() == 1
    job.refresh_from_db()
    assert (job.state, job.failure_class) == (JobState.FAILED, "unknown_outcome")


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.SUBMITTING])
def test_what_somebody_else_has_taken_over_is_named_as_lost_and_not_sent(
    batch: Batch, fast: ProviderAccount, state: JobState
) -> None:
    jobs = [factories.make_job(batch=batch, state=state) for _ in range(2)]
    if state is JobState.SUBMITTING:
        for job in jobs:
            factories.make_submission(job=job)
    ready = prepared(fast, state)
    Job.objects.filter(pk=jobs[0].pk).update(fencing_token=99)
    intents = commit(fast, ready, now=LATER)
    assert (intents.lost, jobs_of(intents)) == ({jobs[0].pk}, [jobs[1].pk])
    assert not Submission.objects.filter(job=jobs[0], last_sent_at=LATER).exists()


def test_what_was_cancelled_meanwhile_is_not_sent(batch: Batch, fast: ProviderAccount) -> None:
    job = factories.make_job(batch=batch)
    ready = prepared(fast)
    Job.objects.filter(pk=job.pk).update(state=JobState.CANCELLED)
    intents = commit(fast, ready)
    assert (intents.sendings, intents.lost, Submission.objects.count()) == ([], {job.pk}, 0)


@pytest.mark.parametrize("refused_before", [False, True])
def test_many_intents_take_the_statements_of_one(batch: Batch, fast: ProviderAccount, refused_before: bool) -> None:
    counts = []
    for number in (1, 20):
        for _ in range(number):
            job = factories.make_job(batch=batch)
            if refused_before:
                factories.make_submission(job=job, in_doubt=False)
        ready = prepared(fast)
        with CaptureQueriesContext(connection) as queries:
            assert len(commit(fast, ready).sendings) == number
        counts.append(len(queries))
    assert counts[1] - counts[0] <= 1


@pytest.mark.django_db(transaction=True)
def test_an_intent_that_waited_for_a_hold_to_end_its_transaction_is_not_committed() -> None:
    """On PostgreSQL the statement that waits for the row has an old view of every other row."""
    batch = factories.make_batch()
    factories.make_job(batch=batch)
    ready = prepared(batch.account)
    pacing.cool_down(batch.account_id, Lane.SUBMIT, NOW)  # the row is there
    found: list[submission.Intents] = []
    begun = threading.Event()

    def work() -> None:
        begun.set()
        try:
            found.append(commit(batch.account, ready))
        finally:
            connection.close()

    other = threading.Thread(target=work)
    with transaction.atomic():
        assert health.hold(batch.account_id, reason=HoldReason.PERSON, words="Wrong prices.", now=NOW)
        other.start()
        gives_up_at = time.monotonic() + 30
        while not (begun.is_set() and somebody_waits_for_a_row()):
            assert time.monotonic() < gives_up_at
            time.sleep(0.01)  # patience only: the other thread decides when it is over
    other.join()
    (intents,) = found
    assert not intents.sendings
    assert not Submission.objects.exists()


def somebody_waits_for_a_row() -> bool:
    """SQLite has no rows to wait for: whoever begins meanwhile waits for the whole transaction."""
    if not connection.features.has_select_for_update:
        return True
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
        return bool(cursor.fetchone()[0])


@pytest.mark.django_db(transaction=True)
def test_pumps_that_commit_at_once_pass_neither_the_pace_nor_the_cap() -> None:
    account = factories.make_account(submit_interval_ms=1, max_in_flight=7)
    batch = factories.make_batch(account=account)
    for _ in range(24):
        factories.make_job(batch=batch)
    taken = prepared(account)
    slots: list[datetime] = []

    def work(share: list[Prepared]) -> None:
        for each in share:
            slots.extend(sending.slot for sending in commit(account, [each]).sendings)

    racing.answers([partial(work, taken[number::4]) for number in range(4)])
    assert len(slots) == Job.objects.filter(state="submitting").count() == 7
    assert len({pacing.to_us(slot) // 1000 for slot in slots}) == 7, "a millisecond apart each"


@pytest.mark.parametrize(
    ("there", "ready", "limited_ago", "others"),
    [
        (0, 1, None, False),
        (0, 2, None, True),
        (1, 1, None, True),
        (0, 2, 5, False),  # of a key that is refused, all that leave together come back
        (1, 2, 5, True),
        (0, 2, 3600, True),
    ],
)
def test_what_else_is_at_the_provider_is_known_of_each_that_leaves(
    batch: Batch, fast: ProviderAccount, there: int, ready: int, limited_ago: int | None, others: bool
) -> None:
    for number in range(there):
        job = factories.make_job(batch=batch, state=JobState.ACCEPTED, business_id=f"THERE-{number}")
        factories.make_submission(job=job, provider_job_id=f"pdf_{number}", accepted_at=NOW, in_doubt=False)
    for number in range(ready):
        factories.make_job(batch=batch, business_id=f"INV-{number}")
    if limited_ago is not None:
        until = pacing.to_us(NOW - timedelta(seconds=limited_ago))
        PacingLane.objects.update_or_create(
            account=fast, lane=Lane.SUBMIT, defaults={"cool_down_until_us": until, "next_slot_us": 0}
        )
    sendings = commit(fast, prepared(fast)).sendings
    assert [each.others_in_flight for each in sendings] == [others] * ready
