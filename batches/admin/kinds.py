"""The two kinds of rows in the admin: evidence, which is only read, and what staff may change. Registers nothing.

Either list stays usable with 100,000 rows and more: it is never counted whole, sorted by nothing but an index, searched
by whole ids that an index holds (`searching.py`), and reads what its columns name in one query.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import Field, Model, QuerySet
from django.forms import MultiWidget, SplitDateTimeField
from django.http import HttpRequest
from django.utils.functional import cached_property

from batches import rights, wording
from batches.admin import searching
from batches.models import (
    ACCOUNT_SECRETS,
    Batch,
    BulkAction,
    DocumentVersion,
    Export,
    ProviderAccount,
    TemplateVersion,
    Workspace,
)

#: Rows that a list counts, and that its pages reach; beyond them somebody searches.
COUNTED_MOST = 10_000
#: Columns that are large or secret, of models whose names lists show.
HEAVY: Mapping[type[Model], tuple[str, ...]] = {
    Batch: ("report",),
    BulkAction: ("plan", "filter", "options"),
    DocumentVersion: ("input_inline", "template_data", "options"),
    Export: ("rows", "options", "selection"),
    ProviderAccount: ACCOUNT_SECRETS,
    TemplateVersion: ("source", "fields"),
}


class CappedPaginator(Paginator):
    """Counts no further than `COUNTED_MOST`: a count(*) of millions takes seconds, on every page."""

    @cached_property
    def found(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by()[: COUNTED_MOST + 1].count())

    @cached_property
    def count(self) -> int:
        return min(self.found, COUNTED_MOST)

    @property
    def is_capped(self) -> bool:
        return self.found > COUNTED_MOST


class Labelled(admin.ModelAdmin):
    """Each of the two inputs of an instant bears a name for who cannot see that they stand behind one label."""

    def formfield_for_dbfield(self, db_field: Field[Any, Any], request: HttpRequest, **given: Any) -> Any:
        field = super().formfield_for_dbfield(db_field, request, **given)
        if isinstance(field, SplitDateTimeField) and isinstance(field.widget, MultiWidget):
            for part, widget in zip(("date", "time"), field.widget.widgets, strict=True):
                widget.attrs["aria-label"] = f"{field.label}: {part}, UTC"
        return field


class Bounded(Labelled):
    """A list that costs the same whatever the size of its table.

    `finds` says what its search finds: by which `searching.FINDERS`, and along which foreign keys the rows hang on
    that. Columns sort by nothing: the newest come first, in the order of the primary key or of an index.
    """

    finds: dict[str, str] = {}
    paginator = CappedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # a count for each choice of each filter
    list_per_page = 50
    list_max_show_all = 200
    ordering: ClassVar[tuple[str, ...]] = ("-pk",)
    sortable_by = ()
    actions: Sequence[Any] | None = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.finds:
            cls.search_help_text = searching.help_words(cls.finds)

    def get_search_fields(self, request: HttpRequest) -> tuple[str, ...]:
        return (*self.finds, *super().get_search_fields(request))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        if not self.finds:
            return super().get_search_results(request, queryset, search_term)
        return searching.found(queryset, self.finds, search_term), False

    def view_on_site(self, row: Any) -> str | None:
        """The page of the product that shows this row; None where none does."""
        return searching.page_of(row)


class Evidence(Bounded):
    """Rows that prove what happened: to be read, never added, changed or deleted.

    `hidden` names fields that hold documents, working links or digests of secrets; nobody sees them here, since a look
    at them is written down on the product's own pages. `unread` are the columns that no page reads: the hidden ones,
    unless a subclass shows something made of them. `content` names what may quote a document or a provider's answer:
    it takes the right to see content in the row's workspace.
    """

    hidden: tuple[str, ...] = ()
    unread: tuple[str, ...] | None = None
    content: tuple[str, ...] = ()

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        shown = [field.name for field in self.model._meta.fields if field.name not in self.hidden]
        shown += [name for name in self.readonly_fields if name not in shown]
        if self.content and not self.may_see_content(request, obj):
            shown = [name for name in shown if name not in self.content] + ["withheld"]
        return shown

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return (*super().get_readonly_fields(request, obj), "withheld")

    @admin.display(description="content")
    def withheld(self, row: Any) -> str:
        return wording.WITHHELD

    def may_see_content(self, request: HttpRequest, row: Any) -> bool:
        workspace = self.workspace_of(row) if row is not None else None
        if workspace is None:
            return bool(request.user.is_superuser)
        return rights.may(request.user, rights.VIEW_CONTENT, workspace)

    def workspace_of(self, row: Any) -> Workspace | None:
        """Whose content it is; None: the installation's."""
        return None

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request).defer(*(self.hidden if self.unread is None else self.unread))
        related = set(self.list_select_related) if isinstance(self.list_select_related, tuple) else set()
        if "account" in {field.name for field in self.model._meta.fields}:
            related.add("account")  # also on a row's own page: read by itself it would bring its secrets
        return rows.select_related(*sorted(related)).defer(*_heavy_along(self.model, related)) if related else rows


def _heavy_along(model: type[Model], paths: Iterable[str]) -> set[str]:
    """The columns of rows beside the listed ones that no list shows: texts of documents, reports, secrets."""
    found = set()
    for path in paths:
        owner, names = model, path.split("__")
        for depth, name in enumerate(names, start=1):
            owner = owner._meta.get_field(name).related_model  # type: ignore[assignment] # a foreign key
            found |= {f"{'__'.join(names[:depth])}__{column}" for column in HEAVY.get(owner, ())}
    return found


class Kept(Bounded):
    """Rows that staff may change and that are archived, never deleted: submissions hang below them."""

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
