"""`manage.py template upload|list|publish|show`: our own templates from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.utils import timezone

from batches import figures, templating
from batches.engine import publishing, staleness, template_uploads
from batches.engine.errors import TemplateRule
from batches.management import auditing, choosing
from batches.management.readiness import DatabaseCommand
from batches.models import Template, TemplateVersion, Workspace
from batches.storage import open_store


class Command(DatabaseCommand):
    help = "Upload, list, publish and show templates."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="upload|list|publish|show")
        upload = verbs.add_parser("upload", help="Check an HTML file, or a ZIP with one, and store it as a version.")
        upload.add_argument("file")
        upload.add_argument("--slug", help="Its short name; the file's name without one.")
        upload.add_argument("--name", default="", help="Its name on pages, when it is new.")
        upload.add_argument("--note", default="", help="What changed.")
        upload.add_argument("--publish", action="store_true", help="Publish the version too.")
        publish = verbs.add_parser("publish", help="Make a version the one that rows get; an older one rolls back.")
        publish.add_argument("slug")
        publish.add_argument("number", type=int, nargs="?", help="Of the version; the newest without it.")
        publish.add_argument("--reason", default="")
        publish.add_argument("--dry-run", action="store_true", help="Only tell which documents it would leave stale.")
        show = verbs.add_parser("show", help="The fields of a version, and the versions there are.")
        show.add_argument("slug")
        show.add_argument("number", type=int, nargs="?", help="The published version without it, else the newest.")
        listing = verbs.add_parser("list", help="Every template that is in use.")
        for each in (upload, publish, show, listing):
            each.add_argument("--workspace", help="Slug of the workspace; needed where there are several.")
            each.add_argument("--json", action="store_true", help="Print one JSON document.")

    def handle(self, *args: Any, **options: Any) -> None:
        workspace = choosing.workspace(options["workspace"])
        answer, words = getattr(self, f"_{options['verb']}")(workspace, options)
        self.stdout.write(json.dumps(answer, ensure_ascii=False, indent=2) if options["json"] else words)

    def _upload(self, workspace: Workspace, options: dict[str, Any]) -> tuple[Any, str]:
        path = Path(options["file"])
        slug = options["slug"] or template_uploads.slug_of(path.stem)
        try:
            with path.open("rb") as stream:
                checked = template_uploads.checked(stream, path.name)
                made = template_uploads.upload(
                    checked,
                    workspace=workspace,
                    slug=slug,
                    name=options["name"],
                    note=options["note"],
                    by=auditing.by(),
                    store=open_store(settings.STORAGE_URL),
                    now=timezone.now(),
                )
        except OSError as error:
            raise choosing.refusal(f"{path} cannot be read ({error.strerror}).") from error
        except templating.TemplateRefused as refused:
            raise choosing.refusal("\n".join(map(str, refused.problems))) from refused
        except TemplateRule as rule:
            raise choosing.refusal(rule.words) from rule
        number = made.version.number
        words = [
            f"Version {number} of {slug} was stored." if made.is_new else f"Version {number} of {slug} is the same."
        ]
        words += [f"Warning: {warning}" for warning in checked.warnings]
        if options["publish"]:
            words.append(self._published(made.version, ""))
        elif made.version.template.published_id != made.version.pk:
            words.append(f"It is used once it is published: manage.py template publish {slug} {number}")
        answer = _facts(made.version) | {"is_new": made.is_new, "warnings": [str(each) for each in checked.warnings]}
        return answer, "\n".join(words)

    def _publish(self, workspace: Workspace, options: dict[str, Any]) -> tuple[Any, str]:
        version = _version(workspace, options, is_newest=True)
        look = staleness.look(version)
        found = {"examined": look.examined, "stale": len(look.stale), "unfillable": len(look.unfillable)}
        words = "No document was made with another version of it."
        if look.examined:
            words = (
                f"{len(look.stale)} of {figures.documents(look.examined)} would get another text, "
                f"{len(look.unfillable)} could not be filled; nothing is made again and nothing is billed."
            )
        if look.after is not None:
            words += f" The look ended after {look.examined}; there are more."
        named = [f"  {each.business_id} (v{each.template_number}) {each.words}".rstrip() for each in look.unfillable]
        named += [f"  {each.business_id} (v{each.template_number})" for each in look.stale[:20]]
        done = "" if options["dry_run"] else self._published(version, options["reason"])
        version.refresh_from_db()
        return _facts(version) | found, "\n".join(each for each in (done, words, *named) if each)

    def _published(self, version: TemplateVersion, reason: str) -> str:
        now = timezone.now()
        try:
            done = publishing.publish(version.template_id, version.number, by=auditing.by(), now=now, reason=reason)
        except TemplateRule as rule:
            raise choosing.refusal(rule.words) from rule
        return f"Version {version.number} is published." if done else f"Version {version.number} was published already."

    def _list(self, workspace: Workspace, options: dict[str, Any]) -> tuple[Any, str]:
        found = Template.objects.filter(workspace=workspace, archived_at=None).select_related("published")
        rows: list[dict[str, Any]] = [
            {"slug": each.slug, "name": each.name, "published": each.published.number if each.published else None}
            for each in found.defer("published__source").order_by("slug")
        ]
        lines = [f"{row['slug']}: {row['name']}, {_published_words(row['published'])}" for row in rows]
        return rows, "\n".join(lines) or "There are no templates. Upload one: manage.py template upload invoice.html"

    def _show(self, workspace: Workspace, options: dict[str, Any]) -> tuple[Any, str]:
        version = _version(workspace, options, is_newest=False)
        facts = _facts(version)
        published: int | None = facts["published"]
        lines = [f"{version.template.slug} v{version.number}, {_published_words(published)}"]
        for read in templating.of_fields(version.fields):
            lines.append(f"  {read.path}: {read.need.value}, line {', '.join(map(str, read.lines))}")
        return facts, "\n".join(lines)


def _version(workspace: Workspace, options: dict[str, Any], *, is_newest: bool) -> TemplateVersion:
    template = Template.objects.filter(workspace=workspace, slug=options["slug"].replace("\0", "")).first()
    if template is None:
        words = f"There is no template {options['slug'][:60]!r} here; `template list` tells what there is."
        raise choosing.refusal(words)
    number = options["number"]
    if number is not None:
        version = template.versions.filter(number=number).first() if 0 < number < 2**31 else None
    else:
        version = (None if is_newest else template.published) or template.versions.order_by("-number").first()
    if version is None:
        raise choosing.refusal(f"The template {template.slug} has no such version.")
    version.template = template
    return version


def _facts(version: TemplateVersion) -> dict[str, Any]:
    template = Template.objects.select_related("published").defer("published__source").get(pk=version.template_id)
    return {
        "slug": template.slug,
        "name": template.name,
        "version": version.number,
        "published": template.published.number if template.published else None,
        "sha256": version.sha256,
        "fields": version.fields,
        "versions": list(template.versions.order_by("number").values_list("number", flat=True)),
    }


def _published_words(number: int | None) -> str:
    return f"version {number} is published" if number else "no version is published"
