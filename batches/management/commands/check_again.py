"""`manage.py check_again (--batch ID | --document BUSINESS_ID …)`: read their status now; free."""

from __future__ import annotations

from batches.management.verbs import VerbCommand
from batches.models import Verb


class Command(VerbCommand):
    verb = Verb.CHECK_AGAIN
    help = "Read the status of documents at the provider now, also of those that were given up on; free."
