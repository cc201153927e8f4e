"""Finds what a command names (batch, workspace, account), or ends the command with a sentence and exit code 2."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError

from batches import selectors
from batches.models import ACCOUNT_SECRETS, Batch, ProviderAccount, Workspace

#: Exit code of what a person has to decide or correct (docs/architecture.md, "Stable interfaces").
REFUSED = 2
#: What `Batch.spend_cap` can hold.
MONEY_MOST, SMALLEST = Decimal(10) ** 8, Decimal("0.0001")


def refusal(words: str) -> CommandError:
    return CommandError(words, returncode=REFUSED)


def amount(text: str) -> Decimal:
    """An amount of money from 0, for argparse."""
    try:
        found = Decimal(text)
    except InvalidOperation:
        found = Decimal(-1)
    if not (found.is_finite() and 0 <= found < MONEY_MOST and found == found.quantize(SMALLEST)):
        raise ArgumentTypeError(f"{text!r} is no amount; give one such as 5 or 0.25, with at most four decimals.")
    return found


def batch(public_id: str) -> Batch:
    batches = Batch.objects.select_related("workspace", "account")
    without_secrets = batches.defer(*(f"account__{name}" for name in ACCOUNT_SECRETS))
    found = without_secrets.filter(public_id=public_id).first()
    if found is None:
        raise refusal(f"There is no batch {public_id!r}. The id stands on the batch's page and in what submit prints.")
    return found


def open_batch(public_id: str) -> Batch:
    """A batch to which something may be done, as on its page: none of an archived workspace."""
    found = batch(public_id)
    if found.workspace.archived_at is not None:
        raise refusal(f"The workspace {found.workspace.slug} of this batch is archived: nothing of it is changed.")
    return found


def workspace(slug: str | None) -> Workspace:
    """The workspace with this slug; without one the only workspace, or the one called `default`."""
    open_ones = Workspace.objects.filter(archived_at__isnull=True)
    if slug:
        found = open_ones.filter(slug=slug).first()
        if found is None:
            raise refusal(f"There is no workspace {slug!r}. {_known(open_ones)}")
        return found
    found = open_ones.filter(slug="default").first()
    if found is None:
        first_two = list(open_ones[:2])
        if not first_two:
            raise refusal("There is no workspace yet; run `manage.py bootstrap` first.")
        if len(first_two) > 1:
            raise refusal(f"Say which workspace with --workspace. {_known(open_ones)}")
        found = first_two[0]
    return found


def listeners(chosen: Workspace, names: Sequence[str]) -> list[User]:
    """Users by name who want to hear of a batch; each has to be one who may see it."""
    found = {user.get_username(): user for user in User.objects.filter(username__in=names, is_active=True)}
    for name in names:
        if name not in found or not selectors.visible_workspaces(found[name]).filter(pk=chosen.pk).exists():
            raise refusal(f"--notify {name!r}: no user of the workspace {chosen.slug} has this name.")
    return list(found.values())


def account(slug: str) -> ProviderAccount:
    found = ProviderAccount.objects.defer(*ACCOUNT_SECRETS).filter(slug=slug).first()
    if found is None:
        raise refusal(f"There is no account {slug!r}. {_known(ProviderAccount.objects.all())}")
    return found


def account_for(chosen: Workspace, slug: str | None) -> ProviderAccount:
    """An account on which this workspace may start a batch; without a slug its default one."""
    usable = selectors.usable_accounts([chosen])
    if slug:
        found = usable.filter(slug=slug).first()
        if found is None:
            raise refusal(f"Workspace {chosen.slug} has no account {slug!r}. {_known(usable)}")
        return found
    found = selectors.default_account(usable)
    if found is None:
        raise refusal(
            f"Say which account with --account. {_known(usable)}"
            if usable.exists()
            else "There is no account yet; run `manage.py bootstrap` first."
        )
    return found


def _known(rows: Any) -> str:
    slugs = list(rows.order_by("slug").values_list("slug", flat=True)[:20])
    return f"Known: {', '.join(slugs)}." if slugs else "None is known; run `manage.py bootstrap` first."
