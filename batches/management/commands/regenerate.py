"""`manage.py regenerate (--batch ID | --document BUSINESS_ID …) --reason WHY [--account SLUG]`: a new version."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from batches import comparing
from batches.engine import accounts, elsewhere
from batches.engine.orders import NewInput, Order
from batches.engine.verbs import Asked
from batches.management import choosing, tables
from batches.management.verbs import Row, VerbCommand
from batches.manifests import Limits, fingerprint
from batches.manifests.single import read_single
from batches.models import ACCOUNT_SECRETS, Batch, DocumentVersion, ProviderAccount, Verb

#: Documents of whose accounts some are compared.
COMPARED = 500


class Command(VerbCommand):
    verb = Verb.REGENERATE
    help = (
        "Make the next version of each document and have it rendered; bills 1 each, also of one that is saved: say "
        "--state failed for those that are not. The earlier versions stay. A document that is marked final is refused: "
        "the mark is taken off on its page. Without --html the content stays the same: a newer version of its template "
        "is taken on its page, or where its rows are submitted again with --on-conflict new-version."
    )

    new: NewInput | None = None
    account: ProviderAccount | None = None

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--html", metavar="FILE", help="Other content, for one document; its options and its file name stay."
        )
        parser.add_argument(
            "--account",
            metavar="SLUG",
            help="Render them at this account instead of that of their batch; --dry-run compares the accounts.",
        )

    def asked(self, options: dict[str, Any], rows: Sequence[Row]) -> Asked:
        self.account = _account(options["account"], rows)
        there = accounts.elsewhere(self.account) if self.account else None
        if options["html"] is None:
            return Asked(elsewhere=there)
        if len({row.version_id for row in rows}) != 1:
            raise choosing.refusal("--html takes one document: name it with --document.")
        version = (
            DocumentVersion.objects.defer("input_inline").select_related("job__account").get(pk=rows[0].version_id)
        )
        self.new = _read(options["html"], rows[0].business_id, version, self.account)
        new = self.new
        digest = fingerprint(new.kind, new.text, new.options)  # type: ignore[arg-type] # the model's own kinds
        return Asked(has_new_input=digest != version.input_sha256, elsewhere=there)

    def order(self, options: dict[str, Any], rows: Sequence[Row]) -> Order:
        return replace(
            super().order(options, rows),
            inputs={row.item_id: self.new for row in rows} if self.new else {},
            versions={row.item_id: row.version_id for row in rows},
            account=self.account,
        )

    def facts(self, rows: Sequence[Row], renders: int) -> dict[str, Any]:
        """The accounts side by side: the one that was chosen, then those at which the documents are now."""
        if self.account is None:
            return {}
        now = ProviderAccount.objects.filter(jobs__in={row.job_id for row in rows[:COMPARED]}).distinct()
        others = now.exclude(pk=self.account.pk).defer(*ACCOUNT_SECRETS).order_by("slug")[: comparing.SHOWN_MOST]
        found = comparing.of_accounts([self.account], renders, chosen=self.account, beside=others)
        return {"accounts": [facts.as_dict() for facts in found.columns]}

    def write(self, report: dict[str, Any]) -> None:
        super().write(report)
        for facts in report.get("accounts", ()):
            is_chosen = self.account is not None and facts["account"] == self.account.slug
            self.stdout.write(f"{'There' if is_chosen else 'Now'}: {tables.printable(facts['name'])}")
            for label, words in facts["rows"].items():
                self.stdout.write(f"    {label}: {tables.printable(words)}")


def _account(slug: str | None, rows: Sequence[Row]) -> ProviderAccount | None:
    """The account of this name, where the documents' batches can be rendered at it. Raises a refusal."""
    if slug is None or not rows:
        return None
    batches = Batch.objects.filter(public_id__in={row.batch for row in rows}).select_related("workspace", "account")
    found = list(batches.defer(*(f"account__{name}" for name in ACCOUNT_SECRETS)))
    account = choosing.account_for(found[0].workspace, slug)
    if words := next(filter(None, (elsewhere.why_not(account, batch) for batch in found)), ""):
        raise choosing.refusal(words)
    return account


def _read(path: str, business_id: str, version: DocumentVersion, account: ProviderAccount | None) -> NewInput:
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
        limits=accounts.document_limits(account or version.job.account),
    )
    if found.row is None or found.errors:
        raise choosing.refusal(" ".join(found.errors) or f"{path} holds no document.")
    return NewInput(found.row.kind, found.text, found.row.filename, found.row.options)
