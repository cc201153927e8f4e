"""Letters on their way to a real SMTP server: their text, bursts, and every way in which sending can go wrong."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.mail.backends import locmem
from django.db import connection

from batches.engine import notices
from batches.mailing.look import look
from batches.mailing.post import PASS_MOST, deliver
from batches.models import Alert, Batch, JobState, Membership, Notice
from tests.engine.carried import Clock
from tests.factories import NOW, make_batch, make_job
from tests.mailing.conftest import watched
from tests.mailing.server import MailServer

pytestmark = pytest.mark.django_db


def minutes(count: float) -> datetime:
    return NOW + timedelta(minutes=count)


@pytest.fixture
def finished(batch: Batch, nadia: User, server: MailServer) -> Notice:
    """A batch of which one document failed, noted and not mailed yet."""
    make_job(batch=batch, state=JobState.SAVED)
    make_job(batch=batch, state=JobState.FAILED, failure_class="invalid_input", failure_code="missing_field")
    look(now=minutes(1))
    return Notice.objects.get()


def test_a_letter_tells_numbers_causes_and_the_page(finished: Notice, batch: Batch, server: MailServer) -> None:
    assert deliver(now=minutes(1)) == 1
    assert deliver(now=minutes(2)) == 0
    (letter,) = server.received
    assert letter["To"] == "nadia@example.com"
    assert letter["Subject"] == f"{batch.name}: partly complete, 1 of 2 saved"
    assert letter["Auto-Submitted"] == "auto-generated"
    page = f"https://batches.example.com/batches/{batch.public_id}/"
    for part in letter.iter_parts():
        text = part.get_content()
        for words in (batch.name, "manifest.json", "nadia", page, "Saved", "Failed", "Held", "Cancelled", "Total"):
            assert words in text, part.get_content_type()
        assert ".pdf" not in text
        assert "archive" not in text
    finished.refresh_from_db()
    assert (finished.sent_at, finished.next_try_at, finished.attempts) == (minutes(1), None, 1)


@pytest.mark.parametrize(
    "name",
    [
        "Invoices\r\nBcc: everybody@example.com\r\n\r\nBuy",
        "Invoices\nBcc: everybody@example.com",
        "Invoices\u2028Bcc: everybody@example.com",
        "Invoices\x0bBcc: everybody@example.com\x00\u202e",
    ],
)
def test_a_name_can_add_no_header(name: str, batch: Batch, nadia: User, server: MailServer) -> None:
    Batch.objects.filter(pk=batch.pk).update(name=name.replace("\x00", ""), manifest_name="<b>&.json\r\nX: y")
    make_job(batch=batch, state=JobState.SAVED)
    look(now=minutes(1))
    assert deliver(now=minutes(1)) == 1
    (letter,) = server.received
    assert letter["Bcc"] is None
    assert letter["X"] is None
    assert letter["Subject"].startswith("Invoices Bcc: everybody@example.com")
    assert "<b>" not in letter.get_body(("html",)).get_content()


def test_a_slow_server_has_no_worker_killed_with_a_letter_in_its_hands(
    batch: Batch, nadia: User, server: MailServer
) -> None:
    class Slow(Clock):
        def now(self) -> datetime:
            self.advance(PASS_MOST.total_seconds() / 2)
            return super().now()

    others = [make_batch(workspace=batch.workspace, account=batch.account) for _ in range(2)]
    for each in others:
        watched(each, nadia)
    for each in (batch, *others):
        make_job(batch=each, state=JobState.SAVED)
    look(now=minutes(1))
    passes = [deliver(now=minutes(at), clock=Slow(minutes(at))) for at in (1, 2, 3, 4)]
    assert passes == [1, 1, 1, 0]
    assert len(server.received) == len({letter["Message-ID"] for letter in server.received}) == 3


def test_many_notices_of_one_person_keep_nobody_elses_waiting(
    batch: Batch, nadia: User, server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "PEOPLE_AT_ONCE", 2)
    other = User.objects.create_user("okoye", email="okoye@example.com")
    Membership.objects.create(workspace=batch.workspace, user=other, role="operator")
    for number in range(4):
        each = make_batch(workspace=batch.workspace, account=batch.account)
        watched(each, nadia)
        make_job(batch=each, state=JobState.SAVED)
        look(now=minutes(1 + number / 10))
    each = make_batch(workspace=batch.workspace, account=batch.account)
    watched(each, other)
    make_job(batch=each, state=JobState.SAVED)
    look(now=minutes(2))
    assert deliver(now=minutes(2)) == 1
    assert [letter["To"] for letter in server.received] == ["okoye@example.com"]


def test_of_very_many_notices_a_pass_holds_a_bounded_number_and_loses_none(
    batch: Batch, nadia: User, server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "LETTER_MOST", 4)
    monkeypatch.setattr(notices, "NOTICES_AT_ONCE", 6)
    others = [User.objects.create_user(name, email=f"{name}@example.com") for name in ("okoye", "ruiz")]
    people = [nadia, *others]
    for at, person in enumerate(people):
        rows = [
            Notice(batch=batch, recipient=person, event="held", occasion=f"stop:{number}", facts={}, happened_at=NOW)
            for number in range(6)
        ]
        Notice.objects.bulk_create(rows)
        Notice.objects.filter(recipient=person).update(next_try_at=minutes(at))
    met: list[Notice] = []
    for _ in range(6):
        letters = notices.due_letters(domain="example.com", now=minutes(10))
        assert sum(len(letter.notices) for letter in letters) <= 6
        for letter in letters:
            assert len(letter.notices) <= 4
            assert notices.claim(letter, now=minutes(10))
            notices.note_sent(letter, now=minutes(10))
            met += letter.notices
    assert [notice.recipient for notice in met[:4]] == [nadia] * 4, "who waits longest comes first"
    assert len(met) == len({notice.pk for notice in met}) == 18


def test_a_burst_comes_as_one_letter_after_its_window(batch: Batch, nadia: User, server: MailServer) -> None:
    others = [make_batch(workspace=batch.workspace, account=batch.account) for _ in range(4)]
    for each in others:
        watched(each, nadia)
    for each in (batch, *others):
        make_job(batch=each, state=JobState.SAVED)
    look(now=minutes(1))
    assert deliver(now=minutes(1)) == 0
    assert deliver(now=minutes(5.9)) == 0
    assert deliver(now=minutes(6)) == 1
    (letter,) = server.received
    text = letter.get_body(("plain",)).get_content()
    assert letter["Subject"].startswith("5 notices: ")
    for each in (batch, *others):
        assert f"/batches/{each.public_id}/" in text
    assert set(Notice.objects.values_list("message_id", flat=True)) == {letter["Message-ID"]}


def test_three_come_singly_and_the_fourth_waits(batch: Batch, nadia: User, server: MailServer) -> None:
    others = [make_batch(workspace=batch.workspace, account=batch.account) for _ in range(2)]
    for each in others:
        watched(each, nadia)
    for each in (batch, *others):
        make_job(batch=each, state=JobState.SAVED)
    look(now=minutes(1))
    assert deliver(now=minutes(1)) == 3
    fourth = make_batch(workspace=batch.workspace, account=batch.account)
    watched(fourth, nadia)
    make_job(batch=fourth, state=JobState.SAVED)
    look(now=minutes(2))
    assert deliver(now=minutes(2)) == 0
    assert deliver(now=minutes(7)) == 1
    assert len(server.received) == 4


def test_a_lost_answer_is_repeated_once_under_the_same_message_id(finished: Notice, server: MailServer) -> None:
    server.mode = "lose"
    assert deliver(now=minutes(1)) == 0
    finished.refresh_from_db()
    assert finished.last_error.startswith("Not known if it arrived")
    for minute in (10, 60, 300, 900):
        deliver(now=minutes(minute))
    first, second = server.received
    assert first["Message-ID"] == second["Message-ID"]
    finished.refresh_from_db()
    assert (finished.sent_at, finished.next_try_at, finished.last_error) == (None, None, notices.IN_DOUBT_TWICE)


def test_a_worker_killed_between_the_servers_answer_and_our_mark_sends_it_once_more_and_never_again(
    finished: Notice, server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(notices, "note_sent", killed)
    for minute in (1, 2, 8):  # within its lease nobody else takes it
        try:
            deliver(now=minutes(minute))
        except KeyboardInterrupt:
            assert minute == 1
    assert len(server.received) == 1
    with pytest.raises(KeyboardInterrupt):
        deliver(now=minutes(12))
    for minute in (30, 60, 600):
        deliver(now=minutes(minute))
    assert [letter["Message-ID"] for letter in server.received] == [server.received[0]["Message-ID"]] * 2


def test_a_server_that_is_away_costs_no_try_and_is_told_until_it_is_back(
    finished: Notice, server: MailServer, settings: Any
) -> None:
    port, settings.EMAIL_PORT = settings.EMAIL_PORT, 9
    for minute in range(1, 20):
        deliver(now=minutes(minute))
    finished.refresh_from_db()
    assert (finished.attempts, finished.sent_at) == (0, None)
    assert "No e-mail can be sent" in Alert.objects.get(kind="mail", closed_at=None).words
    settings.EMAIL_PORT = port
    assert deliver(now=minutes(20)) == 1
    assert not Alert.objects.filter(kind="mail", closed_at=None).exists()


def test_news_of_yesterday_is_not_mailed(finished: Notice, server: MailServer) -> None:
    assert deliver(now=minutes(1) + notices.MAILED_WITHIN) == 0
    finished.refresh_from_db()
    assert (finished.next_try_at, finished.last_error, server.received) == (None, notices.TOO_OLD, [])


def test_an_address_that_is_refused_is_not_tried_again_and_an_administrator_is_told(
    finished: Notice, server: MailServer
) -> None:
    server.mode = "refuse"
    deliver(now=minutes(1))
    server.mode = "take"
    deliver(now=minutes(30))
    finished.refresh_from_db()
    assert (finished.next_try_at, finished.doubt_count, server.received) == (None, 0, [])
    assert "550 no such mailbox" in finished.last_error
    assert "nadia" in Alert.objects.get(kind="mail").words


def test_a_refusal_for_now_is_tried_again_further_and_further_apart_and_not_for_ever(
    finished: Notice, server: MailServer
) -> None:
    server.mode = "later"
    tries = []
    for minute in (1, 2, 3, 12, 13, 42, 43, 162, 163, 522, 523, 1200):
        before = _tries(finished)
        deliver(now=minutes(minute))
        tries += [minute] if _tries(finished) > before else []
    assert tries == [1, 3, 13, 43, 163, 523]
    finished.refresh_from_db()
    assert (finished.next_try_at, finished.doubt_count) == (None, 0)
    assert "451 try later" in finished.last_error


def _tries(notice: Notice) -> int:
    return Notice.objects.values_list("attempts", flat=True).get(pk=notice.pk)


def test_two_workers_send_a_letter_once(finished: Notice, server: MailServer) -> None:
    (one,) = notices.due_letters(domain="example.com", now=minutes(1))
    (two,) = notices.due_letters(domain="example.com", now=minutes(1))
    assert notices.claim(one, now=minutes(1)) is True
    assert notices.claim(two, now=minutes(1)) is False
    assert Notice.objects.get().message_id == one.message_id


def test_who_lost_the_right_to_see_it_meanwhile_is_not_written_to(finished: Notice, server: MailServer) -> None:
    Membership.objects.all().delete()
    assert deliver(now=minutes(1)) == 0
    finished.refresh_from_db()
    assert (finished.next_try_at, server.received) == (None, [])


class WatchingBackend(locmem.EmailBackend):
    """Notes which transactions are open while it is asked to send."""

    open_savepoints: list[int] = []

    def send_messages(self, messages: Any) -> int:
        self.open_savepoints.append(len(connection.savepoint_ids))
        return super().send_messages(messages)


def test_no_transaction_is_open_while_the_server_is_asked(finished: Notice, settings: Any) -> None:
    settings.EMAIL_BACKEND = f"{__name__}.WatchingBackend"
    WatchingBackend.open_savepoints.clear()
    assert deliver(now=minutes(1)) == 1
    assert WatchingBackend.open_savepoints == [len(connection.savepoint_ids)]


def test_where_mail_is_off_it_stands_on_the_page_alone(batch: Batch, nadia: User) -> None:
    make_job(batch=batch, state=JobState.SAVED)
    look(now=minutes(1))
    assert deliver(now=minutes(1)) == 0
    assert Notice.objects.get().next_try_at is None
