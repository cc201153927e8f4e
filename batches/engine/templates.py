"""Our own templates as rows ask for them: found by name and version, compiled, and filled. Reads only.

Where versions come from is `template_uploads.py`, and which one rows get that pin none `publishing.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from batches import templating
from batches.manifests.problems import Code, Unfit
from batches.manifests.templates import MissingField
from batches.models import Template, TemplateVersion, Workspace
from batches.templating import MissingValue, NotFilled


@dataclass(frozen=True)
class Fillable:
    """One version of a template, ready to be filled: a `manifests.templates.RowTemplate`."""

    key: int
    slug: str
    number: int
    compiled: templating.Compiled = field(repr=False)

    @property
    def fields(self) -> Mapping[str, tuple[int, ...]]:
        return self.compiled.fields

    @property
    def optional(self) -> frozenset[str]:
        return self.compiled.optional

    def fill(self, data: Mapping[str, Any]) -> str:
        try:
            return self.compiled.fill(data)
        except MissingValue as missing:
            # The column may be there with this cell empty, or under another name that the mapping can mend.
            fix = f"Fill its cell, or give it in a column or a key {missing.path} (in a mapping: data.{missing.path})."
            raise MissingField(missing.path, self._told(missing), fix) from missing
        except NotFilled as reason:
            raise Unfit(Code.BAD_FIELD, self._told(reason), reason.problem.fix) from reason

    def _told(self, reason: NotFilled) -> str:
        line = reason.problem.line
        where = f", line {line:,}" if line else ""
        return f"{reason.problem.message} (Template {self.slug} v{self.number}{where}.)"


class WorkspaceTemplates:
    """The templates of a workspace, for one call: what was found once is not read again, nor what was not found."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._found: dict[tuple[str, int | None], Fillable | Unfit] = {}
        self._by_key: dict[int, Fillable] = {}

    def find(self, slug: str, number: int | None) -> Fillable:
        """This version, or the published one. Raises Unfit."""
        known = self._found.get((slug, number))
        if known is None:
            try:
                known = self._read(slug, number)
            except Unfit as unfit:
                known = unfit
            self._found[slug, number] = known
        if isinstance(known, Unfit):
            raise Unfit(known.code, known.message, known.fix)
        return known

    def _read(self, slug: str, number: int | None) -> Fillable:
        shown = slug[:60]
        is_text = "\0" not in slug  # PostgreSQL takes none
        template = Template.objects.filter(workspace=self._workspace, slug=slug).first() if is_text else None
        if template is None:
            words = f'There is no template called "{shown}" here.'
            raise Unfit(Code.UNKNOWN_TEMPLATE, words, "Upload it under Templates first, or correct its name.")
        if template.archived_at is not None:
            words = f'The template "{shown}" is archived.'
            raise Unfit(Code.UNKNOWN_TEMPLATE, words, "Use another one, or take it back under Templates.")
        if number is None and template.published_id is None:
            words = f'No version of the template "{shown}" is published.'
            raise Unfit(Code.TEMPLATE_NOT_PUBLISHED, words, "Publish one under Templates, or pin one.")
        chosen = {"pk": template.published_id} if number is None else {"number": number}
        version = TemplateVersion.objects.filter(template=template, **chosen).first() if _fits(number) else None
        if version is None:
            words = f'The template "{shown}" has no version {number}.'
            raise Unfit(Code.UNKNOWN_TEMPLATE, words, "Name one of its versions, or none for the published one.")
        if version.pk not in self._by_key:
            self._by_key[version.pk] = fillable(version, slug=template.slug)
        return self._by_key[version.pk]


def of(workspace: Workspace) -> WorkspaceTemplates:
    """The templates of a workspace as `manifests.read` asks for them."""
    return WorkspaceTemplates(workspace)


def fillable(version: TemplateVersion, *, slug: str = "") -> Fillable:
    """A stored version, compiled; it was checked when it was uploaded."""
    return Fillable(version.pk, slug or version.template.slug, version.number, templating.compiled(version.source))


def _fits(number: int | None) -> bool:
    return number is None or 0 < number < 2**31
