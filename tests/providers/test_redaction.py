"""What is left of an exchange when keys, documents, ids and links are taken out."""

from __future__ import annotations

import json

import pytest

from batches.providers import redaction


def test_a_masked_id_can_be_told_apart_but_not_used() -> None:
    first, second = redaction.masked("pdf_8sKq2LmZx0"), redaction.masked("pdf_8sKq2LmZx1")
    assert first != second
    assert first.startswith("pdf_…")
    assert "8sKq2" not in first
    assert redaction.masked("") == ""
    assert redaction.masked("half \ud83d") != redaction.masked("half ?")


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        ("plain words", "plain words"),
        ("  many \n\t\r spaces\u2028and lines ", "many spaces and lines"),
        ("a NUL \x00 here", "a NUL \N{REPLACEMENT CHARACTER} here"),
        ("bell \x07 and escape \x1b[31m", "bell \N{REPLACEMENT CHARACTER} and escape \N{REPLACEMENT CHARACTER}[31m"),
        ("half an emoji \ud83d", "half an emoji ?"),
        ("whole \U0001f9fe", "whole \U0001f9fe"),
        ("", ""),
    ],
)
def test_words_are_cleaned_for_any_database_and_page(raw: str, kept: str) -> None:
    assert redaction.cleaned(raw) == kept


@pytest.mark.parametrize("length", [501, 5_000, 1_000_000])
def test_long_words_are_cut_with_an_ellipsis(length: int) -> None:
    kept = redaction.cleaned("x" * length)
    assert len(kept) == redaction.MAX_WORDS
    assert kept.endswith("…")


@pytest.mark.parametrize(
    "text",
    [
        "see https://api.relaypdf.com/v1/files/pdf_Zk81secretid?sig=abc",
        "see HTTP://host/pdf_Zk81secretid",
        "GET /v1/jobs/pdf_Zk81secretid failed",
        "no file pdf_Zk81secretid.",
        "(pdf_Zk81secretid)",
        "Authorization: Bearer pdf_live_Q7rT2mVx81LkZp",
        "key pdf_live_Q7rT2mVx81LkZp is unknown",
        "another key pdf_live_Zk81secretid_abc",
        "secret whsec_Zk81secretid",
        "x" * 1990 + " pdf_Zk81secretid" + "y" * 100,
    ],
)
def test_ids_links_and_keys_are_masked_wherever_they_stand(text: str) -> None:
    kept = redaction.vendor_words(text, secrets=["pdf_Zk81secretid", "pdf_live_Q7rT2mVx81LkZp"])
    assert "Zk81" not in kept
    assert "Q7rT2" not in kept


@pytest.mark.parametrize("length", range(1975, 2005))
def test_a_secret_that_the_cut_splits_is_not_half_kept(length: int) -> None:
    kept = redaction.vendor_words(
        "x " * (length // 2) + "pdf_Zk81secretid and more words" * 40, secrets=["pdf_Zk81secretid"]
    )
    assert "Zk81" not in kept


@pytest.mark.parametrize("length", [2_001, 5_000, 1_000_000])
def test_one_long_word_keeps_its_beginning(length: int) -> None:
    """Minified JSON or base64 has no space to cut at, and nothing at all would tell nobody anything."""
    kept = redaction.vendor_words('{"error":"' + "x" * length)
    assert kept == '{"error":"' + "x" * (redaction.MAX_WORDS - 11) + "…"


def test_one_long_word_shows_no_secret_whole_or_half() -> None:
    secret = "pdf_" + "Zk81" * 40
    for before in range(0, 2100, 7):
        kept = redaction.vendor_words("-" * before + secret * 30, secrets=[secret])
        assert "Zk81" not in kept
        assert kept


def test_a_cut_that_masking_moves_into_sight_shows_no_half_secret() -> None:
    secret = "pdf_" + "Zk81" * 40
    assert "Zk81" not in redaction.vendor_words(f"{secret} " * 30, secrets=[secret])


def test_a_short_id_does_not_take_numbers_apart() -> None:
    assert (
        redaction.without_secrets("job 7 of 17, line 7", ["7"])
        == f"job {redaction.masked('7')} of 17, line {redaction.masked('7')}"
    )


def test_a_quotation_of_the_document_is_left_out_and_a_short_hint_stays() -> None:
    document = "<p>Invoice for Adaeze Okoye, 14 Harbour Road, 1.200,00 €, due on 3 April</p>"
    sent = json.dumps({"html": document}).encode()
    kept = redaction.vendor_words(f"Unexpected token near <p> in: {document} (line 1)", sent=sent)
    assert kept == "Unexpected token near <p> in: [document] (line 1)"


def test_a_quotation_of_a_body_in_plain_text_is_left_out_too() -> None:
    kept = redaction.vendor_words(
        "bad: Adaeze Okoye owes 1.200,00 € to us", sent="Adaeze Okoye owes 1.200,00 €".encode()
    )
    assert kept == "bad: [document] to us"


def test_only_harmless_headers_are_kept() -> None:
    headers = {
        "Content-Type": "application/json",
        "Retry-After": "soon\x00",
        "Set-Cookie": "session=1",
        "Location": "https://files.example.com/secret",
        "X-Relaypdf-Id": "pdf_Zk81secretid",
        "X-Request-Id": "req of pdf_Zk81secretid",
        "Server": "y" * 5000,
    }
    kept = redaction.kept_headers(headers, ["pdf_Zk81secretid"])
    assert set(kept) == {"content-type", "retry-after", "x-request-id", "server"}
    assert "Zk81" not in repr(kept)
    assert len(kept["server"]) == 200
