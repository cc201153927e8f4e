"""What was read as finished is fetched before the database knows it, and the database still learns all in order."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.db.models import F

from batches.engine import writes
from batches.engine.changes import Change
from batches.models import Artifact, Exchange, Job, JobEvent, JobState
from batches.providers import errors
from tests.engine.simulated import Finish, Refuse
from tests.scenarios.world import World

ALL_EDGES = [
    ("pending", "submitting"),
    ("submitting", "accepted"),
    ("accepted", "rendered"),
    ("rendered", "saved"),
]


@pytest.fixture
def written(world: World, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The state that each write brought a job to, with the number of downloads that had begun by then."""
    seen: list[tuple[str, int]] = []
    write_round = writes.write_round

    def noted(group: Sequence[Change], **given: Any) -> set[int]:
        moves = [change.move.to_state.value for change in group if change.move]
        seen.extend((state, len(world.provider.downloads)) for state in moves)
        return write_round(group, **given)

    monkeypatch.setattr(writes, "write_round", noted)
    return seen


def edges() -> list[tuple[str, str]]:
    return list(JobEvent.objects.order_by("id").values_list("from_state", "to_state"))


def test_a_quick_download_is_written_together_with_what_went_before_it(
    world: World, written: list[tuple[str, int]]
) -> None:
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    assert written == [("accepted", 0), ("saved", 1)]
    assert edges() == ALL_EDGES
    job = world.job("INV-1")
    submission = job.submissions.get()
    assert (submission.outcome, bool(submission.result), job.provider_status) == ("delivered", True, "completed")
    assert set(Exchange.objects.values_list("kind", flat=True)) == {"submit", "poll", "download"}


def test_a_slow_download_keeps_nobody_from_knowing_that_the_job_is_finished(
    world: World, written: list[tuple[str, int]]
) -> None:
    world.provider.download_seconds = 2.0
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    assert written == [("accepted", 0), ("rendered", 1), ("saved", 1)]
    assert edges() == ALL_EDGES
    assert len(world.provider.downloads) == 1, "it is not begun again once the status is written"


def test_a_download_that_brings_no_pdf_leaves_the_job_finished_and_it_is_fetched_again(
    world: World, written: list[tuple[str, int]]
) -> None:
    world.provider.script("INV-1", download=[Refuse(errors.ServerFault)])
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    assert [state for state, _downloads in written] == ["accepted", "rendered", "saved"]
    assert len(world.provider.downloads) == 2


def test_nothing_is_fetched_before_the_provider_job_id_is_in_the_database(
    world: World, written: list[tuple[str, int]]
) -> None:
    """Where the answer to the submission brought the result at once."""
    world.provider.script("INV-1", submit=[Finish()])
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    assert written == [("rendered", 0), ("saved", 1)]


def test_a_database_that_goes_away_meanwhile_learns_both_when_it_is_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_together, away = writes._write_together, []

    def failing(group: Sequence[Change], *given: Any, **named: Any) -> set[int]:
        if world.provider.downloads and len(away) < 3:
            away.append(1)
            raise OperationalError("gone")
        return write_together(group, *given, **named)

    monkeypatch.setattr(writes, "_write_together", failing)
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    assert len(away) == 3
    assert edges() == ALL_EDGES
    assert len(world.provider.downloads) == 1


def test_a_holder_whose_lease_ran_out_meanwhile_changes_nothing_and_the_next_one_saves_it(world: World) -> None:
    taken: list[int] = []

    def take_over() -> None:
        if world.provider.downloads and not taken:
            taken.append(1)
            now = world.clock.now()
            Job.objects.update(
                lease_owner="another", lease_until=now + timedelta(seconds=20), fencing_token=F("fencing_token") + 1
            )

    world.clock.on_look = take_over
    world.hand_over("INV-1")
    world.run_until(lambda: JobEvent.objects.filter(reason="stale_write_refused").exists())
    assert world.states() == {"INV-1": JobState.ACCEPTED}
    assert not Artifact.objects.exists()
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    assert len(world.provider.arrivals) == 1
    assert world.reasons("INV-1").count("stored") == 1
