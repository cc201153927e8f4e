"""`manage.py reopen (--batch ID | --document BUSINESS_ID …)`: take that back; bills 0 or 1 each."""

from __future__ import annotations

from batches.management.verbs import VerbCommand
from batches.models import Verb


class Command(VerbCommand):
    verb = Verb.REOPEN
    help = "Take a dismissal or a cancellation back; what was never sent is sent after all."
