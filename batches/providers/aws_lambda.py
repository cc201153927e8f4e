"""A renderer of the team's own on AWS Lambda, whose PDFs lie in a bucket of the team's own.

The function keeps a contract (docs/lambda-renderer.md): it looks for the result under the submission's key first, and
stores it only where none is. So the key is the job's id and names its file; a repeat gives the same file, and costs at
worst one more run. Lambda itself takes no key (5.7: C(A1)). Tags beside facts: README, "Tags of vendor facts". Requests
are signed in `aws.py`, answers are read in `aws_lambda_answers.py`, an account's options in `aws_lambda_options.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, BinaryIO
from urllib.parse import quote

from batches.providers import aws_lambda_answers as answers
from batches.providers import reading, redaction
from batches.providers.aws import Signer
from batches.providers.aws_lambda_options import OPTIONS, Settings, found_problems
from batches.providers.base import (
    KEY_PLACE,
    Accepted,
    AccountState,
    Capabilities,
    Deleted,
    DocumentSource,
    Downloaded,
    Finished,
    Gone,
    JobPhase,
    JobStatus,
    LookedUp,
    Option,
    PreparedRequest,
    ProviderConfig,
    ResultRef,
)
from batches.providers.errors import ContractBroken, InvalidInput, NotFound, TooLarge
from batches.providers.http import Answer, Call, whole_number
from batches.providers.jsonapi import JsonApi, json_body

CONTRACT = 1
#: 5.2: C(A1, A7).
SYNC_BYTES, EVENT_BYTES = 6 * 1024 * 1024, 1024 * 1024
#: What the function answers or writes as its marker is a few hundred bytes.
WORDS_BYTES = 256 * 1024
#: 5.7: C(A1): an event waits so long at most, and is run twice more after a function's error.
EVENT_SECONDS = 6 * 3600
EVENT_REPEATS = 3
#: 5.3: C(A4): the longest that any function may run.
FUNCTION_SECONDS_MOST = 900
#: So many large documents may wait for a slot, and are not put into the bucket again.
PUT_REMEMBERED = 1000
#: Our keys, and nothing that could leave the prefix or be read as two addresses.
_KEY = re.compile(r"[A-Za-z0-9_\-]{1,100}")

CAPABILITIES = Capabilities(
    client_key=False,  # 5.7: C(A1)
    sources=frozenset({"html"}),
    billed_unit="request and compute time",  # 5.12: INFERRED
    look_up=True,  # 5.5: the key names the file
    look_up_after=FUNCTION_SECONDS_MOST,
    remote_delete=True,  # 5.11: C(A1)
    cancel=False,  # 5.11: C(A1)
    # 8.3: the file's name is unique, so there is one result; a repeat that meets a run under way costs one more run.
    resend_is_harmless=True,
)


class AWSLambda(JsonApi):
    """One function and its bucket; see `base.Provider` for what each call promises."""

    kind = "lambda"
    label = "AWS Lambda"
    base_url = "https://lambda.eu-central-1.amazonaws.com"
    options: tuple[Option, ...] = OPTIONS
    capabilities = CAPABILITIES
    refusals = answers.REFUSALS
    size_headers = ("x-amz-meta-bytes",)

    @classmethod
    def problems(cls, config: ProviderConfig) -> list[str]:
        return found_problems(config)

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        self.settings = settings = Settings.of(config)
        late = EVENT_SECONDS + EVENT_REPEATS * FUNCTION_SECONDS_MOST if settings.is_event else FUNCTION_SECONDS_MOST
        self.capabilities = replace(CAPABILITIES, data_region=settings.region or None, look_up_after=late)
        self._signer = Signer(config.api_key, settings.region)
        #: Keys of large documents that lie in the bucket and have not passed their gate. To put one takes longer than a
        #: slot waits: if it were put again for the next slot, it would miss that one as well, and each after it.
        self._put: set[str] = set()
        function = f"{config.base_url}/2015-03-31/functions/{quote(settings.function, safe='')}/invocations"
        self._function_url = function + (f"?Qualifier={quote(settings.qualifier)}" if settings.qualifier else "")

    # --- submitting --------------------------------------------------------------------------------------------------

    def prepare(self, source: DocumentSource) -> PreparedRequest:
        """The event of the contract. Where the file goes is part of it, so it is part of what is hashed."""
        if source.kind not in self.capabilities.sources:
            raise InvalidInput(f"The function takes html, not {source.kind!r}.")
        if not source.text.strip():
            raise InvalidInput("The document is empty.")
        settings, key = self.settings, KEY_PLACE.decode("ascii")
        out = {
            "bucket": settings.bucket,
            "key": f"{settings.prefix}{key}.pdf",
            "error_key": f"{settings.prefix}{key}.err.json",
        }
        fields = {
            "contract": CONTRACT,
            "html": source.text,
            "options": dict(source.options),
            "timeout_seconds": settings.timeout,
        }
        body = json_body(source, fields, keyed={"job_key": key, "out": out})
        if len(body) > self._payload_bytes and not settings.large_by_s3:
            raise InvalidInput(
                f"The document takes {len(body)} bytes as a request, and Lambda takes {self._payload_bytes}. Make it "
                "smaller, or let the account put large documents into the bucket first."
            )
        return PreparedRequest("/2015-03-31/functions/[function]/invocations", body)

    @property
    def _payload_bytes(self) -> int:
        return EVENT_BYTES if self.settings.is_event else SYNC_BYTES

    def submit(
        self, request: PreparedRequest, *, idempotency_key: str, now: datetime, gate: Callable[[], None]
    ) -> Accepted | Finished:
        """A document too large for an event is put into the bucket before, which begins and bills no render."""
        body = request.keyed(idempotency_key)
        if len(body) > self._payload_bytes:
            body = self._put_input(idempotency_key, body, now)

        def passed() -> None:
            gate()
            self._put.discard(idempotency_key)

        kind = "Event" if self.settings.is_event else "RequestResponse"
        call = self._invocation("submit", kind, body, secrets=(idempotency_key,), gate=passed)
        with self.client.open(call, now=now) as answer:
            if answer.status == 202:
                answer.read_some(WORDS_BYTES)
                facts = answer.facts(status_word="queued", id=redaction.masked(idempotency_key))
                return Accepted(idempotency_key, "queued", facts)
            if answer.status != 200:
                raise answers.refusal(answer, now)
            return self._answered(answer, idempotency_key)

    def _answered(self, answer: Answer, key: str) -> Accepted | Finished:
        """5.4: C(A1): what the function returned, or that it broke off, both with 200."""
        try:
            told = reading.json_value(answer.read(WORDS_BYTES))
        except TooLarge as error:
            raise answer.error(ContractBroken, error.words) from None
        if answer.headers.get("X-Amz-Function-Error"):
            raise answers.function_error(answer, told)
        if not isinstance(told, dict) or told.get("job_key") != key:
            raise answer.error(
                ContractBroken, "The function did not answer as its contract says, so its PDF may exist."
            )
        word = reading.status_word(told.get("status"))
        phase = answers.PHASES.get(word, JobPhase.RUNNING)
        if phase is JobPhase.FAILED:
            code, words = answers.failure(told, secrets=answer.call.secrets, sent=answer.call.body)
            raise answer.error(InvalidInput, f"The function refuses the document: {words}", code=code)
        facts = answer.facts(status_word=word, id=redaction.masked(key))
        if phase is JobPhase.SUCCEEDED:
            return Finished(key, word, ResultRef(key, size_bytes=whole_number(told.get("bytes"))), facts)
        return Accepted(key, word, facts)  # a word of a later contract: what is in the bucket tells

    def _put_input(self, key: str, body: bytes, now: datetime) -> bytes:
        """Put the whole event beside where its PDF will lie; the event that stands for it. A repeat writes the same."""
        name = self._input_name(key)
        if key not in self._put:
            self._asked(self._s3("submit", "PUT", name, key, body=body), now, 200)
            if len(self._put) >= PUT_REMEMBERED:
                self._put.clear()
            self._put.add(key)
        event = {"contract": CONTRACT, "input": {"bucket": self.settings.bucket, "key": name}, "job_key": key}
        return json.dumps(event, separators=(",", ":")).encode("ascii")

    # --- what is in the bucket ---------------------------------------------------------------------------------------

    def fetch_status(self, provider_job_id: str, *, now: datetime) -> JobStatus:
        """5.4: C(A1): no call tells of an execution, so its traces do. A PDF counts before a marker: the run that
        failed was not the last."""
        status, answer = self._seen("poll", provider_job_id, now)
        if status is None and not self.settings.is_event:
            raise answer.error(NotFound, "The bucket holds neither the PDF nor the marker of a failure.")
        return status or JobStatus(provider_job_id, JobPhase.RUNNING, "queued", answer.facts(status_word="queued"))

    def find_submission(self, idempotency_key: str, *, first_sent_at: datetime, now: datetime) -> LookedUp | None:
        status, answer = self._seen("look_up", idempotency_key, now)
        return LookedUp((status,), status.exchange) if status else LookedUp((), answer.facts())

    def _seen(self, kind: str, key: str, now: datetime) -> tuple[JobStatus | None, Answer]:
        """What the bucket tells of a key, and the last answer read; None where there is neither file nor marker."""
        answer = self._asked(self._s3(kind, "HEAD", self._pdf_name(key), key), now, 200, 404)
        if answer.status == 200:
            result = ResultRef(key, size_bytes=answer.declared_length())
            facts = answer.facts(status_word=answers.SUCCEEDED)
            return JobStatus(key, JobPhase.SUCCEEDED, answers.SUCCEEDED, facts, result=result), answer
        with self.client.open(self._s3(kind, "GET", self._marker_name(key), key), now=now) as answer:
            if answer.status == 200:
                return self._marked(answer, key), answer
            error = answers.s3_refusal(answer, now)
            if isinstance(error, NotFound):
                return None, answer
            raise error

    def _marked(self, answer: Answer, key: str) -> JobStatus:
        told = self._object(answer, max_bytes=WORDS_BYTES)
        if told.get("job_key") != key:
            raise answer.error(ContractBroken, "The marker in the bucket is about another document.")
        word = reading.status_word(told.get("status"))
        if word != answers.FAILED:
            return JobStatus(key, JobPhase.RUNNING, word, answer.facts(status_word=word))
        code, words = answers.failure(told, secrets=answer.call.secrets)
        facts = answer.facts(status_word=word, code=code)
        return JobStatus(key, JobPhase.FAILED, word, facts, error_code=code, error_words=words)

    def download(self, ref: ResultRef, sink: BinaryIO, *, max_bytes: int, now: datetime) -> Downloaded:
        """Straight from the bucket by the account's own key: a presigned link would die with the session that made it
        (5.5: C(I2))."""
        key = ref.provider_job_id
        call = self._s3("download", "GET", self._pdf_name(key), key)
        call = replace(call, seconds=self.config.download_timeout)
        with self.client.open(call, now=now) as answer:
            if answer.status != 200:
                raise answers.on_download(answer, now)
            return self._poured(answer, ref, sink, max_bytes)

    def delete_remote(self, ref: ResultRef, *, now: datetime) -> Deleted:
        """S3 says of no deletion whether there was something (204 for both), so that is asked before."""
        key = ref.provider_job_id
        if self.settings.large_by_s3:
            self._asked(self._s3("delete", "DELETE", self._input_name(key), key), now, 204)
        answer = self._asked(self._s3("delete", "HEAD", self._pdf_name(key), key), now, 200, 404)
        if answer.status == 404:
            return Deleted(already_gone=True, exchange=answer.facts())
        answer = self._asked(self._s3("delete", "DELETE", self._pdf_name(key), key), now, 204)
        return Deleted(already_gone=False, exchange=answer.facts())

    def is_gone(self, ref: ResultRef, *, now: datetime) -> Gone:
        """In a bucket with versions a deletion only hides the file, and S3 says so (INFERRED, generic AWS)."""
        key = ref.provider_job_id
        answer = self._asked(self._s3("delete", "HEAD", self._pdf_name(key), key), now, 200, 404)
        is_hidden = answer.headers.get("x-amz-delete-marker", "").lower() == "true"
        return Gone(answer.status == 404 and not is_hidden, answer.facts(is_hidden=is_hidden))

    # --- the account -------------------------------------------------------------------------------------------------

    def check_account(self, *, now: datetime) -> AccountState:
        """A dry run, which runs nothing (5.2: C(A1)), and a list of one file at most: what rendering needs."""
        with self.client.open(self._invocation("account", "DryRun", b"{}"), now=now) as answer:
            if answer.status != 204:
                raise answers.refusal(answer, now)
        call = self._s3("account", "GET", "", query=f"?list-type=2&max-keys=1&prefix={quote(self.settings.prefix, '')}")
        exchange = self._asked(call, now, 200).facts()
        version = f" ({self.settings.qualifier})" if self.settings.qualifier else ""
        plan = f"{self.settings.function}{version} in {self.settings.region}"
        return AccountState(plan=redaction.cleaned(plan, limit=100), rate_tier="", exchange=exchange)

    # --- requests ----------------------------------------------------------------------------------------------------

    def _pdf_name(self, key: str) -> str:
        return f"{self.settings.prefix}{key}.pdf"

    def _marker_name(self, key: str) -> str:
        return f"{self.settings.prefix}{key}.err.json"

    def _input_name(self, key: str) -> str:
        return f"{self.settings.prefix}{key}.in.json"

    def _invocation(
        self,
        kind: str,
        invocation: str,
        body: bytes,
        *,
        secrets: tuple[str, ...] = (),
        gate: Callable[[], None] | None = None,
    ) -> Call:
        headers = {"Content-Type": "application/json", "X-Amz-Invocation-Type": invocation}
        return self._signed(
            "lambda",
            Call(
                kind=kind,
                method="POST",
                url=self._function_url,
                route="/2015-03-31/functions/[function]/invocations",
                headers=headers,
                body=body,
                secrets=secrets,
                seconds=self.config.connect_timeout + min(self.config.read_timeout, self.settings.answer_seconds),
                gate=gate,
            ),
        )

    def _s3(self, kind: str, method: str, name: str, key: str = "", *, body: bytes = b"", query: str = "") -> Call:
        if key and not _KEY.fullmatch(key):
            raise NotFound("The id is none that this account's files are named by.")
        encoded = quote(name, safe="/~")
        shown = name.removeprefix(self.settings.prefix).replace(key, redaction.masked(key)) if key else "[list]"
        return self._signed(
            "s3",
            Call(
                kind=kind,
                method=method,
                url=f"{self.settings.bucket_url}/{encoded}{query}",
                route=f"/[bucket]/{shown}",
                headers={"Content-Type": "application/json"} if body else {},
                body=body,
                secrets=(key, encoded),
                seconds=self.call_seconds,
            ),
        )

    def _signed(self, service: str, call: Call) -> Call:
        signed = self._signer.headers(service, call.method, call.url, dict(call.headers), call.body)
        key_id, _, secret = self.config.api_key.partition(":")
        secrets: tuple[Any, ...] = (*call.secrets, self.config.api_key, key_id, *secret.split(":"))
        # Compressed, the length that an answer declares would not be that of the PDF.
        headers = {**signed, "Accept-Encoding": "identity"}
        return replace(call, headers=headers, secrets=tuple(filter(None, secrets)))

    def _asked(self, call: Call, now: datetime, *statuses: int) -> Answer:
        """S3's answer, closed by then, where its status is one of these and all that counts."""
        with self.client.open(call, now=now) as answer:
            if answer.status not in statuses:
                raise answers.s3_refusal(answer, now)
            answer.read_some(WORDS_BYTES)  # so that the connection can be used again
            return answer
