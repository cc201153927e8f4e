"""State over stops and crashes: what was accepted is rendered, billed once and still known after kill -9."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from relaypdf import RelayPDF

from tests.sandbox.calls import call, submit
from tests.sandbox_process import PROJECT_ROOT, SandboxProcess, start_sandbox

pytestmark = pytest.mark.processes


@pytest.fixture
def own_sandbox(tmp_path: Path) -> SandboxProcess:
    return start_sandbox(tmp_path, jobs={"min_seconds": 0.3}, idempotency={"in_flight": "refused"})


def test_jobs_survive_kill_and_are_billed_once(own_sandbox: SandboxProcess) -> None:
    sandbox = own_sandbox
    ids = [submit(sandbox, f"<p>Invoice {n}</p>", idempotency_key=f"k{n}").json()["id"] for n in range(12)]
    sandbox.kill()
    sandbox.restart()
    # Killed again in the middle of the second try.
    sandbox.wait_for_jobs(1)
    sandbox.kill()
    sandbox.restart()
    ledger = sandbox.wait_for_jobs(12)
    assert ledger["billed_by_key"] == {f"k{n}": 1 for n in range(12)}
    assert ledger["totals"]["charged_microdollars"] == sum(job["charged_microdollars"] for job in ledger["jobs"])
    again = [submit(sandbox, f"<p>Invoice {n}</p>", idempotency_key=f"k{n}").json()["id"] for n in range(12)]
    assert again == ids
    client = RelayPDF(sandbox.api_key, base_url=sandbox.url)
    assert all(client.files.download(job_id).bytes.startswith(b"%PDF-") for job_id in ids)
    sandbox.stop()


def test_money_switches_clock_and_counters_survive_kill(own_sandbox: SandboxProcess) -> None:
    sandbox = own_sandbox
    sandbox.fund(balance_microdollars=5000)
    sandbox.configure(
        jobs={"min_seconds": 0, "waiting_word": "queued"},
        faults=[{"when": {"nth": 3}, "do": "error_before_acceptance", "status": 500}],
    )
    assert [submit(sandbox).status for _ in range(2)] == [202, 202]
    sandbox.wait_for_jobs(2)
    sandbox.advance_clock(90_000)
    before = sandbox.ledger()
    sandbox.kill()
    sandbox.restart()
    assert sandbox.ledger() == before
    # The third submission since the rule was set, though the first of this process.
    assert [submit(sandbox).status for _ in range(2)] == [500, 202]
    jobs = sandbox.control("GET", "config")["jobs"]
    # What the start says again is in force again; what was only changed while it ran is remembered.
    assert (jobs["min_seconds"], jobs["waiting_word"]) == (0.3, "queued")
    file_id = before["jobs"][0]["id"]
    assert call(sandbox, "GET", f"/v1/files/{file_id}").status == 404
    sandbox.stop()


def test_stopping_in_the_middle_of_a_render_fails_no_job(tmp_path: Path) -> None:
    sandbox = start_sandbox(tmp_path)
    table = "<table>" + "<tr><td>cell</td><td>cell</td></tr>" * 4_000 + "</table>"
    ids = [submit(sandbox, table + str(number)).json()["id"] for number in range(3)]
    sandbox.stop()
    sandbox.restart()
    ledger = sandbox.wait_for_jobs(3, timeout=60)
    assert [job["id"] for job in ledger["jobs"]] == ids
    assert ledger["totals"]["jobs_failed"] == 0
    sandbox.stop()
    assert "Traceback" not in sandbox.log()


def test_no_file_of_the_state_is_called_pdf(own_sandbox: SandboxProcess) -> None:
    submit(own_sandbox, filename="invoice.pdf")
    own_sandbox.wait_for_jobs(1)
    own_sandbox.stop()
    names = [path.name for path in own_sandbox.data_dir.rglob("*")]
    assert any(name.endswith(".bin") for name in names)
    assert not [name for name in names if ".pdf" in name]


def test_answer_that_was_being_held_back_is_a_replay_after_kill(own_sandbox: SandboxProcess) -> None:
    sandbox = own_sandbox
    sandbox.configure(faults=[{"do": "drop_after_acceptance"}])
    with pytest.raises(ConnectionError):
        submit(sandbox, idempotency_key="k")
    sandbox.kill()
    sandbox.restart()
    sandbox.configure(faults=[])
    assert submit(sandbox, idempotency_key="k").status == 202
    assert sandbox.wait_for_jobs(1)["billed_by_key"] == {"k": 1}
    sandbox.stop()


def test_a_second_sandbox_on_the_same_state_is_refused(own_sandbox: SandboxProcess) -> None:
    second = _start_by_hand("--port", "0", "--data-dir", str(own_sandbox.data_dir))
    assert second.returncode == 2
    assert "another sandbox is using" in second.stderr
    own_sandbox.stop()


def test_a_taken_port_is_refused_with_a_sentence(own_sandbox: SandboxProcess, tmp_path: Path) -> None:
    port = own_sandbox.url.rpartition(":")[2]
    second = _start_by_hand("--port", port, "--data-dir", str(tmp_path / "other"))
    assert second.returncode == 2
    assert "Choose another --port" in second.stderr
    own_sandbox.stop()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--set", "jobs.min_secs=1"], "there is no switch 'jobs.min_secs'"),
        (["--set", "jobs.min_seconds"], "--set takes key=value"),
        (["--set", "jobs.min_seconds=-1"], "must be a number from 0 up"),
        (["--config", "nowhere.json"], "can't be read as JSON"),
        (["--set", 'faults=[{"do": "explode"}]'], "faults[0].do must be one of"),
    ],
)
def test_bad_arguments_are_refused_with_a_sentence(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    refused = _start_by_hand("--port", "0", "--data-dir", str(tmp_path / "x"), *arguments)
    assert refused.returncode == 2
    assert sentence in refused.stderr
    assert "Traceback" not in refused.stderr


def test_an_unknown_engine_is_refused_with_a_sentence(tmp_path: Path) -> None:
    refused = _start_by_hand("--port", "0", "--data-dir", str(tmp_path / "x"), SANDBOX_ENGINE="wkhtmltopdf")
    assert refused.returncode == 2
    assert "SANDBOX_ENGINE" in refused.stderr


def _start_by_hand(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "batches.sandbox", *arguments],
        cwd=PROJECT_ROOT,
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
