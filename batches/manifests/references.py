"""What a document would load from elsewhere: files that are not sent with it, and addresses in a private network. Pure.

Only the document's text is sent, so such pictures and style sheets are missing on the page, and where the renderer
stands inside a network, an address in it reaches what nobody meant to show. This finds what is written down; whoever
renders has to refuse the connection itself, since a script can put any address together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from html import unescape

from batches.manifests import addresses

#: References of one document that are looked at, and characters of one.
MOST = 20_000
_LONGEST = 2_048
#: Pages that stand in a frame's attribute, within one another.
_FRAMES_DEEP = 3

# Bytes, and no more of a tag than tells what it loads: each of 100,000 documents goes through this. A template is read
# by `templating/markup.py`, which needs the place of every attribute, and has to know Liquid's braces.
#: Where a tag may begin that loads something: two letters of its name, since most tags are let go after the first.
_MARK = re.compile(rb"<[!iIlLsSfFeEoOvVaAuUbBmM][-mMfFnNiIcCoOtTrReEbBuUsSaA]")
_TAG = re.compile(rb"<([a-zA-Z]++)(?=[\s/>])(?:[^>\"']++|\"[^\"]*+\"|'[^']*+')*+")
_COMMENT_END = re.compile(rb"--!?>")
_ATTRIBUTE = re.compile(rb"[\s/\"']*+([^\s=>/\"']++)(?:\s*+=\s*+(\"[^\"]*+\"|'[^']*+'|[^\s>\"']*+))?")
_GIVEN = re.compile(rb"\s{0,9}=\s{0,9}(\"[^\"]{0,2048}\"|'[^']{0,2048}'|[^\s>\"']{1,2048})")
_QUOTED = re.compile(rb"\s{0,99}([\"']?)")
_STOP = re.compile(rb"[\s\"'`<>()]")
_REFRESH = re.compile(rb"url\s{0,9}=\s{0,9}([^\"'>\s]{1,2048})", re.IGNORECASE)
_PICTURE = re.compile(rb"!\[[^\]\[]{0,500}\]\(\s{0,9}<?([^)\s>]{1,2048})")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):")
_DRIVE = re.compile(r"[a-z]:[\\/]")
_CSS_ESCAPE = re.compile(r"\\(?:([0-9a-f]{1,6})\s?|(.))")
_BREAKS = re.compile(r"[\t\r\n]")

_SRC = frozenset({b"src"})
_FRAME = frozenset({b"src", b"srcdoc"})
_PICTURES = frozenset({b"src", b"srcset"})
_HREF = frozenset({b"href", b"xlink:href"})
#: What each element loads by which of its attributes.
_LOADS: dict[bytes, frozenset[bytes]] = {
    b"img": _PICTURES,
    b"source": _PICTURES,
    b"image": _HREF | _SRC,
    b"feimage": _HREF,
    b"use": _HREF,
    b"link": _HREF,
    b"base": _HREF,
    b"script": _HREF | _SRC,
    b"iframe": _FRAME,
    b"frame": _SRC,
    b"embed": _SRC,
    b"audio": _SRC,
    b"video": frozenset({b"src", b"poster"}),
    b"input": _SRC,
    b"object": frozenset({b"data"}),
    b"meta": frozenset({b"content"}),
}
#: What ends the word `@import`, and links that a page is printed without.
_AFTER_IMPORT = frozenset({b" ", b"\t", b"\r", b"\n", b"\f", b'"', b"'"})
_UNPRINTED_LINKS = frozenset(
    {b"canonical", b"icon", b"shortcut icon", b"alternate", b"author", b"license", b"manifest"}
)


class ReferenceKind(StrEnum):
    """What is wrong with a reference."""

    NOT_SENT = "not_sent"  # relative: the file is not part of what is sent
    LOCAL_FILE = "local_file"  # on somebody's disk or file server
    PRIVATE = "private"  # an address inside a private network, or the renderer's own machine


@dataclass(frozen=True, slots=True)
class Reference:
    """The first reference of its kind in a document."""

    kind: ReferenceKind
    value: str
    """As it is written there."""


@dataclass(frozen=True, slots=True)
class References:
    """At most one reference of each kind. `is_cut`: there are more references than are looked at."""

    found: tuple[Reference, ...] = ()
    is_cut: bool = False


_NONE = References()


def of_document(sent: bytes, *, is_markdown: bool = False) -> References:
    """The references of a document as it is sent (UTF-8) that will fail or must not be followed."""
    first: dict[ReferenceKind, Reference] = {}
    count = 0
    for value, kind in _values(sent, is_markdown=is_markdown):
        count += 1
        if count > MOST:
            break
        if kind is not None and kind not in first:
            first[kind] = Reference(kind, value[:_LONGEST].decode(errors="replace").strip())
    return References(tuple(first.values()), count > MOST) if first or count > MOST else _NONE


Found = tuple[bytes, ReferenceKind | None]
"""A value as it is written, and what is wrong with it."""


def _values(sent: bytes, *, is_markdown: bool) -> Iterator[Found]:
    yield from _in_tags(sent)
    yield from _in_styles(sent)
    yield from _backgrounds(sent)
    if is_markdown:
        for picture in _PICTURE.finditer(sent):
            yield picture[1], _kind_of(picture[1])


def _in_tags(sent: bytes, depth: int = 0) -> Iterator[Found]:
    has_base, has_end = False, True
    mark = _MARK.search(sent)
    while mark is not None:
        at = mark.start()
        if sent.startswith(b"<!--", at):
            closing = _COMMENT_END.search(sent, at + 2) if has_end else None  # `<!-->` is whole
            has_end = closing is not None
            end = closing.end() if closing else at + 4  # one that never ends hides nothing from the look
        else:
            tag = _TAG.match(sent, at)
            name = tag[1].lower() if tag else b""
            if tag is None or name not in _LOADS:
                mark = _MARK.search(sent, at + 2)
                continue
            end = tag.end()
            has_base |= name == b"base"
            for value, kind in _of_tag(sent, name, tag.end(1), end, depth):
                yield value, None if has_base and kind is ReferenceKind.NOT_SENT else kind
            if name == b"script":
                close = sent.find(b"</", end)  # most scripts hold no `</` but their end
                while close >= 0 and sent[close + 2 : close + 8].lower() != b"script":
                    close = sent.find(b"</", close + 2)
                close = len(sent) if close < 0 else close
                yield from _in_script(sent, end, close)
                end = close
        mark = _MARK.search(sent, end)


def _of_tag(sent: bytes, name: bytes, start: int, end: int, depth: int) -> Iterator[Found]:
    wanted = _LOADS[name]
    found: list[tuple[bytes, bytes]] = []
    for attribute in _ATTRIBUTE.finditer(sent, start, end):
        key = attribute[1].lower()
        if key == b"srcdoc" and any(each == key for each, _ in found):
            continue  # the first one counts
        if key in wanted:
            found.append((key, (attribute[2] or b"").strip(b"\"'")))
        elif name == b"link" and key == b"rel" and (attribute[2] or b"").strip(b"\"' ").lower() in _UNPRINTED_LINKS:
            return
    for key, value in found:
        if name == b"meta":
            target = _REFRESH.search(value[:_LONGEST])
            kind = _kind_of(target[1]) if target else None
            if target is not None and kind is not ReferenceKind.NOT_SENT:
                yield target[1], kind
        elif key == b"srcdoc":
            page = unescape(value.decode(errors="replace")).encode()
            if depth < _FRAMES_DEEP:
                yield from _in_tags(page, depth + 1)
                yield from _in_styles(page)
        elif key == b"srcset":
            for each in value[: 8 * _LONGEST].split(b","):
                if words := each.split():
                    yield words[0], _kind_of(words[0])
        elif name == b"base" and (kind := _kind_of(value)) is not ReferenceKind.NOT_SENT:
            yield value, kind
        elif name != b"base":
            yield value, _kind_of(value)


def _in_script(sent: bytes, start: int, end: int) -> Iterator[Found]:
    """Whole addresses that a script names."""
    at = sent.find(b"://", start, end)
    while at >= 0:
        stop = _STOP.search(sent, at, min(end, at + _LONGEST))
        rest = sent[at : stop.start() if stop else min(end, at + _LONGEST)]
        for scheme in (b"https", b"http", b"file", b"ftp"):
            if sent[max(start, at - len(scheme)) : at].lower() == scheme:
                yield scheme + rest, _kind_of(scheme + rest)
                break
        at = sent.find(b"://", at + 3, end)


def _in_styles(sent: bytes) -> Iterator[Found]:
    """`url(…)` and `@import`, in style sheets and attributes; by their one rare character, which is found fast."""
    at = sent.find(b"(")
    while at >= 0:
        if sent[max(0, at - 3) : at].lower() == b"url":
            value = _css_value(sent, at + 1, b")")
            yield value, _kind_of(value, is_css=True)
        at = sent.find(b"(", at + 1)
    at = sent.find(b"@")
    while at >= 0:
        if sent[at : at + 7].lower() == b"@import" and sent[at + 7 : at + 8] in _AFTER_IMPORT:
            value = _css_value(sent, at + 7, b";")
            if not value.lower().startswith(b"url("):  # seen above
                yield value, _kind_of(value, is_css=True)
        at = sent.find(b"@", at + 1)


def _backgrounds(sent: bytes) -> Iterator[Found]:
    """The pictures behind old tables, which have an attribute of their own."""
    for word in (b"background", b"BACKGROUND"):
        at = sent.find(word)
        while at >= 0:
            given = _GIVEN.match(sent, at + len(word))
            if given is not None and sent[max(0, at - 1) : at].isspace():
                value = given[1].strip(b"\"'")
                yield value, _kind_of(value)
            at = sent.find(word, at + len(word))


def _css_value(sent: bytes, start: int, closing: bytes) -> bytes:
    opening = _QUOTED.match(sent, start)
    begin, mark = (opening.end(), opening[1]) if opening else (start, b"")
    if sent.startswith(b"data:", begin):
        return b""  # of no interest, and often long
    end = sent.find(mark or closing, begin, begin + _LONGEST)
    return sent[begin : end if end >= 0 else begin + _LONGEST]


def _kind_of(value: bytes, *, is_css: bool = False) -> ReferenceKind | None:
    if value.startswith(b"data:"):
        return None
    text = value[:_LONGEST].decode(errors="replace")
    if "&" in text:
        text = unescape(text)
    text = text.lower()
    if is_css and "\\" in text:
        text = _CSS_ESCAPE.sub(_css_character, text)
    text = _BREAKS.sub("", text).strip()
    if not text or text.startswith("#") or "{{" in text or "{%" in text:
        return None
    if text.startswith("\\\\") or _DRIVE.match(text):
        return ReferenceKind.LOCAL_FILE
    if text.startswith("//"):
        return _kind_of_host(addresses.host_of(text[2:]))
    scheme = _SCHEME.match(text)
    if scheme is None:
        return ReferenceKind.NOT_SENT
    if scheme[1] == "file":
        return ReferenceKind.LOCAL_FILE
    if scheme[1] in {"http", "https", "ftp"}:
        return _kind_of_host(addresses.host_of(text[scheme.end() :].lstrip("/\\")))
    return None


@lru_cache(maxsize=1_000)
def _kind_of_host(host: str) -> ReferenceKind | None:
    return ReferenceKind.PRIVATE if addresses.is_private(host) else None


def _css_character(escape: re.Match[str]) -> str:
    if escape[1] is None:
        return escape[2]
    point = int(escape[1], 16)
    return chr(point).lower() if 0 < point < 0x110000 and not 0xD800 <= point < 0xE000 else ""
