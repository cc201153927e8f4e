"""What `submit` is told of a file that does not speak for itself: its encoding, dialect, mapping and template."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from batches import manifests
from batches.engine import templates
from batches.management import choosing
from batches.manifests import ManifestSource
from batches.manifests.choices import Choices
from batches.models import Workspace

#: Marks that a shell makes hard to type, by name.
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "\\t": "\t"}


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("--encoding", metavar="CODEC", default="", help="Of a manifest that is not UTF-8: cp1252, …")
    parser.add_argument("--delimiter", metavar="MARK", default="", help="Of a table: , ; | or tab.")
    parser.add_argument("--sheet", metavar="NAME", default="", help="Of a workbook; its first one if not given.")
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="COLUMN=TARGET",
        help="What a column of a table becomes: id, html, data.customer.name, meta.note …; nothing behind the = leaves "
        "it out. Columns that are not named become what their names say. May be given several times.",
    )
    parser.add_argument("--template", metavar="SLUG", default="", help="Fills rows that name no template.")
    parser.add_argument("--template-version", type=int, metavar="N", help="The published one if not given.")
    parser.add_argument(
        "--template-at-provider",
        action="store_true",
        help="--template names one that is stored at the provider; it needs a version.",
    )
    parser.add_argument(
        "--propose-rows", action="store_true", help="Make a document of each HTML file where there is no manifest."
    )


def choices_of(options: dict[str, Any], source: ManifestSource, workspace: Workspace) -> Choices:
    """What was chosen. Raises `ManifestRefused` for a file that cannot be looked at, and ends the command for words
    that make no sense."""
    chosen = Choices(
        encoding=options["encoding"],
        delimiter=DELIMITERS.get(options["delimiter"], options["delimiter"]),
        sheet=options["sheet"],
        template=options["template"],
        template_version=options["template_version"],
        are_provider_templates=options["template_at_provider"],
        propose_rows=options["propose_rows"],
    )
    if chosen.template_version is not None and not chosen.template:
        raise choosing.refusal("--template-version says which one of --template; give --template as well.")
    if chosen.are_provider_templates and not (chosen.template and chosen.template_version):
        raise choosing.refusal("--template-at-provider needs --template and --template-version: it is pinned.")
    if not options["map"]:
        return chosen
    given = _given(options["map"])
    seen = manifests.look(source, choices=chosen, templates=templates.of(workspace))
    unknown = [name for name in given if name not in seen.mapping]
    if unknown:
        known = ", ".join(seen.mapping) or "none"
        raise choosing.refusal(f"The file has no column {unknown[0]!r} to be mapped; it has: {known}.")
    values = chosen.as_dict() | {"mapping": {**seen.mapping, **given}}
    return Choices.from_dict(values)


def _given(pairs: list[str]) -> dict[str, str]:
    """`COLUMN=TARGET`, cut at the last `=`: no target has one."""
    found = {}
    for pair in pairs:
        name, mark, target = pair.rpartition("=")
        if not mark or not name:
            raise choosing.refusal(f"--map takes COLUMN=TARGET, as in --map 'Invoice no=id'; {pair!r} is none.")
        found[name.strip()] = target.strip()
    return found
