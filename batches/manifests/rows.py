"""One row of a manifest: its keys and values checked, its document found, everything wrong with it noted.

Owns the rules of a row and the ones between rows (ids and file names that meet twice). Never opens an
upload: the files it may read come in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from batches.manifests import corrections, damage, evidence, identifiers, keys, options, references, values
from batches.manifests.choices import NO_CHOICES, Choices
from batches.manifests.contents import Content
from batches.manifests.corrections import Asked
from batches.manifests.jsonrows import JsonValue, Span, as_written
from batches.manifests.limits import Limits
from batches.manifests.manifest import ManifestRow, fingerprint_of_digest
from batches.manifests.problems import Code, Findings, Place, Unfit, shown
from batches.manifests.rereading import Nest, RowReader, as_given
from batches.manifests.rowdocuments import RowDocument, RowDocuments
from batches.manifests.rowreport import RowReport
from batches.manifests.source import Files
from batches.manifests.templates import NoTemplates, Templates
from batches.rownumbers import said

AsBefore = Callable[[dict[str, Any]], bool]
"""Whether the columns of a row are those of a row that is known, its document left out."""

_NOTHING: Mapping[str, Any] = {}
"""Shared by all rows that say nothing."""

#: The document of a correction that leaves it as it was.
_KEPT = RowDocument("html", Content(0, 0, "", "", "utf-8", None))


class RowChecker:
    """Checks rows one after another and remembers what two rows may not share.

    `manifest` is where rows are read again, each a JSON object at its span. `nest` makes a row of such an object's
    columns, where it is not one already: a table, in which whoever cut it into rows has looked for damaged cells.
    `has_characters`: a place is line and character (a JSON list), not the line alone (JSONL). `corrects`: the rows
    correct failed ones, and so may leave out what those have (`corrections.py`).
    """

    def __init__(
        self,
        files: Files,
        manifest: IO[bytes],
        limits: Limits,
        findings: Findings,
        *,
        has_characters: bool,
        nest: Nest = as_given,
        templates: Templates | None = None,
        choices: Choices = NO_CHOICES,
        corrects: bool = False,
        is_as_before: AsBefore | None = None,
    ) -> None:
        self._corrects = corrects
        self._is_as_before = is_as_before
        self._findings = findings
        self._has_characters = has_characters
        self._nest = nest
        self._is_table = nest is not as_given
        self._choices = choices
        self._documents = RowDocuments(files, limits, templates or NoTemplates(), choices, self._is_table)
        self._restore = corrections.restored if corrects and not self._is_table else as_given
        templates_by_key = self._documents.templates_by_key
        self._reader = RowReader(files, manifest, limits, nest, choices, templates_by_key, self._restore)
        self._watch = damage.ColumnWatch()
        self._ids: dict[str, tuple[str, int]] = {}
        self._look_alikes: dict[str, tuple[str, int]] = {}
        self._filenames: dict[str, int] = {}

    @property
    def reader(self) -> RowReader:
        """The way back to all of its rows."""
        return self._reader

    @property
    def used_files(self) -> set[str]:
        """Names of all files that some row named."""
        return self._documents.used_files

    def check(
        self, position: int, span: Span, columns: JsonValue, repeated_keys: tuple[str, ...]
    ) -> ManifestRow | None:
        """Note all problems of a row; returns it when it may be stored."""
        report = RowReport(self._findings, position, span, self._has_characters)
        cells = self._sound(columns, report)
        if cells is None:
            return None
        value = self._nest(cells)
        if self._is_left(cells, value, report):
            return None
        asked, keeps_document, keeps_options = self._asked(value)
        business_id = self._business_id(value, report)
        for key in dict.fromkeys(repeated_keys):
            message = f"The key {shown(key, 40)} stands twice in the row."
            report.error(Code.DUPLICATE_KEY, keys.column(key), message, "Keep one of them.")
        is_storable = self._is_storable(value, report)
        document = self._document(asked, report, is_storable=is_storable, keeps_document=keeps_document)
        kept_options = self._options(asked.get("options"), report)
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
            options=kept_options or _NOTHING,
            meta=meta or _NOTHING,
            path=document.path,
            template_key=document.template_key,
            charset=content.charset,
            content_sha256=content.raw_sha256,
            content_bytes=content.raw_bytes,
            text_bytes=content.text_bytes,
            input_sha256=fingerprint_of_digest(document.kind, content.text_sha256, kept_options),
            start=span.start,
            size=span.size,
            _reader=self._reader,
            keeps_input=keeps_document,
            keeps_options=keeps_options,
        )

    @property
    def corrects(self) -> bool:
        """Whether the rows correct failed ones."""
        return self._corrects

    def _asked(self, value: dict[str, JsonValue]) -> Asked:
        if not self._corrects:
            return Asked(value)
        return corrections.without_kept(value, has_default_template=bool(self._choices.template))

    def _is_left(self, columns: dict[str, JsonValue], value: dict[str, JsonValue], report: RowReport) -> bool:
        """Whether the row says nothing that could be checked: what it stands for is not there, and no version that
        failed has it in a form to be taken over. Either it is as it was before, or that is an error."""
        if self._is_table and not self._corrects:
            return False  # told of each cell by whoever cut the table into rows
        lost = corrections.lost_datum(value, has_default_template=bool(self._choices.template))
        lacks_file = self._is_as_before is not None and self._documents.lacks_file(value)
        if self._is_as_before is not None and (lost or lacks_file) and self._is_as_before(as_written(columns)):
            return True
        if lost is None:
            return False
        message = f"The cell under {shown(lost, 40)} only says that a longer text stood there: it is no content."
        report.error(Code.UNRESOLVED_PLACEHOLDER, keys.column(lost), message, _FIX_LOST)
        return True

    def _sound(self, columns: JsonValue, report: RowReport) -> dict[str, JsonValue] | None:
        """The columns of a row, freed of our guards; None after noting why this is none."""
        if not isinstance(columns, dict):
            report.error(Code.WRONG_TYPE, None, "The row is not an object.", _FIX_ROW)
            return None
        if len(columns) > keys.MOST_KEYS:
            message = f"The row has {len(columns):,} keys; {keys.MOST_KEYS} are allowed."
            report.error(Code.WRONG_TYPE, None, message, _FIX_ROW)
            return None
        if not self._is_table:  # told of the rows of a table by whoever cut it into them
            self._watch.see(columns)
            if damage.repeats_header(columns):
                message = "The row repeats the header: its values are the names of their columns."
                fix = "Remove it; two exports were probably put behind each other."
                report.error(Code.SPREADSHEET_DAMAGE, None, message, fix)
                return None
        return self._restore(columns)

    def _document(
        self, asked: dict[str, JsonValue], report: RowReport, *, is_storable: bool, keeps_document: bool
    ) -> RowDocument | None:
        """The row's document; None after noting why it has none. Nothing is filled from what could not be stored."""
        given = keys.checked_names(
            asked,
            report.error,
            report.warning,
            has_default_template=bool(self._choices.template) and not keeps_document,
            needs_source=not keeps_document,
        )
        if keeps_document:
            return _KEPT
        is_fillable = is_storable or keys.TEMPLATE not in given
        return self._documents.of_row(asked, given, report) if is_fillable else None

    def _options(self, value: JsonValue, report: RowReport) -> dict[str, Any]:
        kept, wrong = options.checked(value)
        for column, message, fix in wrong:
            report.error(Code.BAD_OPTION, column, message, fix)
        for name in options.HTML & kept.keys():
            found = references.of_document(kept[name].encode("utf-8", "replace"))
            self._documents.judge_references(f"options.{name}", found, report)
        return kept

    def finish(self, rows: Sequence[ManifestRow], row_count: int) -> tuple[str, ...]:
        """Note what only shows once all rows were checked; returns the names of their columns.

        `rows` are those that `check` returned; `row_count` counts the others too.
        """
        self._documents.tell_unused(self._findings)
        for row in rows:
            self._findings.locate(row.position, row.line, row.business_id, row.start, row.size)
        for suspect in damage.suspects([row.business_id for row in rows]):
            row = rows[suspect.index]
            place = Place(row.position, row.line, row.character, row.business_id, suspect.message, suspect.fix)
            self._findings.row_warning(suspect.code, "id", place)
        for name in self._watch.empty() if row_count > 1 else ():
            if name not in keys.MAY_BE_EMPTY and not name.startswith(keys.REMARK):
                message = f"The column {shown(name, 60)} is empty in all {row_count:,} rows."
                fix = "If it should hold something, check where the file was made; else leave it as it is."
                self._findings.upload_warning(Code.SPREADSHEET_DAMAGE, message, fix, column=keys.column(name))
        return self._watch.names()

    def refuse_line(self, position: int, span: Span, message: str, fix: str) -> None:
        """Note a row that could not be read at all."""
        report = RowReport(self._findings, position, span, self._has_characters)
        report.error(Code.BAD_JSON_LINE, None, message, fix)

    def refuse_size(self, position: int, span: Span, message: str, fix: str) -> None:
        """Note a row that is too large to be looked at."""
        report = RowReport(self._findings, position, span, self._has_characters)
        report.error(Code.FILE_TOO_LARGE, None, message, fix)

    def _business_id(self, row: dict[str, JsonValue], report: RowReport) -> str | None:
        given = row.get("id")
        try:
            business_id = identifiers.normalised(given)
        except Unfit as reason:
            meant = keys.probable_id(row) if reason.code is Code.MISSING_ID else None
            fix = f'Rename the key {shown(meant, 40)} to "id".' if meant else reason.fix
            report.error(reason.code, "id", reason.message, fix)
            return None
        report.business_id = business_id
        if identifiers.has_invisible(business_id):
            message = f"The id {shown(business_id)} holds an invisible character."
            report.warning(Code.BAD_ID, "id", message, "Remove it, or nobody will find the document by its id.")
        if identifiers.is_trimmed(given):
            message = f"Around the id {shown(business_id)} stood white space, which is no part of it."
            report.warning(
                Code.BAD_ID, "id", message, "Take it off where the file is made, so that ids can be compared."
            )
        found = damage.of_id(business_id)
        if found is not None:
            tell = report.error if found.is_lost else report.warning
            tell(Code.SPREADSHEET_DAMAGE, "id", f"The id {shown(business_id)} {found.message}", found.fix)
        self._compare_ids(business_id, report)
        return business_id

    def _compare_ids(self, business_id: str, report: RowReport) -> None:
        """Note an id that an earlier row has, or one that only looks different to a machine."""
        here = (business_id, report.position)
        earlier, position = self._ids.setdefault(identifiers.visible_key(business_id), here)
        if position != report.position:
            message = f"The id {shown(business_id)} stands in rows {said(position)} and {said(report.position)}."
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

    def _is_storable(self, row: dict[str, JsonValue], report: RowReport) -> bool:
        """No NUL and no half character anywhere: PostgreSQL stores neither. Documents are looked at elsewhere."""
        is_storable = True
        for key, value in row.items():
            if key in keys.SOURCES or key == "id":
                continue  # told with more detail where they are read
            if evidence.has_unstorable_text(key) or evidence.has_unstorable_text(value):
                is_storable = False
                message = f"The key {shown(key, 40)} holds a NUL character or half of a character."
                report.error(Code.BAD_TEXT, keys.column(key), message, "Remove that character.")
        return is_storable

    def _filename(self, value: JsonValue, report: RowReport) -> str:
        try:
            name = values.filename(value)
        except Unfit as reason:
            report.unfit("filename", reason)
            return ""
        first = self._filenames.setdefault(name.casefold(), report.position) if name else report.position
        if first != report.position:
            message = f"The filename {shown(name)} stands in rows {said(first)} and {said(report.position)}."
            fix = "A number is added when both are downloaded together; give each a name of its own to avoid that."
            report.warning(Code.FILENAME_COLLISION, "filename", message, fix, first)
        return name

    def _meta(self, value: JsonValue, report: RowReport) -> dict[str, values.MetaValue]:
        try:
            return values.meta(value)
        except Unfit as reason:
            report.unfit("meta", reason)
            return {}


def _both_ids(one: str, position: int, other: str, other_position: int) -> str:
    return f"The ids {shown(one)} (row {said(position)}) and {shown(other)} (row {said(other_position)})"


_FIX_LOST = "Put the text itself there, or leave the row out of the file."
_FIX_ROW = 'Write each row as {"id": "A-1", "html": "a-1.html"}.'
