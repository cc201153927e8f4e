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


@dataclass(frozen=True)
class Entry:
    """`sees` says who is led there; the page itself refuses everybody else. `jump` is what follows `g` on the keyboard.

    What people need all day stands in the bar; the rest is one press away under “More”.
    """

    key: str
    label: str
    url_name: str
    jump: str
    sees: Callable[[Person], bool]
    is_in_bar: bool = False


@dataclass(frozen=True)
class Link:
    key: str
    label: str
    url: str
    jump: str
    is_in_bar: bool
    is_current: bool


def everybody(person: Person) -> bool:
    return person.is_authenticated


def reads_audit(person: Person) -> bool:
    return rights.may_somewhere(person, rights.VIEW_AUDIT)


def opens_admin(person: Person) -> bool:
    return person.is_active and person.is_staff


ENTRIES: tuple[Entry, ...] = (
    Entry("batches", "Batches", "batches:batch_list", "b", everybody, is_in_bar=True),
    Entry("templates", "Templates", "batches:template_list", "t", everybody, is_in_bar=True),
    Entry("notices", "Notices", "batches:notice_list", "o", everybody),
    Entry("audit", "Audit", "batches:audit_list", "l", reads_audit),
    Entry("admin", "Admin", "admin:index", "i", opens_admin),
)


def links(person: Person, current: str) -> list[Link]:
    """What this person is led to, in order; `current` is the key of the page that asks."""
    return [
        Link(each.key, each.label, reverse(each.url_name), each.jump, each.is_in_bar, each.key == current)
        for each in ENTRIES
        if each.sees(person)
    ]
