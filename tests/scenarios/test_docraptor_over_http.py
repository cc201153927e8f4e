"""DocRaptor's adapter under the real engine, against its double: what the missing key means for documents."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from batches.engine import accounts, applying, reconcile
from batches.engine.reconcile import Findings, Verdict
from batches.models import Alert, ProviderAccount, Submission, Verb, WebhookEvent
from batches.providers import make_provider
from tests import factories
from tests.providers.docraptor_double import DocRaptorDouble
from tests.scenarios.uncertain import ORDER, item_of, words_of
from tests.scenarios.world import World


@pytest.fixture
def double() -> Iterator[DocRaptorDouble]:
    with DocRaptorDouble() as double:
        yield double


@pytest.fixture
def account(world: World, double: DocRaptorDouble) -> Iterator[ProviderAccount]:
    """An account at the double, served by the true adapter."""
    account = world.other_account(world.provider, **double.account_fields())
    provider = make_provider(account.kind, accounts.provider_config(account))
    world.own_providers[account.pk] = provider  # type: ignore[assignment]  # as the engine would make it
    yield account
    provider.close()


def reconciled(world: World, account: ProviderAccount, name: str = "INV-1", *, now: datetime | None = None) -> Findings:
    """As a person does it now: the double stamps its list with the real time, so the submission is moved there."""
    at = timezone.now() - timedelta(minutes=1)
    Submission.objects.filter(job=world.job(name)).update(first_sent_at=at, last_sent_at=at)
    return reconcile.settle(
        item_of(world, name).pk,
        order=ORDER,
        provider=world.own_providers[account.pk],
        store=world.store,
        checker=world.checker,
        now=now or at,
    )


def test_a_lost_answer_ends_as_unknown_is_found_without_an_id_and_never_sent_again(
    world: World, double: DocRaptorDouble, account: ProviderAccount
) -> None:
    double.misbehave("drop_after_acceptance")
    world.hand_over("INV-1", account=account)
    world.run_to_the_end()
    job, row = world.job("INV-1"), Submission.objects.get()
    assert (job.state, job.failure_class) == ("unknown", "unknown_outcome")
    assert "No answer came back" in job.failure_words
    assert "nothing is sent again by itself" in job.failure_words
    assert Alert.objects.filter(kind="unknown_outcome", closed_at=None).count() == 1
    assert (row.resend_until, row.try_count, row.in_doubt) == (None, 1, True)
    assert len(double.seen("submit")) == 1

    found = reconciled(world, account)
    assert (found.verdict, found.done) == (Verdict.ACCEPTED, "")
    assert "without an id" in words_of(found)
    item = item_of(world, "INV-1")
    assert not applying.apply(Verb.RETRY, [item.pk], order=ORDER, now=world.clock.now())[item.pk].is_done
    world.run_to_the_end()
    assert world.states() == {"INV-1": "unknown"}
    assert double.ledger() == {"accepted": 1, "billed": {row.idempotency_key: 1}}


def test_what_was_called_back_is_never_taken_for_absent(
    world: World, double: DocRaptorDouble, account: ProviderAccount, settings: Any
) -> None:
    """Its address is known to DocRaptor alone, whatever its list says later."""
    settings.PUBLIC_URL = "https://batches.example.com"
    for name in ("INV-1", "INV-2"):
        double.misbehave("drop_after_acceptance")
        world.hand_over(name, account=account)
        world.run_to_the_end()
    row = Submission.objects.get(job=world.job("INV-1"))
    double.jobs.clear()
    path = f"{accounts.callback_url(account)}/{row.idempotency_key}".removeprefix(settings.PUBLIC_URL)
    assert Client().post(path, '{"download_id": "k9"}', content_type="application/json").status_code == 204
    later = timezone.now() + timedelta(hours=2)
    called, other = (reconciled(world, account, name, now=later) for name in ("INV-1", "INV-2"))
    assert (called.verdict, called.done) == (Verdict.ACCEPTED, "")
    assert "called the address of submission 1" in words_of(called)
    assert "never arrived" not in words_of(called)
    assert other.verdict is Verdict.NOT_ACCEPTED
    assert world.states() == {"INV-1": "unknown", "INV-2": "failed"}
    world.run_to_the_end()
    assert len(double.seen("submit")) == 2


def test_documents_are_saved_and_billed_once_though_each_meets_trouble(
    world: World, double: DocRaptorDouble, account: ProviderAccount
) -> None:
    double.hostile()
    names = [f"INV-{number}" for number in range(6)]
    world.hand_over(*names, account=account)
    world.run_to_the_end(within=3600)
    assert world.states() == dict.fromkeys(names, "saved"), world.failures()
    assert all(name.encode() in world.stored(name) for name in names)
    assert set(double.ledger()["billed"].values()) == {1}
    assert double.ledger()["accepted"] == len(names)
    uses = [job.uses for job in double.jobs.values()]
    assert max(uses) <= 2, "a file is fetched again only where it did not arrive"


@pytest.mark.django_db
@pytest.mark.parametrize("content_type", ["application/json", "application/x-www-form-urlencoded"])
def test_a_callback_wakes_the_job_that_its_address_names(settings: Any, content_type: str) -> None:
    settings.PUBLIC_URL = "https://batches.example.com"
    account = factories.make_account(kind="docraptor", options={"mode": "live"})
    job = factories.make_accepted_job(
        batch=factories.make_batch(account=account),
        provider_job_id="status-1",
        due_at=timezone.now().replace(year=2099),
    )
    key = job.submissions.get().idempotency_key
    address = f"{accounts.callback_url(account)}/{key}"
    body = '{"status": "completed"}' if "json" in content_type else "status=completed&download_id=k9"
    path = address.removeprefix(settings.PUBLIC_URL)
    for _ in range(2):
        assert Client().post(path, body, content_type=content_type).status_code == 204
    assert Client().post(path[:-1] + "_", body, content_type=content_type).status_code == 404
    assert Client().post(f"/webhooks/{account.slug}", body, content_type=content_type).status_code == 401
    event = WebhookEvent.objects.get()
    assert (event.type, event.provider_job_id, event.outcome, event.repeat_count) == (
        "completed",
        "status-1",
        "woke",
        1,
    )
    job.refresh_from_db()
    assert job.due_at <= timezone.now()


@pytest.mark.parametrize(
    ("kind", "secret", "public_url", "hears"),
    [
        ("docraptor", "", "https://batches.example.com", True),
        ("docraptor", "", "", False),
        ("docraptor", "whsec_x", "", False),
        ("relaypdf", "whsec_x", "", True),
        ("relaypdf", "", "https://batches.example.com", False),
    ],
)
def test_a_pump_looks_for_events_where_some_may_come(
    settings: Any, kind: str, secret: str, public_url: str, hears: bool
) -> None:
    """Without a secret too: calls to a document's own address are not signed."""
    settings.PUBLIC_URL = public_url
    assert accounts.hears(ProviderAccount(slug="a", kind=kind, webhook_secret=secret)) is hears
