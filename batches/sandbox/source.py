"""The body of `POST /v1/pdf`, read and checked: one source, its options, and what was ignored.

Pure: bytes in, `Submission` out, or the vendor's error.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

from batches.sandbox import targets, templates
from batches.sandbox.answers import ApiError, invalid
from batches.sandbox.rendering import options as page_options
from batches.sandbox.switches import Switches

Mode = Literal["binary", "url", "async"]

_SOURCES = ("html", "url", "markdown", "templateId")
_OTHER_FIELDS = frozenset(
    {"templateData", "templateVersion", "strict", "filename", "response", "callbackUrl", "options"}
)
_MODES = ("binary", "url", "async")


@dataclass(frozen=True)
class Submission:
    """A checked submission. `source` is the text of `kind`; a `url` source holds the address. A template is HTML: what
    it made of its data."""

    kind: Literal["html", "markdown", "url"]
    source: str
    mode: Mode
    filename: str | None
    callback_url: str | None
    options: dict[str, Any]
    warnings: tuple[str, ...]


def parse(body: bytes, switches: Switches) -> Submission:
    """Raises ApiError: 400 `invalid_request` or `url_not_allowed`, 404 for a template, 413."""
    fields = _fields(body)
    kind = _kind(fields)
    source = _text(fields, kind)
    assert source is not None
    if not source.strip():
        raise invalid(f"'{kind}' is empty.", field=kind)
    if len(source.encode("utf-8", "surrogatepass")) > switches.limits.max_source_bytes:
        limit = switches.limits.max_source_bytes
        raise ApiError(413, "payload_too_large", f"'{kind}' is larger than {limit} bytes.")
    warnings = _unknown_fields(fields, switches)
    mode = fields.get("response", "binary")
    if mode not in _MODES:
        raise invalid("'response' must be binary, url or async.", field="response")
    callback = _text(fields, "callbackUrl")
    if callback is not None and not targets.is_allowed_receiver(
        callback, loopback_http=switches.webhooks.allow_loopback_http
    ):
        raise ApiError(400, "url_not_allowed", "'callbackUrl' must be an https URL.")
    options, ignored = _options(fields)
    if kind == "templateId":
        kind, source = "html", templates.page(source, fields, switches.templates)
    if kind == "url" and not targets.is_public_url(source):
        raise ApiError(400, "url_not_allowed", "'url' must be an http or https URL of a public host.")
    assert kind in ("html", "markdown", "url")
    return Submission(
        kind=kind,  # type: ignore[arg-type]  # narrowed by the assertion above
        source=source,
        mode=mode,
        filename=_text(fields, "filename"),
        callback_url=callback,
        options=options,
        warnings=(*warnings, *ignored),
    )


def digest(body: bytes, compare: Literal["bytes", "json"]) -> str:
    """What a key is bound to: the hash of the exact bytes, or of the JSON value whatever its spelling."""
    if compare == "json":
        with contextlib.suppress(ValueError):
            body = json.dumps(json.loads(body), sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(body).hexdigest()


def _fields(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise invalid("The request body is not valid JSON.") from error
    if not isinstance(fields, dict):
        raise invalid("The request body must be a JSON object.")
    return fields


def _kind(fields: dict[str, Any]) -> str:
    given = [name for name in _SOURCES if fields.get(name) is not None]
    if len(given) != 1:
        what = f"clash: {', '.join(given)}" if given else "are all missing"
        raise invalid(f"Exactly one of {', '.join(_SOURCES)} is needed; they {what}.", sources=given)
    for name, kind in (("templateData", dict), ("strict", bool)):
        if not isinstance(fields.get(name), kind | None):
            raise invalid(f"'{name}' has the wrong type.", field=name)
    version = fields.get("templateVersion")
    if version is not None and (not isinstance(version, int) or isinstance(version, bool) or version < 1):
        raise invalid("'templateVersion' must be a whole number from 1 up.", field="templateVersion")
    return given[0]


def _text(fields: dict[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise invalid(f"'{name}' must be a string.", field=name)
    return value


def _unknown_fields(fields: dict[str, Any], switches: Switches) -> list[str]:
    unknown = sorted(set(fields) - set(_SOURCES) - _OTHER_FIELDS)
    if unknown and switches.jobs.unknown_fields == "refused":
        raise invalid(f"Unknown field: {', '.join(unknown)}.", fields=unknown)
    return [f"the field {name!r} is unknown and was ignored" for name in unknown]


def _options(fields: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    options = fields.get("options")
    if options is None:
        return {}, ()
    if not isinstance(options, dict):
        raise invalid("'options' must be an object.", field="options")
    try:
        setup = page_options.page_setup(options)
    except page_options.BadOption as error:
        raise invalid(f"{error}.", field="options") from error
    return options, setup.warnings
