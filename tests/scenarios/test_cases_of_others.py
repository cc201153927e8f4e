"""Cases from the field about repeats, paces and bad records: each as a story of the engine (tests/cases has inputs)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from batches import selectors
from batches.engine import kept, links
from batches.models import Submission
from batches.providers import errors
from batches.providers.base import DocumentSource, PreparedRequest, ProviderConfig
from batches.providers.relaypdf import RelayPDF
from batches.providers.retry_after import parse_retry_after
from tests.engine.simulated import Complete, Fail, Lose, Refuse, Word
from tests.engine.vendor import pdf
from tests.providers.relaypdf_double import RelayPDFDouble
from tests.scenarios.world import World

CASES = Path(__file__).resolve().parent.parent / "cases"


def test_43_every_try_after_429_503_and_a_dropped_connection_has_one_key_and_the_same_bytes(world: World) -> None:
    world.provider.script(
        "INV-1", submit=[Refuse(errors.RateLimited, retry_after=2.0), Lose(errors.ServerFault), Lose()]
    )
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    arrivals = world.provider.arrivals_of("INV-1")
    assert len(arrivals) == 4
    assert len({(arrival.key, arrival.body_sha256) for arrival in arrivals}) == 1


def test_44_a_release_that_adds_an_option_sends_the_stored_bytes_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.provider.script("INV-1", submit=[Lose()])
    world.hand_over("INV-1")
    world.run_until(lambda: len(world.provider.arrivals) == 1)
    old = world.provider.prepare

    def with_a_new_default(source: DocumentSource) -> PreparedRequest:
        body = json.loads(old(source).body) | {"printBackground": True}
        return PreparedRequest(route="/v1/pdf", body=json.dumps(body).encode())

    monkeypatch.setattr(world.provider, "prepare", with_a_new_default)
    world.hand_over("INV-2")
    world.run_to_the_end()
    world.assert_saved(["INV-1", "INV-2"])
    first, second = world.provider.arrivals_of("INV-1")
    assert (first.key, first.body_sha256) == (second.key, second.body_sha256)


def test_44_a_conflict_that_stays_needs_a_person_and_makes_no_new_key(world: World) -> None:
    world.provider.script("INV-1", submit=itertools.chain([Lose()], itertools.repeat(Refuse(errors.KeyConflict))))
    batch = world.hand_over("INV-1")
    world.run_to_the_end(within=1800)
    assert world.failures() == {"INV-1": "idempotency_conflict"}
    assert selectors.batch_json(batch)["needs_attention"]
    assert Submission.objects.count() == 1
    assert len({arrival.key for arrival in world.provider.arrivals}) == 1


def test_46_a_slow_success_is_adopted_and_never_shown_as_failed(world: World) -> None:
    world.provider.script("INV-1", submit=[Lose()])
    world.provider.submit_seconds = 20.0
    seen: set[str] = set()
    world.hand_over("INV-1")
    world.clock.on_look = lambda: seen.update(world.states().values())
    world.run_to_the_end()
    world.clock.on_look = None
    world.assert_saved(["INV-1"])
    assert seen <= {"pending", "submitting", "accepted", "rendered", "saved"}


def test_49_a_conflict_while_the_first_request_runs_waits_for_as_long_as_a_slow_render(world: World) -> None:
    world.provider.script("INV-1", submit=[Lose(), *[Refuse(errors.KeyConflict)] * 3])
    world.hand_over("INV-1")
    started = world.clock.now()
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    assert world.provider.arrivals[-1].at - started > timedelta(seconds=30)


def test_53_every_id_of_the_case_is_sent_under_a_plain_key(world: World) -> None:
    rows: list[dict[str, Any]] = json.loads((CASES / "053-ids-for-headers.json").read_text(encoding="utf-8"))
    names = [row["id"] for row in rows]
    world.hand_over(*names)
    world.run_to_the_end()
    assert set(world.states().values()) == {"saved"}
    assert len(world.provider.arrivals) == len(names)
    for arrival in world.provider.arrivals:
        assert arrival.key.isascii()
        assert arrival.key.isalnum()
        assert len(arrival.key) == 64


def test_55_a_pause_given_as_a_date_holds_everybody_and_keeps_no_thread(world: World) -> None:
    now = world.clock.now()
    until = now + timedelta(seconds=90)
    wait = parse_retry_after(until.strftime("%a, %d %b %Y %H:%M:%S GMT"), now=now)
    world.provider.script("INV-1", submit=[Refuse(errors.RateLimited, retry_after=wait)])
    world.hand_over("INV-1")
    world.run_until(lambda: len(world.provider.arrivals) == 1)
    refused = world.provider.arrivals[0].at
    world.run_for(5)
    assert selectors.asked_to_wait_until(world.account, now=world.clock.now()) is not None
    assert world.job("INV-1").lease_owner is None, "nobody sits and waits"
    world.hand_over("INV-2")
    world.run_to_the_end()
    world.assert_saved(["INV-1", "INV-2"])
    assert min(arrival.at for arrival in world.provider.arrivals[1:]) >= refused + timedelta(seconds=90)


def wild_values() -> list[str]:
    lines = (CASES / "056-retry-after-values.txt").read_text(encoding="utf-8").splitlines()
    return [line.partition("|")[0].strip() for line in lines if "|" in line and not line.startswith("#")]


@pytest.mark.parametrize("value", wild_values())
@pytest.mark.parametrize("kind", [errors.RateLimited, errors.ServerFault])
def test_56_no_wild_retry_after_makes_a_hot_loop_or_an_endless_wait(
    world: World, value: str, kind: type[errors.ProviderError]
) -> None:
    wait = parse_retry_after(value, now=world.clock.now())
    world.provider.script("INV-1", submit=[Refuse(kind, retry_after=wait)] * 3)
    world.hand_over("INV-1")
    world.run_to_the_end(within=1800)
    world.assert_saved(["INV-1"])
    times = [arrival.at for arrival in world.provider.arrivals]
    gaps = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(times)]
    assert all(0.25 <= gap <= 310 for gap in gaps), gaps


def test_58_both_windows_of_the_vendor_hold_over_pumps_that_follow_each_other(
    make_world: Callable[..., World],
) -> None:
    world = make_world(submit_interval_ms=1, submit_windows=[[20, 60], [5, 10]], max_in_flight=100)
    names = [f"INV-{number}" for number in range(45)]
    world.hand_over(*names)
    world.run_to_the_end()  # a pump lives 40 s, so several take turns
    world.assert_saved(names)
    times = sorted(arrival.at for arrival in world.provider.arrivals)
    for count, seconds in ((20, 60), (5, 10)):
        spans = [(times[at + count] - times[at]).total_seconds() for at in range(len(times) - count)]
        assert min(spans) >= seconds


def test_59_ten_minutes_of_429_use_up_no_try_and_fail_nobody(world: World) -> None:
    names = [f"INV-{number}" for number in range(50)]
    world.hand_over(*names)
    world.provider.trouble = Refuse(errors.RateLimited, retry_after=10.0)
    world.run_for(600)
    assert set(world.states().values()) == {"pending"}
    world.provider.trouble = None
    world.run_to_the_end()
    world.assert_saved(names)
    assert set(Submission.objects.values_list("try_count", flat=True)) == {1}


def test_61_a_status_that_is_not_found_for_a_moment_costs_nothing(world: World) -> None:
    world.provider.script("INV-1", status=[*[Refuse(errors.NotFound)] * 5, Word("processing"), Complete()])
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    assert len(world.provider.arrivals) == 1


def test_61_a_status_that_is_never_found_ends_at_the_deadline_with_its_id_and_sends_nothing(world: World) -> None:
    world.provider.script("INV-1", status=itertools.repeat(Refuse(errors.NotFound)))
    world.hand_over("INV-1")
    world.run_to_the_end()
    job = world.job("INV-1")
    assert (job.state, job.failure_class) == ("deadline_exceeded", "job_not_found")
    assert "does not know this job" in job.failure_words
    assert job.state_changed_at >= job.deadline_at
    assert job.submissions.get().provider_job_id == world.provider.jobs_of("INV-1")[0].id
    assert len(world.provider.arrivals) == 1


@pytest.mark.parametrize(
    ("line", "shown"),
    list(
        zip(
            (CASES / "062-odd-status.jsonl").read_text(encoding="utf-8").splitlines(),
            [
                "Its last status was “rendering_fonts”.",
                "Its last status was “WAITING”.",
                "Its last answer named no status.",
                "Its last answer named no status.",
                "another job than the one that was asked for",
                *["no JSON object"] * 3,
            ],
            strict=True,
        )
    ),
)
def test_62_an_odd_status_is_neither_final_nor_success_and_the_deadline_ends_it(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, line: str, shown: str
) -> None:
    world = make_world(deadline_seconds=10)
    with RelayPDFDouble() as double:
        odd = [line.replace('"job_1"', '"%s"')]
        monkeypatch.setattr(double, "job_answer", lambda job_id: (200, odd[0].replace("%s", job_id).encode()))
        provider = RelayPDF(ProviderConfig(slug="relaypdf", base_url=double.url, api_key=double.api_key))
        monkeypatch.setattr(world, "provider", provider)
        world.hand_over("INV-1")
        world.run_until(lambda: world.job("INV-1").poll_count > 3)
        assert world.states() == {"INV-1": "accepted"}
        world.run_to_the_end()
        provider.close()
        assert len(double.seen("submit")) == 1
        assert double.seen("download") == []
    job = world.job("INV-1")
    assert (job.state, job.failure_class) == ("deadline_exceeded", "deadline_exceeded")
    assert shown in job.failure_words
    assert job.submissions.get().provider_job_id
    assert job.exchanges.filter(kind="poll").count() == job.poll_count


@pytest.mark.parametrize(
    "accepted_about",
    [
        pytest.param(datetime(2026, 3, 29, 0, 50, tzinfo=UTC), id="01:50, before the hour that there is not"),
        pytest.param(datetime(2026, 10, 25, 0, 50, tzinfo=UTC), id="02:50, the first time"),
        pytest.param(datetime(2026, 10, 25, 1, 50, tzinfo=UTC), id="02:50, the second time"),
    ],
)
def test_64_half_an_hour_is_half_an_hour_when_the_clocks_change(
    make_world: Callable[..., World], settings: Any, client: Client, admin_user: User, accepted_about: datetime
) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    world = make_world(deadline_seconds=1800)
    world.clock.advance((accepted_about - world.clock.now()).total_seconds())
    world.provider.script("INV-1", status=itertools.repeat(Word("processing")))
    world.provider.script("INV-2", status=[Complete()], download=itertools.repeat(Refuse(errors.ServerFault)))
    world.hand_over("INV-1", "INV-2")
    world.run_until(lambda: world.states() == {"INV-1": "accepted", "INV-2": "rendered"}, within=20)
    deadline_at = world.job("INV-1").deadline_at
    world.clock.advance((deadline_at - world.clock.now()).total_seconds() - 5)
    world.run_for(3)
    assert world.states()["INV-1"] == "accepted", "not before its time"
    world.run_until(lambda: world.states()["INV-1"] == "deadline_exceeded", within=20)
    job, row = world.job("INV-1"), world.job("INV-1").submissions.get()
    assert row.accepted_at - accepted_about < timedelta(seconds=10)
    assert job.deadline_at - row.accepted_at == timedelta(seconds=1800)
    assert timedelta(seconds=1800) <= job.state_changed_at - row.accepted_at < timedelta(seconds=1810)
    link = world.job("INV-2")
    rendered_at, result = link.events.get(to_state="rendered").at, link.submissions.get().result
    made_at = datetime.fromisoformat(result["made_at"])
    assert timedelta(0) <= rendered_at - made_at < timedelta(seconds=5)
    assert links.dies_at(rendered_at, result, kept.at_kind("relaypdf")) - made_at == timedelta(hours=24)
    client.force_login(admin_user)
    page = client.get(f"/documents/{link.version.document.public_id}/").text
    assert f'title="{link.deadline_at:%Y-%m-%d %H:%M:%S} UTC"' in page
    past = client.get(f"/documents/{job.version.document.public_id}/").text
    assert f"{job.state_changed_at:%Y-%m-%d %H:%M:%S} UTC" in past


def test_136_documents_that_never_end_there_end_here_and_the_one_beside_them_is_saved(world: World) -> None:
    for name in ("", "unreachable image"):  # the texts of all but H-4
        world.provider.script(name, status=itertools.repeat(Word("processing")))
    world.hand_over_file((CASES / "136-never-ends.json").read_bytes())
    world.run_to_the_end()
    assert world.states() == {f"H-{n}": "saved" if n == 4 else "deadline_exceeded" for n in range(1, 6)}
    assert world.stored("H-4") == pdf("normal")
    for name in ("H-1", "H-2", "H-3", "H-5"):
        job, row = world.job(name), world.job(name).submissions.get()
        assert row.provider_job_id in world.provider.jobs
        assert job.provider_status == "processing"
        for part in ("“processing”", "deadline 60 s", "in a batch of 5", "job id is kept"):
            assert part in job.failure_words
        assert job.lease_owner is None, "nobody is held up by it"
    assert len(world.provider.arrivals) == 5
    world.hand_over("INV-1")
    world.run_to_the_end(within=20)
    world.assert_saved(["INV-1"])


def test_103_a_fault_of_ours_and_a_500_on_a_download_stop_nobody_else(world: World) -> None:
    names = [f"INV-{number}" for number in range(1, 6)]
    world.provider.unpreparable["INV-3"] = ZeroDivisionError("a bug")
    world.provider.script("INV-4", download=itertools.repeat(Refuse(errors.ServerFault, "It answered 500.")))
    batch = world.hand_over(*names)
    totals: set[int] = set()
    looks = itertools.count()

    def look() -> None:
        if next(looks) % 40:
            return
        counts = selectors.batch_json(batch)["counts"]
        totals.add(sum(counts[key] for key in ("saved", "failed", "cancelled", "held", "in_progress")))

    world.clock.on_look = look
    world.run_for(60)
    world.clock.on_look = None
    assert totals == {5}
    assert world.states() == {
        "INV-1": "saved",
        "INV-2": "saved",
        "INV-3": "failed",
        "INV-4": "rendered",
        "INV-5": "saved",
    }
    assert "ZeroDivisionError" in world.job("INV-3").failure_words
    statuses = world.job("INV-4").exchanges.filter(kind="download").values_list("error_class", flat=True)
    assert set(statuses) == {"ServerFault"}


def test_104_an_error_text_of_a_megabyte_is_kept_and_ends_its_document(world: World) -> None:
    """The adapter cleans and shortens (its own tests); what still reaches the engine must never stop a pump."""
    world.provider.script("INV-1", status=[Fail("render_failed", "x" * 1_000_000)])
    world.provider.script("INV-2", status=[Fail("render_failed\x00", "Unexpected \x00 near <b>row</b>")])
    world.hand_over("INV-1", "INV-2", "INV-3")
    world.run_to_the_end()
    assert world.states()["INV-3"] == "saved"
    assert world.job("INV-1").state == "failed"
    assert world.job("INV-2").state == "failed"


def test_88_what_finished_while_nobody_worked_and_was_deleted_keeps_its_id_and_is_not_sent_again(world: World) -> None:
    names = ["INV-1", "INV-2", "INV-3"]
    for name in names:
        gone = [] if name == "INV-3" else [Refuse(errors.NotFound)] * 20
        world.provider.script(name, status=[Complete()] * 20, download=gone)
    world.hand_over(*names)
    world.run_until(lambda: set(world.states().values()) == {"accepted"})
    world.clock.advance(25 * 3600)
    world.run_to_the_end()
    assert world.states() == {"INV-1": "expired", "INV-2": "expired", "INV-3": "saved"}
    for name in names:
        assert len(world.provider.arrivals_of(name)) == 1
        assert world.job(name).submissions.get().provider_job_id == world.provider.jobs_of(name)[0].id
    assert "job id is kept" in world.job("INV-1").failure_words
