"""Searching and filtering in the admin: by whole values that an index holds, in small steps from one table to the next.

Django's own search asks `icontains` of joined tables, which reads all of a table of millions. Here a term is looked up
as what it may be (a batch's id, a document's, a user), and rows are found along foreign keys, each of which is indexed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse

from batches import actions
from batches.models import (
    Alert,
    Artifact,
    AuditEntry,
    Batch,
    BulkAction,
    Document,
    Draft,
    Export,
    FindingKind,
    Job,
    ProviderAccount,
    StoreFinding,
    Submission,
    Template,
    WebhookEvent,
    Workspace,
)

#: Keys that one step hands to the next.
KEYS_MOST = 500


@dataclass(frozen=True)
class Finder:
    """What a term may be. `find` gives the keys of rows that it names, each by an index."""

    words: str
    find: Callable[[str], QuerySet[Any]]


def _workspaces() -> list[int]:
    return list(Workspace.objects.values_list("pk", flat=True))


def _accounts() -> list[int]:
    return list(ProviderAccount.objects.values_list("pk", flat=True))


def _documents(term: str) -> QuerySet[Document]:
    # The index begins with the workspace, so each is named.
    return Document.objects.filter(Q(public_id=term) | Q(workspace__in=_workspaces(), business_id=term))


def _jobs(term: str) -> QuerySet[Job]:
    return Job.objects.filter(pk=int(term)) if term.isascii() and term.isdigit() and len(term) < 18 else _none(Job)


def _submissions(term: str) -> QuerySet[Submission]:
    named = Q(provider_job_id=term) | Q(idempotency_key=term)
    return Submission.objects.filter(named, account__in=_accounts())


def _entries(term: str) -> QuerySet[AuditEntry]:
    subjects = [term, *(f"{kind} {term}" for kind in ("batch", "document", "draft", "account", "template"))]
    return AuditEntry.objects.filter(subject__in=subjects)


def _alerts(term: str) -> QuerySet[Alert]:
    batches = Batch.objects.filter(public_id=term).values("pk")
    jobs = Job.objects.filter(version__document__in=list(_documents(term).values_list("pk", flat=True)))
    return Alert.objects.filter(Q(batch__in=batches) | Q(job__in=list(jobs.values_list("pk", flat=True)[:KEYS_MOST])))


def _findings(term: str) -> QuerySet[StoreFinding]:
    # In two steps, each by an index of its own: that of open findings begins with the kind.
    still_open = StoreFinding.objects.filter(kind__in=FindingKind.values, storage_key=term, resolved_at=None)
    known = StoreFinding.objects.filter(artifact__in=Artifact.objects.filter(storage_key=term).values("pk"))
    keys = [*still_open.values_list("pk", flat=True), *known.values_list("pk", flat=True)[:KEYS_MOST]]
    return StoreFinding.objects.filter(pk__in=keys)


def _events(term: str) -> QuerySet[WebhookEvent]:
    return WebhookEvent.objects.filter(account__in=_accounts(), provider_job_id=term)


def _none(model: type[Model]) -> Any:
    return model._default_manager.none()


FINDERS: Mapping[str, Finder] = {
    "batch": Finder("batch id", lambda term: Batch.objects.filter(public_id=term)),
    "document": Finder("document id or business id", _documents),
    "job": Finder("number of a job", _jobs),
    "submission": Finder("provider job id or idempotency key", _submissions),
    "draft": Finder("draft id", lambda term: Draft.objects.filter(public_id=term)),
    "action": Finder("bulk action id", lambda term: BulkAction.objects.filter(public_id=term)),
    "export": Finder("export id", lambda term: Export.objects.filter(public_id=term)),
    "template": Finder(
        "template name as in its address", lambda term: Template.objects.filter(workspace__in=_workspaces(), slug=term)
    ),
    "account": Finder(
        "account name as in its address", lambda term: ProviderAccount.objects.filter(slug=term).only("pk")
    ),
    "user": Finder("user name", lambda term: User.objects.filter(username=term)),
    "artifact": Finder("storage key", lambda term: Artifact.objects.filter(storage_key=term)),
    "entry": Finder("id of a batch, document, draft, account or template", _entries),
    "alert": Finder("batch id, document id or business id", _alerts),
    "finding": Finder("storage key", _findings),
    "event": Finder("provider job id", _events),
}


def help_words(finds: Mapping[str, str]) -> str:
    words = [FINDERS[name].words for name in finds]
    listed = f"{', '.join(words[:-1])}, or {words[-1]}" if len(words) > 1 else words[0]
    return f"Finds by whole {listed}."


def found(rows: QuerySet[Any], finds: Mapping[str, str], term: str) -> QuerySet[Any]:
    """Those of the rows that hang on what the term names; all of them without one."""
    term = term.strip().replace("\0", "")
    if not term:
        return rows
    conditions = [_along(rows.model, path, FINDERS[name].find(term)) for name, path in finds.items()]
    hits = [condition for condition in conditions if condition is not None]
    return rows.filter(reduce(or_, hits)) if hits else rows.none()


def _along(model: type[Model], path: str, named: QuerySet[Any]) -> Q | None:
    """The condition on `model` by its own foreign key, after each step before it was looked up; None: nothing is named.

    `path` leads from the model to what `named` holds; `pk`: that is the model itself.
    """
    keys = list(named.order_by().values_list("pk", flat=True)[:KEYS_MOST])
    names = path.split("__")
    owners: list[type[Model]] = [model]
    for name in names[:-1]:
        owners.append(owners[-1]._meta.get_field(name).related_model)  # type: ignore[arg-type] # a foreign key
    for owner, name in reversed(list(zip(owners, names, strict=True))[1:]):
        further = owner._default_manager.filter(**{f"{name}__in": keys}).order_by()
        keys = list(further.values_list("pk", flat=True)[:KEYS_MOST]) if keys else []
    return Q(**{f"{names[0]}__in": keys}) if keys else None


# --- filters --------------------------------------------------------------------------------------------------------


class _Of(admin.SimpleListFilter):
    """Rows of one workspace or account, by their own foreign key. Reads names and keys only, never a secret."""

    model: type[Model]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        names = self.model._default_manager.order_by("name", "pk").values_list("pk", "name")
        return [(str(key), name) for key, name in names]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        chosen = self.value() or ""
        is_key = chosen.isascii() and chosen.isdigit() and len(chosen) < 18
        return queryset.filter(**{str(self.parameter_name): int(chosen)}) if is_key else queryset


class OfWorkspace(_Of):
    title, parameter_name, model = "workspace", "workspace", Workspace


class OfAccount(_Of):
    title, parameter_name, model = "account", "account", ProviderAccount


class OpenByKind(admin.SimpleListFilter):
    """What is open, all of it or one kind: the index that keeps two of a kind from being open answers."""

    title, parameter_name = "what is open", "open"
    until = ""

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        return [("all", "All that is open"), *model_admin.model._meta.get_field("kind").choices]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.value():
            return queryset
        still_open = queryset.filter(**{self.until: None})
        return still_open if self.value() == "all" else still_open.filter(kind=self.value())


class OpenAlerts(OpenByKind):
    until = "closed_at"


class OpenFindings(OpenByKind):
    until = "resolved_at"


# --- the product's pages ----------------------------------------------------------------------------------------------


def page_of(row: Any) -> str | None:
    """Where the product shows what this row is about."""
    for get in _PAGES.get(row._meta.model_name, ()):
        subject = get(row)
        if subject is None:
            continue
        if isinstance(subject, BulkAction):
            return actions.address(subject)
        name, key = _ADDRESS[subject._meta.model_name]
        return reverse(f"batches:{name}", args=[getattr(subject, key)])
    return None


_ADDRESS: Mapping[str, tuple[str, str]] = {
    "batch": ("batch_detail", "public_id"),
    "document": ("document_detail", "public_id"),
    "draft": ("draft_detail", "public_id"),
    "export": ("export_detail", "public_id"),
    "template": ("template_detail", "slug"),
}
#: By model: how to come from a row to what has a page, the first that there is.
_PAGES: Mapping[str, tuple[Callable[[Any], Any], ...]] = {
    **dict.fromkeys(_ADDRESS, (lambda row: row,)),
    "batchitem": (lambda row: row.document,),
    "documentversion": (lambda row: row.document,),
    "artifact": (lambda row: row.version.document,),
    "job": (lambda row: row.version.document,),
    **dict.fromkeys(
        ("jobevent", "submission", "exchange", "duration"), (lambda row: row.job.version.document if row.job else None,)
    ),
    "bulkaction": (lambda row: row,),
    "bulkactionitem": (lambda row: row.action,),
    "exportpart": (lambda row: row.export,),
    "templateversion": (lambda row: row.template,),
    "notice": (lambda row: row.batch,),
    "noticewatch": (lambda row: row.batch,),
    "alert": (lambda row: row.batch, lambda row: row.job.version.document if row.job else None),
}
