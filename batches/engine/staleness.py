"""What another version of a template would make of the documents that exist: counted, named, and marked as stale.

Nothing is made or billed. Each look is bounded: so many documents and so much text, then it says where it stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from batches import manifests, queue
from batches.engine import bulk
from batches.engine.contention import again_after_deadlock
from batches.engine.templates import Fillable, fillable
from batches.manifests.problems import Unfit
from batches.models import Document, Template, TemplateVersion

EXAMINED_MOST = 1_000
#: Documents whose data is in memory at once.
PAGE = 100
#: Of all texts that are filled in one look; large documents end it sooner.
BYTES_MOST = 50_000_000
RUNG_AT_ONCE = 20


@dataclass(frozen=True)
class WouldChange:
    """One document of which the version would make another text, or (`words`) none."""

    public_id: str
    business_id: str
    version: int
    template_number: int
    is_final: bool
    words: str = ""


@dataclass(frozen=True)
class Look:
    """What was found: `stale` would get another text, `unfillable` none. `after` is where the next look begins; None
    where all were examined."""

    examined: int
    same: int
    stale: tuple[WouldChange, ...]
    unfillable: tuple[WouldChange, ...]
    after: int | None


@dataclass(frozen=True)
class News:
    """Another version of its template is published than the one that made a document: what it would make of it.

    `sha256` is the digest of that text, "" where (`words`) there is none.
    """

    slug: str
    made: int
    published: int
    sha256: str
    is_same: bool
    words: str


@dataclass(frozen=True)
class _Example:
    pk: int
    version_id: int
    change: WouldChange
    data: Any
    options: Any
    sha256: str
    source_sha256: str


def look(version: TemplateVersion, *, after: int = 0, most: int = EXAMINED_MOST) -> Look:
    """What publishing this version would leave stale, among documents whose current version another one made."""
    walk = _Walk(fillable(version), made_by(version).exclude(current_version__template_version=version), after, most)
    stale: list[WouldChange] = []
    unfillable: list[WouldChange] = []
    examined = same = 0
    for example, digest, words in walk:
        examined += 1
        if not digest:
            unfillable.append(replace(example.change, words=words))
        elif digest != example.sha256:
            stale.append(example.change)
        else:
            same += 1
    return Look(examined, same, tuple(stale), tuple(unfillable), walk.left_after)


def of_document(document: Document) -> News | None:
    """What the published version would make of a document that another one made; None where there is nothing to tell.
    An archived template tells nothing."""
    version = document.current_version
    if version is None or version.template_version_id is None or version.input_deleted_at is not None:
        return None
    made = TemplateVersion.objects.select_related("template__published").defer("source")
    made_with = made.get(pk=version.template_version_id)
    template, published = made_with.template, made_with.template.published
    if published is None or published.pk == made_with.pk or template.archived_at is not None:
        return None
    change = WouldChange(document.public_id, document.business_id, version.number, made_with.number, document.is_final)
    data, sha256 = version.template_data, version.input_sha256
    example = _Example(document.pk, version.pk, change, data, version.options, sha256, "")
    digest, _, words = _digest(fillable(published, slug=template.slug), example)
    return News(template.slug, made_with.number, published.number, digest, digest == sha256, words)


def made_by(version: TemplateVersion) -> QuerySet[Document]:
    """Documents whose current version came of the template of this version, and still has the data of it."""
    return Document.objects.filter(
        current_version__template_version__template=version.template_id, current_version__input_deleted_at=None
    )


@again_after_deadlock
def mark(template_id: int, *, now: datetime) -> int:
    """Mark documents as stale of which the published version would make another text; take the mark off where it makes
    the same, and it was the version before that differed.

    One slice from where the last one ended, then it asks for the next. Who dies in between leaves the place in the
    template's row, and `ring_for_unmarked` goes on. Returns how many were changed.
    """
    versions = ("published__template", "marking_before__template")
    template = Template.objects.select_related(*versions).filter(pk=template_id).first()
    if template is None or template.published is None or template.marking_after is None:
        return 0
    filler_before = fillable(template.marking_before) if template.marking_before else None
    after = template.marking_after
    walk = _Walk(fillable(template.published), made_by(template.published), after, EXAMINED_MOST)
    rows: list[dict[str, Any]] = []
    for example, digest, _words in walk:
        if digest and digest != example.sha256:
            if digest != example.source_sha256:
                rows.append(_row(example, digest, now))
        elif digest and filler_before and _is_marked_by(filler_before, example):
            rows.append(_row(example, "", None))
    changed = len(bulk.guarded_update(Document, rows, guard=("current_version",)))
    # Another one may have done this slice meanwhile, or another version been published: then that goes on by itself.
    ours = Template.objects.filter(pk=template.pk, published=template.published, marking_after=after)
    if ours.update(marking_after=walk.left_after) and walk.left_after is not None:
        queue.ring_staleness(template.pk)
    return changed


def ring_for_unmarked(*, now: datetime) -> None:
    """Go on where nobody does, unless some message waits already."""
    if queue.waiting(now=now):
        return
    left = Template.objects.filter(marking_after__isnull=False).values_list("pk", flat=True)[:RUNG_AT_ONCE]
    for template_id in left:
        queue.ring_staleness(template_id)


def _row(example: _Example, digest: str, seen_at: datetime | None) -> dict[str, Any]:
    """What the document's row gets, unless it has another version by now."""
    row = {"pk": example.pk, "guard:current_version": example.version_id}
    return row | {"source_sha256": digest, "source_seen_at": seen_at}


def _is_marked_by(filler: Fillable, example: _Example) -> bool:
    return example.source_sha256 != "" and _digest(filler, example)[0] == example.source_sha256


class _Walk:
    """Documents behind `after`, each with the identity of the text that the version makes of it, or why there is none;
    so many at most, and so much text. Their data is held for a page at a time.

    `left_after` is then where the next look begins; None where all were examined.
    """

    def __init__(self, filler: Fillable, documents: QuerySet[Document], after: int, most: int) -> None:
        self._filler = filler
        self._documents = documents
        self._most = most
        self._after = after
        self.left_after: int | None = None

    def __iter__(self) -> Iterator[tuple[_Example, str, str]]:
        last, examined, byte_count = self._after, 0, 0
        while page := _examples(self._documents, last):
            for example in page:
                if examined == self._most or byte_count > BYTES_MOST:
                    self.left_after = last
                    return
                digest, size, words = _digest(self._filler, example)
                last, examined, byte_count = example.pk, examined + 1, byte_count + size
                yield example, digest, words


def _examples(documents: QuerySet[Document], after: int) -> Sequence[_Example]:
    """The next page of them."""
    current = "current_version__"
    columns = [
        "pk",
        "current_version",
        "public_id",
        "business_id",
        "is_final",
        "source_sha256",
        current + "template_version__number",
    ]
    columns += [current + name for name in ("number", "template_data", "options", "input_sha256")]
    return [
        _Example(
            pk=row["pk"],
            version_id=row["current_version"],
            change=WouldChange(
                row["public_id"],
                row["business_id"],
                row[current + "number"],
                row[current + "template_version__number"],
                row["is_final"],
            ),
            data=row[current + "template_data"],
            options=row[current + "options"],
            sha256=row[current + "input_sha256"],
            source_sha256=row["source_sha256"],
        )
        for row in documents.filter(pk__gt=after).order_by("pk").values(*columns)[:PAGE]
    ]


def _digest(filler: Fillable, example: _Example) -> tuple[str, int, str]:
    """The identity of the text that the version makes, its length, and why there is none."""
    try:
        text = filler.fill(example.data)
    except Unfit as unfit:
        return "", 0, f"{unfit.message} {unfit.fix}"
    return manifests.fingerprint("html", text, example.options), len(text), ""
