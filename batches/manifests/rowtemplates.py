"""What a row says to a template: which one, which version, and the data. Pure; each raises Unfit with whole sentences.

Knows no template by itself and fills none.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from batches.manifests import keys, values
from batches.manifests.choices import Choices
from batches.manifests.jsonrows import JsonValue, plain
from batches.manifests.problems import Code, Unfit, shown

_MAX_SLUG_CHARACTERS = 200
_MAX_VERSION_DIGITS = 9
_SEPARATORS = frozenset({"Cc", "Cs", "Zl", "Zp"})


def slug(row: Mapping[str, JsonValue], choices: Choices) -> str:
    """The template that the row names, or the one that was chosen for rows that name none."""
    value = row.get("template")
    if value is None:
        return choices.template
    if not isinstance(value, str) or not values.is_text(value):
        raise Unfit(Code.WRONG_TYPE, "template has to be text.", "Write the template's short name in quotes.")
    name = value.strip()
    if not name or len(name) > _MAX_SLUG_CHARACTERS or any(unicodedata.category(each) in _SEPARATORS for each in name):
        message = f"{shown(value, 60)} cannot be the name of a template."
        raise Unfit(Code.UNKNOWN_TEMPLATE, message, "Give the template's short name.")
    return name


def version(row: Mapping[str, JsonValue], choices: Choices) -> int | None:
    """The version that the row asks for; None for the one that is published."""
    value = row.get("template_version")
    if value is None:
        return choices.template_version if row.get("template") is None else None
    digits = value.strip() if isinstance(value, str) else ""
    if not digits.isascii() or not digits.isdigit() or len(digits) > _MAX_VERSION_DIGITS or not int(digits):
        shown_value = shown(str(plain(value)), 40)
        message = f"template_version is {shown_value}; it has to be a whole number from 1 up."
        raise Unfit(Code.WRONG_TYPE, message, "Give the number of a version, or leave it out for the published one.")
    return int(digits)


def data_of(row: Mapping[str, JsonValue], business_id: str) -> dict[str, Any]:
    """What the template is filled from: `data`, with the row's keys that mean nothing else, and the row's id.

    Numbers are int or float; those that neither can hold stay text.
    """
    given = row.get("data")
    if not isinstance(given, dict | None):
        raise Unfit(Code.WRONG_TYPE, "data has to be an object.", 'Write it as {"customer": {"name": "Lindqvist"}}.')
    data: dict[str, Any] = {} if given is None else plain(given)
    for key, value in row.items():
        if key in keys.NO_DATA or key.startswith(keys.REMARK):
            continue
        if key in data:
            message = f"{shown(key, 40)} stands in the row and in its data."
            raise Unfit(Code.DUPLICATE_KEY, message, "Keep one of them.")
        data[key] = plain(value)
    own = data.setdefault("id", business_id)
    if own != business_id:
        if not isinstance(own, str | int) or str(own).strip() != business_id:
            message = f"data says that the id is {shown(str(own), 60)}; the row's is {shown(business_id)}."
            raise Unfit(Code.DUPLICATE_KEY, message, "Leave id out of data: the template gets the row's.")
        data["id"] = business_id
    return data


def for_provider(row: Mapping[str, JsonValue], business_id: str, choices: Choices) -> str:
    """What is sent to a template that the provider keeps, in its one spelling (`canonical`)."""
    return canonical(slug(row, choices), pinned_version(row, choices), data_of(row, business_id))


def pinned_version(row: Mapping[str, JsonValue], choices: Choices) -> int:
    """The version that the row asks for of a template that the provider keeps."""
    number = version(row, choices)
    if number is None:
        message = f"The row names no version of the template {shown(slug(row, choices), 60)}."
        raise Unfit(
            Code.MISSING_FIELD, message, 'Give "template_version": without it two tries could print two layouts.'
        )
    return number


def canonical(template: str, number: int, data: Mapping[str, Any]) -> str:
    """The one spelling of what is sent to a template that the provider keeps."""
    stored = {"template": template, "version": number, "data": data}
    return json.dumps(stored, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def unused(data: Mapping[str, Any], fields: Mapping[str, object]) -> Iterator[str]:
    """Paths of `data` that no field of a template reads. A list is looked at as a whole; the id is every row's."""
    whole = frozenset(map(_plain_path, fields)) | {"id"}
    return _unused(data, frozenset(_heads(fields)), whole, "")


def with_field(data: Mapping[str, Any], path: str, value: object) -> dict[str, Any] | None:
    """`data` with `value` at `path`; None where it cannot be put there."""
    first, _, rest = path.partition(".")
    if not first or "[" in first:
        return None
    if not rest:
        return {**data, first: value}
    inner = data.get(first, {})
    filled = with_field(inner, rest, value) if isinstance(inner, dict) else None
    return None if filled is None else {**data, first: filled}


def _unused(data: Mapping[str, Any], heads: frozenset[str], whole: frozenset[str], above: str) -> Iterator[str]:
    for key, value in data.items():
        path = above + key
        if path in whole:
            continue  # the template reads it, and whatever stands inside
        if path not in heads:
            yield path
        elif isinstance(value, dict):
            yield from _unused(value, heads, whole, path + ".")


def _heads(fields: Mapping[str, object]) -> Iterator[str]:
    """The objects that the fields stand in: `a` and `a.b` for `a.b.c`."""
    for field in map(_plain_path, fields):
        at = field.find(".")
        while at >= 0:
            yield field[:at]
            at = field.find(".", at + 1)


def _plain_path(field: str) -> str:
    """`lines` for `lines[0].sku` and `lines[].sku`: what stands inside of a list is not told apart."""
    return field.partition("[")[0]
