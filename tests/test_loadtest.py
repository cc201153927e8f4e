"""`manage.py loadtest`: when it stops and what it concludes, what it refuses, and one run on a real stack."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from batches.management import loadtest_rules as rules
from batches.management import loadtest_run
from batches.management.loadtest_probes import EVERY_SECONDS, Probes, cluster_megabytes
from batches.models import AuditEntry, Exchange, Job, JobState, ProviderAccount, Submission
from tests.commands.shell import run
from tests.factories import NOW, make_account, make_batch, make_job, make_submission
from tests.stack_process import REPOSITORY, Stack, eventually
from tests.test_commands_stack import free_port


def step(concurrency: int, rate: float, **fields: Any) -> rules.Step:
    """One step of ten seconds."""
    values: dict[str, Any] = {
        "concurrency": concurrency,
        "seconds": 10.0,
        "completions": round(rate * 10),
        "oldest_pending_seconds": 1.0,
        "latency_p50": 1.0,
        "latency_p95": 2.0,
        "latency_p99": 3.0,
        "submissions": 20,
        "retries": 5,
        "database_wait": None,
        "database_wait_unit": "ms",
        "memory_megabytes": None,
        "ran_dry": False,
    }
    return rules.Step(**values | fields)


@pytest.mark.parametrize(
    ("rates", "stopped"),
    [
        ([5.0], False),
        ([0.0], False),
        ([5.0, 10.0], False),
        ([5.0, 10.0, 10.9], True),
        ([5.0, 10.0, 11.1], False),
        ([20.0, 13.3], True),
        ([5.0, 10.0, 8.0], True),
        ([10.0, 5.0, 10.5], True),
        ([0.0, 0.0], False),
        ([0.0, 1.0], False),
    ],
)
def test_throughput_has_stopped_rising_when_a_step_gains_less_than_a_tenth(rates: list[float], stopped: bool) -> None:
    assert rules.has_stopped_rising(rates) is stopped


def test_the_least_concurrency_near_the_best_rate_is_recommended() -> None:
    steps = [step(1, 5), step(2, 9.8), step(4, 10.0), step(8, 9.9)]
    assert rules.best(steps).concurrency == 2
    assert rules.best([step(1, 5), step(2, 9.0), step(4, 10.0)]).concurrency == 4


def test_the_verdict_names_where_it_stopped_and_what_limits_it() -> None:
    rising = [step(1, 5), step(2, 10)]
    flat = [*rising, step(4, 10.2)]
    assert rules.verdict(flat, stopped=True, pace=None) == (
        "Best: 2 at once, 10.0 documents a second. Throughput stopped rising at 4 at once (10.2 a second)."
    )
    assert "It still rose at the last step" in rules.verdict(rising, stopped=False, pace=None)
    assert "pace is what limits it (10.0 submissions a second)" in rules.verdict(flat, stopped=True, pace=10.0)
    assert "pace" not in rules.verdict(flat, stopped=True, pace=100.0)
    dry = [step(1, 5), step(2, 6, ran_dry=True)]
    assert "ran out at 2 at once; give more with --documents" in rules.verdict(dry, stopped=False, pace=None)
    assert rules.verdict([step(1, 0)], stopped=False, pace=None).startswith("Not one document was saved")


@pytest.mark.parametrize(
    ("rate", "concurrency", "waiting", "left", "size"),
    [
        (0.0, 1, 0, 2000, 20),
        (0.0, 32, 0, 2000, 128),
        (50.0, 8, 0, 2000, 200),
        (50.0, 8, 99, 2000, 200),
        (50.0, 8, 100, 2000, 0),
        (50.0, 8, 0, 30, 30),
        (50.0, 8, 0, 0, 0),
    ],
)
def test_more_is_offered_as_soon_as_little_waits(
    rate: float, concurrency: int, waiting: int, left: int, size: int
) -> None:
    assert rules.batch_size(rate, concurrency, waiting, left) == size


def test_percentiles_are_values_that_were_seen() -> None:
    values = [4.0, 1.0, 3.0, 2.0]
    assert [rules.percentile(values, share) for share in (0.0, 0.5, 0.95, 1.0)] == [1.0, 2.0, 4.0, 4.0]
    assert rules.percentile([], 0.5) is None


@pytest.mark.parametrize(
    ("url", "costs_nothing"),
    [
        ("http://127.0.0.1:8787", True),
        ("http://localhost:1", True),
        ("http://[::1]:8787", True),
        ("https://api.relaypdf.com", False),
        ("http://127.0.0.1.example.com", False),
        ("http://10.0.0.7:8787", False),
    ],
)
def test_only_an_address_on_this_machine_costs_nothing_for_sure(url: str, costs_nothing: bool) -> None:
    assert rules.is_test_address(url) is costs_nothing


def test_a_step_counts_repeats_among_all_submissions() -> None:
    facts = step(4, 2.5).as_dict()
    assert (facts["retry_share"], facts["completions_per_second"]) == (0.25, 2.5)
    assert step(4, 2.5, submissions=0, retries=0).retry_share == 0.0


def test_memory_of_processes_that_are_no_cluster_is_not_counted() -> None:
    assert cluster_megabytes(["no-such-host:1:x", "garbage", ""]) == 0.0


@pytest.mark.django_db
def test_an_account_that_bills_is_refused_with_the_price() -> None:
    make_account(slug="live", base_url="https://pdf.example.com", price_per_job=Decimal("0.0013"))
    code, _, err = run("loadtest", "--account", "live", "--documents", "100")
    assert code == 2
    assert "live is no sandbox" in err
    assert "up to 100 documents at 0.001300 USD each, 0.130000 in all" in err
    assert "--yes" in err
    assert not Job.objects.exists()


@pytest.mark.django_db
def test_an_account_of_unknown_price_is_refused_too() -> None:
    make_account(slug="live", base_url="https://pdf.example.com")
    code, _, err = run("loadtest", "--account", "live")
    assert code == 2
    assert "at a price that the account does not name" in err


@pytest.mark.django_db
def test_a_held_account_is_refused_with_its_reason(now: Any) -> None:
    make_account(slug="sandbox", health="held", hold_reason="auth", hold_words="The key was refused.", held_at=now)
    code, _, err = run("loadtest", "--account", "sandbox")
    assert code == 2
    assert "sandbox is held: The key was refused." in err


@pytest.mark.parametrize(
    "option",
    [
        "--steps=4,2",
        "--steps=0,1",
        "--steps=a",
        "--steps=1,99999999999",
        "--seconds-per-step=0",
        "--documents=0",
    ],
)
def test_what_makes_no_sense_gets_a_sentence(option: str) -> None:
    with pytest.raises(CommandError, match="; give "):
        call_command("loadtest", option)


def test_what_makes_no_sense_ends_with_2() -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "loadtest", "--steps=a"], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "; give " in done.stderr


@pytest.mark.django_db(transaction=True)
def test_without_a_cluster_it_says_so_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loadtest_run, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(loadtest_run, "SETTLE_SECONDS", 0.0)
    make_account(slug="sandbox", max_in_flight=17)
    code, _, err = run("loadtest", "--account", "sandbox", "--steps", "1,2")
    assert code == 2
    assert "Nothing moves: no cluster works on this database." in err
    assert set(Job.objects.values_list("state", flat=True)) == {JobState.CANCELLED}
    assert ProviderAccount.objects.get().max_in_flight == 17
    actions = AuditEntry.objects.filter(action__contains="load_test").order_by("pk").values_list("action", flat=True)
    assert list(actions) == ["start_load_test", "end_load_test"]


@pytest.mark.django_db
@pytest.mark.parametrize(("left", "after", "is_left"), [(4, 17, True), (2, 17, True), (30, 30, False)])
def test_what_a_killed_test_left_is_put_back_once_and_a_persons_value_stays(
    left: int, after: int, is_left: bool
) -> None:
    account = make_account(slug="sandbox", max_in_flight=17)
    begun = loadtest_run.limits_put_back(account, [2, 4])
    begun.__enter__().set(4)  # and then it is killed: nothing of it runs any more
    ProviderAccount.objects.update(max_in_flight=left)
    again = ProviderAccount.objects.get()
    assert loadtest_run.repair(again) is is_left
    assert ProviderAccount.objects.get().max_in_flight == again.max_in_flight == after
    ProviderAccount.objects.update(max_in_flight=4)
    assert loadtest_run.repair(again) is False, "what is set afterwards is a person's"


@pytest.mark.django_db
def test_what_a_person_sets_during_a_test_stays_and_ends_it() -> None:
    account = make_account(slug="sandbox", max_in_flight=17)

    def meddled_with() -> None:
        with loadtest_run.limits_put_back(account, [2, 4]) as limit:
            limit.set(2)
            ProviderAccount.objects.update(max_in_flight=9)
            limit.set(4)

    with pytest.raises(CommandError, match="Somebody changed max_in_flight"):
        meddled_with()
    assert ProviderAccount.objects.get().max_in_flight == 9


def test_stops_end_a_wait_at_once_and_are_only_noted() -> None:
    """So that a second Ctrl-C cannot end the putting back of the limits."""
    stops_of_tests = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with loadtest_run.stops_noted() as stops:
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        begun = time.monotonic()
        stops.wait(30.0)
        assert time.monotonic() - begun < 10.0
        assert stops.take() == {signal.SIGTERM, signal.SIGINT}
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == stops_of_tests


@pytest.mark.processes
def test_on_a_real_stack_it_reports_each_step_and_puts_everything_back(
    make_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    stack = make_stack(
        env={"SANDBOX_PORT": str(free_port()), "RELAYPDF_SUBMIT_INTERVAL": "0.02", "RELAYPDF_POLL_INITIAL": "0.2"},
        command=("runstack", "--sandbox", "--port", "0"),
    )
    stack.bootstrap()
    stack.start()
    eventually(lambda: "ready at http" in stack.log(), "a stack that is ready")
    done = stack.manage("loadtest", "--steps", "1,4", "--seconds-per-step", "3", "--json")
    assert done.returncode == 0, done.stdout + done.stderr + stack.log()
    found = json.loads(done.stdout)
    assert found["steps"][0]["concurrency"] == 1
    first = found["steps"][0]
    assert first["completions"] > 0
    assert 0 < first["latency_p50"] <= first["latency_p95"] <= first["latency_p99"]
    assert first["oldest_pending_seconds"] > 0
    assert first["database_wait_unit"]
    assert first["retry_share"] == 0
    if sys.platform == "linux":
        assert first["memory_megabytes"] > 10
    assert found["best_concurrency"] in (1, 4)
    assert stack.query("SELECT max_in_flight FROM batches_provideraccount") == [(20,)]
    # What had missed its slot when its batch was cancelled goes back first, and the minute's sweep ends it.
    pending = "SELECT count(*) FROM batches_job WHERE state = 'pending'"
    eventually(lambda: stack.query(pending) == [(0,)], "cancelled", within=120)

    running = subprocess.Popen(
        [sys.executable, "manage.py", "loadtest", "--steps", "3", "--seconds-per-step", "600"],
        cwd=REPOSITORY,
        env=stack.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: stack.query("SELECT max_in_flight FROM batches_provideraccount") == [(3,)], "the first step")
    running.send_signal(signal.SIGTERM)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert "limits are as before" in err
    assert stack.query("SELECT max_in_flight FROM batches_provideraccount") == [(20,)]
    eventually(lambda: stack.query(pending) == [(0,)], "cancelled", within=120)
    assert stack.stop() == 0


@pytest.mark.django_db
def test_repeats_are_what_left_beyond_the_first_of_each_submission() -> None:
    account = make_account(slug="sandbox")
    batch = make_batch(account=account)
    old, new = (make_submission(job=make_job(batch=batch)) for _ in range(2))

    def sent(submission: Submission) -> int:
        return Exchange.objects.create(
            account=account, job=submission.job, submission=submission, kind="submit", at=NOW, duration_ms=5
        ).pk

    mark = sent(old)  # first sent before the step began
    for submission in (old, new, new, new):
        last = sent(submission)
    with loadtest_run.stops_noted() as stops:
        test = loadtest_run.LoadTest(batch.workspace, account, 10, stops)
        assert test._submissions(mark, last) == (4, 3)
        assert step(1, 1.0, submissions=4, retries=3).retry_share == 0.75


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "sqlite", reason="the wait for the write lock is SQLite's")
def test_the_database_wait_is_as_long_as_a_writer_holds_the_lock(tmp_path: Path) -> None:
    holder = sqlite3.connect(connection.settings_dict["NAME"], uri=True, isolation_level=None)
    with Probes() as probes:
        time.sleep(3 * EVERY_SECONDS)
        quiet, unit, _ = probes.take()
        holder.execute("BEGIN IMMEDIATE")
        time.sleep(3 * EVERY_SECONDS)
        holder.execute("ROLLBACK")
        time.sleep(2 * EVERY_SECONDS)
        waited, _, _ = probes.take()
    holder.close()
    assert unit == "ms for the write lock, p95"
    assert quiet is not None
    assert waited is not None
    assert waited > 1000 * EVERY_SECONDS > quiet
