"""The doorbell: every string names a task, every schedule exists once, and a message is heard when its rows are."""

from __future__ import annotations

import inspect
from datetime import timedelta

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone
from django.utils.module_loading import import_string
from django_q.models import OrmQ, Schedule

from batches import queue
from batches.conf import ENGINE

TASKS = [queue.RUN_PUMP, queue.ENSURE_PUMPS, queue.SWEEP]


@pytest.mark.parametrize("name", TASKS + [task for task, _minutes in queue.SCHEDULES.values()])
def test_every_string_names_a_task_that_takes_nothing(name: str) -> None:
    """A typo is silent until a worker meets it."""
    task = import_string(name)
    assert callable(task)
    assert not inspect.signature(task).parameters


@pytest.mark.django_db
def test_however_often_the_schedules_are_made_there_is_one_row_each() -> None:
    """Case 97: each deploy added another copy, and every copy ran."""
    for _ in range(3):
        queue.ensure_schedules()
    rows = dict(Schedule.objects.values_list("name", "func"))
    assert rows == {name: task for name, (task, _minutes) in queue.SCHEDULES.items()}
    assert Schedule.objects.count() == len(queue.SCHEDULES)


@pytest.mark.django_db
def test_copies_that_are_there_already_are_removed_and_old_ones_brought_up_to_date() -> None:
    name = next(iter(queue.SCHEDULES))
    for _ in range(3):
        Schedule.objects.create(name=name, func="batches.tasks.of_an_older_release", schedule_type="D")
    Schedule.objects.create(name="somebody else's", func="their.task", schedule_type="D")
    queue.ensure_schedules()
    kept = Schedule.objects.get(name=name)
    assert (kept.func, kept.schedule_type, kept.minutes) == (queue.SCHEDULES[name][0], "I", queue.SCHEDULES[name][1])
    assert Schedule.objects.filter(name="somebody else's").exists()


@pytest.mark.django_db
def test_making_the_schedules_again_does_not_put_off_their_next_run() -> None:
    queue.ensure_schedules()
    soon = timezone.now() + timedelta(seconds=5)
    Schedule.objects.update(next_run=soon)
    queue.ensure_schedules()
    assert set(Schedule.objects.values_list("next_run", flat=True)) == {soon}


def test_missed_runs_are_not_caught_up_with() -> None:
    """Case 97: after four days off, a schedule ran for each time that it had missed."""
    assert settings.Q_CLUSTER["catch_up"] is False


def test_the_times_of_the_queue_fit_those_of_a_pump() -> None:
    ends_after = ENGINE.pump_budget_seconds + ENGINE.read_timeout + ENGINE.connect_timeout
    assert ends_after < settings.Q_CLUSTER["timeout"] < settings.Q_CLUSTER["retry"]
    assert ENGINE.renew_seconds * 2 < ENGINE.lease_seconds
    assert settings.Q_CLUSTER["max_attempts"] == 1, "our own rows decide what is tried again"


@pytest.mark.django_db
def test_ringing_leaves_one_message_for_each_pump() -> None:
    queue.ring(3)
    assert OrmQ.objects.count() == 3
    assert queue.waiting(now=timezone.now()) == 3
    assert {message.func() for message in OrmQ.objects.all()} == {queue.RUN_PUMP}


@pytest.mark.django_db
def test_a_message_that_a_cluster_has_taken_waits_no_longer() -> None:
    queue.ring(2)
    taken = OrmQ.objects.order_by("pk").first()
    assert taken is not None
    OrmQ.objects.filter(pk=taken.pk).update(lock=timezone.now() + timedelta(seconds=120))
    assert queue.waiting(now=timezone.now()) == 1


@pytest.mark.django_db
def test_waiting_messages_are_counted_no_further_than_a_hundred() -> None:
    queue.ring(103)
    assert queue.waiting(now=timezone.now()) == 100


@pytest.mark.django_db(transaction=True)
def test_what_is_rung_in_a_transaction_is_heard_only_when_it_commits() -> None:
    """Case 100: the task began before the commit, found no row, and the job stayed queued for ever."""
    with transaction.atomic():
        queue.ring()
        transaction.set_rollback(True)
    assert OrmQ.objects.count() == 0
    with transaction.atomic():
        queue.ring()
    assert OrmQ.objects.count() == 1
    assert not connection.in_atomic_block
