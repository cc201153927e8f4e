"""The three steps. Each task reads its row, makes one call, writes its row and puts the next task into the queue."""

from __future__ import annotations

import hashlib
import json
import os
import time
from datetime import timedelta
from pathlib import Path

import requests
from django.db import transaction
from django.utils import timezone
from django_q.brokers import get_broker
from django_q.conf import Conf
from django_q.models import OrmQ
from django_q.signing import SignedPackage
from django_q.tasks import async_task

from benchmarks.task_per_step.models import Document

API_KEY = "pdf_live_benchmark"
FIRST_POLL, GROWTH, MOST = 0.2, 1.6, 15.0
STEPS = "benchmarks.task_per_step.tasks"
BASE_URL = os.environ.get("BENCH_PEER", "")
FOLDER = Path(os.environ.get("BENCH_DATA_DIR", ".")) / "pdfs"

_sessions: dict[int, requests.Session] = {}


def session() -> requests.Session:
    """One pooled session per worker process."""
    if os.getpid() not in _sessions:
        _sessions[os.getpid()] = requests.Session()
        _sessions[os.getpid()].trust_env = False
    return _sessions[os.getpid()]


def submit(document_id: int) -> None:
    document = Document.objects.get(pk=document_id)
    body = json.dumps({"html": f"<h1>Invoice {document.number}</h1>", "response": "async"})
    headers = {
        "Authorization": f"Bearer {API_KEY}",
        "Content-Type": "application/json",
        "Idempotency-Key": document.key,
    }
    answer = session().post(f"{BASE_URL}/v1/pdf", data=body, headers=headers, timeout=20)
    answer.raise_for_status()
    document.job_id = answer.json()["id"]
    document.state = "accepted"
    document.save(update_fields=["job_id", "state"])
    later(f"{STEPS}.poll", document_id, FIRST_POLL)


def poll(document_id: int) -> None:
    document = Document.objects.get(pk=document_id)
    headers = {"Authorization": f"Bearer {API_KEY}"}
    answer = session().get(f"{BASE_URL}/v1/jobs/{document.job_id}", headers=headers, timeout=20)
    answer.raise_for_status()
    job = answer.json()
    if job["status"] != "completed":
        document.polls += 1
        document.save(update_fields=["polls"])
        later(f"{STEPS}.poll", document_id, min(MOST, FIRST_POLL * GROWTH**document.polls))
        return
    document.url = job["url"]
    document.state = "rendered"
    document.save(update_fields=["url", "state"])
    async_task(f"{STEPS}.download", document_id, save=False)


def download(document_id: int) -> None:
    document = Document.objects.get(pk=document_id)
    answer = session().get(document.url, timeout=60)
    answer.raise_for_status()
    if not answer.content.startswith(b"%PDF-"):
        raise ValueError("no PDF")
    path = FOLDER / f"{document.key}.pdf"
    temporary = path.with_suffix(".part")
    with temporary.open("wb") as file:
        file.write(answer.content)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    document.sha256 = hashlib.sha256(answer.content).hexdigest()
    document.state = "saved"
    document.save(update_fields=["sha256", "state"])


def later(task: str, document_id: int, seconds: float) -> None:
    """A task that is heard in `seconds`: the ORM broker's lock in the future, since schedules are 30 s coarse."""
    name = f"{task}-{document_id}-{time.monotonic_ns()}"
    payload = {
        "id": hashlib.md5(name.encode()).hexdigest(),
        "name": name,
        "func": task,
        "args": (document_id,),
        "kwargs": {},
        "started": timezone.now(),
        "save": False,
    }
    OrmQ.objects.create(
        key=get_broker().list_key or Conf.PREFIX,
        payload=SignedPackage.dumps(payload),
        lock=timezone.now() + timedelta(seconds=seconds),
    )


def offer(run: str, documents: int) -> float:
    """All documents of a run and their first tasks in one transaction; the moment at which it had committed."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with transaction.atomic():
        Document.objects.bulk_create(
            [
                Document(run=run, number=number, key=hashlib.sha256(f"{run}-{number}".encode()).hexdigest())
                for number in range(documents)
            ]
        )
        for document_id in Document.objects.filter(run=run).order_by("pk").values_list("pk", flat=True):
            async_task(f"{STEPS}.submit", document_id, save=False)
    return time.monotonic()
