"""A document as Gotenberg's form: fields, the multipart body with its exact bytes, and its boundary read back from it.

Tags beside facts: README, "Tags of vendor facts".
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

from batches.providers.base import DocumentSource, PreparedRequest
from batches.providers.errors import InvalidInput

ROUTE = "/forms/chromium/convert/html"  # 2.2: C(G1, G3)
#: In inches (2.2: C(G3)), short side first.
PAPERS: Mapping[str, tuple[str, str]] = {
    "a3": ("11.69", "16.54"),
    "a4": ("8.27", "11.69"),
    "a5": ("5.83", "8.27"),
    "a6": ("4.13", "5.83"),
    "letter": ("8.5", "11"),
    "legal": ("8.5", "14"),
    "tabloid": ("11", "17"),
}
SIDES = ("Top", "Right", "Bottom", "Left")
#: Sent with every document. Its own defaults leave the background out and print a page whose images are missing as if
#: it were whole (2.2, 2.9: C(G3)), and its paper is US Letter.
DEFAULTS: Mapping[str, str] = {
    "failOnResourceHttpStatusCodes": "[499,599]",  # 2.2: C(G3): any 4xx and 5xx
    "failOnResourceLoadingFailed": "true",
    "marginBottom": "0.4",
    "marginLeft": "0.4",
    "marginRight": "0.4",
    "marginTop": "0.4",
    "paperHeight": PAPERS["a4"][1],
    "paperWidth": PAPERS["a4"][0],
    "printBackground": "true",
}
#: Fields that a document's options may give as they are (2.2: C(G3)), beside those of `RENAMED`, `format` and `margin`.
FIELDS = frozenset(
    {
        *DEFAULTS,
        "emulatedMediaType",
        "failOnConsoleExceptions",
        "failOnHttpStatusCodes",
        "generateDocumentOutline",
        "generateTaggedPdf",
        "landscape",
        "nativePageRanges",
        "omitBackground",
        "preferCssPageSize",
        "scale",
        "singlePage",
        "skipNetworkIdleEvent",
        "waitDelay",
        "waitForExpression",
        "waitForSelector",
    }
)
#: What other renderers call the same, so that one manifest does for all of them.
RENAMED: Mapping[str, str] = {
    "height": "paperHeight",
    "pageRanges": "nativePageRanges",
    "preferCSSPageSize": "preferCssPageSize",
    "width": "paperWidth",
}
#: How long is waited for a page is the server's to say (2.3: C(G1)); neither changes what is printed.
WITHOUT_EFFECT = frozenset({"timeout", "waitUntil"})
#: Wins over any other way to tell an encoding, which a file from a folder has none of but the page's own.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def prepared(source: DocumentSource) -> PreparedRequest:
    """The form as bytes, the same for the same source. Raises `InvalidInput`."""
    if source.kind != "html":
        raise InvalidInput(f"Gotenberg takes html here, not {source.kind!r}.")
    if not source.text.strip():
        raise InvalidInput("The document is empty.")
    fields = {**DEFAULTS, **_fields_of(source.options)}
    try:
        page = BYTE_ORDER_MARK + source.text.lstrip("\ufeff").encode("utf-8")
        parts = [_part(f'name="{name}"', value.encode("utf-8")) for name, value in sorted(fields.items())]
    except UnicodeEncodeError:
        raise InvalidInput(
            "The document holds half of a character (a lone surrogate), which no PDF can show."
        ) from None
    # 2.2: C(G1, G3): one file part with this name is the page.
    parts.append(_part('name="files"; filename="index.html"', page, "Content-Type: text/html\r\n"))
    boundary = _boundary_of(parts)
    mark = b"--" + boundary
    body = b"".join(mark + b"\r\n" + part + b"\r\n" for part in parts) + mark + b"--\r\n"
    return PreparedRequest(ROUTE, body)


def content_type_of(body: bytes) -> str:
    """The header that belongs to a prepared body: its boundary stands in its first line."""
    boundary = body[2 : body.index(b"\r\n")].decode("ascii")
    return f"multipart/form-data; boundary={boundary}"


def _part(disposition: str, content: bytes, more: str = "") -> bytes:
    return f"Content-Disposition: form-data; {disposition}\r\n{more}\r\n".encode() + content


def _boundary_of(parts: list[bytes]) -> bytes:
    """A boundary that follows from the content and stands nowhere in it."""
    digest = hashlib.sha256(b"\0".join(parts))
    while any(digest.hexdigest().encode() in part for part in parts):
        digest.update(b"again")
    return digest.hexdigest().encode()


def _fields_of(options: Mapping[str, Any]) -> dict[str, str]:
    """A document's options as form fields. A name that nothing here knows is refused, not dropped."""
    fields: dict[str, str] = {}
    for name, value in options.items():
        if name in WITHOUT_EFFECT or value is None:
            continue
        if name == "format":
            fields["paperWidth"], fields["paperHeight"] = _paper(value)
        elif name == "margin":
            fields |= _margins(value)
        elif RENAMED.get(name, name) in FIELDS:
            continue  # below: a width of its own wins over a format, whichever comes first
        else:
            raise InvalidInput(f"Gotenberg has no option {name[:60]!r}.")
    for name, value in options.items():
        if (field := RENAMED.get(name, name)) in FIELDS and value is not None:
            fields[field] = _text(name, value)
    return fields


def _paper(value: Any) -> tuple[str, str]:
    paper = PAPERS.get(value.lower()) if isinstance(value, str) else None
    if paper is None:
        raise InvalidInput(f"The option format must be one of {', '.join(PAPERS)}.")
    return paper


def _margins(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not {*value} <= {side.lower() for side in SIDES}:
        raise InvalidInput("The option margin must be an object of top, right, bottom and left.")
    given = {f"margin{side}": value.get(side.lower()) for side in SIDES}
    return {name: _text(name, each) for name, each in given.items() if each is not None}


def _text(name: str, value: Any) -> str:
    """A form's value: fields are text, whatever they mean."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    if isinstance(value, str) and value.isprintable() and len(value) <= 2000:
        return value
    if isinstance(value, list) and all(type(each) is int for each in value):
        return f"[{','.join(map(str, value))}]"
    raise InvalidInput(f"The option {name} holds something that a form cannot carry.")
