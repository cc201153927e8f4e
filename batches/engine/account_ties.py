"""What ties an account to the documents that it has sent: its address, the options that lead to them, and its key.

A document is asked after where it was sent. An address that changes, or a key that opens another vendor account, would
lose what is under way, and a repeat there would be billed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.db.models import Q

from batches.engine import accounts
from batches.models import ACTIVE_STATES, Job, ProviderAccount, SubmissionOutcome
from batches.providers import adapter_of

NEW_ACCOUNT = "Make a new account for the other one, and archive this one when its documents are done."


def is_tied(account: ProviderAccount) -> bool:
    """Whether something was sent through the account, or waits to be."""
    active = Job.objects.filter(account=account, state__in=ACTIVE_STATES)
    return account.submissions.exists() or active.exists()


def unfinished(account: ProviderAccount) -> int:
    """How many documents are to be sent or asked after with the account's key."""
    found = Job.objects.filter(
        Q(state__in=ACTIVE_STATES) | Q(submissions__outcome=SubmissionOutcome.OPEN), account=account
    )
    return found.distinct().count()


def problems(account: ProviderAccount, before: Mapping[str, Any], *, is_same_account: bool) -> dict[str, str]:
    """Why the account may not become what it is set to now, by the name of the field.

    `before` holds what stood in each column that differs. `is_same_account`: the new key is one of the same vendor
    account, says a person.
    """
    found = dict(_moved(account, before))
    if "api_key" in before and not is_same_account and (count := unfinished(account)):
        found["is_same_account"] = (
            f"{count:,} {'document of it is' if count == 1 else 'documents of it are'} not finished. Confirm that the "
            "new key belongs to the same account at the provider: with another account's key they could be billed a "
            f"second time. {NEW_ACCOUNT}"
        )
    return found


def _moved(account: ProviderAccount, before: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    names = [name for name in ("kind", "base_url") if name in before and not _is_same(name, account, before[name])]
    changed = _changed_options(account, before["options"]) if "options" in before else []
    if not (names or changed) or not is_tied(account):
        return
    for name in names:
        said = {"kind": "Its kind", "base_url": f"Its address, {before[name]},"}[name]
        yield name, f"{said} is fixed, since documents were sent through it or wait to be. {NEW_ACCOUNT}"
    if changed:
        said = f"{', '.join(changed)} {'is' if len(changed) == 1 else 'are'} fixed"
        yield "options", f"{said}, since documents were sent through it or wait to be. {NEW_ACCOUNT}"


def _is_same(name: str, account: ProviderAccount, before: str) -> bool:
    return bool(getattr(account, name).rstrip("/") == before.rstrip("/"))


def _changed_options(account: ProviderAccount, before: Any) -> list[str]:
    """The labels of fixed options with another value now; one that was left out has its default."""
    was, now = accounts.options_of(account.kind, before), accounts.sound_options(account)
    fixed = [option for option in adapter_of(account.kind).options if option.is_fixed]
    return [f"“{option.label}”" for option in fixed if was[option.name] != now[option.name]]
