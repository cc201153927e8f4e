"""What is rasterkit's own: codes that a status alone would misread, a key that stays at home, notices of one job."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from batches.providers import make_provider, rasterkit
from batches.providers.base import KEY_PLACE, DocumentSource, JobPhase, ProviderConfig, ProviderEvent, ResultRef
from batches.providers.errors import (
    ContractBroken,
    InsufficientCredit,
    InvalidInput,
    ProviderError,
    RateLimited,
    ServerFault,
    TargetRefused,
    Unauthorized,
)
from batches.providers.rasterkit import Rasterkit
from tests.providers.conformance import MAX_BYTES, open_gate, utc_now
from tests.providers.rasterkit_double import API_KEY, SIGNING_SECRET, RasterkitDouble

CALLBACK = "https://batches.example.com/webhooks/rasterkit/0token"


@pytest.fixture
def double() -> Iterator[RasterkitDouble]:
    with RasterkitDouble() as double:
        yield double


def adapter(double: RasterkitDouble, **more: Any) -> Rasterkit:
    made = make_provider("rasterkit", ProviderConfig("rasterkit", double.url, API_KEY, **more))
    assert isinstance(made, Rasterkit)
    return made


def submit(provider: Rasterkit) -> str:
    request = provider.prepare(DocumentSource("html", "<p>Invoice for Adaeze Okoye</p>"))
    answer = provider.submit(request, idempotency_key="5e" * 32, now=utc_now(), gate=open_gate)
    return answer.provider_job_id


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (429, "rate_limited", RateLimited),
        (429, "spend_cap_reached", InsufficientCredit),
        (402, "quota_exceeded", InsufficientCredit),
        (403, "key_suspended", Unauthorized),
        (413, "payload_too_large", InvalidInput),
        (422, "navigation_failed", InvalidInput),
        (451, "url_blocked", InvalidInput),
        (504, "render_timeout", ServerFault),
        (400, "something_new", InvalidInput),
    ],
)
def test_its_codes_say_whose_fault_it_is(
    double: RasterkitDouble, status: int, code: str, kind: type[ProviderError]
) -> None:
    double.fault("submit", "answer", status=status, body={"error": {"code": code, "message": "No."}})
    with pytest.raises(kind) as caught:
        submit(adapter(double))
    assert (type(caught.value), caught.value.code) == (kind, code)


def test_the_address_of_a_notice_ends_in_the_key_and_is_given_only_where_it_can_be_proven(
    double: RasterkitDouble,
) -> None:
    source = DocumentSource("html", "x", options={"waitUntil": "load", "format": "A4"})
    told = json.loads(adapter(double, callback_url=CALLBACK, webhook_secrets=("s",)).prepare(source).body)
    assert told == {
        "async": True,
        "format": "A4",
        "html": "x",
        "wait_until": "load",
        "webhook_url": f"{CALLBACK}/{KEY_PLACE.decode()}",
    }
    assert b"webhook_url" not in adapter(double, callback_url=CALLBACK).prepare(source).body
    with pytest.raises(InvalidInput, match="headerTemplate"):
        adapter(double).prepare(DocumentSource("html", "x", options={"headerTemplate": "<p>"}))


@pytest.mark.parametrize(
    ("callback_url", "secrets", "count"),
    [
        ("http://127.0.0.1:8000/webhooks/r/t", ("s",), 1),
        ("http://127.0.0.1:8000/webhooks/r/t", (), 0),
        (CALLBACK, ("s",), 0),
    ],
)
def test_an_address_that_it_would_refuse_with_the_document_is_told_before(
    callback_url: str, secrets: tuple[str, ...], count: int
) -> None:
    config = ProviderConfig(
        "rasterkit", Rasterkit.base_url, API_KEY, callback_url=callback_url, webhook_secrets=secrets
    )
    assert len(Rasterkit.problems(config)) == count


def test_the_key_is_shown_for_a_file_at_its_own_address_and_follows_no_redirect(double: RasterkitDouble) -> None:
    provider = adapter(double, download_hosts=("files.example.net",))
    job_id = submit(provider)
    sink = io.BytesIO()
    provider.download(
        ResultRef(job_id, url="https://elsewhere.example.net/x"), sink, max_bytes=MAX_BYTES, now=utc_now()
    )
    assert sink.getvalue() == double.jobs[job_id].file
    (seen,) = double.seen("download")
    assert seen.headers["X-Api-Key"] == API_KEY
    with RasterkitDouble() as other:
        double.fault("download", "answer", status=302, headers={"Location": f"{other.url}/v1/jobs/x/result"})
        with pytest.raises(TargetRefused):
            provider.download(ResultRef(job_id), sink, max_bytes=MAX_BYTES, now=utc_now())
        assert other.requests == []


def test_another_jobs_status_says_nothing_of_this_one(double: RasterkitDouble) -> None:
    provider = adapter(double)
    job_id = submit(provider)
    double.fault("poll", "answer", status=200, body={"id": "another", "status": "failed"})
    with pytest.raises(ContractBroken):
        provider.fetch_status(job_id, now=utc_now())
    double.fault("poll", "answer", status=200, body={"status": "failed", "error": "Out of memory."})
    failed = provider.fetch_status(job_id, now=utc_now())
    assert (failed.phase, failed.error_words) == (JobPhase.FAILED, "Out of memory.")


def test_the_example_of_how_to_add_a_provider_stays_short() -> None:
    assert len(Path(rasterkit.__file__).read_text(encoding="utf-8").splitlines()) < 250


def test_a_notice_names_its_job_and_a_strange_one_is_no_event(double: RasterkitDouble) -> None:
    provider = adapter(double, webhook_secrets=(SIGNING_SECRET,))
    assert provider.parse_webhook(b'{"id": "0d4f", "status": "succeeded"}') == [ProviderEvent("job.succeeded", "0d4f")]
    assert provider.parse_webhook(b'{"id": {}, "status": null}') == [ProviderEvent("job.", "")]
    for body in (b"[]", b"{", b"[" * 100_000):
        with pytest.raises(ValueError, match=r"."):
            provider.parse_webhook(body)
    assert timedelta(seconds=provider.capabilities.link_lifetime_seconds or 0) == timedelta(hours=24)
