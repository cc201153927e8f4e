"""`manage.py api_token USER --name N`: make an API token and print its secret, once."""

from __future__ import annotations

from argparse import ArgumentTypeError
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandParser
from django.utils import timezone

from batches import selectors, tokens
from batches.management import auditing, choosing
from batches.management.readiness import DatabaseCommand


class Command(DatabaseCommand):
    help = "Make a token that lets a script read the batches of one workspace. It is printed once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user", help="The user name of the person whose rights it has.")
        parser.add_argument("--name", required=True, help="What it is for, so that it can be told apart and ended.")
        parser.add_argument("--workspace", metavar="SLUG")
        parser.add_argument("--days", type=_days, metavar="D", help="How long it lives; without it, until it is ended.")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["user"], is_active=True).first()
        if user is None:
            raise choosing.refusal(f"There is no active user {options['user']!r}.")
        workspace = choosing.workspace(options["workspace"])
        if not selectors.visible_workspaces(user).filter(pk=workspace.pk).exists():
            raise choosing.refusal(f"{user.username} is not a member of workspace {workspace.slug}.")
        now = timezone.now()
        lifetime = timedelta(days=options["days"]) if options["days"] else None
        token, secret = tokens.issue(user, workspace, name=options["name"], now=now, lifetime=lifetime)
        facts = {"for": user.username, "name": token.name, "days": options["days"]}
        auditing.record("make_api_token", f"token {token.prefix}…", workspace, now=now, facts=facts)
        self.stdout.write(secret)
        until = f"until {token.expires_at:%Y-%m-%d %H:%M} UTC" if token.expires_at else "until it is ended"
        self.stderr.write(f"Keep it now; it is not shown again. It reads workspace {workspace.slug} {until}.")


def _days(text: str) -> int:
    days = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    if not 1 <= days <= 3650:
        raise ArgumentTypeError(f"{text!r} is no number of days; give 1 to 3650.")
    return days
