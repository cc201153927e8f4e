"""What a provider's events about money move: a held account is looked at, an open one tries one document first."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone
from django_q.models import OrmQ

from batches.engine import credit, health, inbox
from batches.models import HoldReason, ProviderAccount
from tests import factories
from tests.engine.test_inbox import SECRET, send

pytestmark = pytest.mark.django_db
SHORTAGES = ["wallet.payment_required", "wallet.auto_reload_failed"]


@pytest.fixture
def account() -> ProviderAccount:
    return factories.make_account(slug="relaypdf", webhook_secret=SECRET)


def tell(kind: str, **data: Any) -> None:
    text = "".join(f', "{name}": {value}' for name, value in data.items())
    assert send(f'{{"type": "{kind}"{text}}}'.encode()) == 204


@pytest.mark.parametrize("kind", ["wallet.topup", "wallet.auto_reload"])
def test_a_top_up_has_a_held_account_looked_at_now_and_rings_for_who_looks(account: ProviderAccount, kind: str) -> None:
    held_at = timezone.now() - timedelta(minutes=5)
    health.hold(account.pk, reason=HoldReason.CREDIT, words="No funds are left.", now=held_at)
    credit.note_balance(account.pk, Decimal(0), now=timezone.now())
    tell(kind)
    account.refresh_from_db()
    assert account.health == "held", "what is said is looked into first"
    assert account.probe_at is not None
    assert account.probe_at <= timezone.now()
    assert OrmQ.objects.count() == 1


def test_a_top_up_moves_no_hold_of_another_reason(account: ProviderAccount) -> None:
    health.hold(account.pk, reason=HoldReason.PERSON, words="Wait.", now=timezone.now())
    tell("wallet.topup")
    account.refresh_from_db()
    assert (account.health, account.probe_at, OrmQ.objects.count()) == ("held", None, 0)


@pytest.mark.parametrize("kind", SHORTAGES)
def test_a_shortage_holds_nobody_and_lets_one_submission_decide(account: ProviderAccount, kind: str) -> None:
    tell(kind)
    account.refresh_from_db()
    assert (account.health, account.on_probation) == ("open", True)
    credit.end_trial(account.pk, was_accepted=True, now=account.created_at)
    account.refresh_from_db()
    assert (account.health, account.on_probation) == ("open", False), "it was accepted: the event was wrong or old"
    tell(kind)
    account.refresh_from_db()
    assert not account.on_probation, "the same bytes are heeded once"
    tell(kind, n=2)
    assert health.hold(account.pk, reason=HoldReason.CREDIT, words="No funds are left.", now=timezone.now())
    account.refresh_from_db()
    assert (account.health, account.hold_reason) == ("held", "insufficient_credit"), "a 402 holds it as ever"


@pytest.mark.parametrize(("accepted_ago", "on_probation"), [(-5, False), (3600, True)])
def test_a_shortage_that_an_acceptance_has_disproved_is_not_heeded(
    account: ProviderAccount, accepted_ago: int, on_probation: bool
) -> None:
    job = factories.make_job(batch=factories.make_batch(account=account), state="accepted")
    at: datetime = timezone.now() - timedelta(seconds=accepted_ago)
    factories.make_submission(job=job, provider_job_id="pdf_7", accepted_at=at, in_doubt=False)
    tell("wallet.payment_required")
    account.refresh_from_db()
    assert account.on_probation is on_probation


def test_a_stale_shortage_is_not_even_stored(account: ProviderAccount) -> None:
    assert send(b'{"type": "wallet.payment_required"}', ago=900) == 401
    account.refresh_from_db()
    assert not account.on_probation


def test_a_fault_while_it_is_heeded_leaves_the_event_stored(
    account: ProviderAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_given: Any, **_named: Any) -> bool:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(inbox.credit, "heed_shortage", fail)
    tell("wallet.payment_required")
    assert account.webhook_events.count() == 1
