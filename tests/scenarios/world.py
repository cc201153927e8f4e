"""A small world for stories: the real pump, threads and store against a simulated provider, in virtual time."""

from __future__ import annotations

import hashlib
import io
import json
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO

from batches import manifests
from batches.conf import ENGINE, EngineConf
from batches.engine import intake
from batches.engine.accounts import Providers
from batches.engine.clock import Clock
from batches.engine.pdfcheck import PdfChecker
from batches.engine.pump import Pump
from batches.models import Alert, Artifact, Batch, Job, ProviderAccount
from batches.providers.base import Provider
from batches.storage import StoredObject, StoreFull
from batches.storage.disk import DiskStore
from tests import factories
from tests.engine.simulated import SimulatedProvider
from tests.engine.vendor import pdf
from tests.engine.virtual_time import VirtualClock

#: Seconds between the end of a pump and the next ring of the doorbell.
RING_SECONDS = 1.0


class PumpKilled(BaseException):
    """The pump's process is gone at this very instant: no handler of the engine may see it."""


class TroubledStore(DiskStore):
    """A real store on disk that counts its writes, and has no room while `is_full`."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.is_full = False
        self.puts: list[str] = []

    def put(self, key: str, source: Path | BinaryIO) -> StoredObject:
        if self.is_full:
            raise StoreFull("No space is left in the store.")
        stored = super().put(key, source)
        if not isinstance(source, Path):  # a path comes back as the file that it names
            self.puts.append(key)
        return stored

    def put_if_absent(self, key: str, source: Path) -> StoredObject | None:
        if self.is_full:
            raise StoreFull("No space is left in the store.")
        stored = super().put_if_absent(key, source)
        self.puts.append(key)
        return stored


class _Simulated(Providers):
    """Every account is served by the simulated provider, but for those that have one of their own."""

    def __init__(self, provider: Provider, own: Mapping[int, Provider]) -> None:
        super().__init__()
        self._provider = provider
        self._own = own

    def of(self, account: ProviderAccount) -> Provider:
        return self._own.get(account.pk, self._provider)

    def close(self) -> None:
        """The provider outlives a pump, as a real one does."""


class World:
    """One workspace, one account, one simulated provider; `other_account` adds a pair of the last two.

    `run_until` rings for pumps as the cluster would.
    """

    def __init__(self, folder: Path, checker: PdfChecker, **account: Any) -> None:
        self.clock = VirtualClock(factories.NOW)
        self.provider = SimulatedProvider(self.clock)
        self.store = TroubledStore(folder / "store")
        self.store.ensure()
        self.checker = checker
        self.workspace = factories.make_workspace()
        defaults = {
            "submit_interval_ms": 100,
            "poll_initial_ms": 500,
            "poll_max_ms": 2000,
            "deadline_seconds": 60,
            "max_in_flight": 20,
        }
        self._defaults = defaults
        self.account = factories.make_account(**defaults | account)
        self.own_providers: dict[int, SimulatedProvider] = {}  # by account
        self._pumps = 0

    # --- what people do ---

    def other_account(self, provider: SimulatedProvider, **columns: Any) -> ProviderAccount:
        """One more account, at a provider of its own."""
        account = factories.make_account(**self._defaults | columns)
        self.own_providers[account.pk] = provider
        return account

    def hand_over(self, *names: str, account: ProviderAccount | None = None, **start: Any) -> Batch:
        """Start a batch of small documents through the real intake; a document's business id is its `<h1>`."""
        rows = [{"id": name, "html": f"<h1>{name}</h1>"} for name in names]
        return self.hand_over_file(json.dumps(rows).encode(), account=account, **start)

    def hand_over_file(self, manifest: bytes, *, account: ProviderAccount | None = None, **start: Any) -> Batch:
        """Start a batch of what a JSON manifest says; `start` goes to `intake.start` as it is."""
        source = manifests.from_upload(io.BytesIO(manifest), "manifest.json")
        checked = intake.check(source, workspace=self.workspace, account=account or self.account, on_conflict="refuse")
        with checked.manifest:
            return intake.start(
                checked,
                name="",
                actor=None,
                actor_words="a test",
                from_where="command line",
                creation_key=hashlib.sha256(manifest).hexdigest(),
                store=self.store,
                now=self.clock.now(),
                **start,
            )

    def providers(self) -> Providers:
        """The adapters, as a pump or a verb gets them."""
        return _Simulated(self.provider, self.own_providers)

    # --- pumps ---

    def pump(
        self, *, stopping: Callable[[], bool] = lambda: False, clock: Clock | None = None, conf: EngineConf = ENGINE
    ) -> Pump:
        self._pumps += 1
        return Pump(
            owner=f"pump-{self._pumps}",
            clock=clock or self.clock,
            rng=random.Random(self._pumps),
            providers=self.providers(),
            store=self.store,
            checker=self.checker,
            stopping=stopping,
            conf=conf,
        )

    def run_until(self, condition: Callable[[], bool], *, within: float = 600.0) -> None:
        """Run pump after pump until `condition` holds, for at most `within` virtual seconds."""
        gives_up_at = self.clock.now() + timedelta(seconds=within)
        while not condition():
            assert self.clock.now() < gives_up_at, f"it never came true; {self.states()} {self.failures()}"
            self.pump(stopping=condition).run()
            self.clock.advance(RING_SECONDS)

    def run_for(self, seconds: float) -> None:
        ends_at = self.clock.now() + timedelta(seconds=seconds)
        while self.clock.now() < ends_at:
            self.pump(stopping=lambda: self.clock.now() >= ends_at).run()
            self.clock.advance(min(RING_SECONDS, max(0.0, (ends_at - self.clock.now()).total_seconds())))

    def run_to_the_end(self, *, within: float = 600.0) -> None:
        """Until no job is left that a pump could move on."""
        self.run_until(self.is_over, within=within)

    def is_over(self) -> bool:
        return not Job.objects.filter(state__in=("pending", "submitting", "accepted", "rendered")).exists()

    def kill_when(self, condition: Callable[[], bool]) -> None:
        """The next pump dies at the first instant between two of its statements at which `condition` holds."""

        def look() -> None:
            if condition():
                self.clock.on_look = None
                raise PumpKilled

        self.clock.on_look = look

    def killed(self) -> bool:
        """Run one pump; true when it was killed."""
        try:
            self.pump().run()
        except PumpKilled:
            return True
        finally:
            self.clock.on_look = None
        return False

    # --- what there is to see ---

    def job(self, name: str) -> Job:
        return Job.objects.get(version__document__business_id=name, version__document__workspace=self.workspace)

    def states(self) -> dict[str, str]:
        return dict(Job.objects.order_by("pk").values_list("version__document__business_id", "state"))

    def failures(self) -> dict[str, str]:
        rows = Job.objects.exclude(failure_class="").order_by("pk")
        return dict(rows.values_list("version__document__business_id", "failure_class"))

    def reasons(self, name: str) -> list[str]:
        return list(self.job(name).events.order_by("pk").values_list("reason", flat=True))

    def open_alerts(self) -> list[str]:
        return sorted(Alert.objects.filter(closed_at=None).values_list("kind", flat=True))

    def account_now(self) -> ProviderAccount:
        return ProviderAccount.objects.get(pk=self.account.pk)

    def stored(self, name: str) -> bytes:
        """The bytes of the saved PDF, read from the store by the artifact's own key."""
        artifact = Artifact.objects.get(
            version__document__business_id=name, version__document__workspace=self.workspace
        )
        with self.store.open(artifact.storage_key) as stream:
            return stream.read()

    def assert_saved(self, names: Sequence[str], *, billed_once: bool = True) -> None:
        """Every one of them is saved with its own PDF, and billed once."""
        for name in names:
            job = self.job(name)
            assert job.state == "saved", (name, self.states(), self.failures(), self.reasons(name))
            assert (job.lease_owner, job.failure_class) == (None, "")
            assert self.stored(name) == pdf(name)
            if billed_once:
                provider = self.own_providers.get(job.account_id, self.provider)
                assert len(provider.jobs_of(name)) == 1, (name, provider.arrivals_of(name))
