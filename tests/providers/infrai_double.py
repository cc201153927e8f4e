"""Infrai on a real socket, as far as its PDF calls go. Each thing that its documentation leaves open is a switch.

The facts are those that `batches/providers/infrai*.py` name by their tags; nothing of that code is used here.
Run it with `python -m tests.providers.infrai_double --port 0`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.providers import httpdouble
from tests.providers.httpdouble import Double, Process, Reply, Seen

API_KEY = "ifr_pk_proj_Q7rT2mVx81LkZp"
EXPIRED = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"


@dataclass
class Job:
    id: str
    key: str
    body: bytes
    file: bytes
    reads: int = 0


class InfraiDouble(Double):
    points = (
        ("POST", "/v1/pdf/generate", "submit"),
        ("GET", "/v1/pdf/job/get/", "poll"),
        ("GET", "/files/", "download"),
        ("GET", "/v1/account/balance", "account"),
        ("GET", "/v1/discovery/", "discovery"),
    )
    switches = {
        # B3: a job; or the result at once, as pdf_url, url, pdf_link (a link under pdf), pdf or bytes (base64).
        "generate": "job",
        # Whether an answer with the result names a job as well.
        "names_job": False,
        # B4: what a finished job's answer holds: url, pdf_url or pdf (base64); and the words on the way.
        "job_result": "url",
        "words": ["in_progress"],
        "last_word": "completed",
        # B1: false: without the envelope.
        "envelope": True,
        # B6: another body under one key: the first result, silently, or 409.
        "mismatch": "silent",
        "cache_hit": False,
        # B2: which of the two names is known; a body with the other is refused.
        "size_field": "page_size",
        "credit": True,
        "available": True,
        "params": {"html": "string", "url": "string", "page_size": "A4|Letter|Legal", "orientation": "string"},
        "errors": [{"code": "INSUFFICIENT_CREDIT", "retryable": False}, {"code": "VENDOR_BUSY", "retryable": True}],
    }
    HOSTILE = {
        "submit": (
            {"do": "drop", "effect": True},
            {"do": "drop"},
            {"do": "answer", "status": 503, "body": "<html>busy</html>", "effect": True},
            {"do": "answer", "status": 429, "headers": {"Retry-After": "1"}, "body": {"ok": False}},
            {"do": "answer", "status": 200, "body": "<html>Welcome</html>", "effect": True},
        ),
        "poll": (
            {"do": "drop"},
            {"do": "answer", "status": 500, "body": "oops"},
            {"do": "answer", "status": 200, "body": {"ok": True, "data": {"status": "polishing"}}},
            {"do": "answer", "status": 429, "headers": {"Retry-After": "1"}, "body": {"ok": False}},
        ),
        "download": (
            {"do": "truncate"},
            {"do": "drop"},
            {"do": "answer", "status": 403, "body": EXPIRED.decode(), "headers": {"Content-Type": "application/xml"}},
            {"do": "answer", "status": 503, "body": "busy"},
        ),
    }

    def account_fields(self) -> dict[str, Any]:
        return {"kind": "infrai", "base_url": self.url, "api_key": API_KEY, "options": {}}

    def document_of(self, request: Seen) -> str:
        return request.headers.get("Idempotency-Key", "") if request.point == "submit" else request.name

    def behave(self, request: Seen) -> Reply:
        if request.point == "download":
            return self.file(request)
        if request.point == "discovery":
            return self.discovery(request.name)
        if request.headers.get("Authorization") != f"Bearer {API_KEY}":
            return self.no(401, "UNAUTHENTICATED", "This key is not known.")
        match request.point:
            case "submit":
                with self.lock:
                    return self.generate(request)
            case "poll":
                return self.job(unquote(request.name))
            case "account":
                return self.yes({"balance_usd": 12.5, "currency": "USD"})
        return self.no(404, "NOT_FOUND", "There is no such route.")

    # --- answers -----------------------------------------------------------------------------------------------------

    def yes(self, data: dict[str, Any], **metadata: Any) -> Reply:
        if not self.set["envelope"]:
            return Reply(200, data)
        told = {"request_id": "0192f0c1-7a1e-7c3b-8d55-2f7f6f2b9c11", "vendor": "chromium-a", "latency_ms": 12}
        return Reply(200, {"ok": True, "data": data, "error": None, "metadata": told | metadata})

    def no(self, status: int, code: str, message: str) -> Reply:
        return Reply(status, {"ok": False, "data": None, "error": {"code": code, "message": message}, "metadata": {}})

    def generate(self, request: Seen) -> Reply:
        try:
            given = json.loads(request.body)
        except ValueError:
            return self.no(400, "BAD_BODY", "The body is no JSON.")
        key = request.headers.get("Idempotency-Key", "")
        other = {"page_size": "format", "format": "page_size"}[self.set["size_field"]]
        if given.get("idempotency_key") != key or not key:
            return self.no(400, "BAD_KEY", "Header and body name different keys.")
        if other in given:
            return self.no(400, "UNKNOWN_FIELD", f"{other} is no field of this call.")
        if str(given.get("url", "")).startswith("http://127."):
            return self.no(422, "PRIVATE_HOST", "That host is not public.")
        if not self.set["credit"]:
            return self.no(402, "INSUFFICIENT_CREDIT", "The wallet is empty.")
        job_id = f"job_{hashlib.sha256(key.encode()).hexdigest()[:20]}"
        known = self.jobs.get(job_id)
        if known is not None and known.body != request.body and self.set["mismatch"] == "409":
            return self.no(409, "IDEMPOTENCY_MISMATCH", "This key came with another body.")
        if known is None:
            text = httpdouble.shown_text(str(given.get("html") or given.get("url")))
            known = self.jobs[job_id] = Job(job_id, key, request.body, httpdouble.pdf(text))
            self.billed[key] += 1
            return self.yes(self.generated(known), cost_usd=0.0125, cache_hit=False)
        repeated = {"cost_usd": 0, "cache_hit": True} if self.set["cache_hit"] else {"cost_usd": 0.0125}
        return self.yes(self.generated(known), **repeated)

    def generated(self, job: Job) -> dict[str, Any]:
        form = self.set["generate"]
        named = {"job_id": job.id} if self.set["names_job"] or form == "job" else {}
        if form == "job":
            return named
        return named | self.result(job, form)

    def result(self, job: Job, form: str) -> dict[str, Any]:
        link = f"{self.url}/files/{job.id}.pdf?X-Signature=9f3b"
        inline = base64.b64encode(job.file).decode()
        forms: dict[str, dict[str, Any]] = {
            "pdf_url": {"pdf_url": link, "bytes": len(job.file), "pages": 1},
            "url": {"url": link},
            "pdf_link": {"pdf": link},
            "pdf": {"pdf": inline},
            "bytes": {"bytes": inline, "pages": 1},
        }
        return forms[form]

    def job(self, job_id: str) -> Reply:
        job = self.jobs.get(job_id)
        if job is None:
            return self.no(404, "JOB_NOT_FOUND", "There is no such job.")
        job.reads += 1
        if job.reads <= len(self.set["words"]):
            return self.yes({"job_id": job.id, "status": self.set["words"][job.reads - 1]})
        return self.yes({"job_id": job.id, "status": self.set["last_word"], **self.result(job, self.set["job_result"])})

    def file(self, request: Seen) -> Reply:
        """Presigned links of object storage refuse a second way to prove who asks."""
        name = request.path.partition("?")[0].removeprefix("/files/").removesuffix(".pdf")
        job = self.jobs.get(name)
        if "Authorization" in request.headers:
            return Reply(400, b"<Error><Code>InvalidArgument</Code></Error>", {"Content-Type": "application/xml"})
        if job is None or "X-Signature=9f3b" not in request.path:
            return Reply(403, EXPIRED, {"Content-Type": "application/xml"})
        return Reply(200, job.file, {"Content-Type": "application/pdf"})

    def discovery(self, name: str) -> Reply:
        """Bare (B8: CONFIRMED IV)."""
        if name != "pdf.generate":
            return Reply(404, {"error": "no such capability"})
        return Reply(
            200,
            {
                "id": name,
                "method": "POST",
                "path": "/v1/pdf/generate",
                "available": self.set["available"],
                "params": self.set["params"],
                "errors": self.set["errors"],
                "billing": {"is_billable": True, "unit": "document", "price_usd": 0.0125, "currency": "USD"},
            },
        )


def start(folder: Path, **switches: Any) -> Process:
    """Infrai as a process of its own."""
    return httpdouble.start_process(__name__, folder, switches)


if __name__ == "__main__":
    httpdouble.run(InfraiDouble)
