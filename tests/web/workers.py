"""Workers for tests of pages: what the cluster would run, run here until nothing is due, against a real sandbox."""

from __future__ import annotations

from batches import tasks
from batches.engine import pumping, slots
from batches.models import ProviderAccount
from tests.sandbox_process import SandboxProcess


def use_sandbox(account: ProviderAccount, sandbox: SandboxProcess) -> None:
    """Have the account's documents rendered by this sandbox, one pump at a time."""
    account.base_url, account.api_key = sandbox.url, sandbox.api_key
    account.save()
    slots.ensure(1)


def let_workers_work() -> None:
    """What the cluster runs when it is rung: confirmed bulk actions, then a pump until nothing is due."""
    tasks.carry_out()
    pumping.run_pump(stopping=lambda: False)
