"""`key=value` pairs of `manage.py account --set`: which settings of an account exist and how they are read.

The base URL is not among them: it is fixed once an account has a submission.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from django.utils import timezone

from batches.engine import account_changes, accounts
from batches.management import auditing, choosing
from batches.models import LearnedDeadline, ProviderAccount

FROM_STDIN, FROM_ENVIRONMENT = "-", "env:"
SECRETS = frozenset({"api_key", "webhook_secret"})


def _whole(text: str) -> int:
    return int(text)


def _price(text: str) -> Decimal | None:
    price = Decimal(text) if text else None
    if price is not None and not (price.is_finite() and price >= 0):
        raise ValueError
    return price


def _windows(text: str) -> list[list[int]]:
    windows = json.loads(text)
    for count, seconds in windows:
        if not (isinstance(count, int) and isinstance(seconds, int) and count > 0 and seconds > 0):
            raise ValueError
    return [list(window) for window in windows]  # how large they may be, the model says


def _secret(text: str) -> str:
    """Never from the command's own words: those stand in the list of processes and in the history of a shell."""
    if text == FROM_STDIN:
        secret = sys.stdin.readline().strip()
    elif text.startswith(FROM_ENVIRONMENT):
        secret = os.environ[text.removeprefix(FROM_ENVIRONMENT)].strip()
    else:
        raise ValueError
    if not secret or any(not 33 <= ord(character) <= 126 for character in secret):
        raise ValueError
    return secret


def _words(text: str) -> str:
    return text.strip()


def _learned(text: str) -> LearnedDeadline:
    return LearnedDeadline(text.strip())


def _yes(text: str) -> bool:
    return {"yes": True, "true": True, "no": False, "false": False}[text.strip().lower()]


def _hosts(text: str) -> list[str]:
    return [host.strip().lower() for host in text.split(",") if host.strip()]


NEVER_IN_WORDS = "- to read it from standard input, or env:NAME to read it from that environment variable"
#: Each setting with how its value is read, and the words for a value that cannot be.
SETTINGS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "name": (_words, "some words"),
    "submit_interval_ms": (_whole, "whole milliseconds"),
    "submit_burst": (_whole, "a whole number"),
    "submit_windows": (_windows, "a list such as [[20, 60], [5, 10]]"),
    "poll_interval_ms": (_whole, "whole milliseconds"),
    "download_interval_ms": (_whole, "whole milliseconds"),
    "poll_initial_ms": (_whole, "whole milliseconds"),
    "poll_max_ms": (_whole, "whole milliseconds"),
    "max_in_flight": (_whole, "a whole number"),
    "deadline_seconds": (_whole, "whole seconds"),
    "learned_deadline": (_learned, "off, suggested or on"),
    "key_retention_seconds": (_whole, "whole seconds"),
    "key_retention_source": (_words, "where the number comes from"),
    "pace_source": (_words, "where the limits come from"),
    "processing_region": (_words, "where documents are rendered"),
    "source_retention": (_words, "how long the provider keeps what is sent"),
    "output_retention": (_words, "how long the provider keeps the PDF"),
    "processor": (_words, "who processes it, and under which contract"),
    "data_notes": (_words, "some words"),
    "delete_remote_after_save": (_yes, "yes or no"),
    "download_hosts": (_hosts, "host names with commas between"),
    "renders_inside": (_yes, "yes or no"),
    "price_per_job": (_price, "a price such as 0.0013, or nothing"),
    "price_currency": (_words, "a currency such as USD"),
    "price_source": (_words, "where the price comes from"),
    "api_key": (_secret, NEVER_IN_WORDS),
    "webhook_secret": (_secret, NEVER_IN_WORDS),
}


def add(slug: str, kind: str, pairs: Sequence[str], *, base_url: str, workspace: str | None, reason: str) -> None:
    """Add an account of `kind` with these settings; those that only its kind has are among them by their names.

    Raises `CommandError` (exit code 2) with nothing saved.
    """
    kinds = accounts.adapters()
    if kind not in kinds:
        raise choosing.refusal(f"No provider is called {kind!r}; there are: {', '.join(sorted(kinds))}.")
    if ProviderAccount.objects.filter(slug=slug).exists():
        raise choosing.refusal(f"There is an account {slug!r} already; change it with --set.")
    options, columns = _apart(pairs, {option.name for option in kinds[kind].options})
    given = columns | ({"base_url": base_url} if base_url else {})
    account = ProviderAccount(
        slug=slug,
        workspace=choosing.workspace(workspace) if workspace else None,
        options=options,
        **accounts.defaults(kind) | given,
    )
    try:
        account_changes.add(account, by=auditing.by(), reason=reason, now=timezone.now())
    except account_changes.Refused as error:
        raise choosing.refusal(str(error)) from error


def apply(
    account: ProviderAccount, pairs: Sequence[str], *, reason: str, is_same_account: bool = False
) -> dict[str, Any]:
    """Set the pairs on the account, checked and written down as a change on its page is.

    An option of its kind is set by its name; the others stay. `is_same_account`: as `account_changes.change` has it.
    Returns what was asked for, without secrets. Raises `CommandError` (exit code 2) with nothing saved.
    """
    kind = accounts.adapters().get(account.kind)
    options, columns = _apart(pairs, {option.name for option in kind.options} if kind else set())
    given = account.options if isinstance(account.options, dict) else {}
    changes = columns | ({"options": {**given, **options}} if options else {})
    now = timezone.now()
    try:
        account_changes.change(
            account.pk, changes, by=auditing.by(), reason=reason, now=now, is_same_account=is_same_account
        )
    except account_changes.Refused as error:
        asked = error.problems.get("is_same_account")
        words = f"{asked} To confirm it, add --same-account." if asked else str(error)
        raise choosing.refusal(words) from error
    return {key: "set" if key in SECRETS else str(value) for key, value in columns.items()} | options


def _apart(pairs: Sequence[str], own: Collection[str]) -> tuple[dict[str, str], dict[str, Any]]:
    """Options of a kind, by the names in `own`, and columns. Raises `CommandError`."""
    options = dict(pair.split("=", 1) for pair in pairs if "=" in pair and pair.partition("=")[0] in own)
    return options, _read([pair for pair in pairs if pair.partition("=")[0] not in options], also=own)


def _read(pairs: Sequence[str], *, also: Iterable[str] = ()) -> dict[str, Any]:
    """The values by column; `also` could have been set too. Raises `CommandError`."""
    changes: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if key not in SETTINGS:
            raise choosing.refusal(f"{key!r} cannot be set; known: {', '.join([*SETTINGS, *sorted(also)])}.")
        read, wanted = SETTINGS[key]
        if not equals:
            raise choosing.refusal(f"{key} has no value; write {key}=VALUE, with {wanted}.")
        try:
            changes[key] = read(text)
        except (ValueError, KeyError, TypeError, RecursionError, InvalidOperation):
            raise choosing.refusal(f"{key} takes {wanted}.") from None
    return changes
