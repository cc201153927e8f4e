"""What the four steps of a draft's page show, and what their forms say. Reads a draft; decides nothing about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from batches import comparing, cursors, figures, sentences, uploads, wording
from batches.engine import drafts, terms
from batches.manifests import decoding
from batches.manifests.choices import Choices
from batches.manifests.keys import REMARK
from batches.models import SAMPLE_MOST, WORKING_STATES, ConflictPolicy, Draft, DraftState, ProviderAccount, TakeRows
from batches.notices import why_no_mail
from batches.selectors import usable_accounts
from batches.views import problems

#: The steps in their order; each is an anchor of the page.
ANCHORS = ("source", "map", "check", "run")
ANSWER_FIRST = "Answer what is asked below first; then the file is checked."
#: What stands before a batch runs by default: enough to see whether the documents look right.
SAMPLE_FIRST = 3
DELIMITERS = {",": "comma ,", ";": "semicolon ;", "\t": "tab", "|": "pipe |"}
FORMATS = {"json": "JSON list", "jsonl": "JSONL", "csv": "table (CSV)", "xlsx": "Excel workbook", "files": "HTML files"}
CONTAINERS = {"zip": "in a ZIP", "folder": "in a folder"}
SAMPLE_CELL = 80
#: Between the name of a template and its version, in the value of an option.
VERSION = "@"


@dataclass(frozen=True)
class Encoding:
    value: str
    label: str
    lines: Sequence[str]
    """How lines with accents read; none where they read as with one that stands before it, `same_as`."""
    is_chosen: bool
    same_as: str


@dataclass(frozen=True)
class Column:
    """One column of a table: what it becomes, and whence that is."""

    number: int
    name: str
    target: str
    hint: str
    cells: Sequence[str]

    @property
    def field(self) -> str:
        return f"target-{self.number}"


@dataclass(frozen=True)
class Option:
    value: str
    label: str
    is_chosen: bool


@dataclass(frozen=True)
class Progress:
    """How far the worker is; `share` of a thousand, None where nobody knows how many rows there are."""

    words: str
    share: int | None
    retry: str


# --- what is open ---------------------------------------------------------------------------------------------------


def open_questions(draft: Draft) -> list[str]:
    """What must be answered before the file is checked; a mapping of last time is offered, never taken silently."""
    asked = list(draft.look.get("questions", ()))
    if "mapping" not in asked and _offers_last_mapping(draft):
        asked.append("mapping")
    return asked


def _offers_last_mapping(draft: Draft) -> bool:
    if Choices.from_dict(draft.choices).mapping is not None:
        return False
    last = drafts.remembered(draft)
    return last is not None and _without_empty(last) != _without_empty(draft.look.get("mapping") or {})


def _without_empty(mapping: Mapping[str, str]) -> dict[str, str]:
    return {name: target for name, target in mapping.items() if target}


# --- what the forms say ---------------------------------------------------------------------------------------------


def source_choices(sent: Mapping[str, str]) -> dict[str, Any]:
    """Of the first step; a field that the form does not have changes nothing."""
    chosen: dict[str, Any] = {name: sent[name] for name in ("encoding", "sheet") if name in sent}
    if "delimiter" in sent:
        chosen["delimiter"] = {"tab": "\t"}.get(sent["delimiter"], sent["delimiter"])
    if "asks_rows" in sent:
        chosen["propose_rows"] = sent.get("propose_rows") == "yes"
    return chosen


def map_choices(draft: Draft, sent: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """Of the second step: the mapping by the names of the columns, and the template. And why it cannot be taken."""
    chosen: dict[str, Any] = {}
    columns = _table_columns(draft)
    if any(f"target-{number}" in sent for number in range(len(columns))):
        chosen["mapping"] = {
            name: sent.get(f"target-{number}", "").strip() for number, name in enumerate(columns) if name
        }
    at_provider = sent.get("provider_template", "").strip()
    if at_provider:
        version = cursors.number(sent.get("provider_version", "").strip())
        if not version:
            return {}, "Give the version of the provider's template as a whole number: it is pinned in each document."
        own = {"template": at_provider, "template_version": version, "are_provider_templates": True}
        return chosen | own, ""
    if "template" in sent:
        slug, _, number = sent["template"].partition(VERSION)
        chosen |= {"template": slug, "template_version": cursors.number(number), "are_provider_templates": False}
    return chosen, ""


# --- what is shown --------------------------------------------------------------------------------------------------


def context(draft: Draft, *, may_change: bool, typed_run: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """All that the page of a draft shows."""
    choices = Choices.from_dict(draft.choices)
    report = draft.report
    is_living = draft.state in uploads.LIVING
    templates = _templates(draft, choices)
    return {
        "draft": draft,
        "title": draft.name or draft.filename,
        "is_living": is_living,
        "is_working": draft.state in WORKING_STATES,
        "may_change": may_change and draft.state in drafts.CHANGEABLE,
        "progress": progress(draft),
        "questions": open_questions(draft) if is_living else [],
        "facts": _facts(draft),
        "encodings": _encodings(draft, choices),
        "delimiters": _delimiters(draft),
        "sheets": [Option(name, name, name == (choices.sheet or draft.look.get("sheet"))) for name in _sheets(draft)],
        "header": draft.look.get("columns") or [],
        "sample": _sample(draft),
        "columns": _columns(draft, choices),
        "is_last_mapping": _offers_last_mapping(draft),
        "targets": _targets(draft),
        "templates": templates,
        "sample_table_url": _sample_table_url(draft, choices) if any(each.is_chosen for each in templates) else "",
        "choices": choices,
        "mapping_problem": draft.look.get("mapping_problem") or "",
        "proposed_rows": draft.look.get("proposed_rows") or 0,
        "unmapped": draft.look.get("unmapped_fields") or [],
    } | (_checked(draft, report, typed_run) if report is not None else {})


def progress(draft: Draft) -> Progress:
    verb = "Starting" if draft.state == DraftState.STARTING else "Checking"
    total = (draft.report or {}).get("rows") or 0
    retry = ""
    if draft.words and draft.due_at is not None and draft.lease_owner is None and draft.tries:
        retry = f"{wording.sentence(draft.words)} It is tried again at {draft.due_at:%H:%M:%S} UTC."
    if not draft.rows_done:
        return Progress(f"{verb} the file.", None, retry)
    if not total:
        return Progress(f"{verb}: {draft.rows_done:,} rows so far.", None, retry)
    done = min(draft.rows_done, total)
    return Progress(f"{verb}: {done:,} of {total:,} rows.", round(1000 * done / total), retry)


def _facts(draft: Draft) -> list[tuple[str, str]]:
    """What was found out about the file by itself."""
    look, report = draft.look, draft.report or {}
    form = look.get("format") or report.get("format") or ""
    container = look.get("container") or report.get("container") or ""
    encoding = str(look.get("encoding") or report.get("encoding") or "")
    told = [
        ("Format", " ".join(filter(None, (FORMATS.get(form, str(form)), CONTAINERS.get(container, ""))))),
        ("Encoding", decoding.NAMES.get(encoding, encoding)),
        ("Delimiter", DELIMITERS.get(look.get("delimiter") or "", "")),
        ("Sheet", str(look.get("sheet") or "")),
        ("Rows", f"{report['rows']:,}" if report.get("rows") else ""),
        ("Columns", f"{len(look['columns']):,}" if look.get("columns") else ""),
    ]
    return [(name, value) for name, value in told if value]


def _encodings(draft: Draft, choices: Choices) -> list[Encoding]:
    """What can be chosen where the file does not say its encoding; each shows lines with accents as it would read."""
    look = draft.look
    chosen = choices.encoding or look.get("encoding") or ""
    found: list[Encoding] = []
    for each in look.get("other_encodings") or []:
        value, lines = each["encoding"], each.get("lines") or []
        same = next((other.label for other in found if lines and other.lines == lines), "")
        found.append(Encoding(value, each.get("name") or value, () if same else lines, value == chosen, same))
    return found


def _delimiters(draft: Draft) -> list[Option]:
    now = draft.look.get("delimiter")
    if not now:
        return []
    return [Option("tab" if mark == "\t" else mark, label, mark == now) for mark, label in DELIMITERS.items()]


def _sheets(draft: Draft) -> list[str]:
    return [str(name) for name in draft.look.get("sheets") or []]


def _sample(draft: Draft) -> list[list[str]]:
    """The first rows as cells of text, each cut."""
    columns = draft.look.get("columns") or []
    rows = draft.look.get("sample_rows") or []
    cells = [[row.get(name, "") for name in columns] if isinstance(row, Mapping) else list(row) for row in rows]
    return [[_cut(cell) for cell in row] for row in cells] if columns else []


def _cut(cell: Any) -> str:
    text = "" if cell is None else str(cell)
    return text if len(text) <= SAMPLE_CELL else f"{text[: SAMPLE_CELL - 1]}…"


def _table_columns(draft: Draft) -> list[str]:
    """The columns that can be mapped: those of a table. Rows of JSON name their keys themselves."""
    return list(draft.look["columns"]) if draft.look.get("header_sha256") else []


def _columns(draft: Draft, choices: Choices) -> list[Column]:
    names = _table_columns(draft)
    synonyms: Mapping[str, str] = draft.look.get("synonyms") or {}
    proposed: Mapping[str, str] = draft.look.get("mapping") or {}
    last = drafts.remembered(draft) if names and choices.mapping is None else None
    sample = _sample(draft)
    columns = []
    for number, name in enumerate(names):
        if not name or name.startswith(REMARK):  # columns that a list of failed rows adds become nothing
            continue
        target, hint = proposed.get(name, ""), ""
        if choices.mapping is not None:
            target = choices.mapping.get(name, "")
        elif last is not None:
            target, hint = last.get(name, ""), "as last time"
        elif name in synonyms:
            hint = f"its name is taken for {target}"
        cells = [row[number] for row in sample if number < len(row) and row[number]]
        columns.append(Column(number, name, target, hint, cells[:3]))
    return columns


def _targets(draft: Draft) -> list[str]:
    """What a column may become: what is reserved, then the fields of the template."""
    reserved = ["id", "html", "html_content", "markdown", "url", "filename", "template", "template_version"]
    fields = [f"data.{each['path']}" for each in draft.look.get("unmapped_fields") or []]
    named = [f"data.{name}" for name in _table_columns(draft)]
    return [*reserved, *dict.fromkeys([*fields, *named]), "meta.note", "option.format", "option.landscape"]


def _templates(draft: Draft, choices: Choices) -> list[Option]:
    """Every template with what is published, then its single versions."""
    chosen = "" if choices.are_provider_templates else choices.template
    options: list[Option] = []
    for each in uploads.offered_templates(draft.workspace):
        is_ours = each.slug == chosen
        if each.published is not None:
            label = f"{each.name}: what is published, version {each.published}"
            options.append(Option(each.slug, label, is_ours and choices.template_version is None))
        for number in each.versions:
            value = f"{each.slug}{VERSION}{number}"
            options.append(
                Option(value, f"{each.name}: version {number}", is_ours and choices.template_version == number)
            )
    return options


def _sample_table_url(draft: Draft, choices: Choices) -> str:
    """A table with a column for each field of the chosen template."""
    query = {"workspace": draft.workspace.slug}
    if choices.template_version is not None:
        query["version"] = str(choices.template_version)
    return f"{reverse('batches:template_sample', args=[choices.template])}?{urlencode(query)}"


def _checked(draft: Draft, report: Mapping[str, Any], typed_run: Mapping[str, Any] | None) -> dict[str, Any]:
    """The third and the fourth step."""
    notices = report.get("notices", [])
    errors = problems.presented(report["errors"])
    renders = report.get("renders", 0)
    corrects = draft.target_id is not None
    estimate = _estimate(draft.account, renders, report.get("estimate"))
    given = typed_run or {}
    return {
        "report": report,
        "errors": errors,
        "errors_have_rows": any(problem["rows"] for problem in errors),
        "warnings": problems.presented(report["warnings"]),
        "outcomes": problems.outcomes(report["summary"], corrects=corrects),
        "corrections": problems.corrections(report),
        "nothing_to_replace": wording.NOTHING_TO_REPLACE,
        "without_sending": problems.without_sending(report["summary"]),
        "failed_before": report["summary"].get("attached_failed", 0),
        "has_conflicts": any(error["code"] == "id_content_conflict" for error in errors)
        or draft.on_conflict == ConflictPolicy.NEW_VERSION,
        "conflicts": [Option(value, label, value == draft.on_conflict) for value, label in ConflictPolicy.choices],
        "takes": [Option(value, label, value == draft.take) for value, label in TakeRows.choices],
        "asks_take": not corrects and _asks_take(draft, report),
        "can_start": draft.state == DraftState.CHECKED and bool(report.get("ok")),
        "estimate": estimate,
        "terms": terms.of_account(draft.account),
        "start_words": start_words(draft.account, estimate),
        "comparison": _comparison(draft, renders if report.get("ok") else report.get("rows", 0)),
        "needs_confirmation": any(notice["needs_confirmation"] for notice in notices),
        "sample_size": given.get("sample_size", draft.sample_size or SAMPLE_FIRST if renders > SAMPLE_FIRST else 0),
        "sample_most": SAMPLE_MOST,
        "stop_after_failures": given.get("stop_after_failures", draft.stop_after_failures or ""),
        "wants_notices": "wants_notices" in given if typed_run else _wants_notices(draft),
        "why_no_mail": why_no_mail(draft.created_by) if draft.created_by else "",
        "spend_cap": given.get("spend_cap", f"{draft.spend_cap.normalize():f}" if draft.spend_cap is not None else ""),
    }


def _wants_notices(draft: Draft) -> bool:
    """As it was chosen at an earlier start that came to nothing, else on where the person has an address."""
    if draft.renders_shown is not None:
        return draft.wants_notices
    return draft.created_by is not None and bool(draft.created_by.email)


def _asks_take(draft: Draft, report: Mapping[str, Any]) -> bool:
    """Whether the good rows could be taken: some are, and what is wrong is wrong with rows."""
    if draft.take == TakeRows.GOOD:
        return True
    good = report.get("rows", 0) - report.get("left_out", 0)
    return bool(report["errors"]) and good > 0 and all(error["rows"] for error in report["errors"])


def _estimate(account: ProviderAccount, renders: int, checked: Mapping[str, Any] | None) -> sentences.Estimate:
    """As the check reckoned it, with what it rests on."""
    if checked is None or checked["renders"] != renders:
        return sentences.estimate(account, renders)
    cost = "" if checked["cost"] is None else figures.money(Decimal(checked["cost"]), checked["currency"])
    duration = figures.duration(checked["seconds"])
    return sentences.Estimate(renders, duration, cost, checked["basis"], checked["seconds_basis"])


def start_words(account: ProviderAccount, estimate: sentences.Estimate) -> str:
    """`Start: renders 1,240, about 62 min at 20 a minute, estimated 1.60 USD`"""
    parts = [f"renders {estimate.renders:,}", f"{estimate.duration} at {_a_minute(sentences.interval_ms(account))}"]
    parts += [f"estimated {estimate.cost}"] if estimate.cost else []
    return f"Start: {', '.join(parts)}"


def _a_minute(interval_ms: float) -> str:
    """The pace as `20 a minute`, where it is slower than one a second and at least two a minute."""
    if not 1000 < interval_ms <= 30_000:
        return figures.pace(interval_ms)
    return f"{60_000 / interval_ms:,.3g} a minute"


def _comparison(draft: Draft, renders: int) -> comparing.Comparison | None:
    """The accounts on which it could be started, side by side; None where there is no choice."""
    offered = list(usable_accounts([draft.workspace]))
    if len(offered) < 2 or draft.target_id is not None or draft.state not in drafts.CHANGEABLE:
        return None
    return comparing.of_accounts(offered, renders, chosen=draft.account)
