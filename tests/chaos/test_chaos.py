"""The minute-long form of the chaos, on the suite's database; and that its plan and its verdict can be relied on."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from batches.sandbox.faults import parse_rules
from tests.chaos import blows, hostility, verdict
from tests.chaos.run import Plan, run

SEED = 20


@pytest.mark.processes
def test_half_a_minute_of_kills_loses_nothing_and_bills_nothing_twice(tmp_path: Path) -> None:
    report = run(
        Plan(
            database="postgres" if connection.vendor == "postgresql" else "sqlite",
            documents=30,
            seed=SEED,
            blows_seconds=35,
            folder=tmp_path / "chaos",
            interval=1.0,
            with_stuck=False,
        )
    )
    assert not report.breaches, "\n".join(report.lines())
    assert sum(report.blows.values()) >= 3, report.blows
    assert report.counts["saved"] == report.texts_right == report.ledger["jobs_billed"]
    assert report.webhooks["delivered"] > 0, "the blows fell while webhooks came, too"


def test_a_seed_says_what_happens_to_each_document_and_which_blows_fall() -> None:
    first, second, other = (
        (
            hostility.documents(50, rng, with_stuck=True),
            list(islice(blows.plan(rng, with_sandbox=True), 30)),
        )
        for rng in (random.Random(5), random.Random(5), random.Random(6))
    )
    assert first == second
    assert first != other


def test_every_lot_is_drawn_understood_by_the_sandbox_and_bounded() -> None:
    rng = random.Random(1)
    documents = hostility.documents(3000, rng, with_stuck=True)
    drawn = Counter(name for document in documents for name in document.lots)
    assert {name for _, name, _ in hostility.LOTS} <= set(drawn)
    switches = hostility.switches(documents, rng)
    assert len(parse_rules(switches["faults"])) == sum(len(document.rules) for document in documents)
    assert {document.end for document in documents} == {"saved", "failed", "deadline_exceeded"}
    for document in documents:
        harmful = [rule for rule in document.rules if rule["do"] not in ("take", "fail", "stuck")]
        assert all(rule["when"]["times"] <= 2 for rule in harmful), document


def test_every_kind_of_blow_falls() -> None:
    drawn = {blow.kind for blow in islice(blows.plan(random.Random(1), with_sandbox=True), 400)}
    assert drawn == {*blows.WEIGHTS, blows.SANDBOX}


# --- the verdict, on what both sides say ---


class Told:
    """A stack and a sandbox that say what the test wants them to say."""

    def __init__(self, keys: list[tuple[str, str]], ledger: dict[str, Any]) -> None:
        self.keys, self.told = keys, ledger

    def query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        if "business_id, s.idempotency_key" in sql:
            return list(self.keys)
        return [(7,)] if sql.startswith("SELECT j.id") else [("a row",)]

    def ledger(self) -> dict[str, Any]:
        return {"totals": {}, "billed_by_body": {}, "jobs": [], **self.told}

    def arrivals(self) -> list[dict[str, Any]]:
        return [{"idempotency_key": "key-1"}, {"idempotency_key": "key-2"}]

    def deliveries(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.told.get("deliveries", [])
        return found


DOCUMENTS = [
    hostility.Document("CHAOS-00001", "", (), (), "saved"),
    hostility.Document("CHAOS-00002", "", ("the job fails",), (), "failed"),
]


def judged(states: tuple[str, str], keys: list[tuple[str, str]], **ledger: Any) -> verdict.Report:
    report = verdict.Report(plan={}, seconds=1, blows={}, restarts={}, standstills=[], breaches=[])
    items = [
        {"business_id": document.business_id, "state": state, "failure_class": None}
        for document, state in zip(DOCUMENTS, states, strict=True)
    ]
    told: Any = Told(keys, ledger)
    verdict._ends(report, {"items": items}, DOCUMENTS)
    verdict._bills(report, told, told, DOCUMENTS, {"items": items})
    return report


KEYS = [("CHAOS-00001", "key-1"), ("CHAOS-00002", "key-2")]


def test_the_verdict_on_what_should_be_is_silent() -> None:
    assert judged(("saved", "failed"), KEYS, billed_by_key={"key-1": 1}).breaches == []


@pytest.mark.parametrize(
    ("states", "keys", "ledger", "breach"),
    [
        (("saved", "failed"), KEYS, {"billed_by_key": {"key-1": 2}}, "billed more than once: CHAOS-00001"),
        (
            ("saved", "failed"),
            [*KEYS, ("CHAOS-00001", "key-3")],
            {"billed_by_key": {"key-1": 1, "key-3": 1}},
            "billed more than once: CHAOS-00001",
        ),
        (("saved", "failed"), KEYS, {"billed_by_key": {"key-1": 1, "key-2": 1}}, "billed and not saved: CHAOS-00002"),
        (("saved", "failed"), KEYS, {"billed_by_key": {}}, "saved without a bill: CHAOS-00001"),
        (
            ("saved", "failed"),
            KEYS,
            {"billed_by_key": {"key-1": 1, "strange": 1}},
            "billed under keys that no submission of ours has: strange",
        ),
        (
            ("saved", "failed"),
            KEYS,
            {"billed_by_key": {"key-1": 1}, "billed_by_body": {"abc": 2}},
            "billed more than once for the same body: abc",
        ),
        (
            ("saved", "failed"),
            KEYS,
            {"billed_by_key": {"key-1": 1}, "deliveries": [{"state": "given_up", "last_status": 401}] * 2},
            "not one webhook was taken; the last answers: 401",
        ),
        (
            ("saved", "accepted"),
            KEYS,
            {"billed_by_key": {"key-1": 1}},
            "CHAOS-00002 (the job fails) ended as accepted (None) instead of failed",
        ),
    ],
)
def test_the_verdict_names_each_breach(
    states: tuple[str, str], keys: list[tuple[str, str]], ledger: dict[str, Any], breach: str
) -> None:
    assert judged(states, keys, **ledger).breaches == [breach]


def test_a_double_bill_comes_with_its_story() -> None:
    (story,) = judged(("saved", "failed"), KEYS, billed_by_key={"key-1": 2}).double_bills
    assert story["document"] == "CHAOS-00001"
    assert story["submissions"] == story["exchanges"] == story["events"] == [["a row"]]
    assert story["arrivals"] == [{"idempotency_key": "key-1"}]
