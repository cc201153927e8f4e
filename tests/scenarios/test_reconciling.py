"""Reconciling: evidence with and without a look-up, and never a second bill by it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from batches.engine import applying, audit, reconcile
from batches.engine.reconcile import Verdict
from batches.models import AuditEntry, Exchange, Submission, Verb
from batches.providers import errors
from batches.providers.base import Receipt
from batches.storage import artifact_key
from tests import factories
from tests.engine.simulated import Complete, Refuse, Word
from tests.engine.vendor import pdf
from tests.scenarios.uncertain import (
    ORDER,
    billed,
    item_of,
    job_at_provider,
    reconciled,
    unknown,
    with_look_up,
    words_of,
)
from tests.scenarios.watching import given_up
from tests.scenarios.world import World


class Killed(BaseException):
    """Ends the process where it stands."""


# --- unknown ---


def test_without_any_evidence_it_cannot_be_known_and_nothing_is_changed(world: World) -> None:
    unknown(world, "INV-1")
    world.clock.advance(7200)
    found = reconciled(world, "INV-1")
    assert found.verdict is Verdict.UNKNOWABLE
    assert found.may_adopt
    assert found.candidates == ()
    assert set(found.offers) == {Verb.REGENERATE, Verb.DISMISS}
    assert "no look-up by key" in words_of(found)
    assert "without a second bill is over" in words_of(found)
    assert [each.at for each in found.evidence if each.at] == sorted(each.at for each in found.evidence if each.at)
    assert (world.states(), billed(world)) == ({"INV-1": "unknown"}, 1)


def test_a_webhook_near_it_names_a_candidate_and_proves_nothing(world: World) -> None:
    unknown(world, "INV-1")
    job = job_at_provider(world, "INV-1")
    row = Submission.objects.get()
    factories.make_event(
        account=world.account, at=row.first_sent_at + timedelta(seconds=9), provider_job_id=job.id, outcome="unmatched"
    )
    before = row.first_sent_at - timedelta(hours=1)
    factories.make_event(account=world.account, at=before, provider_job_id="pdf_old", outcome="unmatched")
    other = factories.make_account()
    factories.make_event(account=other, at=row.last_sent_at, provider_job_id="pdf_other", outcome="unmatched")
    found = reconciled(world, "INV-1")
    assert [each.provider_job_id for each in found.candidates] == [job.id]
    assert found.verdict is Verdict.UNKNOWABLE
    assert "1 provider job may be its own" in found.verdict_words
    assert job.id not in words_of(found)
    assert world.states() == {"INV-1": "unknown"}


@pytest.mark.parametrize("arrived", [True, False])
def test_a_change_and_its_audit_entry_are_one_transaction(
    world: World, monkeypatch: pytest.MonkeyPatch, arrived: bool
) -> None:
    """What is killed before the entry is written has changed nothing, and is reconciled anew."""
    unknown(world, "INV-1", arrived=arrived)
    with_look_up(world)
    world.clock.advance(3600)
    before = world.job("INV-1").fencing_token, world.reasons("INV-1")

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(audit, "record", killed)
        with pytest.raises(Killed):
            reconciled(world, "INV-1")
    assert world.states() == {"INV-1": "unknown"}
    assert (world.job("INV-1").fencing_token, world.reasons("INV-1")) == before
    assert reconciled(world, "INV-1").done
    assert AuditEntry.objects.filter(action="reconcile").count() == 1


def test_a_look_up_that_knows_it_takes_it_up_and_it_is_saved_and_billed_once(world: World) -> None:
    unknown(world, "INV-1")
    with_look_up(world)
    found = reconciled(world, "INV-1")
    assert found.verdict is Verdict.ACCEPTED
    assert found.done
    assert world.states() == {"INV-1": "accepted"}
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    assert "unknown_outcome" not in world.open_alerts()
    assert "found_by_look_up" in world.reasons("INV-1")
    assert Exchange.objects.filter(kind="look_up").count() == 1
    entry = AuditEntry.objects.get(action="reconcile")
    assert (entry.actor_words, entry.reason, entry.facts["verdict"]) == ("m.okoye", ORDER.reason, "accepted")


def test_a_look_up_that_knows_nothing_makes_a_retry_legal_and_that_bills_once(world: World) -> None:
    unknown(world, "INV-1", arrived=False)
    with_look_up(world)
    world.clock.advance(3600)
    found = reconciled(world, "INV-1")
    assert found.verdict is Verdict.NOT_ACCEPTED
    assert (world.states(), billed(world)) == ({"INV-1": "failed"}, 0)
    assert Submission.objects.get().outcome == "refused"
    world.provider.script("INV-1")
    item = item_of(world, "INV-1")
    results = applying.apply(Verb.RETRY, [item.pk], order=ORDER, now=world.clock.now())
    assert results[item.pk].is_done, results
    world.run_to_the_end()
    world.assert_saved(["INV-1"])


def test_a_look_up_right_after_the_last_try_is_not_believed_to_know_nothing(world: World) -> None:
    unknown(world, "INV-1", arrived=False)
    with_look_up(world)
    found = reconciled(world, "INV-1")
    assert found.verdict is Verdict.UNKNOWABLE
    assert "may still be on its way" in words_of(found)
    assert world.states() == {"INV-1": "unknown"}


def test_a_provider_that_forgets_cannot_say_that_it_never_arrived(world: World) -> None:
    unknown(world, "INV-1", arrived=False)
    with_look_up(world)
    world.provider.remembers = timedelta(minutes=30)
    world.clock.advance(7200)
    assert reconciled(world, "INV-1").verdict is Verdict.UNKNOWABLE
    assert world.states() == {"INV-1": "unknown"}


def test_a_look_up_that_fails_changes_nothing(world: World) -> None:
    unknown(world, "INV-1")
    with_look_up(world)
    world.provider.trouble = Refuse(errors.ServerFault)
    found = reconciled(world, "INV-1")
    assert found.verdict is Verdict.UNKNOWABLE
    assert "could not be looked up" in words_of(found)
    assert world.states() == {"INV-1": "unknown"}


def test_two_jobs_under_one_key_are_candidates_and_a_person_decides(world: World) -> None:
    unknown(world, "INV-1")
    first = job_at_provider(world, "INV-1")
    world.provider.jobs["pdf_again"] = replace(first, id="pdf_again")
    with_look_up(world)
    found = reconciled(world, "INV-1")
    assert found.verdict is Verdict.ACCEPTED
    assert sorted(each.provider_job_id for each in found.candidates) == sorted([first.id, "pdf_again"])
    assert world.states() == {"INV-1": "unknown"}


def test_a_job_that_is_shown_without_an_id_exists_and_is_never_sent_again(world: World) -> None:
    unknown(world, "INV-1")
    with_look_up(world)
    world.provider.hides_ids = True
    world.clock.advance(7200)
    found = reconciled(world, "INV-1")
    assert (found.verdict, found.done, found.candidates) == (Verdict.ACCEPTED, "", ())
    assert "cannot be fetched" in found.verdict_words
    assert "a job of submission 1 without an id" in words_of(found)
    assert "never arrived" not in words_of(found)
    assert set(found.offers) == {Verb.REGENERATE, Verb.DISMISS}, "only what says that it may cost a second time"
    item = item_of(world, "INV-1")
    results = applying.apply(Verb.RETRY, [item.pk], order=ORDER, now=world.clock.now())
    assert not results[item.pk].is_done
    world.run_to_the_end()
    assert (world.states(), billed(world)) == ({"INV-1": "unknown"}, 1)
    assert Submission.objects.get().in_doubt


def test_a_further_job_without_an_id_leaves_the_named_one_to_a_person(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown(world, "INV-1")
    with_look_up(world)
    find = world.provider.find_submission

    def with_another(*args: Any, **times: Any) -> Any:
        looked = find(*args, **times)
        return looked and replace(looked, nameless=2)

    monkeypatch.setattr(world.provider, "find_submission", with_another)
    found = reconciled(world, "INV-1")
    assert (found.verdict, found.done) == (Verdict.ACCEPTED, "")
    assert [each.provider_job_id for each in found.candidates] == [job_at_provider(world, "INV-1").id]
    assert "2 jobs of submission 1 without an id" in words_of(found)
    assert world.states() == {"INV-1": "unknown"}


def test_a_provider_whose_list_is_late_is_believed_to_know_nothing_later(world: World) -> None:
    unknown(world, "INV-1", arrived=False)
    late = replace(world.provider.capabilities, look_up=True, look_up_after=720)
    world.provider.capabilities = late  # type: ignore[misc] # of this one
    world.clock.advance(600)
    found = reconciled(world, "INV-1")
    assert found.verdict is Verdict.UNKNOWABLE
    assert "Ask again in about 2 min" in words_of(found)
    world.clock.advance(120)
    assert reconciled(world, "INV-1").verdict is Verdict.NOT_ACCEPTED
    assert world.states() == {"INV-1": "failed"}


def test_many_are_reconciled_at_once_and_each_has_its_own_result(world: World) -> None:
    names = ["INV-1", "INV-2", "INV-3"]
    unknown(world, *names)
    world.hand_over("INV-4")
    world.run_to_the_end()
    with_look_up(world)
    ids = [item_of(world, name).pk for name in (*names, "INV-4")]
    results = reconcile.reconcile(
        ids,
        order=ORDER,
        now=world.clock.now(),
        providers=world.providers(),
        store=world.store,
        checker=world.checker,
    )
    assert [results[each].result for each in ids] == ["done", "done", "done", "skipped"]
    world.run_to_the_end()
    world.assert_saved([*names, "INV-4"])


# --- past the deadline, expired, and what lies in the store ---


def test_past_its_deadline_and_finished_meanwhile_it_is_fetched_for_free(world: World) -> None:
    given_up(world)
    world.provider.script("INV-1", status=itertools.repeat(Complete()))
    found = reconciled(world, "INV-1")
    assert found.verdict is Verdict.ACCEPTED
    assert "finished there" in found.verdict_words
    world.run_to_the_end()
    world.assert_saved(["INV-1"])


def test_past_its_deadline_and_unfinished_it_stays_so_and_is_offered_a_free_look(world: World) -> None:
    given_up(world)
    world.provider.script("INV-1", status=itertools.repeat(Word("processing")))
    found = reconciled(world, "INV-1")
    assert found.verdict is Verdict.ACCEPTED
    assert not found.may_adopt
    assert Verb.CHECK_AGAIN in found.offers
    assert world.states() == {"INV-1": "deadline_exceeded"}


def expired(world: World, name: str = "INV-1") -> None:
    """Finished and billed, and its file gone before we had it."""
    world.provider.script(name, status=itertools.repeat(Complete()), download=itertools.repeat(Refuse(errors.NotFound)))
    world.hand_over(name)
    world.run_to_the_end(within=4000)
    assert world.states()[name] == "expired"


def lies_in_store(world: World, name: str, content: bytes) -> None:
    with world.store.staging() as path:
        path.write_bytes(content)
        world.store.put(artifact_key(world.workspace.slug, name, 1), path)


def test_expired_and_whole_in_our_store_it_is_saved_by_adopting_the_file(world: World) -> None:
    expired(world)
    lies_in_store(world, "INV-1", pdf("INV-1"))
    found = reconciled(world, "INV-1")
    assert found.verdict is Verdict.SAVED
    assert found.done
    world.assert_saved(["INV-1"])
    assert Submission.objects.get().outcome == "delivered"


def test_a_file_in_our_store_that_is_cut_saves_nothing(world: World) -> None:
    expired(world)
    lies_in_store(world, "INV-1", pdf("INV-1")[:200])
    found = reconciled(world, "INV-1")
    assert found.verdict is Verdict.ACCEPTED
    assert "no usable PDF" in words_of(found)
    assert Verb.FETCH_AGAIN in found.offers
    assert world.states() == {"INV-1": "expired"}
    assert billed(world) == 1


# --- receipts ---


def with_receipts(world: World, *job_ids: str, at: datetime | None = None) -> None:
    world.provider.capabilities = replace(world.provider.capabilities, receipts=True)  # type: ignore[misc] # of this one
    world.provider.receipts = [Receipt((job_id,), at) for job_id in job_ids]


def test_what_was_billed_in_that_time_and_is_nobodys_is_a_candidate(world: World) -> None:
    world.hand_over("INV-2")
    world.run_to_the_end()
    unknown(world, "INV-1")
    mine, known = job_at_provider(world, "INV-1").id, job_at_provider(world, "INV-2").id
    with_receipts(world, known, mine, at=world.clock.now())
    findings = reconciled(world, "INV-1")
    assert [each.provider_job_id for each in findings.candidates] == [mine]
    assert "1 provider job may be its own" in findings.verdict_words
    assert "a job that none of our documents has" in words_of(findings)


def test_receipts_of_another_time_or_of_known_jobs_are_no_hint(world: World) -> None:
    unknown(world, "INV-1")
    with_receipts(world, "pdf_of_last_year", at=world.clock.now() - timedelta(days=300))
    findings = reconciled(world, "INV-1")
    assert findings.candidates == ()
    assert "None of the 1 receipts" in words_of(findings)
