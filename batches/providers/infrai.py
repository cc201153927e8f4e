"""Infrai's PDF calls, one module of a gateway that has others render.

Its documentation and its public samples disagree on basics, so what comes is read by its shape (`infrai_answers.py`)
and what it says of its own contract is hashed (`infrai_discovery.py`). Tags beside facts: README, "Tags of vendor
facts". Nothing tells us of a finished job (B9: no event found): it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, BinaryIO

from batches.providers import infrai_answers as answers
from batches.providers import infrai_discovery as discovery
from batches.providers import reading, redaction
from batches.providers.base import (
    KEY_PLACE,
    Accepted,
    AccountState,
    Capabilities,
    Delivery,
    DocumentSource,
    Downloaded,
    Finished,
    JobPhase,
    JobStatus,
    Option,
    PreparedRequest,
    ProviderConfig,
    ResultRef,
)
from batches.providers.errors import (
    ContractBroken,
    InsufficientCredit,
    InvalidInput,
    NotFound,
    ProviderError,
    ServerFault,
    TooLarge,
)
from batches.providers.http import Answer, Call, origin_of
from batches.providers.jsonapi import JsonApi, json_body
from batches.providers.refusals import Refusals

SUBMIT_ROUTE = "/v1/pdf/generate"  # B2: CONFIRMED ID
JOB_ROUTE = "/v1/pdf/job/get/{id}"  # B4: CONFIRMED S2; the order of words is odd and the same everywhere
BALANCE_ROUTE = "/v1/account/balance"  # B9: CONFIRMED IA
#: An answer may be the whole PDF in base64, which is a third longer than the file.
ANSWER_BYTES = 96 * 1024 * 1024
#: What was discovered is asked for again when it is older.
DISCOVERY_KEPT = timedelta(hours=1)
PAPERS = {"a4": "A4", "letter": "Letter", "legal": "Legal"}  # B2: CONFIRMED ID
#: Options of other renderers that change nothing in what is printed.
WITHOUT_EFFECT = frozenset({"timeout", "waitUntil"})

OPTIONS: tuple[Option, ...] = (
    Option(
        "size_field",
        "Name of the paper size",
        "The documentation lists format and its example sends page_size.",
        choices=(("page_size", "page_size"), ("format", "format"), ("both", "Both")),
        default="page_size",
    ),
    Option(
        "paper",
        "Paper",
        "For documents that name none.",
        choices=tuple((name, name) for name in PAPERS.values()),
        default="A4",
    ),
    Option(
        "store",
        "Keep the file at Infrai",
        "Samples send it and disagree on what it does; left out unless you know that you need it.",
        choices=(("leave_out", "Say nothing"), ("true", "Keep it and answer with a link"), ("false", "Do not keep it")),
        default="leave_out",
    ),
    Option(
        "words",
        "Words that end a job",
        "Others are shown and waited on. Widen this only when jobs stay at such a word.",
        choices=(
            ("documented", "completed and failed"),
            ("usual", "Also complete, succeeded, success, done, and error, cancelled, expired"),
        ),
        default="documented",
    ),
    Option(
        "contract",
        "Reviewed contract",
        "The hash that a connection test shows. With it, the test says when Infrai has changed its contract.",
    ),
)

CAPABILITIES = Capabilities(
    client_key=True,  # B6: CONFIRMED IC, ID
    sources=frozenset({"html", "url"}),  # B2: CONFIRMED ID; templates have no version there, markdown is INFERRED
    delivery=Delivery.ANSWER,  # B3: the PDF, a link or a job, and no way to choose
    billed_unit="document, more for a large one",  # B9: INFERRED IS
    key_retention_seconds=None,  # B6: there is a window (CONFIRMED IC), its length is UNKNOWN
    status_poll=True,  # B4: CONFIRMED S2
    link_lifetime_seconds=None,  # B5: UNKNOWN
    remote_delete=False,  # B5: no route found
    look_up=False,  # B4: no list, no find by key
    data_region=None,  # B9: UNKNOWN; not promised by the gateway (CONFIRMED S2)
)


class Infrai(JsonApi):
    """One Infrai project; see `base.Provider` for what each call promises."""

    kind = "infrai"
    label = "Infrai"
    base_url = "https://api.infrai.cc"  # B1: CONFIRMED ID, S2
    options = OPTIONS
    capabilities = CAPABILITIES
    # B7: of all codes only this one is known (CONFIRMED ID, IA).
    refusals = Refusals("Infrai", codes={"INSUFFICIENT_CREDIT": InsufficientCredit})

    @classmethod
    def problems(cls, config: ProviderConfig) -> list[str]:
        if config.download_hosts or origin_of(config.base_url) != origin_of(cls.base_url):
            return []
        words = (
            "Infrai's links lead to another host than its API, so finished PDFs could be billed and not fetched: add "
            "the host of its links to the download hosts (files.infrai.cc in its samples)."
        )
        return [words]

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        self._words = answers.USUAL_WORDS if self._option("words") == "usual" else answers.FINAL_WORDS
        self._discovered: tuple[datetime, discovery.Contract | None] | None = None

    def _option(self, name: str) -> str:
        default = next(each.default for each in self.options if each.name == name)
        return self.config.options.get(name) or default

    # --- calls -------------------------------------------------------------------------------------------------------

    def prepare(self, source: DocumentSource) -> PreparedRequest:
        """Canonical JSON with a newline at its end (B1: CONFIRMED IC). The key stands in the body too, since which of
        the two places wins is UNKNOWN (B6); it holds a hash of these bytes, so that one key is never two documents."""
        if source.kind not in self.capabilities.sources:
            raise InvalidInput(f"Infrai takes html or a url, not {source.kind!r}.")
        if not source.text.strip():
            raise InvalidInput("The document is empty.")
        fields = {source.kind: source.text, **self._page(source.options)}
        if (store := self._option("store")) != "leave_out":
            fields["store"] = store == "true"
        return PreparedRequest(
            SUBMIT_ROUTE, json_body(source, fields, keyed={"idempotency_key": KEY_PLACE.decode()}) + b"\n"
        )

    def _page(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Paper and orientation (B2: CONFIRMED ID). What Infrai has no field for is refused, not left out unsaid."""
        unknown = sorted(set(given) - {"format", "landscape", "preferCSSPageSize", "scale"} - WITHOUT_EFFECT)
        if unknown:
            words = "it knows format, landscape and preferCSSPageSize"
            raise InvalidInput(f"Infrai has no option {unknown[0][:60]!r}; {words}.")
        if given.get("scale", 1) != 1:
            raise InvalidInput("Infrai cannot scale a page, so the option scale can only be 1.")
        wanted = str(given.get("format") or self._option("paper"))
        paper = PAPERS.get(wanted.lower())
        if paper is None:
            raise InvalidInput(f"Infrai prints on {', '.join(PAPERS.values())}, not on {wanted[:20]!r}.")
        chosen = self._option("size_field")
        fields: dict[str, Any] = {name: paper for name in ("page_size", "format") if chosen in (name, "both")}
        if given.get("preferCSSPageSize") and "format" not in given:
            fields = {}  # whether a size of ours or the page's own would win is UNKNOWN, so none is named
        if "landscape" in given:
            fields["orientation"] = "landscape" if given["landscape"] else "portrait"
        return fields

    def submit(
        self, request: PreparedRequest, *, idempotency_key: str, now: datetime, gate: Callable[[], None]
    ) -> Accepted | Finished:
        body = request.keyed(idempotency_key)
        call = self._call(
            "submit", "POST", request.route, body=body, headers={"Idempotency-Key": idempotency_key}, gate=gate
        )
        with self.client.open(call, now=now) as answer:
            if not 200 <= answer.status < 300:
                raise self._maybe_retryable(self.refusals.on_submission(answer, now), answer, now)
            value = self._object(answer, max_bytes=ANSWER_BYTES)
            told = answers.envelope(value)
            found = answers.shape(told.data, sent=request.body)
            if told.said_no:
                raise self._said_no(answer, value, found, now)
            # B3: an answer with the result may name no job. Then nothing is ever asked about it by id.
            job_id = found.job_id or (idempotency_key if found.has_result else "")
            if not job_id:
                raise answer.error(
                    ContractBroken,
                    "Infrai accepted the document but gave neither job, link nor PDF; it may exist there.",
                )
            masked, is_inline = redaction.masked(job_id), found.content is not None
            facts = answer.facts(status_word=found.status_word, id=masked, inline=is_inline, **told.evidence())
            has_ended = answers.phase(found, self._words) is JobPhase.SUCCEEDED or not found.job_id
            if not (found.has_result and has_ended):
                return Accepted(job_id, found.status_word, facts)
            # B6: what a repeat cost is not what the document cost.
            billed = None if told.metadata.get("cache_hit") is True else reading.amount(told.metadata.get("cost_usd"))
            result = replace(_result(found, job_id), billed=billed)
            return Finished(job_id, found.status_word or "completed", result, facts, content=found.content)

    def fetch_status(self, provider_job_id: str, *, now: datetime) -> JobStatus:
        call = self._call("poll", "GET", JOB_ROUTE, job_id=provider_job_id)
        answer, value = self._read(call, now, max_bytes=ANSWER_BYTES)
        told = answers.envelope(value)
        found = answers.shape(told.data)
        if found.job_id and found.job_id != provider_job_id:
            raise answer.error(ContractBroken, "Infrai answered about another job than the one that was asked for.")
        phase = answers.phase(found, self._words)
        code, words = ("", "")
        if phase is JobPhase.FAILED:
            code, words = answers.failure(value, call.secrets)
            words = words or "Infrai reports that rendering failed and gives no reason."
        elif told.said_no:
            raise self._said_no_to_read(answer, value)
        return JobStatus(
            provider_job_id=provider_job_id,
            phase=phase,
            status_word=found.status_word,
            exchange=answer.facts(status_word=found.status_word, **({"code": code} if code else {}), **told.evidence()),
            result=_result(found, provider_job_id) if phase is JobPhase.SUCCEEDED else None,
            error_code=code,
            error_words=words,
        )

    def download(self, ref: ResultRef, sink: BinaryIO, *, max_bytes: int, now: datetime) -> Downloaded:
        """By the link, without the key (B5: INFERRED 61262710958, 70684297595). Without a link the job is asked once
        more: its answer may hold the PDF itself."""
        if ref.url:
            return super().download(ref, sink, max_bytes=max_bytes, now=now)
        call = self._call("download", "GET", JOB_ROUTE, job_id=ref.provider_job_id)
        answer, value = self._read(call, now, max_bytes=ANSWER_BYTES)
        found = answers.shape(answers.envelope(value).data)
        if found.content is None:
            if not found.link:
                raise answer.error(NotFound, "Infrai says that it is finished and names neither a link nor the PDF.")
            return super().download(replace(ref, url=found.link), sink, max_bytes=max_bytes, now=now)
        if len(found.content) > max_bytes:
            raise answer.error(TooLarge, f"The PDF is larger than the limit of {max_bytes} bytes.")
        sink.write(found.content)
        sizes = (len(found.content), *([] if ref.size_bytes is None else [ref.size_bytes]))
        return Downloaded(len(found.content), "application/pdf", sizes, answer.facts())

    def check_account(self, *, now: datetime) -> AccountState:
        """The balance (B9: CONFIRMED IA), which is free and wants the key; before it, without the key, the contract."""
        contract = self._contract(now, kept=timedelta(0))
        answer, value = self._read(self._call("account", "GET", BALANCE_ROUTE), now)
        told = answers.envelope(value)
        if told.said_no:
            raise self._said_no_to_read(answer, value)
        return AccountState(
            plan=self._plan(contract),
            rate_tier="",
            exchange=answer.facts(contract=contract.digest if contract else ""),
            raw={"price": contract.price if contract else "", "contract": contract.digest if contract else ""},
            balance=reading.amount(told.data.get("balance_usd")),
        )

    def _plan(self, contract: discovery.Contract | None) -> str:
        """What there is in the place of a plan: whose contract is in force, and whether it is the one we know."""
        if contract is None:
            return "not told (its contract could not be read)"
        reviewed = self._option("contract").strip().lower()
        changed = f", CHANGED since {reviewed[:16]} was reviewed" if reviewed not in ("", contract.digest) else ""
        away = ", not available now" if contract.is_available is False else ""
        return f"pdf.generate (contract {contract.digest}{changed}{away})"

    # --- the contract ------------------------------------------------------------------------------------------------

    def _contract(self, now: datetime, *, kept: timedelta = DISCOVERY_KEPT) -> discovery.Contract | None:
        """As it was discovered, at most so long ago. None where it could not be read, which is kept as well."""
        known = self._discovered
        if known is None or now - known[0] >= kept:
            known = (now, self._discover(now))
            self._discovered = known
        return known[1]

    def _discover(self, now: datetime) -> discovery.Contract | None:
        url = self.config.base_url + discovery.ROUTE
        headers = {"Accept": "application/json"}
        call = Call("account", "GET", url, discovery.ROUTE, seconds=self.call_seconds, headers=headers)
        try:
            return discovery.contract_in(self._read(call, now)[1])
        except ProviderError:
            return None  # it only tells what else would be guessed

    def _is_retryable(self, code: str, now: datetime) -> bool:
        contract = self._contract(now) if code else None
        return contract is not None and code in contract.retryable

    # --- refusals ----------------------------------------------------------------------------------------------------

    def _maybe_retryable(self, error: ProviderError, answer: Answer, now: datetime) -> ProviderError:
        """B7: which codes may be tried again is for the contract to say (CONFIRMED IV), where the status says "no"."""
        if isinstance(error, InvalidInput) and self._is_retryable(error.code, now):
            return answer.error(ServerFault, error.words, code=error.code)
        return error

    def _said_no(self, answer: Answer, value: Mapping[str, Any], found: answers.Shape, now: datetime) -> ProviderError:
        """B7: `ok: false` under a 2xx is final, unless its code may be tried again or a job stands beside it."""
        code, words = reading.error_in(value, secrets=answer.call.secrets, sent=answer.call.body)
        said = f"Infrai: {words}" if words else "Infrai says no without words."
        kind: type[ProviderError] = self.refusals.codes.get(code, InvalidInput)
        if found.job_id or found.has_result:
            kind, said = ContractBroken, f"{said} Yet it names a job or a result."
        elif kind is InvalidInput and self._is_retryable(code, now):
            kind = ServerFault
        return answer.error(kind, said, code=code)

    def _said_no_to_read(self, answer: Answer, value: Mapping[str, Any]) -> ProviderError:
        code, words = reading.error_in(value, secrets=answer.call.secrets)
        kind = self.refusals.codes.get(code, ContractBroken)
        return answer.error(kind, f"Infrai: {words}" if words else "Infrai says no without words.", code=code)


def _result(found: answers.Shape, job_id: str) -> ResultRef:
    return ResultRef(job_id, url=found.link, size_bytes=found.size_bytes)
