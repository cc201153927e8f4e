"""What every installation has before work begins: workspace, account, lanes, roles. `manage.py bootstrap` calls it.

Each function is idempotent and says what it did. An account that exists is changed only by what the environment says
out loud, never moved away from submissions that it has made, and never silently given another vendor's key.
"""

from __future__ import annotations

import fcntl
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Exists, OuterRef

from batches import rolegroups
from batches.engine import account_ties, audit
from batches.engine.audit import By
from batches.models import (
    Batch,
    Lane,
    Membership,
    PacingLane,
    ProviderAccount,
    Role,
    Submission,
    UnreadableSecret,
    Workspace,
)
from batches.models.accounts import DEADLINE_SECONDS_LEAST, POLL_INITIAL_MS_LEAST, POLL_MAX_MS_LEAST
from batches.storage import ArtifactStore, StoreError

DEFAULT_WORKSPACE = "default"
RELAYPDF_URL = "https://api.relaypdf.com"
RELAYPDF_SLUG = "relaypdf"
SANDBOX_SLUG = "sandbox"
#: The key that the sandbox knows from its first start; it opens nothing else.
SANDBOX_KEY = "pdf_live_sandbox"
BY = By(None, "bootstrap", "command line")
#: Any number, the same for every process that may bootstrap one PostgreSQL database.
ADVISORY_LOCK = 7_301_112_904


class Refused(Exception):
    """Something that a person has to decide; the text says what and how."""


@dataclass(frozen=True)
class AccountPlan:
    """The account that the environment asks for. `limits` are columns for a new row; `said` overrules an old one."""

    slug: str
    name: str
    base_url: str
    api_key: str = field(repr=False)
    webhook_secret: str = field(repr=False)
    limits: Mapping[str, Any]
    said: frozenset[str]

    def paced_at_first(self, seconds: float) -> AccountPlan:
        """With this pace for an account that is yet to be made, unless the environment names one."""
        if "submit_interval_ms" in self.said:
            return self
        return replace(self, limits={**self.limits, "submit_interval_ms": _interval_ms(seconds)})


@dataclass(frozen=True)
class Outcome:
    """What became of the account: `what` is made, kept or changed; `notes` are sentences for the person."""

    account: ProviderAccount
    what: str
    notes: tuple[str, ...] = ()


@contextmanager
def one_at_a_time(data_dir: Path) -> Iterator[None]:
    """Wait until no other bootstrap of this folder or (on PostgreSQL) of this database runs."""
    with (data_dir / "bootstrap.lock").open("w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if connection.vendor != "postgresql":
            yield
            return
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s)", [ADVISORY_LOCK])
        try:
            yield
        finally:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [ADVISORY_LOCK])


def ensure_store(store: ArtifactStore) -> None:
    """Make the store of a new installation. One that has been used must be there: a fresh, empty store in its place
    would take new PDFs while all earlier ones are missing."""
    try:
        if Batch.objects.exists():
            store.ready()
        else:
            store.ensure()
    except StoreError as error:
        raise Refused(f"{error.words} Nothing was changed; look at STORAGE_URL.") from error


def plan_account(settings: Any) -> AccountPlan:
    """The sandbox's account when neither address nor key of RelayPDF is set, else the account `relaypdf`."""
    limits = {
        "submit_interval_ms": _interval_ms(settings.RELAYPDF_SUBMIT_INTERVAL),
        "max_in_flight": settings.RELAYPDF_MAX_IN_FLIGHT,
        "deadline_seconds": max(DEADLINE_SECONDS_LEAST, math.ceil(settings.RELAYPDF_DEADLINE)),
        "poll_initial_ms": max(POLL_INITIAL_MS_LEAST, round(settings.RELAYPDF_POLL_INITIAL * 1000)),
        "poll_max_ms": max(POLL_MAX_MS_LEAST, round(settings.RELAYPDF_POLL_MAX * 1000)),
        # Rounded down: a key that is believed to live longer than it does could be billed twice.
        "key_retention_seconds": math.floor(settings.RELAYPDF_KEY_RETENTION),
    }
    variables = {
        "RELAYPDF_SUBMIT_INTERVAL": "submit_interval_ms",
        "RELAYPDF_MAX_IN_FLIGHT": "max_in_flight",
        "RELAYPDF_DEADLINE": "deadline_seconds",
        "RELAYPDF_POLL_INITIAL": "poll_initial_ms",
        "RELAYPDF_POLL_MAX": "poll_max_ms",
        "RELAYPDF_KEY_RETENTION": "key_retention_seconds",
    }
    said = {column for variable, column in variables.items() if variable in settings.GIVEN}
    if "key_retention_seconds" in said:
        limits["key_retention_source"] = "RELAYPDF_KEY_RETENTION"
        said.add("key_retention_source")
    if not settings.RELAYPDF_BASE_URL and not settings.RELAYPDF_API_KEY:
        if "SANDBOX_PORT" in settings.GIVEN:
            said.add("base_url")
        base_url = f"http://127.0.0.1:{settings.SANDBOX_PORT}"
        return AccountPlan(SANDBOX_SLUG, "Sandbox", base_url, SANDBOX_KEY, "", limits, frozenset(said))
    if settings.RELAYPDF_BASE_URL:
        said.add("base_url")
    return AccountPlan(
        RELAYPDF_SLUG,
        "RelayPDF",
        settings.RELAYPDF_BASE_URL or RELAYPDF_URL,
        settings.RELAYPDF_API_KEY,
        settings.RELAYPDF_WEBHOOK_SECRET,
        limits,
        frozenset(said | {"api_key"}),
    )


def _interval_ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def ensure_workspace(*, now: datetime) -> Workspace:
    defaults = {"name": "Default", "created_at": now}
    return Workspace.objects.get_or_create(slug=DEFAULT_WORKSPACE, defaults=defaults)[0]


def ensure_account(plan: AccountPlan, *, rotate_key: bool, now: datetime) -> Outcome:
    """Make the planned account, or bring the one of that slug up to the plan. Raises `Refused` with nothing changed."""
    try:
        account = ProviderAccount.objects.filter(slug=plan.slug).first()
        real = ProviderAccount.objects.filter(slug=RELAYPDF_SLUG).first()
    except UnreadableSecret as error:
        raise Refused(str(error)) from error
    if account is not None:
        return _update_account(account, plan, rotate_key=rotate_key, now=now)
    if plan.slug == SANDBOX_SLUG and real is not None:
        note = "RELAYPDF_API_KEY is not set now; the account of before stays, and no sandbox account is made."
        return Outcome(real, "kept", (note,))
    account = ProviderAccount.objects.create(
        slug=plan.slug,
        name=plan.name,
        base_url=plan.base_url,
        api_key=plan.api_key,
        webhook_secret=plan.webhook_secret,
        created_at=now,
        **plan.limits,
    )
    return Outcome(account, "made")


@transaction.atomic
def _update_account(account: ProviderAccount, plan: AccountPlan, *, rotate_key: bool, now: datetime) -> Outcome:
    if account.archived_at is not None:
        return Outcome(account, "kept", ("It is archived, so nothing of it was changed.",))
    notes = _move(account, plan) + _rotate_key(account, plan, rotate_key=rotate_key)
    # A secret that was registered from here is newer than the environment, which nobody has told of it.
    if plan.webhook_secret and plan.webhook_secret != account.webhook_secret and not account.webhook_id:
        account.webhook_secret_previous = account.webhook_secret
        account.webhook_secret = plan.webhook_secret
        notes.append("The webhook secret was replaced; the one of before is still accepted.")
    limits = {key: value for key, value in plan.limits.items() if key in plan.said}
    for key, value in limits.items():
        if getattr(account, key) != value:
            notes.append(f"{key} is {value} now (was {getattr(account, key)}).")
            setattr(account, key, value)
    if account.poll_initial_ms > account.poll_max_ms:
        raise Refused(
            f"Account {account.slug} would poll first after {account.poll_initial_ms} ms, later than its longest wait "
            f"of {account.poll_max_ms} ms; set both RELAYPDF_POLL_INITIAL and RELAYPDF_POLL_MAX."
        )
    if not notes:
        return Outcome(account, "kept")
    account.save(update_fields=["api_key", "webhook_secret", "webhook_secret_previous", *limits])
    _record("change_account", account, now=now, facts={"changes": notes})
    return Outcome(account, "changed", tuple(notes))


def _move(account: ProviderAccount, plan: AccountPlan) -> list[str]:
    """Change the base URL of an account that has sent nothing yet."""
    if "base_url" not in plan.said or plan.base_url == account.base_url.rstrip("/"):
        return []
    sent = Exists(Submission.objects.filter(account=OuterRef("pk")))
    if not ProviderAccount.objects.filter(~sent, pk=account.pk).update(base_url=plan.base_url):
        raise Refused(
            f"Account {account.slug} has submissions at {account.base_url}, so its address is fixed; "
            f"{plan.base_url} is another service. Set the address back, or use another database for the other service."
        )
    before, account.base_url = account.base_url, plan.base_url
    return [f"It is at {plan.base_url} now (was {before})."]


def _rotate_key(account: ProviderAccount, plan: AccountPlan, *, rotate_key: bool) -> list[str]:
    """Store another key. While documents are under way a person has to say that it is the same vendor account's."""
    if "api_key" not in plan.said or plan.api_key == account.api_key:
        return []
    count = account_ties.unfinished(account)
    if count and not rotate_key:
        raise Refused(
            f"RELAYPDF_API_KEY is not the key of account {account.slug}, which has {count} unfinished "
            f"{'document' if count == 1 else 'documents'}. If it is a new key of the same RelayPDF account, run "
            "bootstrap --rotate-key; with another account's key they could be billed a second time."
        )
    account.api_key = plan.api_key
    return ["The API key was replaced."]


def ensure_lanes() -> None:
    """Each account has a pace for each kind of call."""
    ids = ProviderAccount.objects.values_list("pk", flat=True)
    rows = [PacingLane(account_id=account_id, lane=lane) for account_id in ids for lane in Lane]
    PacingLane.objects.bulk_create(rows, ignore_conflicts=True)


def ensure_roles() -> list[str]:
    """A group per role, as `migrate` makes them."""
    rolegroups.keep_in_step()
    return [role.label for role in Role]


def ensure_admin(username: str, password: str, workspace: Workspace, *, email: str = "", now: datetime) -> bool:
    """The first superuser; true when this call made it. An existing one keeps its password, and its e-mail address
    where it has one. Raises `Refused`."""
    user = User.objects.filter(username=username).first()
    if user is not None and not user.is_superuser:
        raise Refused(f"There is a user {username!r} already who is no administrator; choose another name.")
    made = user is None
    if user is None:
        user = User.objects.create_superuser(username, email, password)
        _record("make_admin", user, now=now, facts={})
    elif email and not user.email:
        User.objects.filter(pk=user.pk, email="").update(email=email)
    Membership.objects.get_or_create(workspace=workspace, user=user, defaults={"role": Role.ADMIN})
    return made


def _record(action: str, subject: ProviderAccount | User, *, now: datetime, facts: Mapping[str, Any]) -> None:
    audit.record(
        action,
        subject=f"account {subject.slug}" if isinstance(subject, ProviderAccount) else f"user {subject.username}",
        workspace=None,
        by=BY,
        now=now,
        facts=facts,
    )
