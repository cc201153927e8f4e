"""From the finished render to a file that is really there: fetched again when spoilt, never rendered again."""

from __future__ import annotations

import itertools

import pytest

from batches.models import Artifact, Exchange
from batches.providers import errors
from tests.engine.simulated import Answer, Complete, Cut, Fail, Page, Refuse, Whole, Word
from tests.scenarios.world import World

SPOILT = [Cut(), Cut(announced=False), Page(), Page(b"", "application/pdf"), Page(b"%PDF-1.4\nno more\n%%EOF\n")]


@pytest.mark.parametrize("spoilt", SPOILT, ids=["short", "cut", "a page", "empty", "unreadable"])
def test_a_download_that_is_spoilt_twice_is_saved_at_the_third(world: World, spoilt: Answer) -> None:
    world.provider.script("INV-1", download=[spoilt, spoilt])
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    assert len(world.provider.downloads) == 3
    assert Exchange.objects.filter(kind="download").count() == 3


@pytest.mark.parametrize("spoilt", SPOILT, ids=["short", "cut", "a page", "empty", "unreadable"])
def test_a_download_that_stays_spoilt_fails_with_a_name_and_stores_nothing(world: World, spoilt: Answer) -> None:
    world.provider.script("INV-1", download=[spoilt] * 3)
    world.hand_over("INV-1")
    world.run_to_the_end()
    assert world.failures() == {"INV-1": "bad_output"}
    assert world.job("INV-1").failure_words.startswith("Fetched 3 times")
    assert not any(key.endswith(".pdf") for key in world.store.puts)
    assert not Artifact.objects.exists()
    assert len(world.provider.arrivals) == 1


def test_a_dead_link_is_answered_with_one_fresh_status_read_and_then_fetched(world: World) -> None:
    world.provider.script("INV-1", download=[Refuse(errors.NotFound)])
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    assert len(world.provider.reads) == 3, "two until it was done, one for a fresh link"


def test_a_dead_link_of_a_job_that_runs_again_is_waited_for_and_rendered_once(world: World) -> None:
    world.provider.script(
        "INV-1", status=[Complete(), Word("queued"), Word("processing"), Complete()], download=[Refuse(errors.NotFound)]
    )
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    assert world.reasons("INV-1")[2:] == [
        "provider_job_finished",
        "not_finished_after_all",
        "provider_job_finished",
        "stored",
    ]
    assert world.open_alerts() == []


def test_a_dead_link_of_a_job_that_never_ends_stops_at_the_deadline(world: World) -> None:
    statuses = itertools.chain([Complete()], itertools.repeat(Word("queued")))
    world.provider.script("INV-1", status=statuses, download=[Refuse(errors.NotFound)])
    world.hand_over("INV-1")
    world.run_to_the_end()
    assert world.states() == {"INV-1": "deadline_exceeded"}
    assert len(world.provider.arrivals) == 1


@pytest.mark.parametrize("fresh", [Complete(), Fail(), Refuse(errors.NotFound)])
def test_a_link_that_stays_dead_expires_and_nothing_is_rendered_again(world: World, fresh: Answer) -> None:
    world.provider.script(
        "INV-1", status=[Complete(), fresh], download=[Refuse(errors.NotFound), Refuse(errors.NotFound)]
    )
    world.hand_over("INV-1")
    world.run_to_the_end()
    assert world.states() == {"INV-1": "expired"}
    assert world.failures() == {"INV-1": "expired"}
    assert "nothing was submitted again" in world.job("INV-1").failure_words
    assert len(world.provider.arrivals) == 1
    assert Exchange.objects.filter(kind="download").count() == len(world.provider.downloads)
    assert Exchange.objects.filter(kind="poll").count() == len(world.provider.reads)


def test_downloads_that_do_not_get_through_wait_for_better_times(world: World) -> None:
    world.provider.script("INV-1", download=[Refuse(errors.AnswerLost), Refuse(errors.ServerFault), Whole()] * 2)
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    assert world.job("INV-1").fetch_count == 1, "waiting is not failing"


def test_when_the_provider_is_away_until_the_link_has_died_the_document_expires(world: World) -> None:
    world.provider.script("INV-1", status=[Complete(link_seconds=30)], download=[Refuse(errors.NotSent)] * 500)
    world.hand_over("INV-1")
    world.run_to_the_end()
    assert world.states() == {"INV-1": "expired"}
    assert "while its link lived" in world.job("INV-1").failure_words


def test_a_full_store_keeps_the_document_rendered_until_there_is_room(world: World) -> None:
    world.hand_over("INV-1")
    world.store.is_full = True
    world.run_for(60)
    assert 1 <= len(world.provider.downloads) <= 8, "a store without room is not asked every second"
    world.run_for(240)
    assert len(world.provider.downloads) <= 40
    assert world.states() == {"INV-1": "rendered"}
    assert not Artifact.objects.exists()
    world.store.is_full = False
    world.run_to_the_end()
    world.assert_saved(["INV-1"])


def test_a_file_that_announces_no_length_is_judged_by_its_content(world: World) -> None:
    world.provider.script("INV-1", download=[Page(b"%PDF-1.4 but nothing else", "application/pdf")])
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
