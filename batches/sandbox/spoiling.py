"""What the fault rules do to an answer. Pure: struck rules and an answer in, another answer out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from batches.sandbox.answers import DROPPED, Answer, ApiError, html_page, retry_after_headers
from batches.sandbox.faults import Rule

_CODES = {
    400: "invalid_request",
    401: "unauthorized",
    402: "payment_required",
    403: "account_suspended",
    404: "not_found",
    409: "idempotency_conflict",
    413: "payload_too_large",
    429: "rate_limited",
    500: "internal_error",
    502: "render_failed",
    503: "convert_unavailable",
}

ERROR_PAGE = b"<!DOCTYPE html><html><head><title>Error</title></head><body><h1>Something went wrong</h1></body></html>"


def seconds(struck: Sequence[Rule], action: str, default: float = 2.0) -> float:
    """How long the rules with `action` hold things up, together; 0 without any."""
    return sum(rule.number("seconds", default) for rule in struck if rule.action == action)


def before_acceptance(struck: Sequence[Rule], *, now: float) -> Answer | None:
    """The answer that a submission gets instead of being looked at, if any."""
    for rule in struck:
        if rule.action == "drop_before_acceptance":
            return DROPPED
        if rule.action == "rate_limited":
            return error(rule, now, status=429)
        if rule.action == "error_before_acceptance":
            return error(rule, now, status=500)
        if rule.action == "html_502_before_acceptance":
            return html_page(int(rule.number("status", 502)))
    return None


def after_acceptance(struck: Sequence[Rule], answer: Answer, *, now: float) -> Answer:
    """`answer` to an accepted submission, as the rules leave it."""
    for rule in struck:
        if rule.action == "drop_after_acceptance":
            return DROPPED
        if rule.action == "error_after_acceptance":
            return error(rule, now, status=500)
        if rule.action == "html_502_after_acceptance":
            return html_page(int(rule.number("status", 502)))
        if rule.action == "answer_after_acceptance":
            answer = _reworded(rule, answer)
    return answer


def polled(struck: Sequence[Rule], answer: Answer, *, now: float) -> Answer:
    """The answer to a status read, as the rules leave it."""
    for rule in struck:
        if rule.action == "poll_drop":
            return DROPPED
        if rule.action == "poll_error":
            return error(rule, now, status=500)
        if rule.action == "poll_answer":
            answer = _reworded(rule, answer)
    return answer


def downloaded(struck: Sequence[Rule], answer: Answer, *, now: float) -> Answer:
    """The answer to a download, as the rules leave it. Expiry is not decided here."""
    for rule in struck:
        if rule.action == "download_drop":
            return DROPPED
        if rule.action == "download_error":
            return error(rule, now, status=500)
        if rule.action == "error_page":
            answer = Answer(
                status=int(rule.number("status", 200)),
                body=rule.text("body", ERROR_PAGE.decode()).encode(),
                content_type=rule.text("content_type", "text/html"),
            )
        if rule.action == "wrong_content_type":
            answer = replace(answer, content_type=rule.text("content_type", "application/octet-stream"))
        if rule.action == "truncated_file":
            answer = _truncated(rule, answer)
    return answer


def error(rule: Rule, now: float, *, status: int) -> Answer:
    """The vendor's error object with the rule's status, code and words; `Retry-After` where it is asked for."""
    status = int(rule.number("status", status))
    wait = rule.parameters.get("retry_after", 1 if status == 429 else None)
    form: Any = rule.text("form", "seconds")
    headers = retry_after_headers(float(wait), form, now=now) if wait is not None else ()
    code = rule.text("code", _CODES.get(status, "internal_error" if status >= 500 else "invalid_request"))
    message = rule.text("message", "This answer was switched on by a fault rule of the sandbox.")
    return ApiError(status, code, message, headers=headers).answer()


def _reworded(rule: Rule, answer: Answer) -> Answer:
    body = rule.parameters.get("body")
    if body is not None:
        answer = replace(answer, body=body.encode() if isinstance(body, str) else json.dumps(body).encode())
    omitted = rule.parameters.get("omit", [])
    if omitted and answer.content_type.startswith("application/json"):
        kept = {name: value for name, value in json.loads(answer.body).items() if name not in omitted}
        answer = replace(answer, body=json.dumps(kept).encode())
    return replace(
        answer,
        status=int(rule.number("status", answer.status)),
        content_type=rule.text("content_type", answer.content_type),
    )


def _truncated(rule: Rule, answer: Answer) -> Answer:
    """Cut the body; `content_length` "right" still promises the whole file, "wrong" claims the cut is all."""
    cut = answer.body[: int(len(answer.body) * min(rule.number("share", 0.5), 1.0))]
    promised = len(answer.body) if rule.text("content_length", "right") == "right" else None
    return replace(answer, body=cut, promised_length=promised)
