"""What a download is worth: each check on its own, and how often it is made again before the job stops."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from batches.conf import ENGINE
from batches.engine import collection, fetched, polling
from batches.engine.collection import Collected, NotCollected
from batches.engine.pdfcheck import PdfFacts
from batches.models import FailureClass, HoldReason, JobState, Lane
from batches.providers import errors
from batches.providers.base import Downloaded, ResultRef
from tests.engine import collecting
from tests.engine.samples import Dice, accepted_submission, claim, exchange
from tests.factories import NOW

CASES = Path(__file__).parent.parent / "cases"
RNG = random.Random(5)
DIES_AT = NOW + timedelta(hours=24)


class Opens:
    """A checker for which every file has three pages, or `problem`."""

    def __init__(self, problem: str = "") -> None:
        self.problem = problem

    def check(self, path: Path) -> PdfFacts:
        return PdfFacts(0 if self.problem else 3, self.problem)


def verify(tmp_path: Path, content: bytes, *, declared: tuple[int, ...] | None = None, **given: Any) -> tuple[str, int]:
    path = tmp_path / "download"
    path.write_bytes(content)
    sizes = (len(content),) if declared is None else declared
    downloaded = Downloaded(len(content), given.get("content_type", "application/pdf"), sizes, exchange("download"))
    head, tail = content[:8], content[-collection.TAIL_BYTES :]
    return collection.verify(path, head, tail, downloaded, given.get("checker", Opens()))


WHOLE = b"%PDF-1.7\n" + b"x" * 5000 + b"\n%%EOF\n"


@pytest.mark.parametrize(
    ("content", "declared", "content_type", "problem"),
    [
        (WHOLE, None, "application/pdf", ""),
        (WHOLE, (), "", ""),  # no length was announced: the other checks still hold
        (WHOLE, (len(WHOLE), len(WHOLE)), "application/octet-stream", ""),
        (WHOLE + b"\0" * 2000, None, "application/pdf", ""),  # some writers pad behind the end mark
        (WHOLE, (len(WHOLE), 9000), "application/pdf", "but 9000 were announced"),
        (WHOLE[:-20], (len(WHOLE),), "application/pdf", f"but {len(WHOLE)} were announced"),
        (WHOLE[:-20], None, "application/pdf", "cut short"),
        (WHOLE + b"\0" * 3000, None, "application/pdf", "cut short"),
        (b"", None, "application/pdf", "It is empty, not a PDF (sent as application/pdf, 0 bytes)"),
        (b"", (0,), "", "not a PDF (sent as no type, 0 bytes)"),
        (b"<html>Sign in</html>", None, "text/html", "It is HTML, not a PDF (sent as text/html, 20 bytes)"),
        (
            b"<!DOCTYPE html><h1>Sorry</h1>",
            (29, 8264),
            "text/html",
            "It is HTML, not a PDF (sent as text/html, 29 bytes; 8264 were announced).",
        ),
        (b"<p>Sorry</p>", None, "text/html", "It is HTML, not a PDF"),
        (b"<Error><Code>AccessDenied</Code></Error>", None, "application/xml", "It is XML, not a PDF"),
        (b"\n" + WHOLE, None, "application/pdf", "not a PDF"),
        (b'{"error":"expired"}', None, "application/json", "It is JSON, not a PDF"),
    ],
)
def test_the_first_thing_that_is_wrong_is_named(
    tmp_path: Path, content: bytes, declared: tuple[int, ...] | None, content_type: str, problem: str
) -> None:
    found, pages = verify(tmp_path, content, declared=declared, content_type=content_type)
    assert problem in found
    assert bool(found) is bool(problem)
    assert pages == (0 if problem else 3)


def test_a_file_that_the_library_cannot_open_is_no_pdf(tmp_path: Path) -> None:
    assert verify(tmp_path, WHOLE, checker=Opens("It has no pages.")) == ("It has no pages.", 0)


def test_the_case_of_the_cut_file_is_seen_with_and_without_its_announced_length(tmp_path: Path) -> None:
    whole, cut = ((CASES / name).read_bytes() for name in ("079-whole.pdf", "079-cut.pdf"))
    assert verify(tmp_path, whole) == ("", 3)
    assert "were announced" in verify(tmp_path, cut, declared=(len(whole),))[0]
    assert "cut short" in verify(tmp_path, cut)[0]
    assert "cut short" in verify(tmp_path, cut, declared=())[0]


# --- stored, and so saved ---


def test_only_what_is_stored_becomes_saved() -> None:
    collected = Collected("default/doc/v1.pdf", "a" * 64, 900, 2, (exchange("download"),))
    change = fetched.judge_collected(claim(JobState.RENDERED), collected, now=NOW)
    assert (change.move.from_state, change.move.to_state) == (JobState.RENDERED, JobState.SAVED)
    assert change.submission_fields == {"outcome": "delivered", "closed_at": NOW}
    assert change.artifact.storage_key == "default/doc/v1.pdf"
    assert (change.artifact.sha256, change.artifact.byte_count, change.artifact.page_count) == ("a" * 64, 900, 2)
    assert change.follow is None


# --- not stored ---


def missed(kind: str, **fields: Any) -> NotCollected:
    return NotCollected(kind, "The line was cut.", (exchange("download"),), **fields)


@pytest.mark.parametrize(
    ("kind", "fetches", "seconds_later", "to_state", "failure", "fetches_after"),
    [
        # It is no usable PDF: fetched again, three times in all, never rendered again.
        ("bad_output", 0, 1, None, None, 1),
        ("bad_output", 1, 1, None, None, 2),
        ("bad_output", 2, 1, "failed", FailureClass.BAD_OUTPUT, 3),
        ("bad_output", 0, 90_000, None, None, 1),
        # The file was never judged: waiting is not failing, for as long as the link lives.
        ("unreached", 0, 1, None, None, 0),
        ("unreached", 2, 80_000, None, None, 2),
        ("unreached", 2, 86_400, "expired", FailureClass.EXPIRED, 2),
        ("store", 2, 80_000, None, None, 2),
        ("store", 0, 86_400, "expired", FailureClass.EXPIRED, 0),
        # The provider says that it is gone.
        ("gone", 0, 1, "expired", FailureClass.EXPIRED, 1),
    ],
)
def test_a_file_that_was_not_stored_is_fetched_again_or_stops_with_a_name(
    kind: str,
    fetches: int,
    seconds_later: int,
    to_state: str | None,
    failure: FailureClass | None,
    fetches_after: int,
) -> None:
    at = NOW + timedelta(seconds=seconds_later)
    change = fetched.judge_not_collected(
        claim(JobState.RENDERED, fetch_count=fetches), missed(kind), collecting.at(at, RNG)
    )
    assert (change.move.to_state.value if change.move else None) == to_state
    fields = change.move.fields if change.move else change.job_fields
    assert fields["fetch_count"] == fetches_after
    assert len(change.exchanges) == 1
    if failure:
        assert fields["failure_class"] == failure
        assert "The line was cut." in fields["failure_words"]
    else:
        assert at < fields["due_at"] or at >= DIES_AT


def test_a_dead_link_of_a_job_that_still_runs_is_waited_for_again() -> None:
    change = fetched.judge_not_collected(
        claim(JobState.RENDERED, fetch_count=2, poll_count=3), missed("unfinished"), collecting.at(NOW, Dice(1))
    )
    assert (change.move.from_state, change.move.to_state) == (JobState.RENDERED, JobState.ACCEPTED)
    assert (change.move.reason, change.move.fields) == (
        "not_finished_after_all",
        {"due_at": NOW + timedelta(seconds=8)},
    )
    assert "The line was cut." in change.move.words
    assert (change.alert, change.submission_fields, len(change.exchanges)) == (None, {}, 1)


def test_a_finished_job_without_a_file_that_still_runs_is_read_at_its_deadline_and_then_ends() -> None:
    known = claim(JobState.RENDERED, poll_count=9)
    assert known.deadline_at is not None
    before = known.deadline_at - timedelta(seconds=1)
    change = fetched.judge_not_collected(known, missed("unfinished"), collecting.at(before, Dice(1)))
    assert change.move.fields == {"due_at": known.deadline_at}
    change = fetched.judge_not_collected(known, missed("unfinished"), collecting.at(known.deadline_at, Dice(1)))
    assert (change.move.to_state, change.move.fields["failure_class"]) == (JobState.EXPIRED, FailureClass.EXPIRED)
    assert "had no file" in change.move.fields["failure_words"]


@pytest.mark.parametrize(
    ("kind", "seconds_later", "longest"),
    [("unreached", 1, 2), ("unreached", 61, 32), ("store", 1, 32), ("store", 61, 32)],
)
def test_a_store_in_trouble_is_given_time_and_a_line_that_was_cut_is_tried_soon(
    kind: str, seconds_later: int, longest: int
) -> None:
    at = NOW + timedelta(seconds=seconds_later)
    change = fetched.judge_not_collected(claim(JobState.RENDERED), missed(kind), collecting.at(at, Dice(1)))
    assert change.job_fields["due_at"] == at + timedelta(seconds=longest)


def test_what_expired_says_that_nothing_was_rendered_again() -> None:
    change = fetched.judge_not_collected(claim(JobState.RENDERED), missed("gone"), collecting.at(NOW, RNG))
    assert "nothing was submitted again" in change.move.words
    assert "id is kept" in change.move.words


def test_the_wait_between_two_downloads_never_outlasts_the_link() -> None:
    at = DIES_AT - timedelta(seconds=2)
    change = fetched.judge_not_collected(
        claim(JobState.RENDERED),
        missed("unreached", error=errors.ServerFault("", retry_after=300.0)),
        collecting.at(at, RNG),
    )
    assert change.job_fields["due_at"] == DIES_AT


@pytest.mark.parametrize(("asked", "kept"), [(120.0, 120.0), (7200.0, ENGINE.retry_after_most_seconds)])
def test_the_wait_that_the_provider_asked_for_is_kept_within_bounds(asked: float, kept: float) -> None:
    change = fetched.judge_not_collected(
        claim(JobState.RENDERED),
        missed("unreached", error=errors.ServerFault("", retry_after=asked)),
        collecting.at(NOW, RNG),
    )
    assert change.job_fields["due_at"] == NOW + timedelta(seconds=kept)


def test_a_refused_key_holds_the_account() -> None:
    change = fetched.judge_not_collected(
        claim(JobState.RENDERED), missed("unreached", error=errors.Unauthorized("")), collecting.at(NOW, RNG)
    )
    assert (change.effect.hold, change.move) == (HoldReason.AUTH, None)


def test_a_limit_on_downloads_pauses_that_lane_alone_and_one_on_the_read_for_a_link_the_other() -> None:
    for lane in (Lane.DOWNLOAD, Lane.POLL):
        limited = missed("unreached", error=errors.RateLimited("Slow down.", retry_after=20.0), lane=lane)
        change = fetched.judge_not_collected(claim(JobState.RENDERED), limited, collecting.at(NOW, RNG))
        assert change.effect.cool_down_lane is lane
        assert change.effect.cool_down_until == change.job_fields["due_at"]
        assert timedelta(seconds=20) <= change.job_fields["due_at"] - NOW < timedelta(seconds=25)


def test_a_link_dies_when_the_provider_said_else_after_the_believed_lifetime() -> None:
    said = NOW + timedelta(minutes=5)
    known = accepted_submission(result={"url": "u", "expires_at": said.isoformat()})
    assert fetched.link_dies_at(claim(JobState.RENDERED, submission=known), "relaypdf") == said
    believed = NOW + timedelta(seconds=ENGINE.link_lifetime_seconds)
    assert fetched.link_dies_at(claim(JobState.RENDERED), "relaypdf") == believed


def test_the_believed_lifetime_begins_when_the_file_was_made_and_not_when_the_job_came_back_to_it() -> None:
    made_at = NOW - timedelta(hours=20)
    first = polling.result_facts(ResultRef("pdf_7", url="u"), now=made_at)
    again = polling.result_facts(ResultRef("pdf_7", url="v"), known=first, now=NOW)
    assert (again["url"], again["made_at"]) == ("v", made_at.isoformat())
    known = claim(JobState.RENDERED, submission=accepted_submission(result=again), state_changed_at=NOW)
    assert fetched.link_dies_at(known, "relaypdf") == made_at + timedelta(seconds=ENGINE.link_lifetime_seconds)


def test_where_the_file_lies_is_read_back_as_it_was_kept() -> None:
    known = accepted_submission(
        result={"url": "http://u", "size_bytes": 9, "expires_at": DIES_AT.isoformat(), "filename": "a.pdf"}
    )
    ref = collection.result_ref(claim(JobState.RENDERED, submission=known))
    assert (ref.provider_job_id, ref.url, ref.size_bytes, ref.expires_at, ref.filename) == (
        "pdf_7",
        "http://u",
        9,
        DIES_AT,
        "a.pdf",
    )
    bare = collection.result_ref(claim(JobState.RENDERED))
    assert (bare.provider_job_id, bare.url, bare.size_bytes, bare.expires_at) == ("pdf_7", "", None, None)
