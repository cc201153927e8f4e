"""The words and colours that people see: one table per idea, pure. Queries are `selectors.py`, markup is templates.

A colour is a name of `static/batches/tokens.css` (`saved`, `moving`, `waiting`, `held`, `failed`, `stopped`);
it never stands alone, a word always stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.conf import settings
from django.db import models

from batches.models import (
    AccountHealth,
    ExportState,
    FailureClass,
    HoldReason,
    ItemResult,
    JobState,
    Verb,
)


class Group(models.TextChoices):
    """The five counters that add up to the total (docs/architecture.md, "Counters"); every item is in exactly one."""

    SAVED = "saved", "Saved"
    IN_PROGRESS = "in_progress", "In progress"
    HELD = "held", "Held"
    FAILED = "failed", "Failed"
    CANCELLED = "cancelled", "Cancelled"


class BatchState(models.TextChoices):
    RUNNING = "running", "Running"
    PAUSED = "paused", "Paused"
    HELD = "held", "Held"
    COMPLETE = "complete", "Complete"
    PARTIALLY_COMPLETE = "partially_complete", "Partly complete"
    FAILED = "failed", "Failed"
    CANCELLED = "cancelled", "Cancelled"


#: States in which nothing moves any more by itself.
ENDED_STATES = frozenset({BatchState.COMPLETE, BatchState.PARTIALLY_COMPLETE, BatchState.FAILED, BatchState.CANCELLED})


@dataclass(frozen=True)
class Badge:
    """A word, its colour and one sentence that explains it."""

    label: str
    colour: str
    meaning: str


GROUP_BADGES: Mapping[str, Badge] = {
    Group.SAVED: Badge("Saved", "saved", "The PDF is in our storage and passed the checks."),
    Group.IN_PROGRESS: Badge("In progress", "moving", "Waiting for its turn, at the provider, or being fetched."),
    Group.HELD: Badge("Held", "held", "Not sent yet; it waits for the account or the batch to go on."),
    Group.FAILED: Badge("Failed", "failed", "Will not move by itself; each has a reason and what to do."),
    Group.CANCELLED: Badge("Cancelled", "stopped", "Nothing will be done."),
}

JOB_BADGES: Mapping[str, Badge] = {
    JobState.PENDING: Badge("Waiting", "waiting", "It waits for its turn to be sent."),
    JobState.SUBMITTING: Badge("Submitting", "moving", "Being handed to the provider."),
    JobState.ACCEPTED: Badge("Rendering", "moving", "The provider accepted it and works on it."),
    JobState.RENDERED: Badge("Fetching", "moving", "Finished at the provider; we fetch and check the file."),
    JobState.SAVED: GROUP_BADGES[Group.SAVED],
    JobState.FAILED: Badge("Failed", "failed", "It did not work out; the reason says why."),
    JobState.UNKNOWN: Badge("Not known if accepted", "failed", "We cannot tell whether the provider accepted it."),
    JobState.DEADLINE_EXCEEDED: Badge(
        "Deadline passed", "failed", "We stopped waiting and look further apart; a late result is still saved."
    ),
    JobState.EXPIRED: Badge(
        "Expired at the provider", "failed", "Rendered, but neither the provider nor we have the file."
    ),
    JobState.CANCELLED: GROUP_BADGES[Group.CANCELLED],
}

BATCH_BADGES: Mapping[str, Badge] = {
    BatchState.RUNNING: Badge("Running", "moving", "Documents are on their way."),
    BatchState.PAUSED: Badge("Paused", "held", "A person or its own rule paused it; nothing new is sent."),
    BatchState.HELD: Badge("Held", "held", "Nothing is sent until the account goes on."),
    BatchState.COMPLETE: Badge("Complete", "saved", "Every document is saved."),
    BatchState.PARTIALLY_COMPLETE: Badge("Partly complete", "failed", "It ended; some documents are not saved."),
    BatchState.FAILED: Badge("Failed", "failed", "It ended and no document was saved."),
    BatchState.CANCELLED: Badge("Cancelled", "stopped", "It was stopped."),
}

ACCOUNT_BADGES: Mapping[str, Badge] = {
    AccountHealth.OPEN: Badge("Open", "saved", "Documents are sent at its pace."),
    AccountHealth.HELD: Badge("Held", "held", "Nothing new is sent; what the provider has is still saved."),
    "trial": Badge("On trial", "moving", "One document at a time, until one is accepted."),
    "paused": Badge("Asked to wait", "waiting", "The provider asked for a pause; it goes on by itself."),
    "archived": Badge("Archived", "stopped", "No batch can be started on it any more."),
}

#: What a webhook event did, by the word that an address has for it.
EVENT_BADGES: Mapping[str, Badge] = {
    "woke": Badge("Woke a document", "saved", "The document was awaited, and was read at once."),
    "late": Badge("Too late", "stopped", "The document was past that already: found by polling, or told of before."),
    "unmatched": Badge(
        "No document known",
        "held",
        "No document of this account has that provider job. It is matched by itself should the job become known; else "
        "the same key is used elsewhere, or somebody sent a document past this site.",
    ),
    "other": Badge("Names no document", "stopped", "It is about the account, or nothing was awaited when it came."),
    "waiting": Badge("Not looked at yet", "waiting", "Stored; a worker or the sweep looks at it within a minute."),
}

#: How a bulk action stands, and what became of each of its documents.
ACTION_BADGES: Mapping[str, Badge] = {
    "planned": Badge("Planned", "waiting", "Nothing is done before a person confirms it."),
    "running": Badge("Running", "moving", "The workers carry it out; this page may be closed."),
    "finished": Badge("Finished", "saved", "Each of its documents has a result."),
    "aborted": Badge("Aborted", "stopped", "A person ended it; what was done stays done."),
}
RESULT_BADGES: Mapping[str, Badge] = {
    ItemResult.WAITING: Badge("Waiting", "waiting", "Its turn comes."),
    ItemResult.DONE: Badge("Done", "saved", "The verb was applied to it."),
    ItemResult.SKIPPED: Badge("Skipped", "held", "It could not be applied to it; the reason stands beside it."),
    ItemResult.FAILED: Badge("Failed", "failed", "A fault of our own; the others went on."),
    ItemResult.ABORTED: Badge("Not done", "stopped", "The action was aborted before its turn."),
}

#: How an upload stands, in the list of drafts.
DRAFT_BADGES: Mapping[str, Badge] = {
    "open": Badge("Not checked", "waiting", "Somebody chooses how it is read, then it is checked."),
    "checking": Badge("Checking", "moving", "A worker reads the whole file."),
    "ready": Badge("Ready to start", "waiting", "It was checked; nothing is sent before a person starts it."),
    "wrong": Badge("To be corrected", "held", "The check found rows that cannot be used as they are."),
    "starting": Badge("Starting", "moving", "A worker makes the batch."),
    "started": Badge("Started", "saved", "It became a batch, or replaced rows of one."),
    "discarded": Badge("Discarded", "stopped", "Nothing was sent, and the upload is gone."),
}

#: How the parts of an installation do, on its health page.
VITAL_BADGES: Mapping[str, Badge] = {
    "alive": Badge("Alive", "saved", "It was seen at work within its lease."),
    "lost": Badge("Lease ran out", "held", "Whoever was at work here was not seen for longer than its lease."),
    "idle": Badge("Idle", "stopped", "Nobody is at work here."),
    "late": Badge("Late", "failed", "It should have run by now."),
}
#: Of a document that a plan would act on.
PLANNED_BADGE = Badge("Would be done", "waiting", "It stands so that the verb applies to it.")
NEEDS_PERSON_BADGE = Badge("Needs a person", "failed", "A document of it failed while the others go on.")
FINAL_BADGE = Badge("Final", "stopped", "It was handed out: a new version needs a right of its own.")
STALE_BADGE = Badge("Stale", "held", "Other content was offered for it since, and not taken.")


def held_badge(words: str) -> Badge:
    """What a batch is held by, in words of its own."""
    return Badge(words.capitalize(), "held", "Nothing new of it is sent until somebody acts.")


def second_badge(state: str, *, is_paused: bool, is_cancelled: bool) -> Badge | None:
    """What else is so of a batch that has not ended: its state says what moves, this that nothing new is sent."""
    if state in ENDED_STATES or state == BatchState.PAUSED:
        return None
    if is_cancelled:
        meaning = "What was not sent is given up; what the provider has is still saved."
        return Badge("Cancelled", "stopped", meaning)
    return BATCH_BADGES[BatchState.PAUSED] if is_paused else None


#: What a person can do about each failure class: the verbs that lead out of it with their prices, in words that are
#: true whatever the provider. Which of them one document allows at this moment is said by `engine/verbs.py`.
WHAT_TO_DO: Mapping[str, str] = {
    FailureClass.TRANSIENT: "Check that the service is well, then Retry (bills 0 or 1).",
    FailureClass.RATE_LIMITED: (
        "The service refused the pace. Ask it for a higher limit or slow the account down, then Retry (bills 0 or 1)."
    ),
    FailureClass.INVALID_INPUT: (
        "The service refuses this content as it is, so it is never sent again. Correct it: Regenerate (bills 1) takes "
        "the corrected content of one document, “Upload corrected rows” on the page of its batch that of many."
    ),
    FailureClass.AUTH: "The service refused our key. Correct the account's key, then Retry (bills 0 or 1).",
    FailureClass.INSUFFICIENT_CREDIT: "The account has no credit left. Top it up, then Retry (bills 0 or 1).",
    FailureClass.IDEMPOTENCY_CONFLICT: (
        "The service knows our key with other content, which must not happen, so nothing more is sent under it. "
        "Reconcile (free) says what is known. Regenerate (bills 1) uses another key; this version may also bill."
    ),
    FailureClass.RENDER_FAILED: (
        "The service could not render it. Retry (bills 0 or 1) once it has said twice that it was not billed; "
        "Check again (free) asks it. Where the content is the reason, correct it and Regenerate (bills 1)."
    ),
    FailureClass.DEADLINE_EXCEEDED: (
        "It is still looked at now and then, and saved by itself if it finishes while the provider keeps it. "
        "Check again (free) looks at once. The provider accepted it and may bill it; Regenerate (bills 1) comes on top."
    ),
    FailureClass.JOB_NOT_FOUND: (
        "The service does not know the job that it accepted; it is asked again now and then. Check that the account's "
        "key belongs to the same customer, then Check again (free) or Reconcile (free). It may be billed; "
        "Regenerate (bills 1) comes on top."
    ),
    FailureClass.EXPIRED: (
        "It was rendered, but the file was gone before we had it. Fetch again (free) asks for a fresh link; "
        "if that is gone as well, Regenerate (bills 1) renders it once more."
    ),
    FailureClass.BAD_OUTPUT: (
        "What the service delivered was no whole PDF. Fetch again (free) loads it once more; "
        "if it stays broken, Regenerate (bills 1) renders it once more."
    ),
    FailureClass.UNKNOWN_OUTCOME: (
        "Reconcile (free) collects what is known of it and asks the provider where that is possible. While it "
        "still recognises a repeat, Retry (bills 0 or 1) sends the very same request again. "
        "Regenerate (bills 1) is the last resort: this version may also bill."
    ),
    FailureClass.INTERNAL: (
        "Our own software failed here; the log has the details. Report it. After the fix Retry (bills 0 or 1), or "
        "Reconcile (free) where something of it may be at the provider."
    ),
}

#: What a failure class is called.
FAILURE_LABELS: Mapping[str, str] = dict(FailureClass.choices)

#: The code, of ours, of what was saved once: the store lost its file, and the provider no longer has it.
OBJECT_LOST = "object_lost"
_LOST_WHAT_TO_DO = (
    "It was saved, and its file was lost from our store since. Put the file back from a backup under the same key; "
    "`manage.py check_store` finds it there and the document is saved again. Where there is no backup: "
    "Regenerate (bills 1)."
)


def failure_label(failure_class: str, code: str) -> str:
    """What it is called that a job failed so; empty where it did not."""
    return "Stored file lost" if code == OBJECT_LOST else FAILURE_LABELS.get(failure_class, "")


def what_to_do_harmless(price: str) -> str:
    """What to do about a document that may have been accepted, at an account where a repeat does no harm. `price` is
    that of Retry there."""
    return (
        f"A repeat makes no second document at this account: Retry ({price}) sends it again, once the service is back."
    )


def what_to_do(failure_class: str, code: str, repeat_price: str = "") -> str:
    """What a person can do about it; empty where there is nothing. `repeat_price` is what Retry costs at an account
    where nothing is billed twice."""
    if repeat_price and failure_class == FailureClass.UNKNOWN_OUTCOME:
        return what_to_do_harmless(repeat_price)
    return _LOST_WHAT_TO_DO if code == OBJECT_LOST else WHAT_TO_DO.get(failure_class, "")


#: The verb that is most often the way out of a failure class. A class that is left out needs other content first.
_SUGGESTED: Mapping[str, Verb] = {
    FailureClass.TRANSIENT: Verb.RETRY,
    FailureClass.RATE_LIMITED: Verb.RETRY,
    FailureClass.AUTH: Verb.RETRY,
    FailureClass.INSUFFICIENT_CREDIT: Verb.RETRY,
    FailureClass.IDEMPOTENCY_CONFLICT: Verb.RECONCILE,
    FailureClass.RENDER_FAILED: Verb.RETRY,
    FailureClass.DEADLINE_EXCEEDED: Verb.CHECK_AGAIN,
    FailureClass.JOB_NOT_FOUND: Verb.CHECK_AGAIN,
    FailureClass.EXPIRED: Verb.FETCH_AGAIN,
    FailureClass.BAD_OUTPUT: Verb.FETCH_AGAIN,
    FailureClass.UNKNOWN_OUTCOME: Verb.RECONCILE,
    FailureClass.INTERNAL: Verb.RETRY,
}
#: What a verb does, for somebody who has never pressed it.
VERB_MEANINGS: Mapping[Verb, str] = {
    Verb.CHECK_AGAIN: "Asks the provider how it stands, once and at once.",
    Verb.FETCH_AGAIN: "Fetches the file of what is finished at the provider, with a fresh link where there is one.",
    Verb.RETRY: (
        "Sends the same version again: under the same key while the provider recognises it, under another one only "
        "where nothing can have been billed."
    ),
    Verb.REGENERATE: "Makes a new version, of the same or of corrected content. The files of before stay.",
    Verb.RECONCILE: "Collects what is known of it, asks the provider where that is possible, and says what follows.",
    Verb.CANCEL: "Gives up what was not sent yet. What the provider has is still saved.",
    Verb.DISMISS: "Leaves it failed, and takes it from the list of what needs a person.",
    Verb.REOPEN: "Takes a dismissal or a cancellation back.",
}
#: What was done, by its verb: "312 retried".
VERBS_DONE: Mapping[Verb, str] = {
    Verb.CHECK_AGAIN: "checked again",
    Verb.FETCH_AGAIN: "fetched again",
    Verb.RETRY: "retried",
    Verb.REGENERATE: "regenerated",
    Verb.RECONCILE: "reconciled",
    Verb.CANCEL: "cancelled",
    Verb.DISMISS: "dismissed",
    Verb.REOPEN: "reopened",
}
#: What a button says that applies a verb to several: "Retry these 312".
_VERB_THESE: Mapping[Verb, str] = {
    Verb.CHECK_AGAIN: "Check {these} again",
    Verb.FETCH_AGAIN: "Fetch {these} again",
}


def suggested_verb(failure_class: str, code: str) -> Verb | None:
    """What to try first; None where other content is needed, or a file has to be put back."""
    return None if code == OBJECT_LOST else _SUGGESTED.get(failure_class)


def classes_helped_by(verb: Verb) -> list[str]:
    """The failure classes out of which this verb is suggested."""
    return [failure_class for failure_class, suggested in _SUGGESTED.items() if suggested is verb]


def helping_verbs() -> list[Verb]:
    """The verbs that are suggested for something, in their own order."""
    return [verb for verb in Verb if verb in _SUGGESTED.values()]


def verb_these(verb: Verb, count: int) -> str:
    """`Retry these 312`"""
    these = f"these {count:,}" if count != 1 else "this one"
    return _VERB_THESE.get(verb, f"{verb.label} {{these}}").format(these=these)


#: Why a request brought nothing, by the class of `providers/errors.py` that an exchange keeps.
ERROR_WORDS: Mapping[str, str] = {
    "NotSent": "nothing was sent",
    "OutcomeUnknown": "not known if it arrived",
    "AnswerLost": "no answer came back",
    "ServerFault": "the service failed",
    "ContractBroken": "the answer makes no sense",
    "InvalidInput": "the content was refused",
    "AccountRefused": "the account was refused",
    "Unauthorized": "the key was refused",
    "InsufficientCredit": "no credit",
    "RateLimited": "too fast",
    "TooManyAtOnce": "too many at once, or not allowed",
    "KeyConflict": "the key is known with other content",
    "StrangeRefusal": "refused, and not in the words of the service",
    "NotFound": "not known there",
    "TargetRefused": "we may not go to that address",
    "TooLarge": "the answer is too large",
}

#: Why a job moved, by the reason that its event keeps; shown where the event has no words of its own.
EVENT_WORDS: Mapping[str, str] = {
    "intent_committed": "About to be sent.",
    "accepted": "The provider gave it a job id.",
    "not_sent_anew": "An earlier submission of it may have been accepted, so it gets no other key.",
    "never_left": "Nothing had left yet, so it waits for its turn again.",
    "id_was_recorded": "Its job id was recorded meanwhile.",
    "id_arrived_late": "Its job id arrived late.",
    "provider_job_finished": "The provider has finished it.",
    "provider_job_failed": "The provider could not render it.",
    "start_refused": "The provider has its draft and refused to render it; nothing was billed for it.",
    "stored": "The file is whole and in our storage.",
    "object_lost": "Its stored file is missing or damaged.",
    "object_back": "Its stored file is back and whole.",
    "stale_write_refused": "Another worker had taken it over, so this answer changed nothing.",
    "revived_by_upload": "Taken up again by an upload.",
    "revived_by_regenerate": "Taken up again, as the content that a person asked for.",
    "regenerated": "A newer version of the document was made.",
    "nobody_needs_it": "No batch needs it any more, so it is not sent.",
    "waits_for_retry_budget": "Many are being repeated just now, so it waits for its turn to be repeated.",
    "resend_window_closed": "The provider may no longer recognise a repeat, so it is not sent again by itself.",
    "tries_used": "Its tries are used up, and no answer was learned.",
    "second_id_for_one_key": "The provider gave another job id for the same key.",
    "surplus": "The provider rendered it a second time; that result is not used.",
    "outcome_not_stored": "What came of it could not be stored.",
    "answer_not_judged": "The provider's answer could not be judged.",
    "not_finished_after_all": "The provider says that it is not finished after all.",
    "parked": "A fault of our own stopped it here.",
    "read_again": "The provider was asked again.",
    "submit_requeue": "It was not taken, so it waits for its turn again.",
    "submit_resend": "It is sent again with the same key.",
    "submit_anew": "It was refused under this key, so it waits to be sent under another one.",
    "render_again": "The provider says twice that it could not render it and did not bill it; it is sent once more.",
    "deadline_exceeded": "We stopped waiting; we look further apart, and a late result is still saved.",
    "finished_late": "The provider has finished it after all.",
    "failed_late": "Read twice as failed and not billed, after its deadline; it may be sent once more.",
    "finished_meanwhile": "The provider has finished an earlier submission of it after all.",
    "found_by_look_up": "The provider's look-up names the job that its submission made.",
    "read_by_reconcile": "The provider says that it has it.",
    "never_arrived": "The provider's look-up knows nothing of it, so it never arrived.",
    "found_in_store": "Its whole PDF lay in our store already.",
    "adopted": "A person named the provider job that it belongs to.",
    "not_rescued_again": "It is said to be finished, and could not be fetched; it is not tried again by itself.",
}

#: What a person can do about a held account.
HOLD_WHAT_TO_DO: Mapping[str, str] = {
    HoldReason.AUTH: "Correct the account's key, then resume the account; its waiting documents go on.",
    HoldReason.CREDIT: (
        "Top the account up at the provider. When a higher balance is seen, one document tries it and the others "
        "follow; where none is seen, resume the account."
    ),
    HoldReason.UNREACHABLE: "It is tried again by itself and goes on; look at the network or the service if it lasts.",
    HoldReason.PERSON: "Resume the account when it may go on.",
}


#: Said of an account whose submissions did not get through while its reads did.
ON_TRIAL = (
    "The service answers, but the last submissions did not get through. One document at a time tries; nothing else is "
    "sent before one is accepted."
)


#: What a page and a command say once somebody has looked at the sample of a batch.
RELEASED = "Released: the rest of it is sent."
#: And of corrected rows that change nothing.
NOTHING_TO_REPLACE = "There is nothing to replace: no failed row of the file has other content than before."


#: Instead of what a provider said, to whoever may not see content.
WITHHELD = "What the provider said may quote the document; your role does not show it."


def resume_command(public_id: str) -> str:
    """What a person types to let a paused batch go on."""
    return f"{settings.COMMAND_LINE} batch {public_id} --resume"


def sentence(text: str) -> str:
    """`text` with a full stop where it ends without one, so that what follows does not run into it."""
    text = text.strip()
    return text if not text or text[-1] in ".!?…" else f"{text}."


def masked(identifier: str) -> str:
    """A provider job id without what makes it a key: at RelayPDF the id alone fetches the file for 24 hours."""
    if len(identifier) <= 8:
        return "•" * len(identifier)
    return f"{identifier[:4]}{'•' * 6}{identifier[-2:]}"


# --- exports --------------------------------------------------------------------------------------------------------

EXPORT_BADGES: Mapping[str, Badge] = {
    ExportState.QUEUED: Badge("Queued", "waiting", "A worker takes it in its turn. You may close this page."),
    ExportState.BUILDING: Badge("Building", "moving", "A worker writes its files. You may close this page."),
    ExportState.READY: Badge("Ready", "saved", "Its files can be downloaded until it expires, as often as you like."),
    ExportState.FAILED: Badge("Failed", "failed", "It could not be built; the reason stands beside it."),
    ExportState.EXPIRED: Badge("Expired", "stopped", "Its files were deleted. Build it again if you need it."),
    ExportState.CANCELLED: Badge("Cancelled", "stopped", "Nothing was built."),
}
OUTDATED_BADGE = Badge("Outdated", "held", "Documents of it were saved or made anew since it was built.")
