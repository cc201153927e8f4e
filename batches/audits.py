"""Read-only queries over the audit log: a page of it, what is filtered by, and how an entry is said in words.

What is written is `engine/audit.py`. Nobody may change an entry; nothing here does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.db.models import Q, QuerySet

from batches import cursors, rights, wording
from batches.listings import Page
from batches.models import AuditEntry, Document, Workspace
from batches.selectors import Person

ENTRIES_PER_PAGE = 50
#: Documents of one business id over all workspaces that a person audits.
_DOCUMENTS_MOST = 50
COLUMNS = ("at", "who", "action", "subject", "business_id", "workspace", "reason", "from_where", "facts")
_SLICE = 1000
_SUBJECTS = ("batch", "document", "bulk action", "account", "workspace", "user")


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
        return wording.audit_action(self.action)

    @property
    def facts_words(self) -> str:
        """By their names: PostgreSQL keeps no other order of them."""
        told = sorted(((name, value) for name, value in self.facts.items() if _says(value)), key=lambda pair: pair[0])
        said = [f"{name.replace('_', ' ')} {_said(value)}" for name, value in told]
        return " ".join(part if part.endswith(".") else f"{part}," for part in said).removesuffix(",")


def entries(person: Person, filters: Filters) -> QuerySet[AuditEntry]:
    """What the person may read of the log. What belongs to no workspace is the installation's: superusers' only."""
    mine = rights.audited_workspaces(person)
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
    found = entries(person, filters)
    older_than, newer_than = cursors.place(after), cursors.place(before)
    backwards = newer_than is not None and older_than is None
    if newer_than and backwards:
        found = found.filter(cursors.beyond("at", "gt", newer_than)).order_by("at", "pk")
    else:
        if older_than:
            found = found.filter(cursors.beyond("at", "lt", older_than))
        found = found.order_by("-at", "-pk")
    rows = _rows(found.select_related("workspace")[: limit + 1])
    has_more, rows = len(rows) > limit, rows[:limit]
    if backwards:
        rows.reverse()
    has_newer = has_more if backwards else older_than is not None
    has_older = True if backwards else has_more
    return Page(
        rows,
        before=cursors.word(rows[0].at, rows[0].pk) if rows and has_newer else None,
        after=cursors.word(rows[-1].at, rows[-1].pk) if rows and has_older else None,
    )


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
    """Entries whose subject is that: as it is written, an id without its kind, or a business id of a document."""
    names = [wanted, *(f"{kind} {wanted}" for kind in _SUBJECTS)]
    wanted = wanted.removeprefix("document ")
    documents = Document.objects.filter(workspace__in=workspaces, business_id=wanted).order_by("-pk")
    ids = [wanted, *documents.values_list("public_id", flat=True)[:_DOCUMENTS_MOST]]
    about = Q(subject__in=[*names, *(f"document {public_id}" for public_id in ids)])
    for public_id in ids:  # one version or one submission of it
        about |= Q(subject__startswith=f"document {public_id} ")
    return about


def _rows(found: QuerySet[AuditEntry]) -> list[EntryRow]:
    entries = list(found)
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
