"""Asking for notices where a batch is started, and the page on which they stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from batches.mailing.look import look
from batches.models import Batch, JobState, Membership, Notice, NoticeWatch
from tests.factories import NOW, make_batch, make_job
from tests.mailing.conftest import watched
from tests.web.starting import start

pytestmark = pytest.mark.django_db
ROWS = [{"id": "INV-1", "html_content": "<p>1</p>"}]


@pytest.mark.parametrize("ticks", [{"wants_notices": "yes"}, {}])
def test_who_ticks_it_at_the_start_hears_of_the_batch(
    ticks: dict[str, str], upload: Callable[..., Any], operator: Client, okoye: User
) -> None:
    start(operator, upload(ROWS), **ticks)
    batch = Batch.objects.get()
    assert batch.notify == ({"users": [okoye.pk]} if ticks else {})
    assert NoticeWatch.objects.filter(batch=batch).exists() is bool(ticks)


def test_the_start_offers_it_ticked_to_who_has_an_address_and_says_why_no_mail_comes(
    upload: Callable[..., Any], operator: Client, okoye: User, settings: Any
) -> None:
    settings.EMAIL_URL = "smtp://127.0.0.1:25"
    page = upload(ROWS)
    assert 'name="wants_notices" value="yes" aria-describedby' in page.text
    assert "has no e-mail address" in page.text
    assert "Ask an administrator." in operator.get("/notices/").text
    User.objects.filter(pk=okoye.pk).update(is_staff=True, is_superuser=True)
    assert f'<a href="/admin/auth/user/{okoye.pk}/change/">Open your entry</a>' in operator.get("/notices/").text
    assert "Ask an administrator" not in operator.get("/notices/").text
    User.objects.filter(pk=okoye.pk).update(email="m.okoye@example.com")
    page = upload(ROWS)
    assert 'name="wants_notices" value="yes" checked>' in page.text
    assert "E-mail me at m.okoye@example.com" in page.text
    settings.EMAIL_URL = ""
    assert "E-mail is not set up here" in upload(ROWS).text


def test_the_page_lists_ones_own_notices_until_they_were_seen(batch: Batch, operator: Client, okoye: User) -> None:
    watched(batch, okoye)
    make_job(batch=batch, state=JobState.SAVED)
    make_job(batch=batch, state=JobState.FAILED, failure_class="invalid_input", failure_code="missing_field")
    look(now=NOW)
    other = make_batch(name="Somebody else's")
    stranger = User.objects.create_user("stranger")
    Membership.objects.create(workspace=other.workspace, user=stranger, role="admin")
    watched(other, stranger)
    make_job(batch=other, state=JobState.SAVED)
    look(now=NOW)
    assert Notice.objects.count() == 2

    page = operator.get("/notices/").text
    assert f'<a href="/batches/{batch.public_id}/">{batch.name}</a>' in page
    assert "Partly complete</span>" in page
    assert "1 of 2 saved." in page
    assert "Saved 1 · Failed 1 · Total 2" in page
    assert "Somebody else" not in page
    mine = Notice.objects.get(recipient=okoye)
    operator.post("/notices/seen/", {"up_to": mine.pk - 1})
    assert "I have seen them" in operator.get("/notices/").text, "what the page did not show stays new"
    operator.post("/notices/seen/", {"up_to": mine.pk + 10})
    assert "I have seen them" not in operator.get("/notices/").text
    assert Notice.objects.get(recipient=stranger).seen_at is None


def test_the_page_asks_the_same_few_queries_however_many_there_are(
    batch: Batch, operator: Client, okoye: User, django_assert_max_num_queries: Any
) -> None:
    facts = {"name": "<b>x</b>", "file": "f", "started_by": "n", "state": "complete", "causes": []}
    facts["counts"] = dict.fromkeys(("saved", "failed", "held", "cancelled", "in_progress", "total"), 0)
    Notice.objects.bulk_create(
        [
            Notice(batch=batch, recipient=okoye, event="improved", occasion=str(n), facts=facts | {"more": n})
            for n in range(70)
        ]
    )
    with django_assert_max_num_queries(12):
        page = operator.get("/notices/")
    assert page.text.count("more saved, now") == 50
    assert "<b>x</b>" not in page.text
    older = operator.get(f"/notices/?before={page.context['notices'].older}")
    assert older.text.count("more saved, now") == 20
