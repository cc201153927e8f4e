"""Small pieces of markup that many templates share: badge, bar, time, icon. No decision about state; the queries
are those of the frame of every page, which asks where this person may be led."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from django import template
from django.templatetags.static import static
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString

from batches import figures, rownumbers, sentences, wording
from batches.models import JobState, ProviderAccount
from batches.navigation import Frame, Link
from batches.navigation import frame as frame_of
from batches.selectors import Progress
from batches.wording import Badge

register = template.Library()

register.filter("size", figures.size)
register.filter("masked", wording.masked)
register.filter("pace", figures.pace)
register.filter("sentence", wording.sentence)
register.filter("interval_ms", sentences.interval_ms)
register.filter("data_terms", sentences.data_terms)
register.filter("terms_rows", sentences.terms_rows)
register.filter("length_words", figures.length)

BAR_WIDTH = 1000
SPARK_HEIGHT = 60
#: Three failed of a hundred thousand must still be seen.
LEAST_SEGMENT = 8


@register.filter
def number(value: int | None) -> str:
    """`1,284`; an en dash for what is not known."""
    return "–" if value is None else f"{value:,}"


@register.filter
def row_number(position: int | None) -> str:
    """`1,285` of position 1284: as a person counts rows."""
    return number(None if position is None else rownumbers.said(position))


@register.filter
def seconds(milliseconds: int) -> str:
    """`0.5 s`, of a limit in milliseconds."""
    return figures.length(milliseconds / 1000)


@register.filter
def price(account: ProviderAccount) -> str:
    """`0.0013 USD`; empty where none is known."""
    known = account.price_per_job
    return "" if known is None else figures.money(known, account.price_currency)


@register.filter
def hold_advice(reason: str) -> str:
    """What a person can do about a held account."""
    return wording.HOLD_WHAT_TO_DO.get(reason, "")


@register.simple_tag(takes_context=True)
def frame(context: template.Context) -> Frame:
    """What stands around a page: asked once, used by the bar, the menu of a small screen and the keyboard."""
    return frame_of(context["user"], str(context.get("nav") or ""))


@register.inclusion_tag("batches/_navigation.html")
def navigation(links: Sequence[Link]) -> dict[str, Any]:
    """The way to every page that this person may open: the bar with its “More”, and one menu on a small screen."""
    more = [link for link in links if not link.is_in_bar]
    return {
        "links": links,
        "bar": [link for link in links if link.is_in_bar],
        "more": more,
        "more_current": next((link for link in more if link.is_current), None),
    }


@register.simple_tag(takes_context=True)
def page_links(context: template.Context) -> list[Link]:
    """The pages of the product that this person may open, for the admin, which is none of them."""
    return [link for link in frame_of(context["user"], "admin").links if not link.is_current]


@register.filter
def with_code(words: str) -> SafeString:
    """What stands between backticks in a sentence, as commands do, is drawn as code."""
    return SafeString(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(words)))


# A page of 50 rows draws some hundred icons and badges, of a few dozen kinds; each is written out once.
@register.simple_tag
@lru_cache(maxsize=256)
def icon(name: str) -> SafeString:
    """A drawing of `static/batches/icons.svg`. It never carries meaning alone, so it is hidden from screen readers."""
    return format_html(
        '<svg class="icon" width="16" height="16" aria-hidden="true" focusable="false"><use href="{}#{}"></use></svg>',
        static("batches/icons.svg"),
        name,
    )


@register.simple_tag(name="badge")
@lru_cache(maxsize=256)
def drawn_badge(badge: Badge) -> SafeString:
    """A state as its word, with colour, icon and, to whoever points at it, one sentence."""
    return format_html(
        '<span class="badge {}" title="{}">{}{}</span>', badge.colour, badge.meaning, icon(badge.colour), badge.label
    )


@register.simple_tag
def vital_badge(name: str) -> SafeString:
    """How a part of the installation does."""
    return drawn_badge(wording.VITAL_BADGES[name])


@register.simple_tag
def draft_badge(name: str) -> SafeString:
    """How an upload stands that was not started, or no more."""
    return drawn_badge(wording.DRAFT_BADGES[name])


@register.simple_tag
def when(instant: datetime | None) -> SafeString:
    """A point in time: `2 Mar 09:12` in UTC; the script adds the reader's own time as a hint."""
    if instant is None:
        return format_html("{}", "–")
    utc = instant.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{} UTC">{} {}</time>',
        utc.isoformat(timespec="milliseconds"),
        f"{utc:%Y-%m-%d %H:%M:%S}",
        f"{utc.day} {utc:%b}",
        f"{utc:%H:%M}",
    )


@register.simple_tag
def moment(instant: datetime) -> SafeString:
    """A point of a timeline, to the second: `2 Mar 09:12:41`."""
    utc = instant.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{} UTC">{} {}</time>',
        utc.isoformat(timespec="milliseconds"),
        f"{utc:%Y-%m-%d %H:%M:%S}.{utc.microsecond // 1000:03}",
        f"{utc.day} {utc:%b}",
        f"{utc:%H:%M:%S}",
    )


@dataclass(frozen=True)
class Segment:
    colour: str
    x: float
    width: float


@register.inclusion_tag("batches/_spark.html")
def spark(values: Sequence[int]) -> dict[str, Any]:
    """A row of bars, one for each minute; the numbers stand in the text beside it and in its name."""
    highest, step = max([*values, 1]), BAR_WIDTH / max(1, len(values))
    heights = [round(SPARK_HEIGHT * value / highest, 1) for value in values]
    bars = [
        {
            "x": round(step * place + 4, 1),
            "y": round(SPARK_HEIGHT - height, 1),
            "width": round(step - 8, 1),
            "height": height,
        }
        for place, height in enumerate(heights)
    ]
    return {"bars": bars, "values": values, "width": BAR_WIDTH, "height": SPARK_HEIGHT}


@register.inclusion_tag("batches/_bar.html")
def bar(progress: Progress) -> dict[str, Any]:
    """The segmented bar of a batch with its text alternative."""
    return {"segments": segments(progress), "words": sentences.text_alternative(progress), "width": BAR_WIDTH}


def segments(progress: Progress) -> list[Segment]:
    """The bar's parts from left to right; what exists is at least `LEAST_SEGMENT` wide, and all fill `BAR_WIDTH`."""
    counts = progress.counts
    present = [(colour, count) for colour, _label, count in parts(progress) if count]
    free = BAR_WIDTH - LEAST_SEGMENT * len(present)
    drawn, x = [], 0.0
    for colour, count in present:
        width = LEAST_SEGMENT + free * count / counts.total
        drawn.append(Segment(colour, round(x, 1), round(width, 1)))
        x += width
    return drawn


def parts(progress: Progress) -> list[tuple[str, str, int]]:
    """Colour, name and count of the bar's parts, which add up to the total."""
    counts = progress.counts
    waiting = progress.in_progress_states.get(JobState.PENDING, 0)
    names = {group: badge.label for group, badge in wording.GROUP_BADGES.items()}
    return [
        ("saved", names[wording.Group.SAVED], counts.saved),
        ("failed", names[wording.Group.FAILED], counts.failed),
        ("stopped", names[wording.Group.CANCELLED], counts.cancelled),
        ("moving", names[wording.Group.IN_PROGRESS], counts.in_progress - waiting),
        ("held", names[wording.Group.HELD], counts.held),
        ("waiting", wording.JOB_BADGES[JobState.PENDING].label, waiting),
    ]


@dataclass(frozen=True)
class Share:
    colour: str
    label: str
    count: int
    words: str


@register.inclusion_tag("batches/_shares.html")
def shares(progress: Progress) -> dict[str, Any]:
    """The same bar as a table."""
    total = progress.counts.total
    rows = [
        Share(colour, label, count, figures.share(count / total) if count else "0 %")
        for colour, label, count in parts(progress)
    ]
    return {"shares": rows, "total": total}
