"""Without `view_content` a person sees states, counts and causes; never what is in a document, and nothing that quotes
it or leads to it. What belongs to others stays out of reach however it is asked for (case 133)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from batches import tokens
from batches.models import AuditEntry, Batch, BulkAction, Job, Workspace
from tests.factories import make_batch, make_job, make_ready_export
from tests.web.conftest import signed_in
from tests.web.marked import CELL, HTML, JOB_ID, MARKS, ROW, WORDS, marked_jobs
from tests.web.test_rights_walk import everything


@pytest.fixture
def failed(batch: Batch) -> Job:
    job = marked_jobs(batch)[1]
    batch.report |= {"columns": ["id", "note"]}
    batch.save()
    return job


def shown(client: Client, address: str, **query: Any) -> set[str]:
    """The marks that an answer holds."""
    answer = client.get(address, query)
    assert answer.status_code == 200, address
    text = b"".join(answer.streaming_content) if answer.streaming else answer.content  # type: ignore[attr-defined]
    return {mark for mark in MARKS if mark.encode() in text}


def test_who_may_not_see_content_reads_the_cause_and_not_what_the_provider_said(
    failed: Job, batch: Batch, viewer: Client, operator: Client
) -> None:
    document = reverse("batches:document_detail", args=[failed.version.document.public_id])
    page = reverse("batches:batch_detail", args=[batch.public_id])
    assert WORDS in shown(operator, document)
    assert {WORDS, CELL} <= shown(operator, page)
    row = f"{failed.version.items.get().position}.00"  # drawn before it changed
    for address, query in (
        (document, {}),
        (f"{document}live/", {}),
        (page, {"state": "failed"}),
        (f"{page}live/", {"rows": row}),
        (reverse("batches:action_list", args=[batch.public_id]), {}),
    ):
        assert shown(viewer, address, **query) == set(), address
    assert "Rendering failed" in viewer.get(document).text
    assert "Rendering failed" in viewer.get(page).text


def test_a_search_finds_nothing_by_what_its_reader_may_not_see(
    failed: Job, batch: Batch, viewer: Client, operator: Client
) -> None:
    page, link = reverse("batches:batch_detail", args=[batch.public_id]), f">{failed.version.document.business_id}</a>"

    def listed(client: Client, q: str) -> str:
        return client.get(page, {"q": q, "state": "failed"}).text.partition('id="documents"')[2]

    for q in (WORDS, f"{JOB_ID}-f"):
        assert link in listed(operator, q)
        assert link not in listed(viewer, q)


@pytest.mark.parametrize(("role", "job_ids"), [("viewer", {None}), ("operator", {f"{JOB_ID}-f", f"{JOB_ID}-s"})])
def test_the_api_gives_job_ids_to_a_token_whose_person_may_reveal_them(
    role: str, job_ids: set[Any], failed: Job, workspace: Workspace, batch: Batch, client: Client
) -> None:
    person = User.objects.create_user("script")
    person.memberships.create(workspace=workspace, role=role)
    secret = tokens.issue(person, workspace, name="t", now=timezone.now(), lifetime=timedelta(days=1))[1]
    answer = client.get(f"/api/v1/batches/{batch.public_id}", headers={"Authorization": f"Bearer {secret}"})
    assert {item["provider_job_id"] for item in answer.json()["items"]} == job_ids


def test_exports_and_content_are_rights_of_their_own(
    failed: Job, batch: Batch, viewer: Client, workspace: Workspace
) -> None:
    """Somebody who may only export gets the list of results, without ids, words or files."""
    person = User.objects.get(username="nadia")
    results = reverse("batches:batch_results", args=[batch.public_id, "csv"])
    assert viewer.get(results).status_code == 403
    person.user_permissions.add(Permission.objects.get(codename="export"))
    assert shown(viewer, results) == set()
    assert viewer.get(reverse("batches:batch_failed", args=[batch.public_id])).status_code == 403
    person.user_permissions.add(Permission.objects.get(codename="reveal"))
    assert shown(viewer, results) == set()  # an id fetches the file
    person.user_permissions.add(Permission.objects.get(codename="view_content"))
    assert shown(signed_in(User.objects.get(pk=person.pk)), results) == {WORDS, JOB_ID}


def test_how_many_match_tells_nothing_of_content_to_who_may_not_see_it(
    failed: Job, batch: Batch, viewer: Client, operator: Client
) -> None:
    """A right to export, or to act on many, does not make a search of what is only for who sees content."""
    person = User.objects.get(username="nadia")
    person.user_permissions.add(*Permission.objects.filter(codename__in=("export", "dismiss_document")))
    address = f"/batches/{batch.public_id}/"
    of_words, of_cell = {"q": WORDS, "everything": "1"}, {"group_column": "note", "group_value": ROW}
    for chosen in (of_words, {"q": f"{JOB_ID}-f"}, of_cell):
        assert operator.get(f"{address}download/", chosen).context["offer"].rows > 0
        assert viewer.get(f"{address}download/", chosen).context["offer"].rows == 0
        assert viewer.post(f"{address}download/", {"kind": "csv", **chosen}).status_code == 422
        listed = b"".join(viewer.get(f"{address}results.csv", chosen).streaming_content)  # type: ignore[attr-defined]
        assert failed.version.document.business_id.encode() not in listed
    assert operator.get(address, of_words).context["bulk"].matching == 1
    assert viewer.get(address, of_words).context["bulk"].matching == 0
    viewer.post(f"{address}actions/plan/", {"verb": "dismiss", "q": WORDS})
    assert not BulkAction.objects.exists()
    operator.post(f"{address}actions/plan/", {"verb": "dismiss", "q": WORDS})
    (action,) = BulkAction.objects.all()
    assert operator.get(f"{address}actions/{action.public_id}/").context["drift"].joined == 0
    action.items.all().delete()
    planned = f"{address}actions/{action.public_id}/"
    assert operator.get(planned).context["drift"].joined == 1
    assert viewer.get(planned).context["drift"].joined == 0


def test_a_bulk_action_says_to_who_may_not_see_content_that_it_came_of_a_search_and_not_which(
    failed: Job, batch: Batch, viewer: Client, operator: Client
) -> None:
    User.objects.get(username="nadia").user_permissions.add(Permission.objects.get(codename="dismiss_document"))
    operator.post(f"/batches/{batch.public_id}/actions/plan/", {"verb": "dismiss", "q": WORDS, "state": "failed"})
    (action,) = BulkAction.objects.all()
    detail = f"/batches/{batch.public_id}/actions/{action.public_id}/"
    listed = reverse("batches:action_list", args=[batch.public_id])
    live = {"rows": f"{action.public_id}.00"}  # drawn before it changed
    pages: tuple[tuple[str, dict[str, str]], ...] = ((listed, {}), ("/actions/", {}), ("/actions/live/", live))
    for address, query in ((detail, {}), (f"{detail}live/", {"rows": "0.00"}), *pages):
        assert WORDS in shown(operator, address, **query), address
        assert shown(viewer, address, **query) == set(), address
        assert "A search" in viewer.get(address, query).text, address
    BulkAction.objects.update(confirmed_at=timezone.now(), finished_at=timezone.now())
    assert "Plan again" in operator.get(detail).text
    again = viewer.get(detail).text  # it would mean every failed document
    assert "Plan again" not in again
    assert "?state=failed" not in again


def test_an_export_of_a_search_or_a_group_names_neither_to_who_may_not_see_content(
    failed: Job, batch: Batch, viewer: Client, operator: Client
) -> None:
    User.objects.get(username="nadia").user_permissions.add(Permission.objects.get(codename="export"))
    address = f"/batches/{batch.public_id}/"
    for chosen in ({"q": WORDS}, {"group_column": "note", "group_value": ROW}):
        assert operator.post(f"{address}download/", {"kind": "csv", **chosen}).status_code == 302
        operator.get(f"{address}archive/", chosen)
    by_group = {"kind": "merged", "options": {"by_group": True, "folders_by": "note"}}
    merged = make_ready_export(batch, name=f"merged_{ROW}.pdf", **by_group)
    detail = f"/exports/{merged.public_id}/"
    assert shown(operator, detail) == {ROW}
    operator.get(f"{detail}files/1/")
    for page in ("/exports/?view=all", detail, f"{address}download/"):
        assert shown(viewer, page) == set(), page
    told = [f"{each.subject} {each.facts}" for each in AuditEntry.objects.all()]
    assert len(told) >= 4
    assert [words for words in told if WORDS in words or ROW in words] == []


def test_audit_entries_of_a_day_with_marked_documents_hold_no_content(
    failed: Job, batch: Batch, operator: Client
) -> None:
    document = failed.version.document.public_id
    saved = batch.items.exclude(document=failed.version.document).get().document.public_id
    assert shown(operator, f"/documents/{saved}/v1.pdf") == {HTML}
    assert WORDS in shown(operator, f"/batches/{batch.public_id}/results.csv")
    operator.post(reverse("batches:document_verb", args=[document, "retry"]), {"confirmed": "yes"})
    operator.post(reverse("batches:document_reconcile", args=[document]), {"step": "ask"})
    told = [f"{each.subject} {each.reason} {each.facts}" for each in AuditEntry.objects.all()]
    assert len(told) >= 3
    assert [words for words in told if any(mark in words for mark in MARKS)] == []


def test_all_matching_never_reaches_into_another_workspace(failed: Job, batch: Batch, outsider: Client) -> None:
    """Case 133: by the id of the batch, by rows of it under a batch of one's own, by a plan of others."""
    own = make_batch(workspace=User.objects.get(username="s.lindqvist").memberships.get().workspace)
    make_job(batch=own)
    theirs = BulkAction.objects.create(
        public_id="act_theirs", workspace=batch.workspace, batch=batch, verb="cancel", actor_words="x", creation_key="k"
    )
    before = everything()
    for form in ({"everything": "1"}, {"state": "failed"}, {"rows": ["0", "1"]}):
        address = reverse("batches:action_plan", args=[batch.public_id])
        assert outsider.post(address, {"verb": "cancel", **form}).status_code == 404
    for name in ("action_confirm", "action_abort"):
        assert outsider.post(reverse(f"batches:{name}", args=[own.public_id, theirs.public_id])).status_code == 404
    assert everything() == before
    planned = outsider.post(reverse("batches:action_plan", args=[own.public_id]), {"verb": "cancel", "everything": "1"})
    assert planned.status_code == 302
    action = BulkAction.objects.exclude(pk=theirs.pk).get()
    assert set(action.items.values_list("item__batch", flat=True)) == {own.pk}
