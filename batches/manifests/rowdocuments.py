"""The document of a row: the one source it names, found, read or filled, and checked.

Owns the rules of sources. Never opens an upload: the files it may read and the templates it may fill come in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from batches.manifests import contents, damage, keys, references, rowtemplates, values
from batches.manifests.choices import Choices
from batches.manifests.contents import Content
from batches.manifests.jsonrows import JsonValue
from batches.manifests.limits import Limits
from batches.manifests.manifest import SourceKind
from batches.manifests.problems import Code, Findings, Unfit, shown
from batches.manifests.references import Reference, ReferenceKind, References
from batches.manifests.rowreport import RowReport
from batches.manifests.source import Files
from batches.manifests.templates import MissingField, RowTemplate, Templates

#: The kinds of a document as a sentence names them.
_KINDS = {
    "html": "HTML",
    "markdown": "Markdown",
    "url": "web addresses",
    "template": "templates that the provider keeps",
}
#: Missing fields of one row that are looked for one after the other.
_MISSING_MOST = 50
#: What stands in for a field that a row lacks, while the others that it lacks are looked for: the first one with which
#: the template gets further. A number, dates, a list.
_STAND_INS: tuple[object, ...] = ("1", "2026-10-05", "05.10.2026", [])


class RowDocument(NamedTuple):
    """A row's document as it was found: what `ManifestRow` keeps of it."""

    kind: SourceKind
    content: Content
    path: str | None = None
    template_key: int | None = None


@dataclass(slots=True)
class RowDocuments:
    """Finds the documents of one upload's rows, one after the other."""

    files: Files
    limits: Limits
    templates: Templates
    choices: Choices
    is_table: bool
    """Whether rows are made of the cells of a table."""
    used_files: set[str] = field(default_factory=set)
    """Names of all files that some row named."""
    templates_by_key: dict[int, RowTemplate] = field(default_factory=dict)
    _checked_files: dict[str, Content | Unfit] = field(default_factory=dict)
    _found_templates: dict[tuple[str, int | None], RowTemplate | Unfit] = field(default_factory=dict)
    _unused: dict[tuple[int, str], int] = field(default_factory=dict)
    """Rows that have data under a path that the template (its key) does not read."""

    def of_row(self, row: dict[str, JsonValue], given: list[str], report: RowReport) -> RowDocument | None:
        """The document of a row that names the sources `given`; None after noting why it has none."""
        if len(given) != 1:
            if given:
                message = f"The row names {len(given)} documents: {', '.join(given)}."
                report.error(Code.SEVERAL_SOURCES, None, message, "Keep one of them.")
            return None
        key = given[0]
        found = self._found(key, row, report)
        return found if found is not None and self._is_taken(key, found.kind, report) else None

    def _found(self, key: str, row: dict[str, JsonValue], report: RowReport) -> RowDocument | None:
        if key == keys.TEMPLATE:
            return self._of_template(row, report)
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
        return self._inline(key, value, report)

    def _is_taken(self, key: str, kind: SourceKind, report: RowReport) -> bool:
        """Whether the account takes documents of this kind; tells where it does not. A template of ours is HTML by the
        time it leaves."""
        if self.limits.sources is None or kind in self.limits.sources:
            return True
        account, takes = self.limits.account, " or ".join(sorted(_KINDS[each] for each in self.limits.sources))
        message = f"The account {account} does not take {_KINDS[kind]}."
        report.error(
            Code.SOURCE_NOT_TAKEN, key, message, f"Give {takes}, or choose an account that takes such documents."
        )
        return False

    def lacks_file(self, row: dict[str, JsonValue]) -> bool:
        """Whether the row names a file that is not in the upload."""
        value = row.get("html")
        if not isinstance(value, str) or not value.strip() or values.is_markup(value):
            return False
        try:
            self.files.locate(value.strip())
        except Unfit:
            return True
        return False

    def tell_unused(self, findings: Findings) -> None:
        """Warn of data that no template read; once all rows were looked at."""
        for (template_key, path), count in self._unused.items():
            template = self.templates_by_key[template_key]
            rows = "one row" if count == 1 else f"{count:,} rows"
            message = (
                f"The template {template.slug} v{template.number} does not read {shown(path, 60)}, which {rows} give."
            )
            fix = "Check its spelling in the template, or leave it: it changes nothing."
            findings.upload_warning(Code.UNKNOWN_COLUMN, message, fix, column=keys.column(path))

    def _inline(self, key: str, value: str, report: RowReport) -> RowDocument | None:
        try:
            if key == "markdown":
                values.check_markdown(value)
        except Unfit as reason:
            report.unfit(key, reason)
            return None
        found = damage.of_document(value)
        if found is not None:
            report.error(Code.SPREADSHEET_DAMAGE, key, f"{report.named(f'The {key}')} {found.message}", found.fix)
            return None
        kind: SourceKind = "markdown" if key == "markdown" else "html"
        return self._checked(key, kind, value, report.named(f"The {key}"), report)

    def _checked(
        self, column: str, kind: SourceKind, text: str, subject: str, report: RowReport, template_key: int | None = None
    ) -> RowDocument | None:
        try:
            content = contents.checked_text(text, self.limits, kind)
        except Unfit as reason:
            report.unfit(column, reason, subject)
            return None
        self._judge(column, content, report)
        return RowDocument(kind, content, None, template_key)

    def _file(self, path: str, report: RowReport) -> RowDocument | None:
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
        self._judge("html", facts, report)
        return RowDocument("html", facts, name)

    def _file_facts(self, name: str) -> Content | Unfit:
        """Check a file once, however many rows name it."""
        if name not in self._checked_files:
            try:
                self._checked_files[name] = contents.checked_file(self.files.read(name), self.limits)[0]
            except Unfit as reason:
                self._checked_files[name] = reason.with_traceback(None)
        return self._checked_files[name]

    def _url(self, value: str, report: RowReport) -> RowDocument | None:
        try:
            content = contents.checked_text(values.url(value), self.limits, "url")
        except Unfit as reason:
            report.unfit("url", reason)
            return None
        return RowDocument("url", content)

    def _judge(self, column: str, content: Content, report: RowReport) -> None:
        """Note what is odd about a document that could be sent."""
        if content.placeholder:
            message = f"The document still holds the placeholder {content.placeholder}."
            fix = "Fill it in, unless it is meant to be printed so."
            report.warning(Code.UNRESOLVED_PLACEHOLDER, column, message, fix)
        self.judge_references(column, content.references, report)

    def judge_references(self, column: str, found: References, report: RowReport) -> None:
        """Note what a document or a part of its pages would load and cannot, or must not."""
        is_blocked = self.limits.blocks_private
        for reference in found.found:
            code, message, fix = _about(reference)
            is_open = reference.kind is ReferenceKind.NOT_SENT or not is_blocked
            (report.warning if is_open else report.error)(code, column, message, fix)
        if found.is_cut and is_blocked:
            message = f"The document refers to more than {references.MOST:,} other files; only so many are looked at."
            report.error(Code.REMOTE_ASSET, column, message, "Put its pictures and style sheets inside it.")

    def _judge_data(self, data: Mapping[str, Any], report: RowReport) -> None:
        """Note values that a spreadsheet damaged, before they are printed."""
        for path, value in damage.leaves(data):
            found = damage.of_datum(path, value, is_cell=self.is_table) if path != "id" else None
            if found is not None:
                message = f"{report.named(f'The value {shown(str(value), 40)}')} {found.message}"
                tell = report.error if found.is_lost else report.warning
                tell(Code.SPREADSHEET_DAMAGE, keys.column(path), message, found.fix)

    def _of_template(self, row: dict[str, JsonValue], report: RowReport) -> RowDocument | None:
        try:
            slug = rowtemplates.slug(row, self.choices)
        except Unfit as reason:
            report.unfit(keys.TEMPLATE, reason)
            return None
        if self.choices.are_provider_templates:
            return self._at_provider(row, slug, report)
        try:
            number = rowtemplates.version(row, self.choices)
        except Unfit as reason:
            report.unfit("template_version", reason)
            return None
        template = self._template(slug, number)
        if isinstance(template, Unfit):
            report.unfit(keys.TEMPLATE, template)
            return None
        try:
            data = rowtemplates.data_of(row, report.business_id or "")
        except Unfit as reason:
            report.unfit("data", reason)
            return None
        for path in rowtemplates.unused(data, template.fields):
            self._unused[template.key, path] = self._unused.get((template.key, path), 0) + 1
        self._judge_data(data, report)
        text = _filled(template, data, report)
        if text is None:
            return None
        subject = report.named(f"The filled template {template.slug} v{template.number}")
        return self._checked(keys.TEMPLATE, "html", text, subject, report, template.key)

    def _template(self, slug: str, number: int | None) -> RowTemplate | Unfit:
        """Look a template up once, however many rows name it."""
        wanted = (slug, number)
        if wanted not in self._found_templates:
            try:
                found = self.templates.find(slug, number)
            except Unfit as reason:
                self._found_templates[wanted] = reason.with_traceback(None)
            else:
                self._found_templates[wanted] = self.templates_by_key.setdefault(found.key, found)
        return self._found_templates[wanted]

    def _at_provider(self, row: dict[str, JsonValue], slug: str, report: RowReport) -> RowDocument | None:
        try:
            number = rowtemplates.pinned_version(row, self.choices)
        except Unfit as reason:
            report.unfit("template_version", reason)
            return None
        try:
            data = rowtemplates.data_of(row, report.business_id or "")
        except Unfit as reason:
            report.unfit("data", reason)
            return None
        try:
            content = contents.checked_data(rowtemplates.canonical(slug, number, data), self.limits)
        except Unfit as reason:
            report.unfit("data", reason, report.named("The data"))
            return None
        self._judge_data(data, report)
        return RowDocument("template", content)


def _about(reference: Reference) -> tuple[Code, str, str]:
    """Code, sentence and fix for a reference that will fail, or must not be followed."""
    value = shown(reference.value, 100)
    if reference.kind is ReferenceKind.NOT_SENT:
        message = f"The document refers to {value}, and only its own text is sent: that will be missing."
        return Code.LOCAL_ASSET, message, "Put pictures, fonts and style sheets inside it (data: addresses, <style>)."
    if reference.kind is ReferenceKind.LOCAL_FILE:
        message = f"The document refers to {value}, a file on somebody's computer: it will be missing."
        return Code.LOCAL_ASSET, message, "Put the file inside the document (a data: address)."
    message = f"The document refers to {value}, an address inside a private network."
    return Code.REMOTE_ASSET, message, "Put what stands there inside the document, or give a public address."


def _filled(template: RowTemplate, data: Mapping[str, Any], report: RowReport) -> str | None:
    """The template's text for this row; None after noting every field that the row lacks, and what it gives wrongly."""
    told: set[str] = set()
    faults: list[Unfit] = []
    trials: Iterator[Mapping[str, Any]] = iter((data,))
    while (filled := next(trials, None)) is not None:
        try:
            text = template.fill(filled)
        except MissingField as missing:
            if missing.path in told or len(told) >= _MISSING_MOST:
                return None
            told.add(missing.path)
            report.error(missing.code, keys.column(missing.path), missing.message, missing.fix)
            faults, trials = [], _stood_in(filled, missing.path)
        except Unfit as reason:
            faults.append(reason)
        else:
            return None if told else text
    fault = _of_the_row(faults) if told else faults[0]
    if fault is not None:
        report.unfit(keys.TEMPLATE, fault)
    return None


def _stood_in(data: Mapping[str, Any], path: str) -> Iterator[Mapping[str, Any]]:
    """`data` with each of what may stand for the field that it lacks; nothing where none can."""
    for stand_in in _STAND_INS:
        filled = rowtemplates.with_field(data, path, stand_in)
        if filled is not None:
            yield filled


def _of_the_row(faults: Sequence[Unfit]) -> Unfit | None:
    """The fault that stays whatever stands in for what is missing: a value of the row is wrong. One that names what
    stood in differs each time."""
    counted = Counter((fault.code, fault.message) for fault in faults)
    return next((fault for fault in faults if counted[fault.code, fault.message] > 1), None)
