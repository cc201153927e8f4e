"""Failures of one cause share a digest whatever varies in their words; those of different causes do not."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence

import pytest

from batches.engine.causes import READ_MOST, WORDS_MOST, fingerprint, normalised

#: Each line: messages of one cause. Those of two lines never meet.
OF_ONE_CAUSE: Sequence[Sequence[str]] = (
    ("Line 3 is too wide.", "Line 1204 is too wide."),
    ("Rows 3, 7 and 12 lack a date", "Rows 4 lack a date", "Rows 1, 2, 3, 4 lack a date"),
    ("1 page is empty", "20 pages is empty"),
    ("The value 'O'Brien' doesn't fit", "The value 'Ann's' doesn't fit", "The value '' doesn't fit"),
    ("The value doesn't fit the field's width", "The value doesn't fit the field's width"),
    ("l'élément 'prix' n'existe pas", "l'élément 'nom d'usage' n'existe pas"),
    ("Die Datei „a.html“ fehlt", "Die Datei „Rechnung für Ünal.html“ fehlt"),
    ("Le champ « nom » manque", "Le champ « adresse » manque"),
    ("第3行的字段缺失", "第12行的字段缺失"),
    ("第3行的日期无效", "第12行的日期无效"),
    ("テンプレート「請求書」が見つかりません", "テンプレート「見積」が見つかりません"),
    ("請求書１２３が無効です", "請求書7が無効です"),
    ("Ошибка в строке 5", "Ошибка в строке 77"),
    ("Счёт №12 не найден", "Счёт №4711 не найден"),
    ('HTTP 422: {"error": "template_missing", "id": "a"}', 'HTTP 422: {"error": "template_missing", "id": "b c"}'),
    ('HTTP 422: {"error": "font_missing", "id": "a"}', 'HTTP 422: {"error": "font_missing", "id": "b"}'),
    (r'bad row {"name": "a \"b\" c"}: no price', r'bad row {"name": "d"}: no price'),
    ('Syntax error near "Hello Mr', 'Syntax error near "Dear Ms Ünal,'),
    ("File /var/lib/renders/INV/a.html not readable", "File /tmp/x/y.html not readable"),
    (r"Font C:\Fonts\A\b.ttf not readable", r"Font D:\x.ttf not readable"),
    ("Job 7f3a9b12 is gone", "Job deadbeefcafe is gone", "Job pdf_QwErTyUiOp is gone"),
    (f"Document {uuid.UUID(int=3)} was purged", f"Document {uuid.UUID(int=2**120 + 5)} was purged"),
    ("Key expired at 2026-09-01T10:00:00.123Z", "Key expired at 2026-09-01 10:00", "Key expired at 2026-09-01"),
    ("Link died on Mon, 02 Mar 2026 10:00:00 GMT", "Link died on 3 September 2026", "Link died on Mar 2, 2026"),
    ("No answer after 30 s", "No answer after 1.5 minutes", "No answer after 250ms"),
    ("Too large: 12.5 KB", "Too large: 3 MB", "Too large: 1234 bytes"),
    ("https://a.example.com/x?y=1 refused it", "https://b.example.com/z refused it"),
    ("host 10.0.0.1:443 is away", "host 192.168.1.20:8443 is away"),
    ("Mail to a@example.com bounced", "Mail to b.c+d@example.org bounced"),
    ('Unclosed element <div class="a b">', "Unclosed element <td style='x'>"),
    ("items[3].price is no number", "items[41].price is no number"),
    ("items[3].name is no number", "items[41].name is no number"),
    ("Missing field customer.address", "missing  field\ncustomer.address"),
    ("Missing field customer.name", "Missing field customer.name"),
    ("Missing field /customer/address", "Missing field /customer/address"),
    ("", "   "),
)


@pytest.mark.parametrize("messages", OF_ONE_CAUSE, ids=lambda messages: messages[0][:30])
def test_what_varies_makes_no_cause_of_its_own(messages: Sequence[str]) -> None:
    assert len({normalised(words) for words in messages}) == 1, {words: normalised(words) for words in messages}


def test_the_words_of_different_causes_stay_apart() -> None:
    assert len({normalised(messages[0]) for messages in OF_ONE_CAUSE}) == len(OF_ONE_CAUSE)


def test_class_and_code_part_causes_too() -> None:
    first = fingerprint("render_failed", "E1", "It broke.")
    assert first == fingerprint("render_failed", "e1", "it  broke.")
    assert len({first, fingerprint("transient", "E1", "It broke."), fingerprint("render_failed", "", "It broke.")}) == 3
    assert len(first) == 16


#: Six causes as a provider words them, with what varies drawn from `rng`.
SIX: Sequence[Callable[[random.Random], tuple[str, str, str]]] = (
    lambda rng: (
        "invalid_input",
        "missing_field",
        f"Row {rng.randrange(10_000)}: field 'customer.address' of '{_name(rng)}' is missing.",
    ),
    lambda rng: (
        "invalid_input",
        "missing_field",
        f"Row {rng.randrange(10_000)}: the date “{_name(rng)}” of invoice {_invoice(rng)} is no date.",
    ),
    lambda rng: (
        "render_failed",
        "render_error",
        f'Job {uuid.UUID(int=rng.getrandbits(128))} failed: {{"reason": "font missing", "font": "{_name(rng)}"}}',
    ),
    lambda rng: (
        "transient",
        "",
        f"https://api.example.com/v1/pdf/{rng.getrandbits(64):016x} answered 503 after {rng.random() * 60:.2f} s.",
    ),
    lambda rng: (
        "deadline_exceeded",
        "",
        f"No end by 2026-03-{rng.randrange(1, 29):02}T{rng.randrange(24):02}:00:00Z; {rng.randrange(1, 90)} reads.",
    ),
    lambda rng: (
        "bad_output",
        "",
        f"{_invoice(rng)}.pdf, kept as /tmp/{_invoice(rng)}.pdf, ended after {rng.randrange(9999)} bytes.",
    ),
)


def _name(rng: random.Random) -> str:
    names = ["O'Brien", "Ünal & Söhne", "李雷", "Müller GmbH", "d'Arc", "N. Rossi", "Zażółć"]
    return rng.choice(["", *(name + more for name in names for more in ("", " Ltd", " 24", "'s shop"))])


def _invoice(rng: random.Random) -> str:
    return rng.choice(["INV-{:04}", "R{}-2026", "2026_{}", "#{}"]).format(rng.randrange(100_000))


def test_ten_thousand_failures_of_six_causes_are_six_groups() -> None:
    rng = random.Random(7)
    groups: dict[str, set[int]] = {}
    for n in range(10_000):
        groups.setdefault(fingerprint(*SIX[n % 6](rng)), set()).add(n % 6)
    assert sorted(groups.values(), key=min) == [{0}, {1}, {2}, {3}, {4}, {5}]


@pytest.mark.parametrize(
    "piece", ["'", '"', "「", "<a ", "/a", "1:", "jan 1 ", "a@", '{"error":"', "\ud800", "\0", "é", "<n> "]
)
def test_any_text_has_a_cause_of_bounded_length(piece: str) -> None:
    text = piece * READ_MOST
    assert len(normalised(text)) <= WORDS_MOST
    assert fingerprint("internal", "", text) == fingerprint("internal", "", text + "x")
