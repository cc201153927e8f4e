"""The account's own routes: what it is, what was billed, its limit per job, and its webhook endpoints."""

from __future__ import annotations

import json
import secrets
from typing import Any

from batches.sandbox import targets, wallet
from batches.sandbox.answers import Answer, ApiError, invalid, json_answer, not_found
from batches.sandbox.clock import iso
from batches.sandbox.deliveries import EVENTS
from batches.sandbox.service import Sandbox
from batches.sandbox.wire import Request

MAX_ENDPOINTS = 25
_RECEIPTS_SHOWN = 100


def show(sandbox: Sandbox, account: str) -> Answer:
    """`plan`, `rateTier`, `wallet` (A10). The unit of `balanceMillicents` is contradictory; see the README."""
    switches = sandbox.switches.account
    with sandbox.store.write() as tx:
        row = wallet.open_account(tx, account, switches)
    millicents = row["balance_microdollars"] * switches.millicents_per_dollar // 1_000_000
    return json_answer(
        {
            "plan": switches.plan,
            "rateTier": switches.rate_tier,
            "wallet": {"balanceMillicents": millicents, "autoReloadEnabled": False},
        }
    )


def usage(sandbox: Sandbox, account: str) -> Answer:
    """The latest receipts, newest first. The vendor's shape is not known; this one is ours."""
    rows = sandbox.store.all(
        "SELECT * FROM receipts WHERE account = ? ORDER BY id DESC LIMIT ?", account, _RECEIPTS_SHOWN
    )
    receipts = [
        {
            "id": f"rcpt_{row['id']}",
            "jobId": row["job_id"],
            "operation": "pdf",
            "amountMicrodollars": row["microdollars"],
            "createdAt": iso(row["at"]),
        }
        for row in rows
    ]
    return json_answer({"receipts": receipts})


def limits(sandbox: Sandbox, account: str) -> Answer:
    with sandbox.store.write() as tx:
        row = wallet.open_account(tx, account, sandbox.switches.account)
    return json_answer({"maxJobMicrodollars": row["max_job_microdollars"]})


def change_limits(sandbox: Sandbox, account: str, request: Request) -> Answer:
    fields = json_object(request.body)
    if set(fields) != {"maxJobMicrodollars"}:
        raise invalid("The body must hold 'maxJobMicrodollars' and nothing else.")
    value = fields["maxJobMicrodollars"]
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise invalid("'maxJobMicrodollars' must be a whole number from 0 up, or null.")
    with sandbox.store.write() as tx:
        wallet.open_account(tx, account, sandbox.switches.account)
        tx.execute("UPDATE accounts SET max_job_microdollars = ? WHERE name = ?", (value, account))
    return json_answer({"maxJobMicrodollars": value})


def create_endpoint(sandbox: Sandbox, account: str, request: Request) -> Answer:
    """A new webhook endpoint; its secret is shown this once."""
    fields = json_object(request.body)
    url, events = fields.get("url"), fields.get("events")
    loopback_http = sandbox.switches.webhooks.allow_loopback_http
    if not isinstance(url, str):
        raise invalid("'url' is needed.", field="url")
    if not targets.is_allowed_receiver(url, loopback_http=loopback_http):
        raise ApiError(400, "url_not_allowed", "A webhook endpoint must be an https URL.")
    if events is not None and (not isinstance(events, list) or not set(map(str, events)) <= set(EVENTS)):
        raise invalid(f"'events' must be a list of {', '.join(EVENTS)}.", field="events")
    endpoint_id, secret = f"wh_{secrets.token_hex(10)}", f"whsec_{secrets.token_urlsafe(24)}"
    with sandbox.store.write() as tx:
        (count,) = tx.execute(
            "SELECT count(*) FROM endpoints WHERE account = ? AND deleted_at IS NULL", (account,)
        ).fetchone()
        if count >= MAX_ENDPOINTS:
            raise invalid(f"An account may have {MAX_ENDPOINTS} webhook endpoints.")
        tx.execute(
            "INSERT INTO endpoints (id, account, url, secret, events, created_at) VALUES (?, ?, ?, ?, ?, ?)",
            (endpoint_id, account, url, secret, json.dumps(events) if events else None, sandbox.clock.now()),
        )
    content = {"id": endpoint_id, "url": url, "secret": secret, "secretPrefix": secret[:10]}
    return json_answer(content, status=sandbox.switches.webhooks.created_status)


def list_endpoints(sandbox: Sandbox, account: str) -> Answer:
    rows = sandbox.store.all("SELECT * FROM endpoints WHERE account = ? AND deleted_at IS NULL ORDER BY rowid", account)
    endpoints = [
        {
            "id": row["id"],
            "url": row["url"],
            "secretPrefix": row["secret"][:10],
            "events": json.loads(row["events"]) if row["events"] else list(EVENTS),
            "createdAt": iso(row["created_at"]),
        }
        for row in rows
    ]
    return json_answer({"endpoints": endpoints})


def delete_endpoint(sandbox: Sandbox, account: str, endpoint_id: str) -> Answer:
    with sandbox.store.write() as tx:
        gone = tx.execute(
            "UPDATE endpoints SET deleted_at = ? WHERE id = ? AND account = ? AND deleted_at IS NULL",
            (sandbox.clock.now(), endpoint_id, account),
        ).rowcount
        tx.execute(
            "UPDATE deliveries SET state = 'given_up', last_error = 'the endpoint was deleted'"
            " WHERE endpoint_id = ? AND state = 'pending'",
            (endpoint_id,),
        )
    if not gone:
        raise not_found(f"There is no webhook endpoint {endpoint_id[:60]!r}.")
    return json_answer({"ok": True})


def json_object(body: bytes) -> dict[str, Any]:
    """The body as a JSON object. Raises ApiError (400)."""
    try:
        fields = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise invalid("The request body is not valid JSON.") from error
    if not isinstance(fields, dict):
        raise invalid("The request body must be a JSON object.")
    return fields
