"""The controls under `/_sandbox/`, the ledger's truth, money, and the switches."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from batches.sandbox import targets
from batches.sandbox.switches import BadSwitch, Switches, as_json, changed, differences, parse_assignment
from tests.sandbox.calls import call, submit
from tests.sandbox_process import SandboxProcess

PROCESSES = pytest.mark.processes


@PROCESSES
def test_ledger_tells_what_happened(sandbox: SandboxProcess) -> None:
    body = json.dumps({"html": "<p>one</p>", "response": "async"}).encode()
    headers = {"Idempotency-Key": "k1"}
    first = call(sandbox, "POST", "/v1/pdf", body, headers=headers).json()["id"]
    call(sandbox, "POST", "/v1/pdf", body, headers=headers)
    submit(sandbox, "<p>other</p>", idempotency_key="k1")
    submit(sandbox, "<p>two</p>")
    submit(sandbox, "")
    ledger = sandbox.wait_for_jobs(2)
    call(sandbox, "GET", f"/v1/jobs/{first}")
    call(sandbox, "GET", f"/v1/files/{first}", key=None)
    call(sandbox, "DELETE", f"/v1/files/{first}")
    ledger = sandbox.ledger()
    totals = ledger["totals"]
    assert (totals["received"], totals["accepted"], totals["replays"]) == (5, 2, 1)
    assert (totals["conflicts"], totals["refused"], totals["jobs_billed"]) == (1, 1, 2)
    assert (totals["polls"], totals["downloads"], totals["deletes"]) == (1, 1, 1)
    assert ledger["billed_by_key"] == {"k1": 1}
    assert ledger["billed_by_body"][hashlib.sha256(body).hexdigest()] == 1
    assert sum(ledger["billed_by_body"].values()) == 2
    job = ledger["jobs"][0]
    assert (job["id"], job["idempotency_key"], job["billed"], job["polls"], job["downloads"]) == (
        first,
        "k1",
        True,
        1,
        1,
    )
    assert job["engine"].startswith("plutoprint ")
    assert "jobs" not in sandbox.control("GET", "ledger?jobs=0")


@PROCESSES
def test_submissions_without_an_accepted_key_are_recorded_too(sandbox: SandboxProcess) -> None:
    body = {"html": "<p>x</p>"}
    assert call(sandbox, "POST", "/v1/pdf", body, key=None, headers={"Idempotency-Key": "k"}).status == 401
    assert call(sandbox, "POST", "/v1/pdf", body, key="pdf_live_wrong").status == 401
    first, second = sandbox.arrivals()
    assert (first["status"], first["outcome"], first["idempotency_key"]) == (401, "unauthorized", "k")
    assert second["account"] is None
    totals = sandbox.ledger()["totals"]
    assert (totals["received"], totals["unauthorized"], totals["refused"]) == (2, 2, 0)


@PROCESSES
def test_ignored_options_and_fields_are_listed_as_warnings(sandbox: SandboxProcess) -> None:
    job_id = submit(sandbox, metadata={"a": 1}, options={"headerTemplate": "<b>x</b>", "waitUntil": "load"}).json()[
        "id"
    ]
    sandbox.wait_for_jobs(1)
    warnings = call(sandbox, "GET", f"/v1/jobs/{job_id}").json()["warnings"]
    assert len(warnings) == 2
    assert "'metadata'" in warnings[0]
    assert "options.headerTemplate" in warnings[1]
    sandbox.configure(jobs={"unknown_fields": "refused"})
    assert submit(sandbox, metadata={"a": 1}).code == "invalid_request"


@PROCESSES
def test_arrivals_are_stamped_in_order_and_can_be_read_on(sandbox: SandboxProcess) -> None:
    for number in range(5):
        submit(sandbox, idempotency_key=f"k{number}")
    arrivals = sandbox.arrivals()
    stamps = [arrival["monotonic"] for arrival in arrivals]
    assert stamps == sorted(stamps)
    assert [arrival["idempotency_key"] for arrival in arrivals] == [f"k{number}" for number in range(5)]
    assert all(arrival["status"] == 202 and arrival["outcome"] == "accepted" for arrival in arrivals)
    rest = sandbox.control("GET", f"arrivals?after={arrivals[2]['seq']}")["arrivals"]
    assert rest == arrivals[3:]


@PROCESSES
def test_wallet_pays_for_just_as_many_jobs_as_it_can(sandbox: SandboxProcess) -> None:
    sandbox.fund(balance_microdollars=3 * 400 + 399)
    sandbox.configure(jobs={"min_seconds": 1000})
    assert [submit(sandbox).status for _ in range(5)] == [202, 202, 202, 402, 402]
    sandbox.advance_clock(1001)
    assert sandbox.wait_for_jobs(3)["totals"]["charged_microdollars"] == 1200
    assert submit(sandbox).code == "payment_required"
    sandbox.fund(add_microdollars=1)
    assert submit(sandbox).status == 202


@PROCESSES
def test_a_ceiling_refuses_or_caps_the_charge(sandbox: SandboxProcess) -> None:
    sandbox.configure(account={"price_per_second_microdollars": 10**9})
    name = "X-Relaypdf-Max-Charge-Microdollars"
    assert submit(sandbox, headers={name: "399"}).code == "invalid_request"
    assert submit(sandbox, headers={name: "a lot"}).code == "invalid_request"
    assert submit(sandbox, headers={name: "500"}).status == 202
    assert sandbox.wait_for_jobs(1)["totals"]["charged_microdollars"] == 500
    sandbox.configure(account={"ceiling_status": 402, "ceiling_code": "payment_required"})
    assert submit(sandbox, headers={name: "399"}).status == 402


@PROCESSES
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "sandbox.example.com"},
        {"Host": "127.0.0.1.example.com:8787"},
        {"Origin": "https://example.com"},
        {"Origin": "http://127.0.0.1:8000"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_controls_refuse_whoever_does_not_look_local(sandbox: SandboxProcess, headers: dict[str, str]) -> None:
    for method, name in (("GET", "ledger"), ("PUT", "config"), ("POST", "reset")):
        assert call(sandbox, method, f"/_sandbox/{name}", {}, headers=headers).status == 403


@PROCESSES
def test_controls_refuse_what_they_do_not_understand(sandbox: SandboxProcess) -> None:
    assert call(sandbox, "GET", "/_sandbox/nothing").status == 404
    for name, body in (
        ("config", {"jobs": {"min_secs": 1}}),
        ("config", {"faults": [{"do": "explode"}]}),
        ("wallet", {}),
        ("wallet", {"add_microdollars": 1, "balance_microdollars": 1}),
        ("wallet", {"add_microdollars": "1"}),
        ("clock", {"advance_seconds": -1}),
        ("clock", {}),
    ):
        assert call(sandbox, "POST", f"/_sandbox/{name}", body).code == "invalid_request"
    assert call(sandbox, "PUT", "/_sandbox/config", b"[1").code == "invalid_request"
    assert sandbox.control("GET", "config")["faults"] == []


@PROCESSES
def test_switches_change_at_once_and_go_back(sandbox: SandboxProcess) -> None:
    before = sandbox.control("GET", "config")
    assert sandbox.configure(jobs={"min_seconds": 7}, seed=3)["jobs"]["min_seconds"] == 7
    assert sandbox.control("PUT", "config", {"files.expired_answer": 410})["files"]["expired_answer"] == "410"
    assert sandbox.control("DELETE", "config") == before


# Switches as values


def test_switches_survive_their_own_json() -> None:
    patch = {"limits": {"windows": [[20, 60], [5, 10]]}, "faults": [{"do": "stuck"}], "seed": 4, "jobs.pages": 9}
    switches = changed(Switches(), patch)
    assert changed(Switches(), json.loads(json.dumps(as_json(switches)))) == switches
    assert switches.limits.windows == ((20, 60.0), (5, 10.0))
    assert differences(switches) == {
        "limits.windows": [[20, 60.0], [5, 10.0]],
        "faults": [{"do": "stuck"}],
        "seed": 4,
        "jobs.pages": 9,
    }
    assert differences(Switches()) == {}


@pytest.mark.parametrize(
    ("patch", "sentence"),
    [
        ({"moon": 1}, "there is no switch 'moon'"),
        ({"jobs": 1}, "must be an object"),
        ({"jobs.pages": 1.5}, "a whole number from 0 up"),
        ({"jobs.pages": True}, "a whole number from 0 up"),
        ({"files.ttl_seconds": "x"}, "a number from 0 up"),
        ({"account.suspended": 1}, "true or false"),
        ({"files.delete_reply": "maybe"}, "one of ok, 204"),
        ({"limits.windows": [[1]]}, "limits.windows[0]"),
        ({"account.api_keys": []}, "must be an object"),
        ({"jobs": {"min_seconds": 5, "max_seconds": 2}}, "must not be below"),
    ],
)
def test_bad_switches_are_named(patch: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadSwitch) as refused:
        changed(Switches(), patch)
    assert sentence in str(refused.value)


def test_assignments_hold_json_or_text() -> None:
    assert parse_assignment("jobs.min_seconds=1") == {"jobs.min_seconds": 1}
    assert parse_assignment("files.expired_answer=410") == {"files.expired_answer": 410}
    assert parse_assignment("idempotency.replay=same_id") == {"idempotency.replay": "same_id"}
    assert parse_assignment('faults=[{"do": "stuck"}]') == {"faults": [{"do": "stuck"}]}


# Addresses


@pytest.mark.parametrize(
    "url", ["https://example.com/a", "http://93.184.216.34/", "https://sub.example.co.uk:8443/x?y"]
)
def test_public_urls(url: str) -> None:
    assert targets.is_public_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost/",
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://10.0.0.5/",
        "http://192.168.1.1/",
        "http://169.254.169.254/",
        "http://2130706433/",
        "http://127.1/",
        "http://0x7f000001/",
        "http://intranet/",
        "http://printer.local/",
        "http://user@example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "http://[::1",
        "example.com",
        "",
    ],
)
def test_private_or_odd_urls(url: str) -> None:
    assert not targets.is_public_url(url)
