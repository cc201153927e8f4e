"""What Infrai says of its own contract, to whoever asks and without a key: `GET /v1/discovery/{id}` (B8: CONFIRMED IV).

Its documentation and its samples disagree, so the shape of the call is hashed: another hash says that what the adapter
was written for may no longer hold. Prices, vendors and whether it is available now change by the hour and are left out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from batches.providers import infrai_answers, reading

ROUTE = "/v1/discovery/pdf.generate"
#: What makes up the shape of a call (B8: CONFIRMED IV for the names; params as JSON Schema INFERRED 69508481379).
SHAPE_NAMES = ("id", "method", "path", "params", "errors")


@dataclass(frozen=True)
class Contract:
    """`digest` are 16 hex digits of the shape's SHA-256. `retryable` are codes after which the same request may be sent
    again; `price` is in words. `is_available` is None where it does not say."""

    digest: str
    retryable: frozenset[str]
    is_available: bool | None
    price: str


def contract_in(value: Mapping[str, Any]) -> Contract | None:
    """None for what describes no call: then nothing is known, which is no change."""
    found = infrai_answers.envelope(value).data
    shape = {name: found[name] for name in SHAPE_NAMES if name in found}
    if "params" not in shape:
        return None
    canonical = json.dumps(shape, sort_keys=True, separators=(",", ":"))
    available = found.get("available")
    return Contract(
        hashlib.sha256(canonical.encode("utf-8")).hexdigest()[:16],
        _retryable(found.get("errors")),
        available if isinstance(available, bool) else None,
        _price(found.get("billing")),
    )


def _retryable(errors: Any) -> frozenset[str]:
    """Codes with a retryable flag: as a list of objects, or as an object by code."""
    pairs: list[tuple[Any, Any]] = list(errors.items()) if isinstance(errors, dict) else []
    if isinstance(errors, list):
        pairs = [(each.get("code"), each) for each in errors if isinstance(each, dict)]
    return frozenset(
        code
        for code, each in pairs
        if isinstance(code, str) and isinstance(each, dict) and each.get("retryable") is True
    )


def _price(billing: Any) -> str:
    price = reading.amount(billing.get("price_usd")) if isinstance(billing, dict) else None
    if price is None:
        return ""
    unit = reading.short_text(billing.get("unit"))
    return f"{price} USD per {unit}" if unit else f"{price} USD"
