"""Templates that the account keeps: the sandbox has none of its own making, and prints their data as a table.

Which there are is a switch (`templates.published`), and so is what each needs a value for. Pure: fields in, a page out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from batches.sandbox.answers import invalid, not_found
from batches.sandbox.switches import TemplateSwitches

_PAGE = """<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>{name}</title><style>
body {{ font-family: sans-serif; font-size: 11pt; }}
th, td {{ border: 1px solid #999; padding: 2pt 6pt; text-align: left; vertical-align: top; }}
</style></head><body>
<h1>{name}, version {version}</h1>
<table>{rows}</table>
</body></html>
"""


def page(slug: str, fields: Mapping[str, Any], switches: TemplateSwitches) -> str:
    """What a published template makes of `templateData`. Raises ApiError: 404 for a template or version that is not
    published, 400 for a path without a value where `strict` asks for all of them."""
    newest = switches.published.get(slug, 0)
    version = fields.get("templateVersion") or newest
    if not newest or version > newest:
        what = f"{slug[:80]!r}" if version == newest or not newest else f"{slug[:80]!r} in version {version}"
        raise not_found(f"No published template {what}.")
    data = fields.get("templateData") or {}
    if fields.get("strict"):
        missing = [path for path in switches.reads.get(slug, ()) if not _has_value(data, path)]
        if missing:
            raise invalid(f"The template has no value for {', '.join(missing)}.", fields=missing)
    rows = "".join(f"<tr><th>{escape(path)}</th><td>{escape(_text(value))}</td></tr>" for path, value in _leaves(data))
    return _PAGE.format(name=escape(slug), version=version, rows=rows)


def _has_value(data: Any, path: str) -> bool:
    for name in path.split("."):
        data = data.get(name) if isinstance(data, dict) else None
    return data is not None


def _leaves(data: Any) -> Iterator[tuple[str, Any]]:
    """Values with their paths, in the order of the data."""
    waiting: list[tuple[str, Any]] = [("", data)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend((f"{path}.{key}".lstrip("."), each) for key, each in reversed(value.items()))
        elif isinstance(value, list):
            waiting.extend((f"{path}[{index}]", each) for index, each in reversed([*enumerate(value)]))
        else:
            yield path, value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
