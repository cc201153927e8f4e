"""DocRaptor's HTTP contract: the calls and the requests that they make.

A tag beside each fact names the section of the vendor's notes and the source (README, "Tags of vendor facts"). Answers
are read in `docraptor_answers.py`. Three things here are unlike other vendors. No key protects a submission, so a lost
answer is never repeated; its key stands in `name` and `tag`, by which the list of attempts shows that the job exists,
though perhaps not its id. "Too many at once" and "not allowed" are one status. And a link to a file works a few times
only, so nothing here ever asks for a file but to fetch it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, quote, urlencode

from batches.providers import docraptor_answers as answers
from batches.providers import reading, redaction
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
    LookedUp,
    Option,
    PreparedRequest,
    ProviderConfig,
    ProviderEvent,
    ResultRef,
)
from batches.providers.errors import ContractBroken, InvalidInput, NotFound, TooLarge
from batches.providers.http import Answer, Call
from batches.providers.jsonapi import JsonApi, json_body

#: 3.3: C(D3, D5): an asynchronous job is ended after so long; and how much longer the list of attempts may be late.
JOB_SECONDS, LIST_LATE_SECONDS = 600, 120
#: Lines of attempts that one question asks for, and pages that a look-up turns before it says that it cannot tell.
LINES_A_PAGE, PAGES_MOST = 100, 20
LIST_BYTES = 16 * 1024 * 1024
#: 3.7: C(D7), as the vendor's example writes a bound of the list.
TIME_FORMAT = "%Y-%m-%d %H:%M:%S UTC"
#: Our clock may be ahead of DocRaptor's, or behind it, by so much.
CLOCK_SKEW = timedelta(minutes=5)
#: 3.11: C(D1, D9): a key that anybody may use, for test documents only.
TEST_KEY = "YOUR_API_KEY_HERE"
BILLED, FREE = "document", "nothing: test documents are free and watermarked"

LIVE, TEST = "live", "test"
ONCE, HOSTED = "once", "hosted"
NO, YES = "no", "yes"

OPTIONS = (
    Option(
        "mode",
        "Documents",
        "Test documents are free, unlimited and watermarked, so they are no documents for customers.",
        choices=((LIVE, "Real ones, which are billed"), (TEST, "Test documents, with a watermark")),
        default=LIVE,
        is_fixed=True,
    ),
    Option(
        "hosting",
        "Finished files",
        "A hosted file lies at an address without a key, open to whoever has it, until it is deleted there. DocRaptor "
        "sells this extra. A file that is not hosted can be fetched a few times only, and cannot be deleted.",
        choices=((ONCE, "Handed out a few times"), (HOSTED, "Hosted by DocRaptor until deleted")),
        default=ONCE,
        is_fixed=True,
    ),
    Option(
        "network",
        "Documents may load from the network",
        "Without it a document holds all that it shows. With it a document may also be a web address.",
        choices=((NO, "No"), (YES, "Yes")),
        default=NO,
        is_fixed=True,
    ),
)

CAPABILITIES = Capabilities(
    client_key=False,  # 3.7: C(D1, absent)
    sources=frozenset({"html"}),  # 3.2: `document_content`, C(D1)
    billed_unit=BILLED,  # 3.12: C(D8); a second submission is billed silently
    most_at_once=30,  # 3.8: C(D5), by default
    look_up_after=JOB_SECONDS + LIST_LATE_SECONDS,  # 3.7: whether a queued job is listed already is UNKNOWN
    status_poll=True,  # 3.4: C(D1)
    webhook_success=True,  # 3.10: C(D1, D3)
    webhook_failure=False,  # 3.10: C(D3): never called on failure
    webhook_signature=False,  # 3.10: none documented
    link_lifetime_seconds=None,  # 3.5: a few uses, C(D1); how long UNKNOWN
    link_refresh=False,  # 3.5
    remote_delete=False,  # 3.6: C(D1, absent) but for hosted files
    cancel=False,  # 3.6: C(D1, absent)
    look_up=True,  # 3.7: C(D7), by tag
    test_mode=True,  # 3.11: C(D1, D8)
    data_region=None,  # 3.12: UNKNOWN
    unbilled_failure_codes=frozenset(),  # 3.12: whether failed documents are billed is UNKNOWN
)


class DocRaptor(JsonApi):
    """One DocRaptor account; see `base.Provider` for what each call promises."""

    kind = "docraptor"
    label = "DocRaptor"
    base_url = "https://api.docraptor.com"  # 3.1: C(D1, D2)
    options: tuple[Option, ...] = OPTIONS
    capabilities = CAPABILITIES
    refusals = answers.REFUSALS
    files_want_key = True  # 3.5: C(D1)
    file_route = "/download/[id]"

    @classmethod
    def problems(cls, config: ProviderConfig) -> list[str]:
        if config.api_key == TEST_KEY and config.options.get("mode") != TEST:
            return [f"The key {TEST_KEY} makes test documents only: enter the account's own key, or choose those."]
        if config.options.get("hosting") == HOSTED and config.base_url == cls.base_url and not config.download_hosts:
            # 3.5: C(D6), a public address; its host is UNKNOWN, so a person says it before a document is paid for.
            return [
                "Name the host of hosted files under download hosts: the link of any hosted test document shows it."
            ]
        return []

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        self.is_test = config.options.get("mode") == TEST
        self.is_hosted = config.options.get("hosting") == HOSTED
        self.may_load = config.options.get("network") == YES
        self.files_want_key = not self.is_hosted  # 3.5: C(D6)
        self.capabilities = replace(
            CAPABILITIES,
            sources=CAPABILITIES.sources | ({"url"} if self.may_load else set()),
            billed_unit=FREE if self.is_test else BILLED,
            remote_delete=self.is_hosted,  # 3.6: C(D1, D6, D9)
        )

    def authorization(self, key: str) -> Mapping[str, str]:
        """3.1: the key as user, an empty password: C(D1, D2)."""
        return {"Authorization": "Basic " + base64.b64encode(f"{key}:".encode("ascii")).decode("ascii")}

    # --- submitting --------------------------------------------------------------------------------------------------

    def prepare(self, source: DocumentSource) -> PreparedRequest:
        """`test` is always said: the default of the service and those of its clients differ (3.11: C(D1, D2, D10)).

        The file's own name stays here: DocRaptor's `name` is where the key is found again.
        """
        fields: dict[str, Any] = {
            "document_type": "pdf",
            "prince_options": {**source.options, **({} if self.may_load else {"no_network": True})},  # 3.2: C(D1)
            "test": self.is_test,
        }
        content = {"html": "document_content", "url": "document_url"}.get(source.kind, "")
        if source.kind not in self.capabilities.sources:
            raise InvalidInput(self._not_taken(source.kind))
        if not source.text.strip():
            raise InvalidInput("The document is empty.")
        place = KEY_PLACE.decode("ascii")
        keyed = {"name": place, "tag": place}  # 3.7: C(D7); longer than 200 characters a name would fail (3.2: C(D9))
        if self.config.callback_url:
            keyed["callback_url"] = f"{self.config.callback_url}/{place}"
        route = "/hosted_async_docs" if self.is_hosted else "/async_docs"  # 3.2: C(D1, D2)
        return PreparedRequest(route, json_body(source, fields | {content: source.text}, keyed=keyed))

    def _not_taken(self, kind: str) -> str:
        if kind == "url":
            return "This account lets documents load nothing from the network, so it takes no web addresses."
        return f"DocRaptor makes PDFs of HTML, and of nothing of the kind “{redaction.cleaned(kind, limit=40)}”."

    def submit(
        self, request: PreparedRequest, *, idempotency_key: str, now: datetime, gate: Callable[[], None]
    ) -> Accepted | Finished:
        body = request.keyed(idempotency_key)
        secrets = (idempotency_key, *filter(None, [self.config.callback_url]))
        call = self._call("submit", "POST", request.route, body=body, secrets=secrets, gate=gate)
        with self.client.open(call, now=now) as answer:
            if not 200 <= answer.status < 300:
                raise self.refusals.on_submission(answer, now)
            job_id = reading.job_id_in(self._object(answer).get("status_id"))
            if not job_id:
                raise answer.error(
                    ContractBroken, "DocRaptor took the document but gave no status id, so it may exist there."
                )
            return Accepted(job_id, "queued", answer.facts(status_word="queued", id=redaction.masked(job_id)))

    # --- status, file, deletion --------------------------------------------------------------------------------------

    def fetch_status(self, provider_job_id: str, *, now: datetime) -> JobStatus:
        """A failed job is 200 with a word (3.4: C(D9)); a 400 says nothing yet, so it is read again (3.4: INFERRED)."""
        call = self._call("poll", "GET", "/status/{id}", job_id=provider_job_id)
        answer, job = self._read(call, now)
        word = reading.status_word(job.get("status"))
        phase = answers.FINAL_STATUSES.get(word, JobPhase.RUNNING)
        result = self._result_in(job, provider_job_id) if phase is JobPhase.SUCCEEDED else None
        if phase is JobPhase.SUCCEEDED and result is None:
            raise answer.error(ContractBroken, "DocRaptor calls the document completed and does not say where it lies.")
        words = ""
        if phase is JobPhase.FAILED:
            words = answers.failure_words(job, secrets=call.secrets)
            words = words or "DocRaptor reports that the document failed and gives no reason."
        return JobStatus(
            provider_job_id=provider_job_id,
            phase=phase,
            status_word=word,
            exchange=answer.facts(status_word=word),
            result=result,
            error_words=words,
        )

    def _result_in(self, job: Mapping[str, Any], job_id: str) -> ResultRef | None:
        """Where the file lies: its hosted address, else the download by id with the key, else the link that is named.

        Its size is not told (3.4: C(D1)).
        """
        link, download_id = reading.link_in(job.get("download_url")), answers.download_id_in(job)
        if download_id and not (self.is_hosted and link):
            link = f"{self.config.base_url}/download/{quote(download_id, safe='')}"
        return ResultRef(job_id, url=link, file_id=download_id if self.is_hosted else "") if link else None

    def delete_remote(self, ref: ResultRef, *, now: datetime) -> Deleted:
        """Hosted files alone (3.6: C(D1, D6, D9)): by the download's id, which the status read named with the link."""
        if not self.is_hosted:
            self._not_offered("deletion")
        if not ref.file_id:
            raise NotFound("DocRaptor did not name the file of this document, so it cannot be told to delete it.")
        return self._deleted(self._call("delete", "PATCH", "/expire/{id}", job_id=ref.file_id), now)

    def is_gone(self, ref: ResultRef, *, now: datetime) -> Gone:
        """Hosted files alone: their address is open and may be asked as often as wished, which no other link may be.

        Which refusal a deleted one answers is UNKNOWN (3.6: "the link then fails"), so any that is no trouble counts.
        """
        if not self.is_hosted:
            self._not_offered("deletion")
        call = Call(
            kind="delete",
            method="GET",
            url=self.file_link(ref),
            route=self.file_route,
            headers={"Accept-Encoding": "identity"},
            secrets=(ref.provider_job_id, ref.url),
            seconds=self.call_seconds,
        )
        with self.client.open(call, now=now) as answer:
            if answer.status in (400, 403, 404, 410):
                return Gone(True, answer.facts())
            if answer.status == 200:
                return Gone(False, answer.facts())
            raise self.refusals.on_read(answer, now)

    # --- account and look-up -----------------------------------------------------------------------------------------

    def check_account(self, *, now: datetime) -> AccountState:
        """`GET /docs.json` is authenticated and unbilled (3.7: C(D7)); it names neither a plan nor a balance."""
        answer, _value = self._listed("account", "/docs.json", {"per_page": 1}, now)
        return AccountState(plan="", rate_tier="", exchange=answer.facts())

    def find_submission(self, idempotency_key: str, *, first_sent_at: datetime, now: datetime) -> LookedUp | None:
        """By tag in the list of attempts, newest first (3.7: C(D7)), page by page back to the first sending.

        Whether the list heeds its bounds is not relied on: it is read until a page is empty or older. None where that
        end was not reached: then nothing can be told of a key that was not seen.
        """
        since = first_sent_at - CLOCK_SKEW
        bounds = {"search[start]": f"{since:{TIME_FORMAT}}", "search[end]": f"{now + CLOCK_SKEW:{TIME_FORMAT}}"}
        found: dict[str, answers.Attempt] = {}
        seen: set[str] = set()
        is_whole = False
        for page in range(1, PAGES_MOST + 1):
            params = {**bounds, "per_page": LINES_A_PAGE, "page": page}
            answer, value = self._listed("look_up", "/doc_logs.json", params, now)
            lines = answers.attempts_in(value)
            if lines is None:
                raise answer.error(ContractBroken, "DocRaptor answered with something that is no list of documents.")
            fresh = [line for line in lines if not line.line_id or line.line_id not in seen]
            is_whole = not lines or all(line.at is not None and line.at < since for line in lines)
            if is_whole or not fresh:
                break  # nothing older is of interest; or the same page came again, so that the rest cannot be seen
            seen.update(line.line_id for line in fresh)
            for place, line in enumerate(fresh):
                if idempotency_key in line.names:
                    found[line.status_id or line.line_id or f"{page}:{place}"] = line
        if not found and not is_whole:
            return None
        named = [line for line in found.values() if line.status_id]
        return LookedUp(
            jobs=tuple(self._listed_job(line, answer) for line in named),
            exchange=answer.facts(found=len(found)),
            nameless=len(found) - len(named),
        )

    def _listed_job(self, line: answers.Attempt, answer: Answer) -> JobStatus:
        """What became of it is read by its id; the list alone ends nothing."""
        return JobStatus(line.status_id, JobPhase.RUNNING, "listed", answer.facts(), created_at=line.at)

    def _listed(self, kind: str, route: str, params: Mapping[str, Any], now: datetime) -> tuple[Answer, Any]:
        """Read one page of a list. The answer, which is closed by then, and its JSON."""
        call = self._call(kind, "GET", route)
        call = replace(call, url=f"{call.url}?{urlencode(params)}")
        with self.client.open(call, now=now) as answer:
            if answer.status != 200:
                raise self.refusals.on_read(answer, now)
            try:
                return answer, reading.json_value(answer.read(LIST_BYTES))
            except TooLarge as error:
                raise answer.error(ContractBroken, error.words) from None

    # --- callbacks ---------------------------------------------------------------------------------------------------

    def verify_webhook(
        self, headers: Mapping[str, str], body: bytes, secrets: Sequence[str], *, now: datetime
    ) -> datetime:
        """Nothing is signed (3.10: UNKNOWN, none documented): the address that a document alone has is the proof."""
        return now

    def parse_webhook(self, body: bytes) -> list[ProviderEvent]:
        """A callback only says "look": its address names the job. Its encoding is UNKNOWN (3.10); what it names as the
        job's id is kept, and its link is never followed."""
        text = body.decode("utf-8", "replace")
        value = reading.json_value(body)
        named = value if isinstance(value, dict) else {name: each[0] for name, each in parse_qs(text).items()}
        if not named:
            raise ValueError("The callback holds neither JSON nor a form.")
        word = reading.short_text(named.get("status")) or "callback"
        return [ProviderEvent(type=word, provider_job_id=reading.job_id_in(named.get("status_id")))]
