"""Keeping views of lists under names: save, rename, delete. The only writer of `SavedView`; each person's own alone."""

from __future__ import annotations

from datetime import datetime

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from batches.models import SavedView, ViewPage

NAME_MOST, QUERY_MOST = 60, 1000
#: Per list: more than anybody finds again in a menu.
VIEWS_MOST = 30


class Refused(Exception):
    """It is not kept; the words say why, and what to do instead."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


def save(user: User, page: ViewPage, name: str, query: str, *, now: datetime) -> SavedView:
    """Keep the filters under a name. A name that is there already is given to these. Raises `Refused`."""
    name = _sound_name(name)
    if not query or len(query) > QUERY_MOST:
        raise Refused("Choose a filter first: a view without one is the whole list.")
    others = SavedView.objects.filter(user=user, page=page).exclude(name=name)
    if others.count() >= VIEWS_MOST:
        raise Refused(f"You keep {VIEWS_MOST} views of this list already. Delete one of them first.")
    values = {"query": query, "created_at": now}
    view, _ = SavedView.objects.update_or_create(user=user, page=page, name=name, defaults=values)
    return view


def rename(view: SavedView, name: str) -> None:
    """Raises `Refused` where the name is empty, another of the person's views has it, or it was deleted meanwhile."""
    view.name = _sound_name(name)
    try:
        with transaction.atomic():
            is_there = SavedView.objects.filter(pk=view.pk).update(name=view.name)
    except IntegrityError as error:
        raise Refused(f"Another of your views is called “{view.name}”. Choose another name.") from error
    if not is_there:
        raise Refused("The view was deleted meanwhile. Save it anew.")


def delete(view: SavedView) -> None:
    SavedView.objects.filter(pk=view.pk).delete()


def _sound_name(name: str) -> str:
    name = " ".join(name.split())
    if not name:
        raise Refused("Give the view a name.")
    if len(name) > NAME_MOST:
        raise Refused(f"A name has at most {NAME_MOST} characters.")
    return name
