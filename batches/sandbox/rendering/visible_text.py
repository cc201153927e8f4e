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
        *("iframe", "object", "video", "audio", "canvas", "map", "math", "rp"),
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
    r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|opacity\s*:\s*0(?:\.0*)?\s*(?:;|!|$)"
    r"|font-size\s*:\s*0|content-visibility\s*:\s*hidden|text-indent\s*:\s*-|(?:left|top|right)\s*:\s*-\d{3}",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_SIMPLE_SELECTOR = re.compile(r"([a-z][a-z0-9-]*)?((?:[.#][\w-]+)?)", re.IGNORECASE)


@dataclass(frozen=True)
class VisibleText:
    """`certain` is False when a style sheet hides things by selectors that are not understood here."""

    text: str
    certain: bool


@dataclass
class _Hidden:
    """Simple selectors (`tag`, `.class`, `#id`, `tag.class`) whose rules hide what they match."""

    selectors: set[tuple[str, str]] = field(default_factory=set)
    others: bool = False

    def matches(self, tag: str, attributes: dict[str, str | None]) -> bool:
        if not self.selectors:
            return False
        marks = [""] + [f".{name}" for name in (attributes.get("class") or "").split()]
        marks.append(f"#{attributes.get('id') or ''}")
        return any((name, mark) in self.selectors for name in ("", tag) for mark in marks)


def visible_text(html: str) -> VisibleText:
    """The text of `html` without what its markup and simple style rules hide."""
    reader = _Reader(_hidden_by_rules(html))
    reader.feed(html)
    reader.close()
    return VisibleText(" ".join(reader.parts), certain=not reader.hidden.others)


def _hidden_by_rules(html: str) -> _Hidden:
    hidden = _Hidden()
    for sheet in re.findall(r"<style\b[^>]*>(.*?)</style", html, re.IGNORECASE | re.DOTALL):
        for selectors, body in _RULE.findall(_COMMENT.sub("", sheet)):
            if not _HIDING.search(body):
                continue
            for selector in selectors.split(","):
                match = _SIMPLE_SELECTOR.fullmatch(selector.strip())
                if match and (match[1] or match[2]):
                    hidden.selectors.add(((match[1] or "").lower(), match[2]))
                else:
                    hidden.others = True
    return hidden


class _Reader(HTMLParser):
    """Collects text outside silent and hidden elements. Tolerates unclosed and stray tags."""

    def __init__(self, hidden: _Hidden) -> None:
        super().__init__(convert_charrefs=True)
        self.hidden = hidden
        self.parts: list[str] = []
        # Names of the open elements from the outermost hidden one inwards; empty while text is visible.
        self._inside_hidden: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _VOID:
            return
        if self._inside_hidden or tag in _SILENT or self._is_hidden(tag, dict(attrs)):
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
        if "hidden" in attributes or (tag == "details" and "open" not in attributes):
            return True
        return bool(_HIDING.search(attributes.get("style") or "")) or self.hidden.matches(tag, attributes)
