"""On the page Regenerate: the data that a template made a document of, edited, and filled again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from batches.engine import templates
from batches.engine.orders import NewInput
from batches.manifests import Limits
from batches.manifests.problems import Unfit
from batches.manifests.single import read_single
from batches.models import DocumentVersion, TemplateVersion

#: Data of a document; a row of a manifest may hold more, which is edited nowhere.
DATA_MOST = 1_000_000


@dataclass(frozen=True)
class Source:
    """What the version was made with, and what else it may be filled with: the published version, if it is another."""

    made_with: TemplateVersion
    published: TemplateVersion | None
    data: str

    @property
    def choices(self) -> list[TemplateVersion]:
        return [self.made_with, *([self.published] if self.published else [])]


def source_of(version: DocumentVersion) -> Source | None:
    """None for a version that no template of ours made, or whose data is too large to be edited or was deleted."""
    if version.template_version_id is None or version.input_deleted_at is not None:
        return None
    found = TemplateVersion.objects.select_related("template__published").get(pk=version.template_version_id)
    data = json.dumps(version.template_data, ensure_ascii=False, indent=2)
    if len(data) > DATA_MOST:
        return None
    published = found.template.published
    is_other = published is not None and published.pk != found.pk and found.template.archived_at is None
    return Source(found, published if is_other else None, data)


def filled(
    source: Source, *, number: str, given: str, business_id: str, options: str, filename: str, limits: Limits
) -> tuple[NewInput | None, list[str]]:
    """The new input, or what is wrong. `number` is the chosen version of the template, `given` the data as JSON."""
    chosen = next((each for each in source.choices if str(each.number) == number), None)
    if chosen is None:
        return None, ["Choose a version of the template."]
    try:
        data = _parsed(given)
        text = templates.fillable(chosen).fill(data)
    except Unfit as unfit:
        return None, [f"{unfit.message} {unfit.fix}"]
    except ValueError as error:
        return None, [f"The data is no JSON object ({error})."]
    found = read_single(
        business_id=business_id, kind="html", content=text, filename=filename, options=options, limits=limits
    )
    if found.row is None or found.errors:
        return None, list(found.errors)
    return NewInput("html", found.text, found.row.filename, found.row.options, chosen.pk, data), []


def _parsed(given: str) -> Mapping[str, Any]:
    try:
        data = json.loads(given)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if not isinstance(data, dict):
        raise ValueError("it has to begin with a brace")
    if "\\u0000" in given or "\0" in given:
        raise ValueError("it holds a NUL character")
    return data
