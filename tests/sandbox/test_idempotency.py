"""What an `Idempotency-Key` does, under each reality that the vendor's documents allow."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from batches.sandbox.idempotency import KeyRecord, Verdict, judge
from batches.sandbox.switches import IdempotencySwitches
from tests.sandbox.calls import call, submit
from tests.sandbox_process import SandboxProcess

RECORD = {
    "digest": "a",
    "first_at": 1000.0,
    "answering": False,
    "refused": False,
    "job_status": "completed",
    "file_gone": False,
}

JUDGED: list[tuple[str, dict[str, Any] | None, str, dict[str, Any], Verdict]] = [
    ("an unknown key is new", None, "a", {}, Verdict.NEW),
    ("the same body again is a replay", {}, "a", {}, Verdict.REPLAY),
    ("another body is a conflict", {}, "b", {}, Verdict.CONFLICT),
    ("a key past its retention is new", {}, "a", {"retention_seconds": 10.0}, Verdict.NEW),
    ("even with another body", {}, "b", {"retention_seconds": 10.0}, Verdict.NEW),
    ("an unanswered first request is in flight", {"answering": True}, "a", {}, Verdict.IN_FLIGHT),
    ("in flight with another body is a conflict", {"answering": True}, "b", {}, Verdict.CONFLICT),
    ("a running job is a replay once answered", {"job_status": "processing"}, "a", {}, Verdict.REPLAY),
    (
        "or in flight until it has finished",
        {"job_status": "processing"},
        "a",
        {"in_flight_until": "finished"},
        Verdict.IN_FLIGHT,
    ),
    ("a failed job is replayed", {"job_status": "failed"}, "a", {}, Verdict.REPLAY),
    ("or made anew", {"job_status": "failed"}, "a", {"after_failure": "new_job"}, Verdict.NEW),
    ("a job without its file is replayed", {"file_gone": True}, "a", {}, Verdict.REPLAY),
    ("or made anew", {"file_gone": True}, "a", {"after_file_gone": "new_job"}, Verdict.NEW),
    ("a stored refusal is repeated", {"refused": True, "job_status": None}, "a", {}, Verdict.STORED_REFUSAL),
    ("and binds the key", {"refused": True, "job_status": None}, "b", {}, Verdict.CONFLICT),
]


@pytest.mark.parametrize(
    ("record", "digest", "switches", "verdict"), [row[1:] for row in JUDGED], ids=[row[0] for row in JUDGED]
)
def test_verdicts(record: dict[str, Any] | None, digest: str, switches: dict[str, Any], verdict: Verdict) -> None:
    known = None if record is None else KeyRecord(**{**RECORD, **record})
    assert judge(known, digest, IdempotencySwitches(**switches), now=1010.0) is verdict


pytestmark = pytest.mark.processes


def test_replay_gives_the_same_id_and_bills_once(sandbox: SandboxProcess) -> None:
    first = submit(sandbox, idempotency_key="k")
    sandbox.wait_for_jobs(1)
    again = submit(sandbox, idempotency_key="k")
    assert (first.status, again.status) == (202, 202)
    assert first.json() == again.json()
    ledger = sandbox.ledger()
    assert ledger["billed_by_key"] == {"k": 1}
    assert (ledger["totals"]["received"], ledger["totals"]["accepted"], ledger["totals"]["replays"]) == (2, 1, 1)


def test_replay_may_answer_with_the_finished_job(sandbox: SandboxProcess) -> None:
    sandbox.configure(idempotency={"replay": "completed_body"}, jobs={"min_seconds": 1000})
    first = submit(sandbox, idempotency_key="k")
    early = submit(sandbox, idempotency_key="k")
    assert (early.status, early.json()["id"]) == (202, first.json()["id"])
    sandbox.advance_clock(1001)
    sandbox.wait_for_jobs(1)
    late = submit(sandbox, idempotency_key="k")
    assert late.status == 200
    assert late.json()["status"] == "completed"
    assert late.json()["id"] == first.json()["id"]
    assert [arrival["status"] for arrival in sandbox.arrivals()] == [202, 202, 200]


@pytest.mark.parametrize(
    ("status", "code"), [(409, "idempotency_conflict"), (400, "invalid_request"), (422, "key_reused")]
)
def test_another_body_under_the_same_key_conflicts(sandbox: SandboxProcess, status: int, code: str) -> None:
    sandbox.configure(idempotency={"conflict_status": status, "conflict_code": code})
    submit(sandbox, "<p>one</p>", idempotency_key="k")
    other = submit(sandbox, "<p>two</p>", idempotency_key="k")
    assert (other.status, other.code) == (status, code)
    totals = sandbox.ledger()["totals"]
    assert (totals["conflicts"], totals["jobs"]) == (1, 1)
    submit(sandbox, "")
    assert sandbox.ledger()["totals"]["conflicts"] == 1


def test_bodies_are_compared_byte_for_byte_or_as_json(sandbox: SandboxProcess) -> None:
    fields = {"html": "<p>x</p>", "response": "async"}
    tight = json.dumps(fields, separators=(",", ":")).encode()
    loose = json.dumps(dict(reversed(fields.items())), indent=1).encode()
    headers = {"Idempotency-Key": "k"}
    assert call(sandbox, "POST", "/v1/pdf", tight, headers=headers).status == 202
    assert call(sandbox, "POST", "/v1/pdf", loose, headers=headers).status == 409
    sandbox.configure(idempotency={"compare": "json"})
    headers = {"Idempotency-Key": "k2"}
    first = call(sandbox, "POST", "/v1/pdf", tight, headers=headers)
    assert call(sandbox, "POST", "/v1/pdf", loose, headers=headers).json() == first.json()


def test_after_its_retention_a_key_makes_a_new_billable_job(sandbox: SandboxProcess) -> None:
    sandbox.configure(idempotency={"retention_seconds": 100})
    first = submit(sandbox, idempotency_key="k").json()["id"]
    sandbox.advance_clock(95)
    assert submit(sandbox, idempotency_key="k").json()["id"] == first
    sandbox.advance_clock(10)
    assert submit(sandbox, idempotency_key="k").json()["id"] != first
    assert sandbox.wait_for_jobs(2)["billed_by_key"] == {"k": 2}


@pytest.mark.parametrize(("age_from", "jobs"), [("acceptance", 1), ("first_sight", 2)])
def test_a_key_that_was_refused_first_may_age_from_its_first_sight(
    sandbox: SandboxProcess, age_from: str, jobs: int
) -> None:
    sandbox.configure(idempotency={"retention_seconds": 100, "age_from": age_from})
    assert submit(sandbox, "", idempotency_key="k").status == 400
    sandbox.advance_clock(90)
    submit(sandbox, idempotency_key="k")
    sandbox.advance_clock(20)
    submit(sandbox, idempotency_key="k")
    assert sandbox.wait_for_jobs(jobs)["billed_by_key"] == {"k": jobs}


def test_two_posts_at_once_with_one_key_make_one_job(sandbox: SandboxProcess) -> None:
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: submit(sandbox, idempotency_key="k"), range(8)))
    assert {reply.status for reply in replies} == {202}
    assert len({reply.json()["id"] for reply in replies}) == 1
    assert sandbox.wait_for_jobs(1)["totals"]["jobs"] == 1


def _submit_twice_while_answering(sandbox: SandboxProcess, **fields: Any) -> list[int]:
    """Statuses of a slow first request and of a second one that comes while the first has no answer."""
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(submit, sandbox, idempotency_key="k", **fields)
        while sandbox.ledger()["totals"]["jobs"] == 0:
            time.sleep(0.01)
        second = submit(sandbox, idempotency_key="k", **fields)
        return [first.result().status, second.status]


def test_in_flight_is_recognised_or_refused(sandbox: SandboxProcess) -> None:
    slow = {"when": {"times": 1}, "do": "slow_after_acceptance"}
    sandbox.configure(faults=[{**slow, "seconds": 0.5}])
    assert _submit_twice_while_answering(sandbox) == [202, 202]
    sandbox.reset()
    sandbox.configure(faults=[{**slow, "seconds": 2}], idempotency={"in_flight": "refused", "in_flight_status": 425})
    assert _submit_twice_while_answering(sandbox) == [202, 425]
    assert submit(sandbox, idempotency_key="k").status == 202
    assert sandbox.ledger()["totals"]["jobs"] == 1


def test_in_flight_may_last_until_the_job_has_finished(sandbox: SandboxProcess) -> None:
    sandbox.configure(jobs={"min_seconds": 1000}, idempotency={"in_flight": "refused", "in_flight_until": "finished"})
    submit(sandbox, idempotency_key="k")
    assert submit(sandbox, idempotency_key="k").code == "idempotency_conflict"
    sandbox.advance_clock(1001)
    sandbox.wait_for_jobs(1)
    assert submit(sandbox, idempotency_key="k").status == 202


def test_waiting_modes_replay_their_own_answer(sandbox: SandboxProcess) -> None:
    first = submit(sandbox, idempotency_key="k", response="binary")
    again = submit(sandbox, idempotency_key="k", response="binary")
    assert first.body == again.body
    assert first.headers["x-relaypdf-id"] == again.headers["x-relaypdf-id"]
    assert sandbox.ledger()["totals"]["jobs_billed"] == 1


def test_waiting_modes_may_ignore_or_refuse_the_key(sandbox: SandboxProcess) -> None:
    sandbox.configure(idempotency={"sync_modes": "ignored"})
    ids = {submit(sandbox, idempotency_key="k", response="url").json()["id"] for _ in range(2)}
    assert len(ids) == 2
    sandbox.configure(idempotency={"sync_modes": "refused"})
    assert submit(sandbox, idempotency_key="k", response="url").code == "invalid_request"
    assert submit(sandbox, idempotency_key="k").status == 202


def test_a_failed_job_is_replayed_or_made_anew(sandbox: SandboxProcess) -> None:
    sandbox.configure(faults=[{"do": "fail"}])
    first = submit(sandbox, idempotency_key="k").json()["id"]
    sandbox.wait_for_jobs(1, status="failed")
    sandbox.configure(faults=[])
    assert submit(sandbox, idempotency_key="k").json()["id"] == first
    sandbox.configure(idempotency={"after_failure": "new_job"})
    assert submit(sandbox, idempotency_key="k").json()["id"] != first
    assert sandbox.wait_for_jobs(1)["billed_by_key"] == {"k": 1}


def test_a_deleted_output_is_replayed_or_made_anew(sandbox: SandboxProcess) -> None:
    first = submit(sandbox, idempotency_key="k").json()["id"]
    sandbox.wait_for_jobs(1)
    assert call(sandbox, "DELETE", f"/v1/files/{first}").status == 200
    assert submit(sandbox, idempotency_key="k").json()["id"] == first
    assert call(sandbox, "GET", f"/v1/files/{first}").status == 404
    sandbox.configure(idempotency={"after_file_gone": "new_job"})
    assert submit(sandbox, idempotency_key="k").json()["id"] != first


def test_refusals_are_forgotten_or_bind_their_key(sandbox: SandboxProcess) -> None:
    assert submit(sandbox, "", idempotency_key="k").status == 400
    assert submit(sandbox, "<p>x</p>", idempotency_key="k").status == 202
    sandbox.configure(idempotency={"refusals": "stored"})
    assert submit(sandbox, "", idempotency_key="k2").status == 400
    assert submit(sandbox, "", idempotency_key="k2").code == "invalid_request"
    assert submit(sandbox, "<p>x</p>", idempotency_key="k2").status == 409


@pytest.mark.parametrize("key", ["", "x" * 256, "schlüssel", "a\tb"])
def test_keys_that_no_header_should_hold_are_refused(sandbox: SandboxProcess, key: str) -> None:
    assert submit(sandbox, idempotency_key=key).code == "invalid_request"


def test_keys_belong_to_their_account(sandbox: SandboxProcess) -> None:
    sandbox.configure(account={"api_keys": {sandbox.api_key: "main", "pdf_live_other": "other"}})
    mine = submit(sandbox, idempotency_key="k").json()["id"]
    other = call(
        sandbox,
        "POST",
        "/v1/pdf",
        {"html": "<p>Invoice</p>", "response": "async"},
        key="pdf_live_other",
        headers={"Idempotency-Key": "k"},
    )
    assert other.json()["id"] != mine
    assert call(sandbox, "GET", f"/v1/jobs/{mine}", key="pdf_live_other").status == 404
    assert call(sandbox, "DELETE", f"/v1/files/{mine}", key="pdf_live_other").status == 404
