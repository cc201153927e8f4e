"""`manage.py regenerate (--batch ID | --document BUSINESS_ID …) --reason WHY [--html FILE]`: a new version; bills 1."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from batches.engine import accounts
from batches.engine.orders import NewInput, Order
from batches.engine.verbs import Asked
from batches.management import choosing
from batches.management.verbs import Row, VerbCommand
from batches.manifests import Limits, fingerprint
from batches.manifests.single import read_single
from batches.models import DocumentVersion, Verb


class Command(VerbCommand):
    verb = Verb.REGENERATE
    help = (
        "Make the next version of each document and have it rendered; bills 1 each, also of one that is saved: say "
        "--state failed for those that are not. The earlier versions stay. A document that is marked final is refused: "
        "the mark is taken off on its page. Without --html the content stays the same: a newer version of its template "
        "is taken on its page, or where its rows are submitted again with --on-conflict new-version."
    )

    new: NewInput | None = None

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--html", metavar="FILE", help="Other content, for one document; its options and its file name stay."
        )

    def asked(self, options: dict[str, Any], rows: Sequence[Row]) -> Asked:
        if options["html"] is None:
            return Asked()
        if len({row.version_id for row in rows}) != 1:
            raise choosing.refusal("--html takes one document: name it with --document.")
        version = (
            DocumentVersion.objects.defer("input_inline").select_related("job__account").get(pk=rows[0].version_id)
        )
        self.new = _read(options["html"], rows[0].business_id, version)
        new = self.new
        digest = fingerprint(new.kind, new.text, new.options)  # type: ignore[arg-type] # the model's own kinds
        return Asked(has_new_input=digest != version.input_sha256)

    def order(self, options: dict[str, Any], rows: Sequence[Row]) -> Order:
        return replace(
            super().order(options, rows),
            inputs={row.item_id: self.new for row in rows} if self.new else {},
            versions={row.item_id: row.version_id for row in rows},
        )


def _read(path: str, business_id: str, version: DocumentVersion) -> NewInput:
    """The file's content, checked as a manifest's row is. Raises a refusal."""
    most = Limits().max_document_bytes
    try:
        with Path(path).open("rb") as file:
            raw = file.read(most + 1)
    except OSError as error:
        raise choosing.refusal(f"{path} cannot be read: {error.strerror or error}.") from None
    found = read_single(
        business_id=business_id,
        kind="html",
        content=raw,
        filename=version.filename,
        options=json.dumps(version.options),
        limits=accounts.document_limits(version.job.account),
    )
    if found.row is None or found.errors:
        raise choosing.refusal(" ".join(found.errors) or f"{path} holds no document.")
    return NewInput(found.row.kind, found.text, found.row.filename, found.row.options)
