"""Where the tags, attributes and style sheets of an HTML text stand. It is read once from left to right and never
rewritten here; what Liquid will put in is seen as one foreign character after another."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass

#: What stands for each character of a `{{ … }}` and of a `{% … %}` while the HTML around is read.
VALUE, TAG = "\ue000", "\ue001"
_LIQUID = re.compile(r"\{[{%]")
_OPEN = re.compile(rf"<(!--|[A-Za-z{VALUE}{TAG}][^\s/>]*)")
_ATTRIBUTE = re.compile(r"""[\s/]*([^\s"'<>/=]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'=<>`]+)))?""")
#: Elements whose content is text up to their end tag.
_RAW_TEXT = frozenset({"style", "script", "textarea", "title", "xmp", "noscript"})


@dataclass(frozen=True, slots=True)
class Attribute:
    """`start` and `end` bound its value as it stands in the text, without quotes."""

    name: str
    start: int
    end: int
    is_quoted: bool
    raw: str

    @property
    def value(self) -> str:
        return html.unescape(self.raw)


@dataclass(frozen=True, slots=True)
class Element:
    """A start tag, or (`content`) with the bounds of the text that follows it, for `style` and `script`."""

    name: str
    start: int
    end: int
    attributes: tuple[Attribute, ...]
    content: tuple[int, int] | None = None

    def get(self, name: str) -> Attribute | None:
        return next((each for each in self.attributes if each.name == name), None)


def masked(source: str) -> str:
    """The text with each character of Liquid's replaced; places stay what they are."""
    parts: list[str] = []
    at = 0
    while found := _LIQUID.search(source, at):
        is_value = source[found.start() + 1] == "{"
        close = source.find("}}" if is_value else "%}", found.end())
        if close < 0:
            break
        parts += [source[at : found.start()], (VALUE if is_value else TAG) * (close + 2 - found.start())]
        at = close + 2
    return "".join([*parts, source[at:]])


def elements(text: str) -> Iterator[Element]:
    """The start tags of a masked text in their order; comments and the text of scripts hold none."""
    lowered = text.lower() if len(text.lower()) == len(text) else text
    at = 0
    while found := _OPEN.search(text, at):
        if found[1] == "!--":
            close = text.find("-->", found.end())
            if close < 0:
                return
            at = close + 3
            continue
        attributes, behind = _attributes(text, found.end())
        close = text.find(">", behind)
        if close < 0:
            return
        name, at = found[1].lower(), close + 1
        content = None
        if name in _RAW_TEXT:
            end = lowered.find(f"</{name}", at)
            content = (at, end if end >= 0 else len(text))
            at = content[1]
        yield Element(name, found.start(), close + 1, attributes, content)


def _attributes(text: str, at: int) -> tuple[tuple[Attribute, ...], int]:
    found: list[Attribute] = []
    while match := _ATTRIBUTE.match(text, at):
        group = next((number for number in (2, 3, 4) if match[number] is not None), 1)
        start, end = match.span(group) if group > 1 else (match.end(), match.end())
        found.append(Attribute(match[1].lower(), start, end, group in (2, 3), text[start:end]))
        at = match.end()
    return tuple(found), at
