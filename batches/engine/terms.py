"""The data terms of an account as they stand at one moment: what a batch keeps of them when it is started.

An account's terms may be changed afterwards; what was sent before was sent under those that stood then.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from batches.models import ProviderAccount
from batches.providers import adapter_of


def of_account(account: ProviderAccount) -> dict[str, Any]:
    """As `Batch.terms` keeps them: plain JSON, each value text but `deletes_after_saving`; "" where nothing is said.

    Reads no secret: of the address only the host, and no user that may stand in it.
    """
    address = urlsplit(account.base_url)
    price = account.price_per_job
    return {
        "account": account.slug,
        "provider": adapter_of(account.kind).label,
        "host": address.netloc.rpartition("@")[2],
        "processing_region": account.processing_region,
        "source_retention": account.source_retention,
        "output_retention": account.output_retention,
        "deletes_after_saving": account.delete_remote_after_save,
        "processor": account.processor,
        "notes": account.data_notes,
        "price": "" if price is None else f"{price.normalize():f} {account.price_currency}".strip(),
    }
