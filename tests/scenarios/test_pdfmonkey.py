"""Documents go through PDFMonkey's own adapter, which meets the service's double in all its moods."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from batches.engine.accounts import provider_config
from batches.models import AccountHealth, HoldReason, Job, Submission
from batches.providers import make_provider
from batches.providers.base import Provider
from tests.providers.pdfmonkey_double import API_KEY, PDFMonkeyDouble
from tests.providers.pdfmonkey_service import WHOLE_HTML
from tests.scenarios.world import World

NAMES = [f"INV-{number}" for number in range(1, 13)]


@pytest.fixture
def double() -> Iterator[PDFMonkeyDouble]:
    with PDFMonkeyDouble() as double:
        yield double


@pytest.fixture
def world(make_world: Callable[..., World], double: PDFMonkeyDouble) -> Iterator[World]:
    world = make_world(
        kind="pdfmonkey",
        base_url=double.base_url,
        api_key=API_KEY,
        options={"template": WHOLE_HTML, "variable": "html"},
        deadline_seconds=600,
    )
    provider: Provider = make_provider("pdfmonkey", provider_config(world.account))
    world.own_providers[world.account.pk] = provider  # type: ignore[assignment]  # any provider will do
    yield world
    provider.close()


def test_hostile_moods_cost_no_document_and_no_second_bill(world: World, double: PDFMonkeyDouble) -> None:
    double.hostile()
    world.hand_over(*NAMES)
    world.run_to_the_end()
    assert set(world.states().values()) == {"saved"}, world.failures()
    for name in NAMES:
        assert name.encode() in world.stored(name)
    keys = set(Submission.objects.values_list("idempotency_key", flat=True))
    ledger = double.ledger()
    assert ledger["billed"] == dict.fromkeys(keys, 1)
    assert ledger["accepted"] > len(NAMES), "some answers to drafts were lost, and left a stray one"
    assert ledger["keys_at_files"] == 0


def test_a_link_that_has_died_is_renewed_and_nothing_is_made_again(world: World, double: PDFMonkeyDouble) -> None:
    double.misbehave("expired_file", answer="403")
    world.hand_over("INV-1")
    world.run_to_the_end()
    assert b"INV-1" in world.stored("INV-1")
    first, second = double.seen("download")
    assert first.path != second.path, "the card named a fresh one"
    assert len(double.seen("start")) == len(double.seen("submit")) == 1


def test_a_used_up_quota_holds_the_account_with_words_and_sends_nothing_more(
    world: World, double: PDFMonkeyDouble
) -> None:
    double.switches.quota = 1
    world.account.max_in_flight = 1
    world.account.save()
    world.hand_over(*NAMES[:5])
    world.run_until(lambda: world.account_now().health == AccountHealth.HELD)
    account = world.account_now()
    assert account.hold_reason == HoldReason.CREDIT
    assert "no documents left" in account.hold_words
    assert sorted(world.states().values()).count("pending") >= 2
    failed = Job.objects.get(state="failed")
    assert failed.failure_class == "insufficient_credit"
    assert "retry" in failed.failure_words
