"""How PDFMonkey's answers are read: its status words, cards, refusals and account. Pure but for the answer at hand.

Tags as in `pdfmonkey.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from batches.providers import reading, redaction
from batches.providers.base import DocumentSource, JobPhase
from batches.providers.errors import InvalidInput, ProviderError
from batches.providers.http import Answer
from batches.providers.refusals import ERROR_BYTES, Refusals
from batches.providers.retry_after import parse_retry_after

#: 4.4: C(P2); `error` is the clients' word for an end too, C(P8). `pending`, `generating` and any other word go on.
PHASES = {
    "draft": JobPhase.DRAFT,
    "success": JobPhase.SUCCEEDED,
    "failure": JobPhase.FAILED,
    "error": JobPhase.FAILED,
}
#: Of the account's own record, what may be kept (4.12: C(P8)); never its `auth_token`.
KEPT_OF_USER = ("available_documents", "current_plan", "current_plan_interval", "plan", "paying_customer")

NO_DOCUMENTS_LEFT = (
    "PDFMonkey has no documents left for this account, and fails what is asked of it until the quota is renewed. Buy "
    "more or wait for the renewal, resume the account, then retry."
)


def phase_of(word: str) -> JobPhase:
    return PHASES.get(word, JobPhase.RUNNING)


def card_in(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """What an answer is about: `{"document": …}`, `{"document_card": …}` (4.2, 4.4: C(P1, P8)), or the bare object."""
    return next((value[name] for name in ("document_card", "document") if isinstance(value.get(name), dict)), value)


def meta_in(card: Mapping[str, Any]) -> dict[str, Any] | None:
    """`meta`, an object or a JSON string (4.2, 4.10: C(P4, P8)); None where it is missing or cannot be read."""
    meta = card.get("meta")
    value = reading.json_value(meta.encode("utf-8", "replace")) if isinstance(meta, str) else meta
    return value if isinstance(value, dict) else None


def filename_in(card: Mapping[str, Any]) -> str:
    return reading.short_text(card.get("filename")) or reading.short_text((meta_in(card) or {}).get("_filename"))


def template_in(source: DocumentSource) -> tuple[str, dict[str, Any]]:
    """A template that PDFMonkey keeps, and its data. Raises InvalidInput.

    The API names no version of one (4.2: C(P1)), so the one that is published there is used, whatever a row asks for.
    """
    try:
        stored = json.loads(source.text)
        template, data = stored["template"], stored["data"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidInput("The document names no template with its data.") from None
    if not isinstance(template, str) or not template:
        raise InvalidInput("The document names no template.")
    if not isinstance(data, dict):
        raise InvalidInput("The data of the template is no JSON object.")
    if source.options:
        raise InvalidInput("A template at PDFMonkey holds its own page options; leave them out of the document.")
    return template, data


# --- failures and refusals ---


def failure_words(card: Mapping[str, Any], *, secrets: Sequence[str]) -> str:
    """Why a document failed. The field is UNKNOWN, so each that may say it is read (4.4)."""
    found = [_text(card[name]) for name in ("failure_cause", "error", "errors", "message") if card.get(name)]
    return redaction.vendor_words(" ".join(found), secrets=secrets)


def failed(words: str, *, no_credit: bool) -> str:
    if no_credit:
        return f"{NO_DOCUMENTS_LEFT} {words}".strip()
    return words or "PDFMonkey reports that the document failed and gives no reason. Its page there shows the log."


class PDFMonkeyRefusals(Refusals):
    """`error`, or `errors` as a list or a map (4.2: C(P9)), without codes."""

    def told(self, answer: Answer, now: datetime) -> ProviderError:
        return self._said(answer, now)[0]

    def on_submission(self, answer: Answer, now: datetime) -> ProviderError:
        """In the vendor's own words a 404 is about the template (4.9: C(P8)), and a 403 about the key."""
        error, is_own = self._said(answer, now)
        if is_own and answer.status == 404:
            return answer.error(InvalidInput, error.words)
        return error if is_own else self.without_code(error, answer)

    def _said(self, answer: Answer, now: datetime) -> tuple[ProviderError, bool]:
        """The error that the answer is, and whether it is in a form of the vendor's own."""
        value = reading.json_value(answer.read_some(ERROR_BYTES))
        message = _words_in(value, secrets=answer.call.secrets, sent=answer.call.body)
        said = f"{self.label}: {message}" if message else f"{self.label} answered {answer.status} without words."
        if 300 <= answer.status < 400:
            said = "The address sends us on to another one, which is not followed. Check the account's base URL."
        wait = parse_retry_after(answer.headers.get("Retry-After"), now=now, date=answer.headers.get("Date"))
        return answer.error(self.kind(answer.status, ""), said, retry_after=wait), bool(message)


REFUSALS = PDFMonkeyRefusals("PDFMonkey", codes={})


def _words_in(value: Any, *, secrets: Sequence[str], sent: bytes) -> str:
    if not isinstance(value, dict):
        return ""
    found = [_text(value[name]) for name in ("error", "errors", "message") if value.get(name)]
    return redaction.vendor_words(" ".join(found), secrets=secrets, sent=sent)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# --- the account ---


def user_in(value: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = value.get("current_user")
    return inner if isinstance(inner, dict) else value


def documents_left(user: Mapping[str, Any]) -> Decimal | None:
    """4.12: `available_documents`, C(P8)."""
    return reading.amount(user.get("available_documents"))


def plan_in(user: Mapping[str, Any]) -> str:
    return reading.short_text(reading.either(user, "current_plan", "plan"))


def kept_of_user(user: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: user[name] for name in KEPT_OF_USER if isinstance(user.get(name), (str, int, float, bool))}
    return {name: reading.short_text(value) if isinstance(value, str) else value for name, value in kept.items()}
