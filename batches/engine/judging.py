"""What the result of one job's step comes to: one change. The rules of each kind are its own module's."""

from __future__ import annotations

from batches.engine import answers, breaker, changes, cutoff, drafting, fetched, polling, steps
from batches.engine.changes import Change
from batches.engine.polling import PollContext
from batches.engine.polls import Polls
from batches.providers import errors
from batches.providers.base import Accepted, JobPhase
from batches.storage import StoreError


def judge(result: steps.JobResult, context: PollContext, polls: Polls) -> Change:
    """The change to write. Of a result that only leads to the next step there is none to ask for."""
    claim, account, now, rng = result.claim, context.account, context.now, context.rng
    match result:
        case steps.PrepareFailed(error=error):
            return answers.judge_unpreparable(claim, error, now=now, rng=rng)
        case steps.WindowClosed():
            return answers.judge_window_closed(claim, account, now=now, counted=True)
        case steps.Answered(sending=sending, answer=answer, at=at):
            is_draft = isinstance(answer, Accepted) and answer.is_draft
            return polls.timed(answers.judge_answer(sending, answer, account, now=at), account, is_draft=is_draft)
        case steps.SendFailed(sending=sending, error=error, at=at):
            return answers.judge_error(sending, error, account, now=at, rng=rng)
        case steps.StatusRead(status=status) if status.phase is JobPhase.DRAFT and drafting.may_start(
            claim, status, context
        ):
            return drafting.starting(claim, status, context)
        case steps.StatusRead(status=status):
            change = polling.judge_status(claim, status, context)
            if change.after is not None:
                polls.saw_end(change.after, now)
            return change
        case steps.StatusFailed(error=error):
            return polling.judge_error(claim, error, context)
        case steps.Started(answer=answer):
            return drafting.judge_started(claim, answer, context)
        case steps.StartFailed(error=StoreError() as error):
            return drafting.never_left(answers.judge_unpreparable(claim, error, now=now, rng=rng))
        case steps.StartFailed(error=errors.ProviderError() as error):
            return drafting.judge_start_error(claim, error, context)
        case steps.Fetched(collected=collected):
            return breaker.with_download(fetched.judge_collected(claim, collected, now=now), account)
        case steps.FetchMissed(missed=missed):
            tries_in_vain = cutoff.tries_in_vain(claim, missed, now=now)
            change = fetched.judge_not_collected(claim, missed, context, tries_in_vain=tries_in_vain)
            return breaker.with_download(change, account, missed.words)
        case steps.Crashed(words=words):
            return changes.parking(claim, words, now=now)
    raise TypeError(f"no change comes of {type(result).__name__}")
