"""The sandbox put together: its state, its switches and the threads that work on them. Knows no HTTP."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Any

from batches.sandbox import switches as switch_rules
from batches.sandbox.clock import Clock
from batches.sandbox.deliveries import Deliveries
from batches.sandbox.faults import Faults, parse_rules
from batches.sandbox.jobs import JobRunner
from batches.sandbox.limiter import Limiter
from batches.sandbox.outputs import Outputs
from batches.sandbox.rendering import RendererPool
from batches.sandbox.store import Store
from batches.sandbox.switches import BadSwitch, Switches

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 5.0


class Sandbox:
    """Everything that handlers need. `base_url` is set once the server listens."""

    def __init__(self, folder: Path, patches: list[dict[str, Any]]) -> None:
        """Open the state in `folder`. Raises BadSwitch when a patch can't be applied.

        Switches: the defaults, then what was changed while an earlier run was alive, then `patches` in order.
        """
        self.folder = folder
        self.base_url = ""
        self.store = Store(folder)
        self.outputs = Outputs(folder / "outputs")
        self.clock = Clock(float(self.store.meta("clock_offset") or 0.0))
        self.limiter = Limiter()
        self.faults = Faults(self.store)
        self.switches = Switches()
        self._switch_lock = threading.Lock()
        self._stopping = threading.Event()
        self.renderer = RendererPool(folder / "renderer")
        self.deliveries = Deliveries(self.store, self.clock, self.faults, lambda: self.switches, lambda: self.base_url)
        self.runner = JobRunner(
            self.store,
            self.outputs,
            self.renderer,
            self.clock,
            lambda: self.switches,
            self.deliveries.announce_job,
            self.deliveries.wake,
        )
        for patch in patches:
            self._use(switch_rules.changed(self.switches, patch))
        self._started_with = self.switches
        self._recall_switches(patches)

    def start(self) -> None:
        """Start rendering and delivering. Raises FontsMissing or RendererUnavailable."""
        # Nobody is being answered after a start: what was in flight was cut off.
        with self.store.write() as tx:
            tx.execute("UPDATE keys SET answering = 0 WHERE answering = 1")
            tx.execute("UPDATE jobs SET rendering = 0 WHERE status = 'processing'")
        self.renderer.start()
        if not self.renderer.fences.network:
            logger.warning("The renderer has no network namespace of its own; the engine's own refusal has to do.")
        if not self.renderer.fences.files:
            logger.warning("The renderer can't be kept from files by the system; the engine's own refusal has to do.")
        self.runner.start()
        self.deliveries.start()

    def stop(self) -> None:
        """Stop all threads and the renderer; the state stays as it is."""
        self._stopping.set()
        self.runner.stop()
        self.deliveries.stop()
        self.renderer.stop()

    def change_switches(self, patch: dict[str, Any]) -> Switches:
        """Put `patch` into force, and into the memory of the next start. Raises BadSwitch."""
        with self._switch_lock:
            self._use(switch_rules.changed(self.switches, patch))
            if "faults" in patch:
                self.faults.forget()
            self._remember({**self._remembered(), **switch_rules.flattened(patch)})
        self.runner.wake()
        return self.switches

    def restore_switches(self) -> Switches:
        """Back to the switches that this process was started with."""
        with self._switch_lock:
            self._use(self._started_with)
            self.faults.forget()
            self._remember({})
        self.runner.wake()
        return self.switches

    def _use(self, new: Switches) -> None:
        rules = parse_rules(new.faults)
        self.switches = new
        self.faults.use(rules, new.seed)

    def _remembered(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.store.meta("switches") or "{}")
        return found

    def _remember(self, flat: dict[str, Any]) -> None:
        self.store.set_meta("switches", json.dumps(flat))

    def _recall_switches(self, patches: list[dict[str, Any]]) -> None:
        """Put changes that were made while an earlier run was alive into force, unless the start says otherwise."""
        given = {name for patch in patches for name in switch_rules.flattened(patch)}
        for name, value in self._remembered().items():
            if name in given:
                continue
            try:
                self._use(switch_rules.changed(self.switches, {name: value}))
            except BadSwitch as error:
                logger.warning("A remembered switch is dropped: %s", error)

    def advance_clock(self, seconds: float) -> float:
        offset = self.clock.advance(seconds)
        self.store.set_meta("clock_offset", repr(offset))
        return offset

    def reset(self) -> None:
        """Forget jobs, keys, files, money and records; settings and webhook endpoints stay."""
        self.runner.forget()
        files = [row["id"] for row in self.store.all("SELECT id FROM files")]
        self.store.reset()
        self.limiter.forget()
        for file_id in files:
            self.outputs.remove(file_id)

    def require_slot(self, account: str) -> None:
        """Count a request against the account's limits. Raises ApiError (429)."""
        self.limiter.require_slot(
            account, self.switches.limits, now=self.clock.now(), system_now=self.clock.system_now()
        )

    def pause(self, seconds: float) -> None:
        """Hold a request up on purpose (a fault); ends early when the sandbox stops."""
        if seconds > 0:
            self._stopping.wait(seconds)

    @property
    def stopping(self) -> threading.Event:
        return self._stopping
