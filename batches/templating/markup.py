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
#: What is printed as it stands, and what is not printed at all.
_RAW = re.compile(r"\{%-?\s*raw\s*-?%\}")
_COMMENT = re.compile(r"\{%-?\s*comment\s*-?%\}")
_END_RAW = re.compile(r"\{%-?\s*endraw\s*-?%\}")
_IN_COMMENT = re.compile(r"\{%-?\s*(end)?comment\s*-?%\}")
_OPEN = re.compile(rf"<(!--|[A-Za-z{VALUE}{TAG}][^\s/>]*)")
_COMMENT_END = re.compile(r"--!?>")
#: As browsers read them: a stray quote belongs to a name, and one inside of an unquoted value to that. What a document
#: loads is found by `manifests/references.py` in a way of its own: it rewrites nothing, and takes stray quotes for
#: gaps, so that a tag that is written badly hides nothing.
_ATTRIBUTE = re.compile(r"""[\s/]*([^\s>/][^\s>/=]*)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"'][^\s>]*)))?""")
#: Elements whose content is text up to their end tag. Entities mean nothing in `LITERAL_TEXT`: what is escaped there
#: is printed, or run, with its escapes.
LITERAL_TEXT = frozenset({"style", "script", "xmp", "iframe", "noembed", "noframes"})
_BEHIND_NAME = ("", ">", "/", " ", "\t", "\n", "\r", "\f")
_RAW_TEXT = LITERAL_TEXT | {"textarea", "title"}


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
    are_closed = True
    while found := _LIQUID.search(source, at):
        bounds = _untouched(source, found.start()) if are_closed else None
        if bounds:
            begin, end, close = bounds
            if close < 0:
                are_closed = False  # it is no template then
                continue
            parts += [source[at : found.start()], TAG * (begin - found.start()), source[begin:end], TAG * (close - end)]
            at = close
            continue
        is_value = source[found.start() + 1] == "{"
        close = source.find("}}" if is_value else "%}", found.end())
        if close < 0:
            break
        parts += [source[at : found.start()], (VALUE if is_value else TAG) * (close + 2 - found.start())]
        at = close + 2
    return "".join([*parts, source[at:]])


def _untouched(source: str, at: int) -> tuple[int, int, int] | None:
    """Where the text of a `raw` that begins here stands, and where its end tag ends (-1: nowhere). A comment is all
    tag. None where neither begins here."""
    if raw := _RAW.match(source, at):
        end = _END_RAW.search(source, raw.end())
        return (raw.end(), end.start(), end.end()) if end else (at, at, -1)
    if comment := _COMMENT.match(source, at):
        depth, behind = 1, comment.end()
        while depth and (found := _IN_COMMENT.search(source, behind)):
            depth += -1 if found[1] else 1
            behind = found.end()
        return (at, at, -1) if depth else (behind, behind, behind)
    return None


def elements(text: str) -> Iterator[Element]:
    """The start tags of a masked text in their order; comments and the text of scripts hold none."""
    lowered = text.lower() if len(text.lower()) == len(text) else text
    at = 0
    while found := _OPEN.search(text, at):
        if found[1] == "!--":
            end = _COMMENT_END.search(text, found.start() + 2)  # `<!-->` is whole
            if end is None:
                return
            at = end.end()
            continue
        attributes, behind = _attributes(text, found.end())
        close = text.find(">", behind)
        if close < 0:
            return
        name, at = found[1].lower(), close + 1
        content = None
        if name in _RAW_TEXT:
            content = (at, _end_of(name, lowered, at))
            at = content[1]
        yield Element(name, found.start(), close + 1, attributes, content)


def styles(source: str) -> list[tuple[int, int]]:
    """Where the style sheets of a template stand in its text, in order."""
    return [each.content for each in elements(masked(source)) if each.name == "style" and each.content]


def _end_of(name: str, lowered: str, at: int) -> int:
    """Where the end tag of `name` begins, or the text ends."""
    end = lowered.find(f"</{name}", at)
    while end >= 0 and lowered[end + 2 + len(name) : end + 3 + len(name)] not in _BEHIND_NAME:
        end = lowered.find(f"</{name}", end + 2)
    return end if end >= 0 else len(lowered)


def _attributes(text: str, at: int) -> tuple[tuple[Attribute, ...], int]:
    found: list[Attribute] = []
    while match := _ATTRIBUTE.match(text, at):
        group = next((number for number in (2, 3, 4) if match[number] is not None), 1)
        start, end = match.span(group) if group > 1 else (match.end(), match.end())
        found.append(Attribute(match[1].lower(), start, end, group in (2, 3), text[start:end]))
        at = match.end()
    return tuple(found), at
