"""Rate limits: what the windows let through, and how a 429 says when to come back."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime

import pytest

from batches.sandbox.answers import retry_after_headers
from batches.sandbox.limiter import Limiter
from tests.sandbox.calls import call, submit
from tests.sandbox_process import SandboxProcess

BOTH = ((20, 60.0), (5, 10.0))


def test_no_window_lets_everything_through() -> None:
    limiter = Limiter()
    assert [limiter.wait_for("a", (), now=0.0) for _ in range(1000)] == [0.0] * 1000


def test_burst_window_fills_and_slides() -> None:
    limiter = Limiter()
    assert [limiter.wait_for("a", ((5, 10.0),), now=float(n)) for n in range(5)] == [0.0] * 5
    assert limiter.wait_for("a", ((5, 10.0),), now=5.0) == 5.0
    assert limiter.wait_for("a", ((5, 10.0),), now=9.5) == 0.5
    assert limiter.wait_for("a", ((5, 10.0),), now=10.0) == 0.0
    assert limiter.wait_for("a", ((5, 10.0),), now=10.0) == 1.0


def test_every_window_holds_at_once() -> None:
    limiter = Limiter()
    let_through = []
    now = 0.0
    while now < 180:
        if limiter.wait_for("a", BOTH, now=now) == 0.0:
            let_through.append(now)
        now += 0.25
    for limit, seconds in BOTH:
        for start in let_through:
            assert sum(start <= at < start + seconds for at in let_through) <= limit
    assert len(let_through) == 60


def test_steady_pace_of_three_seconds_is_never_refused() -> None:
    limiter = Limiter()
    assert {limiter.wait_for("a", BOTH, now=n * 3.0) for n in range(200)} == {0.0}


def test_refused_requests_do_not_count_and_accounts_are_apart() -> None:
    limiter = Limiter()
    limiter.wait_for("a", ((1, 10.0),), now=0.0)
    for _ in range(5):
        assert limiter.wait_for("a", ((1, 10.0),), now=9.0) == 1.0
    assert limiter.wait_for("b", ((1, 10.0),), now=9.0) == 0.0
    assert limiter.wait_for("a", ((1, 10.0),), now=10.0) == 0.0


def test_tolerance_forgives_a_request_that_is_a_little_early() -> None:
    limiter = Limiter()
    limiter.wait_for("a", ((1, 10.0),), now=0.0)
    assert limiter.wait_for("a", ((1, 10.0),), now=9.98, tolerance=0.05) == 0.0
    assert limiter.wait_for("a", ((1, 10.0),), now=19.9, tolerance=0.05) > 0.0


@pytest.mark.parametrize(
    ("wait", "form", "value"),
    [
        (2.1, "seconds", "3"),
        (0.01, "seconds", "1"),
        (10, "seconds", "10"),
        (2.1, "http_date", "Thu, 01 Jan 1970 00:16:44 GMT"),
    ],
)
def test_forms_of_retry_after(wait: float, form: str, value: str) -> None:
    assert retry_after_headers(wait, form, now=1000.5) == (("Retry-After", value),)  # type: ignore[arg-type]  # a table of words


def test_retry_after_may_be_missing() -> None:
    assert retry_after_headers(5, "missing", now=0.0) == ()


@pytest.mark.processes
def test_limited_submissions_are_neither_accepted_nor_billed(sandbox: SandboxProcess) -> None:
    sandbox.configure(limits={"windows": [[20, 60], [3, 10]]})
    replies = [submit(sandbox) for _ in range(5)]
    assert [reply.status for reply in replies] == [202, 202, 202, 429, 429]
    assert replies[3].code == "rate_limited"
    assert 1 <= int(replies[3].headers["retry-after"]) <= 10
    totals = sandbox.wait_for_jobs(3)["totals"]
    assert (totals["received"], totals["rate_limited"], totals["jobs_billed"]) == (5, 2, 3)
    sandbox.advance_clock(10)
    assert submit(sandbox).status == 202


@pytest.mark.processes
def test_retry_after_as_a_date_or_not_at_all(sandbox: SandboxProcess) -> None:
    sandbox.configure(limits={"windows": [[1, 30]], "retry_after": "http_date"})
    submit(sandbox)
    date = parsedate_to_datetime(submit(sandbox).headers["retry-after"]).timestamp()
    assert 25 < date - time.time() < 33
    sandbox.configure(limits={"retry_after": "missing"})
    assert "retry-after" not in submit(sandbox).headers


@pytest.mark.processes
def test_polls_count_only_where_that_is_switched_on(sandbox: SandboxProcess) -> None:
    sandbox.configure(limits={"windows": [[2, 60]]})
    path = f"/v1/jobs/{submit(sandbox).json()['id']}"
    assert {call(sandbox, "GET", path).status for _ in range(5)} == {200}
    sandbox.configure(limits={"count_polls": True})
    assert [call(sandbox, "GET", path).status for _ in range(3)] == [200, 429, 429]
    assert sandbox.ledger()["totals"]["polls"] == 8
