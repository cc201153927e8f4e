"""The children of `benchmarks/intake.py`: one that sets up, one that checks and starts, one that looks at a page.

Each says as JSON what it measured.
"""

from __future__ import annotations

import hashlib
import json
import resource
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from batches.engine import checking, drafts
from batches.engine.audit import By
from batches.engine.clock import SystemClock
from batches.models import (
    BatchItem,
    Draft,
    DraftState,
    Membership,
    ProviderAccount,
    Role,
    Template,
    TemplateVersion,
    Workspace,
)
from batches.storage import open_store

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
TEMPLATE = "<h1>Invoice {{ id }}</h1><p>{{ customer.name }}, {{ customer.address }}</p><p>Total: {{ total }}</p>"
LOOK_EVERY_SECONDS = 0.2


def main(what: str, *arguments: str) -> None:
    settings.DEBUG = False  # as in use: no statement is kept for a report
    said = {"set-up": _set_up, "work": _work, "look": _look}[what](*arguments)
    sys.stdout.write(json.dumps(said))


def _set_up() -> dict[str, Any]:
    call_command("migrate", verbosity=0)
    for slug in ("bench", "others"):
        workspace = Workspace.objects.create(slug=slug, name=slug.title(), created_at=NOW)
        user = User.objects.create_user(slug)
        Membership.objects.create(workspace=workspace, user=user, role=Role.OPERATOR)
    ProviderAccount.objects.create(
        slug="bench", name="Bench", base_url="http://127.0.0.1:9", price_per_job="0.0013", created_at=NOW
    )
    template = Template.objects.create(
        workspace=Workspace.objects.get(slug="bench"), slug="invoice", name="Invoice", created_at=NOW
    )
    template.published = TemplateVersion.objects.create(
        template=template,
        number=1,
        source=TEMPLATE,
        sha256=hashlib.sha256(TEMPLATE.encode()).hexdigest(),
        created_at=NOW,
    )
    template.save()
    return {}


def _work(path: str) -> dict[str, Any]:
    store = open_store(f"file://{Path(path).parent}/artifacts")
    store.ensure()
    clock = SystemClock()
    clock.calibrate()
    user = User.objects.get(username="bench")
    by = By(user, "bench", "here")
    with Path(path).open("rb") as stream:
        upload = drafts.Upload(
            stream, Path(path).name, Workspace.objects.get(slug="bench"), ProviderAccount.objects.get(slug="bench")
        )
        draft = drafts.receive(upload, by=by, store=store, now=clock.now())
        begun = time.perf_counter()
        draft = drafts.look(draft, stream, now=clock.now())
    drafts.ask_check(draft.pk, now=clock.now())
    draft = _turn(draft, clock, store)
    checked = time.perf_counter()
    report = draft.report or {}
    if report.get("ok"):
        run = drafts.Run(generation=draft.generation, renders_shown=report["renders"])
        drafts.ask_start(draft.pk, run, by=by, now=clock.now())
        draft = _turn(draft, clock, store)
        assert draft.state == DraftState.STARTED, draft.words
    started = time.perf_counter()
    return {
        "checked": checked - begun,
        "started": started - checked,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
        "items": BatchItem.objects.count(),
        "codes": len({problem["code"] for problem in report.get("errors", [])}),
    }


def _turn(draft: Draft, clock: SystemClock, store: Any) -> Draft:
    assert checking.work_on(draft.pk, clock, owner="bench", store=store)
    return Draft.objects.get(pk=draft.pk)


def _look(stop: str) -> dict[str, Any]:
    client = Client(headers={"host": "localhost"})
    client.force_login(User.objects.get(username="others"))
    taken = []
    client.get("/")  # what only the first request costs is nobody's wait
    while not Path(stop).exists():
        begun = time.perf_counter()
        answer = client.get("/")
        assert answer.status_code == 200, answer.status_code
        taken.append(time.perf_counter() - begun)
        time.sleep(LOOK_EVERY_SECONDS)
    return {"pages": taken}
