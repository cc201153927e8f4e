"""rasterkit's HTTP contract: asynchronous renders, their status, signed webhooks with a time.

The example of README, "Adding a provider". Tags beside facts: README, "Tags of vendor facts". No key protects a
submission here, so a lost answer is never repeated (6: UNKNOWN).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from batches.providers import reading, redaction, signatures
from batches.providers.base import (
    KEY_PLACE,
    Accepted,
    AccountState,
    Capabilities,
    DocumentSource,
    JobPhase,
    JobStatus,
    PreparedRequest,
    ProviderConfig,
    ProviderEvent,
    ResultRef,
)
from batches.providers.errors import (
    ContractBroken,
    InsufficientCredit,
    InvalidInput,
    NotFound,
    RateLimited,
    Unauthorized,
)
from batches.providers.http import origin_of
from batches.providers.jsonapi import JsonApi, json_body
from batches.providers.refusals import Refusals

SIGNATURE_HEADER = "X-RasterKit-Signature"  # 6: C(X7)
#: 6: C(X7). A word that is not here is kept and shown, and the job is asked for again.
PHASES = {
    "queued": JobPhase.RUNNING,
    "processing": JobPhase.RUNNING,
    "succeeded": JobPhase.SUCCEEDED,
    "failed": JobPhase.FAILED,
}
#: Our names of options, and the vendor's. The two of waiting are C(X7), the others INFERRED from their spelling: it
#: answers fields that it cannot take with `invalid_request` and a list of them.
OPTIONS = {
    "format": "format",
    "height": "height",
    "landscape": "landscape",
    "margin": "margin",
    "pageRanges": "page_ranges",
    "preferCSSPageSize": "prefer_css_page_size",
    "printBackground": "print_background",
    "scale": "scale",
    "timeout": "timeout_ms",
    "waitUntil": "wait_until",
    "width": "width",
}


class Rasterkit(JsonApi):
    """One rasterkit account; see `base.Provider` for what each call promises."""

    kind = "rasterkit"
    label = "rasterkit"
    base_url = "https://rasterkit.com"  # 6: C(X7)
    files_want_key = True  # 6: C(X7): every request is authenticated
    file_route = "/v1/jobs/[id]/result"
    capabilities = Capabilities(
        client_key=False,  # 6: UNKNOWN
        sources=frozenset({"html", "url"}),  # 6: C(X7) for url, INFERRED for html
        billed_unit="render",
        webhook_success=True,  # 6: C(X7)
        webhook_failure=False,  # 6: one is sent "when the job finishes"; whether a failed one is told is UNKNOWN
        webhook_signature=True,  # 6: C(X7)
        link_lifetime_seconds=24 * 3600,  # 6: C(X7)
        remote_delete=False,  # 6: UNKNOWN
        cancel=False,  # 6: UNKNOWN
        test_mode=False,  # 6: `rk_test_` keys behave the same, C(X7)
        finished_events=frozenset({"job.succeeded", "job.failed"}),  # our names: a payload has only its status
    )
    refusals = Refusals(
        "rasterkit",
        codes={  # 6: C(X7)
            "invalid_request": InvalidInput,
            "unauthorized": Unauthorized,
            "key_suspended": Unauthorized,
            "quota_exceeded": InsufficientCredit,
            "spend_cap_reached": InsufficientCredit,  # a 429, which no waiting ends
            "rate_limited": RateLimited,
            "job_not_found": NotFound,
            "payload_too_large": InvalidInput,
            "navigation_failed": InvalidInput,
            "url_blocked": InvalidInput,
        },
    )

    @classmethod
    def problems(cls, config: ProviderConfig) -> list[str]:
        is_public = config.callback_url.startswith("https://") or origin_of(config.base_url) != origin_of(cls.base_url)
        if not config.webhook_secrets or not config.callback_url or is_public:
            return []
        # 6: C(X7): private addresses are refused, and the document with them.
        return ["rasterkit calls public https addresses only: set PUBLIC_URL to one, or remove the webhook secret."]

    def authorization(self, key: str) -> Mapping[str, str]:
        return {"X-Api-Key": key}  # 6: C(X7)

    # --- calls -------------------------------------------------------------------------------------------------------

    def prepare(self, source: DocumentSource) -> PreparedRequest:
        """With an address for the notice, which ends in the key, where there is a secret to prove it with."""
        if source.kind not in self.capabilities.sources:
            raise InvalidInput(f"rasterkit takes html or a url, not {source.kind!r}.")
        if not source.text.strip():
            raise InvalidInput("The document is empty.")
        unknown = sorted(set(source.options) - set(OPTIONS))
        if unknown:
            raise InvalidInput(f"rasterkit has no option {unknown[0][:60]!r}.")
        fields = {OPTIONS[name]: value for name, value in source.options.items()}
        keyed = {}
        if self.config.callback_url and self.config.webhook_secrets:
            keyed["webhook_url"] = f"{self.config.callback_url}/{KEY_PLACE.decode()}"
        return PreparedRequest(
            "/v1/pdf", json_body(source, {**fields, source.kind: source.text, "async": True}, keyed=keyed)
        )

    def submit(
        self, request: PreparedRequest, *, idempotency_key: str, now: datetime, gate: Callable[[], None]
    ) -> Accepted:
        call = self._call("submit", "POST", request.route, body=request.keyed(idempotency_key), gate=gate)
        with self.client.open(call, now=now) as answer:
            if not 200 <= answer.status < 300:
                raise self.refusals.on_submission(answer, now)
            job = self._object(answer)
            job_id = reading.job_id_in(job.get("id"))
            if not job_id:
                raise answer.error(ContractBroken, "rasterkit accepted the document without an id; it may exist there.")
            word = reading.status_word(job.get("status"))
            return Accepted(job_id, word, answer.facts(status_word=word, id=redaction.masked(job_id)))

    def fetch_status(self, provider_job_id: str, *, now: datetime) -> JobStatus:
        call = self._call("poll", "GET", "/v1/jobs/{id}", job_id=provider_job_id)
        answer, job = self._read(call, now)
        if job.get("id") not in (None, provider_job_id):
            raise answer.error(ContractBroken, "rasterkit answered about another job than the one that was asked for.")
        word = reading.status_word(job.get("status"))
        phase = PHASES.get(word, JobPhase.RUNNING)
        code, words = reading.error_in(job, secrets=call.secrets) if phase is JobPhase.FAILED else ("", "")
        if phase is JobPhase.FAILED and not words:
            words = "rasterkit reports that rendering failed and gives no reason."
        return JobStatus(
            provider_job_id=provider_job_id,
            phase=phase,
            status_word=word,
            exchange=answer.facts(status_word=word, **({"code": code} if code else {})),
            result=ResultRef(provider_job_id) if phase is JobPhase.SUCCEEDED else None,
            error_code=code,
            error_words=words,
        )

    def file_link(self, ref: ResultRef) -> str:
        """By id alone (6: C(X7)): `result_url` names the same place, and only our own address may see the key."""
        return f"{self.config.base_url}/v1/jobs/{quote(ref.provider_job_id, safe='')}/result"

    def check_account(self, *, now: datetime) -> AccountState:
        """`GET /v1/usage` wants the key (6: C(X7)); what it answers is UNKNOWN, so only a plan is looked for."""
        answer, usage = self._read(self._call("account", "GET", "/v1/usage"), now)
        return AccountState(plan=reading.short_text(usage.get("plan")), rate_tier="", exchange=answer.facts())

    # --- webhooks ----------------------------------------------------------------------------------------------------

    def verify_webhook(
        self, headers: Mapping[str, str], body: bytes, secrets: Sequence[str], *, now: datetime
    ) -> datetime:
        """Each API key has a signing secret of its own (6: C(X7))."""
        return signatures.verify_timed(headers, body, secrets, header=SIGNATURE_HEADER, now=now)

    def parse_webhook(self, body: bytes) -> list[ProviderEvent]:
        """`{"id", "status", …}` (6: C(X7)). Its word is a hint: the job is read."""
        try:
            told: Any = json.loads(body)
        except RecursionError:
            raise ValueError("The webhook's JSON is nested too deeply.") from None
        if not isinstance(told, dict):
            raise ValueError("The webhook's body is no JSON object.")
        return [
            ProviderEvent(f"job.{reading.status_word(told.get('status'))}"[:100], reading.job_id_in(told.get("id")))
        ]
