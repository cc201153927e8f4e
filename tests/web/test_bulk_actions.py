"""Bulk actions on the pages: the bar over the filter, the plan, its confirmation, progress, results and export."""

from __future__ import annotations

import csv
import io
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from batches import actions
from batches.engine import carrying
from batches.engine.clock import SystemClock
from batches.models import (
    AuditEntry,
    Batch,
    BulkAction,
    Document,
    FailureClass,
    Job,
    JobState,
    Membership,
    Role,
    Workspace,
)
from tests.engine.test_bulk_actions import saved_meanwhile
from tests.factories import make_batch, make_job, make_saved_job
from tests.web.conftest import make_member, signed_in

REASON = "The service is well again."


def fail(batch: Batch, count: int, **fields: Any) -> list[Job]:
    """Failed documents that may be retried, with ids that are seen in a page."""
    defaults = {"state": JobState.FAILED, "failure_class": FailureClass.TRANSIENT, "failure_words": "It was away."}
    return [make_job(batch=batch, **defaults | {"business_id": f"F-{n:03}"} | fields) for n in range(count)]


def plan(client: Client, batch: Batch, verb: str = "retry", **given: Any) -> Any:
    return client.post(f"/batches/{batch.public_id}/actions/plan/", {"verb": verb, "key": "one", **given})


def planned(client: Client, batch: Batch, verb: str = "retry", **given: Any) -> str:
    """The address of the plan's page."""
    answer = plan(client, batch, verb, **({"state": "failed"} | given))
    assert answer.status_code == 302, answer.status_code
    return str(answer.url)


def confirm(client: Client, page: str, **given: str) -> Any:
    return client.post(f"{page}confirm/", {"reason": REASON} | given)


def carry_out() -> None:
    carrying.carry_out(SystemClock(), owner="a worker", stopping=lambda: False)


def bar(page: str) -> str:
    return page.split('aria-label="For many documents"')[1].split("</section>")[0]


# --- the bar ---


def test_the_bar_offers_what_can_be_done_with_its_price_and_says_why_the_rest_cannot(
    batch: Batch, manager: Client
) -> None:
    fail(batch, 3)
    shown = bar(manager.get(f"/batches/{batch.public_id}/", {"state": "failed"}).text)
    assert 'Apply to all <strong class="nums">3</strong> that match' in shown
    assert re.search(r'value="retry">Retry 3 <span class="price">\(bills 0 to 3\)', shown)
    assert re.search(r'value="regenerate">Regenerate 3 <span class="price">\(bills 3\)', shown)
    assert re.search(r'value="dismiss">Dismiss 3 <span class="price">\(free\)', shown)
    assert re.search(r'value="fetch_again" disabled aria-describedby="refused"', shown)
    assert re.search(r'id="refused">.*Fetch again.*:</strong> None of these documents stands so', shown)


def test_a_verb_beyond_ones_role_stays_visible_with_its_sentence(batch: Batch, operator: Client) -> None:
    fail(batch, 1)
    shown = bar(operator.get(f"/batches/{batch.public_id}/", {"state": "failed"}).text)
    assert re.search(r'value="regenerate" disabled aria-describedby="refused"', shown)
    assert "<strong>Regenerate:</strong> Your role does not allow you to regenerate here" in shown


def test_without_a_filter_the_bar_asks_for_one(batch: Batch, operator: Client) -> None:
    fail(batch, 2)
    page = operator.get(f"/batches/{batch.public_id}/").text
    assert "choose a state above, search, or tick rows" in bar(page)
    assert "Apply to all" not in page
    everything = operator.get(f"/batches/{batch.public_id}/", {"everything": "1"}).text
    assert "All documents of the batch" in bar(everything)


def test_a_viewer_has_no_bar_and_may_not_plan(batch: Batch, viewer: Client) -> None:
    fail(batch, 1)
    page = viewer.get(f"/batches/{batch.public_id}/", {"state": "failed"}).text
    assert "For many documents" not in page
    assert 'name="rows"' not in page
    refused = plan(viewer, batch, state="failed")
    assert refused.status_code == 403
    assert "Your role does not allow you to retry here" in refused.text
    assert not BulkAction.objects.exists()


@pytest.fixture
def manager(workspace: Workspace) -> Client:
    return signed_in(make_member(workspace, "a.manager", Role.MANAGER))


# --- planning ---


def test_an_empty_filter_is_refused_and_leads_back(batch: Batch, operator: Client) -> None:
    fail(batch, 1)
    answer = operator.post(f"/batches/{batch.public_id}/actions/plan/", {"verb": "retry"}, follow=True)
    assert answer.redirect_chain[-1][0] == f"/batches/{batch.public_id}/"
    assert "Choose a state, a cause or a search" in answer.text
    assert not BulkAction.objects.exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"state": "failed", "cause": "zzz"}, "no such cause"),
        ({"state": "saved", "cause": "0123456789abcdef"}, "no such cause"),
        ({"cause": "0123456789abcdef"}, "no such cause"),
        ({"state": "faild", "q": "F"}, "no such state"),
        ({"rows": ["0", "all"]}, "cannot be read"),
        ({"rows": [str(n) for n in range(201)]}, "cannot be read"),
    ],
)
def test_a_filter_that_cannot_be_read_is_an_error_and_never_a_wider_one(
    given: dict[str, Any], words: str, batch: Batch, operator: Client
) -> None:
    fail(batch, 2)
    answer = operator.post(f"/batches/{batch.public_id}/actions/plan/", {"verb": "dismiss", **given}, follow=True)
    assert answer.redirect_chain[-1][0] == f"/batches/{batch.public_id}/"
    assert words in answer.text
    assert not BulkAction.objects.exists()


def test_the_chip_of_a_cause_says_its_title_also_when_nothing_fails_so_any_more(batch: Batch, operator: Client) -> None:
    [job, _] = fail(batch, 2)
    chosen = {"state": "failed", "cause": job.failure_cause}
    title = '<span class="chip">Cause: Service trouble</span>'
    assert title in bar(operator.get(f"/batches/{batch.public_id}/", chosen).text)
    page = planned(operator, batch, **chosen)
    Job.objects.update(state=JobState.SAVED, failure_class="", failure_cause="")
    assert title in operator.get(page).text
    assert "Cause: Service trouble" in operator.get(f"/batches/{batch.public_id}/actions/").text


def test_a_filter_survives_a_plan_that_matches_nothing(batch: Batch, operator: Client) -> None:
    make_saved_job(batch=batch)
    answer = plan(operator, batch, state="failed", q="INV")
    assert answer.url == f"/batches/{batch.public_id}/?state=failed&q=INV#documents"


def test_a_second_press_leads_to_the_same_plan(batch: Batch, operator: Client) -> None:
    fail(batch, 2)
    assert planned(operator, batch) == planned(operator, batch)
    assert planned(operator, batch, key="two") != planned(operator, batch)


def test_ticked_rows_are_planned_alone(batch: Batch, operator: Client) -> None:
    fail(batch, 4)
    page = planned(operator, batch, state="", rows=["1", "3"])
    assert list(BulkAction.objects.get().items.values_list("item__position", flat=True)) == [1, 3]
    assert "2 ticked rows" in operator.get(page).text


def test_109_of_more_ticked_rows_than_can_be_planned_it_says_how_many_can(batch: Batch, operator: Client) -> None:
    fail(batch, 2)
    form = {"verb": "retry", "key": "one", "rows": [str(number) for number in range(1_500)]}
    answer = operator.post(f"/batches/{batch.public_id}/actions/plan/", form, follow=True)
    assert answer.status_code == 200
    assert f"Tick at most {actions.TICKED_MOST} rows of the list." in answer.text
    assert not BulkAction.objects.exists()


def test_the_plan_shows_reasons_price_drift_and_asks_for_the_number(batch: Batch, operator: Client) -> None:
    """Case 110: 250 documents, 230 failed; ten are saved before the confirmation."""
    for _ in range(20):
        make_saved_job(batch=batch)
    jobs = fail(batch, 230)
    page = planned(operator, batch)
    for job in jobs[:10]:
        saved_meanwhile(job)
    shown = operator.get(page).text
    assert re.search(r"220</strong> of 230 that matched", shown)
    assert "no longer: It is saved." in shown
    assert "no price is set" in shown
    assert "Type 220 to confirm" in shown
    assert 'Retry: 220 documents <span class="of">bills 0 to 220</span>' in shown
    refused = confirm(operator, page, typed="12")
    assert refused.status_code == 422
    assert "Type 220, the number of renders that may be billed." in refused.text
    assert f'value="{REASON}"' in refused.text
    assert confirm(operator, page, typed="220").status_code == 302
    carry_out()
    done = operator.get(page).text
    assert "220 done, 10 skipped." in done
    assert "It is saved." in operator.get(page, {"result": "skipped"}).text


def test_without_a_reason_nothing_that_bills_is_confirmed(batch: Batch, operator: Client) -> None:
    fail(batch, 1)
    refused = confirm(operator, planned(operator, batch), reason=" ")
    assert refused.status_code == 422
    assert "Give a reason" in refused.text
    assert BulkAction.objects.get().confirmed_at is None


def test_what_joined_since_is_told_and_left_out(batch: Batch, operator: Client) -> None:
    fail(batch, 1)
    page = planned(operator, batch)
    fail(batch, 1, business_id="LATE-1")
    assert re.search(r"not part of it. Plan again", operator.get(page).text)


def test_cancelling_a_plan_leads_back_to_the_filter(batch: Batch, operator: Client) -> None:
    fail(batch, 1)
    page = planned(operator, batch)
    assert operator.post(f"{page}abort/").url == f"/batches/{batch.public_id}/?state=failed#documents"
    assert operator.get(page).status_code == 200
    assert confirm(operator, page).status_code == 422


# --- afterwards ---


def test_progress_results_and_export_of_one_action(batch: Batch, operator: Client, okoye: User) -> None:
    fail(batch, 2)
    fail(batch, 1, business_id="=1+1", failure_class=FailureClass.INVALID_INPUT)
    page = planned(operator, batch)
    assert confirm(operator, page).url == page
    running = operator.get(page).text
    assert "1 of 3 have a result" in running
    assert 'data-live="2"' in running
    live = operator.get(f"{page}live/").text
    assert 'id="summary"' in live
    carry_out()
    assert "2 done, 1 skipped." in operator.get(f"{page}live/").text
    ended = operator.get(page).text
    assert "data-live=" not in ended
    assert "confirmed by m.okoye" in ended
    assert f"Reason: {REASON}" in ended
    skipped = operator.get(page, {"result": "skipped"}).text
    assert re.findall(r'class="row-link"[^>]*>([^<]*)</a>', skipped) == ["=1+1"]
    text = b"".join(operator.get(f"{page}items.csv").streaming_content).decode("utf-8-sig")  # type: ignore[attr-defined]  # a streaming response
    table = list(csv.DictReader(io.StringIO(text)))
    assert [row["result"] for row in table] == ["done", "done", "skipped"]
    assert table[2]["id"] == "'=1+1", "no spreadsheet runs it"
    assert AuditEntry.objects.filter(action="download_bulk_action", actor=okoye).count() == 1


def test_a_running_action_can_be_aborted(batch: Batch, operator: Client) -> None:
    fail(batch, 3)
    page = planned(operator, batch)
    confirm(operator, page)
    operator.post(f"{page}abort/")
    carry_out()
    shown = operator.get(page).text
    assert "0 done, 0 skipped, 3 not done." in shown
    assert "Aborted by m.okoye" in shown


def test_the_actions_of_a_batch_are_listed(batch: Batch, operator: Client) -> None:
    assert "No bulk action yet" in operator.get(f"/batches/{batch.public_id}/actions/").text
    fail(batch, 2)
    page = planned(operator, batch)
    listed = operator.get(f"/batches/{batch.public_id}/actions/").text
    assert f'href="{page}">Retry 2</a>' in listed
    assert "State: Failed" in listed
    assert f"/batches/{batch.public_id}/actions/" in operator.get(f"/batches/{batch.public_id}/").text


@pytest.mark.parametrize("what", ["", "live/", "items.csv"])
def test_what_belongs_to_another_workspace_does_not_exist(
    batch: Batch, operator: Client, outsider: Client, what: str
) -> None:
    fail(batch, 1)
    page = planned(operator, batch)
    assert outsider.get(f"{page}{what}").status_code == 404
    assert outsider.post(f"{page}confirm/", {"reason": REASON}).status_code == 404
    assert outsider.post(f"{page}abort/").status_code == 404
    assert plan(outsider, batch, state="failed").status_code == 404
    assert BulkAction.objects.get().confirmed_at is None


def test_an_action_is_found_only_under_its_own_batch(batch: Batch, operator: Client, workspace: Workspace) -> None:
    fail(batch, 1)
    page = planned(operator, batch)
    other = make_batch(workspace=workspace)
    assert operator.get(page.replace(batch.public_id, other.public_id)).status_code == 404


def test_a_viewer_sees_an_action_and_may_neither_confirm_nor_abort(
    batch: Batch, operator: Client, viewer: Client
) -> None:
    fail(batch, 1)
    page = planned(operator, batch)
    shown = viewer.get(page)
    assert shown.status_code == 200
    assert "Your role does not allow you to retry here" in shown.text
    assert confirm(viewer, page).status_code == 403
    assert viewer.post(f"{page}abort/").status_code == 403


def test_a_right_that_was_taken_away_counts_at_the_confirmation(batch: Batch, operator: Client, okoye: User) -> None:
    fail(batch, 1)
    page = planned(operator, batch)
    Membership.objects.filter(user=okoye).update(role=Role.VIEWER)
    assert confirm(operator, page).status_code == 403


def test_a_plan_of_yesterday_says_so(batch: Batch, operator: Client) -> None:
    fail(batch, 1)
    page = planned(operator, batch)
    BulkAction.objects.update(planned_at=timezone.now() - timedelta(days=2))
    shown = operator.get(page).text
    assert "planned more than a day ago" in shown
    assert "data-confirm" not in shown


def test_a_plan_of_somebody_with_more_rights_gives_none_of_them_away(
    batch: Batch, workspace: Workspace, manager: Client
) -> None:
    final, plain = fail(batch, 2)
    Document.objects.filter(versions=final.version).update(is_final=True)
    page = planned(signed_in(make_member(workspace, "an.admin", Role.ADMIN)), batch, "regenerate")
    assert "It is marked final" in manager.get(page).text
    assert confirm(manager, page).status_code == 302
    carry_out()
    action = BulkAction.objects.get()
    results = {item.version_id: (item.result, item.words) for item in action.items.all()}
    assert results[plain.version_id][0] == "done"
    assert results[final.version_id][0] == "skipped"
    assert results[final.version_id][1].startswith("It is marked final")
