"""Opening and closing alerts: at most one open per kind and subject, which the database enforces."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Q

from batches.models import Alert, AlertKind, Batch, ProviderAccount

#: Subjects of what concerns the store as a whole: what it cannot take, and what its sweeps found.
STORE_WRITES = "store:writes"
STORE_OBJECTS = "store"


def open_for_account(account: ProviderAccount, kind: AlertKind, words: str, *, now: datetime) -> None:
    _open(kind, f"account:{account.pk}", words, now=now, account_id=account.pk)


def open_for_job(job_id: int, kind: AlertKind, words: str, *, now: datetime) -> None:
    _open(kind, f"job:{job_id}", words, now=now, job_id=job_id)


def open_for_store(words: str, *, now: datetime) -> None:
    """The store cannot take PDFs: one alert, however many documents wait for it."""
    _open(AlertKind.STORE, STORE_WRITES, words, now=now)


def tell(kind: AlertKind, subject: str, words: str, *, now: datetime, account_id: int | None = None) -> None:
    """One alert that sums something up: opened, or its words brought up to date."""
    if not Alert.objects.filter(kind=kind, subject=subject, closed_at=None).update(words=words):
        _open(kind, subject, words, now=now, **({"account_id": account_id} if account_id else {}))


def close(kind: AlertKind, subject: str, *, now: datetime) -> None:
    Alert.objects.filter(kind=kind, subject=subject, closed_at=None).update(closed_at=now)


def open_for_batch(batch: Batch, kind: AlertKind, words: str, *, now: datetime) -> None:
    _open(kind, f"batch:{batch.pk}", words, now=now, batch_id=batch.pk)


def close_for_batch(batch: Batch, kind: AlertKind, *, now: datetime) -> None:
    close(kind, f"batch:{batch.pk}", now=now)


def reword_for_account(account: ProviderAccount, kind: AlertKind, words: str) -> None:
    """Say more in the alert that is open."""
    Alert.objects.filter(kind=kind, subject=f"account:{account.pk}", closed_at=None).update(words=words)


def tell_for_account(account: ProviderAccount, kind: AlertKind, words: str, *, now: datetime) -> None:
    tell(kind, f"account:{account.pk}", words, now=now, account_id=account.pk)


def close_for_account(account: ProviderAccount, kind: AlertKind, *, now: datetime) -> None:
    Alert.objects.filter(kind=kind, subject=f"account:{account.pk}", closed_at=None).update(closed_at=now)


def close_for_jobs(job_ids: list[int], *, now: datetime) -> None:
    """Close what was open about these jobs: they came to a good end, and the store took what it was given.

    What may have been billed twice stays open.
    """
    about = Q(job_id__in=job_ids) | Q(kind=AlertKind.STORE, subject=STORE_WRITES)
    Alert.objects.filter(about, closed_at=None).exclude(kind=AlertKind.SURPLUS).update(closed_at=now)


def _open(kind: AlertKind, subject: str, words: str, *, now: datetime, **link: int) -> None:
    # ignore_conflicts: two pumps may see the same trouble at once, and the first alert says it.
    Alert.objects.bulk_create(
        [Alert(kind=kind, subject=subject, words=words, opened_at=now, **link)], ignore_conflicts=True
    )
