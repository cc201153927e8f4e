"""Read-only queries over the audit log: a page of it, what is filtered by, and how an entry is said in words.

What is written is `engine/audit.py`. Nobody may change an entry; nothing here does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.db.models import Q, QuerySet

from batches import cursors, rights
from batches.cursors import Page
from batches.models import AuditEntry, Batch, BulkActionItem, Document, ItemResult, Verb, Workspace
from batches.selectors import Person

ENTRIES_PER_PAGE = 50
#: Documents of one business id over all workspaces that a person audits.
_DOCUMENTS_MOST = 50
#: Bulk actions that held one of them, the newest.
_ACTIONS_MOST = 500
COLUMNS = ("at", "who", "action", "subject", "business_id", "workspace", "reason", "from_where", "facts")
_SLICE = 1000
_SUBJECTS = ("batch", "draft", "document", "template", "bulk action", "account", "webhook", "workspace", "user")

#: Uploads of corrected rows that the page of a batch names.
CORRECTIONS_SHOWN = 5
#: What the audit log says that was done, by the action of an entry.
ACTIONS: Mapping[str, str] = {
    "start_batch": "Started",
    "upload_file": "Uploaded a file:",
    "choose_for_upload": "Changed what was chosen for",
    "start_upload": "Asked to start",
    "discard_upload": "Discarded",
    "sweep_upload": "Swept what nobody came back to:",
    "change_retention": "Changed for how long content is kept in",
    "pause_batch": "Paused",
    "resume_batch": "Resumed",
    "release_batch": "Released after a look at its sample:",
    "cancel_batch": "Cancelled batch",
    "download_archive": "Downloaded the archive of",
    "download_results": "Downloaded the results of",
    "download_failed_list": "Downloaded the failed rows of",
    "download_left_out_list": "Downloaded the left out rows of",
    "download_manifest": "Downloaded the manifest of",
    "order_export": "Ordered an export:",
    "cancel_export": "Cancelled an export:",
    "download_export": "Downloaded a file of an export:",
    "download_pdf": "Downloaded the PDF of",
    "view_pdf": "Looked at the PDF of",
    "view_input": "Looked at the content of",
    "compare_versions": "Compared versions of",
    "download_audit": "Downloaded the",
    "reveal_provider_job": "Revealed the provider job of",
    "run_retention": "Deleted what was due under",
    "add_account": "Added",
    "change_account": "Changed",
    "hold_account": "Held",
    "resume_account": "Resumed sending on",
    "test_account": "Tested the connection of",
    "reveal_event": "Revealed the body of",
    "replay_events": "Replayed webhook events of",
    "start_load_test": "Started a load test on",
    "end_load_test": "Ended a load test on",
    "add_workspace": "Added workspace",
    "change_workspace": "Changed workspace",
    "add_membership": "Added a member:",
    "change_membership": "Changed a member:",
    "delete_membership": "Removed a member:",
    "add_user": "Added user",
    "change_user": "Changed user",
    "delete_user": "Deleted user",
    "add_group": "Added group",
    "change_group": "Changed group",
    "delete_group": "Deleted group",
    "sign_out_everywhere": "Ended every session of",
    "make_admin": "Made an administrator:",
    "make_api_token": "Made an API token:",
    "revoke_api_token": "Ended an API token:",
    "close_alert": "Closed",
    "repair_store": "Repaired the",
    "rotate_field_keys": "Encrypted under a new key:",
    "register_webhook": "Registered a webhook:",
    "rotate_webhook": "Changed the secret of a webhook:",
    "delete_webhook": "Deleted a webhook:",
    "upload_template": "Uploaded",
    "publish_template": "Published",
    "unpublish_template": "Took from publication",
    "archive_template": "Archived",
    "restore_template": "Took back from the archive",
    "mark_final": "Marked as final",
    "take_final_off": "Took the final mark off",
    "write_note": "Wrote a note on",
    "replace_rows": "Replaced rows of",
    "confirm_bulk_action": "Confirmed a bulk action:",
    "abort_bulk_action": "Aborted a bulk action:",
    "adopt": "Adopted a provider job for",
    "download_bulk_action": "Downloaded the items of a bulk action:",
    "finish_bulk_action": "Finished a bulk action:",
} | {verb.value: verb.label for verb in Verb}


def action_words(action: str) -> str:
    """What an entry says that was done; an action that is not in the table by its name."""
    return ACTIONS.get(action, action.replace("_", " ").capitalize())


@dataclass(frozen=True)
class Correction:
    """Rows of a batch that somebody replaced by corrected ones."""

    at: datetime
    who: str
    reason: str
    count: int


def corrections(batch: Batch) -> list[Correction]:
    """The newest few, each as one upload of corrected rows."""
    entries = of_corrections(f"batch {batch.public_id}").order_by("-id")
    columns = ("at", "actor_words", "reason", "facts")
    return [
        Correction(at, who, reason, facts.get("summary", {}).get("corrected", 0))
        for at, who, reason, facts in entries.values_list(*columns)[:CORRECTIONS_SHOWN]
    ]


def of_corrections(subject: Any) -> QuerySet[AuditEntry]:
    """What the log holds of uploads of corrected rows; `subject` names the batch, or leads to its name."""
    return AuditEntry.objects.filter(subject=subject, action="replace_rows")


@dataclass(frozen=True)
class Filters:
    """What a page of the log is narrowed to; empty says nothing. Dates are whole days in UTC, both included."""

    who: str = ""
    action: str = ""
    subject: str = ""
    workspace: str = ""
    since: date | None = None
    until: date | None = None


@dataclass(frozen=True)
class EntryRow:
    """One entry as a page shows it. `business_id` where the subject is a document; `kind` and `key` name it."""

    pk: int
    at: datetime
    who: str
    action: str
    subject: str
    kind: str
    key: str
    business_id: str
    workspace: str
    reason: str
    from_where: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def action_words(self) -> str:
        return action_words(self.action)

    @property
    def facts_words(self) -> str:
        """By their names: PostgreSQL keeps no other order of them."""
        told = sorted(((name, value) for name, value in self.facts.items() if _says(value)), key=lambda pair: pair[0])
        said = [f"{name.replace('_', ' ')} {_said(value)}" for name, value in told]
        return " ".join(part if part.endswith(".") else f"{part}," for part in said).removesuffix(",")


def entries(person: Person, filters: Filters) -> QuerySet[AuditEntry]:
    """What the person may read of the log. What belongs to no workspace is the installation's: superusers' only."""
    mine = rights.workspaces(person, rights.VIEW_AUDIT)
    if getattr(person, "is_superuser", False):
        found = AuditEntry.objects.all()
    else:
        found = AuditEntry.objects.filter(workspace__in=mine)
    if any("\0" in text for text in (filters.who, filters.action, filters.subject, filters.workspace)):
        return found.none()  # PostgreSQL takes no NUL; no stored text holds one
    if filters.workspace:
        found = found.filter(workspace__slug=filters.workspace)
    if filters.who:
        found = found.filter(actor_words__icontains=filters.who)
    if filters.action:
        found = found.filter(action=filters.action)
    if filters.subject:
        found = found.filter(_about(filters.subject, mine))
    if filters.since:
        found = found.filter(at__gte=datetime.combine(filters.since, time.min, UTC))
    if filters.until:
        found = found.filter(at__lt=datetime.combine(filters.until, time.min, UTC) + timedelta(days=1))
    return found


def entries_page(
    person: Person, filters: Filters, *, after: str = "", before: str = "", limit: int = ENTRIES_PER_PAGE
) -> Page[EntryRow]:
    """Newest first, by keyset. Cursors that make no sense are ignored."""
    found = entries(person, filters).select_related("workspace")
    page = cursors.page(found, "at", after=after, before=before, limit=limit)
    return Page(_rows(page.rows), page.before, page.after)


def table(person: Person, filters: Filters) -> Iterator[dict[str, Any]]:
    """Every entry that the filters leave, newest first, keyed by `COLUMNS`; read in slices."""
    after = ""
    while True:
        page = entries_page(person, filters, after=after, limit=_SLICE)
        for row in page.rows:
            yield {
                "at": row.at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "who": row.who,
                "action": row.action,
                "subject": row.subject,
                "business_id": row.business_id,
                "workspace": row.workspace,
                "reason": row.reason,
                "from_where": row.from_where,
                "facts": row.facts_words,
            }
        if page.after is None:
            return
        after = page.after


def _about(wanted: str, workspaces: QuerySet[Workspace]) -> Q:
    """Entries whose subject is that: as it is written, an id without its kind, or a business id of a document.

    What a bulk action did to a document is told by the entries of the action, so those that settled it are about it.
    """
    names = [wanted, *(f"{kind} {wanted}" for kind in _SUBJECTS)]
    wanted = wanted.removeprefix("document ")
    documents = Document.objects.filter(workspace__in=workspaces, business_id=wanted).order_by("-pk")
    ids = [wanted, *documents.values_list("public_id", flat=True)[:_DOCUMENTS_MOST]]
    about = Q(subject__in=[*names, *(f"document {public_id}" for public_id in ids)])
    for public_id in ids:  # one version or one submission of it
        about |= Q(subject__startswith=f"document {public_id} ")
    about |= Q(subject__startswith=f"export {wanted} ")  # its subject names the batch besides
    held = BulkActionItem.objects.filter(item__document__public_id__in=ids).exclude(result=ItemResult.WAITING)
    actions = held.order_by("-action_id").values_list("action__public_id", flat=True).distinct()[:_ACTIONS_MOST]
    return about | Q(subject__in=[f"bulk action {public_id}" for public_id in actions])


def _rows(entries: Sequence[AuditEntry]) -> list[EntryRow]:
    named = [(entry, *_subject(entry.subject)) for entry in entries]
    documents = {key for _, kind, key in named if kind == "document"}
    ids = dict(Document.objects.filter(public_id__in=documents).values_list("public_id", "business_id"))
    return [
        EntryRow(
            pk=entry.pk,
            at=entry.at,
            who=entry.actor_words,
            action=entry.action,
            subject=entry.subject,
            kind=kind,
            key=key,
            business_id=ids.get(key, ""),
            workspace=entry.workspace.name if entry.workspace else "",
            reason=entry.reason,
            from_where=entry.from_where,
            facts=entry.facts,
        )
        for entry, kind, key in named
    ]


def _subject(subject: str) -> tuple[str, str]:
    """`document doc_1 v2` is about the document doc_1, `bulk action act_1` about that action."""
    kind = next((kind for kind in _SUBJECTS if subject.startswith(f"{kind} ")), subject.partition(" ")[0])
    return kind, subject.removeprefix(kind).strip().partition(" ")[0]


def _says(value: Any) -> bool:
    return value is not None and value != "" and value != [] and value != {}


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_said(value[name])}" for name in sorted(value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        parts = [_said(each) for each in value]
        return (" " if all(part.endswith(".") for part in parts) else ", ").join(parts)
    return f"{value:,}" if isinstance(value, int) else str(value)
