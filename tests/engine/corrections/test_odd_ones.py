"""Corrected rows, and what spreadsheet programs, people and dying workers do to them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User

from batches import manifests
from batches.engine import agreed, checking, correcting, drafts, replacing
from batches.models import AuditEntry, Batch, Draft, DraftState, Job, JobState, Membership, Role, Workspace
from batches.storage.disk import DiskStore
from tests import factories
from tests.engine.corrections.lists import edited, failed_list, manifest, summary, versions_of, words, worked
from tests.engine.virtual_time import VirtualClock
from tests.factories import NOW


def test_zeros_that_a_spreadsheet_cut_never_reach_another_document(
    started: Callable[..., Batch], upload: Callable[..., Draft], replace: Callable[..., Draft]
) -> None:
    batch = started(manifest("0012", "12", "7"), "invoices.json")

    def cut(row: dict[str, str]) -> bool | None:
        row["html"] = f"<h1>New {row['id']}</h1>"
        if row["id"] == "12":
            return False
        row["id"] = row["id"].lstrip("0")
        return None

    draft = upload(batch, edited(failed_list(batch), cut))
    assert summary(draft) == (2, 0, 0, 1)
    assert "Row 1 of the batch (_row 0) has the id “0012”." in words(draft, "refused")["12"]
    assert draft.report is not None
    assert not draft.report["ok"]
    with pytest.raises(drafts.Refused):
        replace(draft)
    assert set(versions_of(batch).values()) == {1}


def test_a_row_that_the_batch_has_not_is_refused(started: Callable[..., Batch], upload: Callable[..., Draft]) -> None:
    batch = started(manifest("A-1"), "invoices.json")
    draft = upload(batch, manifest("A-1", "B-9", meta={"x": 1}), "corrected.json")
    assert summary(draft) == (0, 1, 0, 1)
    assert words(draft, "refused") == {"B-9": replacing.NO_SUCH_ROW}


def test_the_same_row_twice_is_an_error_of_the_file(
    started: Callable[..., Batch], upload: Callable[..., Draft]
) -> None:
    batch = started(manifest("A-1"), "invoices.json")
    twice = json.dumps([{"id": "A-1", "html": "<p>1</p>"}, {"id": "A-1", "html": "<p>2</p>"}]).encode()
    draft = upload(batch, twice, "corrected.json")
    assert draft.report is not None
    assert [problem["code"] for problem in draft.report["errors"]] == ["duplicate_id"]


def test_a_row_that_was_saved_meanwhile_is_left_alone(
    started: Callable[..., Batch], upload: Callable[..., Draft], replace: Callable[..., Draft]
) -> None:
    batch = started(manifest("A-1", "A-2"), "invoices.json")
    draft = upload(batch, edited(failed_list(batch), lambda row: row.update(html=f"<p>{row['id']} new</p>")))
    assert summary(draft) == (2, 0, 0, 0)
    Job.objects.filter(version__document__business_id="A-2").update(state=JobState.SAVED, failure_class="")
    replace(draft)
    assert versions_of(batch) == {"A-1": 2, "A-2": 1}


def test_more_than_was_shown_is_not_sent(
    started: Callable[..., Batch], upload: Callable[..., Draft], replace: Callable[..., Draft]
) -> None:
    batch = started(manifest("A-1", "A-2"), "invoices.json")
    draft = upload(batch, edited(failed_list(batch), lambda row: row.update(html=f"<p>{row['id']} new</p>")))
    done = replace(draft, shown=1)
    assert (done.state, done.words) == (DraftState.CHECKED, agreed.MORE_RENDERS)
    assert set(versions_of(batch).values()) == {1}


def test_rows_of_a_template_that_was_published_since_the_check_are_looked_at_first(
    workspace: Workspace, started: Callable[..., Batch], upload: Callable[..., Draft], replace: Callable[..., Draft]
) -> None:
    factories.make_template_version(workspace=workspace, source="<p>{{ name }}</p>", slug="letter")
    rows = [{"id": "A-1", "template": "letter", "name": "Ada"}]
    batch = started(json.dumps(rows).encode(), "letters.json")
    draft = upload(batch, edited(failed_list(batch), lambda row: row.update(name="Ada L.")))
    factories.make_template_version(workspace=workspace, source="<h1>{{ name }}</h1>", slug="letter")
    done = replace(draft)
    assert (done.state, done.words) == (DraftState.CHECKED, agreed.OTHER_CONTENT)
    assert versions_of(batch) == {"A-1": 1}
    assert replace(done).state == DraftState.STARTED


def test_a_worker_that_died_after_the_replacement_leaves_it_done_whatever_changed_since(
    started: Callable[..., Batch],
    upload: Callable[..., Draft],
    replace: Callable[..., Draft],
    store: DiskStore,
    person: User,
) -> None:
    batch = started(manifest("A-1"), "invoices.json")
    draft = upload(batch, edited(failed_list(batch), lambda row: row.update(html="<p>new</p>")))
    assert replace(draft).state == DraftState.STARTED
    Draft.objects.update(state=DraftState.STARTING, due_at=NOW)
    Membership.objects.filter(user=person).delete()
    assert worked(draft, store).state == DraftState.STARTED
    assert versions_of(batch) == {"A-1": 2}


def test_whoever_lost_the_right_meanwhile_replaces_nothing(
    started: Callable[..., Batch], upload: Callable[..., Draft], replace: Callable[..., Draft], person: User
) -> None:
    batch = started(manifest("A-1"), "invoices.json")
    draft = upload(batch, edited(failed_list(batch), lambda row: row.update(html="<p>new</p>")))
    person.memberships.update(role=Role.VIEWER)
    done = replace(draft)
    assert (done.state, done.words) == (DraftState.CHECKED, correcting.NO_RIGHT)
    assert versions_of(batch) == {"A-1": 1}


def test_a_worker_that_dies_after_it_replaced_the_rows_replaces_them_once(
    started: Callable[..., Batch],
    upload: Callable[..., Draft],
    replace: Callable[..., Draft],
    monkeypatch: pytest.MonkeyPatch,
    store: DiskStore,
) -> None:
    class Died(BaseException):
        pass

    def dies(*given: object, **named: object) -> bool:
        raise Died

    batch = started(manifest("A-1"), "invoices.json")
    draft = upload(batch, edited(failed_list(batch), lambda row: row.update(html="<p>new</p>")))
    with monkeypatch.context() as patch:
        patch.setattr(drafts, "end_turn", dies)
        with pytest.raises(Died):
            replace(draft)
    assert versions_of(batch) == {"A-1": 2}
    Draft.objects.update(lease_until=NOW, lease_owner="dead")
    clock = VirtualClock(NOW)
    clock.advance(1)
    assert checking.work_on(draft.pk, clock, owner="b", store=store)
    assert Draft.objects.get().state == DraftState.STARTED
    assert versions_of(batch) == {"A-1": 2}
    assert AuditEntry.objects.filter(action="replace_rows").count() == 1


def test_a_thousand_rows_come_back(
    started: Callable[..., Batch], upload: Callable[..., Draft], replace: Callable[..., Draft]
) -> None:
    ids = [f"{n:05}" for n in range(1000)]
    batch = started(manifest(*ids), "invoices.json")

    def correct(row: dict[str, str]) -> None:
        if int(row["_row"]) % 2:
            row["html"] = f"<h1>New {row['id']}</h1>"

    draft = upload(batch, edited(failed_list(batch), correct))
    assert summary(draft) == (500, 500, 0, 0)
    replace(draft)
    assert sum(number == 2 for number in versions_of(batch).values()) == 500


def test_any_file_may_hold_the_corrected_rows(
    started: Callable[..., Batch], upload: Callable[..., Draft], replace: Callable[..., Draft]
) -> None:
    batch = started(manifest("A-1", "A-2"), "invoices.json")
    draft = upload(batch, "id;html\r\nA-2;<p>neu €</p>\r\n".encode(), "korrektur.csv")
    assert summary(draft) == (1, 0, 0, 0)
    replace(draft)
    assert versions_of(batch) == {"A-1": 1, "A-2": 2}


def test_what_is_no_manifest_ends_in_a_sentence(started: Callable[..., Batch], upload: Callable[..., Draft]) -> None:
    batch = started(manifest("A-1"), "invoices.json")
    draft = upload(batch, b"%PDF-1.7", "failed.csv")
    assert draft.state == DraftState.CHECKED
    assert draft.report is not None
    assert draft.report["ok"] is False
    assert draft.report["errors"]


def test_a_table_of_somebodys_own_keeps_its_quotes() -> None:
    table = b"id,html\r\n'=1,<p>x</p>\r\n"
    with manifests.read(manifests.from_upload(io.BytesIO(table), "a.csv")) as read:
        assert [row.business_id for row in read.rows] == ["'=1"]
