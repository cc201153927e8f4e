"""Every fault that can be switched on, as a client meets it, and the rules that switch it on."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

import pytest

from batches.sandbox.faults import ACTIONS, parse_rules
from batches.sandbox.switches import BadSwitch, Switches, as_json
from tests.sandbox.calls import Reply, call, submit
from tests.sandbox_process import PROJECT_ROOT, SandboxProcess

README = PROJECT_ROOT / "batches" / "sandbox" / "README.md"

pytestmark = pytest.mark.processes


def finished_file(sandbox: SandboxProcess, html: str = "<p>Invoice</p>") -> str:
    """The id of a rendered job."""
    done = sandbox.ledger()["totals"]["jobs_completed"]  # before the submission: it may be rendered at once
    job_id = str(submit(sandbox, html).json()["id"])
    sandbox.wait_for_jobs(done + 1)
    return job_id


def download(sandbox: SandboxProcess, file_id: str) -> Reply:
    return call(sandbox, "GET", f"/v1/files/{file_id}", key=None)


# Submissions


@pytest.mark.parametrize(("action", "jobs"), [("drop_before_acceptance", 0), ("drop_after_acceptance", 1)])
def test_dropped_connections(sandbox: SandboxProcess, action: str, jobs: int) -> None:
    sandbox.configure(faults=[{"do": action}])
    with pytest.raises(ConnectionError):
        submit(sandbox, idempotency_key="k")
    assert sandbox.ledger()["totals"]["jobs"] == jobs
    (arrival,) = sandbox.arrivals()
    assert (arrival["status"], arrival["idempotency_key"]) == (None, "k")
    sandbox.configure(faults=[])
    assert submit(sandbox, idempotency_key="k").status == 202
    assert sandbox.wait_for_jobs(1)["billed_by_key"] == {"k": 1}


@pytest.mark.parametrize(
    ("action", "status", "content_type", "jobs"),
    [
        ("error_before_acceptance", 500, "application/json; charset=utf-8", 0),
        ("error_after_acceptance", 500, "application/json; charset=utf-8", 1),
        ("html_502_before_acceptance", 502, "text/html", 0),
        ("html_502_after_acceptance", 502, "text/html", 1),
        ("rate_limited", 429, "application/json; charset=utf-8", 0),
    ],
)
def test_error_answers(sandbox: SandboxProcess, action: str, status: int, content_type: str, jobs: int) -> None:
    sandbox.configure(faults=[{"do": action}])
    reply = submit(sandbox)
    assert (reply.status, reply.headers["content-type"]) == (status, content_type)
    assert sandbox.ledger()["totals"]["jobs"] == jobs
    assert [arrival["status"] for arrival in sandbox.arrivals()] == [status]


def test_errors_carry_the_rules_own_words(sandbox: SandboxProcess) -> None:
    rule = {
        "do": "error_before_acceptance",
        "status": 503,
        "code": "ai_unavailable",
        "message": "Later",
        "retry_after": 7,
    }
    sandbox.configure(faults=[rule])
    reply = submit(sandbox)
    assert reply.json() == {"error": {"code": "ai_unavailable", "message": "Later"}}
    assert reply.headers["retry-after"] == "7"


@pytest.mark.parametrize("action", ["slow_before_acceptance", "slow_after_acceptance"])
def test_slow_answers(sandbox: SandboxProcess, action: str) -> None:
    sandbox.configure(faults=[{"do": action, "seconds": 0.3}])
    started = time.monotonic()
    assert submit(sandbox).status == 202
    assert time.monotonic() - started >= 0.3


def test_acceptance_in_an_unusual_form(sandbox: SandboxProcess) -> None:
    sandbox.configure(faults=[{"do": "answer_after_acceptance", "status": 200, "omit": ["status"]}])
    reply = submit(sandbox)
    assert reply.status == 200
    assert set(reply.json()) == {"id", "pollUrl"}
    sandbox.configure(faults=[{"do": "answer_after_acceptance", "body": "not json", "content_type": "text/plain"}])
    assert submit(sandbox).body == b"not json"
    assert sandbox.ledger()["totals"]["jobs"] == 2


# Jobs


def test_stuck_jobs_never_end_and_are_never_billed(sandbox: SandboxProcess) -> None:
    sandbox.configure(faults=[{"when": {"body_contains": "STUCK"}, "do": "stuck"}])
    stuck = submit(sandbox, "<p>STUCK</p>").json()["id"]
    finished_file(sandbox)
    assert call(sandbox, "GET", f"/v1/jobs/{stuck}").json()["status"] == "processing"
    assert sandbox.ledger()["totals"]["jobs_billed"] == 1


def test_failed_jobs_are_not_billed(sandbox: SandboxProcess) -> None:
    sandbox.configure(faults=[{"do": "fail", "code": "processing_failed", "message": "No luck"}])
    job_id = submit(sandbox).json()["id"]
    sandbox.wait_for_jobs(1, status="failed")
    job = call(sandbox, "GET", f"/v1/jobs/{job_id}").json()
    assert job["error"] == {"code": "processing_failed", "message": "No luck"}
    assert sandbox.ledger()["totals"]["jobs_billed"] == 0


def test_jobs_take_their_least_time(sandbox: SandboxProcess) -> None:
    sandbox.configure(faults=[{"when": {"body_contains": "SLOW"}, "do": "take", "seconds": 1000}])
    slow = submit(sandbox, "<p>SLOW</p>").json()["id"]
    finished_file(sandbox)
    assert call(sandbox, "GET", f"/v1/jobs/{slow}").json()["status"] == "processing"
    sandbox.advance_clock(1001)
    sandbox.wait_for_jobs(2)


def test_status_words(sandbox: SandboxProcess) -> None:
    words = {"accepted_word": "queued", "waiting_word": "queued", "running_word": "warming_up"}
    sandbox.configure(jobs={**words, "min_seconds": 1000})
    accepted = submit(sandbox).json()
    assert accepted["status"] == "queued"
    deadline = time.monotonic() + 20
    while (word := call(sandbox, "GET", f"/v1/jobs/{accepted['id']}").json()["status"]) != "warming_up":
        assert word == "queued"
        assert time.monotonic() < deadline
    sandbox.advance_clock(1001)
    sandbox.wait_for_jobs(1)


# Polls


def test_polls_fail_in_every_way(sandbox: SandboxProcess) -> None:
    path = f"/v1/jobs/{finished_file(sandbox)}"
    sandbox.configure(faults=[{"do": "poll_error", "status": 503}])
    assert (call(sandbox, "GET", path).status, call(sandbox, "GET", path).code) == (503, "convert_unavailable")
    sandbox.configure(faults=[{"do": "poll_drop"}])
    with pytest.raises(ConnectionError):
        call(sandbox, "GET", path)
    sandbox.configure(faults=[{"do": "poll_answer", "body": {"id": "x", "status": None}}])
    assert call(sandbox, "GET", path).json() == {"id": "x", "status": None}
    sandbox.configure(faults=[{"do": "poll_slow", "seconds": 0.2}])
    started = time.monotonic()
    assert call(sandbox, "GET", path).json()["status"] == "completed"
    assert time.monotonic() - started >= 0.2


# Files


@pytest.mark.parametrize(("answer", "status"), [("404", 404), ("410", 410), ("403_xml", 403)])
def test_expired_files(sandbox: SandboxProcess, answer: str, status: int) -> None:
    file_id = finished_file(sandbox)
    sandbox.configure(faults=[{"when": {"times": 1}, "do": "expired_file", "answer": answer}])
    assert download(sandbox, file_id).status == status
    assert download(sandbox, file_id).status == 200


@pytest.mark.parametrize(("answer", "status"), [("404", 404), ("410", 410), ("403_xml", 403)])
def test_files_really_expire_after_24_hours(sandbox: SandboxProcess, answer: str, status: int) -> None:
    sandbox.configure(files={"expired_answer": answer})
    file_id = finished_file(sandbox)
    sandbox.advance_clock(86_390)
    assert download(sandbox, file_id).status == 200
    sandbox.advance_clock(20)
    gone = download(sandbox, file_id)
    assert gone.status == status
    assert ("xml" in gone.headers["content-type"]) == (answer == "403_xml")
    assert call(sandbox, "GET", f"/v1/jobs/{file_id}").json()["status"] == "completed"
    assert call(sandbox, "DELETE", f"/v1/files/{file_id}").status == 404


def test_lifetime_may_start_at_the_submission(sandbox: SandboxProcess) -> None:
    sandbox.configure(files={"ttl_from": "submission", "ttl_seconds": 100}, jobs={"min_seconds": 90})
    file_id = submit(sandbox).json()["id"]
    sandbox.advance_clock(91)
    sandbox.wait_for_jobs(1)
    assert download(sandbox, file_id).status == 200
    sandbox.advance_clock(10)
    assert download(sandbox, file_id).status == 404


def test_truncated_file_that_promises_its_whole_length(sandbox: SandboxProcess) -> None:
    file_id = finished_file(sandbox)
    sandbox.configure(faults=[{"do": "truncated_file", "share": 0.5}])
    with pytest.raises(http.client.IncompleteRead) as cut:
        download(sandbox, file_id)
    assert cut.value.partial.startswith(b"%PDF-")


def test_truncated_file_that_hides_its_cut(sandbox: SandboxProcess) -> None:
    file_id = finished_file(sandbox)
    whole = download(sandbox, file_id)
    sandbox.configure(faults=[{"do": "truncated_file", "share": 0.5, "content_length": "wrong"}])
    cut = download(sandbox, file_id)
    assert int(cut.headers["content-length"]) == len(cut.body) == len(whole.body) // 2
    assert int(cut.headers["x-relaypdf-size"]) == len(whole.body)


def test_other_bad_downloads(sandbox: SandboxProcess) -> None:
    file_id = finished_file(sandbox)
    sandbox.configure(faults=[{"do": "error_page"}])
    page = download(sandbox, file_id)
    assert (page.status, page.headers["content-type"]) == (200, "text/html")
    assert page.body.startswith(b"<!DOCTYPE html>")
    sandbox.configure(faults=[{"do": "wrong_content_type"}])
    assert download(sandbox, file_id).headers["content-type"] == "application/octet-stream"
    sandbox.configure(faults=[{"do": "download_error", "status": 503, "code": "storage_unavailable"}])
    assert download(sandbox, file_id).code == "storage_unavailable"
    sandbox.configure(faults=[{"do": "download_drop"}])
    with pytest.raises(ConnectionError):
        download(sandbox, file_id)
    sandbox.configure(faults=[{"do": "delete_error"}])
    assert call(sandbox, "DELETE", f"/v1/files/{file_id}").status == 500
    sandbox.configure(faults=[{"do": "download_slow", "seconds": 0.2}])
    started = time.monotonic()
    assert download(sandbox, file_id).status == 200
    assert time.monotonic() - started >= 0.2


# Conditions


def statuses(sandbox: SandboxProcess, count: int, html: str = "<p>x</p>") -> list[int]:
    return [submit(sandbox, html).status for _ in range(count)]


def test_conditions_pick_the_requests_that_suffer(sandbox: SandboxProcess) -> None:
    sandbox.configure(faults=[{"when": {"nth": [2, 4]}, "do": "error_before_acceptance"}])
    assert statuses(sandbox, 5) == [202, 500, 202, 500, 202]
    sandbox.configure(faults=[{"when": {"every": 3}, "do": "error_before_acceptance"}])
    assert statuses(sandbox, 6) == [202, 202, 500, 202, 202, 500]
    sandbox.configure(faults=[{"when": {"times": 2}, "do": "rate_limited"}])
    assert statuses(sandbox, 4) == [429, 429, 202, 202]
    sandbox.configure(faults=[{"when": {"body_matches": "INV-[0-9]{3}"}, "do": "error_before_acceptance"}])
    assert statuses(sandbox, 1, "<p>INV-123</p>") + statuses(sandbox, 1, "<p>INV-x</p>") == [500, 202]
    sandbox.configure(faults=[{"when": {"key_contains": "bad"}, "do": "error_before_acceptance"}])
    assert [submit(sandbox, idempotency_key=key).status for key in ("bad-1", "good-1")] == [500, 202]
    sandbox.configure(faults=[{"when": {"mode": "async"}, "do": "fail"}])
    assert submit(sandbox, response="url").status == 200


def test_probability_follows_the_seed(sandbox: SandboxProcess) -> None:
    rule = {"when": {"probability": 0.5}, "do": "error_before_acceptance"}
    sandbox.configure(faults=[rule], seed=7)
    first = statuses(sandbox, 20)
    sandbox.configure(faults=[rule], seed=7)
    assert statuses(sandbox, 20) == first
    assert {202, 500} == set(first)
    sandbox.configure(faults=[rule], seed=8)
    assert statuses(sandbox, 20) != first


def test_counters_count_only_requests_that_meet_the_other_conditions(sandbox: SandboxProcess) -> None:
    sandbox.configure(faults=[{"when": {"body_contains": "HOT", "nth": 2}, "do": "error_before_acceptance"}])
    found = [submit(sandbox, f"<p>{word}</p>").status for word in ("HOT", "cold", "cold", "HOT", "HOT")]
    assert found == [202, 202, 202, 500, 202]


def test_a_stuck_and_a_failing_rule_may_sit_inside_the_acceptance(sandbox: SandboxProcess) -> None:
    sandbox.configure(faults=[{"when": {"nth": 1}, "do": "fail"}, {"when": {"nth": 2}, "do": "stuck"}])
    for _ in range(3):
        submit(sandbox)
    sandbox.wait_for_jobs(1)
    assert [job["status"] for job in sandbox.ledger()["jobs"]] == ["failed", "processing", "completed"]


BAD_RULES: list[tuple[Any, str]] = [
    ("drop", "must look like"),
    ({"do": "explode"}, "do must be one of"),
    ({"do": "stuck", "when": {"moon": "full"}}, "no condition 'moon'"),
    ({"do": "stuck", "secnds": 1}, "takes no 'secnds'"),
    ({"do": "stuck", "when": {"body_matches": "("}}, "not a regular expression"),
    ({"do": "stuck", "when": {"probability": 2}}, "between 0 and 1"),
    ({"do": "stuck", "when": {"nth": 0}}, "from 1 up"),
    ({"do": "stuck", "when": {"every": "x"}}, "from 1 up"),
    ({"do": "slow_after_acceptance", "seconds": -1}, "from 0 up"),
    ({"do": "webhook_late", "signed": "never"}, "one of sent, created"),
    ({"do": "truncated_file", "content_length": "short"}, "one of right, wrong"),
]


@pytest.mark.parametrize(("rule", "sentence"), BAD_RULES)
def test_rules_that_could_not_work_are_refused(rule: Any, sentence: str) -> None:
    with pytest.raises(BadSwitch, match=r"^faults\[0\]") as refused:
        parse_rules([rule])
    assert sentence in str(refused.value)


def test_the_readme_documents_every_action_and_its_examples_are_valid() -> None:
    readme = README.read_text(encoding="utf-8")
    assert [action for action in ACTIONS if f"`{action}`" not in readme] == []
    examples = [line for line in readme.splitlines() if line.startswith(('{"when"', '{"do"'))]
    assert len(examples) >= 10
    parse_rules([json.loads(line) for line in examples])


def test_the_readme_documents_every_switch() -> None:
    readme = README.read_text(encoding="utf-8")
    names = [
        f"{group}.{name}"
        for group, values in as_json(Switches()).items()
        if isinstance(values, dict)
        for name in values
    ]
    assert [name for name in names if f"`{name}`" not in readme and f"`{name.partition('.')[2]}`" not in readme] == []
