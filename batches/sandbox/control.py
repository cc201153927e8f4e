"""`/_sandbox/…`: reading the ledger and turning the switches, from this machine only.

No key is asked for, so the guard is where a request comes from: a loopback peer that names a loopback host, and
no web page (a page elsewhere could otherwise post here through the user's browser).
"""

from __future__ import annotations

from urllib.parse import parse_qs

from batches.sandbox import arrivals, ledger, targets, wallet
from batches.sandbox import switches as switch_rules
from batches.sandbox.account import json_object
from batches.sandbox.answers import Answer, ApiError, invalid, json_answer, not_found
from batches.sandbox.clock import iso
from batches.sandbox.service import Sandbox
from batches.sandbox.switches import BadSwitch
from batches.sandbox.wire import Request


def control(sandbox: Sandbox, request: Request) -> Answer:
    """Answer one control request. Raises ApiError: 403 from elsewhere, 404, 400."""
    _require_local(request)
    name = request.path.removeprefix("/_sandbox/")
    match request.method, name:
        case "GET", "ledger":
            short = parse_qs(request.query).get("jobs") == ["0"]
            return json_answer(ledger.ledger(sandbox.store, with_jobs=not short))
        case "GET", "arrivals":
            return json_answer({"arrivals": arrivals.listed(sandbox.store, after=_after(request))})
        case "GET", "deliveries":
            return json_answer({"deliveries": ledger.deliveries(sandbox.store)})
        case "GET", "config":
            return json_answer(switch_rules.as_json(sandbox.switches))
        case (("PUT" | "PATCH" | "POST"), "config"):
            return _configure(sandbox, request)
        case "DELETE", "config":
            return json_answer(switch_rules.as_json(sandbox.restore_switches()))
        case "POST", "wallet":
            return _fund(sandbox, request)
        case "POST", "reset":
            sandbox.reset()
            return json_answer({"ok": True})
        case "POST", "clock":
            return _advance(sandbox, request)
    raise not_found(
        "The control routes are GET ledger, arrivals, deliveries, config; PUT and DELETE config; "
        "POST wallet, reset, clock."
    )


def _require_local(request: Request) -> None:
    host = request.headers.get("host", "")
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    origin = request.headers.get("origin")
    if (
        not targets.is_loopback(request.peer)
        or not targets.is_loopback(name)
        or origin is not None
        or request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
    ):
        raise ApiError(403, "forbidden", "The sandbox's controls answer only to programs on the same machine.")


def _after(request: Request) -> int:
    raw = parse_qs(request.query).get("after", ["0"])[0]
    if not raw.isdigit():
        raise invalid("'after' must be the number of an arrival.")
    return int(raw)


def _configure(sandbox: Sandbox, request: Request) -> Answer:
    try:
        switches = sandbox.change_switches(json_object(request.body))
    except BadSwitch as error:
        raise invalid(f"{error}.") from error
    return json_answer(switch_rules.as_json(switches))


def _fund(sandbox: Sandbox, request: Request) -> Answer:
    """`{"add_microdollars": n}` or `{"balance_microdollars": n}`, for `account` (default "main")."""
    fields = json_object(request.body)
    account = fields.get("account", "main")
    added, balance = fields.get("add_microdollars"), fields.get("balance_microdollars")
    numbers = [value for value in (added, balance) if value is not None]
    if len(numbers) != 1 or not all(isinstance(v, int) and not isinstance(v, bool) for v in numbers):
        raise invalid("Give either 'add_microdollars' or 'balance_microdollars', a whole number.")
    if not isinstance(account, str):
        raise invalid("'account' must be the name of an account.")
    with sandbox.store.write() as tx:
        before = wallet.open_account(tx, account, sandbox.switches.account)["balance_microdollars"]
        new = before + added if added is not None else balance
        tx.execute("UPDATE accounts SET balance_microdollars = ?, out_of_funds = 0 WHERE name = ?", (new, account))
        if new > before:
            sandbox.deliveries.announce_wallet(tx, account, "wallet.topup")
    sandbox.deliveries.wake()
    return json_answer({"account": account, "balance_microdollars": new})


def _advance(sandbox: Sandbox, request: Request) -> Answer:
    seconds = json_object(request.body).get("advance_seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds < 0:
        raise invalid("Give 'advance_seconds', a number from 0 up: the clock only goes forward.")
    offset = sandbox.advance_clock(float(seconds))
    return json_answer({"offset_seconds": offset, "now": iso(sandbox.clock.now())})
