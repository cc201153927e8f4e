"""A batch with a mark wherever content, a provider's words, its job ids or its links are kept: so a test can see
whether any of it is shown."""

from __future__ import annotations

from batches.models import Batch, BatchItem, DocumentVersion, Job, JobEvent, JobState, Submission, SubmissionOutcome
from tests.factories import NOW, make_job, make_saved_job, make_submission
from tests.web.stored import store_pdf

HTML, ROW, WORDS, CELL, JOB_ID = (
    "mark-of-the-html",
    "mark-of-the-row",
    "mark-of-the-words",
    "mark-of-a-cell",
    "pdf_markofajob12345",
)
#: What no role without `view_content` may ever be sent.
MARKS = (HTML, ROW, WORDS, CELL, JOB_ID)


def marked_jobs(batch: Batch) -> tuple[Job, Job]:
    """A saved document and one that failed at the provider, which said why."""
    saved: Job = make_saved_job(batch=batch)
    store_pdf(saved, b"%PDF-1.7 " + HTML.encode())
    said = f'There is no "{WORDS}".'
    failed = make_job(batch=batch, state=JobState.FAILED, failure_class="render_failed", failure_words=said)
    ended = {"outcome": SubmissionOutcome.RENDER_FAILED, "in_doubt": False, "closed_at": NOW, "accepted_at": NOW}
    make_submission(job=failed, provider_job_id=f"{JOB_ID}-f", **ended)
    result = {"warnings": [WORDS], "url": f"https://provider.example/{HTML}"}
    Submission.objects.filter(job=saved).update(provider_job_id=f"{JOB_ID}-s", result=result)
    for job, state in ((saved, JobState.SAVED), (failed, JobState.FAILED)):
        JobEvent.objects.create(job=job, at=NOW, from_state="accepted", to_state=state, reason="read", words=WORDS)
    text = f"<p>{HTML}</p>".encode()
    DocumentVersion.objects.update(input_inline=text, input_bytes=len(text))
    BatchItem.objects.update(original_row={"id": "A", "note": ROW})
    quoted = {"code": "worth_a_look", "message": CELL, "fix": CELL, "rows": [0], "places": []}
    batch.report = {"summary": {"new": 2}, "warnings": [quoted], "left_out": 1, "errors": [quoted]}
    batch.save()
    return saved, failed
