"""What the installation says of itself, in the admin: alerts, notices, the audit log, the store, the engine's own rows.

Read-only; an alert can be closed.
"""

from __future__ import annotations

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from batches.admin.kinds import Evidence
from batches.admin.searching import OfAccount, OfWorkspace, OpenAlerts, OpenFindings
from batches.models import (
    Alert,
    AuditEntry,
    Notice,
    NoticeWatch,
    PacingLane,
    PumpSlot,
    SettledCounts,
    StoreFinding,
    StoreSweep,
    SweepRun,
    Workspace,
)
from batches.views.access import record


@admin.register(Alert)
class AlertAdmin(Evidence):
    finds = {"alert": "pk"}
    list_display = ("opened_at", "kind", "subject", "words", "closed_at")
    list_filter = (("closed_at", admin.EmptyFieldListFilter), OpenAlerts)
    list_select_related = ("batch__workspace", "job__version__document__workspace", "account__workspace")
    actions = ("close",)

    @admin.action(description="Close selected alerts", permissions=["close"])
    def close(self, request: HttpRequest, found: QuerySet[Alert]) -> None:
        closed = 0
        for alert in found:
            if Alert.objects.filter(pk=alert.pk, closed_at=None).update(closed_at=timezone.now()):
                record(request, "close_alert", f"alert {alert.pk} about {alert.subject}", _workspace(alert))
                closed += 1
        self.message_user(request, f"{closed} closed, {len(found) - closed} were closed before.", messages.SUCCESS)

    def has_close_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("batches.change_alert")


def _workspace(alert: Alert) -> Workspace | None:
    """Whose alert it is; an account's belongs to its workspace, a shared account's to none."""
    if alert.batch:
        return alert.batch.workspace
    if alert.job:
        return alert.job.version.document.workspace
    return alert.account.workspace if alert.account else None


@admin.register(Notice)
class NoticeAdmin(Evidence):
    finds = {"batch": "batch", "user": "recipient"}
    list_display = ("happened_at", "event", "batch", "recipient", "sent_at", "attempts", "last_error")
    list_filter = (("next_try_at", admin.EmptyFieldListFilter),)
    list_select_related = ("batch", "recipient")


@admin.register(NoticeWatch)
class NoticeWatchAdmin(Evidence):
    finds = {"batch": "batch"}
    list_display = ("batch", "looked_at", "due_at")
    list_select_related = ("batch",)


@admin.register(AuditEntry)
class AuditEntryAdmin(Evidence):
    finds = {"entry": "pk", "user": "actor"}
    list_display = ("at", "actor_words", "action", "subject", "workspace", "from_where", "reason")
    list_filter = (OfWorkspace, "at")
    list_select_related = ("workspace",)
    ordering = ("-at", "-pk")


@admin.register(SettledCounts)
class SettledCountsAdmin(Evidence):
    finds = {"batch": "batch"}
    list_display = ("batch", "settled_at")
    list_select_related = ("batch",)


@admin.register(PacingLane)
class PacingLaneAdmin(Evidence):
    list_display = ("account", "lane", "next_slot_us", "cool_down_until_us", "revision")
    list_filter = (OfAccount,)
    list_select_related = ("account",)


@admin.register(PumpSlot)
class PumpSlotAdmin(Evidence):
    list_display = ("number", "owner", "lease_until", "heartbeat_at")


@admin.register(SweepRun)
class SweepRunAdmin(Evidence):
    list_display = ("name", "ran_at", "found_at")


@admin.register(StoreFinding)
class StoreFindingAdmin(Evidence):
    finds = {"finding": "pk"}
    list_display = ("found_at", "kind", "storage_key", "words", "resolved_at")
    list_filter = (OpenFindings,)
    ordering = ("-found_at", "-pk")


@admin.register(StoreSweep)
class StoreSweepAdmin(Evidence):
    list_display = ("kind", "position", "started_at", "finished_at")
