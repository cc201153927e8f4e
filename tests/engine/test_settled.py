"""The counters of a batch at rest are kept, and every change of what they count takes them away with it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from batches import batchrows, failedlist, selectors
from batches.engine import applying, settled, spending, transitions
from batches.engine.audit import By
from batches.engine.orders import NewInput, Order
from batches.engine.transitions import Move
from batches.failedlist import Wanted
from batches.models import (
    Batch,
    BatchItem,
    FailureClass,
    Job,
    JobState,
    SettledCounts,
    Submission,
    SubmissionOutcome,
    Verb,
    Workspace,
)
from batches.wording import BatchState
from tests import factories
from tests.engine import racing
from tests.engine.settling import WRONG
from tests.factories import NOW

LATER = NOW + settled.SETTLES_AFTER
ORDER = Order(By(None, "ada", "127.0.0.1"), reason="Seen.", is_confirmed=True)


def settle_all() -> None:
    settled.settle(now=NOW)
    settled.settle(now=LATER)


def is_kept(batch: Batch) -> bool:
    return SettledCounts.objects.filter(batch=batch, settled_at__isnull=False).exists()


def ended(batch: Batch) -> None:
    """Two saved, one failed, one dismissed, one cancelled while another batch still sends it."""
    for amount in ("0.0021", None):
        job = factories.make_saved_job(batch=batch)
        job.submissions.update(batch=batch, billed_amount=amount)
    factories.make_submission(job=factories.make_job(batch=batch, state=JobState.FAILED), in_doubt=False)
    given_up = factories.make_job(batch=batch, state=JobState.FAILED)
    BatchItem.objects.filter(version=given_up.version).update(dismissed_at=NOW, dismissed_note="Not needed.")
    elsewhere = factories.make_job(batch=batch, lead_batch=None)
    BatchItem.objects.filter(version=elsewhere.version).update(cancelled_at=NOW)


def test_a_batch_at_rest_is_counted_once_and_says_the_same_as_before(batch: Batch) -> None:
    ended(batch)
    counted = selectors.progress(batch)
    settle_all()
    assert is_kept(batch)
    with CaptureQueriesContext(connection) as queries:
        kept = selectors.progress(batch)
    assert kept == counted
    assert (kept.state, kept.counts.total, kept.attention_count) == (BatchState.PARTIALLY_COMPLETE, 5, 1)
    assert not [query for query in queries if "batchitem" in query["sql"]]


def spent(batch: Batch) -> spending.Spent:
    """As lists show it."""
    return batchrows.rows(list(batchrows.readable(Batch.objects.filter(pk=batch.pk), now=NOW)), now=NOW)[0].spent


def test_what_delivered_documents_cost_is_kept_and_the_others_are_counted_each_time(batch: Batch) -> None:
    ended(batch)
    uncertain = factories.make_job(batch=batch, state=JobState.UNKNOWN)
    asked = factories.make_submission(job=uncertain, batch=batch, in_doubt=True)
    counted = spent(batch)
    assert counted == spending.spent(batch.pk) == spending.Spent(3, Decimal("0.0021"), 1)
    settle_all()
    assert is_kept(batch)
    with CaptureQueriesContext(connection) as queries:
        assert spent(batch) == counted
    costs = [query["sql"] for query in queries if "billed_amount" in query["sql"]]
    assert len(costs) == 1
    assert "UNION" not in costs[0]
    Submission.objects.filter(pk=asked.pk).update(outcome=SubmissionOutcome.REFUSED, closed_at=NOW, in_doubt=False)
    assert spent(batch) == spending.spent(batch.pk) == spending.Spent(2, Decimal("0.0021"), 1)


def test_a_batch_is_not_kept_while_what_it_sent_goes_on_for_another(batch: Batch) -> None:
    ended(batch)
    other = factories.make_batch(workspace=batch.workspace, account=batch.account)
    job = factories.make_accepted_job(batch=other)
    job.submissions.update(batch=batch)
    settle_all()
    assert not is_kept(batch)
    Job.objects.filter(pk=job.pk).update(state=JobState.SAVED)
    job.submissions.update(outcome=SubmissionOutcome.DELIVERED, closed_at=NOW)
    settle_all()
    assert spent(batch).count == 3


def test_what_a_batch_sent_for_a_version_that_it_names_no_more_voids_it_too(batch: Batch) -> None:
    ended(batch)
    before, after = factories.make_saved_job(batch=batch), factories.make_saved_job()
    before.submissions.update(batch=batch)
    BatchItem.objects.filter(version=before.version).update(version=after.version)
    settle_all()
    assert spent(batch).count == 3
    transitions.move(Move(before.pk, 0, JobState.SAVED, JobState.RENDERED, "object_lost"), now=LATER)
    assert not is_kept(batch)


def test_it_is_kept_only_a_while_after_it_was_first_seen_at_rest(batch: Batch) -> None:
    ended(batch)
    assert settled.settle(now=NOW) == 0
    assert settled.settle(now=LATER - timedelta(seconds=1)) == 0
    assert settled.settle(now=LATER) == 1
    assert settled.settle(now=LATER) == 0


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.SUBMITTING, JobState.ACCEPTED, JobState.RENDERED])
def test_a_batch_of_which_something_moves_is_counted_each_time(state: JobState, batch: Batch) -> None:
    ended(batch)
    factories.make_job(batch=batch, state=state)
    settle_all()
    assert not SettledCounts.objects.exists()


def test_a_batch_whose_rows_are_still_written_is_not_kept(batch: Batch) -> None:
    ended(batch)
    Batch.objects.update(writing_at=NOW)
    settle_all()
    assert not SettledCounts.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    "filters", [{}, {"helps": "retry"}, {"account": "other"}, {"account": "main"}, {"cause": f"{0:016x}"}]
)
def test_the_causes_of_batches_at_rest_are_kept_and_say_the_same_as_their_items(filters: dict[str, str]) -> None:
    main, other = factories.make_account(slug="main"), factories.make_account(slug="other")
    workspace = factories.make_workspace()
    batches = [factories.make_batch(workspace=workspace, account=account) for account in (main, other)]
    for batch in batches:
        ended(batch)
        for n, code in enumerate(("font", "FONT", "timeout")):
            factories.make_job(
                batch=batch,
                state=JobState.FAILED,
                failure_class=FailureClass.TRANSIENT if n else FailureClass.RENDER_FAILED,
                failure_code=code,
                failure_cause=f"{n // 2:016x}",
                state_changed_at=NOW + timedelta(seconds=n),
            )
    mine = Workspace.objects.filter(pk=workspace.pk)
    wanted = Wanted.of(filters)
    asked = failedlist.causes(mine, wanted, now=LATER)
    settle_all()
    SettledCounts.objects.filter(batch=batches[1]).update(causes=None)  # one of them has too many
    assert failedlist.causes(mine, wanted, now=LATER) == asked
    settled.void([batches[1].pk])
    settle_all()
    assert failedlist.causes(mine, wanted, now=LATER) == asked
    assert asked.count == failedlist.matching(mine, wanted, now=LATER).count() > 0


@pytest.mark.django_db
def test_causes_that_are_too_many_are_asked_for(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    ended(batch)
    monkeypatch.setattr(settled, "CAUSES_MOST", 0)
    settle_all()
    assert SettledCounts.objects.get(batch=batch).causes is None
    assert is_kept(batch)
    found = failedlist.causes(Workspace.objects.all(), Wanted(), now=LATER)
    assert (found.count, found.is_cut) == (1, False)


def _applied(verb: Verb, state: JobState = JobState.FAILED, order: Order = ORDER) -> Callable[[Batch], None]:
    def change(batch: Batch) -> None:
        item = BatchItem.objects.filter(version__job__state=state, dismissed_at=None)[0]
        assert applying.apply(verb, [item.pk], order=order, now=LATER)[item.pk].is_done

    return change


def _reopened(batch: Batch) -> None:
    item = BatchItem.objects.get(dismissed_at__isnull=False)
    assert applying.apply(Verb.REOPEN, [item.pk], order=ORDER, now=LATER)[item.pk].is_done


def _regenerated(batch: Batch) -> None:
    item = BatchItem.objects.filter(version__job__state=JobState.SAVED)[0]
    order = Order(ORDER.by, "Other words.", is_confirmed=True, inputs={item.pk: NewInput("html", "<p>new</p>")})
    assert applying.apply(Verb.REGENERATE, [item.pk], order=order, now=LATER)[item.pk].is_done


def _lost(batch: Batch) -> None:
    job = Job.objects.filter(state=JobState.SAVED)[0]
    fields = {"failure_class": FailureClass.EXPIRED}
    transitions.move(Move(job.pk, 0, JobState.SAVED, JobState.EXPIRED, "file missing", fields=fields), now=LATER)


@pytest.mark.parametrize(
    "change",
    [_applied(Verb.RETRY), _applied(Verb.DISMISS), _reopened, _regenerated, _lost],
    ids=["retried", "dismissed", "reopened", "regenerated", "lost"],
)
def test_whatever_changes_the_counters_takes_them_away(change: Callable[[Batch], None], batch: Batch) -> None:
    ended(batch)
    settle_all()
    change(batch)
    assert not is_kept(batch)
    fresh = selectors.progress(batch)
    SettledCounts.objects.all().delete()
    assert selectors.progress(batch) == fresh


def test_a_batch_that_shares_the_document_is_counted_again_as_well(batch: Batch) -> None:
    ended(batch)
    job = Job.objects.filter(state=JobState.FAILED).earliest("pk")
    other = factories.make_batch(workspace=batch.workspace, account=batch.account)
    BatchItem.objects.create(
        batch=other, position=0, document=job.version.document, version=job.version, intake_outcome="unchanged"
    )
    settle_all()
    assert is_kept(other)
    _applied(Verb.RETRY)(batch)
    assert not is_kept(other)


def test_what_was_counted_before_a_change_is_not_kept_after_it(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    ended(batch)
    settled.settle(now=NOW)
    real = settled._counted

    def overtaken(batch_id: int) -> dict[str, int]:
        counts = real(batch_id)
        _applied(Verb.DISMISS)(batch)
        return counts

    monkeypatch.setattr(settled, "_counted", overtaken)
    settled.settle(now=LATER)
    assert not is_kept(batch)


@pytest.mark.django_db(transaction=True)
def test_no_process_ever_sees_kept_counters_that_are_not_true(batch: Batch) -> None:
    for _ in range(6):
        job = factories.make_job(batch=batch, state=JobState.FAILED, failure_class=FailureClass.INTERNAL)
        factories.make_submission(job=job, batch=batch)
    runs = [["0", "25"], ["1", "25"], ["reader", "25"], ["reader", "25"]]
    printed = racing.processes("tests.engine.settling", runs, seconds=60)
    said = [words for each in printed for words in each]
    assert not [words for words in said if words.startswith("wrong")], said
    with connection.cursor() as cursor:
        cursor.execute(WRONG)
        assert cursor.fetchall() == []
