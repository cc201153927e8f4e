"""What a workspace already has under the ids of a manifest: what a plan compares it with. Reads only."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Exists, F, OuterRef, Q

from batches.engine import bulk
from batches.manifests import ExistingDocument, ExistingVersion
from batches.models import (
    NOTHING_THERE,
    DocumentVersion,
    JobState,
    ProviderAccount,
    Submission,
    SubmissionOutcome,
    Workspace,
)

#: Submissions that prove nothing: they were closed, and the provider has nothing of them.
REFUSED_FOR_GOOD = NOTHING_THERE & Q(outcome=SubmissionOutcome.REFUSED)


def documents(
    workspace: Workspace, account: ProviderAccount, business_ids: Sequence[str]
) -> dict[str, ExistingDocument]:
    """What the workspace already has under these ids."""
    found: dict[str, ExistingDocument] = {}
    for chunk in bulk.chunks(business_ids, bulk.ROWS_PER_STATEMENT):
        rows = (
            DocumentVersion.objects.filter(document__workspace=workspace, document__business_id__in=chunk)
            .annotate(
                ever_sent=Exists(
                    Submission.objects.filter(job__version=OuterRef("pk")).exclude(
                        REFUSED_FOR_GOOD, job__state=JobState.CANCELLED
                    )
                ),
                current_number=F("document__current_version__number"),
                is_final=F("document__is_final"),
                state=F("job__state"),
                account_slug=F("job__account__slug"),
                file_deleted_at=F("artifact__local_deleted_at"),
            )
            .values_list(
                "document__business_id",
                "number",
                "input_sha256",
                "ever_sent",
                "current_number",
                "is_final",
                "state",
                "account_slug",
                "file_deleted_at",
                "input_deleted_at",
            )
        )
        for business_id, number, sha256, ever_sent, current, is_final, state, slug, deleted_at, input_gone_at in rows:
            is_unsendable = input_gone_at is not None and state == JobState.CANCELLED
            version = ExistingVersion(
                number=number,
                # Whose input is gone cannot be sent again: the same content makes a new version.
                input_sha256="" if is_unsendable else sha256,
                state=state,
                ever_sent=ever_sent,
                file_deleted=deleted_at is not None,
                other_account_slug=slug if slug != account.slug else None,
            )
            before = found.get(business_id)
            versions = (*before.versions, version) if before else (version,)
            found[business_id] = ExistingDocument(business_id, current, versions, is_final)
    return found
