"""RelayPDF's HTTP contract: the calls and the requests that they make.

A tag beside each fact says how sure it is and where it is from (README, "Tags of vendor facts"), since the contract is
not closed: codes, statuses and fields may grow, so unknown ones are kept, shown and never final. How a request names
its document stands in `relaypdf_sources.py`; answers are read in `relaypdf_answers.py`, refusals in
`relaypdf_refusals.py`, webhooks in `relaypdf_webhooks.py`; what is no vendor's own is `jsonapi.py`'s.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from batches.providers import reading, redaction, relaypdf_sources, relaypdf_webhooks
from batches.providers import relaypdf_answers as answers
from batches.providers.base import (
    Accepted,
    AccountState,
    Capabilities,
    Deleted,
    DocumentSource,
    Endpoints,
    Finished,
    Gone,
    JobPhase,
    JobStatus,
    Option,
    PreparedRequest,
    ProviderConfig,
    ProviderEvent,
    Receipts,
    Registered,
    ResultRef,
)
from batches.providers.errors import ContractBroken
from batches.providers.http import Call
from batches.providers.jsonapi import JSON_BYTES, JsonApi, json_body
from batches.providers.relaypdf_refusals import REFUSALS

SUBMIT_ROUTE = "/v1/pdf"  # A2: CONFIRMED P, N
WEBHOOKS_ROUTE = "/v1/webhooks"  # A8: CONFIRMED P, M
ACCOUNT_BYTES = 16 * 1024
#: A2: CONFIRMED P, J, H. How what would cost more is refused is UNKNOWN: the refusal is shown as it comes.
CEILING_HEADER = "X-RelayPDF-Max-Charge-Microdollars"
CEILING_DIGITS = 12

OPTIONS = (
    Option(
        "max_charge",
        "Price ceiling of a document",
        "RelayPDF is told with each submission to refuse or stop what would cost more. In millionths of a US dollar: "
        "5000 is 0.005 USD. Empty: no ceiling. Change it while no document is under way, since RelayPDF does not say "
        "whether a repeat under another ceiling counts as the same request.",
    ),
)

CAPABILITIES = Capabilities(
    client_key=True,  # A6: CONFIRMED P, S0
    sources=frozenset({"html", "url", "markdown", "template"}),  # A2: CONFIRMED P, N
    key_retention_seconds=None,  # A6: bounded (CONFIRMED S0), length UNKNOWN
    status_poll=True,  # A4: CONFIRMED P
    webhook_success=True,  # A8: `job.completed`, CONFIRMED N
    webhook_failure=True,  # A8: `job.failed`, CONFIRMED N
    webhook_signature=True,  # A8: CONFIRMED P, N
    webhook_endpoints=True,  # A8: `POST`, `GET`, `DELETE /v1/webhooks`, CONFIRMED P, M
    link_lifetime_seconds=24 * 3600,  # A5: CONFIRMED M, N
    link_refresh=False,  # A5: no route found
    remote_delete=True,  # A5: CONFIRMED M
    cancel=False,  # A4: no route found
    look_up=False,  # A4: no list, no find by key
    ceiling=True,  # A2: CONFIRMED P, J, H
    receipts=True,  # A10: `GET /v1/billing/usage`, CONFIRMED P, M
    test_mode=False,  # A11: none documented
    data_region=None,  # A11: UNKNOWN
    # A9: failed operations are never billed (CONFIRMED M, N); these are the two codes of a failed render.
    unbilled_failure_codes=frozenset({"render_failed", "processing_failed"}),
    finished_events=frozenset({"job.completed", "job.failed"}),  # A8: CONFIRMED N
    topup_events=frozenset({"wallet.topup", "wallet.auto_reload"}),  # A8: CONFIRMED N
    no_credit_events=frozenset({"wallet.payment_required", "wallet.auto_reload_failed"}),  # A8: CONFIRMED N
)


class RelayPDF(JsonApi):
    """One RelayPDF account; see `base.Provider` for what each call promises."""

    kind = "relaypdf"
    label = "RelayPDF"
    base_url = "https://api.relaypdf.com"  # A1: CONFIRMED P, J, H
    options: tuple[Option, ...] = OPTIONS
    capabilities = CAPABILITIES
    refusals = REFUSALS
    size_headers = ("X-Relaypdf-Size", "X-Pdfforge-Size")  # A3: both names are in use (FIXTURE T, J, H)
    file_route = "/v1/files/[id]"

    @classmethod
    def problems(cls, config: ProviderConfig) -> list[str]:
        ceiling = config.options.get("max_charge", "")
        if not ceiling or (ceiling.isascii() and ceiling.isdigit() and len(ceiling) <= CEILING_DIGITS and int(ceiling)):
            return []
        return ["The price ceiling is a whole number of millionths of a US dollar, such as 5000, or empty."]

    # --- calls ---------------------------------------------------------------------------------------------------

    def prepare(self, source: DocumentSource) -> PreparedRequest:
        """Compact JSON with sorted keys in ASCII, always `response: async`: the only mode for which the key is known to
        work (A6: CONFIRMED S0 for async, UNKNOWN for the others)."""
        body: dict[str, Any] = {**relaypdf_sources.fields(source), "response": "async"}
        if source.filename:
            body["filename"] = source.filename
        if source.options:
            body["options"] = dict(source.options)
        return PreparedRequest(route=SUBMIT_ROUTE, body=json_body(source, body))

    def submit(
        self, request: PreparedRequest, *, idempotency_key: str, now: datetime, gate: Callable[[], None]
    ) -> Accepted | Finished:
        call = self._call(
            "submit",
            "POST",
            request.route,
            body=request.body,
            headers={"Idempotency-Key": idempotency_key, **self._ceiling()},
            gate=gate,
        )
        with self.client.open(call, now=now) as answer:
            if not 200 <= answer.status < 300:
                raise self.refusals.on_submission(answer, now)
            is_json = "json" in answer.headers.get("Content-Type", "").lower()
            if not is_json and (job_id := reading.job_id_in(answer.headers.get("X-Relaypdf-Id"))):
                # A3: a binary answer names its id in a header (FIXTURE T, J, H). The bytes are fetched by id like any.
                result = ResultRef(provider_job_id=job_id)
                return Finished(job_id, "completed", result, answer.facts(status_word="completed"))
            job = self._object(answer)
            job_id = reading.job_id_in(reading.either(job, "id", "jobId", "job_id"))
            if not job_id:
                raise answer.error(
                    ContractBroken, "RelayPDF accepted the document but gave no job id, so it may exist there."
                )
            # A 202 may come without a status; then every SDK reports `processing` (A3: FIXTURE H).
            word = reading.status_word(job.get("status", "processing"))
            facts = answer.facts(status_word=word, id=redaction.masked(job_id))
            if answers.FINAL_STATUSES.get(word) is JobPhase.SUCCEEDED:
                return Finished(job_id, word, answers.result_in(job, job_id), facts)
            return Accepted(job_id, word, facts)

    def _ceiling(self) -> dict[str, str]:
        ceiling = self.config.options.get("max_charge", "")
        return {CEILING_HEADER: ceiling} if ceiling else {}

    def fetch_status(self, provider_job_id: str, *, now: datetime) -> JobStatus:
        call = self._call("poll", "GET", "/v1/jobs/{id}", job_id=provider_job_id)
        with self.client.open(call, now=now) as answer:
            if not 200 <= answer.status < 300:
                raise self.refusals.on_read(answer, now)
            job = self._object(answer)
            named = reading.either(job, "id", "jobId", "job_id")
            if named is not None and str(named) != provider_job_id:
                raise answer.error(
                    ContractBroken, "RelayPDF answered about another job than the one that was asked for."
                )
            word = reading.status_word(job.get("status"))
            phase = answers.FINAL_STATUSES.get(word, JobPhase.RUNNING)
            code, words = ("", "")
            if phase is JobPhase.FAILED:
                code, words = reading.error_in(job, secrets=call.secrets)
                words = words or "RelayPDF reports that rendering failed and gives no reason."
            return JobStatus(
                provider_job_id=provider_job_id,
                phase=phase,
                status_word=word,
                exchange=answer.facts(status_word=word, **({"code": code} if code else {})),
                result=answers.result_in(job, provider_job_id) if phase is JobPhase.SUCCEEDED else None,
                error_code=code,
                error_words=words,
                unbilled=code in self.capabilities.unbilled_failure_codes,
                warnings=answers.warnings_in(job, secrets=call.secrets),
            )

    def file_link(self, ref: ResultRef) -> str:
        """D5: the job's own link is the first choice, the id as a file id the second. Files open to whoever has either,
        so the key is never sent (A5: CONFIRMED P, M; PROBED)."""
        return ref.url or f"{self.config.base_url}/v1/files/{quote(ref.provider_job_id, safe='')}"

    def delete_remote(self, ref: ResultRef, *, now: datetime) -> Deleted:
        """A 2xx is all the proof that there is (A5: CONFIRMED P, H; D20)."""
        call = self._call("delete", "DELETE", "/v1/files/{id}", job_id=ref.provider_job_id)
        return self._deleted(call, now)

    def is_gone(self, ref: ResultRef, *, now: datetime) -> Gone:
        """Whoever has the id of a file may ask for it (A5: CONFIRMED P, M): 404 or 410 says that it is gone."""
        call = Call(
            kind="delete",
            method="GET",
            url=f"{self.config.base_url}/v1/files/{quote(ref.provider_job_id, safe='')}",
            route="/v1/files/[id]",
            headers={"Accept-Encoding": "identity"},
            secrets=(ref.provider_job_id,),
            seconds=self.call_seconds,
        )
        with self.client.open(call, now=now) as answer:
            if answer.status in (404, 410):
                return Gone(True, answer.facts())
            if answer.status == 200:
                return Gone(False, answer.facts())
            raise self.refusals.on_read(answer, now)

    def check_account(self, *, now: datetime) -> AccountState:
        """`GET /v1/account` is authenticated and unbilled (A1: CONFIRMED N, M, P)."""
        call = self._call("account", "GET", "/v1/account")
        with self.client.open(call, now=now) as answer:
            if answer.status != 200:
                raise self.refusals.on_read(answer, now)
            account = self._object(answer)
            return AccountState(
                plan=reading.short_text(account.get("plan")),
                rate_tier=reading.short_text(reading.either(account, "rateTier", "rate_tier")),
                exchange=answer.facts(),
                raw=account if answer.byte_count <= ACCOUNT_BYTES else {},
                balance=answers.balance_in(account),
            )

    def list_receipts(self, *, now: datetime) -> Receipts | None:
        """`GET /v1/billing/usage`: the latest receipts (A10: CONFIRMED P, M), in a shape that is UNKNOWN."""
        with self.client.open(self._call("account", "GET", "/v1/billing/usage"), now=now) as answer:
            if not 200 <= answer.status < 300:
                raise self.refusals.on_read(answer, now)
            found = answers.receipts_in(reading.json_value(answer.read(JSON_BYTES)))
            if found is None:
                raise answer.error(ContractBroken, "RelayPDF answered with something that is no list of receipts.")
            return Receipts(found, answer.facts())

    def verify_webhook(
        self, headers: Mapping[str, str], body: bytes, secrets: Sequence[str], *, now: datetime
    ) -> datetime:
        return relaypdf_webhooks.verify(headers, body, secrets, now=now)

    def parse_webhook(self, body: bytes) -> list[ProviderEvent]:
        return relaypdf_webhooks.parse(body)

    def register_webhook(self, url: str, *, now: datetime) -> Registered:
        """Without `events`: all of them are wanted, and all is what leaving it out is INFERRED to mean (A8).

        The secret is shown this once (A8: CONFIRMED M), so an answer without one is told, not refused.
        """
        body = json.dumps({"url": url}).encode("ascii")
        call = self._call("webhook", "POST", WEBHOOKS_ROUTE, body=body)
        with self.client.open(call, now=now) as answer:
            if not 200 <= answer.status < 300:  # 200 or 201 (A8: UNKNOWN)
                raise self.refusals.told(answer, now)
            endpoint = answers.endpoint_in(self._object(answer), url=url)
            if endpoint is None:
                raise answer.error(
                    ContractBroken, "RelayPDF answered without the id of the address, so it may be registered there."
                )
            return Registered(endpoint, answer.facts())

    def list_webhooks(self, *, now: datetime) -> Endpoints:
        call = self._call("webhook", "GET", WEBHOOKS_ROUTE)
        with self.client.open(call, now=now) as answer:
            if not 200 <= answer.status < 300:
                raise self.refusals.on_read(answer, now)
            found = answers.endpoints_in(reading.json_value(answer.read(JSON_BYTES)))
            if found is None:
                raise answer.error(ContractBroken, "RelayPDF answered with something that is no list of addresses.")
            return Endpoints(found, answer.facts())

    def delete_webhook(self, endpoint_id: str, *, now: datetime) -> Deleted:
        """Any 2xx will do, with a body or without (A8: FIXTURE T for `{"ok": true}`)."""
        call = self._call("webhook", "DELETE", f"{WEBHOOKS_ROUTE}/{{id}}", job_id=endpoint_id)
        return self._deleted(call, now)
