"""A download as a pump has it made: the status read for another link is a step of its own, in a slot of its own."""

from __future__ import annotations

from typing import Any

from batches.engine import collection
from batches.engine.claims import Claim
from batches.engine.collection import Collected, LinkDead, NotCollected
from batches.engine.polling import PollContext
from batches.models import ProviderAccount
from batches.providers.base import Provider
from tests.engine.samples import account
from tests.factories import NOW


def collect(claim: Claim, provider: Provider, *given: Any) -> Collected | NotCollected:
    outcome = collection.collect(claim, provider, *given, now=NOW)
    if not isinstance(outcome, LinkDead):
        return outcome
    trail = collection.ask_for_link(claim, provider, now=NOW, trail=outcome.trail)
    if isinstance(trail, NotCollected):
        return trail
    outcome = collection.collect(claim, provider, *given, now=NOW, trail=trail)
    assert not isinstance(outcome, LinkDead), "a fresh link is tried once"
    return outcome


def at(now: Any, rng: Any, of: ProviderAccount | None = None) -> PollContext:
    """The context of a judgement."""
    return PollContext(of or account(), now, rng)
