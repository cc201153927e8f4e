"""What is DocRaptor's own: its switches, the traps of its notes, its list of attempts, and its official client."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import docraptor
import pytest

from batches.providers.base import KEY_PLACE, DocumentSource, JobPhase, ProviderConfig, ResultRef
from batches.providers.docraptor import DocRaptor
from batches.providers.docraptor_answers import error_words
from batches.providers.errors import (
    AnswerLost,
    ContractBroken,
    InvalidInput,
    NotFound,
    ProviderError,
    RateLimited,
    StrangeRefusal,
    TooManyAtOnce,
    Unauthorized,
)
from tests.providers import docraptor_double
from tests.providers.conformance import MAX_BYTES, open_gate, utc_now
from tests.providers.docraptor_double import API_KEY, DocRaptorDouble
from tests.providers.docraptor_service import TEST_KEY

KEY = "4" * 64
SOURCE = DocumentSource("html", "<h1>INV-7</h1>", filename="invoice.pdf")
CALLBACK_URL = "https://batches.example.com/webhooks/docraptor/7f0c2a"


@pytest.fixture
def double() -> Iterator[DocRaptorDouble]:
    with DocRaptorDouble() as double:
        yield double


def adapter(double: DocRaptorDouble | None = None, **fields: Any) -> DocRaptor:
    options = {name: str(fields.pop(name)) for name in ("mode", "hosting", "network") if name in fields}
    base_url = double.url if double else "http://127.0.0.1:1"
    return DocRaptor(
        ProviderConfig("d", base_url, **{"api_key": API_KEY, "options": options, "read_timeout": 5} | fields)
    )


def submitted(provider: DocRaptor, key: str = KEY, source: DocumentSource = SOURCE) -> str:
    answer = provider.submit(provider.prepare(source), idempotency_key=key, now=utc_now(), gate=open_gate)
    return answer.provider_job_id


def finished(double: DocRaptorDouble, provider: DocRaptor, job_id: str) -> Any:
    double.finish(double.jobs[job_id])
    return provider.fetch_status(job_id, now=utc_now())


def wire(provider: DocRaptor, source: DocumentSource = SOURCE) -> dict[str, Any]:
    return json.loads(provider.prepare(source).keyed(KEY))


# --- requests ---


@pytest.mark.parametrize(("mode", "test"), [("live", False), ("test", True), (None, False)])
def test_whether_it_is_a_test_is_always_said(mode: str | None, test: bool) -> None:
    """Trap 5: left out, one client means a watermark by it and another one a bill."""
    provider = adapter(**({"mode": mode} if mode else {}))
    assert wire(provider)["test"] is test
    capabilities = provider.capabilities
    assert capabilities.test_mode
    assert ("free" in capabilities.billed_unit, capabilities.billed_unit == "document") == (test, not test)


def test_the_key_stands_in_name_and_tag_and_in_the_address_of_the_callback() -> None:
    provider = adapter(callback_url=CALLBACK_URL)
    assert provider.prepare(SOURCE).body.count(KEY_PLACE) == 3
    sent = wire(provider)
    assert (sent["name"], sent["tag"], sent["callback_url"]) == (KEY, KEY, f"{CALLBACK_URL}/{KEY}")
    assert len(sent["name"]) <= 200, "a longer name is accepted and fails later"
    assert "callback_url" not in wire(adapter()), "no public address, no callback: reading goes on all the same"


def test_a_document_that_holds_the_place_of_a_key_stays_as_it_is() -> None:
    text = f"<p>{KEY_PLACE.decode()}</p>"
    assert wire(adapter(), DocumentSource("html", text))["document_content"] == text


def test_documents_load_nothing_from_the_network_unless_the_account_lets_them() -> None:
    source = DocumentSource("html", "<p>x</p>", options={"no_network": False, "media": "print"})
    assert wire(adapter(), source)["prince_options"] == {"media": "print", "no_network": True}
    loading = adapter(network="yes")
    assert wire(loading, source)["prince_options"] == {"media": "print", "no_network": False}
    page = DocumentSource("url", "https://shop.example.com/invoice/7")
    assert wire(loading, page)["document_url"] == page.text
    assert (adapter().capabilities.sources, loading.capabilities.sources) == ({"html"}, {"html", "url"})
    with pytest.raises(InvalidInput, match="load nothing from the network"):
        adapter().prepare(page)


def test_the_key_is_the_user_of_basic_authentication(double: DocRaptorDouble) -> None:
    submitted(adapter(double))
    (seen,) = double.seen("submit")
    scheme, encoded = seen.headers["Authorization"].split()
    assert (scheme, base64.b64decode(encoded)) == ("Basic", f"{API_KEY}:".encode())
    assert (seen.path, seen.headers["Content-Type"]) == ("/async_docs", "application/json")


def test_the_public_test_key_is_no_key_for_real_documents() -> None:
    config = ProviderConfig("d", "https://api.docraptor.com", TEST_KEY)
    (words,) = DocRaptor.problems(config)
    assert "test documents only" in words
    assert DocRaptor.problems(ProviderConfig("d", "https://x.example", TEST_KEY, options={"mode": "test"})) == []
    assert DocRaptor.problems(ProviderConfig("d", "https://x.example", "key")) == []


def test_hosted_files_need_a_host_that_they_may_be_fetched_from() -> None:
    hosted = ProviderConfig("d", DocRaptor.base_url, "key", options={"hosting": "hosted"})
    (words,) = DocRaptor.problems(hosted)
    assert "download hosts" in words
    assert DocRaptor.problems(dataclasses.replace(hosted, download_hosts=("docraptor.com",))) == []
    assert DocRaptor.problems(dataclasses.replace(hosted, options={"hosting": "once"})) == []


# --- the traps ---


def test_too_many_at_once_is_no_429_and_leaves_open_whether_the_key_is_good(double: DocRaptorDouble) -> None:
    """Trap 3: 403 for both; the engine reads it by what is in flight (tests/engine/test_submission.py)."""
    double.switches.most_at_once, double.switches.render_seconds = 1, 60
    provider = adapter(double)
    first = submitted(provider)
    with pytest.raises(TooManyAtOnce) as caught:
        submitted(provider, "5" * 64)
    assert isinstance(caught.value, RateLimited)
    assert (caught.value.status, caught.value.retry_after) == (403, None)
    assert "too many" in caught.value.words
    assert "the key may not" in caught.value.words
    assert isinstance(caught.value.as_refused_key(), Unauthorized)
    double.finish(double.jobs[first])
    submitted(provider, "5" * 64)
    assert double.ledger() == {"accepted": 2, "billed": {KEY: 1, "5" * 64: 1}}


class Caller:
    """An address of ours that callbacks come to."""

    def __init__(self) -> None:
        self.came: list[tuple[str, bytes]] = []
        caller = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                caller.came.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/webhooks/d/token"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


@pytest.fixture
def caller() -> Iterator[Caller]:
    caller = Caller()
    yield caller
    caller.close()


@pytest.mark.parametrize("as_form", [False, True])
def test_a_success_is_called_back_and_a_failure_never(double: DocRaptorDouble, caller: Caller, as_form: bool) -> None:
    """Trap 4: so status reads go on; the callback names no job of ours but by its address."""
    double.switches.callback_is_early = True  # before the answer, which is also when no id of it is known here
    double.switches.callback_form, double.switches.callback_times = as_form, 2
    provider = adapter(double, callback_url=caller.url)
    submitted(provider)
    (path, body), repeated = caller.came
    assert path == f"/webhooks/d/token/{KEY}"
    assert repeated == (path, body)
    (event,) = provider.parse_webhook(body)
    assert (event.type, event.provider_job_id, event.phase) == ("completed", "", None)
    capabilities = provider.capabilities
    assert (capabilities.webhook_success, capabilities.webhook_failure, capabilities.status_poll) == (True, False, True)
    double.misbehave("fail")
    failed = submitted(provider, "5" * 64)
    assert provider.fetch_status(failed, now=utc_now()).phase is JobPhase.FAILED
    assert len(caller.came) == 2, "of the failure nobody was told"


def test_a_callback_of_another_form_is_no_event() -> None:
    for body in (b"", b"\xff\xfe", b"[1]", b"<status/>"):
        with pytest.raises(ValueError, match="neither JSON nor a form"):
            adapter().parse_webhook(body)
    named = adapter().parse_webhook(b'{"status_id": "abc", "download_url": "http://10.0.0.1/x"}')
    assert [(each.type, each.provider_job_id) for each in named] == [("callback", "abc")]


def test_a_file_is_asked_for_once_and_only_to_fetch_it(double: DocRaptorDouble) -> None:
    """Trap 6: each GET uses the link up a little, so nothing probes, and nothing below us repeats one."""
    provider = adapter(double)
    result = finished(double, provider, submitted(provider)).result
    assert double.seen("download") == []
    double.misbehave("download_drop")
    with pytest.raises(AnswerLost):
        provider.download(result, io.BytesIO(), max_bytes=MAX_BYTES, now=utc_now())
    assert len(double.seen("download")) == 1, "a lost answer is not asked for again by itself"
    for _ in range(double.switches.download_uses - 1):
        provider.download(result, io.BytesIO(), max_bytes=MAX_BYTES, now=utc_now())
    assert {seen.method for seen in double.seen("download")} == {"GET"}
    with pytest.raises(NotFound, match="used too often"):
        provider.download(result, io.BytesIO(), max_bytes=MAX_BYTES, now=utc_now())


def test_a_kept_connection_that_died_repeats_no_get(double: DocRaptorDouble) -> None:
    provider = adapter(double)
    result = finished(double, provider, submitted(provider)).result
    for _ in range(2):
        double.misbehave("download_drop")
        with pytest.raises(AnswerLost):
            provider.download(result, io.BytesIO(), max_bytes=MAX_BYTES, now=utc_now())
    assert len(double.seen("download")) == 2


# --- answers ---


def test_a_status_that_is_400_is_read_again(double: DocRaptorDouble) -> None:
    provider = adapter(double)
    job_id = submitted(provider)
    double.misbehave("poll_error", status=400)
    with pytest.raises(ContractBroken, match="Not now"):
        provider.fetch_status(job_id, now=utc_now())
    assert finished(double, provider, job_id).phase is JobPhase.SUCCEEDED


@pytest.mark.parametrize(
    ("body", "ends_with"),
    [
        ({"status": "completed", "download_key": "k9"}, "/download/k9"),  # the old name of it
        ({"status": "completed", "download_id": "a/b", "download_url": "https://evil.example/x"}, "/download/a%2Fb"),
        ({"status": "completed", "download_url": "https://docraptor.com/download/k9"}, "docraptor.com/download/k9"),
    ],
)
def test_where_a_file_lies(double: DocRaptorDouble, body: dict[str, str], ends_with: str) -> None:
    provider = adapter(double)
    job_id = submitted(provider)
    double.misbehave("poll_answer", body=body)
    result = provider.fetch_status(job_id, now=utc_now()).result
    assert result is not None
    assert result.url.endswith(ends_with)
    double.misbehave("poll_answer", body={"status": "completed"})
    with pytest.raises(ContractBroken):
        provider.fetch_status(job_id, now=utc_now())


def test_a_name_that_is_too_long_is_accepted_and_fails_later(double: DocRaptorDouble) -> None:
    provider = adapter(double)
    status = finished(double, provider, submitted(provider, "4" * 201))
    assert status.phase is JobPhase.FAILED
    assert "too long" in status.error_words


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (400, b"<errors><error>Bad &amp; malformed</error></errors>", InvalidInput, "DocRaptor: Bad & malformed"),
        (422, b"<errors><error>One</error><error>Two</error></errors>", InvalidInput, "DocRaptor: One Two"),
        (422, b'{"errors": ["One"]}', InvalidInput, 'DocRaptor: ["One"]'),
        (422, b"", InvalidInput, "DocRaptor answered 422 without words."),
        (401, b"<errors><error>No.</error></errors>", Unauthorized, "DocRaptor: No."),
        (404, b"<html>nginx</html>", StrangeRefusal, "not as DocRaptor does"),
        (302, b"", Unauthorized, "not followed"),
    ],
)
def test_what_a_refusal_of_a_submission_means(
    double: DocRaptorDouble, status: int, body: bytes, kind: type[ProviderError], words: str
) -> None:
    double.fault("submit", lambda handler, _behave: handler.reply(docraptor_double.Reply(status, body)))
    with pytest.raises(kind) as caught:
        submitted(adapter(double))
    assert words in caught.value.words


def test_errors_that_quote_the_document_or_a_link_do_not_keep_it() -> None:
    sent = adapter().prepare(DocumentSource("html", "<p>Invoice for Adaeze Okoye, 12 Rue X</p>")).body
    body = b"<errors><error>Line 1: Invoice for Adaeze Okoye, 12 Rue X at https://docraptor.com/d/77</error></errors>"
    words = error_words(body, secrets=(), sent=sent)
    assert words == "Line 1: [document] at [link]"


# --- hosted files ---


@pytest.mark.parametrize("status", [404, 403, 410, 400])
def test_a_hosted_file_is_open_until_it_is_deleted_and_then_provably_gone(double: DocRaptorDouble, status: int) -> None:
    double.switches.expired_status = status
    provider = adapter(double, hosting="hosted")
    job_id = submitted(provider)
    result = finished(double, provider, job_id).result
    assert double.seen("submit")[0].path == "/hosted_async_docs"
    assert not provider.is_gone(result, now=utc_now()).is_gone
    provider.download(result, io.BytesIO(), max_bytes=MAX_BYTES, now=utc_now())
    assert not any("Authorization" in seen.headers for seen in double.seen("download")), "it needs no key"
    deleted = provider.delete_remote(result, now=utc_now())
    assert (deleted.already_gone, deleted.exchange.request["method"]) == (False, "PATCH")
    assert len(double.seen("delete")) == 1, "one call is one exchange"
    gone = provider.is_gone(result, now=utc_now())
    assert (gone.is_gone, gone.exchange.kind) == (True, "delete")
    with pytest.raises(NotFound):
        provider.download(result, io.BytesIO(), max_bytes=MAX_BYTES, now=utc_now())


def test_a_hosted_file_that_was_never_named_is_not_called_deleted(double: DocRaptorDouble) -> None:
    with pytest.raises(NotFound):
        adapter(double, hosting="hosted").delete_remote(ResultRef("unnamed"), now=utc_now())
    assert double.seen("delete") == []


# --- the list of attempts ---


def looked_up(provider: DocRaptor, key: str = KEY) -> Any:
    return provider.find_submission(key, first_sent_at=utc_now(), now=utc_now())


@pytest.mark.parametrize("wraps", [False, True])
def test_a_list_that_shows_ids_names_the_job(double: DocRaptorDouble, wraps: bool) -> None:
    double.switches.log_shows_ids, double.switches.log_wraps_lines = True, wraps
    provider = adapter(double)
    job_id = submitted(provider)
    submitted(provider, "5" * 64)
    looked = looked_up(provider)
    assert [(job.provider_job_id, job.phase) for job in looked.jobs] == [(job_id, JobPhase.RUNNING)]
    assert looked.nameless == 0
    assert abs(looked.jobs[0].created_at - utc_now()) < timedelta(minutes=1)


def test_the_list_is_turned_to_its_end_whether_it_heeds_bounds_or_not(double: DocRaptorDouble) -> None:
    provider = adapter(double)
    submitted(provider)
    for number in range(220):
        double.submit(
            json.dumps({"name": str(number), "document_type": "pdf", "document_content": "x"}).encode(),
            is_async=False,
            is_hosted=False,
            with_test_key=False,
        )
    old = [job for job in double.jobs.values() if int(job.number) % 2]
    for heeds in (True, False):
        double.switches.log_heeds_bounds = heeds
        assert looked_up(provider).nameless == 1
        assert looked_up(provider, "none").nameless == 0
    for job in old[1:]:
        job.made_at -= 3600
    pages = len(double.seen("logs"))
    assert looked_up(provider).nameless == 1
    assert len(double.seen("logs")) - pages <= 4


def test_a_list_that_cannot_be_turned_proves_nothing_of_a_key_that_was_not_seen(double: DocRaptorDouble) -> None:
    double.switches.log_heeds_pages = False
    provider = adapter(double)
    submitted(provider)
    assert looked_up(provider).nameless == 1
    assert looked_up(provider, "none") is None
    double.misbehave("garbage_list")
    with pytest.raises(ContractBroken):
        looked_up(provider)


# --- the official client, unchanged ---


@pytest.fixture
def client(double: DocRaptorDouble) -> docraptor.DocApi:
    client = docraptor.DocApi()
    client.api_client.configuration.host = double.url
    client.api_client.configuration.username = API_KEY
    return client


def asked(**more: Any) -> dict[str, Any]:
    return {"name": "a.pdf", "document_type": "pdf", "document_content": "<h1>INV-7</h1>", "test": False} | more


def test_the_double_serves_the_official_client(double: DocRaptorDouble, client: docraptor.DocApi) -> None:
    whole = client.create_doc(asked())
    assert bytes(whole).startswith(b"%PDF-")
    made = client.create_async_doc(asked(tag="t-1"))
    double.finish(double.jobs[made.status_id])
    status = client.get_async_doc_status(made.status_id)
    assert (status.status, status.number_of_pages) == ("completed", 1)
    assert bytes(client.get_async_doc(status.download_id)).startswith(b"%PDF-")
    hosted = client.create_hosted_async_doc(asked())
    double.finish(double.jobs[hosted.status_id])
    status = client.get_async_doc_status(hosted.status_id)
    with urllib.request.urlopen(status.download_url, timeout=5) as answer:
        assert answer.read().startswith(b"%PDF-")
    client.expire(status.download_id)
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(status.download_url, timeout=5)
    assert client.create_hosted_doc(asked()).download_url.startswith(double.url)
    for body, code in ((asked(document_content=""), 422), (asked(name=""), 422)):
        with pytest.raises(docraptor.rest.ApiException) as caught:
            client.create_async_doc(body)
        assert caught.value.status == code


def test_the_official_model_asks_for_a_test_unless_told_and_a_plain_object_says_nothing(
    double: DocRaptorDouble, client: docraptor.DocApi
) -> None:
    """Trap 5, as the client was measured."""
    client.create_async_doc(docraptor.Doc(name="a", document_type="pdf", document_content="x"))
    client.create_async_doc({"name": "a", "document_type": "pdf", "document_content": "x"})
    said = [json.loads(seen.body).get("test") for seen in double.seen("submit")]
    assert said == [True, None]
    assert double.ledger()["billed"] == {}, "as the specification reads a missing one"


# --- the double as a program ---


def test_the_double_is_a_program_with_controls_and_a_ledger(tmp_path: Path) -> None:
    double = docraptor_double.start(tmp_path, most_at_once=1, render_seconds=60)
    try:
        fields = double.account_fields()
        provider = DocRaptor(ProviderConfig("d", double.url, fields["api_key"], options=fields["options"]))
        double.misbehave("drop_after_acceptance")
        with pytest.raises(AnswerLost):
            submitted(provider)
        with pytest.raises(TooManyAtOnce):
            submitted(provider)
        assert double.ledger() == {"accepted": 1, "billed": {KEY: 1}}
        provider.close()
    finally:
        double.stop()


def test_hostile_every_document_meets_trouble_and_each_is_billed_once(double: DocRaptorDouble) -> None:
    double.hostile()
    provider = adapter(double)
    for number in range(8):
        key = f"{number}" * 64
        job_id = ""
        while not job_id:
            try:
                job_id = submitted(provider, key)
            except RateLimited:
                continue
        whole = b""
        while not whole:
            sink = io.BytesIO()
            try:
                result = finished(double, provider, job_id).result
                if result is not None:
                    downloaded = provider.download(result, sink, max_bytes=MAX_BYTES, now=utc_now())
                    whole = sink.getvalue() if downloaded.content_type == "application/pdf" else b""
            except ProviderError:
                continue
        assert b"INV-7" in whole
    assert double.ledger()["billed"] == {f"{number}" * 64: 1 for number in range(8)}
    assert len(double.seen("poll")) > 8
