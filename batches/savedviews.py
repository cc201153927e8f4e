"""Read-only: the views of a list that a person keeps, and which of them is the one that the address says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from django.contrib.auth.models import User

from batches.models import SavedView, ViewPage

#: Of an address: where in the list somebody is, and what is no filter.
_NO_FILTER = ("after", "before", "causes")


@dataclass(frozen=True)
class Kept:
    """One of them; `is_current` where the page shows just these filters."""

    pk: int
    name: str
    query: str
    is_current: bool


@dataclass(frozen=True)
class Saved:
    """The person's views of one list, and what would be kept of the address as it is."""

    page: ViewPage
    views: Sequence[Kept]
    query: str

    @property
    def current(self) -> Kept | None:
        return next((view for view in self.views if view.is_current), None)


def query_of(given: Mapping[str, str]) -> str:
    """The filters of an address in one order, so that the same ones are the same text."""
    return urlencode(sorted((name, given[name]) for name in given if given[name] and name not in _NO_FILTER))


def of(user: User, page: ViewPage, given: Mapping[str, str]) -> Saved:
    query = query_of(given)
    found = SavedView.objects.filter(user=user, page=page).order_by("name", "pk")
    views = [Kept(view.pk, view.name, view.query, view.query == query) for view in found]
    return Saved(page, views, query)
