"""Webhooks and callbacks: stored with the news they carry, signed when they are sent, retried on a schedule.

A delivery is a row, so a restart loses none. Only this machine is ever called: the sandbox has no business on
the network, so deliveries to other hosts are recorded as given up.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import logging
import secrets
import ssl
import threading
from collections.abc import Callable
from typing import Any

from batches.sandbox import targets
from batches.sandbox.clock import Clock, iso
from batches.sandbox.faults import Facts, Faults, Rule
from batches.sandbox.store import Row, Store, Transaction
from batches.sandbox.switches import Switches, WebhookSwitches

logger = logging.getLogger(__name__)

EVENTS = (
    "job.completed",
    "job.failed",
    "wallet.topup",
    "wallet.auto_reload",
    "wallet.auto_reload_failed",
    "wallet.payment_required",
)
SENDERS = 4
_AFTER_THE_NEXT_SECONDS = 0.3


class Deliveries:
    """Sends what is due, on a few threads. `announce_*` store deliveries inside the caller's transaction."""

    def __init__(
        self, store: Store, clock: Clock, faults: Faults, switches: Callable[[], Switches], base_url: Callable[[], str]
    ) -> None:
        self._store = store
        self._clock = clock
        self._faults = faults
        self._switches = switches
        self._base_url = base_url
        self._changed = threading.Condition()
        self._sending: set[int] = set()
        self._stopping = False
        clock.on_advance(self.wake)

    def start(self) -> None:
        for _ in range(SENDERS):
            threading.Thread(target=self._loop, daemon=True).start()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def announce_job(self, tx: Transaction, job: Row) -> None:
        """Store the news that `job` has ended, for the endpoints and for its own callback."""
        switches = self._switches().webhooks
        event = "job.completed" if job["status"] == "completed" else "job.failed"
        content = job_event(event, job, self._base_url(), switches)
        if switches.enabled and (job["mode"] == "async" or switches.sync_modes):
            self._announce(tx, job["account"], event, content, job)
        if job["callback_url"] is not None:
            secret = None
            if switches.callback_signature == "first_endpoint":
                row = tx.execute(
                    "SELECT secret FROM endpoints WHERE account = ? AND deleted_at IS NULL ORDER BY rowid",
                    (job["account"],),
                ).fetchone()
                secret = row["secret"] if row else None
            self._insert(tx, job["account"], None, job["callback_url"], secret, event, job, content)

    def announce_wallet(self, tx: Transaction, account: str, event: str) -> None:
        """Store the news of a wallet event."""
        if self._switches().webhooks.enabled:
            self._announce(tx, account, event, {"type": event, "data": {}}, None)

    def _announce(self, tx: Transaction, account: str, event: str, content: Any, job: Row | None) -> None:
        for row in tx.execute(
            "SELECT * FROM endpoints WHERE account = ? AND deleted_at IS NULL", (account,)
        ).fetchall():
            if row["events"] is None or event in json.loads(row["events"]):
                self._insert(tx, account, row["id"], row["url"], row["secret"], event, job, content)

    def _insert(
        self,
        tx: Transaction,
        account: str,
        endpoint_id: str | None,
        url: str,
        secret: str | None,
        event: str,
        job: Row | None,
        content: Any,
    ) -> None:
        now = self._clock.now()
        # Whoever waits for the next event of this endpoint goes right after this one.
        tx.execute(
            "UPDATE deliveries SET due_at = ?, waits_for_next = 0 WHERE waits_for_next = 1 AND url = ?",
            (now + _AFTER_THE_NEXT_SECONDS, url),
        )
        struck = self._faults.at("webhook", _facts(job, event)) if self._faults.watches("webhook") else []
        for plan in _plans(struck):
            body = json.dumps(content, indent=2, sort_keys=True) if plan["reserialised"] else json.dumps(content)
            tx.execute(
                "INSERT INTO deliveries (account, endpoint_id, url, secret, event, job_id, body, state, due_at,"
                " waits_for_next, signed_seconds_ago, spoil_signature, created_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    account,
                    endpoint_id,
                    url,
                    secret,
                    event,
                    job["id"] if job else None,
                    body.encode(),
                    "lost" if plan["lost"] else "pending",
                    now + plan["seconds"],
                    plan["waits_for_next"],
                    plan["signed_seconds_ago"],
                    plan["spoil_signature"],
                    now,
                ),
            )

    def _loop(self) -> None:
        while True:
            row = self._next_due()
            if row is None:
                return
            try:
                self._send(row)
            except Exception:
                logger.exception("Delivery %s failed for a reason of the sandbox's own", row["id"])
                self._settle(row, status=None, error="internal error of the sandbox")
            finally:
                with self._changed:
                    self._sending.discard(row["id"])

    def _next_due(self) -> Row | None:
        """The next delivery whose time has come, reserved for the calling thread; None at the end."""
        with self._changed:
            while not self._stopping:
                busy = ",".join(str(number) for number in self._sending) or "0"
                row = self._store.one(
                    f"SELECT * FROM deliveries WHERE state = 'pending' AND id NOT IN ({busy})"  # noqa: S608  # numbers
                    " ORDER BY due_at, id LIMIT 1"
                )
                wait = row["due_at"] - self._clock.now() if row is not None else None
                if row is not None and wait is not None and wait <= 0:
                    self._sending.add(row["id"])
                    return row
                self._changed.wait(wait)
        return None

    def _send(self, row: Row) -> None:
        parts = targets.split(row["url"])
        if parts is None or parts.hostname is None or not targets.is_loopback(parts.hostname):
            self._settle(row, status=None, error="not sent: the sandbox calls this machine only", final=True)
            return
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "relaypdf-sandbox-webhooks",
            "RelayPDF-Event": row["event"],
        }
        if row["secret"] is not None:
            stamp = int(self._clock.system_now() - row["signed_seconds_ago"])
            secret = secrets.token_hex(16) if row["spoil_signature"] else row["secret"]
            headers["RelayPDF-Signature"] = signature(secret, row["body"], stamp)
        timeout = self._switches().webhooks.timeout_seconds
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=timeout, context=ssl.create_default_context()
            )
        else:
            connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
        try:
            connection.request("POST", target, row["body"], headers)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            self._settle(row, status=None, error=f"{type(error).__name__}: {error}"[:300])
        else:
            self._settle(row, status=status, error=None)
        finally:
            connection.close()

    def _settle(self, row: Row, *, status: int | None, error: str | None, final: bool = False) -> None:
        """Note the outcome; anything but 2xx is tried again until the schedule is used up."""
        attempts = row["attempts"] + 1
        schedule = self._switches().webhooks.retry_seconds
        state, due_at = "pending", row["due_at"]
        if status is not None and 200 <= status < 300:
            state = "delivered"
        elif final or attempts > len(schedule):
            state = "given_up"
        else:
            due_at = self._clock.now() + schedule[attempts - 1]
        with self._store.write() as tx:
            tx.execute(
                "UPDATE deliveries SET state = ?, due_at = ?, attempts = ?, last_status = ?, last_error = ?"
                " WHERE id = ?",
                (state, due_at, attempts, status, error, row["id"]),
            )


def signature(secret: str, body: bytes, stamp: int) -> str:
    """`t=<unix seconds>,v1=<hex HMAC-SHA256 of "<t>.<raw body>">`; the secret's text is the key (A8)."""
    digest = hmac.new(secret.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={stamp},v1={digest}"


def job_event(event: str, job: Row, base_url: str, switches: WebhookSwitches) -> dict[str, Any]:
    """The body of a job's event. Only `type` is documented; where the job's id stands is a switch."""
    data: dict[str, Any] = {"status": job["status"]}
    if job["status"] == "completed":
        data["url"] = f"{base_url}/v1/files/{job['id']}"
        data["filename"] = job["filename"]
        data["sizeBytes"] = job["size_bytes"]
        data["expiresAt"] = iso(job["expires_at"])
    else:
        data["error"] = {"code": job["error_code"], "message": job["error_message"]}
    content: dict[str, Any] = {"type": event, "data": data}
    if switches.event_id:
        content["id"] = f"evt_{secrets.token_hex(10)}"
    match switches.job_id_field:
        case "data.id":
            data["id"] = job["id"]
        case "data.jobId":
            data["jobId"] = job["id"]
        case "id" | "jobId" as name:
            content[name] = job["id"]
        case "none":
            # Without any id the link would still give it away.
            data.pop("url", None)
    return content


def _facts(job: Row | None, event: str) -> Facts:
    if job is None:
        return Facts(event=event)
    return Facts(body=job["body"] or b"", key=job["idempotency_key"], job_id=job["id"], event=event, mode=job["mode"])


def _plans(struck: list[Rule]) -> list[dict[str, Any]]:
    """One plan per delivery of an event: when, signed as of when, spoiled how."""
    plan: dict[str, Any] = {
        "seconds": 0.0,
        "waits_for_next": False,
        "signed_seconds_ago": 0.0,
        "spoil_signature": False,
        "reserialised": False,
        "lost": False,
    }
    copies: list[dict[str, Any]] = []
    for rule in struck:
        if rule.action == "webhook_lost":
            plan["lost"] = True
        elif rule.action == "webhook_late":
            plan["seconds"] += rule.number("seconds", 5)
            if rule.text("signed", "sent") == "created":
                plan["signed_seconds_ago"] = rule.number("seconds", 5)
        elif rule.action == "webhook_reordered":
            plan["seconds"] += rule.number("seconds", 5)
            plan["waits_for_next"] = True
        elif rule.action == "webhook_reserialised":
            plan["reserialised"] = True
        elif rule.action == "webhook_bad_signature":
            plan["spoil_signature"] = True
        elif rule.action == "webhook_duplicate":
            again = {
                "seconds": rule.number("seconds", 0.2),
                "reserialised": bool(rule.parameters.get("reserialised", False)),
            }
            copies += [again] * int(rule.number("copies", 1))
    return [plan, *({**plan, **again} for again in copies)]
