"""`manage.py sandbox`: the provider that comes with the installation. See `batches/sandbox/README.md`."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from batches.sandbox import cli


class Command(BaseCommand):
    help = "Run the sandbox: a local service that speaks RelayPDF's HTTP contract and really renders PDFs."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        cli.add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        raise SystemExit(cli.run(argparse.Namespace(**options)))
