"""Templates that only know `{{ a.b }}`, for what rows and templates have to do with each other. Not the real engine."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from batches.manifests.problems import Code, Unfit
from batches.manifests.templates import MissingField

_FIELD = re.compile(r"\{\{\s*([\w.]+)\s*\}\}")


@dataclass
class FakeTemplate:
    """Fills `source`; counts how often."""

    source: str
    slug: str = "invoice"
    number: int = 14
    key: int = 1
    filled: int = field(default=0, compare=False)

    @property
    def fields(self) -> Mapping[str, tuple[int, ...]]:
        lines = enumerate(self.source.splitlines(), start=1)
        found: dict[str, tuple[int, ...]] = {}
        for number, line in lines:
            for path in _FIELD.findall(line):
                found[path] = (*found.get(path, ()), number)
        return found

    @property
    def optional(self) -> frozenset[str]:
        return frozenset()

    def fill(self, data: Mapping[str, Any]) -> str:
        self.filled += 1
        return _FIELD.sub(lambda match: html.escape(str(self._value(data, match[1]))), self.source)

    def _value(self, data: Mapping[str, Any], path: str) -> Any:
        value: Any = data
        for name in path.split("."):
            if not isinstance(value, Mapping) or name not in value:
                message = f"Template {self.slug} v{self.number} needs {path}."
                raise MissingField(path, message, "Fill the column or mark it optional.")
            value = value[name]
        if isinstance(value, Mapping | list):
            raise Unfit(Code.WRONG_TYPE, f"{path} is no text.", "Give text or a number.")
        return value


class FakeTemplates:
    """The published version of each slug is its highest number that is not in `drafts`."""

    def __init__(self, *templates: FakeTemplate, drafts: tuple[int, ...] = ()) -> None:
        self.templates = templates
        self.drafts = drafts
        self.asked: list[tuple[str, int | None]] = []

    def find(self, slug: str, number: int | None) -> FakeTemplate:
        self.asked.append((slug, number))
        named = [each for each in self.templates if each.slug == slug]
        if not named:
            raise Unfit(Code.UNKNOWN_TEMPLATE, f'There is no template called "{slug}" here.', "Upload it first.")
        if number is not None:
            named = [each for each in named if each.number == number]
        published = [each for each in named if each.number not in self.drafts]
        if not published:
            raise Unfit(Code.TEMPLATE_NOT_PUBLISHED, f'The template "{slug}" has no such version.', "Publish it.")
        return max(published, key=lambda each: each.number)
