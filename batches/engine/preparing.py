"""The exact bytes of a submission: made once, of the version's input, and from then on the very same.

Runs without the database but for `read_inputs` and `read_bodies`, which a pump calls before the step.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from batches.conf import ENGINE
from batches.engine.claims import Claim, OpenSubmission
from batches.models import AccountHealth, DocumentVersion, JobState, Submission
from batches.providers.base import DocumentSource, PreparedRequest, Provider
from batches.providers.errors import InvalidInput
from batches.storage import ArtifactStore, request_key


@dataclass(frozen=True)
class Input:
    """A version's input as its row holds it, read by the pump before the step."""

    kind: str
    inline: bytes | None = field(repr=False)
    key: str | None
    filename: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Prepared:
    """A claimed job with the exact bytes that are to leave.

    `doubt_before`: an earlier try may have arrived. `sent_before`: the key has left before, whatever came of it.
    `refused_before`: its account was refused for it; `others_pass`: of others that were sent since, one was accepted.
    `missed_slot`: its try is counted, and has its token of the retry budget, for a slot that was missed.
    `limited_alone`: its key was answered with 429 again and again, while others were accepted.
    `aged`: the refused submission that gives way to it, whose key is too old.
    """

    claim: Claim
    request: PreparedRequest
    request_sha256: str
    body_key: str | None
    doubt_before: bool
    sent_before: bool = False
    missed_slot: bool = False
    refused_before: bool = False
    others_pass: bool = False
    limited_alone: bool = False
    aged: int | None = None

    @property
    def is_resend(self) -> bool:
        return self.claim.state is JobState.SUBMITTING

    @property
    def never_left(self) -> bool:
        """By all that this pump knows, no byte of it has ever left, so that it can still be stopped."""
        return not self.is_resend or not self.doubt_before


def read_inputs(version_ids: Sequence[int]) -> dict[int, Input]:
    """The inputs of these versions, in one query; without text where its deletion was requested."""
    rows = DocumentVersion.objects.filter(pk__in=version_ids).values_list(
        "pk", "kind", "input_inline", "input_key", "filename", "options", "input_deleted_at"
    )
    return {
        pk: Input(kind, None, None, filename, options)
        if deleted_at
        else Input(kind, None if inline is None else bytes(inline), key, filename, options)
        for pk, kind, inline, key, filename, options, deleted_at in rows
    }


def read_bodies(submission_ids: Sequence[int]) -> dict[int, bytes]:
    """The request bytes of these submissions that lie in their rows, in one query."""
    rows = Submission.objects.filter(pk__in=submission_ids, body_inline__isnull=False)
    return {pk: bytes(body) for pk, body in rows.values_list("pk", "body_inline") if body is not None}


def read_draft_bodies(submission_ids: Sequence[int]) -> dict[int, bytes | None]:
    """Those of these submissions whose account is not held, with the request bytes that lie in their rows."""
    rows = Submission.objects.filter(pk__in=submission_ids, account__health=AccountHealth.OPEN)
    return {pk: None if body is None else bytes(body) for pk, body in rows.values_list("pk", "body_inline")}


def prepare(claim: Claim, given: Input, provider: Provider, store: ArtifactStore) -> Prepared:
    """Make the exact bytes of a first send. Large ones are stored before the row that names them is written.

    Raises `errors.InvalidInput` for what the provider cannot render, and store errors.
    """
    if given.inline is not None:
        text = given.inline
    elif given.key is None:  # retention leaves what is under way alone; a late answer may have brought this one back
        raise InvalidInput("Its input was deleted here, so it cannot be sent; upload it again.")
    else:
        with store.open(given.key) as stream:
            text = stream.read()
    source = DocumentSource(kind=given.kind, text=text.decode(), filename=given.filename, options=given.options)
    request = provider.prepare(source)
    digest = hashlib.sha256(request.body).hexdigest()
    body_key = None
    if len(request.body) > ENGINE.inline_bytes_most:
        body_key = request_key(claim.workspace_slug, claim.business_id, digest, claim.version_number)
        store.put(body_key, io.BytesIO(request.body))
    return Prepared(claim, request, digest, body_key, doubt_before=False)


def prepare_again(claim: Claim, submission: OpenSubmission, inline: bytes | None, store: ArtifactStore) -> Prepared:
    """The very bytes that were committed before; a release that would make others changes nothing."""
    if inline is not None:
        body = inline
    else:
        assert submission.body_key is not None, "the database holds exactly one of the two"
        with store.open(submission.body_key) as stream:
            body = stream.read()
    digest = hashlib.sha256(body).hexdigest()
    if digest != submission.request_sha256:
        raise ValueError(f"submission {submission.id}: the stored request bytes are damaged")
    request = PreparedRequest(route=submission.route, body=body)
    return Prepared(claim, request, digest, submission.body_key, doubt_before=submission.in_doubt, sent_before=True)
