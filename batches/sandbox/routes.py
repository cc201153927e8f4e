"""Which path is answered by what, and who may ask. Turns errors into answers; lets nothing escape."""

from __future__ import annotations

import logging

from batches.sandbox import account, control, files, pdf_answers, spoiling, submission
from batches.sandbox.answers import Answer, ApiError, json_answer, not_found
from batches.sandbox.service import Sandbox
from batches.sandbox.wire import Request

logger = logging.getLogger(__name__)


def handle(sandbox: Sandbox, request: Request) -> Answer:
    """The answer to any request."""
    try:
        return _route(sandbox, request)
    except ApiError as error:
        return error.answer()
    except Exception:
        logger.exception("%s %s failed for a reason of the sandbox's own", request.method, request.path)
        return ApiError(500, "internal_error", "The sandbox itself failed; see its log.").answer()


def _route(sandbox: Sandbox, request: Request) -> Answer:
    method, path = request.method, request.path
    if path == "/health" and method in ("GET", "HEAD"):
        return json_answer({"ok": True, "service": "relaypdf-sandbox"})
    if path.startswith("/_sandbox/"):
        return control.control(sandbox, request)
    if path.startswith("/v1/files/") and method in ("GET", "HEAD"):
        return files.download(sandbox, path.removeprefix("/v1/files/"))
    if path.startswith("/v1/"):
        name = _account_of(sandbox, request)
        if name is not None:
            return _v1(sandbox, name, request)
        if (method, path) == ("POST", "/v1/pdf"):
            submission.record_stranger(sandbox, request)
        raise ApiError(401, "unauthorized", "The API key is missing or not recognised.")
    raise not_found(f"There is no route {path[:80]!r}.")


def _v1(sandbox: Sandbox, name: str, request: Request) -> Answer:
    collection, _, item = request.path.removeprefix("/v1/").partition("/")
    match request.method, collection, item:
        case "POST", "pdf", "":
            return submission.submit(sandbox, name, request)
        case "GET", "jobs", job_id if job_id:
            return _poll(sandbox, name, job_id, request)
        case "POST", "files", "":
            return files.upload(sandbox, name, request)
        case "DELETE", "files", file_id if file_id:
            return files.delete(sandbox, name, file_id)
        case "GET", "account", "":
            return account.show(sandbox, name)
        case "GET", "billing", "usage":
            return account.usage(sandbox, name)
        case "GET", "billing", "limits":
            return account.limits(sandbox, name)
        case "PATCH", "billing", "limits":
            return account.change_limits(sandbox, name, request)
        case "GET", "webhooks", "":
            return account.list_endpoints(sandbox, name)
        case "POST", "webhooks", "":
            return account.create_endpoint(sandbox, name, request)
        case "DELETE", "webhooks", endpoint_id if endpoint_id:
            return account.delete_endpoint(sandbox, name, endpoint_id)
    raise not_found(f"The sandbox does not offer {request.method} {request.path[:80]}.")


def _poll(sandbox: Sandbox, name: str, job_id: str, request: Request) -> Answer:
    """`GET /v1/jobs/{id}`; counted by the limiter only where that is switched on."""
    switches = sandbox.switches
    with sandbox.store.write() as tx:
        sandbox.store.count("polls")
        tx.execute("UPDATE jobs SET polls = polls + 1 WHERE id = ? AND account = ?", (job_id, name))
    if switches.limits.count_polls:
        sandbox.require_slot(name)
    job = sandbox.store.one("SELECT * FROM jobs WHERE id = ? AND account = ?", job_id, name)
    struck = sandbox.faults.at("poll", files.job_facts(job)) if sandbox.faults.watches("poll") else []
    sandbox.pause(spoiling.seconds(struck, "poll_slow"))
    if job is None:
        raise not_found(f"There is no job {job_id[:60]!r}.")
    answer = json_answer(pdf_answers.status(job, request.base_url, switches.jobs))
    return spoiling.polled(struck, answer, now=sandbox.clock.system_now())


def _account_of(sandbox: Sandbox, request: Request) -> str | None:
    """The account that the request's key opens, if any."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return sandbox.switches.account.api_keys.get(key.strip()) if scheme.lower() == "bearer" else None
