"""The conformance suite's `Peer` over a double of `httpdouble.py`: the suite's words for what goes wrong, as faults."""

from __future__ import annotations

import json
import threading
import time
from datetime import datetime
from email.utils import formatdate
from typing import Any

from batches.providers import make_provider
from batches.providers.base import JobPhase, JobStatus, Provider, ProviderConfig
from tests.providers.conformance import utc_now
from tests.providers.httpdouble import Double


class DoublePeer:
    """`double` is started, and is left so. Subclasses sign webhooks as their vendor does."""

    webhook_secret = "whsec_p7Yk3vQe5"

    def __init__(self, double: Double, **config: Any) -> None:
        self.double = double
        fields = double.account_fields()
        self.kind = str(fields["kind"])
        self.api_key = str(fields["api_key"])
        self._config: dict[str, Any] = {
            "slug": self.kind,
            "base_url": fields["base_url"],
            "api_key": self.api_key,
            "options": fields["options"],
            **config,
        }
        self.secrets = [self.api_key]
        self.provider = self.provider_with()

    def provider_with(self, **config: Any) -> Provider:
        return make_provider(self.kind, ProviderConfig(**self._config | config))

    def accepted_count(self) -> int:
        return len(self.double.jobs)

    def empty_wallet(self) -> None:
        self.double.set["credit"] = False

    def finished(self, provider_job_id: str) -> JobStatus:
        self.secrets.append(provider_job_id)
        deadline = time.monotonic() + 30
        while True:
            status = self.provider.fetch_status(provider_job_id, now=utc_now())
            if status.phase is not JobPhase.RUNNING:
                return status
            assert time.monotonic() < deadline, f"the job is still {status.status_word}"
            threading.Event().wait(0.005)

    def sign(self, body: bytes, at: datetime) -> dict[str, str]:
        return {}

    def misbehave(self, action: str, **given: Any) -> None:
        """The sandbox's fault rules by name, as far as the conformance suite uses them."""
        effect = "_after_" in action
        headers = retry_after_headers(given)
        says = {"error": {"code": given.get("code", "oops"), "message": "Something is wrong."}}
        match action:
            case "drop_after_acceptance" | "drop_before_acceptance":
                self.double.fault("submit", "drop", effect=effect)
            case "error_after_acceptance" | "error_before_acceptance":
                self._answer("submit", given["status"], says, headers, effect=effect)
            case "html_502_after_acceptance" | "html_502_before_acceptance":
                self._answer("submit", 502, "<html>502 Bad Gateway</html>", headers, effect=effect)
            case "answer_after_acceptance":
                kind = {"Content-Type": given["content_type"]}
                self._answer("submit", 200, given["body"], kind, effect=True)
            case "slow_after_acceptance":
                self.double.fault("submit", "slow", seconds=given["seconds"])
            case "rate_limited":
                self._answer("submit", 429, {"error": {"code": "rate_limited"}}, headers)
            case "poll_error":
                self._answer("poll", given["status"], says, headers)
            case "poll_answer":
                self._answer("poll", 200, json.dumps(given["body"]), {})
            case "poll_drop":
                self.double.fault("poll", "drop")
            case "expired_file":
                self._answer("download", int(given["answer"][:3]), "<Error>expired</Error>", {})
            case "truncated_file":
                self.double.fault("download", "truncate", honest=given.get("content_length") == "wrong")
            case "error_page":
                self._answer("download", 200, "<html>Sorry</html>", {"Content-Type": "text/html"})
            case _:
                raise AssertionError(f"no fault is known for {action}")

    def _answer(self, point: str, status: int, body: Any, headers: dict[str, str], *, effect: bool = False) -> None:
        self.double.fault(point, "answer", status=status, body=body, headers=headers, effect=effect)


def retry_after_headers(given: dict[str, Any]) -> dict[str, str]:
    form = given.get("form", "seconds" if "retry_after" in given else "missing")
    if form == "missing":
        return {}
    seconds = given["retry_after"]
    return {"Retry-After": str(seconds) if form == "seconds" else formatdate(time.time() + seconds, usegmt=True)}
