"""`manage.py bootstrap`: make a database ready for work, or bring it up to date. Harmless twice, even at once.

Exit codes: 0 ready, 2 something that a person has to decide (a sentence says what).
"""

from __future__ import annotations

import json
import math
import os
import secrets
from argparse import ArgumentTypeError
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser
from django.db import OperationalError, connection
from django.utils import timezone

from batches import figures, installation, queue, storage
from batches.engine import slots
from batches.management import choosing
from batches.models import ProviderAccount

PASSWORD_VARIABLE = "FIRST_PASSWORD"  # noqa: S105 - the name of a variable, not a password
LONGEST_INTERVAL_SECONDS = 3600


class Command(BaseCommand):
    help = "Migrate, and make the default workspace, the account of the environment, schedules and roles."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--rotate-key",
            action="store_true",
            help="RELAYPDF_API_KEY is a new key of the same RelayPDF account; store it although work is under way.",
        )
        parser.add_argument(
            "--admin",
            metavar="USERNAME",
            help=f"Make a first administrator with the password in {PASSWORD_VARIABLE}, else with one that is printed.",
        )
        parser.add_argument(
            "--admin-email",
            metavar="ADDRESS",
            default="",
            help="Where that administrator's notices go, if this makes them or they have no address.",
        )
        parser.add_argument(
            "--first-interval",
            metavar="SECONDS",
            type=_interval,
            help="Least seconds between two submissions of the account if this makes it, where the environment names "
            "none; an account that is there already is left as it is.",
        )
        parser.add_argument("--json", action="store_true", help="Print the summary as one JSON document.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            with installation.one_at_a_time(settings.DATA_DIR):
                summary = self._bring_up(options)
        except installation.Refused as refused:
            raise choosing.refusal(str(refused)) from refused
        except OperationalError as error:
            raise choosing.refusal(f"The database does not answer; look at DATABASE_URL. It said: {error}") from error
        if options["json"]:
            self.stdout.write(json.dumps(summary, ensure_ascii=False, indent=2))
        else:
            self._say(summary)

    def _bring_up(self, options: dict[str, Any]) -> dict[str, Any]:
        now = timezone.now()
        call_command("migrate", interactive=False, verbosity=0)
        installation.ensure_store(storage.open_store(settings.STORAGE_URL))
        workspace = installation.ensure_workspace(now=now)
        plan = installation.plan_account(settings)
        if options["first_interval"] is not None:
            plan = plan.paced_at_first(options["first_interval"])
        outcome = installation.ensure_account(plan, rotate_key=options["rotate_key"], now=now)
        installation.ensure_lanes()
        pumps = max(1, settings.CLUSTER_WORKERS - 1)
        slots.ensure(pumps)
        queue.ensure_schedules()
        return {
            "database": f"{connection.vendor}, {connection.settings_dict['NAME']}",
            "workspace": workspace.slug,
            "account": _account_facts(outcome.account) | {"outcome": outcome.what, "notes": list(outcome.notes)},
            "pumps": pumps,
            "schedules": sorted(queue.SCHEDULES),
            "roles": installation.ensure_roles(),
            "admin": self._admin(options["admin"], options["admin_email"], workspace, now)
            if options["admin"]
            else None,
        }

    def _admin(self, username: str, email: str, workspace: Any, now: Any) -> dict[str, Any]:
        given = os.environ.get(PASSWORD_VARIABLE, "")
        if given and not User.objects.filter(username=username).exists():
            try:
                validate_password(given, User(username=username))
            except ValidationError as error:
                raise installation.Refused(f"{PASSWORD_VARIABLE}: {' '.join(error.messages)}") from error
        password = given or secrets.token_urlsafe(12)
        made = installation.ensure_admin(username, password, workspace, email=email, now=now)
        return {"username": username, "made": made, "password": password if made and not given else None}

    def _say(self, summary: dict[str, Any]) -> None:
        account, admin = summary["account"], summary["admin"]
        lines = {
            "Database": f"{summary['database']}, up to date",
            "Workspace": summary["workspace"],
            "Account": f"{account['slug']} ({account['outcome']}): {account['base_url']}, {account['pace']}",
            "Pumps": f"{summary['pumps']} at once",
            "Roles": ", ".join(summary["roles"]),
        }
        if admin:
            how = f"password {admin['password']} (shown once)" if admin["password"] else "password as given"
            lines["Admin"] = f"{admin['username']}, {how if admin['made'] else 'there already; password as it was'}"
        for label, words in lines.items():
            self.stdout.write(f"{label:<11}{words}")
        for note in account["notes"]:
            self.stdout.write(f"{'':<11}{note}")


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= LONGEST_INTERVAL_SECONDS:
        raise ArgumentTypeError(f"{text!r} is no pace; give seconds from 0 to {LONGEST_INTERVAL_SECONDS}.")
    return seconds


def _account_facts(account: ProviderAccount) -> dict[str, Any]:
    return {
        "slug": account.slug,
        "base_url": account.base_url,
        "pace": figures.pace(account.submit_interval_ms),
        "submit_interval_ms": account.submit_interval_ms,
        "max_in_flight": account.max_in_flight,
    }
