"""What happens to a row whose id is known already."""

from __future__ import annotations

from typing import Any

import pytest

from batches.manifests import Action, ExistingDocument, ExistingVersion, NoticeKind, OnConflict, Plan, plan
from batches.manifests.planning import KNOWN_STATES
from tests.manifests.samples import listed, row


def planned(*versions: dict[str, Any], on_conflict: OnConflict = OnConflict.REFUSE, current: int | None = None) -> Plan:
    """A plan for one row against a document with these versions; `same` says whether the input is the row's."""
    with listed([row()]) as manifest:
        sha256 = manifest.rows[0].input_sha256
        made = tuple(
            ExistingVersion(
                number=number,
                input_sha256=sha256 if version.pop("same", True) else f"other {number}",
                **({"state": "saved", "ever_sent": True} | version),
            )
            for number, version in enumerate(versions, start=1)
        )
        existing = {"INV-1": ExistingDocument("INV-1", current or len(made), made)} if made else {}
        return plan(manifest, existing, on_conflict, account_slug="relaypdf")


@pytest.mark.parametrize(
    ("version", "action"),
    [
        ({"state": "pending", "ever_sent": False}, Action.UNCHANGED),
        ({"state": "submitting"}, Action.UNCHANGED),
        ({"state": "accepted"}, Action.UNCHANGED),
        ({"state": "rendered"}, Action.UNCHANGED),
        ({"state": "saved"}, Action.UNCHANGED),
        ({"state": "saved", "file_deleted": True}, Action.ATTACHED_DELETED),
        ({"state": "failed"}, Action.ATTACHED_FAILED),
        ({"state": "unknown"}, Action.ATTACHED_FAILED),
        ({"state": "deadline_exceeded"}, Action.ATTACHED_FAILED),
        ({"state": "expired"}, Action.ATTACHED_FAILED),
        ({"state": "cancelled", "ever_sent": True}, Action.ATTACHED_FAILED),
        ({"state": "cancelled", "ever_sent": False}, Action.REVIVE),
    ],
)
def test_the_same_input_attaches_and_sends_only_what_was_never_sent(version: dict[str, Any], action: Action) -> None:
    for on_conflict in OnConflict:
        result = planned(dict(version), on_conflict=on_conflict)
        (only,) = result.rows
        assert (only.action, only.version_number, only.notices) == (action, 1, ())
        assert only.sends == (action is Action.REVIVE)
        assert result.ok


def test_an_unknown_id_is_new() -> None:
    result = planned()

    assert [(only.action, only.version_number, only.sends) for only in result.rows] == [(Action.NEW, 1, True)]
    assert result.render_count == 1


def test_changed_input_is_refused_by_row() -> None:
    result = planned({"same": False})
    (only,) = result.rows
    (problem,) = result.errors

    assert (only.action, only.version_number, only.sends) == (Action.REFUSED, 1, False)
    assert (problem.code, problem.column, problem.rows) == ("id_content_conflict", "id", (0,))
    assert '"INV-1"' in problem.message
    assert "--on-conflict new-version" in problem.fix
    assert not result.ok
    assert result.summary()["changed"] == 1
    assert result.render_count == 0


def test_changed_input_becomes_the_next_version_when_the_uploader_chose_so() -> None:
    result = planned({"same": False}, {"same": False}, on_conflict=OnConflict.NEW_VERSION)

    assert [(only.action, only.version_number) for only in result.rows] == [(Action.CHANGED, 3)]
    assert result.ok
    assert result.render_count == 1


def test_the_next_number_follows_the_newest_version_not_the_current_one() -> None:
    result = planned({"same": False}, {"same": False}, on_conflict=OnConflict.NEW_VERSION, current=1)

    assert result.rows[0].version_number == 3


@pytest.mark.parametrize("state", sorted(KNOWN_STATES))
def test_a_new_version_over_one_that_may_still_be_billed_asks_first(state: str) -> None:
    result = planned({"same": False, "state": state}, on_conflict=OnConflict.NEW_VERSION)

    asks = state in {"submitting", "accepted", "unknown", "deadline_exceeded"}
    assert [notice.kind for notice in result.rows[0].notices] == [NoticeKind.EARLIER_MAY_BILL] * asks
    assert bool(result.needs_confirmation) == asks


def test_the_input_of_an_earlier_version_attaches_to_it_and_says_so() -> None:
    for on_conflict in OnConflict:
        result = planned({}, {"same": False}, on_conflict=on_conflict)
        (only,) = result.rows

        assert (only.action, only.version_number) == (Action.UNCHANGED, 1)
        assert [notice.kind for notice in only.notices] == [NoticeKind.EARLIER_VERSION]
        assert result.needs_confirmation == ()


def test_of_two_versions_with_the_same_input_the_newer_is_meant() -> None:
    result = planned({"state": "expired"}, {"state": "saved"})

    assert [(only.action, only.version_number, only.notices) for only in result.rows] == [(Action.UNCHANGED, 2, ())]


@pytest.mark.parametrize(
    ("version", "message", "asks"),
    [
        ({"state": "accepted"}, "Already accepted at docraptor, will not be sent to relaypdf.", True),
        ({"state": "rendered"}, "Already accepted at docraptor, will not be sent to relaypdf.", True),
        ({"state": "unknown"}, "Already sent at docraptor, will not be sent to relaypdf.", True),
        ({"state": "saved"}, "Already saved, made at docraptor; it will not be sent to relaypdf.", False),
        (
            {"state": "pending", "ever_sent": False},
            "Already waiting at docraptor and not sent yet; it will not be sent to relaypdf as well.",
            False,
        ),
    ],
)
def test_a_job_at_another_account_is_told(version: dict[str, Any], message: str, asks: bool) -> None:
    result = planned(version | {"other_account_slug": "docraptor"})
    (notice,) = result.rows[0].notices

    assert (notice.kind, notice.message, notice.needs_confirmation) == (NoticeKind.OTHER_ACCOUNT, message, asks)


def test_a_revived_job_may_change_its_account_without_a_word() -> None:
    result = planned({"state": "cancelled", "ever_sent": False, "other_account_slug": "docraptor"})

    assert [(only.action, only.notices) for only in result.rows] == [(Action.REVIVE, ())]


def test_a_state_that_nobody_knows_is_a_bug_and_not_a_guess() -> None:
    with pytest.raises(ValueError, match="unknown job state 'lost'"):
        planned({"state": "lost"})


def test_changed_options_are_changed_input() -> None:
    with listed([row()]) as first, listed([row(options={"format": "A5"})]) as second:
        version = ExistingVersion(1, first.rows[0].input_sha256, "saved")
        result = plan(second, {"INV-1": ExistingDocument("INV-1", 1, (version,))}, OnConflict.REFUSE)

    assert result.rows[0].action is Action.REFUSED


def test_the_report_tells_the_plan_with_counts_that_add_up() -> None:
    rows = [row(id=f"INV-{number}") for number in range(6)]
    with listed([*rows, row(id="")]) as manifest:
        sha256 = manifest.rows[0].input_sha256

        def document(number: int, **version: Any) -> tuple[str, ExistingDocument]:
            made = ExistingVersion(**({"number": 1, "input_sha256": sha256, "state": "saved"} | version))
            return f"INV-{number}", ExistingDocument(f"INV-{number}", 1, (made,))

        existing = dict(
            [
                document(1),
                document(2, input_sha256="other"),
                document(3, state="cancelled"),
                document(4, state="failed"),
                document(5, file_deleted=True, other_account_slug="docraptor"),
            ]
        )
        report = manifest.report(plan(manifest, existing, OnConflict.REFUSE, account_slug="relaypdf"))

    assert report["summary"] == {
        "new": 1,
        "unchanged": 1,
        "changed": 1,
        "revive": 1,
        "attached_failed": 1,
        "attached_deleted": 1,
        "invalid": 1,
    }
    assert sum(report["summary"].values()) == report["rows"] == 7
    assert report["renders"] == 2
    assert [problem["code"] for problem in report["errors"]] == ["missing_id", "id_content_conflict"]
    assert [(notice["kind"], notice["rows"], notice["count"]) for notice in report["notices"]] == [
        ("other_account", [5], 1)
    ]
