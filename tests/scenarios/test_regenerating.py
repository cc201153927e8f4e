"""Regenerate: version n + 1 beside whatever becomes of version n, each billed and stored on its own."""

from __future__ import annotations

import io
import itertools
import json
from typing import Any

import pytest

from batches import manifests, selectors
from batches.engine import bulk, health, replacing, versions
from batches.engine.audit import By
from batches.engine.errors import IntakeRefused
from batches.engine.orders import NewInput, Order, Result
from batches.manifests import from_upload
from batches.models import Artifact, AuditEntry, Batch, BatchItem, Document, DocumentVersion, Job, Submission
from batches.providers import errors
from tests.engine.simulated import Complete, Fail, Lose, Refuse, Word
from tests.engine.vendor import pdf
from tests.scenarios.world import World

BY = By(None, "m.okoye", "a test")


def ordered(**options: Any) -> Order:
    return Order(**{"by": BY, "reason": "The price was wrong.", **options})


def regenerate(world: World, name: str, *, html: str = "", **options: Any) -> Result:
    item = BatchItem.objects.get(document__business_id=name)
    inputs = {item.pk: NewInput("html", html)} if html else {}
    order = ordered(inputs=inputs, **options)
    return versions.regenerate([item.pk], order=order, now=world.clock.now(), store=world.store)[item.pk]


def jobs(name: str) -> list[Job]:
    return list(Job.objects.filter(version__document__business_id=name).order_by("version__number"))


def stored(world: World, name: str, number: int) -> bytes:
    artifact = Artifact.objects.get(version__document__business_id=name, version__number=number)
    with world.store.open(artifact.storage_key) as stream:
        return stream.read()


def current(name: str) -> int:
    return Document.objects.get(business_id=name).current_version.number  # type: ignore[union-attr] # it has one


def test_the_same_input_again_is_version_2_billed_once_more_and_both_stay(world: World) -> None:
    batch = world.hand_over("INV-1")
    world.run_to_the_end()
    result = regenerate(world, "INV-1")
    assert (result.is_done, result.words) == (True, "Version 2 was made.")
    world.run_to_the_end()
    first, second = jobs("INV-1")
    assert (first.state, second.state) == ("saved", "saved")
    assert first.version.input_sha256 == second.version.input_sha256
    assert stored(world, "INV-1", 1) == stored(world, "INV-1", 2) == pdf("INV-1")
    assert len({each.key for each in world.provider.arrivals_of("INV-1")}) == 2
    assert len(world.provider.jobs_of("INV-1")) == 2
    assert (current("INV-1"), second.version.reason) == (2, "The price was wrong.")
    assert selectors.batch_json(batch)["items"][0]["version"] == 2
    entry = AuditEntry.objects.get(action="regenerate")
    assert (entry.reason, entry.facts["from_version"], entry.facts["version"]) == ("The price was wrong.", 1, 2)


def test_a_late_result_of_version_1_is_stored_as_version_1s_and_never_touches_version_2(world: World) -> None:
    world.provider.script("INV-1", status=[*[Word("processing")] * 40, Complete()])
    world.hand_over("INV-1")
    world.run_until(lambda: jobs("INV-1")[0].state == "accepted")
    refused = regenerate(world, "INV-1", html="<h1>INV-1b</h1>")
    assert (refused.is_done, refused.words) == (False, "Version 1 may also bill.")
    assert len(jobs("INV-1")) == 1, "nothing is made before it is confirmed"
    assert regenerate(world, "INV-1", html="<h1>INV-1b</h1>", is_confirmed=True).is_done
    world.run_until(lambda: jobs("INV-1")[1].state == "saved")
    assert jobs("INV-1")[0].state != "saved"
    world.provider.script("INV-1", status=[Complete()])
    world.run_until(lambda: jobs("INV-1")[0].state == "saved")
    assert stored(world, "INV-1", 1) == pdf("INV-1")
    assert stored(world, "INV-1", 2) == pdf("INV-1b")
    assert (len(world.provider.jobs_of("INV-1")), len(world.provider.jobs_of("INV-1b"))) == (1, 1)
    assert current("INV-1") == 2


def test_over_an_unknown_one_it_asks_first_and_leaves_it_unknown(world: World) -> None:
    world.provider.script("INV-1", submit=itertools.repeat(Lose()))
    world.hand_over("INV-1")
    world.run_until(lambda: jobs("INV-1")[0].state == "unknown", within=4000)
    assert regenerate(world, "INV-1").words == "Version 1 may also bill."
    world.provider.script("INV-1")
    assert regenerate(world, "INV-1", is_confirmed=True).is_done
    world.run_to_the_end()
    assert [job.state for job in jobs("INV-1")] == ["unknown", "saved"]


def test_other_content_takes_the_place_of_one_that_was_never_sent(world: World) -> None:
    world.provider.key_is_good = False
    world.hand_over("INV-1", "INV-2")
    world.run_for(5)
    assert "as it is" in regenerate(world, "INV-1").words, "the same again would only be rendered twice"
    assert regenerate(world, "INV-1", html="<h1>INV-1b</h1>").is_done
    first, second = jobs("INV-1")
    assert (first.state, second.state) == ("cancelled", "pending")
    world.provider.key_is_good = True
    health.resume(world.account.pk, now=world.clock.now())
    world.run_to_the_end()
    assert [job.state for job in jobs("INV-1")] == ["cancelled", "saved"]
    assert world.provider.jobs_of("INV-1") == []
    assert len(world.provider.jobs_of("INV-1b")) == 1


def test_content_that_an_earlier_version_has_is_attached_to_and_bills_nothing(world: World) -> None:
    world.hand_over("INV-1")
    world.run_to_the_end()
    regenerate(world, "INV-1", html="<h1>INV-1b</h1>")
    world.run_to_the_end()
    result = regenerate(world, "INV-1", html="<h1>INV-1</h1>")
    assert result.words == "Version 1 has this very input; nothing is sent again."
    world.run_to_the_end()
    assert current("INV-1") == 1
    assert len(jobs("INV-1")) == 2
    assert len(world.provider.jobs) == 2
    assert regenerate(world, "INV-1", html="<h1>INV-1c</h1>").words == "Version 3 was made."


def test_an_upload_attaches_to_the_newest_of_two_versions_with_one_input(world: World) -> None:
    world.hand_over("INV-1")
    world.run_to_the_end()
    regenerate(world, "INV-1")
    world.run_to_the_end()
    batch = world.hand_over_file(json.dumps([{"id": "INV-1", "html": "<h1>INV-1</h1>"}], indent=1).encode())
    assert (batch.items.get().version.number, batch.items.get().intake_outcome) == (2, "unchanged")
    world.run_to_the_end()
    assert len(world.provider.jobs_of("INV-1")) == 2


def test_whoever_looked_at_an_older_version_makes_none(world: World) -> None:
    world.hand_over("INV-1")
    world.run_to_the_end()
    item = BatchItem.objects.get()
    looked_at = {item.pk: item.version_id}
    orders = [ordered(versions=looked_at) for _ in range(2)]
    first, second = (versions.regenerate([item.pk], order=order, now=world.clock.now())[item.pk] for order in orders)
    assert first.is_done
    assert "newer version of the document exists" in second.words
    assert DocumentVersion.objects.count() == 2


def test_rows_of_one_document_in_two_batches_share_one_version_and_only_the_chosen_move(world: World) -> None:
    world.hand_over("INV-1")
    world.run_to_the_end()
    for indent in (1, 2, 3):
        world.hand_over_file(json.dumps([{"id": "INV-1", "html": "<h1>INV-1</h1>"}], indent=indent).encode())
    items = list(BatchItem.objects.order_by("pk").values_list("pk", flat=True))
    results = versions.regenerate(items[:2], order=ordered(), now=world.clock.now())
    assert [result.words for result in results.values()] == ["Version 2 was made."] * 2
    named = BatchItem.objects.order_by("pk").values_list("version__number", flat=True)
    assert list(named) == [2, 2, 1, 1]
    other = versions.regenerate(items[2:3], order=ordered(), now=world.clock.now())
    assert "newer version" in other[items[2]].words


def test_without_a_reason_nothing_is_made(world: World) -> None:
    world.hand_over("INV-1")
    world.run_to_the_end()
    assert regenerate(world, "INV-1", reason=" ").words == versions.NO_REASON
    assert DocumentVersion.objects.count() == 1


def test_a_final_document_needs_the_right_and_an_upload_makes_no_version_of_it(world: World) -> None:
    world.hand_over("INV-1")
    world.run_to_the_end()
    document = Document.objects.get()
    assert versions.finalise(document.pk, is_final=True, by=BY, now=world.clock.now())
    assert not versions.finalise(document.pk, is_final=True, by=BY, now=world.clock.now())
    assert "marked final" in regenerate(world, "INV-1").words
    assert "handed out" in regenerate(world, "INV-1", may_regenerate_final=True).words, "the right is no consent"
    assert regenerate(world, "INV-1", may_regenerate_final=True, is_confirmed=True).is_done
    assert [entry.action for entry in AuditEntry.objects.filter(action__contains="final")] == ["mark_final"]


def test_a_large_input_lies_in_the_store_before_its_version_names_it(world: World) -> None:
    world.hand_over("INV-1")
    world.run_to_the_end()
    html = f"<h1>INV-1b</h1><!-- {'x' * 2_000_000} -->"
    assert regenerate(world, "INV-1", html=html).is_done
    version = DocumentVersion.objects.get(number=2)
    assert version.input_inline is None
    with world.store.open(version.input_key or "") as stream:
        assert stream.read() == html.encode()
    assert regenerate(world, "INV-1", html="<h1>INV-1c</h1>").is_done
    assert version.input_sha256 == manifests.fingerprint("html", html, {})


@pytest.mark.parametrize("table", ["DocumentVersion", "Job", "JobEvent", "AuditEntry"])
def test_a_death_between_two_statements_leaves_nothing(world: World, table: str, monkeypatch: Any) -> None:
    world.hand_over("INV-1")
    world.run_to_the_end()
    insert, returning, record = bulk.insert, bulk.insert_returning, versions.audit.record

    class Killed(BaseException):
        pass

    def dies(real: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            answer = real(*given, **named)
            if table == "AuditEntry" or given[0].__name__ == table:
                raise Killed
            return answer

        return call

    monkeypatch.setattr(bulk, "insert", dies(insert) if table != "AuditEntry" else insert)
    monkeypatch.setattr(bulk, "insert_returning", dies(returning) if table == "DocumentVersion" else returning)
    monkeypatch.setattr(versions.audit, "record", dies(record) if table == "AuditEntry" else record)
    with pytest.raises(Killed):
        regenerate(world, "INV-1")
    monkeypatch.undo()
    assert (DocumentVersion.objects.count(), current("INV-1"), Job.objects.count()) == (1, 1, 1)
    assert BatchItem.objects.get().version.number == 1


# --- replacing failed rows --------------------------------------------------------------------------------------------


def corrected_file(rows: list[dict[str, Any]]) -> Any:
    return manifests.read(from_upload(io.BytesIO(json.dumps(rows).encode()), "failed.json"), corrects=True)


def test_29_of_500_are_corrected_and_471_stay_untouched(world: World) -> None:
    names = [f"INV-{number:03}" for number in range(500)]
    wrong = names[100:129]
    for name in wrong:
        world.provider.script(name, submit=[Refuse(errors.InvalidInput, "A table is too wide.", code="too_wide")])
    batch = world.hand_over(*names)
    world.run_to_the_end(within=3000)
    before = dict(Artifact.objects.values_list("version__document__business_id", "sha256"))
    assert len(before) == 471
    rows = [{"id": name, "html": f"<h1>{name}b</h1>", "_error": "A table is too wide."} for name in wrong]
    with corrected_file(rows) as manifest:
        assert (manifest.errors, manifest.warnings) == ((), ())
        plan = replacing.plan_replacement(batch, manifest, now=world.clock.now())
        expected = {"new": 0, "corrected": 29, "unchanged": 0, "left_alone": 0, "refused": 0}
        assert plan.summary() == {**expected, "untouched": 471, "renders": 29}
        for _ in range(2):  # a second press
            summary = replacing.replace_rows(
                plan, manifest, key="form-1", order=ordered(), store=world.store, now=world.clock.now()
            )
            assert summary == plan.summary()
    billed = len(world.provider.jobs)
    world.run_to_the_end(within=3000)
    assert len(world.provider.jobs) - billed == 29
    assert selectors.batch_json(batch)["counts"] == {
        "total": 500,
        "saved": 500,
        "failed": 0,
        "cancelled": 0,
        "held": 0,
        "in_progress": 0,
    }
    assert Document.objects.count() == 500
    after = dict(Artifact.objects.filter(version__number=1).values_list("version__document__business_id", "sha256"))
    assert after == before
    assert "_error" not in batch.items.get(position=100).original_row
    assert AuditEntry.objects.filter(action="replace_rows").count() == 1


def test_rows_that_are_saved_the_same_or_unknown_to_the_batch_are_named(world: World) -> None:
    world.provider.script("INV-2", submit=[Refuse(errors.InvalidInput, "No.")])
    batch = world.hand_over("INV-1", "INV-2")
    world.run_to_the_end()
    rows = [{"id": "INV-1", "html": "<h1>other</h1>"}, {"id": "INV-2", "html": "<h1>INV-2</h1>"}]
    with corrected_file(rows) as manifest:
        plan = replacing.plan_replacement(batch, manifest, now=world.clock.now())
        assert plan.named(replacing.Replacement.LEFT_ALONE) == ["INV-1"]
        assert plan.named(replacing.Replacement.UNCHANGED) == ["INV-2"]
        summary = replacing.replace_rows(
            plan, manifest, key="1", order=ordered(), store=world.store, now=world.clock.now()
        )
        assert (summary["corrected"], summary["renders"]) == (0, 0)
    assert Job.objects.count() == 2
    with corrected_file([*rows, {"id": "INV-9", "html": "<h1>x</h1>"}]) as manifest:
        plan = replacing.plan_replacement(batch, manifest, now=world.clock.now())
        assert not plan.ok
        with pytest.raises(IntakeRefused, match="INV-9: The batch has no row with this id"):
            replacing.replace_rows(plan, manifest, key="2", order=ordered(), store=world.store, now=world.clock.now())


def test_a_row_that_may_also_bill_is_replaced_only_when_confirmed(world: World) -> None:
    world.provider.script("INV-1", status=[Fail()])
    batch = world.hand_over("INV-1")
    world.run_to_the_end()
    assert Submission.objects.get().provider_job_id
    with corrected_file([{"id": "INV-1", "html": "<h1>INV-1b</h1>"}]) as manifest:
        plan = replacing.plan_replacement(batch, manifest, now=world.clock.now())
        given = {"store": world.store, "now": world.clock.now()}
        with pytest.raises(IntakeRefused, match="Version 1 may also bill"):
            replacing.replace_rows(plan, manifest, key="1", order=ordered(), **given)
        assert Batch.objects.get().items.get().version.number == 1
        summary = replacing.replace_rows(plan, manifest, key="1", order=ordered(is_confirmed=True), **given)
    assert summary["corrected"] == 1
    world.run_to_the_end()
    assert stored(world, "INV-1", 2) == pdf("INV-1b")
