"""Money: what a job costs, whether the wallet covers it, and the charge itself. Whole microdollars.

The price is the vendor's of SDK 0.1.6 (A10): so much a job and so much a second, summed and rounded up once.
Charged on success only, in the transaction that completes the job, against a receipt that is unique per job.
"""

from __future__ import annotations

import math

from batches.sandbox.answers import ApiError
from batches.sandbox.store import Row, Transaction
from batches.sandbox.switches import AccountSwitches


class OutOfFunds(ApiError):
    """The wallet does not cover the next job: 402 `payment_required`."""


def price(seconds: float, switches: AccountSwitches) -> int:
    """The price of a job that kept the renderer busy for `seconds`."""
    return math.ceil(round(switches.price_per_job_microdollars + switches.price_per_second_microdollars * seconds, 3))


def open_account(tx: Transaction, account: str, switches: AccountSwitches) -> Row:
    """The account's row, made with the initial balance when it is new."""
    tx.execute(
        "INSERT OR IGNORE INTO accounts (name, balance_microdollars) VALUES (?, ?)",
        (account, switches.initial_microdollars),
    )
    row: Row = tx.execute("SELECT * FROM accounts WHERE name = ?", (account,)).fetchone()
    return row


def require_funds(tx: Transaction, account: str, switches: AccountSwitches, ceiling: int | None) -> int | None:
    """Check that the next job can be paid, and give the ceiling it must stay under.

    Jobs that are still running hold their base price, so that a nearly empty wallet is not promised twice.
    Raises ApiError: 402 `payment_required`, or the refusal for a ceiling below the base price.
    """
    row = open_account(tx, account, switches)
    limits = [limit for limit in (ceiling, row["max_job_microdollars"]) if limit is not None]
    lowest = min(limits, default=None)
    base = switches.price_per_job_microdollars
    if lowest is not None and lowest < base:
        raise ApiError(
            switches.ceiling_status,
            switches.ceiling_code,
            f"The job costs at least {base} microdollars, more than the limit of {lowest}.",
            details={"limitMicrodollars": lowest, "priceMicrodollars": base},
        )
    (held,) = tx.execute("SELECT count(*) FROM jobs WHERE status = 'processing' AND account = ?", (account,)).fetchone()
    if row["balance_microdollars"] < base * (held + 1) or row["balance_microdollars"] <= 0:
        raise OutOfFunds(402, "payment_required", "No prepaid funds are left. Top up the wallet to go on.")
    return lowest


def charge(tx: Transaction, job: Row, seconds: float, switches: AccountSwitches, *, now: float) -> int:
    """Bill `job` once. A second call for the same job raises sqlite3.IntegrityError and changes nothing."""
    amount = price(seconds, switches)
    if job["ceiling_microdollars"] is not None:
        amount = min(amount, job["ceiling_microdollars"])
    tx.execute(
        "INSERT INTO receipts (job_id, account, idempotency_key, body_sha256, microdollars, at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (job["id"], job["account"], job["idempotency_key"], job["body_sha256"], amount, now),
    )
    tx.execute(
        "UPDATE accounts SET balance_microdollars = balance_microdollars - ? WHERE name = ?",
        (amount, job["account"]),
    )
    return amount


def ran_empty(tx: Transaction, account: str) -> bool:
    """Mark the account as out of funds; True the first time since the last top-up."""
    return bool(
        tx.execute("UPDATE accounts SET out_of_funds = 1 WHERE name = ? AND out_of_funds = 0", (account,)).rowcount
    )
