"""What DocRaptor does, as far as its documents say, without an address: see `docraptor_double.py`.

Submitting as a file, asynchronously and hosted; status, downloads that work a few times, expiry, both lists, callbacks
on success. What the vendor leaves open is a switch, named in `Switches`.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
import threading
import time
import urllib.request
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode, urlsplit

#: Works for everybody, for test documents only.
TEST_KEY = "YOUR_API_KEY_HERE"
NAME_MOST = 200
JSON, XML, PDF = "application/json", "application/xml", "application/pdf"


@dataclass
class Switches:
    """What the vendor leaves open, or what an account has its own way. Seconds; counts."""

    render_seconds: float = 0.0
    most_at_once: int = 30
    download_uses: int = 5
    test_default: bool = True  # what leaving `test` out means: the specification and an old client differ
    used_up_status: int = 400  # what a link answers that was used too often
    expired_status: int = 404  # what a hosted address answers once it has expired
    log_lists_queued: bool = True  # whether the list of attempts shows a job before its end
    log_shows_ids: bool = False  # whether its lines name the status id
    log_heeds_bounds: bool = True
    log_wraps_lines: bool = False
    log_heeds_pages: bool = True
    callback_form: bool = False  # a form instead of JSON
    callback_times: int = 1
    callback_is_early: bool = False  # it comes before the answer to the submission


@dataclass
class Job:
    """One attempt. `file` is there once it is completed and until it has expired."""

    number: int
    status_id: str
    body: dict[str, Any]
    made_at: float
    is_test: bool
    is_async: bool
    is_hosted: bool
    status: str = "queued"
    message: str = ""
    download_id: str = ""
    uses: int = 0
    file: bytes | None = None

    @property
    def reference(self) -> str:
        return str(self.body.get("tag") or self.body.get("name"))


@dataclass
class Reply:
    status: int
    content: bytes = b""
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)


class Service:
    """One account's service. `url` is where it is reached."""

    url = ""

    def __init__(self, **switches: Any) -> None:
        self.switches = Switches(**switches)
        self.jobs: dict[str, Job] = {}
        self.callbacks: list[int] = []  # what the addresses answered; 0 where none did
        self.failing: deque[str] = deque()  # why the next jobs fail
        self.lock = threading.RLock()

    def ledger(self) -> dict[str, Any]:
        """Jobs that were accepted, and how often each reference was billed: test documents are free."""
        with self.lock:
            billed = Counter(job.reference for job in self.jobs.values() if not job.is_test)
            return {"accepted": len(self.jobs), "billed": dict(billed)}

    def submit(self, body: bytes, *, is_async: bool, is_hosted: bool, with_test_key: bool) -> Reply:
        try:
            told = json.loads(body)
            told = told.get("doc", told) if isinstance(told, dict) else None
        except ValueError:
            told = None
        if not isinstance(told, dict):
            return Reply(400, errors("The request could not be read."), XML)
        problem = _problem_of(told)
        if problem:
            return Reply(422, errors(problem), XML)
        is_test = bool(told.get("test", self.switches.test_default))
        if with_test_key and not is_test:
            return Reply(401, errors("This key makes test documents only."), XML)
        with self.lock:
            if sum(job.status in ("queued", "working") for job in self.jobs.values()) >= self.switches.most_at_once:
                return Reply(403, errors("Too many simultaneous documents."), XML)
            job = self._made(told, is_test=is_test, is_async=is_async or bool(told.get("async")), is_hosted=is_hosted)
        if not job.is_async:
            self.finish(job)
            if job.status == "failed":
                return Reply(422, errors(job.message), XML)
            return self.status(job.status_id) if is_hosted else Reply(200, job.file or b"", PDF)
        if self.switches.render_seconds:
            threading.Timer(self.switches.render_seconds, self.finish, [job]).start()
        elif self.switches.callback_is_early:
            self.finish(job)
        else:
            threading.Timer(0.01, self.finish, [job]).start()
        return Reply(200, json.dumps({"status_id": job.status_id}).encode())

    def _made(self, told: dict[str, Any], **kind: bool) -> Job:
        number = len(self.jobs) + 1
        names = [hashlib.sha256(f"{word} {number}".encode()).hexdigest()[:32] for word in ("status", "download")]
        job = Job(number, names[0], told, time.time(), download_id=names[1], **kind)
        self.jobs[job.status_id] = job
        return job

    def finish(self, job: Job) -> None:
        """Completed, or failed; then, and only of what is completed, the callback."""
        with self.lock:
            if job.status not in ("queued", "working"):
                return
            failure = self.failing.popleft() if self.failing else ""
            if len(str(job.body.get("name"))) > NAME_MOST:
                failure = f"Name is too long (maximum is {NAME_MOST} characters)"
            job.status, job.message = ("failed", failure) if failure else ("completed", "")
            job.file = None if failure else rendered(job.body, is_test=job.is_test)
        address = job.body.get("callback_url")
        if address and job.is_async and not failure:
            told = json.loads(self.status(job.status_id).content)
            for _ in range(self.switches.callback_times):
                self.callbacks.append(_post(address, told, as_form=self.switches.callback_form))

    def status(self, status_id: str) -> Reply:
        job = self.jobs.get(status_id)
        if job is None:
            return Reply(404, errors("There is no such document."), XML)
        told: dict[str, Any] = {"status": job.status}
        if job.status == "completed":
            place = "hosted" if job.is_hosted else "download"
            told |= {
                "download_url": f"{self.url}/{place}/{job.download_id}",
                "download_id": job.download_id,
                "number_of_pages": 1,
            }
        if job.status == "failed":
            told |= {"message": job.message, "validation_errors": f"Name: {job.message}"}
        return Reply(200, json.dumps(told).encode())

    def download(self, download_id: str, *, is_hosted: bool) -> Reply:
        with self.lock:
            job = next((job for job in self.jobs.values() if job.download_id == download_id), None)
            if job is None or job.is_hosted != is_hosted:
                return Reply(404, errors("There is no such download."), XML)
            if job.file is None:
                return Reply(self.switches.expired_status if is_hosted else 400, errors("Not available."), XML)
            job.uses += 1
            most = job.body.get("hosted_download_limit") if is_hosted else self.switches.download_uses
            if most and job.uses > int(most):
                return Reply(self.switches.used_up_status, errors("This link was used too often."), XML)
            return Reply(200, job.file, PDF)

    def expire(self, download_id: str) -> Reply:
        with self.lock:
            job = next((job for job in self.jobs.values() if job.download_id == download_id and job.is_hosted), None)
            if job is None or job.file is None:
                return Reply(404, errors("There is no such hosted document."), XML)
            job.file = None
            return Reply(200, b"{}")

    def logs(self, query: dict[str, list[str]], *, only_created: bool) -> Reply:
        def told(name: str, default: str) -> str:
            return query.get(name, [default])[0]

        first, last = (_seconds(told(f"search[{end}]", "")) for end in ("start", "end"))
        page, most = int(told("page", "1")), min(int(told("per_page", "100")), 100)
        jobs = sorted(self.jobs.values(), key=lambda job: -job.number)
        if only_created:
            jobs = [job for job in jobs if job.status == "completed"]
        elif not self.switches.log_lists_queued:
            jobs = [job for job in jobs if job.status not in ("queued", "working")]
        if self.switches.log_heeds_bounds:
            jobs = [job for job in jobs if (first or 0) <= job.made_at <= (last or job.made_at)]
        start = (page - 1) * most if self.switches.log_heeds_pages else 0
        lines = [self._line(job) for job in jobs[start : start + most]]
        return Reply(200, json.dumps(lines).encode())

    def _line(self, job: Job) -> dict[str, Any]:
        line = {
            "id": job.number,
            "name": job.body.get("name"),
            "document_type": job.body.get("document_type"),
            "test": job.is_test,
            "tag": job.body.get("tag"),
            "success": job.status == "completed",
            "async": job.is_async,
            "created_at": datetime.fromtimestamp(job.made_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        line |= {"status_id": job.status_id} if self.switches.log_shows_ids else {}
        return {"doc_log": line} if self.switches.log_wraps_lines else line


def _problem_of(told: dict[str, Any]) -> str:
    if not told.get("name"):
        return "Name can't be blank"
    if told.get("document_type", told.get("type")) not in ("pdf", "xls", "xlsx"):
        return "Document type must be pdf, xls or xlsx"
    if not str(told.get("document_content") or "").strip() and not told.get("document_url"):
        return "Document content can't be blank"
    host = urlsplit(str(told.get("document_url", ""))).hostname or ""
    return "Document URL could not be loaded" if host.startswith(("127.", "10.", "192.168.")) else ""


def errors(*words: str) -> bytes:
    texts = "".join(f"<error>{html.escape(each)}</error>" for each in words)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<errors>{texts}</errors>'.encode()


def _seconds(text: str) -> float | None:
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC).timestamp() if text else None


def _post(address: str, told: dict[str, Any], *, as_form: bool) -> int:
    """The callback, once; the answer's status."""
    body = urlencode(told).encode() if as_form else json.dumps(told).encode()
    kind = "application/x-www-form-urlencoded" if as_form else JSON
    request = urllib.request.Request(address, body, {"Content-Type": kind}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return int(answer.status)
    except OSError as error:
        return int(getattr(error, "code", 0) or 0)


def rendered(body: dict[str, Any], *, is_test: bool) -> bytes:
    """A small valid PDF that shows the text of the document, with a watermark where it is a test."""
    source = str(body.get("document_content") or body.get("document_url"))
    source = re.sub(r"(?is)<(script|style|title)\b.*?</\1>", " ", source)
    lines = [html.unescape(line).strip() for line in re.sub(r"<[^>]+>", "\n", source).splitlines()]
    shown = ["TEST DOCUMENT"] * is_test + [line for line in lines if line][:40]
    drawn = b"\n".join(b"(%s) Tj T*" % _escaped(line) for line in shown)
    content = b"BT /F1 12 Tf 14 TL 72 760 Td\n%s\nET" % drawn
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 5 0 R /Resources 6 0 R >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        b"<< /Font << /F1 3 0 R >> >>",
    ]
    out, offsets = b"%PDF-1.5\n", []
    for number, each in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    end = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, len(out))
    return out + b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1) + table + end


def _escaped(text: str) -> bytes:
    plain = text.encode("latin-1", "replace")
    return plain.replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")
