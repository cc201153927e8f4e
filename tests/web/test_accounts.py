"""Provider accounts: what their pages say, who changes what, and that a change holds at once and is written down."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django_q.models import OrmQ

from batches.engine import account_changes, health, pacing
from batches.engine.audit import ENGINE
from batches.models import (
    AccountHealth,
    AuditEntry,
    Batch,
    Exchange,
    JobState,
    PacingLane,
    ProviderAccount,
    Role,
    Submission,
    Workspace,
)
from tests.factories import (
    NOW,
    make_accepted_job,
    make_account,
    make_batch,
    make_duration,
    make_event,
    make_job,
    make_saved_job,
)
from tests.sandbox_process import SandboxProcess
from tests.scenarios.world import PumpKilled
from tests.web.conftest import make_member, signed_in
from tests.web.starting import start

QUERIES_MOST = 15


@pytest.fixture
def account(workspace: Workspace) -> ProviderAccount:
    return make_account(
        slug="relaypdf",
        name="RelayPDF",
        workspace=workspace,
        submit_interval_ms=3000,
        pace_source="free tier",
        price_per_job=Decimal("0.0013"),
    )


@pytest.fixture
def manager(workspace: Workspace) -> Client:
    return signed_in(make_member(workspace, "h.brandt", Role.MANAGER))


def typed(client: Client, **changed: str) -> dict[str, str]:
    """The form of the limits as a browser sends it, with some of it changed."""
    form = client.get("/accounts/relaypdf/limits/").context["form"]
    known = {field.name: field.value() for field in form}
    return {name: "" if value is None else str(value) for name, value in known.items()} | changed


def test_the_page_says_how_the_account_stands_in_a_constant_number_of_queries(
    account: ProviderAccount, workspace: Workspace, manager: Client
) -> None:
    batch = make_batch(workspace=workspace, account=account, name="September")
    now = timezone.now()
    for number in range(60):
        job = make_saved_job(batch=batch)
        at = now - timedelta(minutes=number)
        make_duration(job=job, at=at, total_seconds=4, remote_seconds=3)
        if number < 4:
            status = 429 if number == 2 else 202
            sent = {"account": account, "job": job, "submission": job.submissions.get(), "kind": "submit"}
            Exchange.objects.create(**sent, at=now - timedelta(seconds=3 * number), duration_ms=120, status=status)
    make_accepted_job(batch=batch)
    make_job(batch=batch, state=JobState.PENDING)
    PacingLane.objects.create(
        account=account, lane="submit", cool_down_until_us=pacing.to_us(now + timedelta(minutes=5))
    )
    make_event(account=account, at=now)
    with CaptureQueriesContext(connection) as asked:
        page = manager.get("/accounts/relaypdf/")
    assert len(asked) <= QUERIES_MOST, [each["sql"][:90] for each in asked]
    for words in (
        "one every 3 s",
        "free tier",
        "asked for a pause until",
        "0.0013 USD a document",
        "95 % of 60 documents finished within 3 s, the slowest in 3 s: 2 min suggested.",
        "about 1 in flight keep the pace; 20 are allowed",
        "September",
    ):
        assert words in page.text
    figures = page.context
    assert (figures["row"].in_flight, figures["row"].waiting) == (1, 1)
    assert (figures["sent"].count, figures["sent"].limited, figures["sent"].spacing_seconds) == (4, 1, 3.0)
    assert figures["next_at"] > now + timedelta(minutes=4)
    assert "pdf_live_invented" not in page.text


def test_a_held_account_says_why_and_what_to_do_and_stands_first(account: ProviderAccount, manager: Client) -> None:
    held = {"hold_reason": "insufficient_credit", "hold_words": "The wallet is empty", "held_at": timezone.now()}
    make_account(slug="zz-held", name="Zebra", workspace=account.workspace, health="held", **held)
    make_account(slug="old", name="Old", archived_at=timezone.now())
    rows = manager.get("/accounts/").context["rows"]
    assert [row.account.slug for row, _badge in rows] == ["zz-held", "relaypdf"]
    assert [row.account.slug for row, _badge in manager.get("/accounts/?view=archived").context["rows"]] == ["old"]
    page = manager.get("/accounts/zz-held/").text
    assert "The wallet is empty. " in page.replace("\n", " ") or "The wallet is empty.</p>" in page
    assert "Top the account up at the provider." in page
    assert "Resume</button>" in page


def test_a_changed_limit_holds_at_once_and_is_written_down_with_what_was_before(
    account: ProviderAccount, manager: Client
) -> None:
    sent = typed(
        manager, submit_interval_ms="6", submit_windows="20 in 60, 5 in 10", max_in_flight="8", reason="Slower"
    )
    page = manager.post("/accounts/relaypdf/limits/", sent, follow=True)
    assert "in use within a second" in page.text
    read_by_a_pump = health.readable_accounts(now=timezone.now())[account.pk]
    limits = pacing.submit_limits(read_by_a_pump)
    assert limits.interval_us == 6_000_000
    assert [count for count, _length in limits.windows] == [20, 5]
    entry = AuditEntry.objects.get(action="change_account")
    assert (entry.actor_words, entry.reason, entry.workspace) == ("h.brandt", "Slower", account.workspace)
    assert entry.facts["before"] == {"submit_interval_ms": 3000, "submit_windows": [], "max_in_flight": 20}
    assert entry.facts["after"] == {
        "submit_interval_ms": 6000,
        "submit_windows": [[20, 60], [5, 10]],
        "max_in_flight": 8,
    }
    manager.post("/accounts/relaypdf/limits/", typed(manager))
    assert AuditEntry.objects.filter(action="change_account").count() == 1  # nothing differed


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"submit_windows": "many"}, "&#x27;many&#x27; is no such limit. Write 20 in 60"),
        ({"submit_windows": "20000 in 60"}, "is too large: a window counts at most 10,000"),
        ({"poll_initial_ms": "20", "poll_max_ms": "10"}, "poll_initial_ms is larger than poll_max_ms"),
        ({"deadline_seconds": "1"}, "Enter a whole number from 5 to 315,360,000."),
        ({"submit_interval_ms": "-1"}, "Enter a number with 3 digits after the point at most, from 0 to "),
        ({"max_in_flight": ""}, "Enter a whole number from 1 to "),
        ({"price_per_job": "-1"}, "Enter a price from 0 to "),
        ({"price_currency": "$"}, "three capital letters"),
        ({"price_currency": ""}, "A price needs its currency"),
        ({"shown": "0000"}, "Somebody else changed this account meanwhile"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words_and_changes_nothing(
    account: ProviderAccount, manager: Client, wrong: dict[str, str], words: str
) -> None:
    answer = manager.post("/accounts/relaypdf/limits/", typed(manager) | {"max_in_flight": "8"} | wrong)
    assert answer.status_code == 422
    assert words in answer.text
    assert ProviderAccount.objects.only("max_in_flight").get(pk=account.pk).max_in_flight == 20
    assert not AuditEntry.objects.exists()


def test_the_connection_is_tested_by_one_free_call_that_says_what_was_asked_and_what_came(
    account: ProviderAccount, manager: Client, sandbox: SandboxProcess
) -> None:
    refused = manager.post("/accounts/relaypdf/test/", follow=True).text
    assert "127.0.0.1:9 was asked for GET /v1/account (free). It did not work:" in refused
    ProviderAccount.objects.filter(pk=account.pk).update(base_url=sandbox.url)
    account.refresh_from_db()
    ProviderAccount.objects.filter(pk=account.pk).update(api_key="sandbox_key")
    tested = manager.post("/accounts/relaypdf/test/", follow=True).text
    assert "was asked for GET /v1/account (free). Status" in tested
    assert list(Exchange.objects.order_by("pk").values_list("kind", flat=True)) == ["account", "account"]
    assert AuditEntry.objects.filter(action="test_account").count() == 2
    assert not Submission.objects.exists()


def test_holding_takes_a_reason_and_resuming_rings(account: ProviderAccount, manager: Client) -> None:
    manager.post("/accounts/relaypdf/hold/", {"reason": " "})
    assert ProviderAccount.objects.only("health").get(pk=account.pk).health == "open"
    assert "Month end" in manager.post("/accounts/relaypdf/hold/", {"reason": "Month end"}, follow=True).text
    assert not OrmQ.objects.exists()
    manager.post("/accounts/relaypdf/resume/")
    assert ProviderAccount.objects.only("health").get(pk=account.pk).health == "open"
    assert OrmQ.objects.count() == 1
    written = list(AuditEntry.objects.order_by("pk").values_list("action", "reason"))
    assert written == [("hold_account", "Month end"), ("resume_account", "")]


def test_an_account_that_all_share_is_changed_by_who_has_the_permission_itself(
    workspace: Workspace, manager: Client, admin_client: Client
) -> None:
    make_account(slug="shared")
    assert manager.get("/accounts/shared/").status_code == 200
    assert "Every workspace uses this account" in manager.post("/accounts/shared/hold/", {"reason": "r"}).text
    assert admin_client.post("/accounts/shared/hold/", {"reason": "r"}).status_code == 302


def test_a_secret_that_no_key_opens_breaks_neither_list_nor_page(
    account: ProviderAccount, manager: Client, settings: Any
) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE batches_provideraccount SET api_key = 'fernet:garbage' WHERE id = %s", [account.pk])
    assert manager.get("/accounts/").status_code == 200
    assert "API key</dt><dd>set</dd>" in manager.get("/accounts/relaypdf/").text
    assert "Nothing was asked." in manager.post("/accounts/relaypdf/test/", follow=True).text


def test_only_where_the_provider_takes_a_key_does_the_page_say_that_a_repeat_cannot_bill(
    account: ProviderAccount, manager: Client
) -> None:
    assert "so long a repeat cannot bill twice" in manager.get("/accounts/relaypdf/").text
    ProviderAccount.objects.filter(pk=account.pk).update(kind="docraptor")
    page = manager.get("/accounts/relaypdf/").text
    assert "cannot bill twice" not in page
    assert "A lost answer</dt><dd>unknown: looked up, then a person</dd>" in page


def test_data_terms_are_shown_where_a_batch_is_started(account: ProviderAccount, upload: Any, okoye: User) -> None:
    rows = [{"id": "INV-1", "html_content": "<p>1</p>"}]
    assert "No data terms are written down for RelayPDF." in upload(rows).text
    terms = {"processing_region": "Frankfurt, EU", "source_retention": "1 hour", "output_retention": "24 hours"}
    ProviderAccount.objects.filter(pk=account.pk).update(**terms)
    page = upload([{"id": "INV-2", "html_content": "<p>2</p>"}]).text
    assert "Rendered in Frankfurt, EU. Deleted there: the content after 1 hour, the PDF after 24 hours." in page


def test_a_batch_keeps_the_terms_under_which_it_was_started(
    account: ProviderAccount, upload: Any, operator: Client
) -> None:
    ours = ProviderAccount.objects.filter(pk=account.pk)
    ours.update(processing_region="Frankfurt, EU", price_per_job="0.0020", base_url="https://me:secret@pdf.example/v1")
    page = upload([{"id": "INV-1", "html_content": "<p>1</p>"}])
    row = "<div><dt>Rendered in</dt><dd>Frankfurt, EU</dd></div>"
    assert (row in page.text, "secret" in page.text) == (True, False)
    start(operator, page, sample_size="0")
    ours.update(processing_region="Elsewhere")
    batch = Batch.objects.get()
    kept = {name: batch.terms[name] for name in ("provider", "host", "processing_region", "price")}
    assert kept == {
        "provider": "RelayPDF",
        "host": "pdf.example",
        "processing_region": "Frankfurt, EU",
        "price": "0.002 USD",
    }
    shown = operator.get(f"/documents/{batch.items.get().document.public_id}/").text
    assert (row in shown, "Elsewhere" in shown) == (True, False)


def test_an_account_is_never_held_or_resumed_without_its_entry(
    account: ProviderAccount, manager: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever dies between the two leaves neither."""

    def killed(*given: Any, **named: Any) -> None:
        raise PumpKilled

    with monkeypatch.context() as dying:
        dying.setattr(account_changes, "_record", killed)
        with pytest.raises(PumpKilled):
            account_changes.hold(account, by=ENGINE, words="Month end", now=NOW)
    account.refresh_from_db()
    assert account.health == AccountHealth.OPEN
    account_changes.hold(account, by=ENGINE, words="Month end", now=NOW)
    monkeypatch.setattr(account_changes, "_record", killed)
    with pytest.raises(PumpKilled):
        account_changes.resume(account, by=ENGINE, reason="", now=NOW)
    account.refresh_from_db()
    assert account.health == AccountHealth.HELD
