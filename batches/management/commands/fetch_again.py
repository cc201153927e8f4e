"""`manage.py fetch_again (--batch ID | --document BUSINESS_ID …)`: download what is finished; free."""

from __future__ import annotations

from batches.management.verbs import VerbCommand
from batches.models import Verb


class Command(VerbCommand):
    verb = Verb.FETCH_AGAIN
    help = "Download once more what is finished at the provider; free. Nothing is submitted."
