"""docs/staff.md, made from the help inside the product: `python -m tests.handbook` writes it, a test compares.

The texts are templates in `templates/batches/help/`. Only the tags that stand there are understood.
"""

from __future__ import annotations

import os
import textwrap
from html.parser import HTMLParser
from pathlib import Path

FILE = Path(__file__).resolve().parent.parent / "docs" / "staff.md"
#: First what is looked up, then page by page.
FIRST = ("states", "verbs", "when")
HEAD = """# For the staff

What each state means, what each verb costs, and what to do when something is odd. The same text opens in the product,
beside each page, under *Help*. This file is made from it by `python -m tests.handbook`; do not edit it by hand.
"""
WIDTH = 120


class _Markdown(HTMLParser):
    """Paragraphs, headings and lists of a help text as Markdown."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[str] = []
        self._text = ""
        self._lists: list[str] = []
        self._counts: list[int] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "svg" or self._hidden:
            self._hidden += 1
        elif tag in ("ol", "ul"):
            self._end_block()
            self._lists.append(tag)
            self._counts.append(0)
        elif tag in ("p", "h3", "li", "dt"):
            self._end_block()
        elif tag in ("strong", "code"):
            self._text += "**" if tag == "strong" else "`"

    def handle_endtag(self, tag: str) -> None:
        if self._hidden:
            self._hidden -= 1
        elif tag in ("strong", "code"):
            self._text = self._text.rstrip() + ("**" if tag == "strong" else "`")
        elif tag == "dt":
            self._text = f"**{self._text.strip()}**: "
        elif tag == "h3":
            self._end_block(first="### ")
        elif tag == "p":
            self._end_block()
        elif tag == "dd":
            self._end_block(first="- ")
        elif tag == "li":
            self._counts[-1] += 1
            self._end_block(first="- " if self._lists[-1] == "ul" else f"{self._counts[-1]}. ")
        elif tag in ("ol", "ul"):
            self._lists.pop()
            self._counts.pop()

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self._text += data

    def _end_block(self, first: str = "") -> None:
        text = " ".join(self._text.split())
        self._text = ""
        if text:
            rest = "" if first.startswith("#") else " " * len(first)
            self.blocks.append(
                textwrap.fill(
                    text,
                    WIDTH,
                    initial_indent=first,
                    subsequent_indent=rest,
                    break_long_words=False,
                    break_on_hyphens=False,
                )
            )


def _is_item(block: str) -> bool:
    return block.startswith("- ") or block[:1].isdigit()


def text() -> str:
    """The whole file."""
    from django.template.loader import render_to_string

    from batches import help as texts
    from batches.views.help import facts

    later = [topic for topic in texts.TOPICS if topic.name not in FIRST]
    parts = [HEAD]
    for topic in [*(texts.BY_NAME[name] for name in FIRST), *later]:
        markdown = _Markdown()
        markdown.feed(render_to_string(topic.template, facts()))
        parts.append(f"\n## {topic.title}\n")
        was_item = False
        for block in markdown.blocks:
            parts.append(block + "\n" if was_item and _is_item(block) else f"\n{block}\n")
            was_item = _is_item(block)
    return "".join(parts)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    import django

    django.setup()
    FILE.write_text(text(), "utf-8")
