"""Read-only: bulk actions over all batches that a person may see, by filters, newest first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Q, QuerySet

from batches import actions, cursors, listings
from batches.actions import Chosen, Counts
from batches.cursors import Page
from batches.failedlist import Wanted
from batches.models import BulkAction, ItemResult, Verb, Workspace
from batches.selectors import Person
from batches.wording import Badge

ACTIONS_PER_PAGE = 30
STATES: Mapping[str, str] = {
    "running": "Running",
    "planned": "Planned",
    "finished": "Finished",
    "aborted": "Aborted",
}
FILTERS = ("state", "verb", "mine", "workspace", "q")


@dataclass(frozen=True)
class Filters:
    """What the list is narrowed to; empty says nothing. `q` is part of a batch's name, or the id of an action."""

    state: str = ""
    verb: str = ""
    mine: str = ""
    workspace: str = ""
    q: str = ""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Filters:
        state, verb, workspace = (given.get(name, "") for name in ("state", "verb", "workspace"))
        return cls(
            state=state if state in STATES else "",
            verb=verb if verb in Verb.values else "",
            mine="1" if given.get("mine") else "",
            workspace=workspace if len(workspace) <= 60 and workspace.isprintable() else "",
            q=given.get("q", ""),
        )

    @property
    def asked(self) -> dict[str, str]:
        return {name: text for name in FILTERS if (text := getattr(self, name))}


@dataclass(frozen=True)
class ActionRow:
    action: BulkAction
    counts: Counts
    reads_content: bool = False

    @property
    def badge(self) -> Badge:
        return actions.badge(self.action)

    @property
    def key(self) -> str:
        return self.action.public_id

    @property
    def revision(self) -> str:
        """Changes whenever what the row shows does."""
        return listings.digest(self.badge.label, self.counts)

    @property
    def is_running(self) -> bool:
        return self.action.confirmed_at is not None and self.action.finished_at is None

    @property
    def url(self) -> str:
        return actions.address(self.action)

    @property
    def where(self) -> str:
        return actions.where(self.action)

    @property
    def words(self) -> list[str]:
        """What its documents were chosen by."""
        if self.action.batch_id is None:
            return Wanted.of_action(self.action).words
        return Chosen.of_action(self.action).shown(reads_content=self.reads_content).words

    @property
    def result_words(self) -> str:
        """`220 done, 10 skipped`"""
        names = (
            (ItemResult.DONE, "done"),
            (ItemResult.SKIPPED, "skipped"),
            (ItemResult.FAILED, "failed"),
            (ItemResult.ABORTED, "not done"),
            (ItemResult.WAITING, "waiting"),
        )
        return ", ".join(f"{count:,} {words}" for result, words in names if (count := self.counts.of(result)))


def page(
    person: Person,
    workspaces: Sequence[Workspace],
    filters: Filters,
    *,
    reading: Collection[int],
    after: str = "",
    before: str = "",
) -> Page[ActionRow]:
    """Newest first, by keyset. Cursors that make no sense are ignored. `reading`: the workspaces whose content the
    person may see."""
    found = _filtered(person, workspaces, filters).select_related("batch", "workspace")
    found = found.defer("batch__report")
    of_page = cursors.page(found, "planned_at", after=after, before=before, limit=ACTIONS_PER_PAGE)
    return Page(rows(of_page.rows, reading=reading), of_page.before, of_page.after)


def rows_of(workspaces: Sequence[Workspace], public_ids: Iterable[str], *, reading: Collection[int]) -> list[ActionRow]:
    """The actions of these ids as they are now, as far as they are in these workspaces."""
    found = BulkAction.objects.filter(workspace__in=workspaces, public_id__in=list(public_ids))
    return rows(list(found.select_related("batch", "workspace").defer("batch__report")), reading=reading)


def rows(found: Sequence[BulkAction], *, reading: Collection[int] = ()) -> list[ActionRow]:
    counted = actions.counts_of(found)
    return [ActionRow(action, counted[action.pk], action.workspace_id in reading) for action in found]


def _filtered(person: Person, workspaces: Sequence[Workspace], filters: Filters) -> QuerySet[BulkAction]:
    found = BulkAction.objects.filter(workspace__in=workspaces)
    match filters.state:
        case "running":
            found = found.filter(confirmed_at__isnull=False, finished_at=None)
        case "planned":
            found = found.filter(confirmed_at=None, finished_at=None)
        case "finished":
            found = found.filter(finished_at__isnull=False, aborted_at=None)
        case "aborted":
            found = found.filter(aborted_at__isnull=False)
    if filters.verb:
        found = found.filter(verb=filters.verb)
    if filters.mine:
        found = found.filter(actor=person.pk)
    if filters.workspace:
        found = found.filter(workspace__slug=filters.workspace)
    if not filters.q:
        return found
    if "\0" in filters.q:
        return found.none()
    return found.filter(Q(batch__name__icontains=filters.q) | Q(public_id=filters.q) | Q(batch__public_id=filters.q))
