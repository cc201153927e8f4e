"""A document's versions: making the next one, comparing two, and the mark that it is final."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from batches import comparing, differences, figures, rights, selectors, storage
from batches.engine import accounts, standings, verbs, versions
from batches.engine.orders import NewInput, Order
from batches.engine.verbs import Asked
from batches.manifests import Limits
from batches.manifests.single import read_single
from batches.models import BatchItem, Document, DocumentVersion, ItemResult, ProviderAccount, SourceKind, Verb
from batches.views import bodies, refilling
from batches.views.access import SignedInRequest, by, document_or_404, record, refuse_without, typed
from batches.views.stored import deleted, opened, store_away

#: Texts up to this length are offered for editing on the page; larger ones are uploaded as a file.
EDITABLE_BYTES = 500_000
#: Room for the other fields of the form beside the file: the text of the document is one of them.
FORM_BYTES = 2 * 1024**2
SAME, UPLOAD, EDIT, DATA = "same", "upload", "edit", "data"


@dataclass
class Form:
    """The page's fields as they were given, and what is wrong with them."""

    source: str = SAME
    reason: str = ""
    text: str = ""
    data: str = ""
    template: str = ""
    options: str = ""
    filename: str = ""
    items: frozenset[int] = frozenset()
    is_confirmed: bool = False
    version: str = ""
    account: str = ""
    errors: list[str] = field(default_factory=list)


@csrf_exempt  # checked below, once the size is known: reading the token means reading the whole body
@require_http_methods(["GET", "HEAD", "POST"])
def document_regenerate(request: SignedInRequest, public_id: str) -> HttpResponse:
    limit = Limits().max_document_bytes
    words = f"The document is too large; {figures.size(limit)} are allowed. Make it smaller."
    return bodies.too_large(request, limit, words, room=FORM_BYTES) or _regenerate(request, public_id)


@csrf_protect
@login_required
def _regenerate(request: SignedInRequest, public_id: str) -> HttpResponse:
    document = document_or_404(request.user, public_id)
    refuse_without(request, Verb.REGENERATE, document.workspace)
    refuse_without(request, rights.VIEW_CONTENT, document.workspace)  # the page shows it
    version = document.current_version
    assert version is not None, "intake makes a document with its first version"
    try:
        text = "" if version.input_deleted_at else _text(version)
    except storage.StoreError:
        return store_away(request)
    items = _movable(document, version)
    if request.method != "POST":
        if _is_editable(version):  # the page shows it
            record(request, "view_input", f"document {document.public_id} v{version.number}", document.workspace)
        return _page(request, document, version, items, _fresh(version, items, text))
    form = _given(request)
    if form.version != str(version.number):
        return _made_already(request, document, form)
    offered = list(selectors.usable_accounts([document.workspace]))
    account = next((each for each in offered if each.slug == form.account), None)
    if form.account and account is None:
        form.errors.append("That account is not there any more. Choose another one.")
    new = _new_input(request, document, version, text, form, account or version.job.account)
    chosen = [item.pk for item in items if item.pk in form.items]
    if not chosen:
        form.errors.append("Choose at least one batch whose row moves to the new version.")
    if not form.reason:
        form.errors.append("Say why: the reason stays with the version and in the audit log.")
    if form.errors:
        return _page(request, document, version, items, form, status=422)
    order = Order(
        by=by(request),
        reason=form.reason,
        is_confirmed=form.is_confirmed,
        may_regenerate_final=rights.may(request.user, rights.REGENERATE_FINAL, document.workspace),
        inputs=dict.fromkeys(chosen, new) if new else {},
        versions=dict.fromkeys(chosen, version.pk),
        account=account,
    )
    results = versions.regenerate(chosen, order=order, now=timezone.now())
    if not any(result.is_done for result in results.values()):
        document.refresh_from_db()
        if document.current_version_id != version.pk:
            return _made_already(request, document, form)
        form.errors += dict.fromkeys(result.words for result in results.values())
        is_ours = any(result.result is ItemResult.FAILED for result in results.values())
        return _page(request, document, version, items, form, status=503 if is_ours else 422)
    for words in dict.fromkeys(result.words for result in results.values()):
        messages.info(request, words)
    return redirect("batches:document_detail", document.public_id)


def _made_already(request: SignedInRequest, document: Document, form: Form) -> HttpResponse:
    """Another press of the same button, or somebody else, was faster: nothing is made a second time."""
    newest = document.versions.select_related("created_by").order_by("-number").first()
    assert newest is not None, "intake makes a document with its first version"
    if newest.created_by == request.user and newest.reason == form.reason:
        messages.info(request, f"Version {newest.number} was made.")
    else:
        messages.error(
            request,
            f"A newer version of the document exists: version {newest.number}, made by "
            f"{newest.created_by or 'an upload'}. Nothing was made; look at that one first.",
        )
    return redirect("batches:document_detail", document.public_id)


def _movable(document: Document, version: DocumentVersion) -> list[BatchItem]:
    """Rows that name the current version and could move to the next one, newest batch first."""
    items = BatchItem.objects.filter(document=document, version=version, cancelled_at=None, batch__cancelled_at=None)
    return list(items.select_related("batch__account", "document").order_by("-batch_id"))


def _fresh(version: DocumentVersion, items: list[BatchItem], text: str) -> Form:
    source = refilling.source_of(version)
    return Form(
        source=UPLOAD if version.input_deleted_at else SAME,
        text=_readable(version, text) if _is_editable(version) else "",
        options=_options_shown(version),
        filename=version.filename,
        items=frozenset(item.pk for item in items[:1]),
        version=str(version.number),
        data=source.data if source else "",
        template=str(source.made_with.number) if source else "",
    )


def _given(request: SignedInRequest) -> Form:
    def field_of(name: str) -> str:
        return request.POST.get(name, "").replace("\0", "")

    source = field_of("source")
    return Form(
        source=source if source in (UPLOAD, EDIT, DATA) else SAME,
        reason=typed(request.POST.get("reason"), 2000),
        text=request.POST.get("text", ""),
        data=field_of("data"),
        template=field_of("template"),
        options=field_of("options"),
        filename=field_of("filename").strip(),
        items=frozenset(
            int(key) for key in request.POST.getlist("item") if key.isascii() and key.isdigit() and len(key) < 18
        ),
        is_confirmed=field_of("confirmed") == "yes",
        version=field_of("version"),
        account=field_of("account"),
    )


def _new_input(
    request: SignedInRequest,
    document: Document,
    version: DocumentVersion,
    text: str,
    form: Form,
    account: ProviderAccount,
) -> NewInput | None:
    """The content that was asked for, checked as a manifest's row is that goes to the account; None for the same again,
    or with errors."""
    if form.source != UPLOAD and (words := _input_gone(version)):
        form.errors.append(words)
        return None
    if form.source == SAME:
        if _is_changed(request, version, text, form):
            form.errors.append(
                "You chose a file or changed the content, its options or its name, but also “The same content and "
                "options again”. Choose which of them is meant: nothing was made."
            )
        return None
    limits = accounts.document_limits(account)
    if form.source == DATA:
        source = refilling.source_of(version)
        if source is None:
            form.errors.append("No template made this version.")
            return None
        new, errors = refilling.filled(
            source,
            number=form.template,
            given=form.data,
            business_id=document.business_id,
            options=form.options,
            filename=form.filename,
            limits=limits,
        )
        form.errors += errors
        return new
    raw: bytes | None = None
    new_text = text
    if form.source == UPLOAD:
        file = request.FILES.get("file")
        if file is None:
            form.errors.append("Choose a file, or render the same content again.")
            return None
        raw = file.read(limits.max_document_bytes + 1)
    elif _is_editable(version):
        new_text = _as_typed(form.text, text)
    found = read_single(
        business_id=document.business_id,
        kind="html" if raw is not None else version.kind,
        content=new_text if raw is None else raw,
        filename=form.filename,
        options=form.options,
        limits=limits,
    )
    form.errors += found.errors
    if found.row is None or found.errors:
        return None
    return NewInput(found.row.kind, found.text, found.row.filename, found.row.options)


def _is_changed(request: SignedInRequest, version: DocumentVersion, text: str, form: Form) -> bool:
    """Whether the form holds something that rendering the same again would drop without a word."""
    if request.FILES.get("file"):
        return True
    if "text" in request.POST and _is_editable(version) and _is_retyped(version, text, form):
        return True
    source = refilling.source_of(version) if "data" in request.POST else None
    if source is not None and (_as_typed(form.data, source.data), form.template) != _filled_with(source):
        return True
    if "options" in request.POST and form.options.split() != _options_shown(version).split():
        return True
    return "filename" in request.POST and form.filename != version.filename


def _is_retyped(version: DocumentVersion, text: str, form: Form) -> bool:
    shown = _readable(version, text)
    return _as_typed(form.text, shown) != shown


def _filled_with(source: refilling.Source) -> tuple[str, str]:
    return source.data, str(source.made_with.number)


def _options_shown(version: DocumentVersion) -> str:
    return json.dumps(version.options, ensure_ascii=False, indent=2)


def _as_typed(typed: str, before: str) -> str:
    """What a browser sends has CRLF in all lines: a text that had none of them gets its own line ends back."""
    plain = typed.replace("\r\n", "\n")
    if plain == before.replace("\r\n", "\n"):
        return before
    return typed if "\r\n" in before else plain


def _page(
    request: SignedInRequest,
    document: Document,
    version: DocumentVersion,
    items: list[BatchItem],
    form: Form,
    *,
    status: int = 200,
) -> HttpResponse:
    standing = standings.of_items(BatchItem.objects.filter(pk__in=[item.pk for item in items]))
    comparison = _comparison(document, version, items, form)
    asked = Asked(
        has_new_input=True,
        may_regenerate_final=rights.may(request.user, rights.REGENERATE_FINAL, document.workspace),
    )
    answers = {
        pk: verbs.answer(Verb.REGENERATE, each, now=timezone.now(), asked=asked) for pk, each in standing.items()
    }
    refused = [answer.words for answer in answers.values() if not answer.allowed]
    latest = document.versions.order_by("-number").values_list("number", flat=True)[0]
    context = {
        "document": document,
        "version": version,
        "items": items,
        "form": form,
        "next_number": latest + 1,
        "to_confirm": next((answer.to_confirm for answer in answers.values() if answer.to_confirm), ""),
        "refused": refused[0] if refused else "",
        "price": verbs.PRICES[Verb.REGENERATE].value,
        "is_editable": _is_editable(version),
        "input_gone": _input_gone(version),
        "editable_bytes": EDITABLE_BYTES,
        "most_bytes": Limits().max_document_bytes,
        "is_url": version.kind == SourceKind.URL,
        "is_template": version.kind == SourceKind.TEMPLATE,
        "refill": refilling.source_of(version),
        "comparison": comparison,
    }
    return render(request, "batches/document_regenerate.html", context, status=status)


def _comparison(
    document: Document, version: DocumentVersion, items: list[BatchItem], form: Form
) -> comparing.Comparison | None:
    """Where it can be rendered, side by side, the account of its batch first; None where there is no choice."""
    offered = list(selectors.usable_accounts([document.workspace]))
    own = items[0].batch.account if items else version.job.account
    chosen = next((each for each in offered if each.slug == (form.account or own.slug)), None)
    if chosen is None or len(offered) < 2 or not items:
        return None
    now = version.job.account
    standing = standings.of_items(BatchItem.objects.filter(pk=items[0].pk))[items[0].pk]
    stays = comparing.stays(standing, accounts.capabilities(now), provider=accounts.label(now))
    before = f"version {version.number} {stays}"
    return comparing.of_accounts(offered, 1, chosen=chosen, beside=[now], own=own, before=before)


@login_required
@require_POST
def document_final(request: SignedInRequest, public_id: str) -> HttpResponse:
    """Mark the document final, or take the mark off with `is_final=no`."""
    document = document_or_404(request.user, public_id)
    refuse_without(request, rights.FINALISE, document.workspace)
    is_final = request.POST.get("is_final") != "no"
    if versions.finalise(document.pk, is_final=is_final, by=by(request), now=timezone.now()):
        messages.info(request, "It is marked final." if is_final else "It is not final any more.")
    return redirect("batches:document_detail", document.public_id)


@login_required
@require_safe
def document_diff(request: SignedInRequest, public_id: str, old: int, new: int) -> HttpResponse:
    """What differs between the inputs of two versions; it is written down."""
    document = document_or_404(request.user, public_id)
    refuse_without(request, rights.VIEW_CONTENT, document.workspace)
    first, second = (get_object_or_404(document.versions.all(), number=number) for number in (old, new))
    if words := _input_gone(first) or _input_gone(second):
        return deleted(request, words)
    try:
        texts = _text(first), _text(second)
    except storage.StoreError:
        return store_away(request)
    record(request, "compare_versions", f"document {document.public_id}", document.workspace, versions=[old, new])
    context = {
        "document": document,
        "old": first,
        "new": second,
        "found": differences.between(_readable(first, texts[0]), _readable(second, texts[1])),
        "is_same": texts[0] == texts[1],
        "settings": _setting_changes(first, second),
    }
    return render(request, "batches/document_diff.html", context)


def _setting_changes(old: DocumentVersion, new: DocumentVersion) -> list[tuple[str, str, str]]:
    before = {"kind": old.get_kind_display(), "file name": old.filename or None, **old.options}
    after = {"kind": new.get_kind_display(), "file name": new.filename or None, **new.options}
    changed = differences.of_settings(before, after)
    return [(name, _shown(was), _shown(becomes)) for name, was, becomes in changed]


def _shown(value: Any) -> str:
    if value is None:
        return "not set"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _readable(version: DocumentVersion, text: str) -> str:
    """The input as people read it: the data of a template line by line."""
    if version.kind != SourceKind.TEMPLATE:
        return text
    return json.dumps(json.loads(text), indent=2, sort_keys=True, ensure_ascii=False)


def _is_editable(version: DocumentVersion) -> bool:
    return version.input_bytes <= EDITABLE_BYTES and version.input_deleted_at is None


def _input_gone(version: DocumentVersion) -> str:
    """What is said of an input that retention deleted; empty where it is there."""
    at = version.input_deleted_at
    return standings.inputs_gone({version.pk: at})[version.pk] if at else ""


def _text(version: DocumentVersion) -> str:
    """The input's text. Raises `storage.StoreError`, or 404 where it is gone."""
    if version.input_inline is not None:
        return bytes(version.input_inline).decode()
    assert version.input_key is not None, "the database holds exactly one of the two"
    with opened(version.input_key, byte_count=version.input_bytes) as file:
        return file.read().decode()
