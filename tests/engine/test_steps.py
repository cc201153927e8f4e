"""Steps on threads: right before the bytes leave they look once more, and what goes wrong comes back as a value."""

from __future__ import annotations

import io
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from batches.conf import ENGINE
from batches.engine import collection, fetched, pdfcheck, steps
from batches.engine.pacing import Limits
from batches.engine.pdfcheck import PdfChecker, PdfFacts
from batches.models import HoldReason, JobState
from batches.providers import errors
from batches.providers.base import Downloaded, PreparedRequest, ResultRef
from batches.storage import StoreError, StoreUnavailable
from batches.storage.disk import DiskStore
from tests.engine.collecting import at, collect
from tests.engine.samples import accepted_submission, claim, exchange, sending
from tests.engine.simulated import Complete, Fail, Lose, Refuse, SimulatedProvider, Word
from tests.engine.virtual_time import VirtualClock
from tests.factories import NOW

LIMITS = Limits(50_000)
LONG_LEASE = NOW + timedelta(minutes=5)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOW)


@pytest.fixture
def provider(clock: VirtualClock) -> SimulatedProvider:
    return SimulatedProvider(clock)


def on_a_thread(step: Callable[[], Any]) -> Any:
    """As the engine runs it: away from the thread that has the database."""
    outcome: list[Any] = []
    thread = threading.Thread(target=lambda: outcome.append(step()))
    thread.start()
    thread.join()
    return outcome[0]


def send(
    provider: SimulatedProvider,
    *,
    slot: datetime = NOW,
    doubt_before: bool = False,
    resend_until: datetime | None = NOW + timedelta(hours=1),
    lease_until: datetime = LONG_LEASE,
    halted: bool = False,
) -> Any:
    what = sending(slot=slot, doubt_before=doubt_before, resend_until=resend_until)
    halt = threading.Event()
    if halted:
        halt.set()
    clock = provider.clock
    return on_a_thread(lambda: steps.send(what, provider, LIMITS, clock, halt, lambda: lease_until))


def test_the_bytes_leave_in_their_slot_and_not_before(provider: SimulatedProvider) -> None:
    slot = NOW + timedelta(seconds=0.3)
    result = send(provider, slot=slot)
    assert isinstance(result, steps.Answered)
    assert (result.answer.provider_job_id, result.at) == ("pdf_1", slot)
    assert [arrival.at for arrival in provider.arrivals] == [slot]


@pytest.mark.parametrize(
    ("given", "result"),
    [
        ({"slot": NOW - timedelta(seconds=1)}, steps.NotSentYet),
        ({"halted": True}, steps.NotSentYet),
        ({"halted": True, "slot": NOW + timedelta(seconds=1)}, steps.NotSentYet),
        ({"lease_until": NOW + timedelta(seconds=ENGINE.lease_margin_seconds - 0.1)}, steps.NotSentYet),
        ({"lease_until": NOW - timedelta(seconds=1)}, steps.NotSentYet),
        ({"doubt_before": True, "resend_until": NOW + timedelta(seconds=5)}, steps.WindowClosed),
        ({"doubt_before": True, "resend_until": None}, steps.WindowClosed),
        ({"doubt_before": True}, steps.Answered),
        ({"resend_until": None}, steps.Answered),  # a first send needs no window
        ({"lease_until": NOW + timedelta(seconds=ENGINE.lease_margin_seconds)}, steps.Answered),
    ],
)
def test_right_before_the_first_byte_everything_is_looked_at_again(
    provider: SimulatedProvider, given: dict[str, Any], result: type[Any]
) -> None:
    assert type(send(provider, **given)) is result
    assert bool(provider.arrivals) is (result is steps.Answered)


@pytest.mark.parametrize("answer", [Refuse(errors.RateLimited), Lose(), Refuse(errors.InvalidInput)])
def test_an_error_comes_back_with_its_instant(provider: SimulatedProvider, answer: Refuse | Lose) -> None:
    provider.script("INV-7", submit=[answer])
    result = send(provider)
    assert isinstance(result, steps.SendFailed)
    assert (type(result.error), result.at) == (answer.kind, NOW)


# --- reads, downloads, probes ---


def test_a_status_read_waits_for_its_slot_and_a_pump_that_ends_reads_nothing(provider: SimulatedProvider) -> None:
    request = PreparedRequest("/v1/pdf", b"<h1>INV-7</h1>")
    job = provider.submit(request, idempotency_key="k", now=NOW, gate=lambda: None)
    known = claim(JobState.ACCEPTED, submission=accepted_submission(provider_job_id=job.provider_job_id))
    halt, clock = threading.Event(), provider.clock
    slot = NOW + timedelta(seconds=2)
    result = on_a_thread(lambda: steps.poll(known, provider, slot, LIMITS, clock, halt))
    assert isinstance(result, steps.StatusRead)
    assert clock.now() == slot
    halt.set()
    assert isinstance(on_a_thread(lambda: steps.poll(known, provider, slot, LIMITS, clock, halt)), steps.NotBegun)
    assert len(provider.reads) == 1
    provider.trouble = Refuse(errors.ServerFault)
    failed = on_a_thread(lambda: steps.poll(known, provider, slot, LIMITS, clock, threading.Event()))
    assert isinstance(failed, steps.StatusFailed)


@pytest.mark.parametrize(
    ("late_ms", "limits", "leaves"),
    [(0, LIMITS, True), (8, LIMITS, True), (9, LIMITS, False), (5000, LIMITS, False), (5000, Limits(0), True)],
)
def test_no_status_read_leaves_on_a_slot_that_was_missed(
    provider: SimulatedProvider, late_ms: int, limits: Limits, leaves: bool
) -> None:
    known = claim(JobState.ACCEPTED, submission=accepted_submission(provider_job_id="pdf_1"))
    slot, clock, halt = NOW - timedelta(milliseconds=late_ms), provider.clock, threading.Event()
    result = on_a_thread(lambda: steps.poll(known, provider, slot, limits, clock, halt))
    assert isinstance(result, steps.StatusFailed if leaves else steps.NotReadYet)
    watch = steps.Watch(71, 1, 3, "pdf_1", "INV-7", slot, None)
    watched = on_a_thread(lambda: steps.look_late(watch, provider, limits, clock, halt))
    assert (watched.not_read, watched.error is not None) == (not leaves, leaves)
    assert len(provider.reads) == (2 if leaves else 0)


class CrashingProvider(SimulatedProvider):
    """An adapter with a bug."""

    def check_account(self, *, now: datetime) -> Any:
        raise KeyError("plan")


@pytest.mark.parametrize(
    ("trouble", "key_is_good", "error", "hold"),
    [
        (None, True, None, None),
        (Refuse(errors.NotSent), True, errors.NotSent, None),
        (Refuse(errors.AnswerLost), True, errors.AnswerLost, None),
        (Refuse(errors.ServerFault), True, errors.ServerFault, None),
        (Refuse(errors.RateLimited), True, errors.RateLimited, None),
        (Refuse(errors.InsufficientCredit), True, errors.InsufficientCredit, None),
        (None, False, errors.Unauthorized, HoldReason.AUTH),
    ],
)
def test_what_a_probe_says(
    provider: SimulatedProvider,
    trouble: Refuse | None,
    key_is_good: bool,
    error: type[Exception] | None,
    hold: HoldReason | None,
) -> None:
    provider.trouble, provider.key_is_good = trouble, key_is_good
    result = on_a_thread(lambda: steps.probe(3, provider, now=NOW))
    assert (result.account_id, type(result.error) if result.error else None, result.hold) == (3, error, hold)


def test_a_probe_that_crashes_is_no_answer(clock: VirtualClock) -> None:
    result = on_a_thread(lambda: steps.probe(3, CrashingProvider(clock), now=NOW))
    assert isinstance(result.error, errors.ContractBroken)
    assert result.hold is None


def test_a_bug_ends_at_its_job() -> None:
    def broken(_claim: Any) -> Any:
        raise ZeroDivisionError("secret words")

    result = steps.guarded(claim(), broken, claim())
    assert isinstance(result, steps.Crashed)
    assert "ZeroDivisionError" in result.words
    assert "secret words" not in result.words, "an exception's text may hold anything"


# --- collecting, with a store and a checker that fail ---


class Opens:
    def check(self, path: Path) -> PdfFacts:
        return PdfFacts(1)


class AwayStore(DiskStore):
    """No folder can be made."""

    def staging(self) -> Any:
        raise StoreUnavailable("The store is away.")


@pytest.mark.parametrize(
    ("download", "status", "kind"),
    [
        ([Refuse(errors.NotFound), Refuse(errors.NotFound)], [Complete()], "gone"),
        ([Refuse(errors.NotFound)], [Word("queued")], "unfinished"),
        ([Refuse(errors.NotFound)], [Fail()], "gone"),
        ([Refuse(errors.NotFound)], [Refuse(errors.NotFound)], "gone"),
        ([Refuse(errors.NotFound)], [Refuse(errors.ServerFault)], "unreached"),
        ([Refuse(errors.NotFound), Refuse(errors.AnswerLost)], [Complete()], "unreached"),
        ([Refuse(errors.AnswerLost)], [], "unreached"),
        ([Refuse(errors.NotSent)], [], "unreached"),
        ([Refuse(errors.RateLimited, retry_after=7.0)], [], "unreached"),
        ([Refuse(errors.TargetRefused)], [], "bad_output"),
        ([Refuse(errors.TooLarge)], [], "bad_output"),
    ],
)
def test_why_there_is_no_file_yet(
    provider: SimulatedProvider, tmp_path: Path, download: list[Any], status: list[Any], kind: str
) -> None:
    request = PreparedRequest("/v1/pdf", b"<h1>INV-7</h1>")
    job = provider.submit(request, idempotency_key="k", now=NOW, gate=lambda: None)
    provider.script("INV-7", download=download, status=status)
    known = claim(JobState.RENDERED, submission=accepted_submission(provider_job_id=job.provider_job_id))
    store = DiskStore(tmp_path / "store")
    store.ensure()
    result = on_a_thread(lambda: collect(known, provider, store, Opens()))
    assert isinstance(result, collection.NotCollected)
    assert result.kind == kind
    assert len(result.exchanges) == len(provider.downloads) + len(provider.reads), "one exchange a call"
    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file() and path.name != ".artifact-store"] == []


def test_a_store_that_is_away_is_no_fault_of_the_document(provider: SimulatedProvider, tmp_path: Path) -> None:
    known = claim(JobState.RENDERED)
    result = on_a_thread(lambda: collect(known, provider, AwayStore(tmp_path), Opens()))
    assert (result.kind, result.words) == ("store", "The store is away.")
    assert issubclass(StoreUnavailable, StoreError)
    change = fetched.judge_not_collected(known, result, at(NOW, random.Random(1)))
    assert (change.move, change.job_fields["fetch_count"]) == (None, 0)


# --- the child that opens PDFs ---


CASES = Path(__file__).parent.parent / "cases"


def test_a_whole_file_opens_and_a_broken_one_says_why(checker: PdfChecker, tmp_path: Path) -> None:
    assert checker.check(CASES / "079-whole.pdf") == PdfFacts(1)
    broken = tmp_path / "broken.pdf"
    broken.write_bytes(b"%PDF-1.7\nnothing\n%%EOF\n")
    assert "cannot be opened" in checker.check(broken).problem
    assert checker.check(tmp_path / "absent.pdf") == PdfFacts(0, "It cannot be read (FileNotFoundError).")


def test_names_with_line_breaks_and_other_letters_are_one_question(checker: PdfChecker, tmp_path: Path) -> None:
    odd = tmp_path / "a\nb é.pdf"
    odd.write_bytes((CASES / "079-whole.pdf").read_bytes())
    assert checker.check(odd) == PdfFacts(1)


def test_a_child_that_died_is_replaced(checker: PdfChecker) -> None:
    assert checker.check(CASES / "079-whole.pdf").pages == 1
    assert checker._child is not None
    checker._child.kill()
    checker._child.wait()
    assert checker.check(CASES / "079-whole.pdf").pages == 1


HANGING_CHILD = """
import json, os, sys, time
for line in sys.stdin:
    if "endless" in line:
        time.sleep(600)
    if "crashing" in line:
        os._exit(11)
    print(json.dumps({"pages": 1, "problem": ""}), flush=True)
"""


@pytest.mark.parametrize(
    ("name", "problem"), [("endless.pdf", "takes longer than 0.5 s"), ("crashing.pdf", "crashes the PDF library")]
)
def test_a_file_that_hangs_or_crashes_the_library_is_bad_and_the_next_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, problem: str
) -> None:
    child = tmp_path / "child.py"
    child.write_text(HANGING_CHILD)
    monkeypatch.setattr(pdfcheck, "CHILD", child)
    checker = PdfChecker(seconds=0.5 if name == "endless.pdf" else 30)
    try:
        assert problem in checker.check(tmp_path / name).problem
        checker._seconds = 30
        assert checker.check(tmp_path / "fine.pdf").pages == 1
    finally:
        checker.close()


def test_a_child_that_a_thread_started_outlives_the_thread(tmp_path: Path) -> None:
    checker = PdfChecker(seconds=30)
    try:
        starter = threading.Thread(target=checker.check, args=(CASES / "079-whole.pdf",))
        starter.start()
        starter.join()
        child = checker._child
        assert child is not None
        assert checker.check(CASES / "079-whole.pdf") == PdfFacts(1)
        assert checker._child is child
    finally:
        checker.close()


def test_the_child_ends_with_its_input_and_by_its_alarm() -> None:
    command = [sys.executable, "-I", str(pdfcheck.CHILD), "5"]
    assert subprocess.run(command, input=b"", check=False, timeout=60).returncode == 0
    folder = str(pdfcheck.CHILD.parent)
    hangs = f"sys.path.append({folder!r}); import pdfcheck_child as c; c.look = lambda _path: time.sleep(600); c.main()"
    command = [sys.executable, "-I", "-c", f"import sys, time; {hangs}", "1"]
    done = subprocess.run(command, input=b'"endless.pdf"\n', check=False, timeout=60)
    assert done.returncode == -signal.SIGALRM


def test_a_file_whose_child_was_killed_from_outside_is_asked_of_a_fresh_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "child.py"
    mark = str(tmp_path / "died-once")
    dies = f"import os\nif not os.path.exists({mark!r}):\n    open({mark!r}, 'w')\n    os._exit(9)\n"
    child.write_text(dies + HANGING_CHILD)
    monkeypatch.setattr(pdfcheck, "CHILD", child)
    checker = PdfChecker(seconds=30)
    try:
        assert checker.check(tmp_path / "fine.pdf") == PdfFacts(1)
    finally:
        checker.close()


def test_questions_of_many_threads_get_their_own_answers(checker: PdfChecker, tmp_path: Path) -> None:
    broken = tmp_path / "broken.pdf"
    broken.write_bytes(b"no")
    answers: list[tuple[int, int]] = []

    def ask(number: int) -> None:
        path = CASES / "079-whole.pdf" if number % 2 else broken
        answers.append((number, checker.check(path).pages))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [(number, number % 2) for number in range(12)]


def test_a_file_that_crashes_the_library_takes_none_of_the_others_asked_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "child.py"
    child.write_text(HANGING_CHILD)
    monkeypatch.setattr(pdfcheck, "CHILD", child)
    checker = PdfChecker(seconds=30)
    names = [f"{'crashing' if number in (2, 3) else 'fine'}-{number}.pdf" for number in range(6)]
    questions = [pdfcheck._Question(tmp_path / name) for name in names]
    try:
        checker._ask(questions)
    finally:
        checker.close()
    assert [each.facts.pages for each in questions if each.facts] == [1, 1, 0, 0, 1, 1]


def test_a_sink_knows_what_passed_through_it() -> None:
    file = io.BytesIO()
    sink = collection.HashingSink(file)
    for part in (b"%P", b"DF-1.7", b" and more"):
        assert sink.write(part) == len(part)
    assert (sink.head, sink.byte_count) == (b"%PDF-1.7", 17)
    assert file.getvalue() == b"%PDF-1.7 and more"
    assert len(sink.hexdigest()) == 64


def test_what_was_downloaded_is_judged_by_what_arrived(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"")
    problem, _pages = collection.verify(path, b"", b"", Downloaded(0, "", (), exchange("download")), Opens())
    assert "not a PDF" in problem
    assert collection.result_ref(claim(JobState.RENDERED)) == ResultRef("pdf_7")
