"""Webhook deliveries: what arrives, signed how, in which order, how often, and what a switch changes."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from relaypdf import RelayPDF, verify_webhook

from tests.sandbox.calls import call, submit
from tests.sandbox.receiver import Received, Receiver
from tests.sandbox_process import SandboxProcess

pytestmark = pytest.mark.processes


@pytest.fixture
def secret(client: RelayPDF, receiver: Receiver) -> str:
    return str(client.webhooks.create(receiver.url)["secret"])


def is_genuine(secret: str, delivery: Received) -> bool:
    return bool(verify_webhook(secret, delivery.body.decode(), delivery.headers["relaypdf-signature"]))


def payload(delivery: Received) -> Any:
    return json.loads(delivery.body)


def settled(sandbox: SandboxProcess, count: int) -> list[dict[str, Any]]:
    """The sandbox's own record, once `count` deliveries are over."""
    deadline = time.monotonic() + 20
    while True:
        found = sandbox.deliveries()
        if sum(delivery["state"] != "pending" for delivery in found) >= count:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def test_events_of_success_and_failure(sandbox: SandboxProcess, secret: str, receiver: Receiver) -> None:
    good = submit(sandbox).json()["id"]
    receiver.wait_for(1)
    sandbox.configure(faults=[{"do": "fail", "code": "render_failed", "message": "No"}])
    bad = submit(sandbox).json()["id"]
    done, failed = receiver.wait_for(2)
    assert payload(done)["type"] == "job.completed"
    assert payload(done)["data"]["url"] == f"{sandbox.url}/v1/files/{good}"
    assert payload(failed)["type"] == failed.headers["relaypdf-event"] == "job.failed"
    assert payload(failed)["data"]["id"] == bad
    assert payload(failed)["data"]["error"] == {"code": "render_failed", "message": "No"}
    assert is_genuine(secret, done)
    assert is_genuine(secret, failed)


@pytest.mark.parametrize(
    ("switch", "path"),
    [("data.id", ("data", "id")), ("id", ("id",)), ("jobId", ("jobId",)), ("data.jobId", ("data", "jobId"))],
)
def test_place_of_the_job_id(
    sandbox: SandboxProcess, secret: str, receiver: Receiver, switch: str, path: tuple[str, ...]
) -> None:
    sandbox.configure(webhooks={"job_id_field": switch})
    job_id = submit(sandbox).json()["id"]
    found = payload(receiver.wait_for(1)[0])
    for name in path:
        found = found[name]
    assert found == job_id


def test_an_event_may_not_name_its_job_at_all(sandbox: SandboxProcess, secret: str, receiver: Receiver) -> None:
    sandbox.configure(webhooks={"job_id_field": "none"})
    job_id = submit(sandbox).json()["id"]
    assert job_id not in receiver.wait_for(1)[0].body.decode()


def test_endpoints_get_the_events_they_asked_for(client: RelayPDF, sandbox: SandboxProcess, receiver: Receiver) -> None:
    client.webhooks.create(f"{receiver.url}/failed", events=["job.failed"])
    client.webhooks.create(f"{receiver.url}/money", events=["wallet.topup", "wallet.payment_required"])
    sandbox.fund(balance_microdollars=0)
    assert [submit(sandbox).status for _ in range(2)] == [402, 402]
    receiver.wait_for(1)  # two events at once may come in either order
    sandbox.fund(add_microdollars=5000)
    submit(sandbox)
    sandbox.wait_for_jobs(1)
    seen = [(delivery.path, payload(delivery)["type"]) for delivery in receiver.wait_for(2)]
    # Told once, not with every refusal; and nobody asked for job.completed.
    assert seen == [("/money", "wallet.payment_required"), ("/money", "wallet.topup")]


def test_refused_deliveries_are_tried_again_and_then_given_up(
    sandbox: SandboxProcess, secret: str, receiver: Receiver
) -> None:
    receiver.answers = [500, 204]
    submit(sandbox)
    receiver.wait_for(2)
    (delivery,) = settled(sandbox, 1)
    assert (delivery["state"], delivery["attempts"], delivery["last_status"]) == ("delivered", 2, 204)
    receiver.answers = [500, 404, 503]
    submit(sandbox)
    receiver.wait_for(5)
    assert settled(sandbox, 2)[1]["state"] == "given_up"


def test_pending_deliveries_survive_kill(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> None:
    from tests.sandbox_process import start_sandbox

    own = start_sandbox(tmp_path_factory.mktemp("own"), faults=[{"do": "webhook_late", "seconds": 3000}])
    RelayPDF(own.api_key, base_url=own.url).webhooks.create(receiver.url)
    submit(own)
    own.wait_for_jobs(1)
    own.kill()
    own.restart()
    assert receiver.received == []
    own.advance_clock(3001)
    receiver.wait_for(1)
    own.stop()


def test_lost_and_late_webhooks(sandbox: SandboxProcess, secret: str, receiver: Receiver) -> None:
    sandbox.configure(
        faults=[
            {"when": {"body_contains": "LOST"}, "do": "webhook_lost"},
            {"when": {"body_contains": "LATE"}, "do": "webhook_late", "seconds": 400},
            {"when": {"body_contains": "STALE"}, "do": "webhook_late", "seconds": 400, "signed": "created"},
        ]
    )
    for word in ("LOST", "LATE", "STALE"):
        submit(sandbox, f"<p>{word}</p>")
    sandbox.wait_for_jobs(3)
    assert receiver.received == []
    sandbox.advance_clock(401)
    jobs = {job["id"]: job for job in sandbox.ledger()["jobs"]}
    late = receiver.wait_for(2)
    assert len(jobs) == 3
    # One is signed as it is sent, the other as of 400 s ago, which is past the receivers' 300 s.
    assert sorted(is_genuine(secret, delivery) for delivery in late) == [False, True]
    assert sorted(delivery["state"] for delivery in settled(sandbox, 3)) == ["delivered", "delivered", "lost"]


def test_duplicated_and_reserialised_webhooks(sandbox: SandboxProcess, secret: str, receiver: Receiver) -> None:
    sandbox.configure(faults=[{"do": "webhook_duplicate", "copies": 2, "seconds": 0.05, "reserialised": True}])
    submit(sandbox)
    deliveries = receiver.wait_for(3)
    assert len({delivery.body for delivery in deliveries}) == 2
    assert len({json.dumps(payload(delivery), sort_keys=True) for delivery in deliveries}) == 1
    assert all(is_genuine(secret, delivery) for delivery in deliveries)
    sandbox.configure(faults=[{"do": "webhook_reserialised"}])
    submit(sandbox)
    assert b"\n" in receiver.wait_for(4)[3].body


def test_reordered_webhooks(sandbox: SandboxProcess, secret: str, receiver: Receiver) -> None:
    sandbox.configure(faults=[{"when": {"body_contains": "FIRST"}, "do": "webhook_reordered", "seconds": 1000}])
    first = submit(sandbox, "<p>FIRST</p>").json()["id"]
    sandbox.wait_for_jobs(1)
    second = submit(sandbox, "<p>second</p>").json()["id"]
    assert [payload(delivery)["data"]["id"] for delivery in receiver.wait_for(2)] == [second, first]


def test_forged_webhooks(sandbox: SandboxProcess, secret: str, receiver: Receiver) -> None:
    sandbox.configure(faults=[{"do": "webhook_bad_signature"}])
    submit(sandbox)
    assert not is_genuine(secret, receiver.wait_for(1)[0])


def test_webhooks_may_be_off_or_for_async_only(sandbox: SandboxProcess, secret: str, receiver: Receiver) -> None:
    sandbox.configure(webhooks={"sync_modes": False})
    submit(sandbox, response="url")
    assert sandbox.deliveries() == []
    sandbox.configure(webhooks={"enabled": False})
    submit(sandbox)
    sandbox.wait_for_jobs(2)
    assert sandbox.deliveries() == []


def test_callback_url_is_called_unsigned_unless_switched(
    sandbox: SandboxProcess, secret: str, receiver: Receiver
) -> None:
    sandbox.configure(webhooks={"enabled": False})
    submit(sandbox, callbackUrl=f"{receiver.url}/callback")
    (callback,) = receiver.wait_for(1)
    assert callback.path == "/callback"
    assert "relaypdf-signature" not in callback.headers
    sandbox.configure(webhooks={"callback_signature": "first_endpoint"})
    submit(sandbox, callbackUrl=f"{receiver.url}/callback")
    assert is_genuine(secret, receiver.wait_for(2)[1])


def test_only_this_machine_is_ever_called(client: RelayPDF, sandbox: SandboxProcess) -> None:
    client.webhooks.create("https://example.com/hook")
    submit(sandbox)
    (delivery,) = settled(sandbox, 1)
    assert delivery["state"] == "given_up"
    assert "this machine only" in delivery["last_error"]


def test_plain_http_endpoints_can_be_refused_as_the_vendor_does(sandbox: SandboxProcess, receiver: Receiver) -> None:
    sandbox.configure(webhooks={"allow_loopback_http": False})
    assert call(sandbox, "POST", "/v1/webhooks", {"url": receiver.url}).code == "url_not_allowed"
    assert submit(sandbox, callbackUrl=receiver.url).code == "url_not_allowed"


@pytest.mark.parametrize(
    "fields",
    [{}, {"url": 7}, {"url": "https://example.com", "events": ["job.exploded"]}, {"url": "https://x", "events": "all"}],
)
def test_malformed_endpoints_are_refused(sandbox: SandboxProcess, fields: dict[str, Any]) -> None:
    assert call(sandbox, "POST", "/v1/webhooks", fields).code == "invalid_request"


def test_deleted_endpoints_get_nothing_more(client: RelayPDF, sandbox: SandboxProcess, receiver: Receiver) -> None:
    endpoint = client.webhooks.create(receiver.url)
    sandbox.configure(faults=[{"do": "webhook_late", "seconds": 1000}])
    submit(sandbox)
    sandbox.wait_for_jobs(1)
    client.webhooks.delete(endpoint["id"])
    (delivery,) = sandbox.deliveries()
    assert (delivery["state"], delivery["last_error"]) == ("given_up", "the endpoint was deleted")
