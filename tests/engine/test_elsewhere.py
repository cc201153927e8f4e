"""Regenerating at another account than that of the batch: chosen by a person, asked about first, never by itself."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any

import pytest

from batches.actions import Chosen
from batches.engine import accounts, bulk_actions, elsewhere, standings, verbs, versions
from batches.engine.audit import By
from batches.engine.bulk_actions import Refused
from batches.engine.orders import NewInput, Order, Result
from batches.engine.verbs import Asked, Elsewhere, Standing
from batches.models import (
    AuditEntry,
    Batch,
    BatchItem,
    BulkActionItem,
    DocumentVersion,
    Job,
    JobState,
    ProviderAccount,
    Verb,
)
from batches.storage.disk import DiskStore
from tests.engine.carried import EVERYTHING, carry_out
from tests.engine.test_bulk_actions import confirm, plan
from tests.factories import (
    NOW,
    make_account,
    make_job,
    make_saved_job,
    make_submission,
    make_version,
    make_workspace,
)

pytestmark = pytest.mark.django_db

PRIVATE = "<img src='http://10.0.0.1/admin.png'>"


@pytest.fixture
def other(account: ProviderAccount) -> ProviderAccount:
    return make_account(slug="other", name="DocRaptor / main", kind="docraptor", base_url="https://docraptor.example")


def regenerate(at: ProviderAccount | None, *, store: DiskStore | None = None, **options: Any) -> Result:
    item = BatchItem.objects.order_by("pk").latest("pk")
    order = Order(**{"by": By(None, "ada", ""), "reason": "It is held.", "account": at, **options})
    return versions.regenerate([item.pk], order=order, now=NOW, store=store)[item.pk]


def where() -> list[tuple[str, str]]:
    return list(Job.objects.order_by("version__number").values_list("account__slug", "state"))


# --- the rules ---


@pytest.mark.parametrize(
    ("state", "account", "allowed"),
    [
        (JobState.PENDING, "other", False),
        (JobState.PENDING, "own", True),
        (JobState.CANCELLED, "own", False),
        (JobState.FAILED, "other", True),
        (JobState.SAVED, "own", True),
    ],
)
def test_what_waits_may_be_made_anew_only_where_that_takes_it_elsewhere(
    state: JobState, account: str, allowed: bool
) -> None:
    standing = Standing(state=state, kind="html", account=account)
    asked = Asked(elsewhere=Elsewhere("other", frozenset({"html"})))
    assert verbs.answer(Verb.REGENERATE, standing, now=NOW, asked=asked).allowed is allowed


def test_a_kind_that_the_other_account_does_not_take_is_refused_in_the_plan() -> None:
    asked = Asked(elsewhere=Elsewhere("other", frozenset({"html"})))
    answer = verbs.answer(Verb.REGENERATE, Standing(state=JobState.FAILED, kind="url"), now=NOW, asked=asked)
    assert answer.words == ("The account other does not take documents of this kind (URL); choose another account.")


def test_what_may_have_been_sent_has_to_be_accepted_first(batch: Batch, other: ProviderAccount) -> None:
    make_submission(job=make_job(batch=batch, state=JobState.UNKNOWN), try_count=1)
    assert regenerate(other).words == "Version 1 may also bill."
    assert len(where()) == 1
    assert regenerate(other, is_confirmed=True).is_done
    assert where() == [(batch.account.slug, "unknown"), ("other", "pending")]


# --- one document ---


def test_version_2_is_rendered_there_and_version_1_keeps_its_account(batch: Batch, other: ProviderAccount) -> None:
    make_saved_job(batch=batch)
    result = regenerate(other)
    assert (result.is_done, result.words) == (True, "Version 2 was made, at DocRaptor / main.")
    assert where() == [(batch.account.slug, "saved"), ("other", "pending")]
    assert Job.objects.get(version__number=2).lead_batch == batch
    assert AuditEntry.objects.get(action="regenerate").facts["account"] == "other"


def test_one_that_waits_for_a_held_account_is_not_sent_there_any_more(batch: Batch, other: ProviderAccount) -> None:
    make_job(batch=batch)
    assert "as it is" in regenerate(None).words
    assert regenerate(other).is_done
    assert where() == [(batch.account.slug, "cancelled"), ("other", "pending")]


def test_once_it_is_there_the_next_one_goes_back_to_the_account_of_the_batch(
    batch: Batch, other: ProviderAccount
) -> None:
    make_saved_job(batch=batch)
    regenerate(other)
    Job.objects.filter(version__number=2).update(state=JobState.FAILED, failure_class="transient")
    assert regenerate(None).words == "Version 3 was made."
    assert where()[-1] == (batch.account.slug, "pending")


def test_an_earlier_version_that_was_never_sent_is_sent_there(batch: Batch, other: ProviderAccount) -> None:
    make_saved_job(batch=batch)
    own, pk = batch.account.slug, BatchItem.objects.get().pk
    for text in ("<p>Two</p>", "<p>Three</p>"):
        assert regenerate(None, inputs={pk: NewInput("html", text)}).is_done
    assert where() == [(own, "saved"), (own, "cancelled"), (own, "pending")]
    assert regenerate(other, inputs={pk: NewInput("html", "<p>Two</p>")}).is_done
    assert where() == [(own, "saved"), ("other", "pending"), (own, "cancelled")]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"archived_at": NOW}, "The account other cannot be used for this"),
        ({"kind": "gotenberg"}, "The account other cannot be used as it is set. "),
        ({"kind": "pdfmonkey"}, "The account other does not take documents of this kind (HTML)"),
    ],
)
def test_an_account_that_cannot_be_used_makes_nothing(
    fields: dict[str, Any], words: str, batch: Batch, other: ProviderAccount
) -> None:
    make_saved_job(batch=batch)
    ProviderAccount.objects.filter(pk=other.pk).update(**fields)
    other.refresh_from_db()
    assert words in regenerate(other).words
    assert len(where()) == 1


def test_an_account_of_another_workspace_makes_nothing(batch: Batch) -> None:
    make_saved_job(batch=batch)
    theirs = make_account(slug="theirs", workspace=make_workspace())
    assert "cannot be used for this" in regenerate(theirs).words


@pytest.mark.parametrize(
    ("price", "currency", "refused"),
    [("0.01", "USD", False), ("0.03", "USD", True), ("0.01", "EUR", True), (None, "USD", True)],
)
def test_a_spend_cap_is_not_passed_unseen(
    price: str | None, currency: str, refused: bool, batch: Batch, other: ProviderAccount
) -> None:
    ProviderAccount.objects.filter(pk=batch.account_id).update(price_per_job=Decimal("0.02"), price_currency="USD")
    Batch.objects.update(spend_cap=Decimal(5))
    make_saved_job(batch=batch)
    other.price_per_job, other.price_currency = None if price is None else Decimal(price), currency
    result = regenerate(other)
    assert result.is_done is not refused
    assert ("The batch has a spend cap of 5.00 USD" in result.words) is refused


@pytest.mark.parametrize(("html", "done"), [(PRIVATE, False), ("<p>Harmless</p>", True)])
@pytest.mark.parametrize("large", [False, True])
def test_content_that_was_never_looked_at_for_an_account_inside_the_network_is_looked_at_first(
    html: str, done: bool, large: bool, batch: Batch, other: ProviderAccount, store: DiskStore
) -> None:
    job = make_saved_job(batch=batch)
    version = make_version(workspace=batch.workspace, html=html)
    fields: dict[str, Any] = {"input_inline": html.encode(), "input_key": None}
    if large:
        store.put("inputs/large.html", io.BytesIO(html.encode()))
        fields = {"input_inline": None, "input_key": "inputs/large.html"}
    DocumentVersion.objects.filter(pk=job.version_id).update(input_sha256=version.input_sha256, **fields)
    other.renders_inside = True
    other.save()
    result = regenerate(other, store=store)
    assert result.is_done is done
    assert ("It cannot be rendered at DocRaptor / main, which stands inside our network." in result.words) is not done


# --- many ---


def everything(batch: Batch, at: ProviderAccount) -> Any:
    return plan(batch, Verb.REGENERATE, EVERYTHING, account=at)


def test_a_plan_names_the_account_says_what_cannot_go_there_and_is_carried_out_there(
    batch: Batch, other: ProviderAccount
) -> None:
    other.price_per_job = Decimal("0.12")
    other.save()
    make_job(batch=batch)
    make_saved_job(batch=batch)
    web = make_job(batch=batch, state=JobState.FAILED)
    DocumentVersion.objects.filter(pk=web.version_id).update(kind="url")
    action = everything(batch, other)
    assert (action.plan["eligible"], action.plan["estimate"]) == (2, "0.24")
    assert "does not take documents of this kind" in action.plan["skipped"][0]["words"]
    confirm(action, asked=Asked())
    action.refresh_from_db()
    assert bulk_actions.account_of(action) == other, "whoever confirms it confirms the account with it"
    while carry_out().is_work_left:
        pass
    assert Job.objects.filter(version__number=2).values_list("account", flat=True).distinct().get() == other.pk
    assert Job.objects.filter(version__number=2).count() == 2


def test_drift_is_reckoned_with_the_account_of_the_plan(batch: Batch, other: ProviderAccount) -> None:
    make_job(batch=batch)
    action = everything(batch, other)
    chosen = Chosen.of(action.filter).matching(batch, reads_content=True)
    assert bulk_actions.drift(action, chosen, now=NOW, asked=Asked()).eligible == 1


def test_no_plan_is_made_for_an_account_that_cannot_be_used(batch: Batch, other: ProviderAccount) -> None:
    make_job(batch=batch)
    other.archived_at = NOW
    with pytest.raises(Refused, match="cannot be used for this"):
        everything(batch, other)


def test_an_action_ends_where_its_account_was_archived_before_its_turn(batch: Batch, other: ProviderAccount) -> None:
    make_job(batch=batch)
    confirm(everything(batch, other))
    ProviderAccount.objects.filter(pk=other.pk).update(archived_at=NOW)
    carry_out()
    row = BulkActionItem.objects.get()
    assert (row.result, row.words) == ("aborted", "The account other was archived before its turn.")


def test_a_large_content_of_a_plan_is_not_read_while_it_is_carried_out(batch: Batch, other: ProviderAccount) -> None:
    job = make_saved_job(batch=batch)
    DocumentVersion.objects.filter(pk=job.version_id).update(input_inline=None, input_key="inputs/large.html")
    ProviderAccount.objects.filter(pk=other.pk).update(renders_inside=True)
    confirm(everything(batch, other))
    carry_out()
    assert "lies in the store" in BulkActionItem.objects.get().words


# --- which could take it ---


def test_only_accounts_that_go_on_and_take_such_documents_are_named(other: ProviderAccount) -> None:
    held = make_account(slug="held", health="held", hold_reason="auth", held_at=NOW)
    unsafe = make_account(slug="unsafe", kind="gotenberg")
    relay = make_account(slug="relay")
    every = [other, held, unsafe, relay]
    assert elsewhere.could_take(every, ["html"]) == [other, relay]
    assert elsewhere.could_take(every, ["html", "url"]) == [relay]


def test_the_standing_names_the_kind_and_the_account_of_the_job(batch: Batch) -> None:
    make_job(batch=batch)
    standing = standings.of_items(BatchItem.objects.all())[BatchItem.objects.get().pk]
    assert (standing.kind, standing.account) == ("html", batch.account.slug)
    assert accounts.elsewhere(batch.account).takes == {"html", "markdown", "url", "template"}
