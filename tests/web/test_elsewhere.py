"""Choosing another account on pages: for a draft, for the next version of one document, and of many."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from batches.engine import bulk_actions
from batches.models import Batch, BatchItem, BulkAction, Job, JobState, ProviderAccount, Role, Workspace
from tests.factories import NOW, make_account, make_job, make_saved_job
from tests.web.conftest import make_member, signed_in

HELD = {"health": "held", "hold_reason": "auth", "hold_words": "The key was refused.", "held_at": NOW}


@pytest.fixture
def manager(workspace: Workspace) -> Client:
    return signed_in(make_member(workspace, "a.manager", Role.MANAGER))


@pytest.fixture
def other(batch: Batch) -> ProviderAccount:
    return make_account(
        slug="other",
        name="DocRaptor / main",
        kind="docraptor",
        base_url="https://docraptor.example",
        price_per_job=Decimal("0.12"),
        processing_region="Virginia",
    )


def regenerate(client: Client, job: Job, **fields: Any) -> Any:
    item = BatchItem.objects.get(document=job.version.document)
    form = {"version": "1", "reason": "It is held.", "source": "same", "item": item.pk, "options": "{}", **fields}
    return client.post(f"/documents/{job.version.document.public_id}/regenerate/", form, follow=True)


def test_one_document_is_compared_and_then_rendered_where_it_was_chosen(
    batch: Batch, other: ProviderAccount, manager: Client
) -> None:
    job = make_saved_job(batch=batch)
    page = manager.get(f"/documents/{job.version.document.public_id}/regenerate/").text
    assert "Bills 1 at DocRaptor, 0.12 USD, rendered in Virginia; version 1 stays at RelayPDF, billed." in page
    assert "unknown: looked up, then a person" in page
    assert "Version 2 was made, at DocRaptor / main." in regenerate(manager, job, account="other").text
    assert Job.objects.get(version__number=2).account == other


def test_an_account_of_somebody_else_is_none_to_choose(batch: Batch, other: ProviderAccount, manager: Client) -> None:
    theirs = make_account(slug="theirs", workspace=make_member_of_another().workspace)
    page = regenerate(manager, make_saved_job(batch=batch), account=theirs.slug)
    assert (page.status_code, "not there any more" in page.text, theirs.name in page.text) == (422, True, False)
    assert Job.objects.count() == 1


def make_member_of_another() -> Any:
    from tests.factories import make_batch, make_workspace

    return make_batch(workspace=make_workspace())


def test_where_there_is_one_account_nothing_is_asked(batch: Batch, manager: Client) -> None:
    job = make_saved_job(batch=batch)
    assert "account-choice" not in manager.get(f"/documents/{job.version.document.public_id}/regenerate/").text


def test_many_are_planned_anew_at_the_account_that_was_chosen(
    batch: Batch, other: ProviderAccount, manager: Client
) -> None:
    for _ in range(2):
        make_job(batch=batch, state=JobState.FAILED)
    plan = f"/batches/{batch.public_id}/actions/plan/"
    form = {"verb": "regenerate", "everything": "1", "key": "one"}
    first = manager.post(plan, form, follow=True).text
    assert "Render them at another account…" in first
    assert "Bills 2 at DocRaptor, 0.24 USD, rendered in Virginia." in first
    assert "Of the versions before, 2 billed nothing at RelayPDF." in first
    second = manager.post(plan, form | {"key": "two", "at": "other"}, follow=True).text
    assert "At: DocRaptor / main" in second
    action = BulkAction.objects.latest("pk")
    assert bulk_actions.account_of(action) == other
    manager.post(f"/batches/{batch.public_id}/actions/{action.public_id}/confirm/", {"reason": "It is held."})
    action.refresh_from_db()
    assert (action.confirmed_at is not None, bulk_actions.account_of(action)) == (True, other)


def test_over_several_batches_each_keeps_its_own_unless_one_is_chosen(
    batch: Batch, other: ProviderAccount, manager: Client
) -> None:
    job = make_job(batch=batch, state=JobState.FAILED)
    item = BatchItem.objects.get(version=job.version)
    form = {"verb": "regenerate", "items": str(item.pk), "key": "one"}
    assert "Each at the account of its own batch" in manager.post("/failed/plan/", form, follow=True).text
    # The list's own filter is called `account`; it chooses nothing here.
    manager.post("/failed/plan/", form | {"key": "two", "account": "other"})
    assert bulk_actions.account_of(BulkAction.objects.latest("pk")) is None
    manager.post("/failed/plan/", form | {"key": "three", "at": "other"})
    assert bulk_actions.account_of(BulkAction.objects.latest("pk")) == other


def test_an_account_that_is_not_there_plans_nothing(batch: Batch, other: ProviderAccount, manager: Client) -> None:
    make_job(batch=batch, state=JobState.FAILED)
    form = {"verb": "regenerate", "everything": "1", "at": "nothing"}
    page = manager.post(f"/batches/{batch.public_id}/actions/plan/", form, follow=True).text
    assert "That account is not there any more, so nothing was planned." in page
    assert not BulkAction.objects.exists()


def test_a_draft_that_its_account_does_not_take_offers_the_others(
    upload: Callable[..., Any], batch: Batch, account: ProviderAccount, other: ProviderAccount, operator: Client
) -> None:
    ProviderAccount.objects.filter(pk=account.pk).update(kind="docraptor")
    ProviderAccount.objects.filter(pk=other.pk).update(kind="relaypdf")
    page = upload([{"id": "A", "url": "https://example.com/a"}], account=account.slug).text
    assert f"The account {account.slug} does not take web addresses." in page
    assert ("Use this account" in page, "Bills 1 at RelayPDF" in page) == (True, True)


def test_a_held_account_names_who_could_take_what_waits_and_leads_to_the_plan(
    batch: Batch, other: ProviderAccount, manager: Client, viewer: Client
) -> None:
    job = make_job(batch=batch)
    ProviderAccount.objects.filter(pk=batch.account_id).update(**HELD)
    address = f"/batches/{batch.public_id}/"
    assert "Compare with DocRaptor / main…" in manager.get(address).text
    assert "could-take" not in viewer.get(address).text
    assert "could-take" in manager.get(f"/documents/{job.version.document.public_id}/").text
    form = {"verb": "regenerate", "state": "held", "at": "other"}
    page = manager.post(f"{address}actions/plan/", form, follow=True).text
    assert "Rendered at DocRaptor / main instead of the account of the batch" in page
    assert "1 is not sent to RelayPDF any more, unless another batch needs it" in page
    assert job.__class__.objects.count() == 1, "nothing is done before the plan is confirmed"


def test_nobody_is_named_who_does_not_take_it_or_is_held_too(
    batch: Batch, other: ProviderAccount, manager: Client
) -> None:
    make_job(batch=batch)
    ProviderAccount.objects.update(**HELD)
    assert "could-take" not in manager.get(f"/batches/{batch.public_id}/").text


def test_the_record_of_a_document_elsewhere_names_the_terms_of_where_it_was_rendered(
    batch: Batch, other: ProviderAccount, manager: Client
) -> None:
    Batch.objects.update(terms={"account": batch.account.slug, "provider": "RelayPDF"})
    job = make_saved_job(batch=batch)
    address = f"/documents/{job.version.document.public_id}/"
    assert "when it was started" in manager.get(address).text
    regenerate(manager, job, account="other")
    page = manager.get(address).text
    assert ("Data terms of DocRaptor / main, as they stand now" in page, "Virginia" in page) == (True, True)
