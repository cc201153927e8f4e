"""The actions of the document page over HTTP: every verb, state and role, and what a person is told."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.test import Client

from batches import rights
from batches.engine import standings, verbs
from batches.models import AuditEntry, Batch, BatchItem, DocumentVersion, Job, JobState, Role, Verb, Workspace
from batches.views.verbs import OFFERED, PAGES
from tests.factories import NOW, make_batch, make_job, make_saved_job, make_submission
from tests.web.conftest import make_member, signed_in

FORM = {"reason": "The provider is back.", "confirmed": "on"}


def page_of(job: Job) -> str:
    return f"/documents/{job.version.document.public_id}/"


def address_of(job: Job, verb: str) -> str:
    return f"{page_of(job)}actions/{verb}/"


def job_in(state: JobState, batch: Batch) -> Job:
    """A job in the state with a submission as it usually has one then."""
    if state is JobState.SAVED:
        return make_saved_job(batch=batch)
    job = make_job(batch=batch, state=state)
    if state in (JobState.SUBMITTING, JobState.UNKNOWN):
        make_submission(job=job, resend_until=NOW.replace(year=2999))
    elif state not in (JobState.PENDING, JobState.CANCELLED):
        make_submission(job=job, provider_job_id=f"pdf_{job.pk}", accepted_at=NOW, in_doubt=False)
    return job


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("verb", OFFERED)
def test_a_verb_does_what_the_one_table_says_in_every_state_or_tells_its_sentence(
    verb: Verb, role: Role, batch: Batch
) -> None:
    user: User = make_member(batch.workspace, "ada", role)
    client = signed_in(user)
    for state in JobState:
        job = job_in(state, batch)
        item = BatchItem.objects.get(version=job.version)
        standing = standings.of_items(BatchItem.objects.filter(pk=item.pk))[item.pk]
        answer = verbs.answer(verb, standing, now=NOW)
        entries = AuditEntry.objects.count()
        response = client.post(address_of(job, verb), FORM, follow=True)
        done = AuditEntry.objects.count() - entries
        if not rights.may(user, verb, batch.workspace):
            assert (response.status_code, done) == (403, 0), (state, verb)
            assert "does not allow it" in response.text
            continue
        assert response.status_code == 200
        assert done == answer.allowed, (state, verb, answer)
        if not answer.allowed:
            assert answer.words.replace("'", "&#x27;") in response.text, (state, verb)


def test_the_panel_offers_what_may_be_done_with_its_price_and_disables_the_rest_with_its_sentence(
    batch: Batch, operator: Client
) -> None:
    job = job_in(JobState.EXPIRED, batch)
    panel = operator.get(page_of(job)).text.split('id="verbs"')[1].split("</section>")[0]
    forms = parts(panel)
    assert "disabled" not in forms[Verb.FETCH_AGAIN]
    assert ">free<" in forms[Verb.FETCH_AGAIN]
    assert "disabled" in forms[Verb.RETRY]
    assert "so it is billed already. Fetch again is free" in forms[Verb.RETRY]
    assert 'name="reason"' in forms[Verb.DISMISS]


def parts(panel: str) -> dict[str, str]:
    """What the panel says of each verb, one that is refused with its sentence."""
    said = {part.split('"', 1)[0]: part for part in panel.split(' id="verb-')[1:]}
    for verb, part in said.items():
        if why := re.search(r'aria-describedby="(why-[a-z_]+)"', part):
            said[verb] = part + panel.split(f'id="{why[1]}"')[1].split("</p>")[0]
    return said


def test_the_verbs_with_pages_are_links_with_their_price_or_disabled_with_the_sentence(
    batch: Batch, operator: Client, workspace: Workspace
) -> None:
    manager = signed_in(make_member(workspace, "a.manager", Role.MANAGER))
    lost, saved = job_in(JobState.UNKNOWN, batch), job_in(JobState.SAVED, batch)
    panel = parts(manager.get(page_of(lost)).text.split('id="verbs"')[1].split("</section>")[0])
    assert set(panel) == set(Verb)
    assert f'href="{page_of(lost)}reconcile/"' in panel[Verb.RECONCILE]
    assert ">free<" in panel[Verb.RECONCILE]
    assert f'href="{page_of(lost)}regenerate/"' in panel[Verb.REGENERATE]
    assert ">bills 1<" in panel[Verb.REGENERATE]
    assert "Version 1 may also bill." in panel[Verb.REGENERATE]
    of_operator = parts(operator.get(page_of(lost)).text.split('id="verbs"')[1].split("</section>")[0])
    assert "disabled" in of_operator[Verb.REGENERATE]
    assert "Your role in this workspace does not allow it." in of_operator[Verb.REGENERATE]
    assert "href" not in of_operator[Verb.REGENERATE]
    of_saved = parts(manager.get(page_of(saved)).text.split('id="verbs"')[1].split("</section>")[0])
    assert "It is saved." in of_saved[Verb.RECONCILE]
    assert "href" not in of_saved[Verb.RECONCILE]


def test_the_banner_of_a_failure_leads_to_what_may_be_done_now_what_is_mostly_right_first(
    batch: Batch, operator: Client
) -> None:
    def ways(job: Job) -> list[str]:
        page = operator.get(page_of(job)).text
        shown = page.split('class="ways"')[1].split("</p>")[0] if 'class="ways"' in page else ""
        return re.findall(r'href="([^"]*)"', shown)

    lost = job_in(JobState.UNKNOWN, batch)
    assert ways(lost) == [f"{page_of(lost)}reconcile/", "#verb-retry"]
    assert ways(job_in(JobState.EXPIRED, batch))[0] == "#verb-fetch_again"
    assert ways(job_in(JobState.DEADLINE_EXCEEDED, batch))[0] == "#verb-check_again"
    assert ways(job_in(JobState.SAVED, batch)) == []


def test_a_viewer_sees_every_verb_disabled_with_the_reason(batch: Batch, viewer: Client) -> None:
    job = job_in(JobState.EXPIRED, batch)
    panel = viewer.get(page_of(job)).text.split('id="verbs"')[1].split("</section>")[0]
    assert panel.count(" disabled ") == len(Verb)
    assert "Your role in this workspace does not allow it." in panel


@pytest.mark.parametrize("who", ["outsider", "nobody"])
def test_who_may_not_see_the_document_can_do_nothing_to_it(who: str, batch: Batch, outsider: Client) -> None:
    job = job_in(JobState.EXPIRED, batch)
    client = outsider if who == "outsider" else Client()
    response = client.post(address_of(job, Verb.FETCH_AGAIN), FORM)
    assert response.status_code == (404 if who == "outsider" else 302)
    assert rights.rights(AnonymousUser(), batch.workspace) == frozenset()
    assert Job.objects.get(pk=job.pk).state == "expired"


def test_what_is_no_verb_is_not_found_and_nothing_is_done_by_a_link(batch: Batch, operator: Client) -> None:
    job = job_in(JobState.EXPIRED, batch)
    assert operator.post(address_of(job, "delete"), FORM).status_code == 404
    assert operator.get(address_of(job, Verb.FETCH_AGAIN)).status_code == 405


@pytest.mark.parametrize("verb", PAGES)
def test_a_verb_with_a_page_of_its_own_is_not_done_here_where_a_second_press_would_bill_again(
    verb: Verb, batch: Batch
) -> None:
    job = job_in(JobState.UNKNOWN, batch)
    manager = signed_in(make_member(batch.workspace, "a.manager", Role.ADMIN))
    for _ in range(2):
        assert manager.post(address_of(job, verb), FORM).status_code == 404
    assert DocumentVersion.objects.count() == 1
    assert not AuditEntry.objects.exists()


def test_a_reason_is_asked_for_where_something_may_be_billed(batch: Batch, operator: Client) -> None:
    job = job_in(JobState.UNKNOWN, batch)
    told = operator.post(address_of(job, Verb.RETRY), {"reason": " "}, follow=True).text
    assert "Retry asks for a reason; give one." in told
    told = operator.post(address_of(job, Verb.RETRY), FORM, follow=True).text
    assert "Its submission is sent once more" in told
    entry = AuditEntry.objects.get(action="retry")
    assert (entry.actor_words, entry.reason, entry.from_where) == ("m.okoye", "The provider is back.", "127.0.0.1")


def test_with_a_batch_only_its_item_is_meant(batch: Batch, operator: Client) -> None:
    job = job_in(JobState.EXPIRED, batch)
    other = make_batch(workspace=batch.workspace, account=batch.account)
    second = BatchItem.objects.create(
        batch=other, position=0, document=job.version.document, version=job.version, intake_outcome="unchanged"
    )
    operator.post(f"{address_of(job, Verb.DISMISS)}?batch={other.public_id}", FORM)
    assert list(BatchItem.objects.exclude(dismissed_at=None)) == [second]
    told: Any = operator.post(address_of(job, Verb.REOPEN), FORM, follow=True)
    assert "Reopen: It is open again." in told.text


def test_after_a_check_the_page_looks_for_its_answer(batch: Batch, operator: Client) -> None:
    job = job_in(JobState.DEADLINE_EXCEEDED, batch)
    assert "hx-get" not in operator.get(page_of(job)).text
    assert "hx-get" in operator.post(address_of(job, Verb.CHECK_AGAIN), FORM, follow=True).text
