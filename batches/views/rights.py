"""Who may do what: the table of rights, and which role the reader has in each workspace."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from batches import rights
from batches.models import Membership, Role
from batches.views.access import SignedInRequest


@login_required
@require_safe
def rights_list(request: SignedInRequest) -> HttpResponse:
    mine = Membership.objects.filter(user=request.user).select_related("workspace").order_by("workspace__name", "pk")
    context = {
        "nav": "rights",
        "last_role": list(Role)[-1],
        "roles": [role.label for role in Role],
        "rows": [(row, [row.name in rights.ROLE_RIGHTS[role] for role in Role]) for row in rights.TABLE],
        "memberships": [(each.workspace, Role(each.role).label) for each in mine],
        "given": [] if request.user.is_superuser else rights.given_rows(request.user),
    }
    return render(request, "batches/rights_list.html", context)
