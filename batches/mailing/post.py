"""Letters to the mail server, one at a time and with no transaction open. What it said becomes a row at once.

Three ends are told apart: taken; not taken (nothing was sent: again later, or never); and lost after the letter left,
of which nobody knows. Such a one is repeated once, under the same Message-ID
(docs/decisions/0030-notices-at-least-once.md).
"""

from __future__ import annotations

import logging
import smtplib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.mail import get_connection

from batches.engine import alerts, mishaps, notices
from batches.engine.clock import Clock, SystemClock
from batches.engine.notices import Letter
from batches.mailing import letters
from batches.models import AlertKind
from batches.notices import is_mail_on, one_line

log = logging.getLogger(__name__)

#: A pass sends no more, so that the worker is free again within seconds; the next one comes within the minute.
LETTERS_AT_ONCE = 30
#: No letter is begun later in a pass: a slow server would have django-q kill the worker with one in its hands, of which
#: nobody knows then whether it left (`Q_CLUSTER["timeout"]`).
PASS_MOST = timedelta(seconds=60)
SERVER = "mail"
WHAT_TO_DO = "Notices stand on their page all the same. Check EMAIL_URL and DEFAULT_FROM_EMAIL, and the mail server."


class Unreachable(Exception):
    """The mail server cannot be asked just now; nothing was sent."""


def deliver(*, now: datetime, clock: Clock | None = None) -> int:
    """Send what is due; how many letters were taken. Where the server cannot be reached everything waits untouched."""
    if not is_mail_on():
        return 0
    due = notices.due_letters(domain=urlsplit(settings.SITE_URL).hostname or "localhost", now=now)
    wanted = [letter for each in due if (letter := _still_wanted(each, now=now)) is not None]
    if not wanted:
        return 0
    sent, clock = 0, clock or SystemClock(now)
    try:
        with _opened() as connection:
            for letter in wanted[:LETTERS_AT_ONCE]:
                if clock.now() >= now + PASS_MOST:
                    break
                if notices.claim(letter, now=now):
                    sent += _send(letter, connection, now=now)
    except Unreachable as error:
        log.warning("no mail can be sent: %s", error)
        alerts.tell(AlertKind.MAIL, SERVER, f"No e-mail can be sent: {error} {WHAT_TO_DO}", now=now)
    return sent


def _still_wanted(letter: Letter, *, now: datetime) -> Letter | None:
    """The letter with what of it is still to be told; None after it was given up."""
    words = notices.why_not(letter, now=now)
    visible = notices.still_visible(letter)
    hidden = tuple(notice for notice in letter.notices if notice not in visible)
    if hidden:
        notices.give_up(replace(letter, notices=hidden), "This person may not see the batch any more.")
    if words and visible:
        notices.give_up(replace(letter, notices=visible), words)
    return replace(letter, notices=visible) if visible and not words else None


@contextmanager
def _opened() -> Iterator[Any]:
    """A connection that is known to work, before any letter counts as perhaps sent. Raises `Unreachable`."""
    connection = get_connection()
    try:
        connection.open()
    except (smtplib.SMTPException, OSError) as error:
        raise Unreachable(_words(error)) from error
    try:
        yield connection
    finally:
        with suppress(smtplib.SMTPException, OSError):
            connection.close()


def _send(letter: Letter, connection: Any, *, now: datetime) -> int:
    """One letter that is claimed. Raises `Unreachable` where the server left, after it was written down."""
    try:
        message = letters.message(letter, letter.notices)
        connection.send_messages([message])
    except smtplib.SMTPRecipientsRefused as error:
        code, _said = next(iter(error.recipients.values()), (550, b""))
        _refused(letter, error, is_final=code >= 500, now=now)
        return 0
    except smtplib.SMTPResponseException as error:
        # Of the sender or the server, not of the letter: somebody can mend it, so it is tried again.
        notices.note_refused(letter, _words(error), is_final=False, now=now)
        raise Unreachable(_words(error)) from error
    except (smtplib.SMTPException, OSError) as error:
        notices.note_doubt(letter, _words(error), now=now)
        raise Unreachable(_words(error)) from error
    except Exception as error:  # a fault of ours, found before anything left
        log.exception("a letter could not be written", exc_info=mishaps.without_row(error))
        notices.note_refused(letter, "A fault of ours; the log says more.", is_final=True, now=now)
        return 0
    notices.note_sent(letter, now=now)
    alerts.close(AlertKind.MAIL, SERVER, now=now)
    alerts.close(AlertKind.MAIL, _of(letter), now=now)
    return 1


def _refused(letter: Letter, error: smtplib.SMTPRecipientsRefused, *, is_final: bool, now: datetime) -> None:
    words = _words(error)
    if not notices.note_refused(letter, words, is_final=is_final, now=now):
        name = letter.recipient.get_username()
        alerts.tell(
            AlertKind.MAIL,
            _of(letter),
            f"No e-mail reaches {name}: {words} Correct the person's address in the admin.",
            now=now,
        )


def _of(letter: Letter) -> str:
    return f"{SERVER}:{letter.recipient.pk}"


def _words(error: Exception) -> str:
    """What the server said, on one line."""
    said: bytes | str
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        code, said = next(iter(error.recipients.values()), (550, b"refused"))
    elif isinstance(error, smtplib.SMTPResponseException):
        code, said = error.smtp_code, error.smtp_error
    else:
        return one_line(f"{type(error).__name__}: {error}.", 300)
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    return one_line(f"the server said {code} {text}.", 300)
