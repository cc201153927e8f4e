"""What is sent back: answers, the vendor's error object, and the few ways to spoil an answer on purpose."""

from __future__ import annotations

import json
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any, Literal

JSON_TYPE = "application/json; charset=utf-8"


@dataclass(frozen=True)
class Answer:
    """One HTTP answer. `promised_length` overrides Content-Length; the connection is closed when it lies.

    `drop` sends nothing and closes the connection.
    """

    status: int
    body: bytes = b""
    content_type: str = JSON_TYPE
    headers: tuple[tuple[str, str], ...] = ()
    promised_length: int | None = None
    drop: bool = False


class ApiError(Exception):
    """An error that the contract has a form for. `code` is the vendor's word (part A9 of its contract)."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        details: Any = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.details = details
        self.headers = headers

    def answer(self) -> Answer:
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.details is not None:
            error["details"] = self.details
        return json_answer({"error": error}, status=self.status, headers=self.headers)


DROPPED = Answer(status=0, drop=True)

HTML_502 = (
    b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n"
    b"<body><center><h1>502 Bad Gateway</h1></center></body>\r\n</html>\r\n"
)


def json_answer(content: Any, *, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    return Answer(status=status, body=json.dumps(content, ensure_ascii=False).encode(), headers=headers)


def invalid(message: str, **details: Any) -> ApiError:
    return ApiError(400, "invalid_request", message, details=details or None)


def not_found(message: str) -> ApiError:
    return ApiError(404, "not_found", message)


def html_page(status: int) -> Answer:
    """What a proxy in front of the service says when the service is away."""
    return Answer(status=status, body=HTML_502, content_type="text/html")


def retry_after_headers(
    seconds: float, form: Literal["seconds", "http_date", "missing"], *, now: float
) -> tuple[tuple[str, str], ...]:
    """`Retry-After` for a wait of `seconds` from `now`, rounded up to whole seconds, in the form asked for."""
    whole = max(1, int(-(-seconds // 1)))
    if form == "missing":
        return ()
    if form == "http_date":
        # A date has whole seconds too: rounding up keeps it from lying before the end of the wait.
        return (("Retry-After", formatdate(int(now) + 1 + whole, usegmt=True)),)
    return (("Retry-After", str(whole)),)
