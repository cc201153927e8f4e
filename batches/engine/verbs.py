"""What each verb may do to what, and what that may bill: one table, pure. `repairs.py` does what is allowed here.

Only Regenerate, or a Retry after a submission that is proven unbilled, ever makes a second provider job of a document.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from batches.engine import retries
from batches.models import ACTIVE_STATES, FAILED_STATES, FailureClass, JobState, SourceKind, Verb


class Price(enum.Enum):
    """What a verb may cost, in renders; the words are the same on every face."""

    FREE = "free"
    MAYBE = "bills 0 or 1"
    ONE = "bills 1"

    @property
    def renders_least(self) -> int:
        return 1 if self is Price.ONE else 0

    @property
    def renders_most(self) -> int:
        return 0 if self is Price.FREE else 1


def bills(least: int, most: int) -> str:
    """The price of many, in the same words: “free”, “bills 0 or 1”, “bills 0 to 12”, “bills 12”."""
    if not most:
        return Price.FREE.value
    if least == most:
        return f"bills {most:,}"
    return f"bills {least:,} {'or' if most == least + 1 else 'to'} {most:,}"


@dataclass(frozen=True)
class Standing:
    """One item with its document, version, job and submissions, as they stood when they were read (`standings.py`).

    `has_id`: the provider named a job for one of its submissions. `in_doubt`: its open submission may have arrived, and
    no job was named. `is_running`: a batch that is neither paused nor cancelled needs it. `may_bill`: some submission
    may exist at the provider, and is not proven to have ended unbilled. `repeat_price`: what sending it again costs
    where nothing is billed twice; None where it could be. `kind` is that of its content (`models.SourceKind`),
    `account` the slug of its job's. `input_gone`: what is said of its input where retention deleted it.
    """

    state: JobState
    failure_class: str = ""
    failure_code: str = ""
    is_cancelled: bool = False
    batch_is_cancelled: bool = False
    is_dismissed: bool = False
    is_current: bool = True
    is_final: bool = False
    has_id: bool = False
    in_doubt: bool = False
    may_bill: bool = False
    resend_until: datetime | None = None
    is_running: bool = True
    version_number: int = 1
    repeat_price: Price | None = None
    kind: str = ""
    account: str = ""
    input_gone: str = ""


@dataclass(frozen=True)
class Elsewhere:
    """Another account than that of its batch at which something is to be rendered, and the kinds that it takes."""

    slug: str
    takes: frozenset[str]

    def why_not(self, kind: str) -> str:
        """Why content of this kind cannot be sent there; empty where it can."""
        return "" if kind in self.takes else not_taken(self.slug, kind)


@dataclass(frozen=True)
class Asked:
    """What was asked for besides the verb: another input than the version's own, the right to final documents, and for
    Regenerate another account than that of the batch."""

    has_new_input: bool = False
    may_regenerate_final: bool = False
    elsewhere: Elsewhere | None = None


@dataclass(frozen=True)
class Answer:
    """Allowed for a price, or refused with a sentence. `to_confirm` is what a person has to know and accept first."""

    price: Price | None
    words: str = ""
    to_confirm: str = ""

    @property
    def allowed(self) -> bool:
        return self.price is not None

    @property
    def renders_most(self) -> int:
        return self.price.renders_most if self.price else 0


@dataclass(frozen=True)
class Planned:
    """How an item stood when it was planned: its job's state, and what whoever confirmed the plan accepted of it."""

    state: JobState
    to_confirm: str = ""


FREE, MAYBE, ONE = Answer(Price.FREE), Answer(Price.MAYBE), Answer(Price.ONE)
#: What a verb costs at most, where nothing is known yet of what it is applied to.
PRICES: Mapping[Verb, Price] = {
    Verb.CHECK_AGAIN: Price.FREE,
    Verb.FETCH_AGAIN: Price.FREE,
    Verb.RETRY: Price.MAYBE,
    Verb.REGENERATE: Price.ONE,
    Verb.RECONCILE: Price.FREE,
    Verb.CANCEL: Price.FREE,
    Verb.DISMISS: Price.FREE,
    Verb.REOPEN: Price.MAYBE,
}


def price_of_many(verb: Verb, renders_most: int) -> str:
    """What a verb over many costs that may make so many renders: `free`, `bills 0 to 12`, `bills 12`."""
    return bills(renders_most if PRICES[verb] is Price.ONE else 0, renders_most)


#: A reason is asked for where something may be billed, or is given up.
NEEDS_REASON = frozenset(
    {Verb.DISMISS, Verb.CANCEL, *(verb for verb, price in PRICES.items() if price is not Price.FREE)}
)

SAVED_SINCE = "It was saved since this was planned."
#: Said before a version is made beside one that may be at the provider.
MAY_ALSO_BILL = "may also bill"
NEWER_EXISTS = "A newer version of the document exists; regenerate that one."
_CANCELLED_ITEM = "It is cancelled in this batch; reopen it first."
_CANCELLED_BATCH = "The whole batch was cancelled, for good; hand its file over again."
_PAUSED = "Its batch is paused, so nothing is sent for it; resume the batch first."
_BY_STATE: Mapping[JobState, str] = {
    JobState.PENDING: "It waits for its turn, and is sent by itself.",
    JobState.SUBMITTING: "It is being sent.",
    JobState.ACCEPTED: "The provider has accepted it; it is read until it ends.",
    JobState.RENDERED: "It is finished at the provider, and is being fetched.",
    JobState.SAVED: "It is saved.",
    JobState.CANCELLED: "It was cancelled before it was sent; reopen it.",
}


def not_taken(account: str, kind: str) -> str:
    """That an account does not take documents of this kind (`models.SourceKind`)."""
    words = SourceKind(kind).label
    return f"The account {account} does not take documents of this kind ({words}); choose another account."


def answer(verb: Verb, standing: Standing, *, now: datetime, asked: Asked | None = None) -> Answer:
    """Whether the verb may be applied to what stands so, for which price; else why not and what to do instead."""
    asked = asked or Asked()
    found = _RULES[verb](standing, now, asked)
    if found.allowed and standing.input_gone and _sends_input(verb, standing, asked):
        return _refused(standing.input_gone)
    return found


def _sends_input(verb: Verb, standing: Standing, asked: Asked) -> bool:
    """Whether the verb, where it is allowed, has the version's own input sent."""
    match verb:
        case Verb.REGENERATE:
            return not asked.has_new_input
        case Verb.REOPEN:
            return standing.state in (JobState.CANCELLED, JobState.PENDING)
    return verb is Verb.RETRY


def moved_on(verb: Verb, planned: Planned, standing: Standing, found: Answer) -> str:
    """Why an item that the verb is still allowed for is no longer the one that was planned; empty where it is.

    Regenerate is allowed in nearly every state, so it is meant for what the document had come to: for no other group
    of the counters. The other verbs' own rules refuse what they are not meant for.
    """
    if verb is Verb.REGENERATE and _kind(standing.state) != _kind(planned.state):
        if standing.state is JobState.SAVED:
            return SAVED_SINCE
        return f"It moved on since this was planned: its state is “{standing.state.label}” now; plan it again."
    if found.to_confirm and found.to_confirm != planned.to_confirm:
        return f"It moved on since this was planned: {found.to_confirm.rstrip('.')}; plan it again."
    return ""


def _kind(state: JobState) -> tuple[JobState, ...]:
    return next((kind for kind in (ACTIVE_STATES, FAILED_STATES) if state in kind), (state,))


def offered(standing: Standing, *, now: datetime, asked: Asked | None = None) -> dict[Verb, Answer]:
    """The verbs that are allowed, in the order of the enumeration."""
    answers = {verb: answer(verb, standing, now=now, asked=asked) for verb in Verb}
    return {verb: found for verb, found in answers.items() if found.allowed}


def _refused(words: str) -> Answer:
    return Answer(None, words)


def _check_again(standing: Standing, _now: datetime, _asked: Asked) -> Answer:
    if standing.is_cancelled:
        return _refused(_CANCELLED_ITEM)
    match standing.state:
        case JobState.ACCEPTED:
            return FREE
        case JobState.PENDING | JobState.SUBMITTING:
            return _refused("It has not been accepted yet, so there is nothing to ask about.")
        case JobState.EXPIRED if standing.has_id:
            return _refused("The provider has said that it is finished; Fetch again asks for a fresh link.")
        case JobState.UNKNOWN if not standing.has_id:
            return _refused("No provider job id is known, so nothing can be asked; reconcile it.")
        case state if state in FAILED_STATES:
            return FREE if standing.has_id else _refused("It never had a provider job id, so nothing can be asked.")
    return _refused(_BY_STATE[standing.state])


def _fetch_again(standing: Standing, _now: datetime, _asked: Asked) -> Answer:
    if standing.is_cancelled:
        return _refused(_CANCELLED_ITEM)
    match standing.state:
        case JobState.RENDERED:
            return FREE
        case JobState.EXPIRED:
            return FREE if standing.has_id else _refused("No provider job id is known, so nothing can be fetched.")
        case JobState.FAILED if standing.failure_class == FailureClass.BAD_OUTPUT and standing.has_id:
            return FREE
        case JobState.SAVED:
            return _refused("It is saved, and its file is in our store.")
        case JobState.ACCEPTED | JobState.DEADLINE_EXCEEDED:
            return _refused("The provider has not said that it is finished; Check again asks.")
        case JobState.FAILED | JobState.UNKNOWN:
            return _refused("There is no finished file of it at the provider, by all that is known.")
    return _refused(_BY_STATE[standing.state])


def _retry(standing: Standing, now: datetime, _asked: Asked) -> Answer:
    if standing.is_cancelled:
        return _refused(_CANCELLED_ITEM)
    if standing.batch_is_cancelled and not standing.is_running:
        return _refused(_CANCELLED_BATCH)
    match standing.state:
        case JobState.FAILED:
            return _retry_failed(standing)
        case JobState.UNKNOWN:
            return _retry_unknown(standing, now)
        case JobState.DEADLINE_EXCEEDED:
            return _refused(
                "The provider accepted it and may have billed it. Check again is free; Regenerate bills once more."
            )
        case JobState.EXPIRED:
            return _refused(
                "The provider rendered it, so it is billed already. Fetch again is free; Regenerate bills once more."
            )
    return _refused(_BY_STATE[standing.state])


def _retry_failed(standing: Standing) -> Answer:
    match standing.failure_class:
        case FailureClass.INVALID_INPUT:
            return _refused("The provider refuses this content as it is. Correct it, and regenerate.")
        case FailureClass.BAD_OUTPUT:
            return _refused(
                "The provider delivered a file, so it is billed already. Fetch again is free; Regenerate bills once "
                "more."
            )
        case FailureClass.RENDER_FAILED if standing.may_bill:
            return _refused(
                "That it was not billed has to be read from the provider twice. Check again (free), some time apart; "
                "Regenerate bills 1."
            )
    if standing.may_bill:
        return _refused("An earlier submission of it may have been billed. Check again (free), or reconcile it.")
    return MAYBE


def _retry_unknown(standing: Standing, now: datetime) -> Answer:
    if standing.failure_class == FailureClass.IDEMPOTENCY_CONFLICT:
        return _refused("The provider knows its key with other content; nothing is sent under it. Reconcile it.")
    if standing.in_doubt and standing.repeat_price is not None:
        return Answer(standing.repeat_price) if standing.is_running else _refused(_PAUSED)
    if standing.in_doubt and retries.may_resend(standing.resend_until, now):
        return MAYBE if standing.is_running else _refused(_PAUSED)
    return _refused(
        "The provider may no longer recognise a repeat of it, so sending it could bill a second time. Reconcile it."
    )


def _regenerate(standing: Standing, _now: datetime, asked: Asked) -> Answer:
    if standing.is_cancelled:
        return _refused(_CANCELLED_ITEM)
    if standing.batch_is_cancelled:
        return _refused(_CANCELLED_BATCH)
    if not standing.is_current:
        return _refused(NEWER_EXISTS)
    if standing.is_final and not asked.may_regenerate_final:
        return _refused("It is marked final; whoever has the right to may regenerate it, or take the mark off.")
    elsewhere = asked.elsewhere
    if elsewhere is not None and not asked.has_new_input and (words := elsewhere.why_not(standing.kind)):
        return _refused(words)
    moves = elsewhere is not None and elsewhere.slug != standing.account
    match standing.state:
        case JobState.PENDING if not asked.has_new_input and not moves:
            return _refused("It has not been sent yet, and is rendered as it is; give other content to replace it.")
        case JobState.CANCELLED if not asked.has_new_input:
            return _refused("It was cancelled before it was sent; reopen it, or give other content.")
    confirm = ["It is marked final: it was handed out as it is."] if standing.is_final else []
    if standing.may_bill or standing.state in (JobState.SUBMITTING, JobState.UNKNOWN):
        unfinished = standing.state not in (JobState.SAVED, JobState.EXPIRED)
        unfinished = unfinished and standing.repeat_price is not Price.FREE
        confirm += [f"Version {standing.version_number} {MAY_ALSO_BILL}."] if unfinished else []
    return Answer(Price.ONE, to_confirm=" ".join(confirm)) if confirm else ONE


def _reconcile(standing: Standing, _now: datetime, _asked: Asked) -> Answer:
    if standing.is_cancelled:
        return _refused(_CANCELLED_ITEM)
    if standing.state in (JobState.UNKNOWN, JobState.DEADLINE_EXCEEDED, JobState.EXPIRED):
        return FREE
    if standing.state is JobState.FAILED:
        return (
            FREE if standing.may_bill else _refused("Nothing about it is uncertain: nothing of it is at the provider.")
        )
    return _refused(_BY_STATE[standing.state])


def _cancel(standing: Standing, _now: datetime, _asked: Asked) -> Answer:
    if standing.is_cancelled:
        return _refused("It is cancelled already.")
    match standing.state:
        case JobState.PENDING:
            return FREE
        case JobState.SUBMITTING:
            return Answer(
                Price.FREE,
                to_confirm="It may already be accepted. That is resolved first; what the provider has is saved.",
            )
        case JobState.ACCEPTED | JobState.RENDERED:
            return _refused("The provider has it already, so it is billed; it is saved.")
        case JobState.SAVED | JobState.CANCELLED:
            return _refused(_BY_STATE[standing.state])
    return _refused("It has failed, so nothing is sent by itself; dismiss it, if it needs nobody any more.")


def _dismiss(standing: Standing, _now: datetime, _asked: Asked) -> Answer:
    if standing.is_cancelled or standing.state not in FAILED_STATES:
        return _refused("Only a failed document can be dismissed.")
    return _refused("It is dismissed already.") if standing.is_dismissed else FREE


def _reopen(standing: Standing, _now: datetime, _asked: Asked) -> Answer:
    if standing.is_cancelled or standing.state is JobState.CANCELLED:
        if standing.batch_is_cancelled:
            return _refused("The whole batch was cancelled, for good; hand its file over again.")
        if not standing.is_current:
            return _refused("A newer version of the document exists, and is rendered instead.")
        is_unsent = standing.state in (JobState.CANCELLED, JobState.PENDING)
        return MAYBE if is_unsent else FREE
    return FREE if standing.is_dismissed else _refused("It is neither dismissed nor cancelled.")


_RULES: Mapping[Verb, Callable[[Standing, datetime, Asked], Answer]] = {
    Verb.CHECK_AGAIN: _check_again,
    Verb.FETCH_AGAIN: _fetch_again,
    Verb.RETRY: _retry,
    Verb.REGENERATE: _regenerate,
    Verb.RECONCILE: _reconcile,
    Verb.CANCEL: _cancel,
    Verb.DISMISS: _dismiss,
    Verb.REOPEN: _reopen,
}
