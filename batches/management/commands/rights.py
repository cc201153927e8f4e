"""`manage.py rights`: the table of rights as docs/rights.md holds it; nobody writes it by hand."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from batches import rights
from batches.models import Role


def table() -> str:
    """The table in Markdown, one row a right."""
    roles = " | ".join(role.label for role in Role)
    lines = [f"| Action | Right | Permission | Bills | {roles} |", "|---|---|---|---|" + "---|" * len(Role)]
    lines += [
        f"| {row.words} | `{row.name}` | `batches.{row.codename}` | {row.bills} | "
        + " | ".join("yes" if row.name in rights.ROLE_RIGHTS[role] else "–" for role in Role)
        + " |"
        for row in rights.TABLE
    ]
    return "\n".join(lines)


class Command(BaseCommand):
    help = "Print who may do what, as the table in docs/rights.md."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(table())
