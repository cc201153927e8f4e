"""A letter's subject, text and HTML, from what notices say. Sends nothing, asks nothing.

A subject is one line by construction (`notices.one_line`), and Django refuses a header with a line break besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.template.loader import render_to_string
from django.urls import reverse

from batches.engine.notices import Letter
from batches.models import Notice
from batches.notices import Told, one_line, told

#: Notices that a digest tells in full, before it says how many more there are.
TOLD_MOST = 30
SUBJECT_MOST = 180


@dataclass(frozen=True)
class Part:
    """One notice in a letter, with where its batch is to be seen."""

    told: Told
    url: str


def message(letter: Letter, notices: Sequence[Notice]) -> EmailMultiAlternatives:
    """The mail that tells these notices; the same letter comes out the same whenever it is made."""
    parts = [Part(each, _url(each)) for each in map(told, notices[:TOLD_MOST])]
    context = {
        "parts": parts,
        "more_count": len(notices) - len(parts),
        "list_url": f"{settings.SITE_URL}{reverse('batches:notice_list')}",
        "person": letter.recipient.get_username(),
    }
    mail = EmailMultiAlternatives(
        subject=subject(parts, len(notices)),
        body=render_to_string("batches/mail/letter.txt", context),
        from_email=settings.DEFAULT_FROM_EMAIL,
        to=[letter.recipient.email],
        # Answering machines leave it alone; a mailbox that has seen the id shows a repeat no second time.
        headers={"Message-ID": letter.message_id, "Auto-Submitted": "auto-generated"},
    )
    mail.attach_alternative(render_to_string("batches/mail/letter.html", context), "text/html")
    return mail


def subject(parts: Sequence[Part], count: int) -> str:
    if count == 1:
        return one_line(parts[0].told.subject, SUBJECT_MOST)
    names = dict.fromkeys(part.told.name for part in parts)
    return one_line(f"{count:,} notices: {', '.join(names)}", SUBJECT_MOST)


def _url(each: Told) -> str:
    """The page of the batch, which asks who is there; never a file."""
    return f"{settings.SITE_URL}{reverse('batches:batch_detail', args=[each.batch_id])}"
