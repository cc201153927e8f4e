"""How RelayPDF says no. Tags as in `relaypdf.py`.

Failed operations carry a code (A9: CONFIRMED P, N); on a submission `not_found` means the template. An idempotency
conflict exists (A6: CONFIRMED S0); its status and code are UNKNOWN, INFERRED 409 with such a code.
"""

from __future__ import annotations

from batches.providers.errors import InsufficientCredit, InvalidInput, NotFound, RateLimited, Unauthorized
from batches.providers.refusals import Refusals

#: A9, CONFIRMED M, H. The list is not closed, so a status class decides where a code is not in it.
REFUSALS = Refusals(
    "RelayPDF",
    codes={
        "invalid_request": InvalidInput,
        "url_not_allowed": InvalidInput,
        "payload_too_large": InvalidInput,
        "unauthorized": Unauthorized,
        "account_suspended": Unauthorized,
        "payment_required": InsufficientCredit,
        "rate_limited": RateLimited,
        "not_found": NotFound,
    },
)
