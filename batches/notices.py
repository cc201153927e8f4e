"""Notices as people read them: what one says in words, on a page and in a mail, and those that a page lists.

Read-only, in two queries. Words are made of the facts that were written down when it happened, so a mail and the page
never disagree. What is written: `engine/notices.py`; what is mailed: `mailing/`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User

from batches import selectors, wording
from batches.cursors import number
from batches.models import Notice, NoticeEvent
from batches.wording import Badge, Group

SHOWN_FIRST = 5
SHOWN_PER_PAGE = 50
#: Counters in the order in which they are told; together they are the total.
_COUNTERS = (Group.SAVED, Group.FAILED, Group.HELD, Group.CANCELLED, Group.IN_PROGRESS)
#: What no line may hold: control characters, line and paragraph separators, and what turns the direction of writing.
_UNPRINTED = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs"})


def one_line(text: str, most: int = 120) -> str:
    """Text of a person or a provider as one line that can break out of nothing: no header, no list, no direction."""
    kept = "".join(" " if unicodedata.category(each) in _UNPRINTED else each for each in text)
    line = " ".join(kept.split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


@dataclass(frozen=True)
class Told:
    """One notice in words. `counts` are label and number, the total last; `causes` title and number."""

    key: int
    event: NoticeEvent
    batch_id: str
    name: str
    file: str
    started_by: str
    at: datetime
    lead: str
    detail: str
    reason: str
    counts: Sequence[tuple[str, int]]
    causes: Sequence[tuple[str, int]]
    more_causes: int
    cost: str
    is_seen: bool
    badge: Badge

    @property
    def headline(self) -> str:
        """`partly complete, 812 of 1,284 saved`"""
        return f"{self.lead}, {self.detail}"

    @property
    def subject(self) -> str:
        return f"{self.name}: {self.headline}"


def told(notice: Notice) -> Told:
    facts: Mapping[str, Any] = notice.facts
    counts: Mapping[str, int] = facts["counts"]
    lead, detail = _headline(NoticeEvent(notice.event), facts)
    return Told(
        key=notice.pk,
        event=NoticeEvent(notice.event),
        batch_id=notice.batch.public_id,
        name=one_line(facts["name"]),
        file=one_line(facts["file"]),
        started_by=one_line(facts["started_by"]),
        at=notice.happened_at,
        lead=lead,
        detail=detail,
        reason=one_line(facts.get("reason", ""), 400),
        counts=[*((group.label, counts[group]) for group in _COUNTERS), ("Total", counts["total"])],
        causes=[(one_line(title), count) for title, count in facts["causes"]],
        more_causes=facts.get("more_causes", 0),
        cost=facts.get("cost") or "",
        is_seen=notice.seen_at is not None,
        badge=_badge(NoticeEvent(notice.event), facts),
    )


def _headline(event: NoticeEvent, facts: Mapping[str, Any]) -> tuple[str, str]:
    """What happened, which a badge says too, and how far it is."""
    counts = facts["counts"]
    saved = f"{counts['saved']:,} of {counts['total']:,} saved"
    match event:
        case NoticeEvent.FINISHED:
            return wording.BATCH_BADGES[facts["state"]].label.lower(), saved
        case NoticeEvent.NEEDS_PERSON:
            return "needs a person", f"{counts['failed']:,} failed so far, {saved}"
        case NoticeEvent.HELD:
            return facts["held_words"], saved
        case NoticeEvent.IMPROVED:
            return f"{facts['more']:,} more saved", f"now {saved}"


def _badge(event: NoticeEvent, facts: Mapping[str, Any]) -> Badge:
    match event:
        case NoticeEvent.FINISHED | NoticeEvent.IMPROVED:
            return wording.BATCH_BADGES[facts["state"]]
        case NoticeEvent.NEEDS_PERSON:
            return wording.NEEDS_PERSON_BADGE
        case NoticeEvent.HELD:
            return wording.held_badge(facts["held_words"])


# --- on pages -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Notices:
    """The newest notices of a person, and how many they have not seen. `older` is the key behind which more lie."""

    shown: Sequence[Told] = ()
    unseen_count: int = 0
    older: int | None = None

    @property
    def newest(self) -> int:
        """Up to which key they are seen, once the person has read them."""
        return self.shown[0].key if self.shown else 0

    @property
    def unseen(self) -> Sequence[Told]:
        return [each for each in self.shown if not each.is_seen]


def notices_for(user: User | AnonymousUser, *, before: str = "", limit: int = SHOWN_FIRST) -> Notices:
    """Notices of a person about batches that they may see at this moment, newest first."""
    if isinstance(user, AnonymousUser):
        return Notices()
    mine = Notice.objects.filter(recipient=user, batch__workspace__in=selectors.visible_workspaces(user))
    place = number(before)
    page = mine.filter(pk__lt=place) if place is not None else mine
    rows = list(page.select_related("batch").order_by("-pk")[: limit + 1])
    shown = [told(row) for row in rows[:limit]]
    return Notices(
        shown=shown,
        unseen_count=mine.filter(seen_at=None).count(),
        older=shown[-1].key if len(rows) > limit else None,
    )


def is_mail_on() -> bool:
    """Whether this installation sends mail at all."""
    return bool(settings.EMAIL_URL)


def why_no_mail(user: User) -> str:
    """Why this person gets no mail, for the place where they ask for it; empty where they do."""
    if not is_mail_on():
        how = "README says under Notices how it is set up or tried." if user.is_superuser else "Ask an administrator."
        return f"E-mail is not set up here (EMAIL_URL), so notices stand on their page only. {how}"
    if not user.email:
        how = "Enter one under Users in the admin." if gives_addresses(user) else "Ask an administrator."
        return f"Your account has no e-mail address, so notices stand on their page only. {how}"
    return ""


def gives_addresses(user: User) -> bool:
    """Whether this person may enter an e-mail address in the admin, their own as well."""
    return user.is_staff and user.has_perm("auth.change_user")
