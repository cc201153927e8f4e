"""Calls of a provider to the address that one submission alone has: `/webhooks/<account>/<token>/<key>`.

For vendors that sign nothing the address is the proof: it ends in a token that only this installation makes and in the
submission's key. What comes there is a notice, or the PDF itself where the vendor delivers it so, which is kept in our
store before the call is answered. What follows from either is the same as of any webhook: the job is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from batches.conf import ENGINE
from batches.engine import inbox, received
from batches.engine.accounts import is_callback_token
from batches.engine.inbox import Refused
from batches.models import ProviderAccount, Submission
from batches.providers.base import Delivery, JobPhase, ProviderEvent
from batches.storage import ArtifactStore, StoreError

#: The largest PDF that is taken, as of a download.
FILE_BYTES_MOST = ENGINE.download_bytes_most
FILE_TYPE, NOTICE_TYPE = "file", "callback"
PDF_START = b"%PDF-"


def account_of(slug: str, token: str, key: str) -> ProviderAccount:
    """The account whose submission has this address. Raises `Refused`, with the same words whatever is wrong of it."""
    account = inbox.account_of(slug)
    known = Submission.objects.filter(account=account, idempotency_key=key)
    if not is_callback_token(slug, token) or not known.exists():
        raise Refused(404, "There is no such address.")
    return account


def brings_file(account: ProviderAccount, headers: Mapping[str, str], *, now: datetime) -> bool:
    """Whether a call with these headers brings the PDF: all that is no JSON, where the vendor delivers so.

    A call that does is proven here, before a byte of its file is read. Raises `Refused`.
    """
    with inbox.opened(account) as (provider, config):
        is_json = "json" in headers.get("Content-Type", "").lower()
        if provider.capabilities.delivery is not Delivery.CALLBACK or is_json:
            return False
        # An adapter of a vendor that brings files looks at the headers alone.
        inbox.verify(provider, headers, b"", config, now=now)
    return True


def take_file(
    account: ProviderAccount,
    key: str,
    path: Path,
    headers: Mapping[str, str],
    store: ArtifactStore,
    *,
    now: datetime,
) -> None:
    """Keep the PDF that came by a proven call, then have its job read. Raises `Refused`, and database errors.

    What is no PDF is not kept: the first file of a job stays, and would stand in the way of a good one.
    """
    with path.open("rb") as file:
        if file.read(len(PDF_START)) != PDF_START:
            raise Refused(400, "The body is no PDF.")
        file.seek(0)
        facts = {"key": key, "bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    try:
        received.keep_file(store, account.slug, key, path)
    except StoreError as error:
        raise Refused(503, "It could not be stored; send it again.") from error
    body = json.dumps(facts, sort_keys=True).encode()
    inbox.take(account, [ProviderEvent(FILE_TYPE, key)], body, headers, signed_at=now, now=now)


def take_notice(
    account: ProviderAccount,
    key: str,
    body: bytes,
    headers: Mapping[str, str],
    store: ArtifactStore,
    *,
    now: datetime,
) -> None:
    """Store what was said about one job, whatever its form, then have the job read. As `take_file`."""
    with inbox.opened(account) as (provider, config):
        signed_at = inbox.verify(provider, headers, body, config, now=now)
        try:
            found = provider.parse_webhook(body)
        except ValueError:
            found = []  # no vendor's word is needed: the address says which job it is
        capabilities = provider.capabilities
    job_id = key
    if capabilities.delivery is not Delivery.CALLBACK:
        known = Submission.objects.filter(account=account, idempotency_key=key)
        job_id = known.values_list("provider_job_id", flat=True).first() or ""
    events = [replace(event, provider_job_id=job_id or event.provider_job_id) for event in found]
    events = events or [ProviderEvent(NOTICE_TYPE, job_id)]
    for event in events:
        if event.phase is JobPhase.FAILED and not capabilities.status_poll:
            try:
                received.keep_failure(store, account.slug, event)
            except StoreError as error:
                raise Refused(503, "It could not be stored; send it again.") from error
    inbox.take(account, events, mark_of(key) + body, headers, signed_at=signed_at, now=now)


def mark_of(key: str) -> bytes:
    """How the stored body of a notice begins: with the key of the submission whose address was called."""
    return key.encode() + b"\n"


def mark_in(body: bytes) -> bytes:
    """The mark that a stored body begins with, if it has one."""
    key, mark, _rest = body.partition(b"\n")
    return key + mark
