"""Opening and closing alerts: at most one open per kind and subject, which the database enforces."""

from __future__ import annotations

from datetime import datetime

from batches.models import Alert, AlertKind, ProviderAccount


def open_for_account(account: ProviderAccount, kind: AlertKind, words: str, *, now: datetime) -> None:
    _open(kind, f"account:{account.pk}", words, now=now, account_id=account.pk)


def open_for_job(job_id: int, kind: AlertKind, words: str, *, now: datetime) -> None:
    _open(kind, f"job:{job_id}", words, now=now, job_id=job_id)


def close_for_account(account: ProviderAccount, kind: AlertKind, *, now: datetime) -> None:
    Alert.objects.filter(kind=kind, subject=f"account:{account.pk}", closed_at=None).update(closed_at=now)


def close_for_jobs(job_ids: list[int], *, now: datetime) -> None:
    """Close what was open about these jobs: they came to a good end. What may have been billed twice stays open."""
    Alert.objects.filter(job_id__in=job_ids, closed_at=None).exclude(kind=AlertKind.SURPLUS).update(closed_at=now)


def _open(kind: AlertKind, subject: str, words: str, *, now: datetime, **link: int) -> None:
    # ignore_conflicts: two pumps may see the same trouble at once, and the first alert says it.
    Alert.objects.bulk_create(
        [Alert(kind=kind, subject=subject, words=words, opened_at=now, **link)], ignore_conflicts=True
    )
