"""What a face hands to the engine when a person applies a verb, and what comes back of each item."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from batches.engine import verbs
from batches.engine.audit import By
from batches.engine.verbs import Answer, Planned, Standing
from batches.models import ItemResult, ProviderAccount, Verb


@dataclass(frozen=True)
class NewInput:
    """Other content for a document: `text` is HTML, Markdown, a URL, or JSON for a template, by `kind`
    (`models.SourceKind`)."""

    kind: str
    text: str = field(repr=False)
    filename: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    template_version_id: int | None = None
    """The version of our template that made the text, and what it was filled from; both or neither."""
    template_data: Mapping[str, Any] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Order:
    """Who wants it, why, and what they have accepted. Rights were checked by the face that made it.

    `is_confirmed`: they were shown `Answer.to_confirm` and went on. For Regenerate, `inputs` are new contents by item,
    and `versions` the versions that they looked at (primary keys): an item that names another one by now is skipped.
    `planned`, by item, is what a confirmed plan showed: it stands in for `is_confirmed`, and an item that moved on
    since is skipped. `is_audited` is false where a bulk action keeps the record of its items itself.
    `account` is where a new version is rendered; None: at that of the batch.
    """

    by: By
    reason: str = ""
    is_confirmed: bool = False
    may_regenerate_final: bool = False
    inputs: Mapping[int, NewInput] = field(default_factory=dict)
    versions: Mapping[int, int] = field(default_factory=dict)
    planned: Mapping[int, Planned] = field(default_factory=dict)
    is_audited: bool = True
    account: ProviderAccount | None = None

    def why_not(self, verb: Verb, item_id: int, standing: Standing, answer: Answer) -> str:
        """Why the verb is not applied to an item that stands so under the locks; empty where it is."""
        if not answer.allowed:
            return answer.words
        if planned := self.planned.get(item_id):
            return verbs.moved_on(verb, planned, standing, answer)
        return "" if self.is_confirmed else answer.to_confirm


@dataclass(frozen=True)
class Result:
    """What became of one item: done, skipped with the reason, or failed through a fault of ours."""

    result: ItemResult
    words: str = ""

    @property
    def is_done(self) -> bool:
        return self.result is ItemResult.DONE
