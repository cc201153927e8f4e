"""From the finished render to a file that is really there: fetched again when spoilt, never rendered again."""

from __future__ import annotations

import hashlib
import io
import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from batches.conf import ENGINE
from batches.engine import applying, keeping
from batches.engine.audit import By
from batches.engine.orders import Order
from batches.models import Alert, Artifact, Exchange, Job, Verb
from batches.providers import errors
from batches.storage import artifact_key
from tests.engine.simulated import Answer, Complete, Cut, Fail, Page, Refuse, Whole, Word
from tests.engine.vendor import pdf
from tests.scenarios.watching import watched_for
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


@pytest.mark.parametrize("kind", [errors.AnswerLost, errors.ServerFault])
def test_one_file_that_is_cut_off_each_time_ends_with_a_name_and_is_fetched_again_free(
    world: World, kind: type[errors.ProviderError]
) -> None:
    """One poisonous document neither runs for a day nor holds the account up for the others."""
    world.provider.script("INV-1", download=itertools.repeat(Refuse(kind)))
    world.hand_over("INV-1")
    minutes = 0
    while world.states()["INV-1"] != "failed":
        minutes += 1
        world.hand_over(f"NEXT-{minutes}")
        watched_for(world, 1 / 60)
        assert minutes < 60, "it never ends"
    assert minutes >= ENGINE.cut_off_seconds / 60
    assert world.failures() == {"INV-1": "bad_output"}
    assert "while other files did" in world.job("INV-1").failure_words
    world.run_to_the_end()
    world.assert_saved([f"NEXT-{minute}" for minute in range(1, minutes + 1)])
    assert "account_held" not in world.open_alerts()
    world.provider.script("INV-1", download=itertools.repeat(Whole()))
    item = world.job("INV-1").version.items.get()
    order = Order(By(None, "ada", "a test"))
    assert applying.apply(Verb.FETCH_AGAIN, [item.pk], order=order, now=world.clock.now())[item.pk].is_done
    world.run_to_the_end()
    assert world.states()["INV-1"] == "saved"
    assert len(world.provider.arrivals) == minutes + 1, "nothing was rendered twice"


def test_where_no_file_comes_whole_each_is_waited_for(world: World) -> None:
    names = ["INV-1", "INV-2"]
    for name in names:
        world.provider.script(name, download=itertools.repeat(Refuse(errors.AnswerLost)))
    world.hand_over(*names)
    watched_for(world, 2 * ENGINE.cut_off_seconds / 3600)
    assert world.states() == dict.fromkeys(names, "rendered")
    for name in names:
        world.provider.script(name, download=itertools.repeat(Whole()))
    world.run_to_the_end()
    world.assert_saved(names)


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


def test_a_fresh_link_is_kept_so_that_the_next_try_starts_from_it(world: World) -> None:
    world.provider.script(
        "INV-1",
        status=[Complete(), Complete(link_seconds=7200)],
        download=[Refuse(errors.NotFound), Refuse(errors.AnswerLost), Whole()],
    )
    world.hand_over("INV-1")
    world.run_until(lambda: len(world.provider.downloads) == 2)
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    assert world.job("INV-1").submissions.get().result["expires_at"] is not None
    assert len(world.provider.reads) == 2, "the link was read afresh once, and kept"


def test_a_link_that_is_over_by_its_own_word_is_read_afresh_before_it_is_given_up(world: World) -> None:
    world.provider.script(
        "INV-1",
        status=[Complete(link_seconds=30), Complete(link_seconds=3600)],
        download=[Refuse(errors.NotSent)] * 9,
    )
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])


def test_a_full_store_is_asked_with_one_download_at_a_time_and_told_of_once(world: World) -> None:
    names = [f"INV-{number}" for number in range(12)]
    world.hand_over(*names)
    world.store.is_full = True
    world.run_for(120)
    assert len(world.provider.downloads) <= 6 + 20, "one probe at a time, at growing intervals"
    assert set(world.states().values()) == {"rendered"}
    alert = Alert.objects.get(closed_at=None)
    assert (alert.kind, alert.subject) == ("store", "store:writes")
    assert "wait at the provider" in alert.words
    world.store.is_full = False
    world.run_to_the_end()
    world.assert_saved(names)
    assert world.open_alerts() == []


def test_a_pump_that_wakes_up_late_never_puts_its_pdf_over_a_saved_one(world: World) -> None:
    """It was asleep after its download; meanwhile another submission's PDF became the saved one."""
    world.hand_over("INV-1")
    world.run_to_the_end()
    saved = Artifact.objects.get()
    with world.store.staging() as path:
        path.write_bytes(b"%PDF-1.4 of an earlier submission\n%%EOF\n")
        keeping.keep(world.store, saved.storage_key, path, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    assert keeping.digest_of(world.store, saved.storage_key) == saved.sha256
    world.assert_saved(["INV-1"])


def test_a_pdf_whose_place_is_taken_is_saved_under_its_own_digest(world: World) -> None:
    """A pump of an earlier submission had put its PDF there, and its write was refused."""
    key = artifact_key(world.workspace.slug, "INV-1", 1)
    world.store.put(key, io.BytesIO(b"%PDF-1.4 of an earlier submission\n%%EOF\n"))
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    artifact = Artifact.objects.get()
    assert artifact.storage_key == key.replace(".pdf", f"-{artifact.sha256[:32]}.pdf")
    assert keeping.digest_of(world.store, artifact.storage_key) == artifact.sha256


# --- fetching goes ahead of submitting ---


def test_downloads_begin_as_soon_as_they_can_however_many_documents_wait_to_be_sent(world: World) -> None:
    names = [f"INV-{number:02}" for number in range(40)]
    world.provider.download_seconds = 0.5
    world.hand_over(*names)
    world.run_until(lambda: len(world.provider.arrivals) >= 25, within=60)
    arrived = len(world.provider.arrivals)
    assert arrived < 40
    behind = Job.objects.filter(state="rendered").count()
    assert behind <= 6, "downloads keep up while others are still being sent"
    world.run_to_the_end()
    world.assert_saved(names)


def test_what_is_finished_is_fetched_before_anything_is_sent(world: World) -> None:
    first = [f"OLD-{number}" for number in range(8)]
    for name in first:
        world.provider.script(name, download=[Refuse(errors.AnswerLost)])
    world.hand_over(*first)
    world.run_until(lambda: len(world.provider.downloads) == 8)
    world.hand_over(*[f"NEW-{number}" for number in range(30)])
    world.clock.advance(60)
    before = len(world.provider.arrivals)
    world.run_until(lambda: len(world.provider.arrivals) > before, within=60)
    assert len(world.provider.downloads) >= 8 + ENGINE.fetch_threads, "every fetch thread was busy before that"
    world.run_to_the_end()
    world.assert_saved([*first, *[f"NEW-{number}" for number in range(30)]])


def test_where_finished_pdfs_pile_up_nothing_new_is_sent_until_they_are_fetched(world: World) -> None:
    names = [f"INV-{number:02}" for number in range(60)]
    conf = replace(ENGINE, fetch_backlog_most=5)
    world.hand_over(*names)
    world.store.is_full = True
    for _ in range(4):
        world.pump(conf=conf).run()
    sent = len(world.provider.arrivals)
    assert 5 < sent <= 5 + world.account.max_in_flight + 11, "what was in flight or had its slot ends"
    world.pump(conf=conf).run()
    assert len(world.provider.arrivals) == sent, "nothing follows it"
    assert world.states()["INV-59"] == "pending"
    world.store.is_full = False
    world.run_to_the_end()
    world.assert_saved(names)


# --- worth a look ---


def test_an_error_printed_into_a_valid_pdf_is_saved_and_told_at_once_with_the_warnings(world: World) -> None:
    names = [f"INV-{number:02}" for number in range(12)]
    page = Path(__file__).parent.parent / "cases" / "082-error-inside.pdf"
    for name in names:
        world.provider.script(name, download=[Page(pdf(name, pages=40), "application/pdf")])
    world.provider.script(
        "INV-07",
        status=[Complete(warnings=("The page asked for a sign-in.",))],
        download=[Page(page.read_bytes(), "application/pdf")],
    )
    world.hand_over(*names)
    world.run_to_the_end()
    assert set(world.states().values()) == {"saved"}, "a notice stops nothing"
    noticed = Artifact.objects.exclude(notice="").values_list("version__document__business_id", "notice")
    assert list(noticed) == [("INV-07", "small")]
    assert world.job("INV-07").submissions.get().result["warnings"] == ["The page asked for a sign-in."]


def test_one_file_for_two_documents_is_told(world: World) -> None:
    mixed_up = Page(pdf("another customer's"), "application/pdf")
    world.provider.script("INV-1", download=[mixed_up])
    world.provider.script("INV-2", download=[mixed_up])
    world.hand_over("INV-1", "INV-2", "INV-3")
    world.run_to_the_end()
    noticed = Artifact.objects.exclude(notice="").order_by("pk")
    assert {each.version.document.business_id: each.notice for each in noticed} == {"INV-1": "same", "INV-2": "same"}
