"""The reconcile page: evidence in words, safe verbs with prices, adopting in two steps, and who may do what."""

from __future__ import annotations

import itertools
import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from batches.engine import accounts
from batches.models import AuditEntry, Batch, Job, JobState, ProviderAccount, Role, Submission, Workspace
from tests import factories
from tests.engine.simulated import Complete, SimulatedJob, SimulatedProvider
from tests.engine.virtual_time import VirtualClock
from tests.web.conftest import make_member, signed_in

#: The network is called between transactions, and the simulated provider sees to it.
pytestmark = pytest.mark.django_db(transaction=True)


def page_of(job: Job) -> str:
    return f"/documents/{job.version.document.public_id}/reconcile/"


@pytest.fixture
def manager(workspace: Workspace) -> Client:
    return signed_in(make_member(workspace, "f.adeyemi", Role.MANAGER))


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> SimulatedProvider:
    """What every account speaks to."""
    simulated = SimulatedProvider(VirtualClock(timezone.now()))
    monkeypatch.setattr(accounts, "make_provider", lambda *_: simulated)
    return simulated


@pytest.fixture
def lost(batch: Batch) -> Job:
    """Sent two hours ago; its answer was lost, and its window is over."""
    job = factories.make_job(batch=batch, state=JobState.UNKNOWN, business_id="INV-2041")
    at = timezone.now() - timedelta(hours=2)
    factories.make_submission(
        job=job, first_sent_at=at, last_sent_at=at, resend_until=at + timedelta(hours=1), try_count=6
    )
    return job


def at_provider(provider: SimulatedProvider, job: Job, *, name: str = "INV-2041") -> SimulatedJob:
    row = Submission.objects.get(job=job)
    made = SimulatedJob("pdf_9f3a7c21d0", name, row.idempotency_key, row.request_sha256, row.first_sent_at)
    provider.jobs[made.id] = made
    provider.script(name, status=itertools.repeat(Complete()))
    return made


def plain(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def test_the_page_shows_evidence_verdict_and_prices_and_asks_nobody(
    lost: Job, operator: Client, provider: SimulatedProvider
) -> None:
    page = plain(operator.get(page_of(lost)).text)
    assert "Cannot be known" in page
    assert "could be sent again without a second bill is over" in page
    assert "Regenerate bills 1" in page
    assert "Dismiss free" in page
    assert "Retry" not in page
    assert provider.reads == provider.look_ups == []
    assert not AuditEntry.objects.exists()


def test_the_page_names_no_window_where_a_repeat_is_always_harmless(lost: Job, operator: Client) -> None:
    ProviderAccount.objects.update(kind="gotenberg")
    page = plain(operator.get(page_of(lost)).text)
    assert "may be sent again at any time: a repeat makes no second document" in page
    assert "is over" not in page


def test_the_document_page_leads_there_only_while_something_is_uncertain(
    lost: Job, batch: Batch, operator: Client
) -> None:
    saved = factories.make_saved_job(batch=batch)
    assert page_of(lost) in operator.get(page_of(lost).replace("reconcile/", "")).text
    assert page_of(saved) not in operator.get(page_of(saved).replace("reconcile/", "")).text


def test_asking_is_written_down_with_its_verdict(lost: Job, operator: Client, provider: SimulatedProvider) -> None:
    page = plain(operator.post(page_of(lost), {"step": "ask"}).text)
    assert "offers no look-up by key" in page
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.facts["verdict"]) == ("reconcile", "cannot be known")


def test_a_pasted_id_is_looked_at_then_confirmed_and_never_shown_whole_before(
    lost: Job, manager: Client, provider: SimulatedProvider
) -> None:
    made = at_provider(provider, lost)
    factories.make_event(
        account=lost.account, at=made.accepted_at + timedelta(seconds=5), provider_job_id=made.id, outcome="unmatched"
    )
    first = manager.get(page_of(lost)).text
    assert made.id not in first
    token = re.search(r'name="candidate" value="([0-9a-f]+)"', first)
    assert token is not None
    looked = manager.post(page_of(lost), {"step": "inspect", "candidate": token[1]}).text
    assert made.id not in looked
    assert "text shows INV-2041" in looked
    assert "Not proven" in looked
    lost.refresh_from_db()
    assert lost.state == "unknown"
    manager.post(page_of(lost), {"step": "adopt", "candidate": token[1], "reason": "their record shows it"})
    lost.refresh_from_db()
    assert lost.state == "rendered"
    assert Submission.objects.get(job=lost).provider_job_id == made.id
    entry = AuditEntry.objects.get(action="adopt")
    assert entry.reason == "their record shows it"
    assert made.id not in str(entry.facts)
    assert len(provider.jobs) == 1


@pytest.mark.parametrize(
    ("pasted", "words"),
    [
        ("pdf_of_nobody", "has no job with that id"),
        ("", "Paste the provider"),
        ("../../v1/account", "no provider job id"),
        ("pdf\x00x", "no provider job id"),
        ("p" * 201, "too long"),
        ("<script>alert(1)</script>", "no provider job id"),
    ],
)
def test_what_cannot_be_adopted_is_refused_with_a_sentence(
    pasted: str, words: str, lost: Job, manager: Client, provider: SimulatedProvider
) -> None:
    answer = manager.post(page_of(lost), {"step": "adopt", "provider_job_id": pasted})
    assert answer.status_code == 422
    assert words in answer.text
    assert "<script>alert" not in answer.text
    lost.refresh_from_db()
    assert lost.state == "unknown"


@pytest.mark.parametrize(
    ("role", "step", "status"),
    [
        (Role.VIEWER, "", 403),
        (Role.VIEWER, "ask", 403),
        (Role.VIEWER, "adopt", 403),
        (Role.OPERATOR, "ask", 200),
        (Role.OPERATOR, "inspect", 403),
        (Role.OPERATOR, "adopt", 403),
        (Role.MANAGER, "inspect", 422),
    ],
)
def test_each_step_asks_for_its_right(
    role: str, step: str, status: int, lost: Job, workspace: Workspace, provider: SimulatedProvider
) -> None:
    client = signed_in(make_member(workspace, "somebody", role))
    answer = client.post(page_of(lost), {"step": step}) if step else client.get(page_of(lost))
    assert answer.status_code == status


def test_whoever_may_not_see_the_workspace_finds_nothing(lost: Job, outsider: Client) -> None:
    assert outsider.get(page_of(lost)).status_code == 404
    assert outsider.post(page_of(lost), {"step": "ask"}).status_code == 404
