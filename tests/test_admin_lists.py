"""The admin's lists with large tables: each query is answered by an index or ends after a page, and none is asked once
for each row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from batches import wording
from batches.admin import kinds
from batches.admin.searching import FINDERS
from batches.models import (
    Alert,
    AlertKind,
    AuditEntry,
    Batch,
    BatchItem,
    BulkAction,
    Document,
    Exchange,
    Job,
    JobEvent,
    JobState,
    Membership,
    Notice,
    ProviderAccount,
    Role,
    Submission,
)
from tests.factories import NOW, make_batch, make_bulk_action, make_job, make_ready_export, make_saved_job
from tests.test_admin import OURS, address, fill

pytestmark = pytest.mark.django_db

#: A few hundred rows in the largest installation that can be thought of, each made by a person or once for good.
SMALL = {"workspace", "membership", "provideraccount", "template", "apitoken", "pumpslot", "storesweep", "pacinglane"}
SMALL |= {"columnmapping", "sweeprun"}
LARGE = [model for model in OURS if model._meta.model_name not in SMALL]


def table(model: Any) -> str:
    return str(model._meta.db_table)


def queries(client: Client, url: str, **parameters: str) -> list[str]:
    with CaptureQueriesContext(
        connection,
    ) as asked:
        answer = client.get(url, parameters)
    assert answer.status_code == 200, url
    return [query["sql"] for query in asked if query["sql"].startswith("SELECT")]


def plans(asked: list[str]) -> Iterator[tuple[str, str]]:
    """Each line of how SQLite would answer, with its query."""
    with connection.cursor() as cursor:
        for sql in asked:
            cursor.execute(f"EXPLAIN QUERY PLAN {sql.replace('%', '%%')}")
            for row in cursor.fetchall():
                yield row[3], sql


def choices(model: Any, client: Client) -> Iterator[dict[str, str]]:
    """Each filter of the list with two of its choices, as its links have them."""
    listed = client.get(address(model, "changelist")).context["cl"]
    for spec in listed.filter_specs:
        for choice in list(spec.choices(listed))[1:3]:
            yield dict(parse_qsl(choice["query_string"].removeprefix("?"), keep_blank_values=True))


sqlite = pytest.mark.skipif(connection.vendor != "sqlite", reason="reads SQLite's way of telling a plan")


@pytest.fixture
def filled(batch: Batch, admin_user: User) -> Batch:
    """Two rows or more of each model."""
    fill(batch, admin_user)
    other = ProviderAccount.objects.create(slug="other", name="Other", base_url="http://127.0.0.1:9")
    fill(make_batch(account=other), User.objects.create_user("nadia"), number=2)
    return batch


@sqlite
@pytest.mark.parametrize("model", LARGE, ids=lambda model: model.__name__)
def test_a_list_of_a_large_table_sorts_and_counts_nothing_whole(
    model: Any, admin_client: Client, filled: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin.site._registry[model], "list_per_page", 1)
    url = address(model, "changelist")
    for parameters in ({}, *choices(model, admin_client)):
        own = [sql for sql in queries(admin_client, url, **parameters) if f'FROM "{table(model)}"' in sql]
        assert [sql for sql in own if "COUNT(" in sql], "it counts, up to a limit"
        for line, sql in plans(own):
            # Of one kind that is open: few, which an index finds and which are then sorted.
            assert "TEMP B-TREE FOR ORDER BY" not in line or "open" in parameters, (parameters, sql)
        for sql in own:
            assert "DISTINCT" not in sql, sql
            # Django leaves the limit out where it has counted that everything is on one page.
            assert "LIMIT" in sql or parameters, sql


@sqlite
@pytest.mark.parametrize("model", LARGE, ids=lambda model: model.__name__)
def test_a_search_reads_no_large_table_whole(model: Any, admin_client: Client, filled: Batch) -> None:
    document = Document.objects.first()
    assert document is not None
    assert admin.site._registry[model].finds
    large = {table(each) for each in LARGE}
    for term in (filled.public_id, document.business_id, "admin", "1"):
        for line, sql in plans(queries(admin_client, address(model, "changelist"), q=term)):
            scanned = re.match(r"SCAN (\w+)", line)
            assert not (scanned and scanned[1] in large), (line, sql)


@pytest.mark.parametrize("model", OURS, ids=lambda model: model.__name__)
def test_every_list_says_what_its_search_finds_and_filters_by_an_index(model: Any) -> None:
    registered = admin.site._registry[model]
    assert isinstance(registered, kinds.Bounded)
    assert registered.show_full_result_count is False
    assert registered.date_hierarchy is None, "it asks for the distinct dates of the whole table"
    if registered.finds:
        assert registered.search_help_text.startswith("Finds by whole ")
        assert not registered.search_fields
        assert set(registered.finds) <= set(FINDERS)
    elif registered.search_fields:
        assert model._meta.model_name in SMALL
        assert registered.search_help_text


def test_the_number_of_queries_does_not_grow_with_the_rows(admin_client: Client, filled: Batch) -> None:
    few = {model: len(queries(admin_client, address(model, "changelist"))) for model in OURS}
    for number in range(4):
        user = User.objects.create_user(f"person {number}")
        account = ProviderAccount.objects.create(
            slug=f"more-{number}", name=f"More {number}", base_url="http://127.0.0.1:9"
        )
        fill(make_batch(account=account), user, number=number + 3)
    grown = {}
    for model in OURS:
        many = len(queries(admin_client, address(model, "changelist")))
        if many > few[model]:
            grown[model.__name__] = (few[model], many)
    assert grown == {}


def test_a_list_counts_no_further_than_its_pages_reach(
    batch: Batch, admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds, "COUNTED_MOST", 120)
    AuditEntry.objects.bulk_create(
        [AuditEntry(at=NOW, actor_words="n", action="x", subject=f"batch {n}") for n in range(130)]
    )
    page = admin_client.get(address(AuditEntry, "changelist"))
    assert "More than 120 audit entries" in page.text
    assert page.context["cl"].paginator.num_pages == 3
    counting = [sql for sql in queries(admin_client, address(AuditEntry, "changelist")) if "COUNT(" in sql]
    assert counting
    assert all("LIMIT 121" in sql for sql in counting)


@pytest.mark.parametrize(
    ("model", "term"),
    [
        (Batch, "bat_1x"),
        (BatchItem, "bat_1x"),
        (BatchItem, "INV-7"),
        (Document, "INV-7"),
        (Job, "INV-7"),
        (JobEvent, "INV-7"),
        (Submission, "pdf_whole"),
        (Exchange, "INV-7"),
        (Alert, "bat_1x"),
        (AuditEntry, "bat_1x"),
        (Notice, "nadia"),
    ],
)
def test_a_search_finds_by_whole_ids_and_by_nothing_else(model: Any, term: str, admin_client: Client) -> None:
    batch = make_batch(public_id="bat_1x")
    job = make_saved_job(batch=batch, business_id="INV-7")
    submission = job.submissions.get()
    Submission.objects.filter(pk=submission.pk).update(provider_job_id="pdf_whole")
    JobEvent.objects.create(job=job, at=NOW, from_state="pending", to_state="submitting", reason="intent")
    Exchange.objects.create(account=job.account, job=job, kind="submit", at=NOW, duration_ms=1)
    Alert.objects.create(kind=AlertKind.BATCH_STOPPED, subject="batch:1", batch=batch, words="w", opened_at=NOW)
    AuditEntry.objects.create(at=NOW, actor_words="n", action="x", subject="batch bat_1x")
    nadia = User.objects.create_user("nadia")
    Notice.objects.create(batch=batch, recipient=nadia, event="held")
    make_saved_job(business_id="INV-70")  # somebody else's, whose id only begins like it
    found = admin_client.get(address(model, "changelist"), {"q": term})
    assert found.context["cl"].result_count == 1
    assert admin_client.get(address(model, "changelist"), {"q": term[:-1]}).context["cl"].result_count == 0


# --- verbs ------------------------------------------------------------------------------------------------------------


def staff(batch: Batch, role: Role) -> Client:
    person = User.objects.create_user("okoye", is_staff=True)
    for codename in (
        "view_batchitem",
        "view_batch",
        "view_exchange",
        "view_export",
        "view_exportpart",
        "view_bulkaction",
    ):
        person.user_permissions.add(_permission(codename))
    Membership.objects.create(workspace=batch.workspace, user=person, role=role)
    client = Client()
    client.force_login(person)
    return client


def _permission(codename: str) -> Any:
    return Permission.objects.get(codename=codename, content_type__app_label="batches")


def test_a_verb_makes_a_plan_and_leads_to_it_and_nothing_is_done_before_it_is_confirmed(batch: Batch) -> None:
    failed = make_job(batch=batch, state=JobState.FAILED, failure_class="transient")
    client = staff(batch, Role.OPERATOR)
    item = failed.version.items.get()
    posted = {"action": "plan_retry", "_selected_action": [item.pk]}
    answer = client.post(address(BatchItem, "changelist"), posted)
    action = BulkAction.objects.get()
    assert answer["Location"] == f"/batches/{batch.public_id}/actions/{action.public_id}/"
    assert (action.confirmed_at, action.filter, action.plan["eligible"]) == (None, {"rows": "0"}, 1)
    assert client.get(answer["Location"]).status_code == 200
    failed.refresh_from_db()
    assert failed.state == JobState.FAILED
    answer = client.post(
        address(Batch, "changelist"), {"action": "plan_retry_of_failed", "_selected_action": [batch.pk]}
    )
    assert answer["Location"].startswith(f"/batches/{batch.public_id}/actions/")
    assert BulkAction.objects.filter(confirmed_at=None).count() == 2


def test_no_plan_is_made_without_the_right_or_over_two_batches(batch: Batch, admin_client: Client) -> None:
    one, other = (make_job(batch=each, state=JobState.FAILED) for each in (batch, make_batch()))
    both = [job.version.items.get().pk for job in (one, other)]
    refused = staff(batch, Role.VIEWER).post(
        address(BatchItem, "changelist"), {"action": "plan_retry", "_selected_action": both[:1]}, follow=True
    )
    assert "does not allow you to retry" in refused.text
    refused = admin_client.post(
        address(BatchItem, "changelist"), {"action": "plan_retry", "_selected_action": both}, follow=True
    )
    assert "rows of one batch only" in refused.text
    assert not BulkAction.objects.exists()


def test_what_may_quote_a_document_takes_the_right_to_see_content(batch: Batch) -> None:
    job = make_saved_job(batch=batch)
    quoted = {"body": "Dear Mrs Sparrow"}
    exchange = Exchange.objects.create(
        account=batch.account, job=job, kind="submit", at=NOW, duration_ms=1, response=quoted
    )
    client = staff(batch, Role.VIEWER)
    page = client.get(address(Exchange, "change", exchange.pk)).text
    assert "Sparrow" not in page
    assert wording.WITHHELD in page
    Membership.objects.update(role=Role.OPERATOR)
    page = client.get(address(Exchange, "change", exchange.pk)).text
    assert "Sparrow" in page


def test_what_was_searched_for_and_whose_group_it_is_take_that_right_too(batch: Batch) -> None:
    chosen = {"q": "Sparrow", "group_column": "name", "group_value": "Sparrow"}
    export = make_ready_export(batch, name="merged_Sparrow.pdf", selection=chosen, selection_words="name: Sparrow")
    action = make_bulk_action(batch=batch, filter={"q": "Sparrow"})
    client = staff(batch, Role.VIEWER)
    rows = (export, export.parts.get(), action)
    pages = [address(type(row), "change", row.pk) for row in rows] + [address(type(row), "changelist") for row in rows]
    assert [page for page in pages if "Sparrow" in client.get(page).text] == []
    Membership.objects.update(role=Role.OPERATOR)
    assert [page for page in pages if "Sparrow" in client.get(page).text] == pages[:3]


def test_the_admin_leads_to_the_products_pages(batch: Batch, admin_client: Client) -> None:
    job = make_saved_job(batch=batch)
    index = admin_client.get("/admin/").text
    for url in ('href="/"', 'href="/templates/"', 'href="/notices/"', 'href="/audit/"'):
        assert url in index
    assert "batches/admin.css" in index
    assert f"/batches/{batch.public_id}/" in admin_client.get(address(Batch, "change", batch.pk)).text
    document = job.version.document
    for row in (job, job.submissions.get(), job.version.artifact):
        assert f"/documents/{document.public_id}/" in admin_client.get(address(type(row), "change", row.pk)).text
