"""The grouped UPDATE: each row gets its own values where its guard holds, and what comes back is what was written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from batches.engine import bulk
from batches.models import Batch, Document, Exchange, Job, JobState, Submission
from tests import factories


def _jobs(batch: Batch, count: int, **fields: Any) -> list[Job]:
    return [factories.make_job(batch=batch, **fields) for _ in range(count)]


def test_only_rows_whose_guards_hold_are_written_and_named(batch: Batch, now: datetime) -> None:
    jobs = _jobs(batch, 4, fencing_token=5)
    rows = [
        {"pk": job.pk, "guard:fencing_token": token, "guard:state": state, "provider_status": f"word {number}"}
        for number, (job, token, state) in enumerate(
            zip(jobs, (5, 4, 5, 5), ("pending", "pending", "accepted", "pending"), strict=True)
        )
    ]
    written = bulk.guarded_update(Job, rows, guard=("fencing_token", "state"))
    assert written == {jobs[0].pk, jobs[3].pk}
    words = dict(Job.objects.values_list("pk", "provider_status"))
    assert [words[job.pk] for job in jobs] == ["word 0", "", "", "word 3"]


def test_a_row_that_does_not_exist_is_not_named(batch: Batch) -> None:
    assert bulk.guarded_update(Job, [{"pk": 999_999, "provider_status": "x"}]) == set()


def test_no_rows_ask_nothing(batch: Batch) -> None:
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert bulk.guarded_update(Job, []) == set()
    assert not queries.captured_queries


def test_nulls_instants_and_numbers_of_different_rows_do_not_mix(batch: Batch, now: datetime) -> None:
    jobs = _jobs(batch, 3, deadline_at=now)
    precise = datetime(2026, 3, 2, 9, 0, 0, 123456, tzinfo=UTC)
    rows = [
        {"pk": jobs[0].pk, "deadline_at": None, "lease_owner": None, "lease_until": None, "poll_count": 0},
        {"pk": jobs[1].pk, "deadline_at": precise, "lease_owner": "p", "lease_until": now, "poll_count": 7},
        {"pk": jobs[2].pk, "deadline_at": None, "lease_owner": None, "lease_until": None, "poll_count": 2**31 - 1},
    ]
    assert bulk.guarded_update(Job, rows) == {job.pk for job in jobs}
    found = list(Job.objects.order_by("pk").values_list("deadline_at", "lease_owner", "lease_until", "poll_count"))
    assert found == [(None, None, None, 0), (precise, "p", now, 7), (None, None, None, 2**31 - 1)]


def test_instants_are_written_as_django_writes_them(batch: Batch) -> None:
    west = timezone(timedelta(hours=-7))
    instants = [
        datetime(2026, 3, 2, 9, 0, tzinfo=UTC),
        datetime(2026, 3, 2, 9, 0, 0, 5, tzinfo=UTC),
        datetime(2026, 3, 2, 2, 30, tzinfo=west),
    ]
    jobs = _jobs(batch, len(instants))
    bulk.guarded_update(Job, [{"pk": job.pk, "due_at": instant} for job, instant in zip(jobs, instants, strict=True)])
    for job, instant in zip(jobs, instants, strict=True):
        assert Job.objects.filter(pk=job.pk, due_at=instant).exists()
        assert Job.objects.filter(pk=job.pk, due_at__lte=instant, due_at__gte=instant).exists()


def test_a_column_that_is_null_in_every_row_keeps_its_type(batch: Batch) -> None:
    job = factories.make_job(batch=batch)
    rows = [{"pk": job.pk, "deadline_at": None, "lease_owner": None, "lease_until": None}]
    assert bulk.guarded_update(Job, rows) == {job.pk}


def test_json_texts_and_truth_come_back_as_they_went_in(batch: Batch, now: datetime) -> None:
    submission = factories.make_submission(job=factories.make_job(batch=batch, state=JobState.SUBMITTING))
    result = {"url": "http://x/é?a=1&b='\"%s", "size_bytes": None, "pages": [1, {"a": True}]}
    rows = [{"pk": submission.pk, "result": result, "in_doubt": False, "resend_until": None}]
    assert bulk.guarded_update(Submission, rows) == {submission.pk}
    submission.refresh_from_db()
    assert (submission.result, submission.in_doubt, submission.resend_until) == (result, False, None)
    assert Submission.objects.filter(result__url=result["url"]).exists(), "it is JSON there, not a text that looks so"


def test_words_with_quotes_and_per_cent_signs_are_only_words(batch: Batch) -> None:
    job = factories.make_job(batch=batch)
    words = "100 % of O'Brien's \"x\"; DROP TABLE %s -- \\ ü"
    bulk.guarded_update(Job, [{"pk": job.pk, "provider_status": words}])
    job.refresh_from_db()
    assert job.provider_status == words


def test_a_guard_on_an_instant_compares_instants(batch: Batch, now: datetime) -> None:
    job = factories.make_job(batch=batch)
    row = {"pk": job.pk, "guard:due_at": now, "due_at": now + timedelta(seconds=1)}
    assert bulk.guarded_update(Job, [row], guard=("due_at",)) == {job.pk}
    assert bulk.guarded_update(Job, [row], guard=("due_at",)) == set()


def test_a_foreign_key_is_set_by_its_id(batch: Batch) -> None:
    job, other = factories.make_job(batch=batch), factories.make_account()
    bulk.guarded_update(Job, [{"pk": job.pk, "account": other.pk}])
    job.refresh_from_db()
    assert job.account_id == other.pk


def test_many_rows_take_few_statements(batch: Batch, now: datetime) -> None:
    count = 1200
    documents = Document.objects.bulk_create(
        Document(workspace=batch.workspace, public_id=f"doc_{n}", business_id=f"B-{n}", created_at=now)
        for n in range(count)
    )
    rows = [{"pk": each.pk, "public_id": f"new_{each.business_id}", "created_at": now} for each in documents]
    with CaptureQueriesContext(connection) as queries:
        assert bulk.guarded_update(Document, rows) == {each.pk for each in documents}
    updates = [query for query in queries.captured_queries if "UPDATE" in query["sql"]]
    assert len(updates) == 3, "1200 rows in chunks of 500"
    assert Document.objects.get(business_id="B-1199").public_id == "new_B-1199"


def test_a_value_that_the_database_refuses_refuses_all_of_its_chunk(batch: Batch) -> None:
    good, bad = factories.make_job(batch=batch), factories.make_job(batch=batch)
    rows = [{"pk": good.pk, "state": "saved"}, {"pk": bad.pk, "state": "no such state"}]
    with pytest.raises(IntegrityError), transaction.atomic():
        bulk.guarded_update(Job, rows)
    good.refresh_from_db()
    assert good.state == "pending"


def test_the_order_of_the_columns_may_differ_from_row_to_row(batch: Batch) -> None:
    first, second = factories.make_job(batch=batch), factories.make_job(batch=batch)
    bulk.guarded_update(
        Job,
        [
            {"pk": first.pk, "provider_status": "a", "poll_count": 1},
            {"poll_count": 2, "provider_status": "b", "pk": second.pk},
        ],
    )
    assert list(Job.objects.order_by("pk").values_list("provider_status", "poll_count")) == [("a", 1), ("b", 2)]
    assert not Exchange.objects.exists()


def test_chunks_are_whole_and_in_order() -> None:
    assert [list(chunk) for chunk in bulk.chunks(range(5), 2)] == [[0, 1], [2, 3], [4]]
    assert list(bulk.chunks([], 2)) == []
