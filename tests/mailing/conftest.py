"""A mail server, and a person who wants to hear of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User

from batches.engine import notices
from batches.models import Batch, Membership, Role
from tests.factories import NOW
from tests.mailing.server import MailServer


@pytest.fixture
def server(settings: Any) -> Iterator[MailServer]:
    running = MailServer()
    settings.EMAIL_URL = f"smtp://127.0.0.1:{running.port}"
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", running.port
    settings.DEFAULT_FROM_EMAIL, settings.SITE_URL = "Batches <batches@example.com>", "https://batches.example.com"
    yield running
    running.shutdown()
    running.server_close()


@pytest.fixture
def nadia(batch: Batch) -> User:
    """She works in the batch's workspace and asked to hear of it."""
    person = User.objects.create_user("nadia", email="nadia@example.com")
    Membership.objects.create(workspace=batch.workspace, user=person, role=Role.OPERATOR)
    watched(batch, person)
    return person


def watched(batch: Batch, *people: User) -> None:
    batch.notify, batch.created_by = notices.wanted_by(people), people[0]
    batch.save()
    notices.watch(batch, now=NOW)
