"""What is AWS Lambda's own: one file per key however often it runs, a bucket that tells of jobs, and signatures."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from botocore.exceptions import ClientError

from batches.conf import ENGINE
from batches.providers import aws, make_provider
from batches.providers.aws_lambda import EVENT_BYTES, SYNC_BYTES, AWSLambda
from batches.providers.base import Accepted, DocumentSource, Finished, JobPhase, ProviderConfig, ResultRef
from batches.providers.errors import (
    AnswerLost,
    ContractBroken,
    InvalidInput,
    NotFound,
    NotSent,
    ProviderError,
    RateLimited,
    ServerFault,
    StrangeRefusal,
    Unauthorized,
)
from tests.providers.conformance import MAX_BYTES, open_gate, utc_now
from tests.providers.lambda_double import (
    API_KEY,
    BAD,
    FUNCTION,
    KEY_ID,
    REGION,
    SECRET,
    TOKEN,
    LambdaDouble,
    s3_service,
)

KEY = "5e" * 32


@pytest.fixture(scope="module")
def s3_url() -> Iterator[str]:
    with s3_service() as url:
        yield url


@pytest.fixture
def double(s3_url: str) -> Iterator[LambdaDouble]:
    with LambdaDouble(s3_url=s3_url) as double:
        yield double


def config(double: LambdaDouble, options: dict[str, str] | None = None, **more: Any) -> ProviderConfig:
    fields = double.account_fields()
    said = {"api_key": API_KEY, "base_url": double.url, **more}
    return ProviderConfig("lambda", options=fields["options"] | (options or {}), **said)


def adapter(double: LambdaDouble, options: dict[str, str] | None = None, **more: Any) -> AWSLambda:
    made = make_provider("lambda", config(double, options, **more))
    assert isinstance(made, AWSLambda)
    return made


def submit(provider: AWSLambda, text: str = "Invoice for Adaeze Okoye") -> Accepted | Finished:
    request = provider.prepare(DocumentSource("html", f"<p>{text}</p>"))
    return provider.submit(request, idempotency_key=KEY, now=utc_now(), gate=open_gate)


def names(double: LambdaDouble) -> set[str]:
    listed = double.s3.list_objects_v2(Bucket=double.bucket).get("Contents", [])
    return {each["Key"].removeprefix(f"jobs/{KEY}") for each in listed}


# --- one key, one file -----------------------------------------------------------------------------------------------


def test_a_lost_answer_is_repeated_and_the_first_file_found(double: LambdaDouble) -> None:
    provider = adapter(double)
    double.fault("submit", "drop", effect=True)
    with pytest.raises(AnswerLost):
        submit(provider)
    answer = submit(provider)
    assert isinstance(answer, Finished)
    assert (
        answer.result.size_bytes == double.s3.head_object(Bucket=double.bucket, Key=f"jobs/{KEY}.pdf")["ContentLength"]
    )
    assert sum(double.billed.values()) == 1, "the second run found the file and drew nothing"
    assert names(double) == {".pdf"}


def test_two_runs_at_once_store_one_file_and_answer_the_same(double: LambdaDouble) -> None:
    """What it costs at worst: both draw, the one that stores second is turned away and answers about the first."""
    provider = adapter(double)
    body = provider.prepare(DocumentSource("html", "<p>Invoice</p>")).keyed(KEY)
    held, handler = threading.Barrier(2, timeout=10), double.function
    head = handler.__globals__["s3"].head_object
    seen: list[int] = []

    def both_look(**given: Any) -> Any:
        try:
            return head(**given)
        finally:
            seen.append(1)
            if len(seen) <= 2:
                held.wait()

    answers: list[Any] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(handler.__globals__["s3"], "head_object", both_look)
        runs = [threading.Thread(target=lambda: answers.append(double.run(body))) for _ in range(2)]
        for run in runs:
            run.start()
        for run in runs:
            run.join(20)
    assert sum(double.billed.values()) == 2
    assert answers[0] == answers[1]
    assert answers[0]["status"] == "succeeded"


def test_a_call_is_sent_once_whatever_becomes_of_it(double: LambdaDouble) -> None:
    """Amazon's own client would have sent each of these three to five times."""
    double.fault("submit", "slow", seconds=3)
    double.fault("submit", "answer", status=429, body={"message": "Rate Exceeded."})
    double.fault("submit", "answer", status=500, body={"message": "Sorry."})
    for kind in (AnswerLost, RateLimited, ServerFault):
        with pytest.raises(kind):
            submit(adapter(double, read_timeout=0.3))
    assert len(double.seen("submit")) == 3


def test_a_run_that_meets_another_one_storing_tries_again_and_gives_up_in_the_end(double: LambdaDouble) -> None:
    """409: another run is storing right now; 412: another run has."""
    client, body = double.function.__globals__["s3"], adapter(double).prepare(DocumentSource("html", "<p>x</p>"))
    put, told = client.put_object, iter([409, 409, None, *[409] * 5])

    def storing(**given: Any) -> Any:
        status = next(told)
        if status is None:
            return put(**given)
        raise ClientError({"Error": {}, "ResponseMetadata": {"HTTPStatusCode": status}}, "PutObject")  # type: ignore[typeddict-item]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(client, "put_object", storing)
        assert double.run(body.keyed(KEY))["status"] == "succeeded"
        with pytest.raises(ClientError):
            double.run(body.keyed("6f" * 32))
    assert list(told) == []


@pytest.mark.parametrize(("switch", "renders"), [("throws_before", 1), ("throws_after", 1)])
def test_a_function_that_throws_leaves_the_outcome_open(double: LambdaDouble, switch: str, renders: int) -> None:
    provider = adapter(double)
    double.set[switch] = 1
    with pytest.raises(ServerFault) as caught:
        submit(provider)
    assert (caught.value.status, caught.value.code) == (200, "RuntimeError")
    assert "network of the function was away" in caught.value.words
    assert isinstance(submit(provider), Finished)
    assert sum(double.billed.values()) == renders


def test_an_event_that_is_delivered_twice_or_throws_ends_as_one_file(double: LambdaDouble) -> None:
    double.set |= {"deliveries": 2, "throws_before": 2}
    provider = adapter(double, {"invocation": "Event"})
    assert isinstance(submit(provider), Accepted)
    ended = threading.Event()
    for _ in range(500):
        status = provider.fetch_status(KEY, now=utc_now())
        if status.phase is not JobPhase.RUNNING:
            break
        ended.wait(0.01)
    assert status.phase is JobPhase.SUCCEEDED
    assert names(double) == {".pdf"}


def test_a_refused_document_is_marked_and_a_pdf_counts_before_the_marker(double: LambdaDouble) -> None:
    provider = adapter(double)
    with pytest.raises(InvalidInput) as caught:
        submit(provider, BAD)
    assert caught.value.words == "The function refuses the document: The engine gave up."
    assert names(double) == {".err.json"}
    status = provider.fetch_status(KEY, now=utc_now())
    assert (status.phase, status.error_code, status.error_words) == (
        JobPhase.FAILED,
        "render_failed",
        "The engine gave up.",
    )
    double.s3.put_object(Bucket=double.bucket, Key=f"jobs/{KEY}.pdf", Body=b"%PDF-1.4")
    assert provider.fetch_status(KEY, now=utc_now()).phase is JobPhase.SUCCEEDED


def test_an_option_that_the_example_cannot_follow_is_refused_and_not_left_out(double: LambdaDouble) -> None:
    provider = adapter(double)
    request = provider.prepare(DocumentSource("html", "<p>x</p>", options={"format": "A5"}))
    with pytest.raises(InvalidInput) as caught:
        provider.submit(request, idempotency_key=KEY, now=utc_now(), gate=open_gate)
    assert caught.value.code == "unknown_option"


def test_the_example_draws_with_its_own_engine(s3_url: str) -> None:
    with LambdaDouble(s3_url=s3_url, engine="plutoprint") as double:
        provider, sink = adapter(double), io.BytesIO()
        answer = submit(provider)
        assert isinstance(answer, Finished)
        provider.download(answer.result, sink, max_bytes=MAX_BYTES, now=utc_now())
        assert sink.getvalue().startswith(b"%PDF-")
        head = double.s3.head_object(Bucket=double.bucket, Key=f"jobs/{KEY}.pdf")
        assert head["Metadata"]["version"] == "7"
        assert head["Metadata"]["bytes"] == str(len(sink.getvalue()))


# --- what is too large -----------------------------------------------------------------------------------------------


def test_a_large_document_is_refused_in_words_or_goes_by_the_bucket(double: LambdaDouble) -> None:
    text = "x" * EVENT_BYTES
    small = adapter(double, {"invocation": "Event"})
    with pytest.raises(InvalidInput, match="Lambda takes 1048576"):
        small.prepare(DocumentSource("html", text))
    adapter(double).prepare(DocumentSource("html", text))
    provider = adapter(double, {"invocation": "Event", "large": "bucket"})
    gates: list[set[str]] = []
    request = provider.prepare(DocumentSource("html", text))
    provider.submit(request, idempotency_key=KEY, now=utc_now(), gate=lambda: gates.append(names(double)))
    assert gates == [{".in.json"}], "the gate is that of the call, which is what is paced and billed"
    waiting = threading.Event()
    while provider.fetch_status(KEY, now=utc_now()).phase is JobPhase.RUNNING:
        waiting.wait(0.01)
    assert names(double) == {".in.json", ".pdf"}
    provider.delete_remote(ResultRef(KEY), now=utc_now())
    assert names(double) == set()


def test_a_large_document_that_missed_its_slot_is_not_put_again_and_so_meets_the_next(double: LambdaDouble) -> None:
    """Putting takes longer than a slot waits; done again for each, no slot would ever be met."""
    provider = adapter(double, {"large": "bucket"})
    request = provider.prepare(DocumentSource("html", "x" * SYNC_BYTES))

    def missed() -> None:
        raise KeyError("slot")

    with pytest.raises(KeyError):
        provider.submit(request, idempotency_key=KEY, now=utc_now(), gate=missed)
    assert (len(double.seen("input")), len(double.seen("submit"))) == (1, 0)
    double.fault("submit", "drop")
    with pytest.raises(AnswerLost):
        provider.submit(request, idempotency_key=KEY, now=utc_now(), gate=open_gate)
    assert len(double.seen("input")) == 1
    assert isinstance(provider.submit(request, idempotency_key=KEY, now=utc_now(), gate=open_gate), Finished)
    assert len(double.seen("input")) == 2, "what was sent once is put again: by then a rule may have taken it away"


# --- what the answers mean -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (429, "TooManyRequestsException", RateLimited),
        (500, "ServiceException", ServerFault),
        (502, "EC2ThrottledException", ServerFault),
        (408, "SnapStartTimeoutException", ServerFault),
        (409, "ResourceConflictException", ServerFault),
        (409, "SnapStartNotReadyException", ServerFault),
        (502, "ResourceNotReadyException", ServerFault),
        (413, "RequestTooLargeException", InvalidInput),
        (400, "InvalidRequestContentException", InvalidInput),
        (415, "UnsupportedMediaTypeException", InvalidInput),
        (403, "AccessDeniedException", Unauthorized),
        (403, "ExpiredTokenException", Unauthorized),
        (404, "ResourceNotFoundException", Unauthorized),
        (502, "KMSDisabledException", Unauthorized),
        (502, "InvalidRuntimeException", Unauthorized),
        (404, "", StrangeRefusal),
        (403, "", StrangeRefusal),
        (301, "", Unauthorized),
    ],
)
def test_lambdas_own_refusals(double: LambdaDouble, status: int, code: str, kind: type[ProviderError]) -> None:
    headers = {"x-amzn-ErrorType": f"{code}:http://internal.amazon.example/"} if code else {}
    double.fault("submit", "answer", status=status, headers=headers, body={"message": "No."})
    with pytest.raises(ProviderError) as caught:
        submit(adapter(double))
    assert (type(caught.value), caught.value.code) == (kind, code)


def test_too_many_at_once_says_which_limit_and_how_long(double: LambdaDouble) -> None:
    headers = {"x-amzn-ErrorType": "TooManyRequestsException", "Retry-After": "3"}
    says = {"Reason": "ReservedFunctionConcurrentInvocationLimitExceeded", "message": "Rate Exceeded."}
    double.fault("submit", "answer", status=429, headers=headers, body=says)
    with pytest.raises(RateLimited) as caught:
        submit(adapter(double))
    assert caught.value.retry_after == 3
    assert "ReservedFunctionConcurrentInvocationLimitExceeded" in caught.value.words
    assert caught.value.exchange is not None
    assert caught.value.exchange.response["reason"] == says["Reason"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("Sandbox.Timedout", ServerFault),
        ("Runtime.OutOfMemory", ServerFault),
        ("Runtime.ImportModuleError", Unauthorized),
        ("Function.ResponseSizeTooLarge", Unauthorized),
    ],
)
def test_an_error_of_the_function_comes_with_200(double: LambdaDouble, code: str, kind: type[ProviderError]) -> None:
    told = {"errorType": code, "errorMessage": "Task failed at Invoice for Adaeze Okoye, the customer"}
    double.fault("submit", "answer", status=200, headers={"X-Amz-Function-Error": "Unhandled"}, body=told)
    with pytest.raises(ProviderError) as caught:
        submit(adapter(double))
    assert (type(caught.value), caught.value.code) == (kind, code)
    assert "Adaeze Okoye" not in f"{caught.value.words} {caught.value.exchange!r}"


@pytest.mark.parametrize("told", [{"job_key": "another", "status": "succeeded"}, {"status": "succeeded"}])
def test_an_answer_about_another_document_proves_nothing(double: LambdaDouble, told: dict[str, str]) -> None:
    double.fault("submit", "answer", status=200, body=told)
    with pytest.raises(ContractBroken):
        submit(adapter(double))


def test_a_word_of_a_later_contract_is_left_to_the_bucket(double: LambdaDouble) -> None:
    double.fault("submit", "answer", status=200, body={"job_key": KEY, "status": "handed_on"}, effect=True)
    provider = adapter(double)
    answer = submit(provider)
    assert isinstance(answer, Accepted)
    assert answer.status_word == "handed_on"
    assert provider.fetch_status(KEY, now=utc_now()).phase is JobPhase.SUCCEEDED


# --- the bucket ------------------------------------------------------------------------------------------------------


def test_what_is_not_there_is_on_its_way_by_an_event_and_missing_after_a_call(double: LambdaDouble) -> None:
    assert adapter(double, {"invocation": "Event"}).fetch_status(KEY, now=utc_now()).phase is JobPhase.RUNNING
    with pytest.raises(NotFound):
        adapter(double).fetch_status(KEY, now=utc_now())


def test_without_the_right_to_list_a_missing_file_is_told_in_words(double: LambdaDouble) -> None:
    double.set["lists"] = False
    provider = adapter(double, {"invocation": "Event"})
    with pytest.raises(Unauthorized, match="s3:ListBucket"):
        provider.fetch_status(KEY, now=utc_now())
    with pytest.raises(NotFound, match="s3:ListBucket"):
        provider.download(ResultRef(KEY), io.BytesIO(), max_bytes=MAX_BYTES, now=utc_now())


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (403, "InvalidAccessKeyId", Unauthorized),
        (400, "ExpiredToken", Unauthorized),
        (301, "PermanentRedirect", Unauthorized),
        (404, "NoSuchBucket", Unauthorized),
        (503, "SlowDown", ServerFault),
        (409, "OperationAborted", ServerFault),
        (416, "InvalidRange", ContractBroken),
    ],
)
def test_s3s_own_refusals(double: LambdaDouble, status: int, code: str, kind: type[ProviderError]) -> None:
    double.fault("download", "answer", status=status, body=f"<Error><Code>{code}</Code></Error>")
    with pytest.raises(ProviderError) as caught:
        adapter(double).download(ResultRef(KEY), io.BytesIO(), max_bytes=MAX_BYTES, now=utc_now())
    assert (type(caught.value), caught.value.code) == (kind, code)


def test_a_deletion_is_confirmed_unless_the_bucket_only_hides_the_file(double: LambdaDouble) -> None:
    provider = adapter(double)
    answer = submit(provider)
    assert isinstance(answer, Finished)
    assert not provider.is_gone(answer.result, now=utc_now()).is_gone
    assert not provider.delete_remote(ResultRef(KEY), now=utc_now()).already_gone
    assert provider.is_gone(answer.result, now=utc_now()).is_gone
    double.fault("poll", "answer", status=404, body="", headers={"x-amz-delete-marker": "true"})
    assert not provider.is_gone(answer.result, now=utc_now()).is_gone


def test_a_marker_about_another_document_ends_nothing(double: LambdaDouble) -> None:
    told = json.dumps({"job_key": "another", "status": "failed", "error": {"code": "x", "message": "y"}})
    double.s3.put_object(Bucket=double.bucket, Key=f"jobs/{KEY}.err.json", Body=told.encode())
    with pytest.raises(ContractBroken):
        adapter(double).fetch_status(KEY, now=utc_now())


# --- whose requests they are -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", [f"{KEY_ID}:another+secret:{TOKEN}", f"AKIASTRANGER:{SECRET}:{TOKEN}", f"{KEY_ID}:{SECRET}"]
)
def test_a_wrong_key_is_the_accounts_fault_at_both_services(double: LambdaDouble, key: str) -> None:
    stranger = adapter(double, api_key=key)
    for call in (
        lambda: submit(stranger),
        lambda: stranger.check_account(now=utc_now()),
        lambda: stranger.fetch_status(KEY, now=utc_now()),
    ):
        with pytest.raises(Unauthorized) as caught:
            call()
        told = f"{caught.value!r} {caught.value.words} {caught.value.exchange!r}"
        assert not any(part in told for part in key.split(":"))
    assert not double.jobs


def test_names_that_have_to_be_encoded_are_signed_as_they_are_sent(double: LambdaDouble) -> None:
    arn = f"arn:aws:lambda:{REGION}:123456789012:function:{FUNCTION}"
    provider = adapter(double, {"function": arn, "qualifier": "live", "prefix": "2026 (a)/it's*/".replace(" ", "")})
    assert isinstance(submit(provider), Finished)
    assert provider.fetch_status(KEY, now=utc_now()).phase is JobPhase.SUCCEEDED
    assert provider.check_account(now=utc_now()).plan.endswith(f"{FUNCTION} (live) in {REGION}")
    assert [request.path.partition("?")[2] for request in double.seen("submit")] == ["Qualifier=live"] * 2


class _Role(BaseHTTPRequestHandler):
    """What hands a container the credentials of its role."""

    def do_GET(self) -> None:
        told = {"AccessKeyId": KEY_ID, "SecretAccessKey": SECRET, "Token": TOKEN, "Expiration": "2999-01-01T00:00:00Z"}
        body = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without a role, with a stranger's key in its environment."""
    for name in (
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_ROLE_ARN",
        "AWS_PROFILE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    return monkeypatch


def test_without_a_key_the_machines_role_is_used(double: LambdaDouble, nowhere: pytest.MonkeyPatch) -> None:
    server = HTTPServer(("127.0.0.1", 0), _Role)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}/role"
    nowhere.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", address)
    nowhere.delenv("AWS_ACCESS_KEY_ID")
    try:
        assert isinstance(submit(adapter(double, api_key="")), Finished)
    finally:
        server.shutdown()
        server.server_close()
    nowhere.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/role")
    nowhere.setattr("botocore.utils.ContainerMetadataFetcher.SLEEP_TIME", 0)
    with pytest.raises(NotSent):
        submit(adapter(double, api_key=""))


def test_a_key_that_the_environment_happens_to_hold_is_not_used(
    double: LambdaDouble, nowhere: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unauthorized, match="no role of its own"):
        submit(adapter(double, api_key=""))
    assert not double.requests


@pytest.mark.parametrize("key", ["", "id", "id:", ":secret", "id:secret:token:more", "id:se cret", "id:sécret"])
def test_the_form_of_a_key(key: str) -> None:
    assert aws.key_parts(key) == ()


# --- settings --------------------------------------------------------------------------------------------------------


def test_the_doubles_account_has_no_problems(double: LambdaDouble) -> None:
    assert AWSLambda.problems(config(double, read_timeout=ENGINE.read_timeout)) == []
    assert AWSLambda.problems(config(double, {"invocation": "Event", "timeout": "900"}, api_key="")) == []


@pytest.mark.parametrize(
    ("options", "more", "words"),
    [
        ({"timeout": "11"}, {"read_timeout": 20.0}, "to 10 s, or have it called by an event"),
        ({"timeout": "901"}, {}, "from 1 to 900"),
        ({"timeout": "ten"}, {}, "from 1 to 900"),
        ({"region": "Frankfurt"}, {}, "is no region"),
        ({"region": "eu-west-1"}, {"base_url": "https://lambda.eu-central-1.amazonaws.com"}, "not in the region"),
        ({"bucket": "My_Bucket"}, {}, "small letters"),
        ({"prefix": "/jobs"}, {}, "end in a slash"),
        ({"prefix": "../"}, {}, "end in a slash"),
        ({"function": "a function"}, {}, "or an ARN"),
        ({"s3_url": "s3.example.com"}, {}, "no http or https address"),
        ({}, {"api_key": "AKIAINVENTED"}, "a colon between"),
    ],
)
def test_what_cannot_be_used_is_said(
    double: LambdaDouble, options: dict[str, str], more: dict[str, Any], words: str
) -> None:
    (problem,) = AWSLambda.problems(config(double, options, **more))
    assert words in problem


@pytest.mark.parametrize(
    ("region", "bucket", "url"),
    [
        (REGION, "documents", "https://documents.s3.eu-central-1.amazonaws.com"),
        (REGION, "docs.example", "https://s3.eu-central-1.amazonaws.com/docs.example"),
        ("cn-north-1", "documents", "https://documents.s3.cn-north-1.amazonaws.com.cn"),
    ],
)
def test_where_a_bucket_is(double: LambdaDouble, region: str, bucket: str, url: str) -> None:
    provider = adapter(double, {"region": region, "bucket": bucket, "s3_url": ""})
    assert provider.settings.bucket_url == url
    assert provider.capabilities.data_region == region
