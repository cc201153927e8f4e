"""Runs the simulator in a process of its own, as its database in memory must be nobody else's."""

from __future__ import annotations

import os
import subprocess
import sys


def simulate(*arguments: str, hash_seed: str = "random") -> subprocess.CompletedProcess[str]:
    """`python -m tests.simulation` with these arguments."""
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        env={**environment, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
