"""Notices as rows: who wants to hear of a batch, what happened, and how far the telling is. The one writer of them.

What happened is derived in `mailing/look.py`, mail goes out in `mailing/post.py`; no transaction here lasts while a
mail server is asked. What is guaranteed: docs/decisions/0030-notices-at-least-once.md.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, F, Min, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from batches.engine.contention import again_after_deadlock
from batches.models import Batch, Membership, Notice, NoticeEvent, NoticeWatch

#: So long a letter in somebody's hands is theirs: longer than a mail server is waited for.
LEASE = timedelta(minutes=10)
#: Waits after a letter that was not taken; after the last one it is given up.
WAITS = tuple(timedelta(minutes=minutes) for minutes in (2, 10, 30, 120, 360))
#: Of which nobody knows whether they arrived: one repeat, never a third.
DOUBTS_MOST = 2
#: News that is older helps nobody by mail; it stands on the page.
MAILED_WITHIN = timedelta(hours=24)
#: From more events of one person than this within the window on, they come as one letter.
SINGLY_MOST = 3
WINDOW = timedelta(minutes=5)
PEOPLE_AT_ONCE = 50
#: Letters that were begun before and that one pass looks at again.
LETTERS_AT_ONCE = 50
#: Notices in one letter, and rows that one pass holds in memory; what is more goes with the passes after it.
LETTER_MOST = 1000
NOTICES_AT_ONCE = 3000

TOO_OLD = "It could not be mailed within a day."
IN_DOUBT_TWICE = "It was sent twice and the mail server confirmed neither; it is not sent again."


@dataclass(frozen=True)
class Event:
    """Something that happened to a batch. `facts` are what a letter says; `occasion` as `Notice.occasion`."""

    kind: NoticeEvent
    occasion: str
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Letter:
    """Notices that go to one person as one mail. `message_id` stays the same however often it is sent."""

    message_id: str
    recipient: User
    notices: tuple[Notice, ...]

    @property
    def keys(self) -> list[int]:
        return [notice.pk for notice in self.notices]

    @property
    def attempts(self) -> int:
        return max(notice.attempts for notice in self.notices)


# --- who wants to hear ----------------------------------------------------------------------------------------------


def wanted_by(people: Iterable[User]) -> dict[str, Any]:
    """For `Batch.notify`: these people want to hear of its events; empty for nobody."""
    keys = sorted({person.pk for person in people})
    return {"users": keys} if keys else {}


def watch(batch: Batch, *, now: datetime) -> None:
    """Have the sweep look at a batch from its start on; called in the transaction that writes its row."""
    if batch.notify.get("users"):
        NoticeWatch.objects.create(batch=batch, looked_at=now, due_at=now)


def listeners(batch: Batch) -> list[User]:
    """Who asked for notices of a batch and may still see it."""
    asked = User.objects.filter(pk__in=batch.notify.get("users", ()), is_active=True)
    return list(asked.filter(may_see(batch.workspace_id)).order_by("pk"))


def may_see(workspace_id: int) -> Q:
    members = Membership.objects.filter(workspace=workspace_id).values("user")
    return Q(is_superuser=True) | Q(pk__in=members)


# --- what happened --------------------------------------------------------------------------------------------------


@again_after_deadlock
@transaction.atomic
def record(
    seen: NoticeWatch,
    events: Sequence[Event],
    *,
    people: Sequence[User],
    is_mailed: bool,
    due_at: datetime | None,
    now: datetime,
) -> None:
    """Write down what a look at a batch found, and when it is looked at next; None: never again.

    An event that is known for a person is not written a second time, whoever looks at the same moment.
    """
    rows = [
        Notice(
            batch_id=seen.batch_id,
            recipient=person,
            event=event.kind,
            occasion=event.occasion,
            facts=dict(event.facts),
            happened_at=now,
            next_try_at=now if is_mailed and person.email else None,
            last_error="" if person.email or not is_mailed else "This person has no e-mail address.",
        )
        for event in events
        for person in people
    ]
    Notice.objects.bulk_create(rows, ignore_conflicts=True)
    NoticeWatch.objects.filter(pk=seen.pk, looked_at__lte=now).update(looked_at=now, due_at=due_at)


def see(user: User, *, up_to: int, now: datetime) -> int:
    """The person saw these on a page: those up to the newest that it showed, and none that came since."""
    return Notice.objects.filter(recipient=user, pk__lte=up_to, seen_at=None).update(seen_at=now)


# --- letters --------------------------------------------------------------------------------------------------------


def due_letters(*, domain: str, now: datetime) -> list[Letter]:
    """What is to be mailed now, in the order of its time; what waits for more of the same burst is left out.

    Of very many only the first, in whole letters; the next pass finds the others.
    """
    waiting = Notice.objects.filter(next_try_at__lte=now)
    people = _first(waiting.filter(message_id=""), "recipient", PEOPLE_AT_ONCE)
    # What is in a letter was fixed when it was claimed: its notices stay together.
    begun_ids = _first(waiting.exclude(message_id=""), "message_id", LETTERS_AT_ONCE)
    place = Window(RowNumber(), partition_by=[F("recipient")], order_by=F("pk").asc())
    unsent = waiting.filter(recipient__in=people, message_id="").annotate(place=place)
    fresh_keys = unsent.filter(place__lte=LETTER_MOST).values_list("pk", flat=True)
    rows = waiting.filter(Q(pk__in=list(fresh_keys)) | Q(message_id__in=begun_ids))
    found = rows.select_related("batch", "recipient").defer("batch__report").order_by("pk")
    lately = Notice.objects.filter(recipient__in=people, sent_at__gte=now - WINDOW).order_by()
    sent = dict(lately.values_list("recipient").annotate(count=Count("pk")))
    begun: dict[str, list[Notice]] = {}
    fresh: dict[int, list[Notice]] = {}
    for notice in found:
        if notice.message_id:
            begun.setdefault(notice.message_id, []).append(notice)
        else:
            fresh.setdefault(notice.recipient_id, []).append(notice)
    groups = list(begun.values())
    for person, notices in fresh.items():
        groups += grouped(notices, sent_lately=sent.get(person, 0), now=now)
    return [
        Letter(notices[0].message_id or f"<notice-{secrets.token_hex(12)}@{domain}>", notices[0].recipient, (*notices,))
        for notices in groups
    ]


def _first(waiting: QuerySet[Notice], column: str, most: int) -> list[Any]:
    """The values of a column whose notices wait longest: at least one, and no more than `NOTICES_AT_ONCE` belong to."""
    rows = waiting.order_by().values_list(column)
    counted = list(rows.annotate(first=Min("next_try_at"), count=Count("pk")).order_by("first", column)[:most])
    sums = itertools.accumulate(min(count, LETTER_MOST) for _value, _first, count in counted)
    fits = sum(1 for total in sums if total <= NOTICES_AT_ONCE)
    return [value for value, _first, _count in counted[: max(1, fits)]]


def grouped(notices: Sequence[Notice], *, sent_lately: int, now: datetime) -> list[list[Notice]]:
    """One person's fresh notices as letters: singly, or those of a burst together once its window has passed. Pure."""
    if len(notices) + sent_lately <= SINGLY_MOST:
        return [[notice] for notice in notices]
    is_over = min(notice.happened_at for notice in notices) <= now - WINDOW
    return [list(notices)] if is_over else []


def why_not(letter: Letter, *, now: datetime) -> str:
    """Why this letter is not to be sent any more; empty while it is. Pure."""
    if max(notice.happened_at for notice in letter.notices) <= now - MAILED_WITHIN:
        return TOO_OLD
    if max(notice.doubt_count for notice in letter.notices) >= DOUBTS_MOST:
        return IN_DOUBT_TWICE
    if not letter.recipient.is_active:
        return "This person's account is switched off."
    return "" if letter.recipient.email else "This person has no e-mail address."


def still_visible(letter: Letter) -> tuple[Notice, ...]:
    """Those of its notices whose batch the person may see at this moment."""
    if letter.recipient.is_superuser:
        return letter.notices
    mine = set(Membership.objects.filter(user=letter.recipient).values_list("workspace", flat=True))
    return tuple(notice for notice in letter.notices if notice.batch.workspace_id in mine)


@again_after_deadlock
def claim(letter: Letter, *, now: datetime) -> bool:
    """Take a letter before it leaves: from here on it counts as perhaps sent. False where another worker has it."""
    with transaction.atomic():
        ours = _of(letter).filter(next_try_at__lte=now, message_id__in=["", letter.message_id])
        taken = ours.update(
            message_id=letter.message_id,
            attempts=F("attempts") + 1,
            doubt_count=F("doubt_count") + 1,
            next_try_at=now + LEASE,
        )
        if taken != len(letter.notices):
            transaction.set_rollback(True)
    return taken == len(letter.notices)


def note_sent(letter: Letter, *, now: datetime) -> None:
    _of(letter).filter(sent_at=None).update(sent_at=now, next_try_at=None, last_error="")


def note_refused(letter: Letter, words: str, *, is_final: bool, now: datetime) -> bool:
    """The mail server did not take it: nothing was sent. True while it is tried again."""
    return _put_off(letter, words, is_final=is_final, doubt_count=F("doubt_count") - 1, now=now)


def note_doubt(letter: Letter, words: str, *, now: datetime) -> bool:
    """Nobody knows whether the mail server took it. True while it is sent once more."""
    return _put_off(letter, f"Not known if it arrived: {words}", is_final=False, now=now)


def give_up(letter: Letter, words: str) -> None:
    _of(letter).filter(sent_at=None).update(next_try_at=None, last_error=words)


def _put_off(letter: Letter, words: str, *, is_final: bool, now: datetime, **changes: Any) -> bool:
    goes_on = not is_final and letter.attempts < len(WAITS)
    next_try_at = now + WAITS[letter.attempts] if goes_on else None
    _of(letter).filter(sent_at=None).update(next_try_at=next_try_at, last_error=words, **changes)
    return goes_on


def _of(letter: Letter) -> QuerySet[Notice]:
    return Notice.objects.filter(pk__in=letter.keys)
