"""What the shots show: a batch of 300 documents with something of everything, other batches in every state, and what
lies around them. Everything invented, and the same at each run."""

from __future__ import annotations

import io
import itertools
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from batches import storage
from batches.models import (
    Alert,
    AlertKind,
    Batch,
    BulkAction,
    Document,
    Draft,
    ExportState,
    FailureClass,
    HoldReason,
    Job,
    JobEvent,
    JobState,
    Notice,
    NoticeEvent,
    ProviderAccount,
    PumpSlot,
    SavedView,
    Submission,
    WebhookEvent,
    WebhookOutcome,
    Workspace,
)
from tests import factories as make
from tests.web.conftest import make_member
from tests.web.stored import store_pdf

PDF = (Path(__file__).parent.parent / "cases" / "079-whole.pdf").read_bytes()
LONG = "Mahnung-und-Zahlungserinnerung-an-die-Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamten"
NAMES = ("فاتورة-٢٠٢٦-٠٠٤١", "請求書-2026-0042", "חשבונית-17", "Rechnung Nr. 7 (Übersicht)", f"{LONG}-{'0' * 60}", "A")
#: A failure of each class as a provider or we would tell it: code and words.
TOLD: dict[str, tuple[str, str]] = {
    FailureClass.TRANSIENT: ("E_503", "The service answered 503 five times."),
    FailureClass.RATE_LIMITED: ("E_429", "The service refused the pace."),
    FailureClass.INVALID_INPUT: ("E_422", "Missing field customer.address."),
    FailureClass.AUTH: ("E_401", "The key was refused."),
    FailureClass.INSUFFICIENT_CREDIT: ("E_402", "No credit left."),
    FailureClass.IDEMPOTENCY_CONFLICT: ("E_409", "The key is known with other content."),
    FailureClass.RENDER_FAILED: ("E_RENDER", "The table is wider than the page: " + "column " * 30),
    FailureClass.INTERNAL: ("E_OURS", "An error of our own."),
    FailureClass.BAD_OUTPUT: ("E_OUTPUT", "The file ends before its end."),
    FailureClass.JOB_NOT_FOUND: ("E_404", "The service does not know the job."),
}


def fill() -> tuple[User, dict[str, str]]:
    """The person who looks at it, and what the arguments of addresses stand for (`tests/web/test_rights_walk.py`)."""
    person = User.objects.create_superuser("m.okoye", email="okoye@example.com", password="Correct-horse-7")
    home = make.make_workspace(slug="billing", name="Billing")
    make_member(home, "nadia", "viewer")
    other = make.make_workspace(slug="people", name="People and payroll")
    account = make.make_account(
        slug="relaypdf", name="RelayPDF / prod", submit_interval_ms=3000, price_per_job="0.0013", price_currency="USD"
    )
    held = make.make_account(
        slug="relaypdf-test", name="RelayPDF / test", health="held", hold_reason=HoldReason.CREDIT, held_at=make.NOW,
        hold_words="The service answered 402: no credit left.",
    )  # fmt: skip
    main = make.make_batch(
        workspace=home, account=account, name="September invoices", manifest_name="invoices_2026-09.csv",
        created_by=person, stop_after_failures=50, spend_cap="5.00",
    )  # fmt: skip
    storage.open_store(settings.STORAGE_URL).put(main.manifest_key, io.BytesIO(b"[]"))
    saved = _documents(main)
    others = _other_batches(home, other, account, held, person)
    for batch in (main, *others):  # each was sent in its turn, and that is what costs are summed by
        Submission.objects.filter(job__lead_batch=batch).update(batch=batch)
    _around(main, account, held, saved)
    _notices(main, person)
    _retention(home, saved)
    client = Client()
    client.force_login(person)
    return person, {
        "states": "states",
        "gotenberg": "gotenberg",
        "retry": "retry",
        "failed": "failed",
        "csv": "csv",
        "0": "0",
        "1": "1",
        "batch": main.public_id,
        "document": saved.version.document.public_id,
        "submission": str(saved.submissions.get().pk),
        "account": account.slug,
        "workspace": home.slug,
        "own_account": account.slug,
        "event": str(WebhookEvent.objects.order_by("pk").values_list("pk", flat=True)[0]),
        "export": _exports(main),
        **_planned(client, main),
        "across": _planned_across(client),
        "view": _views(person),
        **_drafts(client, home, account),
        **_templates(home, others),
    }


def _retention(workspace: Workspace, saved: Job) -> None:
    """Days for each part, and a document of which something went, something could not be proven, and more is to go."""
    Workspace.objects.filter(pk=workspace.pk).update(
        keep_inputs_days=30, keep_outputs_days=400, keep_evidence_days=None
    )
    sent = saved.submissions.get()
    ended = {"settled_at": make.NOW + timedelta(days=30, minutes=1), "due_at": None, "requested_at": make.NOW}
    make.make_deletion(
        workspace=workspace, submission=sent, what="request", where="here", rule="inputs are kept for 30 days",
        state="confirmed", sha256="5f" * 32, byte_count=48_213, **ended,
    )  # fmt: skip
    make.make_deletion(
        workspace=workspace, submission=sent, what="pdf", where="provider", state="failed", byte_count=91_077,
        rule="the account has the provider’s copy deleted after saving",
        words="Not confirmed in 24 hours. The provider said that it deleted it, and hands it out all the same.",
        **ended,
    )  # fmt: skip


def _documents(batch: Batch) -> Job:
    """300 of them, in the order of a manifest: what failed, what is under way and what has an unusual name first."""
    jobs = itertools.count()
    names = iter(NAMES)

    def name() -> dict[str, Any]:
        return {"business_id": next(names, f"INV-{next(jobs):06}")}

    first = make.make_saved_job(batch=batch, **name())
    store_pdf(first, PDF)
    _history(first)
    for failure_class, (code, words) in TOLD.items():
        for _ in range(2):
            job = make.make_job(
                batch=batch, state=JobState.FAILED, failure_class=failure_class, failure_code=code, failure_words=words,
                **name(),
            )  # fmt: skip
        make.make_submission(
            job=job, provider_job_id=f"pdf_{job.pk}_9f3c", accepted_at=make.NOW, try_count=3, in_doubt=False
        )
    for state in (JobState.UNKNOWN, JobState.DEADLINE_EXCEEDED, JobState.EXPIRED):
        job = make.make_job(batch=batch, state=state, failure_words="The connection was lost.", **name())
        make.make_submission(job=job)
    for state in (JobState.SUBMITTING, JobState.RENDERED, JobState.CANCELLED, JobState.CANCELLED):
        make.make_job(batch=batch, state=state, **name())
    for _ in range(6):
        make.make_accepted_job(batch=batch, **name())
    for _ in range(160):
        make.make_saved_job(batch=batch, **name())
    while batch.items.count() < 300:
        make.make_job(batch=batch, **name())
    return first


def _history(job: Job) -> None:
    steps = (
        (1, "pending", "submitting", "intent_committed"),
        (2, "submitting", "accepted", "accepted"),
        (9, "accepted", "rendered", "provider_job_finished"),
        (11, "rendered", "saved", "stored"),
    )
    for seconds, before, after, reason in steps:
        at = make.NOW + timedelta(seconds=seconds)
        JobEvent.objects.create(job=job, at=at, from_state=before, to_state=after, reason=reason)


def _other_batches(
    home: Workspace, other: Workspace, account: ProviderAccount, held: ProviderAccount, person: User
) -> list[Batch]:
    """One in each state that a batch can have, in two workspaces, with names of every length."""

    def batch(name: str, *, saved: int = 0, waiting: int = 0, failed: int = 0, **fields: Any) -> Batch:
        made = make.make_batch(**{"workspace": home, "account": account, "name": name, "created_by": person} | fields)
        for _ in range(saved):
            make.make_saved_job(batch=made)
        for _ in range(waiting):
            make.make_job(batch=made)
        for _ in range(failed):
            make.make_job(batch=made, state=JobState.FAILED)
        return made

    sampled = batch("Dunning letters, to be looked at first", waiting=4, waits_for_release=True, paused_at=make.NOW,
                    pause_reason="A sample is looked at first.")  # fmt: skip
    batch("Sample of dunning letters", saved=2, sample_of=sampled)
    return [
        sampled,
        batch("All saved", saved=5),
        batch("Payslips August", saved=3, failed=2, workspace=other),
        batch("Nothing worked", failed=2),
        batch(
            "Paused by a person",
            saved=1,
            waiting=3,
            paused_at=make.NOW,
            pause_reason="Wrong letterhead.",
        ),
        batch("Cancelled half way", saved=2, cancelled_at=make.NOW),
        batch("Waits for credit", waiting=3, account=held, workspace=other),
        batch(LONG, waiting=1, manifest_name=f"{LONG}.csv"),
    ]


def _around(batch: Batch, account: ProviderAccount, held: ProviderAccount, saved: Job) -> None:
    Alert.objects.create(
        kind=AlertKind.ACCOUNT_HELD, subject=f"account:{held.pk}", account=held, opened_at=make.NOW,
        words="RelayPDF / test is held: no credit left. Top it up, then resume the account.",
    )  # fmt: skip
    Alert.objects.create(
        kind=AlertKind.SURPLUS,
        subject=f"job:{saved.pk}",
        job=saved,
        opened_at=make.NOW,
        words="Two jobs were billed for it.",
    )
    Alert.objects.create(kind=AlertKind.STORE, subject="store", opened_at=make.NOW, words="The store refused 3 writes.")
    # A worker lives while the pictures are taken.
    PumpSlot.objects.update_or_create(number=0, defaults={"heartbeat_at": timezone.now() + timedelta(minutes=30)})
    for outcome in WebhookOutcome:
        fields = {"processed_at": make.NOW} if outcome != WebhookOutcome.WAITING else {}
        make.make_event(
            account=account,
            type="pdf.completed",
            provider_job_id=f"pdf_{outcome}_0123456789",
            outcome=outcome,
            **fields,
        )


def _notices(batch: Batch, person: User) -> None:
    """One of each event, the last two not seen yet."""
    counts = {"saved": 161, "in_progress": 114, "held": 0, "failed": 23, "cancelled": 2, "total": 300}
    facts = {
        "name": batch.name, "file": batch.manifest_name, "started_by": "m.okoye", "counts": counts, "state": "running",
        "causes": [["Invalid input", 2], ["Rate limited", 2]], "cost": "0.23 USD", "more": 12,
        "held_words": "paused by itself", "reason": "50 documents failed.",
    }  # fmt: skip
    for minutes, event in enumerate(NoticeEvent):
        at = make.NOW + timedelta(minutes=minutes)
        seen_at = at if minutes < 2 else None
        Notice.objects.create(batch=batch, recipient=person, event=event, facts=facts, happened_at=at, seen_at=seen_at)


def _exports(batch: Batch) -> str:
    """One that failed and one that is out of date; the one that is ready is shown."""
    make.make_ready_export(batch, state=ExportState.FAILED, words="The store refused to take it.", kind="merged")
    make.make_ready_export(batch, outdated_at=make.NOW, selection_words="Saved, “INV-00”")
    ready = make.make_ready_export(
        batch, content=b"PK" * 4000, name="September invoices.zip", document_count=161, row_count=300
    )
    return str(ready.public_id)


def _planned(client: Client, batch: Batch) -> dict[str, str]:
    """A bulk action that waits to be confirmed, through its page, and one that has ended."""
    address = reverse("batches:action_plan", args=[batch.public_id])
    answer = client.post(address, {"verb": "retry", "state": "failed"})
    assert answer.status_code == 302, answer
    ended = make.make_bulk_action(
        batch=batch, verb="check_again", confirmed_at=make.NOW, finished_at=make.NOW, reason="Provider was down",
    )  # fmt: skip
    for item in batch.items.exclude(version=None).select_related("version")[1:8]:
        job = Job.objects.filter(version=item.version).get()
        make.make_bulk_action_item(action=ended, job=job, result="done")
    return {"action": BulkAction.objects.exclude(pk=ended.pk).get().public_id}


def _planned_across(client: Client) -> str:
    """A bulk action over all batches that waits to be confirmed, through its page."""
    answer = client.post(reverse("batches:failed_plan"), {"verb": "retry", "all": "1", "workspace": "billing"})
    assert answer.status_code == 302, answer
    return str(BulkAction.objects.get(batch=None).public_id)


def _views(person: User) -> str:
    for page, name, query in (
        ("failed", "Refused content", "cause=invalid_input"),
        ("batches", "Mine that need a person", "mine=1&state=attention"),
    ):
        view = SavedView.objects.create(user=person, page=page, name=name, query=query)
    return str(view.pk)


def _drafts(client: Client, workspace: Workspace, account: ProviderAccount) -> dict[str, str]:
    """Uploads that were not started: one that may be, one full of errors, one that asks how it is to be read."""
    good = [{"id": f"INV-2{n:03}", "html": f"<h1>Invoice 2{n:03}</h1>", "filename": f"{n}.pdf"} for n in range(40)]
    bad = [{"html_content": "<p>1</p>", "x": 1}, {"id": "A", "html": "gone.html"}, {"id": "A", "html_content": ""}]
    april = "Rechnung;Text;Betrag, mit einem längeren Namen\nR-1;<p>Müller</p>;1,50\nR-2;;2,00\n".encode("cp1252")
    files = (("bad.json", json.dumps(bad).encode()), ("april.csv", april), ("october.json", json.dumps(good).encode()))
    form = {"workspace": workspace.slug, "account": account.slug, "on_conflict": "refuse"}
    for name, content in files:
        answer = client.post(reverse("batches:batch_new"), form | {"file": SimpleUploadedFile(name, content)})
        assert answer.status_code == 302, answer.content[:400]
        last = answer["Location"].rstrip("/").rpartition("/")[2]
    return {"draft": last}


def _templates(workspace: Workspace, others: list[Batch]) -> dict[str, str]:
    source = "<h1>Invoice {{ number }}</h1><p>{{ customer.name }}</p>{% if note %}<p>{{ note }}</p>{% endif %}"
    make.make_template_version(workspace=workspace, source=source)
    make.make_template_version(workspace=workspace, source=source.replace("h1", "h2"), is_published=False)
    make.make_template_version(
        workspace=workspace, source="<p>{{ name }}</p>", slug="dunning-letter", is_published=False
    )
    return {"template": "invoice"}


def other_drafts(public_id: str) -> list[str]:
    return list(Draft.objects.exclude(public_id=public_id).order_by("pk").values_list("public_id", flat=True))


def documents_by_state() -> dict[str, str]:
    """One document of each state and failure class: its public id by what it shows."""
    found: dict[str, str] = {}
    jobs = Job.objects.select_related("version__document").order_by("pk")
    for job in jobs:
        found.setdefault("-".join(filter(None, (job.state, job.failure_class))), job.version.document.public_id)
    longest = Document.objects.get(business_id=f"{LONG}-{'0' * 60}")
    return found | {"long-name": longest.public_id}
