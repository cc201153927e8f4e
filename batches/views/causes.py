"""The cards of the causes on the batch page: each with the verb that is suggested, its price, and who may press it.

What the causes are: `failures.py`. The button hands the cause to the plan of a bulk action; nothing is done here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from batches import failures, wording
from batches.engine import verbs
from batches.failures import Cause
from batches.models import Verb


@dataclass(frozen=True)
class Offer:
    """A verb for all of a cause. `refusal` says why this person may not press it; empty where they may."""

    verb: Verb
    label: str
    price: str
    refusal: str = ""


@dataclass(frozen=True)
class Card:
    cause: Cause
    offer: Offer | None


def cards(found: failures.Causes, rights: Collection[str]) -> list[Card]:
    """One per cause that is shown, in their order."""
    return [Card(cause, _offer(cause, rights)) for cause in found.shown]


def _offer(cause: Cause, rights: Collection[str]) -> Offer | None:
    verb = cause.suggested
    if verb is None or not cause.key:
        return None
    refusal = "" if verb in rights else f"Your role may not {verb.label.lower()}; ask a manager of this workspace."
    return Offer(verb, wording.verb_these(verb, cause.count), price_of_many(verbs.PRICES[verb], cause.count), refusal)


def price_of_many(price: verbs.Price, count: int) -> str:
    """What a verb over so many may cost: `free`, `bills 0 to 312`, `bills 312`."""
    if price is verbs.Price.FREE or count == 1:
        return price.value
    return f"bills 0 to {count:,}" if price is verbs.Price.MAYBE else f"bills {count:,}"
