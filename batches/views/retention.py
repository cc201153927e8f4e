"""For how long a workspace keeps content, what that would delete now, and the deletion certificate of a document."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from batches import deletions, rights, selectors
from batches.engine import policies, retention
from batches.engine.retention_rules import LABELS, Part, Policy
from batches.models import Workspace
from batches.views.access import SignedInRequest, by, document_or_404, refuse_without

#: Versions, and batches, that one page looks at; `manage.py retention --dry-run` looks at all.
LOOKED_AT_MOST = 5_000


class PolicyForm(forms.Form):
    """Days of each part; empty: for ever. The bounds are the model's."""

    keep_inputs_days = forms.IntegerField(
        required=False, min_value=1, label="Inputs, requests and rows", help_text="Days. Empty: for ever."
    )
    keep_outputs_days = forms.IntegerField(
        required=False, min_value=1, label="Stored PDFs", help_text="Days. Empty: for ever."
    )
    keep_evidence_days = forms.IntegerField(
        required=False,
        min_value=30,
        label="Facts of requests, bodies of webhooks",
        help_text="Days, 30 at least: a provider’s repeats are known by them. Empty: for ever.",
    )
    reason = forms.CharField(required=False, max_length=500, label="Why", help_text="Kept in the audit log.")


@login_required
@require_safe
def retention_list(request: SignedInRequest) -> HttpResponse:
    """The workspaces whose policy this person may set; straight to the only one."""
    mine = list(rights.workspaces(request.user, rights.MANAGE_RETENTION).order_by("name", "pk"))
    if len(mine) == 1:
        return redirect("batches:retention_detail", mine[0].slug)
    rows = [(each, [deletions.policy_of(each).days(part) for part in Part]) for each in mine]
    return render(request, "batches/retention_list.html", {"rows": rows, "nav": "retention", "labels": LABELS.values()})


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def retention_detail(request: SignedInRequest, slug: str) -> HttpResponse:
    """The policy of one workspace; by POST another one, or only a look at what that would delete."""
    workspace = selectors.visible_workspaces(request.user).filter(slug=slug).first()
    if workspace is None:
        raise Http404("No such workspace.")
    refuse_without(request, rights.MANAGE_RETENTION, workspace)
    now_kept = {name: getattr(workspace, name) for name in policies.FIELDS}
    form = PolicyForm(request.POST) if request.method == "POST" else PolicyForm(initial=now_kept)
    days = now_kept
    if form.is_bound and form.is_valid():
        days = {name: form.cleaned_data[name] for name in policies.FIELDS}
        if "try" not in request.POST:
            try:
                reason = form.cleaned_data["reason"]
                is_new = policies.change(workspace.pk, days, by=by(request), reason=reason, now=timezone.now())
            except policies.Refused as refused:
                for name, words in refused.problems.items():
                    form.add_error(name, words)
            else:
                said = (
                    "It is kept so from now on. What is too old goes within the hour."
                    if is_new
                    else "It is so already."
                )
                messages.info(request, said)
                return redirect("batches:retention_detail", workspace.slug)
    return _page(request, workspace, form, days, status=422 if form.errors else 200)


def _page(
    request: SignedInRequest, workspace: Workspace, form: PolicyForm, days: dict[str, int | None], *, status: int
) -> HttpResponse:
    policy = Policy(*(days[name] for name in policies.FIELDS))
    known = {} if policy.is_empty() else {workspace.pk: policy}
    found = retention.survey(known, now=timezone.now(), most=LOOKED_AT_MOST)
    words = [(LABELS[part] if part else "Files and rows of batches", tally) for part, tally in found.parts.items()]
    context = {
        "workspace": workspace,
        "form": form,
        "fields": [form[name] for name in policies.FIELDS],
        "is_tried": form.is_bound,
        "is_empty": policy.is_empty(),
        "parts": [(label, tally, sorted(tally.kept.items())) for label, tally in words],
        "is_whole": found.is_whole,
        "looked_at_most": LOOKED_AT_MOST,
        "nav": "retention",
    }
    return render(request, "batches/retention_detail.html", context, status=status)


@login_required
@require_safe
def document_deletions(request: SignedInRequest, public_id: str) -> HttpResponse:
    document = document_or_404(request.user, public_id)
    found = deletions.certificate(document, now=timezone.now())
    rows = [(row, deletions.version_of(row)) for row in found.rows]
    return render(
        request,
        "batches/document_deletions.html",
        {"document": document, "found": found, "rows": rows, "nav": "batches"},
    )


@login_required
@require_safe
def document_deletions_json(request: SignedInRequest, public_id: str) -> JsonResponse:
    document = document_or_404(request.user, public_id)
    return JsonResponse(deletions.as_dict(deletions.certificate(document, now=timezone.now())))
