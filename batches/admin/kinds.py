"""The two kinds of rows in the admin: evidence, which is only read, and what staff may change. Registers nothing."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from batches.models import ACCOUNT_SECRETS


class Evidence(admin.ModelAdmin):
    """Rows that prove what happened: to be read, never added, changed or deleted.

    `hidden` names fields that hold documents, working links or digests of secrets. `unread` are the columns that no
    page reads: the hidden ones, unless a subclass shows something made of them.
    """

    hidden: tuple[str, ...] = ()
    unread: tuple[str, ...] | None = None
    actions: tuple[str, ...] | None = None
    show_full_result_count = False
    list_per_page = 50
    view_on_site = False

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        shown = [field.name for field in self.model._meta.fields if field.name not in self.hidden]
        return [*shown, *(name for name in self.readonly_fields if name not in shown)]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request).defer(*(self.hidden if self.unread is None else self.unread))
        if "account" not in {field.name for field in self.model._meta.fields}:
            return rows
        return rows.select_related("account").defer(*(f"account__{name}" for name in ACCOUNT_SECRETS))


class Kept(admin.ModelAdmin):
    """Rows that staff may change and that are archived, never deleted: submissions hang below them."""

    actions: tuple[str, ...] | None = None
    view_on_site = False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
