"""Downloads have a lane of their own: its pace, its pauses, and the slot of the status read for another link."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, BinaryIO

import pytest

from batches.engine import pacing
from batches.models import Exchange, Lane, PacingLane, ProviderAccount
from batches.providers import errors
from batches.providers.base import Downloaded, JobStatus, ResultRef
from tests.engine.simulated import Complete, Refuse, Word
from tests.scenarios.world import World

NAMES = [f"INV-{number}" for number in range(1, 13)]


@pytest.fixture
def asked_at(world: World, monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """When each download was begun."""
    seen: list[datetime] = []
    download = world.provider.download

    def noted(ref: ResultRef, sink: BinaryIO, *, max_bytes: int, now: datetime) -> Downloaded:
        seen.append(world.clock.now())
        return download(ref, sink, max_bytes=max_bytes, now=now)

    monkeypatch.setattr(world.provider, "download", noted)
    return seen


def test_a_limit_on_one_download_holds_back_the_whole_backlog_as_long_as_was_asked(
    world: World, asked_at: list[datetime]
) -> None:
    ProviderAccount.objects.update(submit_interval_ms=1)
    world.provider.download_seconds = 0.5
    for name in NAMES:  # they come to their end together
        world.provider.script(name, status=[Word("processing")])
    world.provider.script(NAMES[0], download=[Refuse(errors.RateLimited, retry_after=20.0)])
    world.hand_over(*NAMES)
    world.run_to_the_end()
    world.assert_saved(NAMES)
    limited_at = Exchange.objects.get(kind="download", error_class="RateLimited").at
    answered_at = limited_at + timedelta(seconds=0.6)
    assert not [at for at in asked_at if answered_at < at < limited_at + timedelta(seconds=20)]
    assert max(asked_at) >= limited_at + timedelta(seconds=20)
    assert PacingLane.objects.get(lane=Lane.DOWNLOAD).cool_down_until_us > pacing.to_us(limited_at)
    assert not PacingLane.objects.filter(lane__in=(Lane.SUBMIT, Lane.POLL), cool_down_until_us__gt=0).exists()


def test_a_pause_that_another_pump_was_asked_for_holds_here_too(world: World, asked_at: list[datetime]) -> None:
    until = world.clock.now() + timedelta(seconds=30)
    pacing.cool_down(world.account.pk, Lane.DOWNLOAD, until)
    world.hand_over("INV-1", "INV-2")
    world.run_to_the_end()
    world.assert_saved(["INV-1", "INV-2"])
    assert min(asked_at) >= until


def test_a_pace_of_downloads_is_kept_and_can_be_changed_while_they_wait(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(submit_interval_ms=1, download_interval_ms=2000)
    seen: list[datetime] = []
    download = world.provider.download

    def noted(*given: Any, **named: Any) -> Downloaded:
        seen.append(world.clock.now())
        return download(*given, **named)

    monkeypatch.setattr(world.provider, "download", noted)
    world.hand_over(*NAMES)
    world.run_until(lambda: len(seen) == 4)
    assert min(later - earlier for earlier, later in itertools.pairwise(seen)) >= timedelta(seconds=1.9)
    ProviderAccount.objects.update(download_interval_ms=100)
    changed_at = world.clock.now()
    world.run_to_the_end()
    world.assert_saved(NAMES)
    assert seen[-1] - changed_at < timedelta(seconds=8), "at the old pace it would have been sixteen"


def test_the_read_for_another_link_takes_a_slot_of_the_status_reads(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(poll_interval_ms=4000)
    names = NAMES[:6]  # more than the four status reads that may leave together
    reads: list[datetime] = []
    fetch_status = world.provider.fetch_status

    def noted(provider_job_id: str, *, now: datetime) -> JobStatus:
        reads.append(world.clock.now())
        return fetch_status(provider_job_id, now=now)

    monkeypatch.setattr(world.provider, "fetch_status", noted)
    for name in names:
        world.provider.script(name, status=[Complete()], download=[Refuse(errors.NotFound)])
    world.hand_over(*names)
    world.run_to_the_end()
    world.assert_saved(names)
    assert len(reads) == 12
    for first, last in itertools.combinations(range(12), 2):
        assert reads[last] - reads[first] >= timedelta(seconds=4 * (last - first - 3) - 0.4)


def test_a_limit_on_the_read_for_another_link_pauses_the_status_reads(world: World) -> None:
    world.provider.script(
        "INV-1",
        status=[Complete(), Refuse(errors.RateLimited, retry_after=10.0)],
        download=[Refuse(errors.NotFound), Refuse(errors.NotFound)],
    )
    world.hand_over("INV-1")
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    at = Exchange.objects.get(error_class="RateLimited").at
    assert PacingLane.objects.get(lane=Lane.POLL).cool_down_until_us >= pacing.to_us(at + timedelta(seconds=10))
    assert not PacingLane.objects.filter(lane=Lane.DOWNLOAD, cool_down_until_us__gt=0).exists()
