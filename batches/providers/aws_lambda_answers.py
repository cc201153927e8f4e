"""Reading what AWS Lambda, S3 and the team's own function answer. Pure. Tags: README, "Tags of vendor facts".

The function's words are its contract's (docs/lambda-renderer.md): a status of `succeeded` or `failed`, and for a
failure a code and a message. Lambda's own words say what became of a call; S3's say what is there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from batches.providers import reading, redaction
from batches.providers.base import JobPhase
from batches.providers.errors import (
    ContractBroken,
    InvalidInput,
    NotFound,
    ProviderError,
    RateLimited,
    ServerFault,
    Unauthorized,
)
from batches.providers.http import Answer
from batches.providers.refusals import ERROR_BYTES, Refusals
from batches.providers.retry_after import parse_retry_after

SUCCEEDED, FAILED = "succeeded", "failed"
PHASES = {SUCCEEDED: JobPhase.SUCCEEDED, FAILED: JobPhase.FAILED}

#: 5.9: C(A1) for the codes. The function or its role is set up wrongly, and every document would meet the same.
_OF_THE_ACCOUNT = (
    "AccessDeniedException",
    "ExpiredTokenException",
    "IncompleteSignatureException",
    "InvalidRuntimeException",
    "InvalidSecurityGroupIDException",
    "InvalidSignatureException",
    "InvalidSubnetIDException",
    "InvalidZipFileException",
    "KMSAccessDeniedException",
    "KMSDisabledException",
    "KMSInvalidStateException",
    "KMSNotFoundException",
    "MissingAuthenticationTokenException",
    "ResourceNotFoundException",
    "UnrecognizedClientException",
)
#: 5.9: C(A1): an update of the function is under way, or it is not yet awake.
_FOR_NOW = ("ResourceConflictException", "ResourceNotReadyException", "SnapStartNotReadyException")
CODES: Mapping[str, type[ProviderError]] = {
    **dict.fromkeys(_OF_THE_ACCOUNT, Unauthorized),
    **dict.fromkeys(_FOR_NOW, ServerFault),
    "TooManyRequestsException": RateLimited,  # 5.8: C(A1)
    "RequestTooLargeException": InvalidInput,
    "SerializedRequestEntityTooLargeException": InvalidInput,
    "InvalidRequestContentException": InvalidInput,
    "InvalidParameterValueException": InvalidInput,
    "UnsupportedMediaTypeException": InvalidInput,
}
REFUSALS = Refusals("AWS Lambda", codes=CODES)

#: Types of a `FunctionError` that no repeat ends: the code does not start, or keeps the contract no better (INFERRED
#: from the runtimes' names; `Function.ResponseSizeTooLarge`: C(A6)).
_BROKEN_FUNCTION = {
    "Function.ResponseSizeTooLarge": "It put too much into its answer, where only a few words about the PDF belong.",
    "Runtime.HandlerNotFound": "Its handler is not where the function says that it is.",
    "Runtime.ImportModuleError": "Its code, or something that it needs, cannot be imported.",
    "Runtime.InvalidEntrypoint": "Its program cannot be started.",
    "Runtime.UserCodeSyntaxError": "Its code cannot be read.",
}
_S3_CODE = re.compile(rb"<Code>([A-Za-z0-9]{1,60})</Code>")
_NO_RIGHT = (
    "S3 does not say whether the file is there (403). Let the account's key s3:GetObject on the bucket's objects and "
    "s3:ListBucket on the bucket itself: without the latter S3 answers 403 for what is only missing."
)


def refusal(answer: Answer, now: datetime) -> ProviderError:
    """What Lambda's answer to a call says that is neither 200 nor 202."""
    told = reading.json_value(answer.read_some(ERROR_BYTES))
    told = told if isinstance(told, dict) else {}
    code = _code(answer, told)
    words = redaction.vendor_words(
        str(reading.either(told, "message", "Message") or ""), secrets=answer.call.secrets, sent=answer.call.body
    )
    reason = reading.short_text(told.get("Reason"))  # 5.8: C(A1): one of six
    kind = CODES.get(code) or REFUSALS.kind(answer.status, code)
    said = f"AWS Lambda: {words or code or 'no words'} ({answer.status}{', ' + reason if reason else ''})"
    wait = parse_retry_after(answer.headers.get("Retry-After"), now=now, date=answer.headers.get("Date"))
    error = answer.error(kind, said, code=code, retry_after=wait, **({"reason": reason} if reason else {}))
    return REFUSALS.without_code(error, answer)


def _code(answer: Answer, told: Mapping[str, Any]) -> str:
    """`TooManyRequestsException` of `TooManyRequestsException:http://…`, as Amazon's JSON services name it."""
    name = answer.headers.get("x-amzn-ErrorType") or told.get("__type") or told.get("code") or ""
    return redaction.cleaned(str(name).partition(":")[0].rpartition("#")[2], limit=100)


def function_error(answer: Answer, told: Any) -> ProviderError:
    """5.4: C(A1): a 200 whose function threw, ran out of time or of memory.

    It may have stored its PDF before, so the outcome is open: a repeat finds that, or renders.
    """
    told = told if isinstance(told, dict) else {}
    code = reading.short_text(told.get("errorType")) or answer.headers.get("X-Amz-Function-Error", "")[:100]
    message = told.get("errorMessage")
    words = redaction.vendor_words(
        message if isinstance(message, str) else "", secrets=answer.call.secrets, sent=answer.call.body
    )
    if code in _BROKEN_FUNCTION:
        return answer.error(Unauthorized, f"The function does not work. {_BROKEN_FUNCTION[code]}", code=code)
    return answer.error(ServerFault, f"The function broke off: {words or code or 'no words'}", code=code)


def failure(told: Mapping[str, Any], *, secrets: Sequence[str], sent: bytes = b"") -> tuple[str, str]:
    """Code and words of a failure as the function tells it, in its answer or its marker."""
    code, words = reading.error_in(told, secrets=secrets, sent=sent)
    return code, words or "The function reports that rendering failed and gives no reason."


def s3_refusal(answer: Answer, now: datetime) -> ProviderError:
    """What S3 says that is no "here it is". An answer to HEAD has no body, so its code is not always known."""
    found = _S3_CODE.search(answer.read_some(ERROR_BYTES))
    code = found.group(1).decode() if found else ""
    wait = parse_retry_after(answer.headers.get("Retry-After"), now=now, date=answer.headers.get("Date"))
    status, said = answer.status, f"S3: {code or 'no words'} ({answer.status})"
    kind: type[ProviderError]
    if status >= 500 or status in (408, 409):
        kind = ServerFault
    elif status in (404, 410) and code != "NoSuchBucket":
        kind, said = NotFound, "S3 has no such file."
    elif status == 429:
        kind = RateLimited
    elif status == 403 and code in ("", "AccessDenied"):
        kind, said = Unauthorized, _NO_RIGHT  # 5.5: C(A1)
    elif status in (301, 307, 400, 401, 403, 404):
        # INFERRED, generic AWS: an expired session is a 400 there, a bucket of another region a 301.
        kind, said = Unauthorized, f"{said}. Check the account's bucket, region, key and, of a session, its age."
    else:
        kind = ContractBroken
    return answer.error(kind, said, code=code, retry_after=wait)


def on_download(answer: Answer, now: datetime) -> ProviderError:
    """A file that is gone also answers 403 where ListBucket is missing; the status read that follows says so."""
    error = s3_refusal(answer, now)
    if isinstance(error, Unauthorized) and answer.status == 403 and error.code in ("", "AccessDenied"):
        return answer.error(NotFound, error.words, code=error.code)
    return error
