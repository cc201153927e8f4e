"""`/healthz`: this process answers. `/readyz`: it can do its work. Neither asks who wants to know."""

from __future__ import annotations

import logging

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from batches import storage
from batches.engine import work

log = logging.getLogger(__name__)


@never_cache
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """200 as long as the process answers; touches no database, so that a database outage restarts nothing."""
    return JsonResponse({"status": "ok"})


@never_cache
@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """200 when the database answers, is migrated, and the store is there; else 503 with what is not.

    `worker` says beside it whether due work waits for one.
    """
    checks = {"database": _database(), "store": _store()}
    reasons = {name: words for name, words in checks.items() if words}
    # Told, and no reason: this process can do its work, and takes uploads and webhooks, while nobody works on them.
    worker = "" if reasons else work.standstill(now=timezone.now())
    if worker:
        log.warning("no worker: %s", worker)
    if reasons:
        log.warning("not ready: %s", "; ".join(f"{name}: {words}" for name, words in reasons.items()))
    answer = {"status": "not ready" if reasons else "ready"} | {name: words or "ok" for name, words in checks.items()}
    answer |= {"worker": "not looked at" if reasons else worker or "ok"}
    return JsonResponse(answer, status=503 if reasons else 200)


def _database() -> str:
    try:
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError as error:
        # The class says enough for whoever may not see more; the log has the rest.
        log.warning("the database does not answer: %s", error)
        return f"does not answer ({type(error).__name__})"
    return f"{len(missing)} migrations are not applied; run manage.py migrate" if missing else ""


def _store() -> str:
    try:
        storage.open_store(settings.STORAGE_URL).ready()
    except storage.StoreError as error:
        log.warning("the store is not ready: %s", error)
        return f"cannot be used ({type(error).__name__})"
    return ""
