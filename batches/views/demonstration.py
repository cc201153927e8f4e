"""To try it with: a manifest to download, and three documents that the sandbox renders, which bills nothing."""

from __future__ import annotations

import io
import json

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from batches import rights, selectors, storage
from batches.engine import drafts, pumping
from batches.engine.drafts import Refused, Run, Upload
from batches.models import ConflictPolicy, Draft, DraftState
from batches.storage import StoreError
from batches.views.access import SignedInRequest, by
from batches.views.drafts import draft_or_404, look_and_check, made_of

#: The account that `bootstrap` makes for the local provider.
ACCOUNT = "sandbox"
NAME = "demo-documents.json"
_PAGE = (
    "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{title}</title><style>"
    "body{{font:12pt/1.5 sans-serif;margin:48px}}h1{{font-size:22pt}}td,th{{padding:6px 24px 6px 0;text-align:left}}"
    "</style></head><body><h1>{title}</h1>{body}</body></html>"
)
_INVOICE = (
    "<p>To: Harbour Books, 4 Quay Street</p><table><tr><th>Item</th><th>Amount</th></tr>"
    "<tr><td>Binding, 40 copies</td><td>320.00</td></tr><tr><td>Delivery</td><td>18.50</td></tr>"
    "<tr><th>Total</th><th>338.50</th></tr></table>"
)
_LETTER = "<p>Dear reader,</p><p>this letter was made from HTML, once, and is kept with its checksum.</p>"
_CERTIFICATE = "<p>This is to say that the third of three demo documents was rendered.</p>"
DOCUMENTS = [
    {"id": "DEMO-INVOICE", "html": _PAGE.format(title="Invoice DEMO", body=_INVOICE), "filename": "demo-invoice.pdf"},
    {"id": "DEMO-LETTER", "html": _PAGE.format(title="A demo letter", body=_LETTER)},
    {"id": "DEMO-CERTIFICATE", "html": _PAGE.format(title="Demo certificate", body=_CERTIFICATE)},
]
SAMPLE_NAME = "sample-manifest.csv"
SAMPLE_CSV = (
    "id,html,filename\r\n"
    "INV-2041,<h1>Invoice 2041</h1><p>338.50 EUR</p>,invoice-2041.pdf\r\n"
    "INV-2042,<h1>Invoice 2042</h1><p>96.00 EUR</p>,invoice-2042.pdf\r\n"
)


@login_required
@require_safe
def sample_manifest(request: SignedInRequest) -> HttpResponse:
    """A manifest that could be handed over as it is."""
    response = HttpResponse(SAMPLE_CSV, content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{SAMPLE_NAME}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response


@login_required
@require_POST
def demo_start(request: SignedInRequest) -> HttpResponse:
    """Hand three documents over to the sandbox, as an upload of one's own, and start it.

    Done twice nothing is rendered twice: the same documents are saved already, and the batch says so.
    """
    workspace = rights.workspaces(request.user, rights.START).order_by("name", "pk").first()
    if workspace is None:
        raise PermissionDenied("You may look at batches but not start one. Ask an administrator for the role Operator.")
    account = selectors.usable_accounts([workspace]).filter(slug=ACCOUNT).first()
    if account is None:
        raise Http404("There is no sandbox here.")
    stream = io.BytesIO(json.dumps(DOCUMENTS).encode())
    upload = Upload(
        stream,
        NAME,
        workspace=workspace,
        account=account,
        name="Three demo documents",
        on_conflict=ConflictPolicy.REFUSE,
    )
    store = storage.open_store(settings.STORAGE_URL)
    try:
        draft = drafts.receive(upload, by=by(request), store=store, now=timezone.now())
    except StoreError as error:
        messages.error(request, f"The documents could not be stored. {error.words} Try again in a moment.")
        return redirect("batches:home")
    look_and_check(draft, stream)
    return _started(request, draft_or_404(request, draft.public_id))


def _started(request: SignedInRequest, draft: Draft) -> HttpResponse:
    """The batch where it is started by now, else the draft's page, which says how far it is."""
    report = draft.report or {}
    if draft.state == DraftState.CHECKED and report.get("ok"):
        run = Run(draft.generation, int(report.get("renders", 0)), is_confirmed=True, name=draft.name)
        try:
            draft = drafts.ask_start(draft.pk, run, by=by(request), now=timezone.now())
        except Refused as refused:
            messages.error(request, refused.words)
        pumping.work_on_small(draft)
        made = made_of(draft_or_404(request, draft.public_id))
        if made is not None:
            return redirect("batches:batch_detail", made.public_id)
    return redirect("batches:draft_detail", draft.public_id)
