"""The cards of the causes on the batch page: each with the verb that is suggested, its price, and who may press it.

What the causes are: `failures.py`. The button hands the cause to the plan of a bulk action; nothing is done here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from batches import failures, rights, wording
from batches.engine import verbs
from batches.failures import Cause
from batches.models import Verb, Workspace


@dataclass(frozen=True)
class Offer:
    """A verb for all of a cause. `refusal` says why this person may not press it; empty where they may."""

    verb: Verb
    label: str
    price: str
    refusal: str = ""


@dataclass(frozen=True)
class Card:
    """`whom_to_ask` is said in place of the verb and the advice to whoever may apply none."""

    cause: Cause
    offer: Offer | None
    whom_to_ask: str


def cards(found: failures.Causes, held: Collection[str], workspace: Workspace) -> list[Card]:
    """One per cause that is shown, in their order; `held` are the rights in `workspace` of who looks."""
    ask = rights.whom_to_ask(held, workspace)
    return [Card(cause, None if ask else _offer(cause, held), ask) for cause in found.shown]


def _offer(cause: Cause, held: Collection[str]) -> Offer | None:
    verb = cause.suggested
    if verb is None or not cause.key:
        return None
    refusal = "" if verb in held else rights.refusal(verb)
    price = verbs.price_of_many(verb, verbs.PRICES[verb].renders_most * cause.count)
    return Offer(verb, wording.verb_these(verb, cause.count), price, refusal)
