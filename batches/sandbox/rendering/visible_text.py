"""The text a reader should find in the PDF of an HTML document, as far as markup alone tells.

Errs towards less: text whose visibility can't be judged without laying the page out is left out, so that a
document is never refused for words it was right to hide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

# Never painted as text, or painted only by engines with scripts and plug-ins.
_SILENT = frozenset(
    {
        *("script", "style", "head", "title", "template", "noscript", "noframes", "noembed"),
        *("textarea", "select", "option", "optgroup", "datalist"),
        *("iframe", "object", "video", "audio", "canvas", "map", "math", "rp", "switch"),
        *("defs", "symbol", "desc", "metadata", "clippath", "mask", "pattern", "marker"),
    }
)
_VOID = frozenset(
    {
        *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta"),
        *("param", "source", "track", "wbr"),
    }
)
_HIDING = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|content-visibility\s*:\s*hidden"
    r"|opacity\s*:\s*0(?:\.0*)?%?\s*(?:;|!|$)|font-size\s*:\s*0(?:\.0*)?[a-z%]*\s*(?:;|!|$)"
    r"|(?<![-\w])(?:color|fill)\s*:\s*(?:none|transparent|rgba\([^)]*,\s*0(?:\.0*)?\s*\))"
    r"|(?<![-\w])(?:text-indent|left|top|right|bottom)\s*:\s*-\d{2}|(?<![-\w])clip(?:-path)?\s*:"
    r"|transform\s*:[^;]*scale[xy]?\(\s*0(?:\.0*)?\s*[,)]",
    re.IGNORECASE,
)
_CLIPPING = re.compile(r"overflow(?:-[xy])?\s*:\s*(?:hidden|clip)", re.IGNORECASE)
_TINY = re.compile(
    r"(?<![-\w])(?:max-)?(?:height|width)\s*:\s*[01](?:\.\d*)?(?:px|pt|r?em|mm)?\s*(?:;|!|$)", re.IGNORECASE
)
# Attributes of SVG that say what styles say elsewhere.
_PRESENTATION = ("display", "visibility", "opacity", "fill")
_STYLE_SHEET = re.compile(r"<style\b[^>]*>(.*?)</style", re.IGNORECASE | re.DOTALL)
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_COMBINATOR = re.compile(r"[\s>+~]+")
_IN_BRACKETS = re.compile(r"\[[^\]]*\]|\([^)]*\)")
_COMPOUND = re.compile(r"([a-z][\w-]*)?((?:[.#][\w-]+)*)", re.IGNORECASE)


@dataclass(frozen=True)
class VisibleText:
    """`certain` is False when a style sheet hides things by a selector that could mean anything."""

    text: str
    certain: bool


@dataclass
class _Hidden:
    """What style rules hide: pairs of a tag (or "") and one `.class` or `#id` (or "")."""

    marks: set[tuple[str, str]] = field(default_factory=set)
    anything: bool = False

    def add(self, selector: str) -> None:
        """Take in a selector by its last part; more may match than really would."""
        last = _COMBINATOR.split(_IN_BRACKETS.sub("", selector).strip())[-1]
        if "::" in last or re.search(r":(?:before|after|first-line|first-letter|marker)", last):
            return
        match = _COMPOUND.fullmatch(last.partition(":")[0])
        if match is None or not (match[1] or match[2]):
            self.anything = True
            return
        mark = re.split(r"(?=[.#])", match[2])[-1] if match[2] else ""
        self.marks.add(((match[1] or "").lower(), mark))

    def matches(self, tag: str, attributes: dict[str, str | None]) -> bool:
        if not self.marks:
            return False
        own = ["", *(f".{name}" for name in (attributes.get("class") or "").split())]
        own.append(f"#{attributes.get('id') or ''}")
        return any((name, mark) in self.marks for name in ("", tag) for mark in own)


def visible_text(html: str) -> VisibleText:
    """The text of `html` without what its markup and its own style rules hide."""
    hidden = _hidden_by_rules(html)
    reader = _Reader(hidden)
    reader.feed(html)
    reader.close()
    return VisibleText(" ".join(reader.parts), certain=not hidden.anything)


def _hidden_by_rules(html: str) -> _Hidden:
    hidden = _Hidden()
    for sheet in _STYLE_SHEET.findall(html):
        for selectors, body in _RULE.findall(_COMMENT.sub("", sheet)):
            if _hides(body):
                for selector in selectors.split(","):
                    hidden.add(selector)
    return hidden


def _hides(style: str) -> bool:
    style = style.strip()
    if _HIDING.search(style):
        return True
    return _CLIPPING.search(style) is not None and _TINY.search(style) is not None


class _Reader(HTMLParser):
    """Collects text outside silent and hidden elements. Tolerates unclosed and stray tags."""

    def __init__(self, hidden: _Hidden) -> None:
        super().__init__(convert_charrefs=True)
        self._hidden = hidden
        self.parts: list[str] = []
        # Names of the open elements from the outermost hidden one inwards; empty while text is visible.
        self._inside_hidden: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._inside_hidden[-1:] in (["title"], ["textarea"]):
            # Their content is text, whatever it looks like.
            return
        if tag == "body" and self._inside_hidden[:1] == ["head"]:
            # The end tag of the head may be left out.
            self._inside_hidden.clear()
        if tag not in _VOID and (self._inside_hidden or self._is_hidden(tag, dict(attrs))):
            self._inside_hidden.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A self-closed element (SVG) holds no text."""

    def handle_endtag(self, tag: str) -> None:
        if tag in self._inside_hidden:
            while self._inside_hidden.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if not self._inside_hidden and not data.isspace():
            self.parts.append(data)

    def _is_hidden(self, tag: str, attributes: dict[str, str | None]) -> bool:
        return (
            tag in _SILENT
            or "hidden" in attributes
            or (tag in ("details", "dialog") and "open" not in attributes)
            or _hides(attributes.get("style") or "")
            or any(_hides(f"{name}:{attributes[name]}") for name in _PRESENTATION if name in attributes)
            or self._hidden.matches(tag, attributes)
        )
