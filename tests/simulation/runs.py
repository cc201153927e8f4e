"""Runs the simulator in a process of its own, as its database in memory must be nobody else's."""

from __future__ import annotations

import os
import subprocess
import sys

#: With the planted bugs, about a minute of two workers each; `make simulate SEEDS=20000` runs more.
SEEDS = 120
#: Where the second file of them begins: whoever has it has the planted bugs as well.
FURTHER = 70


def simulate(*arguments: str, hash_seed: str = "random") -> subprocess.CompletedProcess[str]:
    """`python -m tests.simulation` with these arguments."""
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        env={**environment, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )


def assert_clean(seeds: range) -> None:
    """Nothing is wrong in any of these runs."""
    ran = simulate("--first", str(seeds.start), "--seeds", str(len(seeds)), "--processes", "1")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{len(seeds)} runs" in ran.stdout
    assert "every promise held in every run" in ran.stdout
