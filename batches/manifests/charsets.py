"""From a file's bytes to its text: which encoding it says it has, and a strict decoding by it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from batches.manifests.problems import Code, Unfit
from batches.manifests.sniffing import bom_encoding

_SNIFFED_CHARACTERS = 1024  # as far as browsers look (WHATWG encoding sniffing)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_META = re.compile(r"<meta[\s/]([^>]*)>", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"([A-Za-z-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))")
_CONTENT_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([^\s\"';]+)", re.IGNORECASE)
_XML_ENCODING = re.compile(r"\s*<\?xml[^>]*?\bencoding\s*=\s*[\"']([^\"']+)[\"']", re.IGNORECASE)

#: What pages call their encoding, and the Python codec browsers would use (WHATWG labels): Latin-1 and
#: ASCII mean Windows-1252, and a page that can be read well enough to find "UTF-16" is UTF-8.
LABELS: dict[str, str] = {
    label: codec
    for codec, labels in {
        "utf-8": "utf-8 utf8 unicode-1-1-utf-8 utf-16 utf-16le utf-16be",
        "windows-1252": "windows-1252 cp1252 x-cp1252 iso-8859-1 iso8859-1 iso_8859-1 iso88591 latin1 latin-1 l1 "
        "us-ascii ascii",
        "windows-1250": "windows-1250 cp1250 x-cp1250",
        "windows-1251": "windows-1251 cp1251 x-cp1251",
        "windows-1253": "windows-1253 cp1253 x-cp1253",
        "windows-1254": "windows-1254 cp1254 x-cp1254 iso-8859-9 iso8859-9 latin5",
        "windows-1255": "windows-1255 cp1255 x-cp1255",
        "windows-1256": "windows-1256 cp1256 x-cp1256",
        "windows-1257": "windows-1257 cp1257 x-cp1257",
        "windows-1258": "windows-1258 cp1258 x-cp1258",
        "cp874": "windows-874 iso-8859-11 tis-620",
        "iso8859-2": "iso-8859-2 iso8859-2 latin2 l2",
        "iso8859-3": "iso-8859-3 iso8859-3 latin3",
        "iso8859-4": "iso-8859-4 iso8859-4 latin4",
        "iso8859-5": "iso-8859-5 iso8859-5 cyrillic",
        "iso8859-6": "iso-8859-6 iso8859-6 arabic",
        "iso8859-7": "iso-8859-7 iso8859-7 greek",
        "iso8859-8": "iso-8859-8 iso8859-8 iso-8859-8-i hebrew",
        "iso8859-10": "iso-8859-10 iso8859-10 latin6",
        "iso8859-13": "iso-8859-13 iso8859-13",
        "iso8859-14": "iso-8859-14 iso8859-14",
        "iso8859-15": "iso-8859-15 iso8859-15 latin-9 latin9",
        "iso8859-16": "iso-8859-16 iso8859-16",
        "koi8-r": "koi8-r koi8",
        "koi8-u": "koi8-u",
        "cp866": "ibm866 cp866",
        "mac-roman": "macintosh x-mac-roman",
        "gb18030": "gbk gb2312 gb18030 x-gbk",
        "big5hkscs": "big5 big5-hkscs",
        "euc-jp": "euc-jp x-euc-jp",
        "iso2022-jp": "iso-2022-jp",
        "cp932": "shift_jis shift-jis sjis windows-31j x-sjis",
        "cp949": "euc-kr ks_c_5601-1987 windows-949",
    }.items()
    for label in labels.split()
}


@dataclass(frozen=True, slots=True)
class Decoded:
    """`text` is ready to be sent: no byte-order mark, and a declared charset that is true of it."""

    text: str
    charset: str
    """The encoding the bytes have."""


def decoded(raw: bytes) -> Decoded:
    """Decode an HTML file: byte-order mark, else `<meta charset>`, else XML declaration, else UTF-8.

    Strict: nothing is ever replaced. Raises Unfit with the byte's offset and the encoding.
    A declared charset other than UTF-8 is rewritten to `utf-8` in the text, because the text leaves
    as a JSON string: whoever stores it as UTF-8 and opens it again would believe the old label.
    """
    declared = _declared_charset(raw[:_SNIFFED_CHARACTERS].decode("latin-1"))
    charset = bom_encoding(raw)
    if charset is None:
        charset = "utf-8" if declared is None else LABELS.get(declared.lower(), "")
    if not charset:
        raise Unfit(
            Code.NOT_DECODABLE,
            f"declares the charset {declared!a}, which is not known.",
            'Save the file as UTF-8 and declare <meta charset="utf-8">.',
        )
    try:
        text = raw.decode(charset)
    except UnicodeDecodeError as error:
        raise _undecodable(raw, error, charset, declared) from error
    return Decoded(_with_true_label(text.removeprefix("\ufeff")), charset)


def _undecodable(raw: bytes, error: UnicodeDecodeError, charset: str, declared: str | None) -> Unfit:
    source = f"as it declares ({declared})" if declared else "and declares no charset"
    byte = f"byte 0x{raw[error.start]:02X} at offset {error.start:,}" if error.start < len(raw) else "its last byte"
    fix = (
        'Save the file as UTF-8, or declare the encoding it has in its first lines: <meta charset="windows-1252">.'
        if charset == "utf-8"
        else "Save the file as UTF-8, or correct the encoding it declares."
    )
    return Unfit(Code.NOT_DECODABLE, f"is not {charset} {source}: {byte} does not fit.", fix)


def _declared_charset(head: str) -> str | None:
    span = _label_span(head)
    return head[span[0] : span[1]] if span else None


def _with_true_label(text: str) -> str:
    span = _label_span(text[:_SNIFFED_CHARACTERS])
    if span is None or text[span[0] : span[1]].lower() in {"utf-8", "utf8"}:
        return text
    return f"{text[: span[0]]}utf-8{text[span[1] :]}"


def _label_span(head: str) -> tuple[int, int] | None:
    """Where the name of the declared charset stands in `head`."""
    visible = _COMMENT.sub(lambda comment: " " * len(comment[0]), head)
    for meta in _META.finditer(visible):
        span = _meta_label_span(meta)
        if span:
            return span
    declaration = _XML_ENCODING.match(visible)
    return declaration.span(1) if declaration else None


def _meta_label_span(meta: re.Match[str]) -> tuple[int, int] | None:
    start = meta.start(1)
    attributes: dict[str, tuple[str, int]] = {}
    for attribute in _ATTRIBUTE.finditer(meta[1]):
        group = next(number for number in (2, 3, 4) if attribute[number] is not None)
        attributes.setdefault(attribute[1].lower(), (attribute[group], start + attribute.start(group)))
    if "charset" in attributes:
        value, at = attributes["charset"]
        stripped = value.strip()
        begin = at + value.index(stripped)
        return (begin, begin + len(stripped)) if stripped else None
    if attributes.get("http-equiv", ("", 0))[0].strip().lower() != "content-type":
        return None
    value, at = attributes.get("content", ("", 0))
    label = _CONTENT_CHARSET.search(value)
    return (at + label.start(1), at + label.end(1)) if label else None
