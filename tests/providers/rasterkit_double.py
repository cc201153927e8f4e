"""rasterkit on a real socket: jobs, results for whoever has the key, and signed calls to the address of a job.

The facts are those that `batches/providers/rasterkit.py` names by their tags; nothing of that code is used here.
Run it with `python -m tests.providers.rasterkit_double --port 0`.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.providers import httpdouble
from tests.providers.httpdouble import Double, Process, Reply, Seen

API_KEY = "rk_test_Q7rT2mVx81LkZp"
SIGNING_SECRET = "rk_sign_p7Yk3vQe5"


@dataclass
class Job:
    id: str
    file: bytes
    webhook_url: str
    reads: int = 0


class RasterkitDouble(Double):
    points = (
        ("POST", "/v1/pdf", "submit"),
        ("GET", "/v1/jobs/", "poll"),
        ("GET", "/v1/usage", "account"),
    )
    switches = {
        "credit": True,
        "words": ["queued", "processing"],
        "last_word": "succeeded",
        # How often each notice is sent, and whether the first comes before the answer to the submission.
        "notices": 1,
        "notice_first": False,
    }
    # What is lost where no key protects it stays unknown, so an hour of which all recover loses no submission.
    HOSTILE = {
        "submit": (
            {
                "do": "answer",
                "status": 429,
                "headers": {"Retry-After": "1"},
                "body": {"error": {"code": "rate_limited", "message": "Slow down."}},
            },
            None,
        ),
        "poll": (
            {"do": "drop"},
            {"do": "answer", "status": 500, "body": "oops"},
            {"do": "answer", "status": 200, "body": {"status": "polishing"}},
            {"do": "answer", "status": 504, "body": "<html>Gateway timeout</html>"},
        ),
        "download": ({"do": "truncate"}, {"do": "drop"}, {"do": "answer", "status": 503, "body": "busy"}),
    }

    def account_fields(self) -> dict[str, Any]:
        return {
            "kind": "rasterkit",
            "base_url": self.url,
            "api_key": API_KEY,
            "webhook_secret": SIGNING_SECRET,
            "options": {},
        }

    def point_of(self, method: str, path: str) -> str:
        return "download" if path.endswith("/result") else super().point_of(method, path)

    def document_of(self, request: Seen) -> str:
        if request.point == "submit":
            return hashlib.sha256(request.body).hexdigest()
        return unquote((request.path.split("/") + [""] * 4)[3])

    def behave(self, request: Seen) -> Reply:
        if request.headers.get("X-Api-Key") != API_KEY:
            return self.no(401, "unauthorized", "Missing or unknown API key.")
        if request.point == "submit":
            return self.accept(request)
        if request.point == "account":
            return Reply(200, {"plan": "free", "renders": len(self.jobs)})
        job = self.jobs.get(self.document_of(request))
        if job is None:
            return self.no(404, "job_not_found", "Unknown job id (or not yours).")
        if request.point == "download":
            return Reply(200, job.file, {"Content-Type": "application/pdf"})
        job.reads += 1
        words = [*self.set["words"], self.set["last_word"]]
        word = words[min(job.reads, len(words)) - 1]
        return Reply(200, {"status": word, "result_url": f"{self.url}/v1/jobs/{job.id}/result", "error": None})

    def no(self, status: int, code: str, message: str) -> Reply:
        return Reply(status, {"error": {"code": code, "message": message, "docs": f"{self.url}/docs/errors#{code}"}})

    def accept(self, request: Seen) -> Reply:
        try:
            given = request.json()
        except ValueError:
            return self.no(400, "invalid_request", "The body is no JSON.")
        if ("html" in given) == ("url" in given) or given.get("async") is not True:
            return self.no(400, "invalid_request", "Give html or url, and async.")
        if str(given.get("url", "")).startswith("http://127."):
            return self.no(451, "url_blocked", "That address is private.")
        if not self.set["credit"]:
            return self.no(402, "quota_exceeded", "The plan's renders are used up.")
        text = httpdouble.shown_text(str(given.get("html") or given.get("url")))
        with self.lock:
            job_id = f"0d4f{len(self.jobs):028x}"
            job = self.jobs[job_id] = Job(job_id, httpdouble.pdf(text), given.get("webhook_url", ""))
            self.billed[hashlib.sha256(request.body).hexdigest()] += 1
        if job.webhook_url:
            teller = threading.Thread(target=self.tell, args=[job], daemon=True)
            teller.start()
            if self.set["notice_first"]:
                teller.join(10)
        return Reply(202, {"id": job_id, "status": "queued", "status_url": f"/v1/jobs/{job_id}"})

    def tell(self, job: Job) -> None:
        """Signed, as often as is set; what the receiver answers is not waited on."""
        job.reads = len(self.set["words"])
        notice = {"id": job.id, "status": self.set["last_word"], "product": "pdf", "bytes": len(job.file)}
        body = json.dumps(notice | {"result_url": f"{self.url}/v1/jobs/{job.id}/result"}).encode()
        target = urlsplit(job.webhook_url)
        for _ in range(self.set["notices"]):
            headers = {"Content-Type": "application/json", "X-RasterKit-Signature": signature(body, int(time.time()))}
            connection = http.client.HTTPConnection(target.netloc, timeout=10)
            try:
                connection.request("POST", target.path, body, headers)
                connection.getresponse().read()
            except OSError:
                continue
            finally:
                connection.close()


def signature(body: bytes, at: int) -> str:
    digest = hmac.new(SIGNING_SECRET.encode(), b"%d." % at + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def start(folder: Path, **switches: Any) -> Process:
    """rasterkit as a process of its own."""
    return httpdouble.start_process(__name__, folder, switches)


if __name__ == "__main__":
    httpdouble.run(RasterkitDouble)
