"""Kinds of document that an account does not take: refused row by row at the check, before anything is started."""

from __future__ import annotations

from typing import Any

import pytest

from batches.engine import accounts, versions
from batches.engine.audit import By
from batches.engine.orders import Order
from batches.models import BatchItem, JobState, ProviderAccount, Workspace
from batches.models.accounts import ACCOUNT_SECRETS
from batches.providers import PROVIDERS
from tests.engine.intake.uploading import check
from tests.factories import NOW, make_batch, make_job

pytestmark = pytest.mark.django_db

ROWS = [
    {"id": "A-1", "html": "<p>One</p>"},
    {"id": "A-2", "url": "https://example.com/invoice"},
    {"id": "A-3", "markdown": "# Three"},
]


@pytest.mark.parametrize(
    ("kind", "options", "refused"),
    [
        ("relaypdf", {}, []),
        ("docraptor", {}, [1, 2]),
        ("docraptor", {"network": "yes"}, [2]),
        ("pdfmonkey", {}, [0, 1, 2]),
        ("pdfmonkey", {"template": "0f0c"}, [1, 2]),
    ],
)
def test_a_row_is_refused_whose_kind_the_account_does_not_take_as_it_is_set(
    kind: str, options: dict[str, str], refused: list[int], workspace: Workspace, account: ProviderAccount
) -> None:
    account.kind, account.options = kind, options
    checked = check(ROWS, workspace, account)
    with checked.manifest:
        assert checked.ok is (not refused)
        told = [place for each in checked.manifest.errors for place in each.places]
        assert {each.code for each in checked.manifest.errors} <= {"source_not_taken"}
        assert sorted(place.position for place in told) == refused
        assert len(checked.rows) == len(ROWS) - len(refused)
        assert all(f"The account {account.slug} does not take " in place.message for place in told)


def test_the_refusal_says_what_to_do(workspace: Workspace, account: ProviderAccount) -> None:
    account.kind = "docraptor"
    checked = check(ROWS[1:2], workspace, account)
    with checked.manifest:
        problem = checked.manifest.errors[0]
    assert problem.message == f"The account {account.slug} does not take web addresses."
    assert problem.fix == "Give HTML, or choose an account that takes such documents."


def test_a_template_of_the_provider_is_a_kind_of_its_own(workspace: Workspace, account: ProviderAccount) -> None:
    account.kind = "docraptor"
    assert accounts.not_taken(account, "html") == ""
    assert f"The account {account.slug} does not take" in accounts.not_taken(account, "template")


def test_nothing_is_made_anew_of_a_kind_that_the_account_does_not_take_any_more(account: ProviderAccount) -> None:
    make_job(batch=make_batch(account=account), state=JobState.FAILED)
    item = BatchItem.objects.get()
    ProviderAccount.objects.update(kind="pdfmonkey")
    result = versions.regenerate([item.pk], order=Order(By(None, "ada", ""), "again"), now=NOW)[item.pk]
    assert (result.is_done, item.document.versions.count()) == (False, 1)
    assert f"The account {account.slug} does not take documents of this kind (HTML)" in result.words


@pytest.mark.parametrize("kind", PROVIDERS)
def test_what_an_account_can_do_is_asked_without_its_secrets(
    kind: str, account: ProviderAccount, django_assert_num_queries: Any
) -> None:
    ProviderAccount.objects.update(kind=kind)
    with django_assert_num_queries(1):
        sealed = ProviderAccount.objects.defer(*ACCOUNT_SECRETS).get()
        assert accounts.capabilities(sealed).sources >= PROVIDERS[kind].capabilities.sources
