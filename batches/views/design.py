"""The design page of the admin, for staff: what pages are made of, in every state. Reads no row."""

from __future__ import annotations

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from batches import palette, wording
from batches.models import JobState
from batches.selectors import Counts, Progress
from batches.wording import BatchState

_SWATCH = 28  # from one colour to the next, in units of the drawing

#: What a toast says of itself, by the kind of message that Django gives it.
_TOASTS = {
    "info": (messages.INFO, "for your information"),
    "success": (messages.SUCCESS, "done"),
    "warning": (messages.WARNING, "with a reservation"),
    "error": (messages.ERROR, "did not work"),
}
_BARS = (
    Progress(
        BatchState.RUNNING, Counts(saved=812, failed=3, in_progress=469), {JobState.PENDING: 463, JobState.ACCEPTED: 6}
    ),
    Progress(BatchState.HELD, Counts(saved=120, held=180, cancelled=40), {}),
    Progress(BatchState.COMPLETE, Counts(saved=300), {}),
    Progress(),
)
_TIMELINE = (
    ("waiting", "Waiting", "", "Taken from row 41 of invoices.csv."),
    ("moving", "Rendering", "+3 min 5 s", "The provider gave it a job id."),
    ("held", "Held", "+12 s", "The service answered 402."),
    ("failed", "Failed", "+2.1 s", "The page would not render."),
    ("saved", "Saved", "+41 s", "The file is whole and in our storage."),
)
_ROWS = (
    (41, "INV-000412", wording.JOB_BADGES[JobState.SAVED], "2"),
    (42, "فاتورة-٢٠٢٦", wording.JOB_BADGES[JobState.UNKNOWN], "–"),
    (43, "請求書-2026-" + "0042" * 8, wording.JOB_BADGES[JobState.ACCEPTED], "–"),
)


@require_http_methods(["GET", "HEAD", "POST"])
def design(request: HttpRequest) -> HttpResponse:
    """POST shows the toast that it names."""
    if request.method == "POST":
        level, words = _TOASTS.get(request.POST.get("toast", ""), _TOASTS["info"])
        messages.add_message(request, level, f"A toast, {words}. It stays until you dismiss it.")
        return redirect("design")
    known = palette.colours(palette.TOKENS.read_text("utf-8"))
    context = {
        **admin.site.each_context(request),
        "nav": "admin",
        "schemes": ("light", "dark"),
        "colours": [
            {
                "name": each.name,
                "light": each.light,
                "dark": each.dark,
                "y": place * _SWATCH,
                "text_y": place * _SWATCH + 15,
            }
            for place, each in enumerate(known.values())
        ],
        "swatch_height": len(known) * _SWATCH,
        "pairs": palette.pairs(known),
        "readable": palette.READABLE,
        "visible": palette.VISIBLE,
        "states": palette.STATES,
        "spaces": [f"s{step}" for step in range(1, 8)],
        "job_badges": list(dict.fromkeys(wording.JOB_BADGES.values())),
        "batch_badges": [*wording.BATCH_BADGES.values(), wording.FINAL_BADGE, wording.STALE_BADGE],
        "bars": _BARS,
        "rows": _ROWS,
        "timeline": _TIMELINE,
        "toasts": [(name, words) for name, (_, words) in _TOASTS.items()],
        "command": "python manage.py submit invoices.csv --name “October invoices” --wait\n"
        "python manage.py results bat_7Q2 --format csv",
    }
    return render(request, "admin/design.html", context)
