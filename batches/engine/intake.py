"""From an upload to a batch: read and planned by `check`, which stores nothing, and started by `start`, at most once.

The same creation key never makes a second batch, and two starts that race for one business id leave one winner and one
refusal. How the rows are written is `writing.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, BinaryIO, cast

from batches import manifests
from batches.engine import (
    accounts,
    agreed,
    estimates,
    existing,
    keys,
    leftout,
    notices,
    spending,
    stopping,
    templates,
    terms,
    waiting,
    writing,
)
from batches.engine.agreed import Agreed
from batches.engine.audit import By
from batches.engine.errors import IntakeRefused
from batches.engine.writing import Writing
from batches.manifests import Action, Manifest, ManifestSource, OnConflict, Plan, PlannedRow
from batches.manifests.choices import NO_CHOICES, Choices
from batches.models import Batch, ProviderAccount, TakeRows, Workspace
from batches.storage import ArtifactStore, manifest_key

#: Column names that a batch keeps for its failed list; JSON rows may each have their own.
COLUMNS_MOST = 1000

BEGUN_OTHERWISE = (
    "Starting it was begun with other content or at another account, and was interrupted; what was begun is cancelled "
    "now, and nothing of it was sent. Check the file again."
)


def unheard(row_count: int) -> None:
    """Nobody asked how far it is."""


@dataclass(frozen=True)
class Check:
    """A manifest that was read, and what starting it would do. Nothing is stored yet; close the manifest when done."""

    manifest: Manifest
    plan: Plan
    workspace: Workspace
    account: ProviderAccount
    waiting: tuple[dict[str, Any], ...] = ()
    """The notices of `waiting.notices`."""
    take: str = TakeRows.ALL
    choices: Choices = NO_CHOICES
    """What the manifest was read with."""
    estimate: estimates.Estimate | None = None

    @property
    def ok(self) -> bool:
        """Whether it may be started. The good rows can be taken where there are any and the upload itself is sound."""
        if self.take != TakeRows.GOOD:
            return self.manifest.ok and self.plan.ok
        return bool(self.rows) and all(problem.rows for problem in self.manifest.errors)

    @property
    def rows(self) -> tuple[PlannedRow, ...]:
        """The rows that a start writes."""
        return tuple(planned for planned in self.plan.rows if planned.action is not Action.REFUSED)

    @property
    def render_count(self) -> int:
        """Documents that a start sends."""
        return sum(planned.sends for planned in self.rows)

    @property
    def left_out_count(self) -> int:
        """Rows that a start of the good ones leaves out."""
        return self.manifest.row_count - len(self.rows)

    def report(self) -> dict[str, Any]:
        """The validation answer: counts per outcome, errors and warnings grouped by code, notices."""
        report = self.manifest.report(self.plan)
        added: dict[str, Any] = {"take": str(self.take), "left_out": self.left_out_count, "ok": self.ok}
        added["contents_sha256"] = agreed.contents_sha256(self.manifest.rows)
        if self.estimate is not None:
            added["estimate"] = self.estimate.as_dict()
        return report | added | {"notices": [*report["notices"], *self.waiting]}


def check(
    source: ManifestSource,
    *,
    workspace: Workspace,
    account: ProviderAccount,
    on_conflict: str,
    choices: Choices = NO_CHOICES,
    take: str = TakeRows.ALL,
    progress: Callable[[int], None] = unheard,
) -> Check:
    """Read a manifest whole and compare it with what the workspace has. Raises `manifests.ManifestRefused`.

    `progress` is told now and then how many rows were read; what it raises passes on.
    """
    limits = accounts.document_limits(account)
    manifest = manifests.read(source, limits, choices=choices, templates=templates.of(workspace), progress=progress)
    try:
        plan = _plan(manifest, workspace, account, OnConflict(on_conflict))
        progress(manifest.row_count)
        checked = Check(manifest, plan, workspace, account, waiting.notices(workspace, plan), take, choices)
        return replace(checked, estimate=estimates.of(account, checked.render_count))
    except BaseException:
        manifest.close()
        raise


def _plan(manifest: Manifest, workspace: Workspace, account: ProviderAccount, on_conflict: OnConflict) -> Plan:
    known = existing.documents(workspace, account, [row.business_id for row in manifest.rows])
    return manifests.plan(manifest, known, on_conflict, account_slug=account.slug)


def start(
    checked: Check,
    *,
    name: str,
    actor: Any,
    actor_words: str,
    from_where: str,
    creation_key: str,
    store: ArtifactStore,
    now: datetime,
    confirmed: bool = False,
    shown: Agreed | None = None,
    rules: stopping.Rules = stopping.NO_RULES,
    spend_cap: Decimal | None = None,
    hold: str = "",
    sample_size: int = 0,
    notify: Sequence[Any] = (),
    progress: Callable[[int], None] = unheard,
) -> Batch:
    """Write the plan down and ring for pumps. The same `creation_key` returns the same batch, and goes on writing it
    where a start of it died.

    `confirmed` says that the person has seen the notices that ask for it, `shown` what the check said to them (None:
    they go by this very one). `rules` and `spend_cap` are of a new batch; with `hold` it waits, paused for that reason,
    until somebody resumes it, with `sample_size` until somebody has looked at so many documents of it and releases it
    (`samples.py`). The people in `notify` hear of its events. Raises `IntakeRefused` with nothing left to be sent.
    """
    digest = keys.kept(creation_key)
    known = Batch.objects.filter(workspace=checked.workspace, creation_key=digest).first()
    if known is not None and known.writing_at is None:
        return known
    try:
        _refuse_unless_startable(checked, known, confirmed=confirmed, shown=shown, spend_cap=spend_cap)
    except IntakeRefused as refused:
        if known is not None:
            writing.give_up(known, refused.words, now=now)
        raise
    starter = By(actor, actor_words, from_where)
    batch = known or _batch(checked, name, starter, digest, store, rules, spend_cap, progress=progress, now=now)
    if known is None:
        batch.notify = notices.wanted_by(notify)
    facts = {"name": batch.name, "manifest_sha256": batch.manifest_sha256}
    wanted = Writing(
        batch=batch,
        rows=checked.rows,
        starter=starter,
        store=store,
        replan=lambda rows: _planned_again(checked, rows),
        facts=facts | ({"left_out": checked.left_out_count} if checked.left_out_count else {}),
        summary=dict(known.report["summary"]) if known else checked.plan.summary(),
        hold=hold,
        sample_size=sample_size,
        progress=progress,
        now=now,
    )
    writing.write(wanted, is_begun=known is not None)
    return Batch.objects.get(workspace=checked.workspace, creation_key=digest)


def _planned_again(checked: Check, rows: Sequence[PlannedRow]) -> Plan:
    """Some rows of the manifest against what the workspace has by now."""
    part = replace(checked.manifest, rows=tuple(planned.row for planned in rows))
    return _plan(part, checked.workspace, checked.account, checked.plan.on_conflict)


def _batch(
    checked: Check,
    name: str,
    starter: By,
    digest: str,
    store: ArtifactStore,
    rules: stopping.Rules,
    spend_cap: Decimal | None,
    *,
    progress: Callable[[int], None],
    now: datetime,
) -> Batch:
    """The batch's row, not yet written; the manifest that it names is in the store."""
    stored_key = manifest_key(checked.workspace.slug, checked.manifest.upload_sha256)
    stored = store.put(stored_key, cast(BinaryIO, checked.manifest.upload))
    left_out_key = leftout.keep(
        checked.manifest, checked.plan, store, workspace_slug=checked.workspace.slug, progress=progress
    )
    batch = Batch(
        public_id=keys.public_id("bat"),
        workspace=checked.workspace,
        account=checked.account,
        name=name.strip()[:200] or checked.manifest.filename[:200],
        manifest_name=checked.manifest.filename,
        manifest_key=stored_key,
        manifest_sha256=checked.manifest.upload_sha256,
        manifest_bytes=stored.byte_count,
        report=_kept_report(checked),
        left_out_key=left_out_key,
        on_conflict=checked.plan.on_conflict.value,
        creation_key=digest,
        terms=terms.of_account(checked.account),
        created_by=starter.actor,
        created_at=now,
    )
    rules.apply(batch)
    spending.put_cap(batch, spend_cap)
    return batch


def _refuse_unless_startable(
    checked: Check, known: Batch | None, *, confirmed: bool, shown: Agreed | None, spend_cap: Decimal | None
) -> None:
    """`known` is what a start that died has begun."""
    if known is not None and known.cancelled_at is not None:
        raise IntakeRefused(writing.CANCELLED)
    if known is not None and not _is_of(checked, known):
        raise IntakeRefused(BEGUN_OTHERWISE)
    if not checked.ok:
        raise IntakeRefused("The manifest has errors; nothing was started.")
    if checked.account.archived_at or checked.account.workspace_id not in (None, checked.workspace.pk):
        raise IntakeRefused(f"The account {checked.account.slug} cannot be used by this workspace.")
    if unsafe := accounts.problems(checked.account):
        raise IntakeRefused(f"The account {checked.account.slug} cannot be used as it is set. {' '.join(unsafe)}")
    if checked.plan.needs_confirmation and not confirmed:
        rows = len(checked.plan.needs_confirmation)
        raise IntakeRefused(f"{rows} of its rows need a confirmation first; see the notices of the check.")
    if shown is not None and (words := agreed.why_not(shown, _by_now(checked, known))):
        raise IntakeRefused(words)
    if known is None:
        spending.refuse_to_start(checked.account, spend_cap, checked.render_count)


def _is_of(checked: Check, known: Batch) -> bool:
    """Whether what was begun is this: the same contents at the same account. Never half of one and half of another."""
    contents = agreed.contents_sha256(checked.manifest.rows)
    return known.report.get("contents_sha256") == contents and known.account_id == checked.account.pk


def _by_now(checked: Check, known: Batch | None) -> Agreed:
    """What a start would do, together with what one that died has done already."""
    there = writing.last_position(known) if known else -1
    left = [planned for planned in checked.rows if planned.row.position > there]
    renders = sum(planned.sends for planned in left) + (writing.written_renders(known) if known else 0)
    to_confirm = {planned.row.position for planned in checked.plan.needs_confirmation}
    return Agreed(
        renders,
        agreed.contents_sha256(checked.manifest.rows),
        checked.left_out_count,
        frozenset(position for position in to_confirm if position > there),
    )


_KEPT = ("summary", "warnings", "notices", "encoding", "format", "delimiter", "container", "contents_sha256")


def _kept_report(checked: Check) -> dict[str, Any]:
    """What a batch's page shows of the check later, and what its corrected rows are read with; the errors are none, or
    those of the rows that were left out."""
    report = checked.report()
    kept = {name: report[name] for name in _KEPT}
    if checked.left_out_count:
        kept |= {"left_out": checked.left_out_count, "errors": report["errors"], "left_out_places": _places(checked)}
    if checked.choices != NO_CHOICES:
        kept["choices"] = checked.choices.as_dict()
    return kept | kept_columns(checked.manifest.columns)


def kept_columns(columns: Sequence[str], *, are_all: bool = True) -> dict[str, Any]:
    """What a batch's report says of columns: as many as are kept, and whether those are all that its rows have."""
    return {
        "columns": list(columns[:COLUMNS_MOST]),
        "columns_are_all": are_all and len(columns) <= COLUMNS_MOST,
    }


def _places(checked: Check) -> dict[str, list[Any]]:
    """Line and id of the rows that are left out and that no error describes one by one, by their position."""
    problems = (*checked.manifest.errors, *checked.plan.errors)
    described = {place.position for problem in problems for place in problem.places}
    left_out = checked.manifest.left_out(checked.plan)
    return {str(each.position): [each.line, each.business_id] for each in left_out if each.position not in described}
