"""When each accepted job that one pump holds is read next, and what its account's durations have taught this pump.

Only memory and one small query now and then. The rows' `due_at` is the plan that survives a pump; what is timed anew
here, because more is known by now, is handed out by `unwritten` when the pump ends.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from batches.conf import EngineConf
from batches.engine import deadlines, drafting, durations, expectations, polling, retries, wakeups
from batches.engine.changes import Change, Follow, FollowStep
from batches.engine.claims import Claim
from batches.engine.expectations import PollPlan, Sample
from batches.engine.sentinels import Sentinels
from batches.models import JobState, LearnedDeadline, ProviderAccount
from batches.models.accounts import sound_limit

#: A plan whose first read moved by more than this share is worth timing the waiting jobs anew.
MOVED_SHARE = 0.1
#: What an event tells of happened this shortly before it, as far as learning goes.
WOKEN_WITHIN_SECONDS = 1.0
#: Events that came while their job was being submitted or read.
EARLY_MOST = 500


class Learned:
    """The newest durations of one account by submission, from the rows and from what this pump saw since."""

    def __init__(self) -> None:
        self.last_row = 0
        self.read_at: datetime | None = None
        self.woken = False
        self.deadlines: dict[int | None, deadlines.Suggestion] = {}
        self.deadlines_read_at: datetime | None = None
        self._samples: dict[int, Sample] = {}
        self._plans: dict[int | None, PollPlan | None] = {}
        self._planned_at = 0
        self._seen = 0
        self.sentinels = Sentinels()

    def keep_only(self, submission_ids: Collection[int]) -> None:
        """What was learned from all others no longer holds."""
        self._samples = {known: sample for known, sample in self._samples.items() if known in submission_ids}
        self.plan_anew()

    def add(self, submission_id: int, sample: Sample) -> None:
        if self._samples.pop(submission_id, None) is None:
            self._seen += 1
        self._samples[submission_id] = sample
        while len(self._samples) > expectations.SAMPLES_MOST:
            del self._samples[next(iter(self._samples))]

    def is_news(self) -> bool:
        """Enough came since the last plan to make another: each of the first few, later a share of all."""
        known = len(self._samples)
        return self._seen - self._planned_at >= max(1, known // 8 if known < 100 else known // 2)

    def plan_anew(self) -> None:
        self._planned_at = self._seen
        self._plans.clear()

    def plan(self, size_class: int) -> PollPlan | None:
        """The plan of the size class, or of the whole account while too few of the class are known."""
        if size_class not in self._plans:
            mine = [sample for sample in self._samples.values() if sample.size_class == size_class]
            if len(mine) >= expectations.SAMPLES_LEAST_IN_CLASS:
                self._plans[size_class] = expectations.plan(mine, woken=self.woken)
            else:
                if None not in self._plans:
                    self._plans[None] = expectations.plan(list(self._samples.values()), woken=self.woken)
                self._plans[size_class] = self._plans[None]
        return self._plans[size_class]


class Polls:
    """The status reads to come of one pump."""

    def __init__(self, conf: EngineConf, rng: random.Random) -> None:
        self._conf = conf
        self._rng = rng
        self._heap: list[tuple[datetime, int, int]] = []
        self._order = itertools.count()
        self._waiting: dict[int, tuple[datetime, Claim]] = {}
        self._pioneers: dict[int, set[int]] = defaultdict(set)
        self._patient: set[int] = set()  # not scheduled yet, and timed before anything was known
        self._early: dict[tuple[int, str], datetime] = {}
        self._learned: dict[int, Learned] = defaultdict(Learned)

    def schedule(self, claim: Claim, due_at: datetime) -> None:
        if self._early and claim.submission is not None and claim.submission.provider_job_id is not None:
            told_at = self._early.pop((claim.account_id, claim.submission.provider_job_id), due_at)
            due_at = min(due_at, told_at)
        if claim.job_id in self._patient:
            self._patient.discard(claim.job_id)
            plan, known = self.plan(claim), claim.submission
            if plan is not None and known is not None and known.accepted_at is not None:
                due_at = min(due_at, _first_read_at(plan, known.accepted_at, self._rng))
        self._waiting[claim.job_id] = (due_at, claim)
        heapq.heappush(self._heap, (due_at, next(self._order), claim.job_id))

    def wake(self, job_id: int, now: datetime) -> bool:
        """Something happened to it: read it now. False when it does not wait for a read here."""
        if job_id not in self._waiting:
            return False
        claim = self._waiting[job_id][1]
        # An event comes when something happens: what happened lies between just before it and the read.
        before = now - timedelta(seconds=WOKEN_WITHIN_SECONDS)
        if claim.unfinished_at is None or claim.unfinished_at < before:
            claim = replace(claim, unfinished_at=before)
        self.schedule(claim, now)
        return True

    def wake_all(self, told: Sequence[tuple[int, str]], now: datetime) -> None:
        """Events named these jobs, by account and provider job id. What is not waiting yet is read as soon as it is.

        Without an id, those of the account are read that are accepted the longest.
        """
        if not told:
            return
        waiting = {
            (claim.account_id, claim.submission.provider_job_id): job_id
            for job_id, (_due_at, claim) in self._waiting.items()
            if claim.submission is not None
        }
        for key in told:
            if not key[1]:
                self._wake_oldest(key[0], now)
            elif key in waiting:
                self.wake(waiting[key], now)
            else:
                self._early[key] = now
        while len(self._early) > EARLY_MOST:
            del self._early[next(iter(self._early))]

    def _wake_oldest(self, account_id: int, now: datetime) -> None:
        mine = [
            (claim.submission.accepted_at or now, job_id)
            for job_id, (_due_at, claim) in self._waiting.items()
            if claim.account_id == account_id and claim.submission is not None
        ]
        for _accepted_at, job_id in sorted(mine)[: wakeups.UNNAMED_WAKES_MOST]:
            self.wake(job_id, now)

    def forget(self, job_id: int) -> None:
        """The pump no longer holds it."""
        self._waiting.pop(job_id, None)
        self._patient.discard(job_id)
        for pioneers in self._pioneers.values():
            pioneers.discard(job_id)
        for learned in self._learned.values():
            learned.sentinels.forget(job_id)

    def next_at(self) -> datetime | None:
        """The earliest instant at which something is due; it may turn out to be stale."""
        return self._heap[0][0] if self._heap else None

    def due(self, until: datetime) -> dict[int, list[Claim]]:
        """Take what is to be read by `until`, by account."""
        due: dict[int, list[Claim]] = defaultdict(list)
        while self._heap and self._heap[0][0] <= until:
            due_at, _order, job_id = heapq.heappop(self._heap)
            waiting = self._waiting.get(job_id)
            if waiting is not None and waiting[0] == due_at:  # else it was timed anew since
                del self._waiting[job_id]
                due[waiting[1].account_id].append(waiting[1])
        return due

    # --- timing ---

    def plan(self, claim: Claim) -> PollPlan | None:
        """When this job is read, where that is known: by what was learned, or earlier where it looks early."""
        learned = self._learned[claim.account_id]
        plan = learned.plan(expectations.size_class(claim.input_bytes))
        return None if plan is None else learned.sentinels.plan(claim.job_id, plan)

    def timed(self, change: Change, account: ProviderAccount, *, is_draft: bool = False) -> Change:
        """A fresh acceptance with the instant of its first status read."""
        after, move = change.after, change.move
        if move is None or after is None or move.to_state is not JobState.ACCEPTED or change.submission_id is None:
            return change
        change = self.with_deadline(change, account)
        if is_draft:
            return change  # read at once, so that it is begun
        after, move = change.after, change.move
        assert after is not None
        assert move is not None
        self._appoint(after, account, change.at)
        due_at = polling.first_due(account, self.plan(after), now=change.at, rng=self._rng)
        if self.plan(after) is None and not self._is_pioneer(after):
            # A few early ones teach the rest; those wait as long as two reads may lie apart at most.
            self._patient.add(after.job_id)
            due_at = change.at + timedelta(
                milliseconds=retries.poll_most_ms(sound_limit(account, "poll_max_ms")) * self._rng.uniform(0.8, 1.2)
            )
        if after.deadline_at is not None:
            due_at = min(due_at, after.deadline_at)
        return replace(
            change,
            move=replace(move, fields={**move.fields, "due_at": due_at}),
            after=replace(after, due_at=due_at),
            follow=Follow(FollowStep.POLL, due_at),
        )

    def _appoint(self, claim: Claim, account: ProviderAccount, now: datetime) -> None:
        """Have it look early, if it is time for one that does. Where webhooks come, they tell of an early end."""
        learned = self._learned[account.pk]
        plan = learned.plan(expectations.size_class(claim.input_bytes))
        if plan is not None and not learned.woken:
            learned.sentinels.appoint(claim.job_id, plan, first_look=account.poll_initial_ms / 1000, now=now)

    def with_deadline(self, change: Change, account: ProviderAccount) -> Change:
        """An acceptance with the deadline that earlier durations suggest, where the account wants it.

        The job's event says why.
        """
        after, move = change.after, change.move
        if account.learned_deadline != LearnedDeadline.ON or after is None or move is None:
            return change
        if "deadline_at" not in move.fields:
            return change  # it has one
        found = deadlines.suggested_for(self._learned[account.pk].deadlines, after.input_bytes)
        if found is None:
            return change
        deadline_at = change.at + timedelta(seconds=found.seconds)
        words = f"{move.words} Learned deadline: {found.words}".strip()
        return replace(
            change,
            move=replace(move, words=words, fields={**move.fields, "deadline_at": deadline_at}),
            after=replace(after, deadline_at=deadline_at),
        )

    def _is_pioneer(self, claim: Claim) -> bool:
        pioneers = self._pioneers[claim.account_id]
        if claim.job_id not in pioneers and len(pioneers) < self._conf.pioneers_most:
            pioneers.add(claim.job_id)
        return claim.job_id in pioneers

    def unwritten(self, now: datetime) -> list[Change]:
        """Jobs whose next read was timed anew in memory alone, or whose start never left, as changes of their rows."""
        return [_unwritten(claim, due_at, now) for due_at, claim in self._waiting.values() if _has_news(claim, due_at)]

    # --- learning ---

    def saw_end(self, claim: Claim, now: datetime) -> None:
        """A job of ours was seen to have succeeded; `claim` is as it stands after that."""
        if claim.submission is None or claim.observed is None:
            return
        learned = self._learned[claim.account_id]
        plan = learned.plan(expectations.size_class(claim.input_bytes))
        learned.add(claim.submission.id, claim.observed)
        recent = plan and learned.sentinels.ended(claim.job_id, claim.submission.id, claim.observed, plan)
        if recent:
            self._learn_anew(claim.account_id, recent, now)
        elif learned.is_news():
            self._replan(claim.account_id, now)

    def _learn_anew(self, account_id: int, submission_ids: Collection[int], now: datetime) -> None:
        """The provider is much faster than it was: what waits for an old end is read now, and a few teach the rest."""
        self._learned[account_id].keep_only(submission_ids)
        self._pioneers[account_id].clear()
        for _due_at, claim in list(self._waiting.values()):
            if claim.account_id == account_id and claim.submission and claim.submission.failed_at is None:
                self.schedule(claim, now)

    def learn_if_due(
        self, now: datetime, account_ids: Sequence[int], *, told: Sequence[int] = (), strict: Sequence[int] = ()
    ) -> None:
        """Read what all pumps have recorded since the last look: one small query per account and few seconds.

        `told` are the accounts that have webhooks, `strict` those that want the learned deadline.
        """
        for account_id in account_ids:
            learned = self._learned[account_id]
            if learned.read_at is not None and now < learned.read_at:
                continue
            learned.read_at = now + timedelta(seconds=self._conf.learn_seconds)
            rows = durations.latest(account_id, after_id=learned.last_row)
            woken = account_id in told and wakeups.prove_reliable(account_id)
            is_new = woken is not learned.woken
            if account_id in strict and (learned.deadlines_read_at is None or now >= learned.deadlines_read_at):
                learned.deadlines_read_at = now + timedelta(seconds=self._conf.deadline_learn_seconds)
                learned.deadlines = deadlines.suggestions(account_id)
            learned.woken = woken
            for row_id, submission_id, sample in rows:
                learned.last_row = row_id
                learned.add(submission_id, sample)
            if rows or is_new:
                self._replan(account_id, now)

    def _replan(self, account_id: int, now: datetime) -> None:
        learned = self._learned[account_id]
        classes = range(len(expectations.SIZE_CLASSES) + 1)
        waiting = [claim for _due_at, claim in self._waiting.values() if claim.account_id == account_id]
        before = {size: learned.plan(size) for size in classes} if waiting else {}
        learned.plan_anew()
        moved = {size for size in before if _has_moved(before[size], learned.plan(size))}
        if moved:
            self._time_anew([claim for claim in waiting if expectations.size_class(claim.input_bytes) in moved], now)

    def _time_anew(self, waiting: Sequence[Claim], now: datetime) -> None:
        """What is known now says better when these are worth a read: later than planned, or sooner."""
        for claim in waiting:
            plan = self.plan(claim)
            known = claim.submission
            if plan is None or known is None or known.accepted_at is None or known.failed_at is not None:
                continue  # the second look at a failure has its own time
            if claim.starts_draft:
                continue  # it waits to be begun, not to end
            accepted_at = known.accepted_at
            due_at = self._waiting[claim.job_id][0]
            planned = _first_read_at(plan, accepted_at, self._rng)
            if planned <= now:
                elapsed = (now - accepted_at).total_seconds()
                step = timedelta(seconds=plan.next_delay(elapsed, self._rng))
                planned = min(due_at, now + step) if claim.poll_count else now
            if claim.deadline_at is not None:
                planned = min(planned, max(claim.deadline_at, now))
            if planned != due_at:
                self.schedule(claim, planned)


def _has_news(claim: Claim, due_at: datetime) -> bool:
    return due_at != claim.due_at or claim.starts_draft


def _unwritten(claim: Claim, due_at: datetime, now: datetime) -> Change:
    follow = Follow(FollowStep.POLL, due_at)
    change = Change(claim=claim, at=now, job_fields={"due_at": due_at}, after=claim, follow=follow)
    return drafting.never_left(change) if claim.starts_draft else change


def _first_read_at(plan: PollPlan, accepted_at: datetime, rng: random.Random) -> datetime:
    return accepted_at + timedelta(seconds=plan.first_delay(rng))


def _has_moved(before: PollPlan | None, after: PollPlan | None) -> bool:
    if before is None or after is None:
        return before is not after
    return abs(after.reads[0] - before.reads[0]) > MOVED_SHARE * before.reads[0]
