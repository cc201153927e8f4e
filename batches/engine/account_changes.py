"""What a person changes of a provider account while it is in use: its settings and secrets; holding and resuming it.

Each change is checked as the model checks it, refused where the account could not be used safely afterwards or what it
has sent would be lost (`account_ties.py`), and written down with what stood there before. Pumps read an account anew
every second, so that all of it holds without a restart. What a running submission was promised, such as the deadline of
a job, stays.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet

from batches import queue
from batches.engine import account_ties, accounts, audit, health
from batches.engine.audit import By
from batches.engine.contention import again_after_deadlock
from batches.models import ACCOUNT_SECRETS, HoldReason, ProviderAccount, UnreadableSecret

#: What is changed on a page, in the order in which it is shown there.
LIMITS = (
    "submit_interval_ms",
    "submit_burst",
    "submit_windows",
    "max_in_flight",
    "pace_source",
    "poll_interval_ms",
    "poll_initial_ms",
    "poll_max_ms",
    "download_interval_ms",
    "deadline_seconds",
    "learned_deadline",
)
PRICES = ("price_per_job", "price_currency", "price_source")
TERMS = (
    "processing_region",
    "source_retention",
    "output_retention",
    "delete_remote_after_save",
    "processor",
    "data_notes",
)
EDITABLE = (*LIMITS, *PRICES, *TERMS)
#: What reaches the provider, on a page of its own.
SETTINGS = ("name", "base_url", "options", "download_hosts", "renders_inside")
#: Whether an account can be used safely is asked again when one of these changes.
REACH = frozenset({"kind", "base_url", "options", "download_hosts", "renders_inside", *ACCOUNT_SECRETS})
#: Columns of bookkeeping that go with a secret and that no entry names.
_UNSAID = ("webhook_secret_previous", "webhook_rotated_at")


class Refused(Exception):
    """Nothing was changed. `problems` says why, by the name of the field; what is about no field stands under ""."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {words}" if name else words for name, words in problems.items()))
        self.problems = problems


def seen(account: ProviderAccount) -> str:
    """A word for the values that a form showed, so that nobody overwrites what they have not seen."""
    values = [f"{name}={getattr(account, name)}" for name in (*EDITABLE, *SETTINGS)]
    return hashlib.sha256("\n".join(values).encode()).hexdigest()[:16]


def change(
    account_id: int,
    changes: Mapping[str, Any],
    *,
    by: By,
    reason: str,
    now: datetime,
    shown: str | None = None,
    is_same_account: bool = False,
) -> dict[str, Any]:
    """Set these columns; returns what became of those that differ. Raises `Refused` with nothing changed.

    `shown` is what `seen` said of the values that the person looked at. `is_same_account`: the person says that a new
    key opens the vendor account of the old one. Of a secret only that it was set is written down; the webhook secret of
    before stays accepted, and goes too when the new one is empty.
    """
    with transaction.atomic():
        account = _rows().select_for_update(of=("self",)).get(pk=account_id)
        if shown is not None and shown != seen(account):
            raise Refused({"": "Somebody else changed this account meanwhile. Look at the values and save again."})
        before, differ = _set(account, changes)
        if problems := _problems(account, before, differ, is_same_account=is_same_account):
            raise Refused(problems)
        if not differ:
            return {}
        account.save(update_fields=differ)
        said = [name for name in differ if name not in _UNSAID]
        after = {name: _said(account, name) for name in said}
        was = {name: _fact(before[name]) for name in said if name not in ACCOUNT_SECRETS}
        facts = {"before": was, "after": after}
        _record("change_account", account, by=by, reason=reason, now=now, facts=facts)
    return after


def problems_of(account_id: int, changes: Mapping[str, Any], *, is_same_account: bool) -> dict[str, str]:
    """Why `change` would refuse these by now, by the name of the field; nothing is changed."""
    account = _rows().get(pk=account_id)
    before, differ = _set(account, changes)
    return _problems(account, before, differ, is_same_account=is_same_account)


def add(account: ProviderAccount, *, by: By, reason: str, now: datetime) -> None:
    """Save an account that is not there yet. Raises `Refused` where it could not be used safely as it is set."""
    if problems := problems_of_new(account):
        raise Refused(problems)
    with transaction.atomic():
        account.save(force_insert=True)
        facts = {"kind": account.kind, "base_url": account.base_url, "options": account.options}
        _record("add_account", account, by=by, reason=reason, now=now, facts=facts)


def problems_of_new(account: ProviderAccount) -> dict[str, str]:
    """Why `add` would refuse it, by the name of the field."""
    problems = {**dict(_address_problems(account.base_url)), **dict(_money_problems(account))}
    problems |= _deletion_problems(account)
    try:
        account.full_clean()
    except ValidationError as error:
        problems |= {name: " ".join(words) for name, words in error.message_dict.items()}
    if not problems and (unsafe := accounts.problems(account)):
        problems[""] = " ".join(unsafe)
    return problems


@again_after_deadlock
@transaction.atomic
def hold(account: ProviderAccount, *, by: By, words: str, now: datetime) -> bool:
    """Send nothing new on it; false when a person, or a refused key, holds it already."""
    if not health.hold(account.pk, reason=HoldReason.PERSON, words=words, now=now):
        return False
    _record("hold_account", account, by=by, reason=words, now=now, facts={})
    return True


@again_after_deadlock
@transaction.atomic
def resume(account: ProviderAccount, *, by: By, reason: str, now: datetime) -> bool:
    """Let what waits go on; false when it was not held."""
    if not health.resume(account.pk, now=now):
        return False
    _record("resume_account", account, by=by, reason=reason, now=now, facts={})
    queue.ring()
    return True


def _rows() -> QuerySet[ProviderAccount]:
    return ProviderAccount.objects.select_related("workspace").defer(*ACCOUNT_SECRETS)


def _set(account: ProviderAccount, changes: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What stood in the columns that are set, and which of them differ now. A secret that nobody can read differs."""
    wanted = dict(changes)
    if "webhook_secret" in wanted:
        if wanted["webhook_secret"] == _readable(account, "webhook_secret"):
            del wanted["webhook_secret"]
        else:
            # What was signed with the one of before is still accepted, unless no secret shall be left.
            before = (_readable(account, "webhook_secret") or "") if wanted["webhook_secret"] else ""
            wanted |= {"webhook_secret_previous": before, "webhook_rotated_at": None}
    before = {name: _readable(account, name) for name in wanted}
    for name, value in wanted.items():
        setattr(account, name, value)
    return before, [name for name in wanted if before[name] != getattr(account, name)]


def _readable(account: ProviderAccount, name: str) -> Any:
    """The value of a column; None for a secret that no key opens."""
    with contextlib.suppress(UnreadableSecret):
        return getattr(account, name)
    return None


def _problems(
    account: ProviderAccount, before: Mapping[str, Any], differ: Sequence[str], *, is_same_account: bool
) -> dict[str, str]:
    """Of an account on which these columns were set anew."""
    problems = dict(_money_problems(account)) if set(differ).intersection(PRICES) else {}
    problems |= _address_problems(account.base_url) if "base_url" in differ else {}
    problems |= _deletion_problems(account) if REACH.union(TERMS).intersection(differ) else {}
    untouched = [field.name for field in account._meta.fields if field.name not in differ]
    try:
        account.clean_fields(exclude=untouched)
        account.clean()
    except ValidationError as error:
        problems |= {name: " ".join(words) for name, words in error.message_dict.items()}
    if problems:
        return problems
    was = {name: before[name] for name in differ}
    problems = account_ties.problems(account, was, is_same_account=is_same_account)
    if not problems and REACH.intersection(differ) and (unsafe := accounts.problems(account)):
        problems[""] = " ".join(unsafe)
    return problems


def _address_problems(address: str) -> Iterable[tuple[str, str]]:
    """Of an address that somebody types. It stands on pages and in the audit log, so it holds no secret."""
    try:
        parts = urlsplit(address)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one or not (address.isascii() and address.isprintable()) or " " in address:
        yield "base_url", "This is no address: give one such as https://api.example.com."
    elif parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        yield "base_url", "Leave out user, password and query: secrets have fields of their own, which are not shown."


def _deletion_problems(account: ProviderAccount) -> Iterable[tuple[str, str]]:
    """Nobody shall believe that something is deleted which is not."""
    known = account.kind in accounts.adapters()
    if account.delete_remote_after_save and known and not accounts.capabilities(account).remote_delete:
        label = accounts.adapters()[account.kind].label
        yield "delete_remote_after_save", f"{label} deletes nothing on request, as this account is set."


def _money_problems(account: ProviderAccount) -> Iterable[tuple[str, str]]:
    price, currency = account.price_per_job, account.price_currency
    if isinstance(price, Decimal) and price < 0:
        yield "price_per_job", "A price is not below 0."
    if currency and not (len(currency) == 3 and currency.isascii() and currency.isalpha() and currency.isupper()):
        yield "price_currency", "Give the three capital letters of a currency, such as USD."
    if price is not None and not currency:
        yield "price_currency", "A price needs its currency, such as USD."


def _said(account: ProviderAccount, name: str) -> Any:
    value = getattr(account, name)
    return ("set" if value else "removed") if name in ACCOUNT_SECRETS else _fact(value)


def _fact(value: Any) -> Any:
    """As the audit log keeps it."""
    return value if isinstance(value, int | list | dict) else str(value) if value not in (None, "") else "nothing"


def _record(
    action: str, account: ProviderAccount, *, by: By, reason: str, now: datetime, facts: Mapping[str, Any]
) -> None:
    subject = f"account {account.slug}"
    audit.record(action, subject=subject, workspace=account.workspace, by=by, now=now, reason=reason, facts=facts)
