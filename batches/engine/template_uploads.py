"""An uploaded template on its way to a version: opened without trust, checked whole, its files put inside, numbered.

`checked` stores nothing and tells all that is wrong at once. `upload` writes a version, under the lock of the
workspace, unless the newest one is the same already.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import IO, Any, BinaryIO, cast

from django.db import transaction
from django.utils.text import slugify

from batches import templating
from batches.engine import audit
from batches.engine.audit import By
from batches.engine.contention import again_after_deadlock
from batches.engine.errors import TemplateRule
from batches.manifests import Limits, ManifestRefused, contents, paths, sniffing
from batches.manifests.archive import Archive
from batches.manifests.problems import Unfit, listed, megabytes, shown
from batches.manifests.source import ZipFiles
from batches.models import Template, TemplateVersion, Workspace
from batches.storage import ArtifactStore, template_key
from batches.templating import Fault, Problem, TemplateRefused

#: A template with its files; MB of 1,000,000 bytes.
LIMITS = Limits(max_upload_bytes=20_000_000, max_unpacked_bytes=60_000_000, max_entries=1_000)
UPLOAD = "upload_template"
_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,58}[a-z0-9])?")
#: Names that are addresses of pages.
_RESERVED = frozenset({"new"})
_HTML = frozenset({".html", ".htm", ".xhtml"})


@dataclass(frozen=True)
class Checked:
    """A template that may become a version. `fields` as `TemplateVersion.fields` has them; `upload` stays open."""

    source: str = field(repr=False)
    fields: tuple[Mapping[str, Any], ...]
    warnings: tuple[Problem, ...]
    filename: str
    upload: IO[bytes] = field(repr=False)
    upload_sha256: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.source.encode()).hexdigest()


@dataclass(frozen=True)
class Uploaded:
    """The version that a template has now. Not `is_new`: the newest one was the same."""

    version: TemplateVersion
    is_new: bool


class _NoFiles:
    """A template that came alone."""

    def read(self, path: str) -> bytes:
        raise Fault(
            f"The template came without the file {shown(path)}.",
            "Put the template and its files into one ZIP and upload that.",
        )


class _Beside:
    """The files of a ZIP, relative to the folder that the template stands in."""

    def __init__(self, files: ZipFiles) -> None:
        self._files = files

    def read(self, path: str) -> bytes:
        try:
            name = self._files.locate(path)
        except Unfit as unfit:
            raise Fault(f"The path {shown(path)} {unfit.message}", unfit.fix) from unfit
        try:
            return self._files.read(name)
        except Unfit as unfit:
            raise Fault(f"The file {shown(name)} {unfit.message}", unfit.fix) from unfit


def checked(upload: IO[bytes], filename: str) -> Checked:
    """Read an HTML file or a ZIP with one. `upload` is seekable. Raises TemplateRefused with all that is wrong."""
    try:
        raw, files = _opened(upload)
        text = contents.checked_file(raw, LIMITS)[1]
    except ManifestRefused as refused:
        raise TemplateRefused([Problem(None, None, refused.message, refused.fix)]) from refused
    except Unfit as unfit:
        raise TemplateRefused([Problem(None, None, f"The template {unfit.message}", unfit.fix)]) from unfit
    inlined = templating.inlined(text, files)
    problems = list(inlined.problems)
    try:
        templating.compiled(text)
        compiled = None if problems else templating.compiled(inlined.text)
    except TemplateRefused as refused:
        problems += refused.problems
    if problems or compiled is None:
        raise TemplateRefused(sorted(dict.fromkeys(problems), key=_place))
    fields = tuple(read.as_dict() for read in compiled.reads.values())
    upload.seek(0)
    digest = hashlib.file_digest(cast(Any, upload), "sha256").hexdigest()
    name = paths.name_of(filename.replace("\\", "/"))[:255] or "template.html"
    return Checked(inlined.text, fields, tuple(inlined.warnings), name, upload, digest)


def _place(problem: Problem) -> tuple[str, int, int]:
    return problem.file, problem.line or 0, problem.column or 0


def _opened(upload: IO[bytes]) -> tuple[bytes, templating.Files]:
    """The template's bytes, and the files beside it."""
    size = upload.seek(0, 2)
    if size > LIMITS.max_upload_bytes:
        words = f"The upload is {megabytes(size)} large; {megabytes(LIMITS.max_upload_bytes)} are allowed."
        raise TemplateRefused([Problem(None, None, words, "Use smaller pictures and fewer fonts.")])
    upload.seek(0)
    if sniffing.looks_like(upload.read(sniffing.HEAD_BYTES)) != "a ZIP":
        upload.seek(0)
        return upload.read(), _NoFiles()
    archive = Archive(upload, LIMITS)
    name = _template_in([entry.name for entry in archive.files if not entry.is_link])
    files = ZipFiles(archive, paths.folder_of(name))
    return files.read(name), _Beside(files)


def _template_in(names: list[str]) -> str:
    """`template.html`, else the only HTML file; at the top, else one folder down."""
    for depth in (0, 1):
        pages = sorted(name for name in names if name.count("/") == depth and paths.suffix_of(name) in _HTML)
        named = [name for name in pages if paths.name_of(name).lower().startswith("template.")]
        for chosen in (named, pages):
            if len(chosen) == 1:
                return chosen[0]
            if len(chosen) > 1:
                words = f"There is more than one HTML file: {listed(chosen)}."
                raise TemplateRefused([Problem(None, None, words, "Name the right one template.html.")])
    words = f"There is no HTML file in the ZIP; found {listed(sorted(names))}."
    raise TemplateRefused([Problem(None, None, words, "Name it template.html and put it at the top.")])


def slug_of(name: str) -> str:
    """The short name that a template called so gets where nobody gives one; "" where nothing of it may stand in one."""
    return slugify(name)[:60].strip("-_")


def slug_refused(slug: str) -> str:
    """Why a template cannot be called so; empty where it can."""
    if slug in _RESERVED:
        return f"A template cannot be called {slug}."
    if not _SLUG.fullmatch(slug):
        return "The short name has up to 60 small letters, digits, - and _: invoice, or invoice-de."
    return ""


def upload(
    template: Checked,
    *,
    workspace: Workspace,
    slug: str,
    name: str,
    note: str,
    by: By,
    store: ArtifactStore,
    now: datetime,
    is_first: bool | None = None,
) -> Uploaded:
    """Store it as the next version of the template `slug`, and the upload as it came. Publishes nothing.

    `is_first`: whether there must be none of this name, or one already; None takes both. Raises `TemplateRule`, store
    errors pass.
    """
    if words := slug_refused(slug):
        raise TemplateRule(words)
    key = template_key(workspace.slug, template.upload_sha256)
    store.put(key, cast(BinaryIO, template.upload))
    return _write(template, workspace, slug, name, note, by, key, is_first=is_first, now=now)


@again_after_deadlock
@transaction.atomic
def _write(
    checked: Checked,
    workspace: Workspace,
    slug: str,
    name: str,
    note: str,
    by: By,
    key: str,
    *,
    is_first: bool | None,
    now: datetime,
) -> Uploaded:
    Workspace.objects.select_for_update(no_key=True).get(pk=workspace.pk)
    template = Template.objects.filter(workspace=workspace, slug=slug).first()
    if is_first is False and template is None:
        raise TemplateRule(f"There is no template {slug} here.")
    if is_first and template is not None:
        raise TemplateRule(f"There is a template {slug} already. Upload the new version on its page.")
    if template is not None and template.archived_at is not None:
        raise TemplateRule(f"The template {slug} is archived. Take it back first.")
    if template is None:
        template = Template.objects.create(
            workspace=workspace, slug=slug, name=name.strip()[:200] or slug, created_at=now
        )
    newest = template.versions.order_by("-number").first()
    if newest is not None and newest.sha256 == checked.sha256:
        return Uploaded(newest, is_new=False)
    version = TemplateVersion.objects.create(
        template=template,
        number=newest.number + 1 if newest else 1,
        source=checked.source,
        sha256=checked.sha256,
        fields=[dict(each) for each in checked.fields],
        filename=checked.filename,
        given_key=key,
        note=note.strip(),
        created_by=by.actor,
        created_at=now,
    )
    facts = {"version": version.number, "sha256": version.sha256, "filename": version.filename}
    audit.record(
        UPLOAD, subject=subject(template), workspace=workspace, by=by, now=now, reason=note.strip(), facts=facts
    )
    return Uploaded(version, is_new=True)


def subject(template: Template) -> str:
    """What the audit log calls it."""
    return f"template {template.slug}"
