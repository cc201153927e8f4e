"""What every simulated vendor shares: how a request is written and its document known, its PDF, and no webhooks.

What a vendor accepts, bills or refuses is not said here: `simulated.py` follows scripts, `tests/simulation/` a seed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from batches.providers.base import (
    DocumentSource,
    LookedUp,
    Option,
    PreparedRequest,
    ProviderConfig,
    ProviderEvent,
    Receipts,
    SignatureRefused,
)


class Vendor:
    """The part of `providers.base.Provider` that is the same for each."""

    kind = "relaypdf"
    label = "Simulated"
    base_url = "https://pdf.example.com"
    options: tuple[Option, ...] = ()

    @classmethod
    def problems(cls, config: ProviderConfig) -> list[str]:
        return []

    def prepare(self, source: DocumentSource) -> PreparedRequest:
        body = json.dumps({source.kind: source.text, "options": dict(source.options)}, sort_keys=True).encode()
        return PreparedRequest(route="/v1/pdf", body=body)

    def verify_webhook(
        self, headers: Mapping[str, str], body: bytes, secrets: Sequence[str], *, now: datetime
    ) -> datetime:
        raise SignatureRefused("The simulated provider signs nothing.")

    def find_submission(self, idempotency_key: str, *, first_sent_at: datetime, now: datetime) -> LookedUp | None:
        return None

    def list_receipts(self, *, now: datetime) -> Receipts | None:
        return None  # as `receipts` of its capabilities says

    def parse_webhook(self, body: bytes) -> list[ProviderEvent]:
        return []

    def close(self) -> None:
        """It holds nothing."""


def name_in(body: bytes) -> str:
    """The document's business id, which its HTML shows as `<h1>`, else as `<p>`."""
    found = re.search(rb"<h1>(.*?)</h1>", body) or re.search(rb"<p>(.*?)</p>", body)
    return json.loads(b'"' + found[1] + b'"') if found else ""


def pdf(text: str, *, pages: int = 1) -> bytes:
    """A small valid PDF that shows `text` on each page."""
    shown = text.encode("latin-1", "replace").replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")
    content = b"BT /F1 24 Tf 72 700 Td (" + shown + b") Tj ET"
    numbers = range(4, 4 + pages)
    objects: list[Any] = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b" ".join(b"%d 0 R" % n for n in numbers), pages),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        *[
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> >>" % (4 + pages)
            for _ in numbers
        ],
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
    ]
    out, offsets = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    trailer = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, len(out))
    return out + b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1) + table + trailer
