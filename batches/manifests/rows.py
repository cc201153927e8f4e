"""One row of a manifest: its keys and values checked, its document found, everything wrong with it noted.

Owns the rules of a row and the ones between rows (ids and file names that meet twice). Never opens an
upload: the files it may read come in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import IO

from batches.manifests import contents, corrections, evidence, identifiers, keys, options, values
from batches.manifests.contents import Content
from batches.manifests.jsonrows import JsonValue, Span, parse
from batches.manifests.limits import Limits
from batches.manifests.manifest import ManifestRow, SourceKind, fingerprint_of_digest
from batches.manifests.problems import Code, Findings, ManifestRefused, Place, Unfit, shown
from batches.manifests.source import Files


@dataclass(frozen=True, slots=True)
class _Document:
    """A row's document as it was found: what `ManifestRow` keeps of it."""

    kind: SourceKind
    content: Content
    path: str | None
    read: Callable[[], tuple[bytes, str]]


def _not_here() -> tuple[bytes, str]:
    raise ValueError("the document is the one of the version that failed, and is not in the manifest")


#: The document of a correction that leaves it as it was.
_KEPT = _Document("html", Content(0, 0, "", "", "utf-8", None), None, _not_here)


@dataclass(slots=True)
class _Report:
    """Where the problems of one row go."""

    findings: Findings
    position: int
    span: Span
    has_characters: bool
    business_id: str | None = None
    failed: bool = False

    def error(self, code: Code, column: str | None, message: str, fix: str, *others: int) -> None:
        self.failed = True
        self.findings.row_error(code, column, self._place(message, fix), related=others)

    def warning(self, code: Code, column: str | None, message: str, fix: str, *others: int) -> None:
        self.findings.row_warning(code, column, self._place(message, fix), related=others)

    def unfit(self, column: str, reason: Unfit, subject: str = "") -> None:
        """Note why a value cannot be used; a `subject` is what the reason's sentence goes on about."""
        message = f"{subject} {reason.message}" if subject else reason.message
        self.error(reason.code, column, message, reason.fix)

    def named(self, what: str) -> str:
        """`what`, with the row's id where it has one."""
        return f"{what} of {shown(self.business_id)}" if self.business_id else f"{what} of this row"

    @property
    def character(self) -> int | None:
        return self.span.character if self.has_characters else None

    def _place(self, message: str, fix: str) -> Place:
        return Place(self.position, self.span.line, self.character, self.business_id, message, fix)


@dataclass(slots=True)
class RowChecker:
    """Checks rows one after another and remembers what two rows may not share."""

    files: Files
    manifest: IO[bytes]
    limits: Limits
    findings: Findings
    has_characters: bool
    """Whether a place is line and character (a JSON list) or the line alone (JSONL)."""
    corrects: bool = False
    """Whether the rows correct failed ones, and so may leave out what those have (`corrections.py`)."""
    used_files: set[str] = field(default_factory=set)
    """Names of all files that some row named."""
    _ids: dict[str, tuple[str, int]] = field(default_factory=dict)
    _look_alikes: dict[str, tuple[str, int]] = field(default_factory=dict)
    _filenames: dict[str, int] = field(default_factory=dict)
    _checked_files: dict[str, Content | Unfit] = field(default_factory=dict)

    def check(self, position: int, span: Span, value: JsonValue, repeated_keys: tuple[str, ...]) -> ManifestRow | None:
        """Note all problems of a row; returns it when it may be stored."""
        report = _Report(self.findings, position, span, self.has_characters)
        if not isinstance(value, dict):
            report.error(Code.WRONG_TYPE, None, "The row is not an object.", _FIX_ROW)
            return None
        if len(value) > keys.MOST_KEYS:
            message = f"The row has {len(value):,} keys; {keys.MOST_KEYS} are allowed."
            report.error(Code.WRONG_TYPE, None, message, _FIX_ROW)
            return None
        asked, keeps_document, keeps_options = value, False, False
        if self.corrects:
            value = corrections.restored(value)
            asked, keeps_document, keeps_options = corrections.without_kept(value)
        business_id = self._business_id(value, report)
        for key in dict.fromkeys(repeated_keys):
            message = f"The key {shown(key, 40)} stands twice in the row."
            report.error(Code.DUPLICATE_KEY, keys.column(key), message, "Keep one of them.")
        self._check_text(value, report)
        given = keys.checked_names(asked, report.error, report.warning, needs_source=not keeps_document)
        document = _KEPT if keeps_document else self._document(value, given, span, report)
        kept_options, wrong = options.checked(asked.get("options"))
        for column, message, fix in wrong:
            report.error(Code.BAD_OPTION, column, message, fix)
        filename = self._filename(value.get("filename"), report)
        meta = self._meta(asked.get("meta"), report)
        if report.failed or document is None or business_id is None:
            return None
        content = document.content
        return ManifestRow(
            position=position,
            line=span.line,
            character=report.character,
            business_id=business_id,
            kind=document.kind,
            filename=filename,
            options=kept_options,
            meta=meta,
            original=evidence.of_row(value),
            path=document.path,
            charset=content.charset,
            content_sha256=content.raw_sha256,
            content_bytes=content.raw_bytes,
            text_bytes=content.text_bytes,
            input_sha256=fingerprint_of_digest(document.kind, content.text_sha256, kept_options),
            _content=document.read,
            keeps_input=keeps_document,
            keeps_options=keeps_options,
        )

    def refuse_line(self, position: int, span: Span, message: str, fix: str) -> None:
        """Note a row that could not be read at all."""
        report = _Report(self.findings, position, span, self.has_characters)
        report.error(Code.BAD_JSON_LINE, None, message, fix)

    def refuse_size(self, position: int, span: Span, message: str) -> None:
        """Note a row that is too large to be looked at."""
        report = _Report(self.findings, position, span, self.has_characters)
        report.error(Code.FILE_TOO_LARGE, None, message, "Put the document into a file of its own, in a ZIP.")

    def _business_id(self, row: dict[str, JsonValue], report: _Report) -> str | None:
        try:
            business_id = identifiers.normalised(row.get("id"))
        except Unfit as reason:
            meant = keys.probable_id(row) if reason.code is Code.MISSING_ID else None
            fix = f'Rename the key {shown(meant, 40)} to "id".' if meant else reason.fix
            report.error(reason.code, "id", reason.message, fix)
            return None
        report.business_id = business_id
        if identifiers.has_invisible(business_id):
            message = f"The id {shown(business_id)} holds an invisible character."
            report.warning(Code.BAD_ID, "id", message, "Remove it, or nobody will find the document by its id.")
        self._compare_ids(business_id, report)
        return business_id

    def _compare_ids(self, business_id: str, report: _Report) -> None:
        """Note an id that an earlier row has, or one that only looks different to a machine."""
        here = (business_id, report.position)
        earlier, position = self._ids.setdefault(identifiers.visible_key(business_id), here)
        if position != report.position:
            message = f"The id {shown(business_id)} stands in rows {position} and {report.position}."
            if earlier != business_id:
                both = _both_ids(earlier, position, business_id, report.position)
                message = f"{both} look the same: an invisible character is all the difference."
            report.error(Code.DUPLICATE_ID, "id", message, "Give each document an id of its own.", position)
            return
        other, position = self._look_alikes.setdefault(identifiers.look_alike_key(business_id), here)
        if other != business_id:
            both = _both_ids(other, position, business_id, report.position)
            message = f"{both} differ only in case or in how a letter is encoded."
            fix = "They are kept as two documents; give them clearer ids if that is not meant."
            report.warning(Code.DUPLICATE_ID_CASEFOLD, "id", message, fix, position)

    def _check_text(self, row: dict[str, JsonValue], report: _Report) -> None:
        """No NUL and no half character anywhere: PostgreSQL stores neither."""
        for key, value in row.items():
            if key in keys.SOURCES or key == "id":
                continue  # told with more detail where they are read
            if evidence.has_unstorable_text(key) or evidence.has_unstorable_text(value):
                message = f"The key {shown(key, 40)} holds a NUL character or half of a character."
                report.error(Code.BAD_TEXT, keys.column(key), message, "Remove that character.")

    def _document(self, row: dict[str, JsonValue], given: list[str], span: Span, report: _Report) -> _Document | None:
        if len(given) != 1:
            if given:
                message = f"The row names {len(given)} documents: {', '.join(given)}."
                report.error(Code.SEVERAL_SOURCES, None, message, "Keep one of them.")
            return None
        key = given[0]
        value = row[key]
        if not isinstance(value, str) or not values.is_text(value):
            report.error(Code.WRONG_TYPE, key, f"{key} has to be text.", "Write it in quotes.")
            return None
        try:
            contents.check_is_no_placeholder(value)
        except Unfit as reason:
            report.unfit(key, reason, report.named(f"The {key}"))
            return None
        if key == "url":
            return self._url(value, report)
        if key == "html" and not values.is_markup(value):
            return self._file(value, report)
        return self._inline(key, value, span, report)

    def _inline(self, key: str, value: str, span: Span, report: _Report) -> _Document | None:
        try:
            if key == "markdown":
                values.check_markdown(value)
        except Unfit as reason:
            report.unfit(key, reason)
            return None
        try:
            content, _ = contents.checked_text(value, self.limits)
        except Unfit as reason:
            report.unfit(key, reason, report.named(f"The {key}"))
            return None
        _warn_of_placeholder(key, content, report)
        read = partial(_inline_content, self.manifest, span.start, span.size, key, content.raw_sha256, self.limits)
        return _Document("markdown" if key == "markdown" else "html", content, None, read)

    def _file(self, path: str, report: _Report) -> _Document | None:
        if not path.strip():
            report.error(Code.EMPTY_HTML, "html", "html is empty.", "Name a file, or put the document itself there.")
            return None
        try:
            name = self.files.locate(path.strip())
        except Unfit as reason:
            report.unfit("html", reason, report.named(f"The path {shown(path)}"))
            return None
        self.used_files.add(name)
        facts = self._file_facts(name)
        if isinstance(facts, Unfit):
            report.unfit("html", facts, report.named(f"The file {shown(name)}"))
            return None
        _warn_of_placeholder("html", facts, report)
        read = partial(_file_content, self.files, name, facts.raw_sha256, self.limits)
        return _Document("html", facts, name, read)

    def _file_facts(self, name: str) -> Content | Unfit:
        """Check a file once, however many rows name it."""
        if name not in self._checked_files:
            try:
                self._checked_files[name] = contents.checked_file(self.files.read(name), self.limits)[0]
            except Unfit as reason:
                self._checked_files[name] = reason.with_traceback(None)
        return self._checked_files[name]

    def _url(self, value: str, report: _Report) -> _Document | None:
        try:
            address = values.url(value)
            content, text = contents.checked_text(address, self.limits)
        except Unfit as reason:
            report.unfit("url", reason)
            return None
        return _Document("url", content, None, lambda: (text.encode(), text))

    def _filename(self, value: JsonValue, report: _Report) -> str:
        try:
            name = values.filename(value)
        except Unfit as reason:
            report.unfit("filename", reason)
            return ""
        first = self._filenames.setdefault(name.casefold(), report.position) if name else report.position
        if first != report.position:
            message = f"The filename {shown(name)} stands in rows {first} and {report.position}."
            fix = "A number is added when both are downloaded together; give each a name of its own to avoid that."
            report.warning(Code.FILENAME_COLLISION, "filename", message, fix, first)
        return name

    def _meta(self, value: JsonValue, report: _Report) -> dict[str, values.MetaValue]:
        try:
            return values.meta(value)
        except Unfit as reason:
            report.unfit("meta", reason)
            return {}


def _both_ids(one: str, position: int, other: str, other_position: int) -> str:
    return f"The ids {shown(one)} (row {position}) and {shown(other)} (row {other_position})"


def _warn_of_placeholder(key: str, content: Content, report: _Report) -> None:
    if content.placeholder:
        message = f"The document still holds the placeholder {content.placeholder}."
        report.warning(Code.UNRESOLVED_PLACEHOLDER, key, message, "Fill it in, unless it is meant to be printed so.")


def _inline_content(
    manifest: IO[bytes], start: int, size: int, key: str, raw_sha256: str, limits: Limits
) -> tuple[bytes, str]:
    manifest.seek(start)
    raw = manifest.read(size)
    try:
        row = parse(raw.strip(b" \t\r\n")).value
        value = row[key] if isinstance(row, dict) else None
        content, text = contents.checked_text(value if isinstance(value, str) else "", limits)
    except (ValueError, KeyError, RecursionError, Unfit) as error:
        raise _changed("The manifest") from error
    if content.raw_sha256 != raw_sha256:
        raise _changed("The manifest")
    return text.encode(), text


def _file_content(files: Files, name: str, raw_sha256: str, limits: Limits) -> tuple[bytes, str]:
    try:
        raw = files.read(name)
        content, text = contents.checked_file(raw, limits)
    except Unfit as error:
        raise _changed(f"The file {shown(name)}") from error
    if content.raw_sha256 != raw_sha256:
        raise _changed(f"The file {shown(name)}")
    return raw, text


def _changed(what: str) -> ManifestRefused:
    message = f"{what} changed while it was being read."
    return ManifestRefused(Code.CHANGED_WHILE_READING, message, "Wait until it is written to its end, and try again.")


_FIX_ROW = 'Write each row as {"id": "A-1", "html": "a-1.html"}.'
