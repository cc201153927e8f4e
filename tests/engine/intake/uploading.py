"""From rows to a batch, as an upload does it, and how much stands in the database."""

from __future__ import annotations

import io
import json
from typing import Any

from batches import manifests
from batches.engine import intake
from batches.models import AuditEntry, Batch, BatchItem, Document, DocumentVersion, Job, ProviderAccount, Workspace
from batches.storage.disk import DiskStore
from tests import factories
from tests.factories import NOW


def rows(*names: str, **changes: Any) -> list[dict[str, Any]]:
    return [{"id": name, "html": f"<h1>{name}</h1>", **changes} for name in names]


def check(
    documents: list[dict[str, Any]],
    workspace: Workspace,
    account: ProviderAccount,
    on_conflict: str = "refuse",
    take: str = "all",
) -> intake.Check:
    source = manifests.from_upload(io.BytesIO(json.dumps(documents).encode()), "invoices.json")
    return intake.check(source, workspace=workspace, account=account, on_conflict=on_conflict, take=take)


def start(checked: intake.Check, store: DiskStore, *, key: str = "key-1", **options: Any) -> Batch:
    defaults = {
        "name": "March",
        "actor": None,
        "actor_words": "submit",
        "from_where": "command line",
        "creation_key": key,
        "store": store,
        "now": NOW,
    }
    with checked.manifest:
        return intake.start(checked, **defaults | options)


def everything() -> tuple[int, ...]:
    """Row counts of all that an intake writes."""
    return tuple(
        model._base_manager.count() for model in (Batch, BatchItem, Document, DocumentVersion, Job, AuditEntry)
    )


NOTHING = (0, 0, 0, 0, 0, 0)


def existing(workspace: Workspace, account: ProviderAccount, name: str, state: str, **fields: Any) -> Job:
    """A document as an earlier intake made it, its job in `state`."""
    batch = factories.make_batch(workspace=workspace, account=account)
    job = factories.make_job(batch=batch, state=state, business_id=name, **fields)
    DocumentVersion.objects.filter(pk=job.version_id).update(
        input_sha256=manifests.fingerprint("html", f"<h1>{name}</h1>", {})
    )
    return job
