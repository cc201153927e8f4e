"""Accounts side by side, before somebody chooses one: what each would bill, how long it takes, where content goes and
what it cannot do. One room for what pages and commands say of it; it decides nothing.

`facts` and what follows are pure; `of_accounts` reads what they are made from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Case, Count, Value, When

from batches import figures, sentences
from batches.engine import accounts, bulk_actions, estimates, terms
from batches.engine.estimates import Estimate
from batches.engine.verbs import MAY_ALSO_BILL, Standing
from batches.models import (
    ACCOUNT_SECRETS,
    AccountHealth,
    BulkAction,
    BulkActionItem,
    ItemResult,
    JobState,
    ProviderAccount,
    SourceKind,
)

#: Accounts that are put side by side; who has more chooses among these first.
SHOWN_MOST = 8
EACH_AT_ITS_OWN = "Each at the account of its own batch"
#: Rows of the data terms that are said in other words here.
_SAID_OTHERWISE = frozenset({"Provider", "Price of a document"})


@dataclass(frozen=True)
class Facts:
    """What whoever chooses an account should know of it, for so many documents.

    `cost` is empty where no price is known, `trouble` where nothing keeps it from sending now. `terms` are those of
    `engine/terms.py`.
    """

    account: str
    name: str
    provider: str
    renders: int
    bills: str
    cost: str
    pace: str
    duration: str
    takes: tuple[str, ...]
    lost_answer: str
    deletes: bool
    terms: Mapping[str, Any]
    trouble: str = ""
    can_be_chosen: bool = True

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Label and words of each fact, in an order that is the same for every account."""
        told = [
            ("Provider", " at ".join(filter(None, (self.provider, str(self.terms.get("host", "")))))),
            ("Bills", self.bills + (f", {self.cost}" if self.cost else "")),
            ("Sending takes", f"{self.duration}, {self.pace}" if self.renders else self.pace),
            ("Takes", ", ".join(self.takes)),
            ("A lost answer", self.lost_answer),
            ("Deletes on request", "yes" if self.deletes else "no"),
        ]
        told += [row for row in sentences.terms_rows(self.terms) if row[0] not in _SAID_OTHERWISE and row[0] != "Notes"]
        return [*told, ("Notes", str(self.terms.get("notes") or "–")), ("Now", self.trouble or "it can be used")]

    @property
    def in_short(self) -> str:
        """`bills 1 at DocRaptor, 0.12 USD, rendered in Virginia`"""
        region = self.terms.get("processing_region")
        where = f"rendered in {region}" if region else "where it is rendered is not written down"
        price = self.cost or ("" if self.bills == "nothing" else "no price is written down")
        bills = f"bills {self.bills} at {self.provider}"
        return ", ".join(filter(None, (bills, price, where)))

    def as_dict(self) -> dict[str, Any]:
        """JSON, for commands."""
        return {
            "account": self.account,
            "name": self.name,
            "provider": self.provider,
            "renders": self.renders,
            "cost": self.cost or None,
            "takes": list(self.takes),
            "lost_answer": self.lost_answer,
            "deletes_on_request": self.deletes,
            "duration": self.duration,
            "pace": self.pace,
            "trouble": self.trouble or None,
            "terms": dict(self.terms),
            "in_short": self.in_short,
            "rows": dict(self.rows),
        }


def facts(
    account: ProviderAccount, capabilities: Any, estimate: Estimate, kept: Mapping[str, Any], problems: Sequence[str]
) -> Facts:
    """From the account, what it can do (`providers.base.Capabilities`), what so many documents would take and cost
    there, its data terms, and why it cannot be used as it is set."""
    trouble = problems[0] if problems else ""
    if account.health == AccountHealth.HELD and not trouble:
        trouble = "held: what is sent there waits until that has ended"
    return Facts(
        account=account.slug,
        name=account.name,
        provider=str(kept.get("provider", "")),
        renders=estimate.renders,
        bills=f"{estimate.renders:,}" if capabilities.bills else "nothing",
        cost=estimate.cost_words if capabilities.bills and estimate.renders else "",
        pace=figures.pace(sentences.interval_ms(account)),
        duration=estimate.duration,
        takes=tuple(SourceKind(kind).label for kind in SourceKind if kind in capabilities.sources),
        lost_answer=lost_answer(capabilities),
        deletes=capabilities.remote_delete,
        terms=kept,
        trouble=trouble,
        can_be_chosen=not problems,
    )


def lost_answer(capabilities: Any) -> str:
    """What becomes of a submission whose answer was lost, as its provider can (`providers.base.Capabilities`)."""
    if capabilities.drafts:
        return "another draft is made; only one is begun"
    if capabilities.client_key:
        return "sent again with the same key"
    if capabilities.resend_is_harmless:
        return "sent again: at worst one more run" if capabilities.bills else "sent again: it costs no bill"
    return "unknown: looked up, then a person" if capabilities.look_up else "unknown: a person decides"


def stays(standing: Standing, capabilities: Any, *, provider: str, count: int = 1) -> str:
    """What becomes of so many versions before that stand so, at this provider: `stays at RelayPDF, billed`."""
    is_one = count == 1
    if standing.state is JobState.PENDING and not standing.may_bill:
        it = ("is", "it") if is_one else ("are", "them")
        return f"{it[0]} not sent to {provider} any more, unless another batch needs {it[1]}"
    stay = f"{'stays' if is_one else 'stay'} at {provider}"
    if not capabilities.bills:
        return f"{stay}, which bills nothing"
    if standing.state is JobState.SAVED:
        return f"{stay}, billed"
    may_bill = standing.may_bill or standing.state in (JobState.SUBMITTING, JobState.UNKNOWN)
    return f"{stay} and {MAY_ALSO_BILL}" if may_bill else f"billed nothing at {provider}"


@dataclass(frozen=True)
class Row:
    """One fact of every account; `differs` where they are not all alike."""

    label: str
    cells: tuple[str, ...]

    @property
    def differs(self) -> bool:
        return len(set(self.cells)) > 1


@dataclass(frozen=True)
class Choice:
    """One account that can be chosen. `words` say in short what that means."""

    value: str
    name: str
    words: str
    is_chosen: bool
    can_be_chosen: bool = True


@dataclass(frozen=True)
class Comparison:
    """Accounts side by side; `choices` are those of them that may be chosen, in the same order. `before` says what
    becomes of the versions before, whichever is chosen."""

    columns: tuple[Facts, ...]
    choices: tuple[Choice, ...] = ()
    before: tuple[str, ...] = ()

    @property
    def rows(self) -> list[Row]:
        """The same facts of each, one row for each."""
        each = [facts.rows for facts in self.columns]
        return [Row(cells[0][0], tuple(words for _label, words in cells)) for cells in zip(*each, strict=True)]

    @property
    def is_choice(self) -> bool:
        return len(self.choices) > 1

    def chosen(self) -> Facts | None:
        picked = next((choice.value for choice in self.choices if choice.is_chosen), None)
        return next((facts for facts in self.columns if facts.account == picked), None)


def of_account(account: ProviderAccount, renders: int) -> Facts:
    """Reads a few rows, and what the account can do as it is set."""
    kept, can = terms.of_account(account), accounts.capabilities(account)
    return facts(account, can, estimates.of(account, renders), kept, accounts.problems(account))


def of_accounts(
    offered: Iterable[ProviderAccount],
    renders: int,
    *,
    chosen: ProviderAccount | None,
    own: ProviderAccount | None = None,
    beside: Iterable[ProviderAccount] = (),
    before: str = "",
) -> Comparison:
    """Those that may be chosen beside others that documents are at now. The one that holds where none is chosen, `own`,
    stands first.

    `before` says what becomes of the versions before.
    """
    offers = sorted(offered, key=lambda account: (account != own, account != chosen))[:SHOWN_MOST]
    known = {account.pk for account in offers}
    others = [account for account in beside if account.pk not in known]
    columns = [of_account(account, renders) for account in offers]
    choices = [
        Choice(
            facts.account,
            facts.name,
            _in_words(facts, before),
            is_chosen=chosen is not None and facts.account == chosen.slug,
            can_be_chosen=facts.can_be_chosen,
        )
        for facts in columns
    ]
    return Comparison((*columns, *(of_account(account, 0) for account in others)), tuple(choices))


def of_action(action: BulkAction, offered: Iterable[ProviderAccount], renders: int) -> Comparison:
    """Where the documents of a planned Regenerate can be rendered, beside the accounts that they are at now."""
    own = action.batch.account if action.batch else None
    waiting = BulkActionItem.objects.filter(action=action, result=ItemResult.WAITING).order_by()
    may_bill = Case(When(to_confirm__contains=MAY_ALSO_BILL, then=Value(True)), default=Value(False))
    columns = ("version__job__account", "job_state", "in_doubt")
    counted = waiting.annotate(in_doubt=may_bill).values_list(*columns).annotate(count=Count("pk")).order_by("-count")
    groups = list(counted)
    now = ProviderAccount.objects.defer(*ACCOUNT_SECRETS).in_bulk({key for key, *_ in groups})
    said: Counter[tuple[int, Standing]] = Counter()
    for key, state, in_doubt, count in groups:
        said[key, Standing(JobState(state), may_bill=in_doubt)] += count
    before = tuple(
        f"{count:,} {stays(stood, accounts.capabilities(now[key]), provider=accounts.label(now[key]), count=count)}"
        for (key, stood), count in said.most_common()
    )
    chosen = bulk_actions.account_of(action) or own
    found = of_accounts(offered, renders, chosen=chosen, own=own, beside=now.values())
    if own is not None:
        return replace(found, before=before)
    each = Choice("", EACH_AT_ITS_OWN, "As they were planned first.", is_chosen=chosen is None)
    return Comparison(found.columns, (each, *found.choices), before)


def _in_words(facts: Facts, before: str) -> str:
    short = facts.in_short[0].upper() + facts.in_short[1:]
    said = f"{short}; {before}." if before else f"{short}."
    return f"{said} {facts.trouble[0].upper()}{facts.trouble[1:].removesuffix('.')}." if facts.trouble else said
