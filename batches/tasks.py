"""What django-q2 runs: an interface to the engine, nothing more. Each is harmless when run twice or never."""

from __future__ import annotations

from batches import cluster
from batches.engine import pumping


def run_pump() -> None:
    pumping.run_pump(stopping=cluster.draining)


def ensure_pumps() -> None:
    pumping.ring_if_needed()


def sweep() -> None:
    pumping.sweep()
