"""What django-q2 runs: an interface to the engine, nothing more. Each is harmless when run twice or never."""

from __future__ import annotations

from django.conf import settings
from django.utils import timezone

from batches import cluster, lives, mailing
from batches.engine import pumping, staleness


def run_pump() -> None:
    pumping.run_pump(stopping=cluster.draining, life=lives.current())


def ensure_pumps() -> None:
    """Ring for due work, after what a dead cluster of this machine held has been given back."""
    lives.bury(settings.LIVES_DIR, pumping.take_over)
    pumping.ring_if_needed()
    pumping.ring_for_bulk_actions()
    pumping.ring_for_drafts()
    pumping.ring_for_exports()
    staleness.ring_for_unmarked(now=timezone.now())


def sweep() -> None:
    pumping.sweep()


def check_store() -> None:
    pumping.check_store()


def retain() -> None:
    pumping.retain()


def delete_copies() -> None:
    pumping.delete_copies()


def carry_out() -> None:
    pumping.carry_out(stopping=cluster.draining, life=lives.current())


def tell() -> None:
    """Note what happened to watched batches, and mail what is due."""
    mailing.run(now=timezone.now())


def work_on_drafts() -> None:
    pumping.work_on_drafts(stopping=cluster.draining, life=lives.current())


def work_on_exports() -> None:
    pumping.work_on_exports(stopping=cluster.draining, life=lives.current())


def mark_stale(template_id: int) -> None:
    staleness.mark(template_id, now=timezone.now())
