"""PDFMonkey's HTTP contract: the calls and the requests that they make.

A tag beside each fact names the section of the vendor's notes and the source (README, "Tags of vendor facts"). Answers
are read in `pdfmonkey_answers.py`, webhooks in `pdfmonkey_webhooks.py`. Three things here are unlike other vendors. It
fills templates that it keeps, so whole HTML goes through one that prints a single variable. No key protects a
submission, so a document is made as a draft, which is not billed, and begun by a second call. And a link to a file
lives for an hour, while each reading of the document's card names a fresh one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from batches.providers import pdfmonkey_answers as answers
from batches.providers import pdfmonkey_webhooks, reading, redaction
from batches.providers.base import (
    KEY_PLACE,
    Accepted,
    AccountState,
    Capabilities,
    Deleted,
    DocumentSource,
    Finished,
    Gone,
    JobPhase,
    JobStatus,
    Option,
    PreparedRequest,
    ProviderConfig,
    ProviderEvent,
    ResultRef,
)
from batches.providers.errors import ContractBroken, InvalidInput, ProviderError, Unauthorized
from batches.providers.http import Answer
from batches.providers.jsonapi import JsonApi, json_body

DOCUMENTS = "/documents"
LINK_SECONDS = 3600  # 4.5: C(P3)

OPTIONS = (
    Option(
        "template",
        "Template for whole HTML",
        "The id of a template of yours at PDFMonkey that prints one variable and nothing else. Without it the account "
        "takes only documents that name a template there.",
        is_fixed=True,
    ),
    Option(
        "variable",
        "Its variable",
        "The variable that this template prints. A document's options come beside it, as the variable “options”.",
        default="html",
        is_fixed=True,
    ),
)

CAPABILITIES = Capabilities(
    client_key=False,  # 4.7: C(P1, P8 – absent)
    sources=frozenset({"template"}),  # 4.1: C(P1, P11); "html" with the option of a template for it: INFERRED
    drafts=True,  # 4.7: C(P2, P8)
    resend_is_harmless=True,  # 4.7: a stray draft is not billed: INFERRED
    status_poll=True,  # 4.4: C(P1, P4, P8)
    webhook_success=True,  # 4.10: C(P4, P8)
    webhook_failure=True,  # 4.10: C(P4, P8)
    webhook_signature=True,  # 4.10: C(P8)
    webhook_endpoints=False,  # 4.10: `rest_hooks` exist, C(P8); their shape and secret UNKNOWN
    link_lifetime_seconds=LINK_SECONDS,
    link_refresh=True,  # 4.5: C(P3)
    remote_delete=True,  # 4.6: C(P7, P8)
    cancel=False,  # 4.6: none found
    look_up=False,  # 4.7: a search by file name is a guess; a draft needs none
    receipts=False,  # 4.12: none found
    test_mode=False,  # 4.11: none documented
    data_region=None,  # 4.12: UNKNOWN
    unbilled_failure_codes=frozenset(),  # 4.12: whether failed documents are billed is UNKNOWN
    finished_events=frozenset({pdfmonkey_webhooks.SUCCESS, pdfmonkey_webhooks.FAILURE}),  # 4.10: C(P4, P8)
    no_credit_events=frozenset({pdfmonkey_webhooks.QUOTA_EXHAUSTED}),
)

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


class PDFMonkey(JsonApi):
    """One PDFMonkey account; see `base.Provider` for what each call promises."""

    kind = "pdfmonkey"
    label = "PDFMonkey"
    base_url = "https://api.pdfmonkey.io/api/v1"  # 4.1: C(P1, P8)
    options: tuple[Option, ...] = OPTIONS
    capabilities = CAPABILITIES
    refusals = answers.REFUSALS
    files_want_key = False  # 4.5: presigned, C(P3)

    @classmethod
    def problems(cls, config: ProviderConfig) -> list[str]:
        found = []
        variable = config.options.get("variable", "")
        if config.options.get("template") and (not _VARIABLE.fullmatch(variable) or variable == "options"):
            found.append(
                "The variable of the template for whole HTML is no usable name: take letters, digits and underscores, "
                "and another word than “options”."
            )
        if config.base_url == cls.base_url and not config.download_hosts:
            # 4.5: on Amazon S3, C(P3); the host's name is not written down, so a person says it beforehand.
            found.append(
                "Name the host of finished files under download hosts: the download link of any finished document "
                "shows it."
            )
        return found

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        self._template = config.options.get("template", "")
        self._variable = config.options.get("variable", "")
        if self._template:
            self.capabilities = replace(CAPABILITIES, sources=CAPABILITIES.sources | {"html"})

    # --- submitting --------------------------------------------------------------------------------------------------

    def prepare(self, source: DocumentSource) -> PreparedRequest:
        """A draft: no `status` is named (4.2: C(P1, P2)). The key stands in `meta`, which cards and webhooks bring back
        (4.2: C(P8, P4)), so that whoever looks at PDFMonkey knows whose document it is."""
        if source.kind not in self.capabilities.sources:
            raise InvalidInput(self._not_taken(source.kind))
        if not source.text.strip():
            raise InvalidInput("The document is empty.")
        meta: dict[str, Any] = {pdfmonkey_webhooks.KEY_FIELD: KEY_PLACE.decode("ascii")}
        if source.filename:
            meta["_filename"] = source.filename  # 4.2: C(P8, P4)
        if source.kind == "html":
            options = {"options": dict(source.options)} if source.options else {}
            template, payload = self._template, {self._variable: source.text, **options}
        else:
            template, payload = answers.template_in(source)
        document = json_body(source, {"document_template_id": template, "payload": payload}, keyed={"meta": meta})
        return PreparedRequest(DOCUMENTS, b'{"document":' + document + b"}")

    def _not_taken(self, kind: str) -> str:
        if kind == "html":
            return "The account names no template for whole HTML, so it takes only documents of PDFMonkey's templates."
        return f"PDFMonkey fills templates; it takes nothing of the kind “{redaction.cleaned(kind, limit=40)}”."

    def submit(
        self, request: PreparedRequest, *, idempotency_key: str, now: datetime, gate: Callable[[], None]
    ) -> Accepted | Finished:
        """Make the draft. An answer that names another status than `draft` is taken at its word."""
        body = request.keyed(idempotency_key)
        call = self._call("submit", "POST", request.route, body=body, secrets=(idempotency_key,), gate=gate)
        with self.client.open(call, now=now) as answer:
            if not 200 <= answer.status < 300:
                raise self._on_submission(answer, request, now)
            card = answers.card_in(self._object(answer))
            job_id = reading.job_id_in(card.get("id"))
            if not job_id:
                raise answer.error(
                    ContractBroken, "PDFMonkey took the document but gave no id, so a draft may exist there."
                )
            word = reading.status_word(card.get("status", "draft"))  # 4.2: C(P1, P2)
            facts = answer.facts(status_word=word, id=redaction.masked(job_id))
            return Accepted(job_id, word, facts, is_draft=answers.phase_of(word) is JobPhase.DRAFT)

    def start(
        self,
        provider_job_id: str,
        request: PreparedRequest,
        *,
        idempotency_key: str,
        now: datetime,
        gate: Callable[[], None],
    ) -> Accepted:
        """`PUT` is a "full replacement" (4.7: C(P8)), so every field of the draft goes along, and `pending` with it."""
        document = json.loads(request.keyed(idempotency_key))["document"]
        body = json.dumps({"document": {**document, "status": "pending"}}, separators=(",", ":")).encode("ascii")
        call = self._call(
            "submit",
            "PUT",
            f"{DOCUMENTS}/{{id}}",
            job_id=provider_job_id,
            body=body,
            secrets=(idempotency_key,),
            gate=gate,
        )
        with self.client.open(call, now=now) as answer:
            if not 200 <= answer.status < 300:
                if answer.status in (404, 410):
                    raise self.refusals.told(answer, now)  # the draft is gone, not the template
                raise self._on_submission(answer, request, now)
            # What it answers is not needed: the card is read next. A body that says nothing is as good as none.
            card = {} if answer.status == 204 else answers.card_in(self._object(answer))
            self._is_about(provider_job_id, card, answer)
            word = reading.status_word(card.get("status", "pending"))
            return Accepted(provider_job_id, word, answer.facts(status_word=word))

    def _on_submission(self, answer: Answer, request: PreparedRequest, now: datetime) -> ProviderError:
        error = self.refusals.on_submission(answer, now)
        is_own = self._template and f'"document_template_id":{json.dumps(self._template)}'.encode() in request.body
        if answer.status == 404 and isinstance(error, InvalidInput) and is_own:
            words = "PDFMonkey does not know the template for whole HTML. Check its id in the account's settings."
            return answer.error(Unauthorized, f"{words} {error.words}")
        return error

    # --- status, deletion --------------------------------------------------------------------------------------------

    def fetch_status(self, provider_job_id: str, *, now: datetime) -> JobStatus:
        """The document's card. What is called finished without a link is read again: a link may follow (4.5, P10)."""
        call = self._call("poll", "GET", "/document_cards/{id}", job_id=provider_job_id)
        answer, value = self._read(call, now)
        card = answers.card_in(value)
        self._is_about(provider_job_id, card, answer)
        word = reading.status_word(card.get("status"))
        phase = answers.phase_of(word)
        link = reading.link_in(card.get("download_url"))
        if phase is JobPhase.SUCCEEDED and not link:
            phase = JobPhase.RUNNING
        result = None
        if phase is JobPhase.SUCCEEDED:
            # No time of its end is told to the engine: what ends is the link, and the next reading names another.
            result = ResultRef(provider_job_id, url=link, filename=answers.filename_in(card))
        words, no_credit = "", False
        if phase is JobPhase.FAILED:
            words = answers.failure_words(card, secrets=call.secrets)
            no_credit = self._is_used_up(now)
            words = answers.failed(words, no_credit=no_credit)
        return JobStatus(
            provider_job_id=provider_job_id,
            phase=phase,
            status_word=word,
            exchange=answer.facts(status_word=word, no_credit=no_credit),
            result=result,
            error_words=words,
            no_credit=no_credit,
            created_at=reading.moment(card.get("created_at")),
        )

    def _is_about(self, job_id: str, card: Mapping[str, Any], answer: Answer) -> None:
        named = card.get("id")
        if named is not None and str(named) != job_id:
            raise answer.error(ContractBroken, "PDFMonkey answered about another document than the one asked for.")

    def _is_used_up(self, now: datetime) -> bool:
        """Whether the month's documents are used up, which makes generations fail (4.8: C(P10); how, UNKNOWN).

        The second half of reading a failure; when it cannot be read, the failure is taken as the document's.
        """
        try:
            _answer, value = self._read(self._call("account", "GET", "/current_user"), now)
        except ProviderError:
            return False
        left = answers.documents_left(answers.user_in(value))
        return left is not None and left <= 0

    def delete_remote(self, ref: ResultRef, *, now: datetime) -> Deleted:
        """The file goes, payload and meta are emptied, the record stays (4.6: C(P7, P8))."""
        return self._deleted(self._call("delete", "DELETE", f"{DOCUMENTS}/{{id}}", job_id=ref.provider_job_id), now)

    def is_gone(self, ref: ResultRef, *, now: datetime) -> Gone:
        """By the card, which stays: without a link there is no file. What it shows after a deletion is UNKNOWN, so one
        that still names a link counts as still there."""
        call = self._call("delete", "GET", "/document_cards/{id}", job_id=ref.provider_job_id)
        with self.client.open(call, now=now) as answer:
            if answer.status in (404, 410):
                return Gone(True, answer.facts())
            if not 200 <= answer.status < 300:
                raise self.refusals.on_read(answer, now)
            card = answers.card_in(self._object(answer))
            return Gone(not reading.link_in(card.get("download_url")), answer.facts())

    # --- account and webhooks ----------------------------------------------------------------------------------------

    def check_account(self, *, now: datetime) -> AccountState:
        """`GET /current_user` (4.12: C(P8)). It also holds an `auth_token`, so only named fields are kept."""
        answer, value = self._read(self._call("account", "GET", "/current_user"), now)
        user = answers.user_in(value)
        return AccountState(
            plan=answers.plan_in(user),
            rate_tier="",  # 4.8: none documented
            exchange=answer.facts(),
            raw=answers.kept_of_user(user),
            balance=answers.documents_left(user),
        )

    def verify_webhook(
        self, headers: Mapping[str, str], body: bytes, secrets: Sequence[str], *, now: datetime
    ) -> datetime:
        return pdfmonkey_webhooks.verify(headers, body, secrets, now=now)

    def parse_webhook(self, body: bytes) -> list[ProviderEvent]:
        return pdfmonkey_webhooks.parse(body)
