"""RelayPDF's contract after a submission: how odd answers are read about a job, its file and the account."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from batches.providers.base import JobPhase, ResultRef
from batches.providers.errors import (
    AnswerLost,
    ContractBroken,
    InsufficientCredit,
    NotFound,
    ProviderError,
    RateLimited,
    ServerFault,
    Unauthorized,
)
from batches.providers.relaypdf import RelayPDF
from batches.providers.relaypdf_answers import result_in
from tests.providers.conformance import CASES
from tests.providers.relaypdf_double import API_KEY, RelayPDFDouble

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
CUT = (CASES / "079-cut.pdf").read_bytes()
WHOLE = (CASES / "079-whole.pdf").read_bytes()


# --- status ----------------------------------------------------------------------------------------------------------


def odd_status_lines() -> list[str]:
    return (CASES / "062-odd-status.jsonl").read_text(encoding="utf-8").splitlines()


def test_odd_status_answers_seen_in_the_wild_are_never_final(provider: RelayPDF, double: RelayPDFDouble) -> None:
    words = []
    for line in odd_status_lines():
        double.answer("poll", 200, line.encode(), {"Content-Type": "application/json"})
        try:
            status = provider.fetch_status("job_1", now=NOW)
        except ContractBroken as error:
            words.append(f"broken: {error.exchange and error.exchange.status}")
        else:
            assert status.phase is JobPhase.RUNNING
            words.append(status.status_word)
    assert words == ["rendering_fonts", "WAITING", "", "", *["broken: 200"] * 4]


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (7, "7"),
        (["completed"], '["completed"]'),
        (True, "true"),
        ({"a": "failed"}, '{"a": "failed"}'),
        ("x" * 500, None),
    ],
)
def test_a_status_of_another_type_is_shown_and_not_final(
    provider: RelayPDF, double: RelayPDFDouble, value: Any, word: str | None
) -> None:
    double.answer("poll", 200, {"id": "pdf_1", "status": value})
    status = provider.fetch_status("pdf_1", now=NOW)
    assert status.phase is JobPhase.RUNNING
    assert status.status_word == word or len(status.status_word) == 100


def test_a_completed_job_is_read_in_both_spellings_and_without_a_link(
    provider: RelayPDF, double: RelayPDFDouble
) -> None:
    double.answer(
        "poll",
        200,
        {"id": "pdf_1", "status": "completed", "size_bytes": "586", "expires_at": "2026-03-03T10:00:00+01:00"},
    )
    result = provider.fetch_status("pdf_1", now=NOW).result
    assert result == ResultRef("pdf_1", "", 586, datetime(2026, 3, 3, 9, tzinfo=UTC))
    odd = {"url": 7, "sizeBytes": -1, "expiresAt": "soon", "filename": ["x"], "unknown": {"deep": [1]}}
    double.answer("poll", 200, {"id": "pdf_1", "status": "completed", **odd})
    assert provider.fetch_status("pdf_1", now=NOW).result == ResultRef("pdf_1")


def test_a_failure_with_hostile_words_is_cleaned(provider: RelayPDF, double: RelayPDFDouble) -> None:
    double.answer("poll", 200, (CASES / "104-job-failed-nul.json").read_bytes(), {"Content-Type": "application/json"})
    status = provider.fetch_status("job_1", now=NOW)
    assert status.phase is JobPhase.FAILED
    assert status.error_code == "render_failed"
    assert status.error_words == "Unexpected token \N{REPLACEMENT CHARACTER} near ? <b>row</b>"
    assert status.unbilled
    status.error_words.encode("utf-8")


def test_a_failure_with_a_megabyte_of_words_is_shortened(provider: RelayPDF, double: RelayPDFDouble) -> None:
    error = {"code": "c" * 5000, "message": "m" * 1_000_000}
    double.answer("poll", 200, {"id": "pdf_1", "status": "failed", "error": error})
    status = provider.fetch_status("pdf_1", now=NOW)
    assert len(status.error_words) <= 500
    assert len(status.error_code) <= 100
    assert len(repr(status.exchange)) < 2000


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (None, "", "gives no reason"),
        ("it broke", "", "it broke"),
        ({"message": "it broke"}, "", "it broke"),
        ({"code": "processing_failed"}, "processing_failed", "gives no reason"),
    ],
)
def test_a_failure_without_a_code_is_not_taken_as_unbilled(
    provider: RelayPDF, double: RelayPDFDouble, error: Any, code: str, words: str
) -> None:
    double.answer("poll", 200, {"id": "pdf_1", "status": "failed", "error": error})
    status = provider.fetch_status("pdf_1", now=NOW)
    assert status.error_code == code
    assert words in status.error_words
    assert status.unbilled is (code == "processing_failed")


def test_warnings_of_the_renderer_are_kept(provider: RelayPDF, double: RelayPDFDouble) -> None:
    found = ["font missing\x00", {"page": 2, "text": "empty"}, None, 7, *["more"] * 50]
    double.answer("poll", 200, {"id": "pdf_1", "status": "completed", "warnings": found})
    warnings = provider.fetch_status("pdf_1", now=NOW).warnings
    assert warnings[:3] == ("font missing\N{REPLACEMENT CHARACTER}", '{"page": 2, "text": "empty"}', "7")
    assert len(warnings) <= 20
    double.answer("poll", 200, {"id": "pdf_1", "status": "completed", "warnings": "one only"})
    assert provider.fetch_status("pdf_1", now=NOW).warnings == ("one only",)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (404, None, NotFound),
        (410, b"<html>gone</html>", NotFound),
        (401, None, Unauthorized),
        (403, None, Unauthorized),
        (429, None, RateLimited),
        (500, None, ServerFault),
        (400, {"error": {"code": "invalid_request"}}, ContractBroken),
        (409, None, ContractBroken),
        (302, None, Unauthorized),
    ],
)
def test_a_refused_status_read_says_nothing_about_the_document(
    provider: RelayPDF, double: RelayPDFDouble, status: int, body: Any, kind: type[ProviderError]
) -> None:
    double.answer("poll", status, body, {"Location": "/login"} if status == 302 else None)
    with pytest.raises(ProviderError) as caught:
        provider.fetch_status("pdf_1", now=NOW)
    assert type(caught.value) is kind


# --- download, deletion, account -------------------------------------------------------------------------------------


def fetch(provider: RelayPDF, sink: io.BytesIO, size: int | None = None) -> Any:
    return provider.download(ResultRef("pdf_1", size_bytes=size), sink, max_bytes=10_000, now=NOW)


def test_a_file_that_is_cut_mid_body_is_lost(provider: RelayPDF, double: RelayPDFDouble) -> None:
    promised = b"HTTP/1.1 200 OK\r\nContent-Type: application/pdf\r\nContent-Length: %d\r\n\r\n" % len(WHOLE)
    double.raw("download", promised + CUT)
    with pytest.raises(AnswerLost):
        fetch(provider, io.BytesIO())
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % len(CUT)
    double.raw("download", chunked + CUT + b"\r\n")
    with pytest.raises(AnswerLost):
        fetch(provider, io.BytesIO())


def test_every_declared_size_is_reported(provider: RelayPDF, double: RelayPDFDouble) -> None:
    names = {"Content-Type": "application/pdf", "X-Pdfforge-Size": "586", "X-Relaypdf-Size": "nonsense"}
    double.answer("download", 200, CUT, names)
    downloaded = fetch(provider, io.BytesIO(), size=586)
    assert downloaded.byte_count == len(CUT)
    assert downloaded.declared_sizes == (len(CUT), 586, 586)


def test_a_packed_file_is_unpacked_and_its_packed_length_not_reported(
    provider: RelayPDF, double: RelayPDFDouble
) -> None:
    import gzip

    packed = gzip.compress(WHOLE)
    names = {"Content-Type": "application/pdf", "Content-Encoding": "gzip", "X-Relaypdf-Size": str(len(WHOLE))}
    double.answer("download", 200, packed, names)
    sink = io.BytesIO()
    downloaded = fetch(provider, sink)
    assert sink.getvalue() == WHOLE
    assert downloaded.declared_sizes == (len(WHOLE),)
    assert double.requests[0].headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, NotFound),
        (403, NotFound),
        (404, NotFound),
        (410, NotFound),
        (402, InsufficientCredit),
        (429, RateLimited),
        (500, ServerFault),
        (400, ContractBroken),
        (204, ContractBroken),
        (206, ContractBroken),
    ],
)
def test_a_refused_download_speaks_of_the_link(
    provider: RelayPDF, double: RelayPDFDouble, status: int, kind: type[ProviderError]
) -> None:
    double.answer("download", status, b"<Error/>" if status != 204 else None)
    with pytest.raises(ProviderError) as caught:
        fetch(provider, io.BytesIO())
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("wallet", "balance"),
    [
        ({"balanceMillicents": 500000}, "500000"),
        ({"balance_millicents": -3}, "-3"),
        ({"balanceMillicents": 0}, "0"),
        ({"balanceMillicents": "12.5"}, "12.5"),
        ({"balanceMillicents": 0.1}, "0.1"),
        ({"balanceMillicents": True}, None),
        ({"balanceMillicents": "plenty"}, None),
        ({"balanceMillicents": "NaN"}, None),
        ({"balanceMillicents": "Infinity"}, None),
        ({"balanceMillicents": 10**15}, None),
        ({"balanceMillicents": None}, None),
        ({"balanceMillicents": [1]}, None),
        ({}, None),
        ([], None),
        (None, None),
    ],
)
def test_a_balance_is_read_as_it_stands_or_not_at_all(
    provider: RelayPDF, double: RelayPDFDouble, wallet: Any, balance: str | None
) -> None:
    double.answer("account", 200, {"plan": "free", "wallet": wallet})
    assert provider.check_account(now=NOW).balance == (None if balance is None else Decimal(balance))


@pytest.mark.parametrize(("status", "body"), [(200, {"ok": True}), (204, None), (200, b""), (202, None)])
def test_any_2xx_is_a_deletion(provider: RelayPDF, double: RelayPDFDouble, status: int, body: Any) -> None:
    double.answer("delete", status, body)
    assert not provider.delete_remote(ResultRef("pdf_1"), now=NOW).already_gone
    assert double.requests[0].headers["Authorization"] == f"Bearer {API_KEY}"


def test_a_file_that_is_gone_counts_as_deleted(provider: RelayPDF) -> None:
    assert provider.delete_remote(ResultRef("pdf_1"), now=NOW).already_gone


def test_the_account_is_read_tolerantly(provider: RelayPDF, double: RelayPDFDouble) -> None:
    state = provider.check_account(now=NOW)
    assert (state.plan, state.rate_tier) == ("free", "free")
    assert state.raw["wallet"] == {"balanceMillicents": 500000}
    double.answer("account", 200, {"plan": None, "rate_tier": 7})
    state = provider.check_account(now=NOW)
    assert (state.plan, state.rate_tier) == ("", "")
    double.answer("account", 200, b"<html>Welcome</html>", {"Content-Type": "text/html"})
    with pytest.raises(ContractBroken):
        provider.check_account(now=NOW)


@pytest.mark.parametrize(("length", "kept"), [(4096, True), (4097, False), (1_000_000, False)])
def test_an_address_of_any_length_is_not_kept_because_the_id_finds_the_file(length: int, kept: bool) -> None:
    url = "https://files.example.com/".ljust(length, "a")
    assert result_in({"url": url}, "pdf_7").url == (url if kept else "")


# --- receipts --------------------------------------------------------------------------------------------------------

AT = "2026-03-02T08:59:00Z"


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ({"receipts": [{"id": "rcpt_1", "jobId": "pdf_7", "createdAt": AT}]}, [(("pdf_7", "rcpt_1"), True)]),
        ([{"job_id": "pdf_7", "timestamp": AT}], [(("pdf_7",), True)]),
        ({"total": 3, "data": [{"job": {"id": "pdf_7"}, "date": "yesterday"}]}, [(("pdf_7",), False)]),
        ({"usage": [{"job": "pdf_7", "at": 7}, "odd", None, {"amount": 4}]}, [(("pdf_7",), False)]),
        ({"receipts": []}, []),
    ],
    ids=str,
)
def test_receipts_are_read_in_whatever_shape_they_come(
    answer: Any, found: list[tuple[tuple[str, ...], bool]], provider: RelayPDF, double: RelayPDFDouble
) -> None:
    double.answer("billing", 200, answer)
    receipts = provider.list_receipts(now=NOW)
    assert receipts is not None
    assert [(each.job_ids, each.at is not None) for each in receipts.entries] == found


def test_what_is_no_list_of_receipts_is_said_to_be_none(provider: RelayPDF, double: RelayPDFDouble) -> None:
    double.answer("billing", 200, {"total": 3})
    with pytest.raises(ContractBroken, match="no list of receipts"):
        provider.list_receipts(now=NOW)
