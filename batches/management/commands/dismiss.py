"""`manage.py dismiss (--batch ID | --document BUSINESS_ID …)`: these failed documents need nobody any more; free."""

from __future__ import annotations

from batches.management.verbs import VerbCommand
from batches.models import Verb


class Command(VerbCommand):
    verb = Verb.DISMISS
    help = "Leave failed documents as they are, with a note; they are still counted as failed."
