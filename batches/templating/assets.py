"""Pictures, fonts and style sheets that a template names, put inside it: each document then stands alone.

What is on the web stays there and is told as a warning. Lines stay what they were, so that a problem of the finished
template is one of the uploaded file.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from posixpath import dirname, join, normpath
from typing import Protocol
from urllib.parse import unquote

from batches.templating import markup
from batches.templating.markup import Attribute, Element
from batches.templating.places import Places
from batches.templating.problems import Fault, Problem, shown

#: All that is put inside together.
INLINED_MOST = 4_000_000
#: From here on it is worth a word: each document carries it.
INLINED_MUCH = 500_000
IMPORTS_DEEP = 8
PROBLEMS_MOST = 100

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_CSS = re.compile(r"/\*|@import\b\s*|\burl\(\s*|[\"']", re.IGNORECASE)
# A name without quotes is looked at up to its second bracket, and once: a thousand unclosed `url(` would each look for
# their end in the whole rest of the style sheet.
_CSS_NAME = re.compile(r"""(?:"([^"\n]*)"|'([^'\n]*)'|([^()"'\s]*+(?:\([^()"'\s]*+)?+))\s*\)""")
_CSS_IMPORT = re.compile(
    r"""(?:url\(\s*(?:"([^"\n]*)"|'([^'\n]*)'|([^()"'\s]*+(?:\([^()"'\s]*+)?+))\s*\)|"([^"\n]*)"|'([^'\n]*)')\s*([^;{}"']*);?""",
    re.IGNORECASE,
)
_CHARSET = re.compile(r"""\s*@charset\s+["'][^"']*["']\s*;""", re.IGNORECASE)
_CANDIDATE = re.compile(r"\s*([^\s,]+)(\s+[0-9.]+[wx])?\s*(?:,|$)")
_END_RAW = re.compile(r"\{%-?\s*endraw")
_LIQUID = re.compile(f"{markup.VALUE}+|{markup.TAG}+")
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
    (b"wOFF", "font/woff"),
    (b"wOF2", "font/woff2"),
    (b"OTTO", "font/otf"),
    (b"\x00\x01\x00\x00", "font/ttf"),
    (b"true", "font/ttf"),
)
#: Elements and attributes that hold the address of a picture.
_PICTURES = {
    "img": ("src",),
    "input": ("src",),
    "image": ("href", "xlink:href"),
    "body": ("background",),
    "table": ("background",),
    "td": ("background",),
    "th": ("background",),
}
_CANDIDATES = {"img": "srcset", "source": "srcset"}
#: Elements that load something else, which does not go into a document of its own.
_OTHERS = {"script": "src", "iframe": "src", "object": "data", "embed": "src", "video": "src", "audio": "src"}


class Files(Protocol):
    """The files beside a template."""

    def read(self, path: str) -> bytes:
        """The file of this path, relative to the template. Raises Fault, its message a whole sentence."""
        ...


@dataclass
class Inlined:
    """A template with its files inside, and what is wrong or worth a word. `byte_count` is what was put in."""

    text: str
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    byte_count: int = 0


def inlined(source: str, files: Files) -> Inlined:
    """Put the files that `source` names inside it. Nothing is raised: `problems` says what could not be."""
    return _Inlining(source, files).done()


class _Inlining:
    """One template on its way. `edits` are bounds in its text and what comes there."""

    def __init__(self, source: str, files: Files) -> None:
        self._source = source
        self._text = markup.masked(source)
        self._files = files
        self._places = Places(source)
        self._edits: list[tuple[int, int, str]] = []
        self._result = Inlined(source)
        self._remote: set[str] = set()

    def done(self) -> Inlined:
        for element in markup.elements(self._text):
            self._check_values(element)
            self._element(element)
        parts: list[str] = []
        at = 0
        for start, end, new in sorted(self._edits):
            parts += [self._source[at:start], new]
            at = end
        result = self._result
        result.text = "".join([*parts, self._source[at:]])
        if result.byte_count > INLINED_MUCH:
            size = f"{result.byte_count / 1000:,.0f} kB"
            words = f"Its pictures, fonts and style sheets are {size}, and each document carries it."
            result.warnings.append(Problem(None, None, words, "Smaller pictures and fewer fonts render faster."))
        return result

    # --- elements -----------------------------------------------------------------------------------------------------

    def _element(self, element: Element) -> None:
        if element.name == "link":
            rel = element.get("rel")
            href = element.get("href")
            if rel and href and "stylesheet" in rel.value.lower().split():
                self._style_sheet(element, href)
        elif element.name == "base":
            words = "A <base> changes what the names of files mean."
            self._wrong(element.start, words, "Leave it out; names are relative to the template.")
        elif element.name in _OTHERS:
            self._other(element)
        for name in _PICTURES.get(element.name, ()):
            if attribute := element.get(name):
                self._attribute(attribute, self._file(attribute.value, attribute.start))
        if attribute := element.get(_CANDIDATES.get(element.name, "")):
            self._attribute(attribute, self._candidates(attribute))
        if attribute := element.get("style"):
            self._attribute(attribute, self._css(attribute.value, "", self._at(attribute.start), ()))
        if element.name == "style" and element.content:
            start, end = element.content
            self._edit(start, end, self._css(self._text[start:end], "", self._at(start), ()))

    def _attribute(self, attribute: Attribute, value: str | None) -> None:
        if value is not None and value != attribute.value:
            quote = "" if attribute.is_quoted else '"'
            self._edit(attribute.start, attribute.end, quote + html.escape(value) + quote)

    def _edit(self, start: int, end: int, new: str) -> None:
        """Liquid comes back into what was read without it: it stands there in the same order and length."""
        if new == self._text[start:end]:
            return
        pieces = (self._source[slice(*run.span())] for run in _LIQUID.finditer(self._text, start, end))
        self._edits.append((start, end, _LIQUID.sub(lambda _: next(pieces), new)))

    def _style_sheet(self, element: Element, href: Attribute) -> None:
        path = self._local(href.value, self._at(href.start), "")
        if path is None:
            return
        text = self._text_of(path, self._at(href.start))
        if text is None:
            return
        css = self._css(text, path, lambda at: Places(text).of(at), (path,))
        if "</style" in css.lower() or _END_RAW.search(css):
            self._wrong(href.start, f"The style sheet {shown(path)} holds the end of a style.", "Remove it.")
            return
        css = _on_one_line(css)
        if "{{" in css or "{%" in css:
            css = f"{{% raw %}}{css}{{% endraw %}}"
        media = element.get("media")
        opening = f'<style media="{html.escape(media.value)}">' if media else "<style>"
        lines = "\n" * self._source.count("\n", element.start, element.end)
        self._edits.append((element.start, element.end, f"{opening}{css}</style>{lines}"))

    def _candidates(self, attribute: Attribute) -> str | None:
        """A `srcset`: addresses, each with how wide or dense it is."""
        parts = []
        for found in _CANDIDATE.finditer(attribute.value):
            if not found[1].startswith("data:"):
                parts.append((self._file(found[1], attribute.start) or found[1]) + (found[2] or ""))
        return ", ".join(parts) if parts else None

    def _other(self, element: Element) -> None:
        attribute = element.get(_OTHERS[element.name])
        if attribute and self._local(attribute.value, self._at(attribute.start), "") is not None:
            words = f"A <{element.name}> cannot be put inside the template: {shown(attribute.value)}."
            self._wrong(attribute.start, words, "Leave it out, or use a picture.")

    def _check_values(self, element: Element) -> None:
        """Values are escaped for text and for quoted attributes; in other places of a tag that would not do."""
        if markup.VALUE in element.name:
            self._wrong(element.start, "A value stands where the name of a tag does.", _IN_TEXT)
        for attribute in element.attributes:
            if markup.VALUE in attribute.name:
                self._wrong(attribute.start, "A value stands where the name of an attribute does.", _IN_TEXT)
            elif markup.VALUE in attribute.raw and not attribute.is_quoted:
                words = f"A value stands in the attribute {attribute.name} without quotes around it."
                self._wrong(attribute.start, words, 'Write it as width="{{ width }}".')
            elif markup.VALUE in attribute.raw and attribute.name.startswith("on"):
                self._wrong(attribute.start, f"A value stands in the script {attribute.name}.", _IN_TEXT)
            elif markup.VALUE in attribute.raw and attribute.name == "srcdoc":
                self._wrong(attribute.start, "A value stands in the page of a srcdoc.", _IN_TEXT)
        is_literal = element.name in markup.LITERAL_TEXT and element.name != "style"  # filling looks at those
        if is_literal and element.content and markup.VALUE in self._text[slice(*element.content)]:
            where = "a script" if element.name == "script" else f"<{element.name}>, whose text nothing escapes"
            self._wrong(element.start, f"A value stands in {where}.", _IN_TEXT)

    # --- files --------------------------------------------------------------------------------------------------------

    def _file(self, address: str, offset: int) -> str | None:
        """The `data:` address of a file that stands beside the template; None where the address stays."""
        place = self._at(offset)
        path = self._local(address, place, "")
        return None if path is None else self._data(path, place, "")

    def _local(self, address: str, place: _At, file: str) -> str | None:
        """The path that an address of a file means, from the template; None where it is no such file."""
        given = address.strip()
        if not given or given.startswith("#") or given.lower().startswith(("data:", "about:")):
            return None
        if markup.VALUE in given or markup.TAG in given:
            if given[0] not in (markup.VALUE, markup.TAG) and not given.lower().startswith(("http:", "https:")):
                words = "The name of a file cannot come from the row."
                self._tell(place(0), file, words, "Give the row a whole https address, or one that begins with data:.")
            return None
        if given.startswith("//") or given.lower().startswith(("http:", "https:")):
            if given not in self._remote:
                self._remote.add(given)
                words = f"{shown(given, 100)} stays on the web: whoever renders fetches it for each document."
                line, column = place(0)
                fix = "Put it into the ZIP to be sure of it."
                self._result.warnings.append(Problem(line, column, words, fix, file))
            return None
        if _SCHEME.match(given):
            words = f"{shown(given)} cannot be put inside the template."
            self._tell(place(0), file, words, "Put the file into the ZIP.")
            return None
        return unquote(re.split(r"[?#]", given)[0])

    def _read(self, path: str, place: _At, file: str) -> bytes | None:
        whole = path if path.startswith(("/", "\\")) else normpath(join(dirname(file), path))
        try:
            content = self._files.read(whole)
        except Fault as fault:
            self._tell(place(0), file, fault.message, fault.fix)
            return None
        if self._result.byte_count + len(content) > INLINED_MOST:
            words = f"With {shown(whole)}, its files are more than {INLINED_MOST / 1_000_000:g} MB."
            self._tell(place(0), file, words, "Use smaller pictures and fewer fonts.")
            return None
        self._result.byte_count += len(content)
        return content

    def _data(self, path: str, place: _At, file: str) -> str | None:
        content = self._read(path, place, file)
        if content is None:
            return None
        kind = _kind(content)
        if kind is None:
            words = f"The file {shown(path)} is no picture and no font that is known."
            self._tell(place(0), file, words, "Use PNG, JPEG, GIF, WebP, SVG, WOFF, WOFF2, TTF or OTF.")
            return None
        return f"data:{kind};base64,{base64.b64encode(content).decode()}"

    def _text_of(self, path: str, place: _At, file: str = "") -> str | None:
        content = self._read(path, place, file)
        if content is None:
            return None
        try:
            return _CHARSET.sub("", content.decode("utf-8-sig"), count=1)
        except UnicodeDecodeError as error:
            words = f"The style sheet {shown(path)} is not UTF-8: byte {error.start:,} does not fit."
            self._tell(place(0), file, words, "Save it as UTF-8.")
            return None

    # --- style sheets -------------------------------------------------------------------------------------------------

    def _css(self, text: str, base: str, place: _At, chain: tuple[str, ...]) -> str:
        """The style sheet with its files inside; `base` is its own path, `chain` those that import it."""
        parts: list[str] = []
        at = 0
        while found := _CSS.search(text, at):
            kind = found[0].lower()
            end = len(text)
            new = None
            here = _shifted(place, found.start())
            if kind == "/*":
                close = text.find("*/", found.end())
                end = close + 2 if close >= 0 else len(text)
            elif kind in ('"', "'"):
                end = _string_end(text, found.end(), kind)
            elif kind.startswith("@import") and (rule := _CSS_IMPORT.match(text, found.end())):
                end = rule.end()
                new = self._import(rule, base, here, chain)
            elif kind.startswith("url(") and (name := _CSS_NAME.match(text, found.end())):
                end = name.end()
                path = self._local(_css_text(_first(name)), here, base)
                data = self._data(path, here, base) if path is not None else None
                new = f"url({data})" if data else None
            else:
                end = found.end()
            parts += [text[at : found.start()], text[found.start() : end] if new is None else new]
            at = end
        return "".join([*parts, text[at:]])

    def _import(self, rule: re.Match[str], base: str, place: _At, chain: tuple[str, ...]) -> str | None:
        path = self._local(_css_text(_first(rule, 5)), place, base)
        if path is None:
            return None
        whole = normpath(join(dirname(base), path))
        conditions = rule[6].strip()
        if whole in chain or len(chain) >= IMPORTS_DEEP:
            words = f"The style sheet {shown(whole)} imports itself, or is imported too deep."
            self._tell(place(0), base, words, "Remove the @import.")
            return None
        if re.search(r"\b(?:layer|supports)\b", conditions):
            self._tell(place(0), base, "An @import with layer or supports cannot be put inside.", "Leave them out.")
            return None
        text = self._text_of(path, place, base)
        if text is None:
            return None
        css = _on_one_line(self._css(text, whole, lambda at: Places(text).of(at), (*chain, whole)))
        return f"@media {conditions} {{ {css} }}" if conditions else css

    # --- telling ------------------------------------------------------------------------------------------------------

    def _at(self, offset: int) -> _At:
        return lambda behind: self._places.of(offset + behind)

    def _wrong(self, offset: int, message: str, fix: str) -> None:
        self._tell(self._places.of(offset), "", message, fix)

    def _tell(self, place: tuple[int | None, int | None], file: str, message: str, fix: str) -> None:
        if len(self._result.problems) < PROBLEMS_MOST:
            self._result.problems.append(Problem(*place, message, fix, file))


_At = Callable[[int], tuple[int | None, int | None]]
_IN_TEXT = "Values may stand in text and in quoted attributes."


def _shifted(place: _At, by: int) -> _At:
    return lambda behind: place(by + behind)


def _first(found: re.Match[str], groups: int = 3) -> str:
    return next((text for text in found.groups()[:groups] if text is not None), "")


def _on_one_line(css: str) -> str:
    return re.sub(r"\s*\r?\n\s*", " ", css.replace("\\\r\n", "").replace("\\\n", ""))


def _css_text(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name)


def _string_end(text: str, at: int, quote: str) -> int:
    """Behind the string that begins before `at`: at its quote, or at the end of the line where it has none."""
    found = re.compile(rf"(?:[^{quote}\\\n]|\\.)*", re.DOTALL).match(text, at)
    end = found.end() if found else at
    return end + 1 if text[end : end + 1] == quote else end


def _kind(content: bytes) -> str | None:
    """The media type of a picture or a font, by its content."""
    for mark, kind in _MAGIC:
        if content.startswith(mark):
            return kind
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    if content[4:12] in (b"ftypavif", b"ftypavis"):
        return "image/avif"
    return "image/svg+xml" if b"<svg" in content[:2000].lower() else None
