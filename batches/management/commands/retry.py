"""`manage.py retry (--batch ID | --document BUSINESS_ID …)`: send the same version once more; bills 0 or 1 each."""

from __future__ import annotations

from batches.management.verbs import VerbCommand
from batches.models import Verb


class Command(VerbCommand):
    verb = Verb.RETRY
    help = "Send the same version once more, where nothing was billed or the key may be repeated."
