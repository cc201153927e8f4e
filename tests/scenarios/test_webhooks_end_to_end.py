"""Webhooks on the real road: the sandbox signs and sends, a web process stores, a running pump reads the status."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sandbox_process import start_sandbox
from tests.scenarios.stacks import environment, free_port, submitted
from tests.stack_process import Stack, eventually

LOST, DOUBLED, PLAIN, FORGED = "lost", "doubled", "plain", "forged"
#: Without an event a job is first read this long after its acceptance, less a fifth.
POLL_SECONDS = 20


def manifest(folder: Path, names: list[str]) -> Path:
    path = folder / "manifest.json"
    path.write_text(json.dumps([{"id": name, "html_content": f"<h1>{name}-document</h1>"} for name in names]))
    return path


@pytest.mark.processes
def test_an_event_has_its_job_read_once_whether_it_comes_twice_or_forged_or_never(
    make_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    names = [LOST, DOUBLED, PLAIN, FORGED]
    sandbox = start_sandbox(
        tmp_path,
        faults=[
            {"when": {"body_contains": f"{LOST}-document"}, "do": "webhook_lost"},
            {"when": {"body_contains": f"{FORGED}-document"}, "do": "webhook_bad_signature"},
            {"when": {"body_contains": f"{DOUBLED}-document"}, "do": "webhook_duplicate", "copies": 2},
        ],
        webhooks={"retry_seconds": [600]},
    )
    port = free_port()
    secret = sandbox.add_endpoint(f"http://127.0.0.1:{port}/webhooks/relaypdf")
    slow = {"RELAYPDF_POLL_INITIAL": str(POLL_SECONDS), "RELAYPDF_POLL_MAX": str(POLL_SECONDS)}
    stack = make_stack(
        workers=2,
        env=environment(sandbox, interval=0.1, RELAYPDF_WEBHOOK_SECRET=secret, **slow),
        command=("runstack", "--port", str(port), "--workers", "2"),
    )
    stack.bootstrap()
    stack.start()
    eventually(lambda: "ready at http://" in stack.log(), "the stack to be ready")
    submitted(stack, manifest(tmp_path, names))
    saved = "SELECT count(*) FROM batches_job WHERE state = 'saved'"
    eventually(lambda: stack.query(saved)[0][0] == len(names), f"all to be saved, in:\n{stack.log()}")

    jobs = sandbox.ledger()["jobs"]
    assert len(jobs) == len(names), "each is sent and billed once"
    rows = stack.query(
        "SELECT d.business_id, s.provider_job_id FROM batches_submission s JOIN batches_job j ON j.id = s.job_id"
        " JOIN batches_documentversion v ON v.id = j.version_id JOIN batches_document d ON d.id = v.document_id"
    )
    name_of = {job_id: name for name, job_id in rows}
    events = stack.query("SELECT provider_job_id, outcome FROM batches_webhookevent ORDER BY id")
    told = {name_of[job_id] for job_id, _outcome in events}
    assert told == {DOUBLED, PLAIN}, "what is lost or forged is not believed"
    assert {outcome for _job_id, outcome in events} <= {"woke", "ignored"}
    waits = "SELECT d.business_id, t.poll_count, t.total_seconds FROM batches_duration t"
    waits += " JOIN batches_job j ON j.id = t.job_id JOIN batches_documentversion v ON v.id = j.version_id"
    waits += " JOIN batches_document d ON d.id = v.document_id"
    read = {name: (polls, seconds) for name, polls, seconds in stack.query(waits)}
    for name in (DOUBLED, PLAIN):
        assert ("woke", name) in {(outcome, name_of[job_id]) for job_id, outcome in events}
    for name in (LOST, FORGED):
        assert read[name][0] == 1, "its end was seen by the read that was planned"
        assert read[name][1] >= POLL_SECONDS * 0.8
    states = [(name_of[str(each["job_id"])], each["last_status"]) for each in sandbox.deliveries()]
    assert (PLAIN, 204) in states
    assert states.count((DOUBLED, 204)) >= 2, "our answer to a copy is the same"
    assert (FORGED, 401) in states
    assert stack.stop() == 0
