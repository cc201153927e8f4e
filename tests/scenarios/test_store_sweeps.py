"""When the store does not hold what the rows say: found, told, fetched again where the provider still has it."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from batches import failures, results, selectors
from batches.engine import storecheck, storeorphans, storerepair
from batches.engine.storeslices import SliceReport
from batches.models import Alert, Artifact, Batch, Duration, Job, StoreFinding, StoreSweep
from batches.providers import errors
from batches.storage import ObjectFacts, StoreUnavailable, artifact_key
from tests.engine.simulated import Complete, Refuse
from tests.engine.vendor import pdf
from tests.scenarios.world import World

NAMES = [f"INV-{number:02}" for number in range(10)]
DAY = timedelta(days=1)


@pytest.fixture
def saved(world: World) -> World:
    world.hand_over(*NAMES)
    world.run_to_the_end()
    return world


def key_of(name: str) -> str:
    return Artifact.objects.get(version__document__business_id=name).storage_key


def objects(world: World, **given: Any) -> SliceReport:
    return storecheck.check_objects(world.store, world.clock, owner="sweeper", by_person=True, **given)


def orphans(world: World, **given: Any) -> SliceReport:
    return storeorphans.check_orphans(world.store, world.clock, owner="sweeper", by_person=True, **given)


def open_findings() -> list[tuple[str, str]]:
    return list(StoreFinding.objects.filter(resolved_at=None).order_by("pk").values_list("kind", "storage_key"))


def test_a_store_that_is_as_the_rows_say_is_looked_at_and_nothing_is_found(saved: World) -> None:
    report = objects(saved, is_deep=True)
    assert (report.looked_at, report.missing, report.damaged, report.is_round_over) == (10, 0, 0, True)
    assert Artifact.objects.filter(checked_at=saved.clock.now()).count() == 10
    assert open_findings() == []
    assert saved.open_alerts() == []


def test_a_missing_pdf_is_fetched_again_and_paid_for_once(saved: World) -> None:
    key = key_of("INV-03")
    before = Artifact.objects.get(storage_key=key)
    saved.store.delete(key)
    assert objects(saved).missing == 1
    assert saved.states()["INV-03"] == "rendered"
    assert open_findings() == [("missing", key)]
    assert saved.open_alerts() == ["store"]
    batch = Batch.objects.get()
    item = selectors.batch_json(batch)["items"][3]
    assert (item["state"], item["storage_key"], item["sha256"], item["pages"]) == ("rendered", None, None, None)
    row = list(results.rows(batch))[3]
    assert (row["output_sha256"], row["object_key"], row["flags"]) == (None, None, "file_missing")
    saved.run_to_the_end()
    saved.assert_saved(NAMES)
    after = Artifact.objects.get(storage_key=key)
    assert (after.pk, after.sha256, after.missing_at) == (before.pk, before.sha256, None)
    assert after.submission.outcome == "delivered"
    saved.clock.advance(5)
    objects(saved)
    assert open_findings() == []
    assert "Fetched again" in StoreFinding.objects.get().resolution
    assert saved.open_alerts() == []
    assert [job.outcome for job in saved.job("INV-03").submissions.all()] == ["delivered"]


@pytest.mark.parametrize(
    ("content", "is_deep"), [(b"%PDF-1.4 cut", False), (None, True)], ids=["another size", "another content"]
)
def test_a_damaged_pdf_is_kept_aside_and_fetched_again(saved: World, content: bytes | None, is_deep: bool) -> None:
    key = key_of("INV-05")
    with saved.store.open(key) as stream:
        damaged = content or stream.read().replace(b"INV-05", b"INV-XX")
    saved.store.put(key, io.BytesIO(damaged))
    assert objects(saved, is_deep=is_deep).damaged == 1
    aside = storerepair.aside_key(key, f"{saved.clock.now():%Y%m%d%H%M%S}")
    with saved.store.open(aside) as stream:
        assert stream.read() == damaged
    assert saved.store.size(key) is None
    saved.run_to_the_end()
    saved.assert_saved(NAMES)
    assert key_of("INV-05") == key


def test_every_object_is_read_whole_within_so_many_rounds(saved: World) -> None:
    key = key_of("INV-07")
    with saved.store.open(key) as stream:
        changed = stream.read().replace(b"INV-07", b"INV-XX")
    saved.store.put(key, io.BytesIO(changed))
    rounds = 0
    while not objects(saved).damaged:
        rounds += 1
        assert rounds <= storecheck.DEEP_EVERY


def test_a_missing_pdf_that_the_provider_has_no_more_expires_with_what_to_do(world: World) -> None:
    world.provider.script("INV-00", status=[Complete(link_seconds=600)])
    world.hand_over("INV-00")
    world.run_to_the_end()
    key = key_of("INV-00")
    with world.store.open(key) as stream:
        content = stream.read()
    world.clock.advance(601)
    world.store.delete(key)
    objects(world)
    job = world.job("INV-00")
    assert (job.state, job.failure_class) == ("expired", "expired")
    assert f"Its stored PDF ({key}) is missing from the store" in job.failure_words
    assert "Put the file back from a backup" in job.failure_words
    (alert,) = Alert.objects.filter(closed_at=None)
    assert f"INV-00 v1 (to be put back from a backup as {key})" in alert.words
    (cause,) = failures.causes(Batch.objects.get(), total=1).shown
    assert cause.title == "Stored file lost"
    assert "It was saved" in cause.what_to_do
    assert len(world.provider.arrivals) == 1
    # A person puts it back; something else first.
    world.store.put(key, io.BytesIO(b"%PDF-1.4 something else"))
    objects(world)
    assert world.states() == {"INV-00": "expired"}
    world.store.put(key, io.BytesIO(content))
    objects(world)
    world.assert_saved(["INV-00"])
    assert open_findings() == []
    assert world.open_alerts() == []


def test_a_lost_pdf_whose_link_turns_out_dead_expires_and_nothing_is_rendered_again(world: World) -> None:
    world.hand_over("INV-00")
    world.run_to_the_end()
    world.provider.script("INV-00", status=[Refuse(errors.NotFound)], download=[Refuse(errors.NotFound)])
    world.store.delete(key_of("INV-00"))
    objects(world)
    (alert,) = Alert.objects.filter(closed_at=None)
    assert "INV-00 v1 (being fetched again from the provider)" in alert.words
    world.run_to_the_end()
    assert world.states() == {"INV-00": "expired"}
    assert len(world.provider.arrivals) == 1
    key = key_of("INV-00")
    job = world.job("INV-00")
    assert job.failure_words.startswith(f"Its stored PDF ({key}) is missing from the store, and the provider no longer")
    assert "check_store" in job.failure_words
    (row,) = results.rows(Batch.objects.get())
    assert key in row["reason"]
    objects(world)
    alert.refresh_from_db()
    assert f"INV-00 v1 (to be put back from a backup as {key})" in alert.words, "renewed"


TIMES = ("provider_job_id", "accepted_at", "rendered_at", "saved_at", "provider_seconds", "total_seconds", "billed")


def times_of(name: str) -> dict[str, Any]:
    (row,) = [row for row in results.rows(Batch.objects.get()) if row["id"] == name]
    assert row["rendered_at"]
    return {column: row[column] for column in TIMES}


def test_a_repair_leaves_the_times_and_the_bill_of_the_rendering_as_they_were(saved: World) -> None:
    before, learned = times_of("INV-03"), list(Duration.objects.order_by("pk").values())
    assert before["billed"] == "yes"
    saved.clock.advance(300)
    saved.store.delete(key_of("INV-03"))
    objects(saved)
    assert times_of("INV-03") == before, "while it is fetched again"
    saved.run_to_the_end()
    saved.assert_saved(NAMES)
    assert times_of("INV-03") == before
    assert list(Duration.objects.order_by("pk").values()) == learned, "a repair teaches nothing"


def test_a_repair_that_finds_the_file_gone_leaves_times_bill_and_durations_too(world: World) -> None:
    world.hand_over("INV-00")
    world.run_to_the_end()
    before, key = times_of("INV-00"), key_of("INV-00")
    with world.store.open(key) as stream:
        content = stream.read()
    world.clock.advance(300)
    world.provider.script("INV-00", status=[Refuse(errors.NotFound)], download=[Refuse(errors.NotFound)])
    world.store.delete(key)
    objects(world)
    world.run_to_the_end()
    assert world.states() == {"INV-00": "expired"}
    assert times_of("INV-00") == before
    world.store.put(key, io.BytesIO(content))
    objects(world)
    world.assert_saved(["INV-00"])
    assert times_of("INV-00") == before
    assert [row.outcome for row in Duration.objects.all()] == ["saved"]


def test_what_retention_deleted_is_not_missing(saved: World) -> None:
    key = key_of("INV-01")
    saved.store.delete(key)
    Artifact.objects.filter(storage_key=key).update(local_deleted_at=saved.clock.now())
    assert objects(saved).missing == 0
    assert open_findings() == []


def test_a_store_that_is_not_there_makes_no_document_missing(saved: World) -> None:
    elsewhere = saved.store.root.with_name("elsewhere")
    saved.store.root.rename(elsewhere)
    saved.store.root.mkdir()  # the empty mount point
    for check in (objects, orphans):
        assert "cannot be" in check(saved).trouble
    assert set(saved.states().values()) == {"saved"}
    assert open_findings() == []
    assert saved.open_alerts() == ["store"]
    saved.store.root.rmdir()
    elsewhere.rename(saved.store.root)
    for check in (objects, orphans):
        assert not check(saved).trouble
    assert saved.open_alerts() == []


def test_a_store_that_goes_away_during_a_slice_makes_no_document_missing(
    saved: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def ready() -> None:
        asked.append(1)
        if len(asked) > 1:
            raise StoreUnavailable("The volume went away.")

    monkeypatch.setattr(saved.store, "ready", ready)
    monkeypatch.setattr(saved.store, "size", lambda key: None)
    assert "went away" in objects(saved).trouble
    assert set(saved.states().values()) == {"saved"}


def test_many_missing_at_once_are_a_matter_for_a_person(saved: World) -> None:
    for name in NAMES[:6]:
        saved.store.delete(key_of(name))
    report = objects(saved)
    assert "6 of 10 stored PDFs" in report.trouble
    assert set(saved.states().values()) == {"saved"}
    assert open_findings() == []
    alert = Alert.objects.get(closed_at=None)
    assert "no document was changed" in alert.words
    assert "--repair" in alert.words
    objects(saved, is_repair=True)
    assert sorted(saved.states().values()) == ["rendered"] * 6 + ["saved"] * 4
    saved.run_to_the_end()
    saved.assert_saved(NAMES)


# --- slices ---


def test_slices_go_on_where_the_last_one_stopped_and_each_object_is_looked_at_once(
    saved: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storecheck, "ROWS_AT_ONCE", 3)
    looked = []
    while True:
        report = objects(saved, seconds=timedelta(0))
        looked.append(report.looked_at)
        if report.is_round_over:
            break
    assert looked == [3, 3, 3, 1]


def test_two_sweeps_at_once_are_one(saved: World) -> None:
    StoreSweep.objects.create(kind="objects", lease_owner="other", lease_until=saved.clock.now() + timedelta(minutes=1))
    assert objects(saved).is_busy
    saved.clock.advance(61)
    assert objects(saved).is_round_over
    assert StoreSweep.objects.get(kind="objects").lease_owner is None


def test_rounds_of_the_schedule_begin_an_hour_apart(saved: World) -> None:
    def scheduled() -> SliceReport:
        return storecheck.check_objects(saved.store, saved.clock, owner="sweeper")

    assert scheduled().is_round_over
    assert scheduled().is_busy
    saved.clock.advance(3601)
    assert scheduled().looked_at == 10


# --- objects that no row names ---


def test_objects_that_no_row_names_are_reported_once_they_are_old(
    saved: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved.store.put("default/leftover/v1.pdf", io.BytesIO(b"left"))
    changed_at = datetime.now(UTC)
    iter_facts = saved.store.iter_facts

    def aged(after: str = "") -> Any:
        return (ObjectFacts(each.key, each.byte_count, changed_at) for each in iter_facts(after))

    monkeypatch.setattr(saved.store, "iter_facts", aged)
    changed_at = saved.clock.now() - DAY / 2
    assert orphans(saved).orphaned == 0
    changed_at = saved.clock.now() - DAY * 2
    report = orphans(saved)
    assert (report.orphaned, report.is_round_over) == (1, True)
    assert report.looked_at == 10 + 1 + 1, "the PDFs, the manifest and what was left"
    assert open_findings() == [("orphaned", "default/leftover/v1.pdf")]
    orphans(saved, is_repair=True)
    assert saved.store.size("default/leftover/v1.pdf") == 4, "not old enough to be removed"
    changed_at = saved.clock.now() - DAY * 31
    orphans(saved)
    assert saved.store.size("default/leftover/v1.pdf") == 4, "only a person removes"
    assert len(open_findings()) == 1
    orphans(saved, is_repair=True)
    assert saved.store.size("default/leftover/v1.pdf") is None
    assert open_findings() == []
    objects(saved, is_deep=True)
    assert set(saved.states().values()) == {"saved"}


def test_what_a_document_at_work_may_be_about_to_adopt_is_removed_only_when_it_is_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object of a write whose row was refused holds the very bytes that the document at work will store."""
    key = artifact_key(world.workspace.slug, "INV-00", 1)
    world.store.put(key, io.BytesIO(pdf("INV-00")))
    iter_facts = world.store.iter_facts
    long_ago = world.clock.now() - DAY * 31

    def aged(after: str = "") -> Any:
        return (ObjectFacts(each.key, each.byte_count, long_ago) for each in iter_facts(after))

    monkeypatch.setattr(world.store, "iter_facts", aged)
    world.provider.script("INV-00", download=[Refuse(errors.AnswerLost)] * 3)
    world.hand_over("INV-00")
    world.run_until(lambda: world.states()["INV-00"] == "rendered")
    orphans(world, is_repair=True)
    assert world.store.size(key) is not None
    world.run_to_the_end()
    world.assert_saved(["INV-00"])
    assert key_of("INV-00") == key, "it was adopted"


def test_a_large_input_a_large_body_and_a_manifest_are_named(saved: World) -> None:
    folder = "default/0123456789abcdef0123456789abcdef"
    digest = "ab" * 32
    keys = [f"{folder}/input-{digest}", f"{folder}/request-{digest}", f"default/manifests/{digest}"]
    assert storeorphans.named(keys) == set()
    job = Job.objects.order_by("pk").first()
    assert job is not None
    type(job.version).objects.filter(pk=job.version_id).update(input_inline=None, input_key=keys[0])
    job.submissions.update(body_inline=None, body_key=keys[1])
    Batch.objects.update(manifest_key=keys[2])
    assert storeorphans.named(keys) == set(keys)


def test_the_statements_of_a_slice_do_not_grow_with_its_rows(saved: World, django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(20):
        objects(saved)
    with django_assert_max_num_queries(20):
        orphans(saved)
