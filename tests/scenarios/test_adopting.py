"""Adopting what a person names: looked at, proven as far as can be, confirmed, and never a second bill by it."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from batches.models import AuditEntry, Job, WebhookEvent
from batches.providers import errors
from tests import factories
from tests.engine.simulated import Complete, Fail, Refuse
from tests.scenarios.uncertain import ORDER, adopted, billed, job_at_provider, reconciled, unknown
from tests.scenarios.watching import given_up
from tests.scenarios.world import World


def test_the_right_job_is_proven_then_confirmed_then_saved_without_another_bill(world: World) -> None:
    unknown(world, "INV-1")
    job = job_at_provider(world, "INV-1")
    world.provider.script("INV-1", status=itertools.repeat(Complete()))
    asked = adopted(world, "INV-1", f" https://api.relaypdf.test/v1/jobs/{job.id}?x=1 ", order=ORDER)
    assert not asked.result.is_done
    assert not asked.inspection.refusal
    assert "The PDF's text shows INV-1." in asked.inspection.proven
    assert any("while we were sending" in words for words in asked.inspection.proven)
    assert any("cannot be told" in words for words in asked.inspection.not_proven)
    assert world.states() == {"INV-1": "unknown"}
    factories.make_event(account=world.account, at=world.clock.now(), provider_job_id=job.id, outcome="unmatched")
    assert adopted(world, "INV-1", job.id).result.is_done
    assert world.states() == {"INV-1": "rendered"}
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    assert not WebhookEvent.objects.filter(outcome="unmatched").exists()
    entry = AuditEntry.objects.get(action="adopt")
    assert entry.reason == ORDER.reason
    assert entry.facts["provider_job"] != job.id
    assert "The PDF's text shows INV-1." in entry.facts["proven"]


def test_one_that_is_still_rendering_is_adopted_when_it_is_finished(world: World) -> None:
    """It may be another document's, and fail; then this one would be sent anew beside its own."""
    unknown(world, "INV-1")
    job = job_at_provider(world, "INV-1")
    assert "not finished there (“processing”)" in adopted(world, "INV-1", job.id).result.words
    assert world.states() == {"INV-1": "unknown"}
    world.provider.script("INV-1", status=itertools.repeat(Complete()))
    assert adopted(world, "INV-1", job.id).result.is_done
    world.run_to_the_end()
    world.assert_saved(["INV-1"])


def test_one_that_failed_there_frees_nothing_to_be_sent_anew(world: World) -> None:
    unknown(world, "INV-1", "INV-2")
    world.provider.script("INV-2", status=itertools.repeat(Fail(unbilled=True)))
    before = billed(world)
    assert "It failed there" in adopted(world, "INV-1", job_at_provider(world, "INV-2").id).result.words
    world.run_to_the_end()
    assert (billed(world), world.states()["INV-1"]) == (before, "unknown")


def test_the_job_of_another_document_is_refused_and_that_document_named(world: World) -> None:
    world.hand_over("INV-2")
    world.run_to_the_end()
    unknown(world, "INV-1")
    theirs = adopted(world, "INV-1", job_at_provider(world, "INV-2").id)
    assert "belongs to document INV-2" in theirs.result.words
    assert world.states() == {"INV-1": "unknown", "INV-2": "saved"}


def test_a_pdf_that_shows_another_id_speaks_against_it_before_anybody_confirms(world: World) -> None:
    unknown(world, "INV-1", "INV-10")
    world.provider.script("INV-10", status=itertools.repeat(Complete()))
    asked = adopted(world, "INV-1", job_at_provider(world, "INV-10").id, order=ORDER)
    assert not asked.result.is_done
    assert any("does not show INV-1" in words for words in asked.inspection.against)


def test_a_job_that_this_account_does_not_know_is_refused(world: World) -> None:
    unknown(world, "INV-1")
    assert "has no job with that id" in adopted(world, "INV-1", "pdf_of_nobody").result.words
    world.provider.trouble = Refuse(errors.AnswerLost)
    job = job_at_provider(world, "INV-1")
    assert "nothing was changed" in adopted(world, "INV-1", job.id).result.words
    assert world.states() == {"INV-1": "unknown"}
    assert not AuditEntry.objects.filter(action="adopt").exists()


def test_a_document_whose_job_is_known_takes_no_other_one(world: World) -> None:
    given_up(world)
    unknown(world, "INV-2")
    assert "has a provider job id already" in adopted(world, "INV-1", job_at_provider(world, "INV-2").id).result.words
    own = job_at_provider(world, "INV-1").id
    assert "own provider job already" in adopted(world, "INV-1", own).result.words


def test_nothing_of_it_ever_bills(make_world: Callable[..., World]) -> None:
    world = make_world()
    unknown(world, "INV-1", "INV-2")
    before = billed(world)
    arrivals = len(world.provider.arrivals)
    for name in ("INV-1", "INV-2"):
        world.provider.script(name, status=itertools.repeat(Complete()))
        reconciled(world, name)
        adopted(world, name, job_at_provider(world, name).id)
    world.run_to_the_end()
    assert (billed(world), len(world.provider.arrivals)) == (before, arrivals)
    assert Job.objects.filter(state="saved").count() == 2
