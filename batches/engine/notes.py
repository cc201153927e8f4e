"""Notes on a document: appended, never changed. The audit log says who wrote one, not what it says."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from batches.engine import audit
from batches.engine.audit import By
from batches.models import Document, DocumentNote

#: Longer texts belong into a file of their own.
LONGEST = 2000


@transaction.atomic
def write(document: Document, text: str, *, by: By, now: datetime) -> bool:
    """Append it; false where the newest note is the very same by the same person, as a press too many sends it."""
    newest = DocumentNote.objects.filter(document=document).order_by("-id").first()
    if newest is not None and (newest.author_id, newest.text) == (by.actor.pk, text):
        return False
    DocumentNote.objects.create(document=document, at=now, author=by.actor, author_words=by.words[:150], text=text)
    subject = f"document {document.public_id}"
    audit.record("write_note", subject=subject, workspace=document.workspace, by=by, now=now)
    return True
