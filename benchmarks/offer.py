"""Hand documents to an installation by the real intake: `python -m benchmarks.offer PREFIX DOCUMENTS FOLDER ACCOUNT`.

Prints one JSON line with the batch's id and the moment at which its transaction had committed (CLOCK_MONOTONIC, which
all processes of a Linux machine share): the instant from which a pump can find the work.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import django


def manifest(prefix: str, documents: int, folder: Path) -> Path:
    """Small, different documents."""
    rows = [
        {"id": f"{prefix}-{number:06}", "html_content": f"<h1>Invoice {number}</h1><p>Due: {number * 7}.50 EUR</p>"}
        for number in range(documents)
    ]
    path = folder / f"{prefix}.json"
    path.write_text(json.dumps(rows), "utf-8")
    return path


def main() -> None:
    django.setup()
    from django.conf import settings
    from django.utils import timezone

    from batches.engine import intake
    from batches.manifests import from_path
    from batches.models import ProviderAccount, Workspace
    from batches.storage import open_store

    prefix, documents, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    check = intake.check(
        from_path(str(manifest(prefix, documents, folder))),
        workspace=Workspace.objects.get(slug="default"),
        account=ProviderAccount.objects.get(slug=sys.argv[4]),
        on_conflict="refuse",
    )
    begun = time.monotonic()
    with check.manifest:
        batch = intake.start(
            check,
            name=prefix,
            actor=None,
            actor_words="benchmark",
            from_where="benchmark",
            creation_key=prefix,
            store=open_store(settings.STORAGE_URL),
            now=timezone.now(),
        )
    committed_at = time.monotonic()
    print(json.dumps({"id": batch.public_id, "committed_at": committed_at, "seconds": committed_at - begun}))


if __name__ == "__main__":
    main()
