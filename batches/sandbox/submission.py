"""`POST /v1/pdf`: from a submission to its answer.

Order: rate limit, faults before acceptance, the body, then key, wallet and acceptance in one transaction, faults
after acceptance, the answer.
"""

from __future__ import annotations

import hashlib
import json
import random
import secrets
from dataclasses import dataclass, replace

from batches.sandbox import answers, arrivals, files, idempotency, pdf_answers, source, spoiling, wallet
from batches.sandbox.answers import Answer, ApiError
from batches.sandbox.faults import Facts, Rule
from batches.sandbox.idempotency import KeyConflict, KeyRecord, Verdict
from batches.sandbox.service import Sandbox
from batches.sandbox.source import Submission
from batches.sandbox.store import Row, Transaction
from batches.sandbox.wallet import OutOfFunds
from batches.sandbox.wire import Request

# Refusals that a stored key may stand for; others (auth, money, limits) say nothing about the request itself.
_DEFINITE = frozenset({400, 404, 413})


@dataclass(frozen=True)
class _Caller:
    """Who sends what; `arrival` is its number in the record of arrivals."""

    account: str
    key: str | None
    ceiling: int | None
    body_sha256: str
    arrival: int


@dataclass(frozen=True)
class _Decision:
    """What a submission turned out to be, and the job that stands for it."""

    verdict: Verdict
    job: Row


def submit(sandbox: Sandbox, account: str, request: Request) -> Answer:
    """Answer one submission and record its arrival. Raises ApiError for a refusal."""
    key = request.headers.get("idempotency-key")
    body_sha256 = hashlib.sha256(request.body).hexdigest()
    number = arrivals.begin(sandbox.store, request.arrival, account=account, key=key, body_sha256=body_sha256)
    caller = _Caller(account, key, None, body_sha256, number)
    _see(sandbox, caller)
    struck: list[Rule] = []
    try:
        sandbox.require_slot(account)
        struck = sandbox.faults.at("submit", Facts(body=request.body, key=key))
        sandbox.pause(spoiling.seconds(struck, "slow_before_acceptance"))
        early = spoiling.before_acceptance(struck, now=sandbox.clock.system_now())
        if early is not None:
            _record(sandbox, caller, "fault", early)
            return early
        caller, submission = _checked(sandbox, caller, request)
        decision = _decide(sandbox, caller, submission, request.body, struck)
    except ApiError as error:
        _record_refusal(sandbox, caller, request.body, error)
        raise
    if decision.verdict is Verdict.NEW:
        sandbox.runner.enqueue(decision.job)
    return _answer(sandbox, caller, submission, decision, request, struck)


def record_stranger(sandbox: Sandbox, request: Request) -> None:
    """Record a submission that came without an accepted key."""
    body_sha256 = hashlib.sha256(request.body).hexdigest()
    key = request.headers.get("idempotency-key")
    number = arrivals.begin(sandbox.store, request.arrival, account=None, key=key, body_sha256=body_sha256)
    with sandbox.store.write() as tx:
        arrivals.decided(tx, number, "unauthorized", status=401, job_id=None)


def _checked(sandbox: Sandbox, caller: _Caller, request: Request) -> tuple[_Caller, Submission]:
    """The submission as far as it can be judged alone. The caller loses a key that is not honoured."""
    switches = sandbox.switches
    if switches.account.suspended:
        raise ApiError(403, "account_suspended", "This account is suspended from API use.")
    if caller.key is not None:
        idempotency.check_key(caller.key)
    caller = replace(caller, ceiling=_ceiling(request))
    submission = source.parse(request.body, switches)
    if caller.key is not None and submission.mode != "async":
        if switches.idempotency.sync_modes == "refused":
            raise answers.invalid("Idempotency-Key is supported with response=async only.")
        if switches.idempotency.sync_modes == "ignored":
            caller = replace(caller, key=None)
    return caller, submission


def _ceiling(request: Request) -> int | None:
    raw = request.headers.get("x-relaypdf-max-charge-microdollars")
    if raw is None:
        return None
    if not (raw.isascii() and raw.isdigit()):
        raise answers.invalid("X-RelayPDF-Max-Charge-Microdollars must be a whole number.")
    return int(raw)


def _decide(sandbox: Sandbox, caller: _Caller, submission: Submission, body: bytes, struck: list[Rule]) -> _Decision:
    """Find what the key stands for, or accept a new job: one transaction, so one key gives one job."""
    switches = sandbox.switches.idempotency
    digest = source.digest(body, switches.compare)
    now = sandbox.clock.now()
    with sandbox.store.write() as tx:
        record, job = _remembered(tx, caller, now=now)
        verdict = idempotency.judge(record, digest, switches, now=now)
        if verdict is Verdict.CONFLICT:
            raise KeyConflict(
                switches.conflict_status,
                switches.conflict_code,
                "This Idempotency-Key was used with another request body.",
            )
        if verdict is Verdict.STORED_REFUSAL:
            raise _stored_refusal(tx, caller)
        if verdict is Verdict.IN_FLIGHT and switches.in_flight == "refused":
            raise KeyConflict(
                switches.in_flight_status,
                switches.in_flight_code,
                "A request with this Idempotency-Key is still being processed.",
            )
        if verdict is Verdict.NEW:
            job = _accept(sandbox, tx, caller, submission, body, now=now)
            if caller.key is not None:
                slow = any(rule.action == "slow_after_acceptance" for rule in struck)
                answering = slow or submission.mode != "async"
                first_at = _first_at(sandbox, tx, caller, now=now)
                tx.execute(
                    "INSERT OR REPLACE INTO keys (account, key, digest, job_id, first_at, answering)"
                    " VALUES (?, ?, ?, ?, ?, ?)",
                    (caller.account, caller.key, digest, job["id"], first_at, answering),
                )
        assert job is not None
        outcome = "accepted" if verdict is Verdict.NEW else "replay"
        status = 202 if submission.mode == "async" else None
        arrivals.decided(tx, caller.arrival, outcome, status=status, job_id=job["id"])
    return _Decision(verdict, job)


def _first_at(sandbox: Sandbox, tx: Transaction, caller: _Caller, *, now: float) -> float:
    """Since when the key's retention runs: now, or since its first request, however that was answered."""
    switches = sandbox.switches.idempotency
    if switches.age_from == "acceptance":
        return now
    row = tx.execute("SELECT at FROM sights WHERE account = ? AND key = ?", (caller.account, caller.key)).fetchone()
    return float(row["at"]) if row else now


def _see(sandbox: Sandbox, caller: _Caller) -> None:
    """Remember when the key was seen first; past its retention it is new again."""
    switches, now = sandbox.switches.idempotency, sandbox.clock.now()
    if caller.key is None or switches.age_from == "acceptance":
        return
    with sandbox.store.write() as tx:
        tx.execute(
            "DELETE FROM sights WHERE account = ? AND key = ? AND at <= ?",
            (caller.account, caller.key, now - switches.retention_seconds),
        )
        tx.execute(
            "INSERT OR IGNORE INTO sights (account, key, at) VALUES (?, ?, ?)", (caller.account, caller.key, now)
        )


def _remembered(tx: Transaction, caller: _Caller, *, now: float) -> tuple[KeyRecord | None, Row | None]:
    if caller.key is None:
        return None, None
    row = tx.execute("SELECT * FROM keys WHERE account = ? AND key = ?", (caller.account, caller.key)).fetchone()
    if row is None:
        return None, None
    job = tx.execute("SELECT * FROM jobs WHERE id = ?", (row["job_id"],)).fetchone()
    gone = tx.execute(
        "SELECT 1 FROM files WHERE id = ? AND (deleted_at IS NOT NULL OR expires_at <= ?)", (row["job_id"], now)
    ).fetchone()
    record = KeyRecord(
        digest=row["digest"],
        first_at=row["first_at"],
        answering=bool(row["answering"]),
        refused=row["refusal"] is not None,
        job_status=job["status"] if job else None,
        file_gone=gone is not None,
    )
    return record, job


def _accept(
    sandbox: Sandbox, tx: Transaction, caller: _Caller, submission: Submission, body: bytes, *, now: float
) -> Row:
    """Store a new job. Raises ApiError when the wallet or a ceiling forbids it."""
    switches = sandbox.switches
    ceiling = wallet.require_funds(tx, caller.account, switches.account, caller.ceiling)
    job_id = f"pdf_{secrets.token_hex(12)}"
    plan = sandbox.faults.at("job", Facts(body=body, key=caller.key, mode=submission.mode))
    stuck = any(rule.action == "stuck" for rule in plan)
    failure = next((rule for rule in plan if rule.action == "fail"), None)
    least = switches.jobs.min_seconds
    dice = random.Random(f"{switches.seed}/{caller.body_sha256}")  # noqa: S311  # a duration, not a secret
    least += dice.random() * max(0.0, switches.jobs.max_seconds - least)
    least += sum(rule.number("seconds", 0) for rule in plan if rule.action in ("take", "fail"))
    planned = None
    if failure is not None:
        planned = json.dumps(
            {
                "code": failure.text("code", "render_failed"),
                "message": failure.text("message", "The document could not be rendered."),
            }
        )
    tx.execute(
        "INSERT INTO jobs (id, account, idempotency_key, body_sha256, body, mode, filename, callback_url,"
        " ceiling_microdollars, status, stuck, planned_failure, accepted_at, not_before, warnings)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'processing', ?, ?, ?, ?, ?)",
        (
            job_id,
            caller.account,
            caller.key,
            caller.body_sha256,
            body,
            submission.mode,
            pdf_answers.safe_filename(submission.filename),
            submission.callback_url,
            ceiling,
            stuck,
            planned,
            now,
            now + least,
            json.dumps(submission.warnings),
        ),
    )
    job: Row = tx.execute("SELECT * FROM jobs WHERE id = ?", (job_id,)).fetchone()
    return job


def _answer(
    sandbox: Sandbox,
    caller: _Caller,
    submission: Submission,
    decision: _Decision,
    request: Request,
    struck: list[Rule],
) -> Answer:
    """The answer to an accepted or recognised submission; its key counts as in flight until here."""
    try:
        sandbox.pause(spoiling.seconds(struck, "slow_after_acceptance"))
        answer = _plain_answer(sandbox, submission, decision, request)
    except ApiError as error:
        answer = error.answer()
    answer = spoiling.after_acceptance(struck, answer, now=sandbox.clock.system_now())
    planned = 202 if submission.mode == "async" else None
    status = None if answer.drop else answer.status
    settles_key = decision.verdict is Verdict.NEW and caller.key is not None
    if status != planned or (settles_key and submission.mode != "async") or struck:
        with sandbox.store.write() as tx:
            arrivals.answered(tx, caller.arrival, status)
            if settles_key:
                tx.execute("UPDATE keys SET answering = 0 WHERE account = ? AND key = ?", (caller.account, caller.key))
    return answer


def _plain_answer(sandbox: Sandbox, submission: Submission, decision: _Decision, request: Request) -> Answer:
    job = decision.job
    in_flight = decision.verdict is Verdict.IN_FLIGHT
    if submission.mode == "async" or in_flight:
        full = sandbox.switches.idempotency.replay == "completed_body"
        if decision.verdict is Verdict.REPLAY and full and job["status"] == "completed":
            return answers.json_answer(pdf_answers.completed(job, request.base_url))
        word = sandbox.switches.jobs.accepted_word
        return pdf_answers.accepted(job, request.base_url, word)
    finished = sandbox.runner.wait_until_finished(job["id"], sandbox.switches.jobs.sync_wait_seconds)
    if finished is None:
        raise ApiError(500, "internal_error", f"The job {job['id']} did not finish in time.")
    if finished["status"] == "failed":
        raise pdf_answers.failure(finished)
    if submission.mode == "url":
        return answers.json_answer(pdf_answers.completed(finished, request.base_url))
    return files.content(sandbox, finished["id"])


def _record(sandbox: Sandbox, caller: _Caller, outcome: str, answer: Answer) -> None:
    with sandbox.store.write() as tx:
        status = None if answer.drop else answer.status
        arrivals.decided(tx, caller.arrival, outcome, status=status, job_id=None)


def _record_refusal(sandbox: Sandbox, caller: _Caller, body: bytes, error: ApiError) -> None:
    """Record a refusal; bind the key to it where refusals are stored; tell an empty wallet's owner once."""
    switches = sandbox.switches.idempotency
    outcome = "rate_limited" if error.status == 429 else "refused"
    if isinstance(error, KeyConflict):
        outcome = "conflict"
    now = sandbox.clock.now()
    with sandbox.store.write() as tx:
        arrivals.decided(tx, caller.arrival, outcome, status=error.status, job_id=None)
        if caller.key is not None and switches.refusals == "stored" and error.status in _DEFINITE:
            refusal = json.dumps({"status": error.status, "code": error.code, "message": error.message})
            tx.execute(
                "DELETE FROM keys WHERE account = ? AND key = ? AND first_at <= ?",
                (caller.account, caller.key, now - switches.retention_seconds),
            )
            tx.execute(
                "INSERT OR IGNORE INTO keys (account, key, digest, first_at, answering, refusal)"
                " VALUES (?, ?, ?, ?, 0, ?)",
                (caller.account, caller.key, source.digest(body, switches.compare), now, refusal),
            )
        if isinstance(error, OutOfFunds) and wallet.ran_empty(tx, caller.account):
            sandbox.deliveries.announce_wallet(tx, caller.account, "wallet.payment_required")
    if isinstance(error, OutOfFunds):
        sandbox.deliveries.wake()


def _stored_refusal(tx: Transaction, caller: _Caller) -> ApiError:
    row = tx.execute("SELECT refusal FROM keys WHERE account = ? AND key = ?", (caller.account, caller.key)).fetchone()
    stored = json.loads(row["refusal"])
    return ApiError(stored["status"], stored["code"], stored["message"])
