"""Encodings: what is evident is read, what is guessed is asked, and nothing is ever replaced."""

from __future__ import annotations

import codecs
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batches.manifests import Choices, Code, decoding, from_upload, look
from tests.manifests.samples import check_look, refusal, uploaded
from tests.manifests.test_fuzz import examples

TABLE = "id;html\nMüller;<p>Grüße – 10 €</p>\nŁódź;<p>x</p>\n"
WESTERN = "id;html\nMüller;<p>Grüße – 10 €</p>\n"


@pytest.mark.parametrize(
    ("raw", "encoding"),
    [
        (TABLE.encode(), "utf-8"),
        (codecs.BOM_UTF8 + TABLE.encode(), "utf-8-sig"),
        (TABLE.encode("utf-16"), "utf-16"),
        (codecs.BOM_UTF16_BE + TABLE.encode("utf-16-be"), "utf-16"),
        (TABLE.encode("utf-16-le"), "utf-16-le"),
        (TABLE.encode("utf-16-be"), "utf-16-be"),
        (TABLE.encode("utf-32"), "utf-32"),
    ],
)
def test_unicode_is_read_without_a_question(raw: bytes, encoding: str) -> None:
    with uploaded(raw) as manifest:
        assert manifest.encoding == encoding
        assert [row.business_id for row in manifest.rows] == ["Müller", "Łódź"]
    seen = look(from_upload(io.BytesIO(raw), "a.csv"))
    assert (seen.encoding, seen.is_encoding_guessed, seen.questions) == (encoding, False, ())
    assert seen.other_encodings == ()


def test_anything_else_is_refused_until_a_person_has_chosen() -> None:
    raw = WESTERN.encode("cp1252")
    refused = refusal(raw)
    assert refused.code is Code.NOT_UTF8
    assert refused.line == 2
    assert "choose the encoding" in refused.fix

    with uploaded(raw, choices=Choices(encoding="windows-1252")) as manifest:
        assert manifest.encoding == "windows-1252"
        assert manifest.rows[0].text() == "<p>Grüße – 10 €</p>"
        assert manifest.rows[0].business_id == "Müller"


def test_json_may_have_another_encoding_as_well() -> None:
    raw = '[{"id": "é", "html": "<p>ß</p>"}]'.encode("cp1252")
    with uploaded(raw, choices=Choices(encoding="latin1")) as manifest:
        assert [(row.business_id, row.text()) for row in manifest.rows] == [("é", "<p>ß</p>")]


def test_a_guess_is_a_question_with_the_accented_lines_in_each_encoding() -> None:
    text = "id;city\n" + "plain;row\n" * 50 + "".join(f"{n};Köln à Orléans, {n} €\n" for n in range(8))
    seen = look(from_upload(io.BytesIO(text.encode("cp1252")), "a.csv"))

    assert seen.encoding == "windows-1252"
    assert seen.is_encoding_guessed
    assert seen.questions == ("encoding",)
    first, *others = seen.other_encodings
    assert first.encoding == "windows-1252"
    assert first.name == "Western European (Windows-1252)"
    assert len(first.lines) == 5
    assert first.lines[0] == "0;Köln à Orléans, 0 €"
    assert others
    assert all(other.lines[0] != first.lines[0] for other in others)
    json.dumps(seen.as_dict(), allow_nan=False).encode()


def test_what_windows_1252_cannot_be_is_not_proposed_as_it() -> None:
    text = "id;stadt\n" + "".join(f"{n};Москва и Санкт-Петербург, Ёлка\n" for n in range(9))
    seen = look(from_upload(io.BytesIO(text.encode("cp1251")), "a.csv"))
    assert "windows-1251" in [each.encoding for each in seen.other_encodings]
    with uploaded(text.encode("cp1251").replace(b"stadt", b"html"), choices=Choices(encoding="cp1251")) as manifest:
        assert manifest.row_count == 9


def test_the_answer_ends_the_question_and_the_other_encodings_stay_on_offer() -> None:
    source = from_upload(io.BytesIO(WESTERN.encode("cp1252")), "a.csv")
    seen = look(source, choices=Choices(encoding="windows-1252"))
    assert (seen.questions, seen.is_encoding_guessed, seen.encoding) == ((), False, "windows-1252")
    assert seen.other_encodings
    assert seen.sample_rows[0]["id"] == "Müller"


@pytest.mark.parametrize(
    ("raw", "chosen", "words"),
    [
        (b"id,html\nA,<p>\x81\n", "windows-1252", "byte 0x81 at offset 13 (line 2)"),
        (b"id,html\nA,<p>\xff\n", "euc-jp", "Read as Japanese (EUC)"),
        (b"id,html\nA,<p>!\n", "utf-16", "Read as UTF-16 (little endian)"),
        (b"id,html\nA,<p>\n", "utf-32", "Read as utf-32-le"),
        (b"id,html\nA,<p>\n", "rot13", '"rot13" is not an encoding that is known here'),
        (b"id,html\nA,<p>\n", "unicode_escape", "is not an encoding that is known here"),
        (b"id,html\nA,<p>\n", "utf-7", "is not an encoding that is known here"),
        (b"id,html\nA,<p>\n", "\0", "is not an encoding that is known here"),
    ],
)
def test_a_choice_that_does_not_fit_is_refused_with_the_byte_and_the_line(raw: bytes, chosen: str, words: str) -> None:
    refused = refusal(raw, choices=Choices(encoding=chosen))
    assert refused.code is Code.NOT_UTF8
    assert words in refused.message


def test_the_line_of_a_bad_byte_is_counted_over_the_whole_file() -> None:
    raw = b"id,html\n" + b"A,<p>\n" * 300_000 + b"\xe9,<p>\n"
    refused = refusal(raw)
    assert refused.line == 300_002
    seen = look(from_upload(io.BytesIO(raw), "a.csv"))
    assert seen.questions == ("encoding",)
    assert seen.other_encodings[0].lines == ("é,<p>",)


def test_every_encoding_on_offer_is_one_that_can_be_chosen() -> None:
    for encoding in decoding.NAMES:
        assert decoding.known(encoding) == encoding
        codecs.lookup(encoding)


@examples(200)
@given(text=st.text(max_size=60), encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"]))
def test_any_text_in_any_unicode_encoding_is_read_unchanged(text: str, encoding: str) -> None:
    rows = json.dumps([{"id": "A", "html_content": f"<p>{text}"}], ensure_ascii=False)
    if "\0" in text:
        return
    with uploaded(rows.encode(encoding)) as manifest:
        assert manifest.rows[0].text() == f"<p>{text}"


@examples(300)
@given(raw=st.binary(max_size=300), chosen=st.sampled_from([*decoding.NAMES, ""]))
def test_looking_at_any_bytes_gives_json_values_or_a_refusal(raw: bytes, chosen: str) -> None:
    for start in (b"", b"id;html\n", b'[{"id": "'):
        check_look(start + raw, Choices(encoding=chosen))
