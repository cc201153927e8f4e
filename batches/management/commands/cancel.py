"""`manage.py cancel (--batch ID | --document BUSINESS_ID …)`: never send these documents; free."""

from __future__ import annotations

from batches.management.verbs import VerbCommand
from batches.models import Verb


class Command(VerbCommand):
    verb = Verb.CANCEL
    help = "Never send these documents; what may have left is resolved first. A whole batch: `batch ID --cancel`."
