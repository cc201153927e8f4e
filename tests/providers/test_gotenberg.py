"""What is Gotenberg's own: the form's exact bytes, the headers of a callback, its refusals, and settings that race."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gotenberg_client import GotenbergClient, HttpStatusError
from gotenberg_client.constants import A4

from batches.providers import gotenberg_form
from batches.providers.base import Accepted, Delivery, DocumentSource, Finished, ProviderConfig
from batches.providers.errors import (
    AnswerLost,
    ContractBroken,
    InvalidInput,
    NotFound,
    ProviderError,
    RateLimited,
    ServerFault,
    StrangeRefusal,
    Unauthorized,
)
from batches.providers.gotenberg import Gotenberg
from tests.providers import gotenberg_double
from tests.providers.conformance import open_gate, utc_now
from tests.providers.gotenberg_double import API_KEY, GotenbergDouble, read_form

CALLBACK_URL = "https://batches.example.com/webhooks/own-renderer/0t0k3n"
KEY = "5e" * 32
WELL = ProviderConfig(
    "own-renderer", "http://127.0.0.1:1", API_KEY, callback_url=CALLBACK_URL, options={"network": "files"}
)


@pytest.fixture
def double() -> Iterator[GotenbergDouble]:
    with GotenbergDouble() as double:
        yield double


def speaking_to(double: GotenbergDouble, mode: str = "async", **fields: Any) -> Gotenberg:
    options = {"mode": mode, "network": "files"}
    return Gotenberg(replace(WELL, base_url=double.url, options=options, **fields))


def sent(provider: Gotenberg, text: str = "<p>Invoice</p>") -> Accepted | Finished:
    request = provider.prepare(DocumentSource("html", text))
    try:
        return provider.submit(request, idempotency_key=KEY, now=utc_now(), gate=open_gate)
    finally:
        provider.close()


def form_of(text: str = "<p>é 発票</p>", **options: Any) -> gotenberg_double.Form:
    request = gotenberg_form.prepared(DocumentSource("html", text, options=options))
    return read_form(gotenberg_form.content_type_of(request.body), request.body)


# --- the form ---


def test_the_form_holds_the_page_as_utf_8_whatever_it_says_itself() -> None:
    form = form_of()
    assert form.files == {"index.html": b"\xef\xbb\xbf" + "<p>é 発票</p>".encode()}
    assert form.fields == dict(gotenberg_form.DEFAULTS)
    assert form_of("\ufeff<p>é 発票</p>") == form


def test_lines_and_bytes_of_the_page_arrive_as_they_are() -> None:
    text = "<p>\r\n--0\n\n\r--" + "x" * 100 + "\r\n</p>\n"
    assert form_of(text).files["index.html"][3:] == text.encode()


def test_the_boundary_follows_from_the_content_and_stands_nowhere_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (gotenberg_form.prepared(DocumentSource("html", f"<p>{text}</p>")).body for text in "ab")
    mark = first.split(b"\r\n", 1)[0]
    assert re.fullmatch(rb"--[0-9a-f]{64}", mark)
    assert mark not in second
    # A document that holds the boundary of a form that would otherwise be its own.
    parts = [b"one", b"two"]
    taken = gotenberg_form._boundary_of(parts)
    real = gotenberg_form.hashlib.sha256

    class Meets:
        """Says first what stands in the content."""

        def __init__(self, content: bytes) -> None:
            self._real, self._updates = real(content), 0

        def update(self, more: bytes) -> None:
            self._real.update(more)
            self._updates += 1

        def hexdigest(self) -> str:
            return self._real.hexdigest() if self._updates else taken.decode()

    monkeypatch.setattr(gotenberg_form.hashlib, "sha256", Meets)
    assert gotenberg_form._boundary_of([*parts, b"..." + taken]) != taken


def test_a_documents_options_become_fields_under_either_name() -> None:
    given = {
        "format": "A5",
        "landscape": True,
        "margin": {"top": "1cm", "left": 0},
        "pageRanges": "1-2",
        "preferCSSPageSize": False,
        "scale": 0.9,
        "waitUntil": "load",
        "timeout": 5,
        "waitDelay": "200ms",
        "failOnResourceHttpStatusCodes": [404],
    }
    fields = form_of(**given).fields
    assert (fields["paperWidth"], fields["paperHeight"]) == ("5.83", "8.27")
    assert (fields["marginTop"], fields["marginLeft"], fields["marginRight"]) == ("1cm", "0", "0.4")
    assert (fields["landscape"], fields["preferCssPageSize"], fields["scale"]) == ("true", "false", "0.9")
    assert (fields["nativePageRanges"], fields["waitDelay"]) == ("1-2", "200ms")
    assert fields["failOnResourceHttpStatusCodes"] == "[404]"
    assert not {"waitUntil", "timeout", "format", "margin"} & {*fields}
    assert form_of(width="10cm", format="a4").fields["paperWidth"] == "10cm", "the narrower one wins"


@pytest.mark.parametrize(
    "options",
    [
        {"watermark": "DRAFT"},
        {"format": "A99"},
        {"format": 4},
        {"margin": "1cm"},
        {"margin": {"middle": 1}},
        {"scale": float("inf")},
        {"scale": {"x": 1}},
        {"waitForExpression": "a\r\nb"},
        {"downloadFrom": "[]"},
        {"extraHttpHeaders": "{}"},
    ],
    ids=str,
)
def test_an_option_that_it_does_not_have_is_refused_and_not_dropped(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        form_of(**options)


# --- what leaves ---


def test_a_submission_names_one_address_for_both_and_never_the_older_one(double: GotenbergDouble) -> None:
    double.misbehave({"do": "callback_never"})
    answer = sent(speaking_to(double, webhook_secrets=("new-secret", "old-secret")))
    assert isinstance(answer, Accepted)
    assert answer.provider_job_id == KEY
    headers = double.requests[0].headers
    assert headers["Gotenberg-Webhook-Url"] == headers["Gotenberg-Webhook-Events-Url"] == f"{CALLBACK_URL}/{KEY}"
    assert headers["Gotenberg-Trace"] == KEY
    assert json.loads(headers["Gotenberg-Webhook-Extra-Http-Headers"]) == {"Authorization": "Bearer new-secret"}
    assert headers["Authorization"] == f"Basic {base64.b64encode(API_KEY.encode()).decode()}"
    assert not [name for name in headers if "error" in name.lower()]
    assert KEY not in repr(answer.exchange)
    assert CALLBACK_URL not in repr(answer.exchange)


def test_without_secret_and_password_none_is_sent(double: GotenbergDouble) -> None:
    double.api_key = ""
    double.misbehave({"do": "callback_never"})
    sent(speaking_to(double, api_key=""))
    assert not {"Authorization", "Gotenberg-Webhook-Extra-Http-Headers"} & {*double.requests[0].headers}


def test_in_the_answer_nothing_is_called_back(double: GotenbergDouble) -> None:
    provider = speaking_to(double, "sync")
    assert provider.capabilities.delivery is Delivery.ANSWER
    answer = sent(provider)
    assert isinstance(answer, Finished)
    assert (answer.provider_job_id, answer.content) == (KEY, gotenberg_double.pdf_of("Invoice"))
    assert not [name for name in double.requests[0].headers if "webhook" in name.lower()]


def test_a_server_whose_webhooks_are_off_answers_with_the_pdf_which_is_taken() -> None:
    with GotenbergDouble(webhooks=False) as double:
        answer = sent(speaking_to(double))
    assert isinstance(answer, Finished)
    assert answer.content is not None


# --- what it says ---


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidInput),
        (401, Unauthorized),
        (403, StrangeRefusal),
        (404, StrangeRefusal),
        (409, InvalidInput),
        (413, InvalidInput),
        (415, InvalidInput),
        (418, StrangeRefusal),
        (302, StrangeRefusal),
        (429, RateLimited),
        (500, ServerFault),
        (503, ServerFault),
        (206, ContractBroken),
    ],
)
def test_each_status_means_what_its_table_says(double: GotenbergDouble, status: int, kind: type[ProviderError]) -> None:
    double.misbehave({"do": "error_before_acceptance", "status": status})
    with pytest.raises(kind) as caught:
        sent(speaking_to(double))
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.code) == (status, str(status))


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_an_answer_about_another_document_is_none(double: GotenbergDouble, mode: str) -> None:
    double.misbehave({"do": "wrong_trace"})
    with pytest.raises(ContractBroken, match="another document"):
        sent(speaking_to(double, mode))


def test_a_pdf_that_breaks_off_is_a_lost_answer(double: GotenbergDouble) -> None:
    double.misbehave({"do": "truncated_answer"})
    with pytest.raises(AnswerLost):
        sent(speaking_to(double, "sync"))


def test_a_pdf_too_large_for_an_answer_is_the_documents_fault(
    double: GotenbergDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batches.providers.gotenberg.ANSWER_BYTES", 100)
    with pytest.raises(InvalidInput):
        sent(speaking_to(double, "sync"))


def test_a_check_asks_for_health_and_version_and_renders_nothing(double: GotenbergDouble) -> None:
    state = speaking_to(double).check_account(now=utc_now())
    assert state.plan == "Gotenberg 8.36.0"
    assert [each.path for each in double.requests] == ["/health", "/version"]
    assert not double.renders


@pytest.mark.parametrize(
    ("switches", "mode", "kind"),
    [
        ({"healthy": False}, "async", ServerFault),
        ({"version": "8.28.0"}, "async", ContractBroken),
        ({"version": "<html>Welcome</html>"}, "sync", ContractBroken),
        ({"api_key": "another:one"}, "sync", Unauthorized),
    ],
)
def test_a_check_says_what_cannot_be_used(switches: dict[str, Any], mode: str, kind: type[ProviderError]) -> None:
    with GotenbergDouble(**switches) as double, pytest.raises(kind):
        speaking_to(double, mode).check_account(now=utc_now())
    with GotenbergDouble(version="8.28.0") as double:
        assert speaking_to(double, "sync").check_account(now=utc_now()).plan == "Gotenberg 8.28.0"


def test_it_keeps_nothing_that_could_be_asked_for() -> None:
    provider = Gotenberg(WELL)
    for ask in (provider.list_webhooks, lambda now: provider.fetch_status(KEY, now=now)):
        with pytest.raises(NotFound):
            ask(now=utc_now())


# --- settings ---


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"callback_url": ""}, "PUBLIC_URL"),
        ({"api_key": ""}, ""),
        ({"api_key": "no-colon"}, "user:password"),
        ({"webhook_secrets": ("ümlaut",)}, "ASCII"),
        ({"options": {"network": "everything"}}, "must be one of: files, public"),
        ({"options": {"network": "files", "mode": "often"}}, "must be one of: async, sync"),
        ({"options": {"network": "files", "api_timeout": "soon"}}, "whole seconds"),
        ({"options": {"network": "files", "mode": "sync"}}, "raise our read timeout above 35 s"),
        ({"options": {"network": "files", "mode": "sync", "api_timeout": "10s"}, "callback_url": ""}, ""),
        ({"options": {"network": "files", "mode": "sync"}, "read_timeout": 36.0}, ""),
    ],
)
def test_settings_that_cannot_work_are_told_in_words(change: dict[str, Any], words: str) -> None:
    found = Gotenberg.problems(replace(WELL, **change))
    assert len(found) == bool(words)
    assert words in "".join(found)


def test_what_pages_may_reach_must_be_said_before_anything_is_sent() -> None:
    (network,) = (option for option in Gotenberg.options if option.name == "network")
    assert (network.required, network.default) == (True, "")
    assert "CHROMIUM_DENY_PRIVATE_IPS" in network.help
    assert "rendering inside" in network.help


# --- its own client ---


def test_the_double_serves_the_official_client_as_it_is(tmp_path: Path) -> None:
    user, _, password = API_KEY.partition(":")
    page = "<title>t</title><p>Invoice for Adaeze Okoye</p>"
    double = gotenberg_double.start(tmp_path)
    try:
        with GotenbergClient(double.url, auth=(user, password), backend="requests") as client:
            assert client.health.health().chromium is not None
            assert client.version.get() == gotenberg_double.VERSION
            with client.chromium.html_to_pdf() as route:
                pdf = route.string_index(page).size(A4).run().content
            assert pdf == gotenberg_double.pdf_of(page)
            client.add_webhook_url("http://127.0.0.1:1/never")
            client.add_error_webhook_url("http://127.0.0.1:1/never")
            double.misbehave({"do": "error_before_acceptance", "status": 409})
            with client.chromium.html_to_pdf() as route, pytest.raises(HttpStatusError):
                route.string_index(page).run()
        with GotenbergClient(double.url, backend="requests") as stranger, pytest.raises(HttpStatusError):
            stranger.version.get()
        assert double.ledger()["accepted"] == 1
    finally:
        double.stop()
