"""Where a page of its own is led to from every page: one list, in the order in which it is drawn. Decides nothing about
rights; each entry names who sees it.

A new page adds its line to `ENTRIES`, and its view gives the template the entry's `key` as `nav`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.urls import reverse

from batches import rights
from batches.rights import Person

#: Who sees an entry, by the person and every right that they hold somewhere.
Sees = Callable[[Person, frozenset[str]], bool]


@dataclass(frozen=True)
class Entry:
    """`sees` says who is led there; the page itself refuses everybody else. `jump` is what follows `g` on the keyboard.

    What people need all day stands in the bar; the rest is one press away under “More”.
    """

    key: str
    label: str
    url_name: str
    jump: str
    sees: Sees
    is_in_bar: bool = False


@dataclass(frozen=True)
class Link:
    key: str
    label: str
    url: str
    jump: str
    is_in_bar: bool
    is_current: bool


@dataclass(frozen=True)
class Frame:
    """What stands around every page: where it leads, and the address of a new batch where this person may start one."""

    links: tuple[Link, ...]
    new_url: str


def everybody(person: Person, held: frozenset[str]) -> bool:
    return person.is_authenticated


def staff(person: Person, held: frozenset[str]) -> bool:
    return person.is_active and person.is_staff


def holders(right: str) -> Sees:
    """Whoever holds that right in some workspace."""
    return lambda person, held: right in held


ENTRIES: tuple[Entry, ...] = (
    Entry("home", "Home", "batches:home", "h", everybody, is_in_bar=True),
    Entry("batches", "Batches", "batches:batch_list", "b", everybody, is_in_bar=True),
    Entry("failed", "Needs a person", "batches:failed_list", "f", everybody, is_in_bar=True),
    Entry("actions", "Bulk actions", "batches:across_list", "a", everybody),
    Entry("templates", "Templates", "batches:template_list", "t", everybody, is_in_bar=True),
    Entry("exports", "Exports", "batches:export_list", "x", holders(rights.EXPORT), is_in_bar=True),
    Entry("notices", "Notices", "batches:notice_list", "o", everybody),
    Entry("accounts", "Accounts", "batches:account_list", "c", everybody),
    Entry("inbox", "Webhook inbox", "batches:inbox", "w", holders(rights.VIEW_EVENTS)),
    Entry("vitals", "Health", "batches:vitals", "v", holders(rights.VIEW_HEALTH)),
    Entry("audit", "Audit", "batches:audit_list", "l", holders(rights.VIEW_AUDIT)),
    Entry("retention", "Retention", "batches:retention_list", "d", holders(rights.MANAGE_RETENTION)),
    Entry("admin", "Admin", "admin:index", "i", staff),
)


def frame(person: Person, current: str) -> Frame:
    """What this person is led to, in order; `current` is the key of the page that asks. One query for all of it."""
    held = rights.somewhere(person)
    links = (
        Link(each.key, each.label, reverse(each.url_name), each.jump, each.is_in_bar, each.key == current)
        for each in ENTRIES
        if each.sees(person, held)
    )
    return Frame(tuple(links), reverse("batches:batch_new") if rights.START in held else "")
