"""A further account of the peer's kind: `python -m benchmarks.add_account SLUG COLUMNS-AS-JSON`."""

from __future__ import annotations

import json
import sys

import django


def main() -> None:
    django.setup()
    from batches.models import Lane, PacingLane, ProviderAccount
    from benchmarks.peer import API_KEY

    slug, columns = sys.argv[1], json.loads(sys.argv[2])
    account = ProviderAccount.objects.create(slug=slug, name=slug, api_key=API_KEY, **columns)
    PacingLane.objects.bulk_create([PacingLane(account=account, lane=lane) for lane in Lane])
    print(json.dumps({"id": account.pk}))


if __name__ == "__main__":
    main()
