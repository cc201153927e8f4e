"""Two clusters on one database share one account: its windows hold for both together, also across a restart."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.sandbox_process import start_sandbox
from tests.scenarios.pace import StallWatch, closest_breach
from tests.scenarios.stacks import environment, invoices, saved_count, submitted
from tests.stack_process import Stack, eventually

DOCUMENTS = 60
INTERVAL = 0.05
#: The trial tier's 20 in 60 s and 5 in 10 s, ten times as fast.
WINDOWS = [[20, 6], [5, 1]]


def fullest_breach(arrivals: Sequence[float], windows: Sequence[Sequence[int]]) -> float:
    """By how many seconds the worst group of arrivals is too close for a window; 0.0 or less when none is."""
    ordered = sorted(arrivals)
    return max(
        (length - (ordered[index + count] - ordered[index]))
        for count, length in windows
        for index in range(len(ordered) - count)
    )


@pytest.mark.parametrize(
    ("arrivals", "breach"),
    [([0.0, 0.1, 1.0, 1.1], 0.0), ([0.0, 0.1, 0.9], 0.1), ([0.0, 0.1, 2.0, 2.1, 2.2], 0.8)],
)
def test_every_window_of_arrivals_is_judged(arrivals: list[float], breach: float) -> None:
    assert fullest_breach(arrivals, [[2, 1]]) == pytest.approx(breach)


@pytest.mark.processes
def test_two_clusters_keep_every_window_together_also_across_a_restart(
    make_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    """Case 58. The sandbox refuses what comes too soon, as the provider would, so a breach would also show as a 429."""
    for attempt in range(1, 4):
        folder = tmp_path / f"run-{attempt}"
        folder.mkdir()
        sandbox = start_sandbox(folder, limits={"windows": WINDOWS})
        # Pump slots count for all hosts together: as many as both clusters have workers.
        first = make_stack(workers=5, data_dir=folder / "data", env=environment(sandbox, interval=INTERVAL))
        first.bootstrap()
        set_windows = first.manage("account", "relaypdf", "--set", f"submit_windows={json.dumps(WINDOWS)}")
        assert set_windows.returncode == 0, set_windows.stderr
        first.env["CLUSTER_WORKERS"] = "2"
        second = make_stack(workers=2, data_dir=folder / "data", env={"DATABASE_URL": first.database_url})
        batch_id = submitted(first, invoices(folder, DOCUMENTS))
        with StallWatch() as stalls:
            for stack in (first, second):
                stack.start()
            eventually(
                lambda: all(pumps_of(stack, first) for stack in (first, second)),  # noqa: B023 - asked at once
                "a pump in each cluster",
            )
            eventually(lambda: saved_count(first) >= DOCUMENTS // 3, "a third to be saved")  # noqa: B023 - asked at once
            second.kill9_cluster()
            second.start()
            eventually(lambda: saved_count(first) == DOCUMENTS, "all to be saved", within=180)  # noqa: B023 - asked at once
        arrivals = [arrival["monotonic"] for arrival in sandbox.arrivals()]
        refused = sandbox.ledger()["totals"]["rate_limited"]
        assert sandbox.ledger()["totals"]["jobs_billed"] == DOCUMENTS, batch_id
        for stack in (first, second):
            assert stack.stop() == 0
        sandbox.stop()
        breach = max(fullest_breach(arrivals, WINDOWS), closest_breach(arrivals, interval=INTERVAL))
        if breach <= 0 and not refused:
            return
        assert stalls.worst > breach, f"arrivals came {breach * 1000:.1f} ms too close on a machine that did not stall"
    pytest.fail("this machine stalled in each of three runs, so none of them could show the pace")


def pumps_of(stack: Stack, installation: Stack) -> set[int]:
    """Process ids of the cluster's workers that hold a pump slot in the installation's database."""
    owners = installation.query("SELECT owner FROM batches_pumpslot WHERE owner IS NOT NULL")
    pumps = {int(owner.split(":")[1]) for (owner,) in owners}
    return pumps & {process.pid for process in stack.processes()}
