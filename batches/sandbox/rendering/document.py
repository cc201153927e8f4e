"""What happens to a document before the engine sees it: markdown becomes HTML, known stumbling blocks go.

Never loads anything; works on strings only.
"""

from __future__ import annotations

import re
from html import unescape

_WOFF2_HINT = re.compile(r"""format\(\s*(["']?)woff2\1\s*\)""", re.IGNORECASE)
_TAG = re.compile(r"<[a-z][^>]*>", re.IGNORECASE)
_HREF = re.compile(r"""(\bhref\s*=\s*)("[^"]*"|'[^']*'|[^\s"'>]+)""", re.IGNORECASE)
_IGNORED_IN_URLS = re.compile(r"[\x00-\x20]+")
_ACTIVE_SCHEMES = ("javascript:", "vbscript:", "file:", "data:")

_MARKDOWN_PAGE = """<!DOCTYPE html>
<html><head><meta charset="utf-8"><style>
body {{ font-family: sans-serif; font-size: 11pt; line-height: 1.45; }}
h1, h2, h3 {{ line-height: 1.2; }}
table {{ border-collapse: collapse; }}
th, td {{ border: 1px solid #999; padding: 2pt 6pt; text-align: left; }}
pre, code {{ font-family: monospace; background: #f3f3f3; }}
pre {{ padding: 6pt; white-space: pre-wrap; }}
blockquote {{ border-left: 3px solid #ccc; margin-left: 0; padding-left: 10pt; }}
</style></head><body>
{body}
</body></html>
"""


def from_markdown(markdown: str) -> str:
    """The HTML page for a CommonMark text with tables. Raw HTML in it stays text."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    return _MARKDOWN_PAGE.format(body=parser.render(markdown))


def prepared(html: str) -> str:
    """The HTML as the engine can take it.

    NUL is refused by the engine (ValueError); a face that announces `woff2` is skipped although the same bytes
    load when announced as `woff`; links to scripts and local files would be kept alive in the PDF.
    """
    html = html.replace("\0", "\ufffd")
    html = _WOFF2_HINT.sub('format("woff")', html)
    return _TAG.sub(_without_active_link, html)


def _without_active_link(tag: re.Match[str]) -> str:
    return _HREF.sub(_passive_href, tag[0])


def _passive_href(attribute: re.Match[str]) -> str:
    target = _IGNORED_IN_URLS.sub("", unescape(attribute[2].strip("\"'"))).lower()
    if not target.startswith(_ACTIVE_SCHEMES) or target.startswith("data:image/"):
        return attribute[0]
    return f'{attribute[1]}"#"'
