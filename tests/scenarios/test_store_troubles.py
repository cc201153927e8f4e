"""Single objects and names that a store's sweeps cannot cope with: noted and passed, never the end of a walk."""

from __future__ import annotations

import io
import os
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from batches.engine import storecheck, storeorphans, storerepair
from batches.engine.storeslices import SliceReport
from batches.models import Alert, Artifact, StoreFinding, StoreSweep
from batches.storage import StoreDenied, StoreUnavailable, is_key
from tests.factories import NOW
from tests.scenarios.world import World

NAMES = [f"INV-{number:02}" for number in range(10)]
LONG_AGO = (NOW - timedelta(days=40)).timestamp()


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


def open_findings() -> set[tuple[str, str]]:
    return set(StoreFinding.objects.filter(resolved_at=None).values_list("kind", "storage_key"))


def refuse(patch: pytest.MonkeyPatch, world: World, refused: set[str]) -> None:
    """The store gives away the size of these, as a folder does, and refuses to have them read."""
    opened = world.store.open

    def open_one(key: str) -> BinaryIO:
        if key in refused:
            raise StoreDenied(f"{key} refuses access to this process.")
        return opened(key)

    patch.setattr(world.store, "open", open_one)


# --- one object ---


def test_an_object_that_cannot_be_read_is_told_and_the_walk_goes_on(
    saved: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, lost = {key_of("INV-03")}, key_of("INV-07")
    refuse(monkeypatch, saved, refused)
    saved.store.delete(lost)
    report = objects(saved, is_deep=True)
    assert (report.looked_at, report.unread, report.missing, report.is_round_over) == (10, 1, 1, True)
    (unread,) = StoreFinding.objects.filter(kind="unreadable")
    assert unread.storage_key == key_of("INV-03")
    assert "refuses access" in unread.words
    assert saved.states()["INV-03"] == "saved", "it may be whole"
    assert Artifact.objects.get(storage_key=unread.storage_key).checked_at is None
    assert "1 unreadable" in Alert.objects.get(closed_at=None).words
    saved.run_to_the_end()
    refused.clear()
    objects(saved, is_deep=True)
    assert open_findings() == set()
    assert saved.open_alerts() == []
    assert Artifact.objects.filter(checked_at=None).count() == 0


def test_an_object_that_the_file_system_cannot_resolve_does_not_stop_the_walk(saved: World) -> None:
    path = saved.store.root / key_of("INV-00")
    path.unlink()
    path.symlink_to(path.name)  # to itself
    report = objects(saved)
    assert (report.unread, report.is_round_over, report.trouble) == (1, True, "")
    assert "INV-00" not in [name for name, state in saved.states().items() if state != "saved"]


def test_a_row_whose_key_no_store_takes_does_not_stop_the_walk(saved: World) -> None:
    Artifact.objects.filter(version__document__business_id="INV-02").update(storage_key="../x\n")
    report = objects(saved)
    assert (report.looked_at, report.unread, report.is_round_over) == (10, 1, True)


def test_what_could_not_be_read_and_turns_out_damaged_is_fetched_again(
    saved: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = key_of("INV-03")
    with monkeypatch.context() as patch:
        refuse(patch, saved, {key})
        objects(saved, is_deep=True)
    saved.store.put(key, io.BytesIO(b"%PDF-1.4 cut"))
    objects(saved)
    assert open_findings() == {("damaged", key)}
    saved.run_to_the_end()
    saved.assert_saved(NAMES)


def test_a_store_of_which_nothing_can_be_read_stops_the_slice_where_it_stands(
    saved: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        refuse(patch, saved, {key_of(name) for name in NAMES})
        report = objects(saved, is_deep=True)
    assert "refuses access" in report.trouble
    assert "No document was changed" in report.trouble
    assert (report.looked_at, open_findings()) == (0, set())
    assert StoreSweep.objects.get(kind="objects").position == ""
    assert objects(saved, is_deep=True).looked_at == 10


def test_a_store_that_goes_away_in_the_middle_is_not_walked_past(saved: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storecheck, "ROWS_AT_ONCE", 3)
    size, asked = saved.store.size, []

    def answer(key: str) -> int | None:
        asked.append(key)
        if len(asked) > 4:
            raise StoreUnavailable("The bucket answered 503.")
        return size(key)

    monkeypatch.setattr(saved.store, "size", answer)
    assert "503" in objects(saved).trouble
    assert open_findings() == set()


def test_answers_that_only_time_out_do_not_make_a_slice_endless(saved: World, monkeypatch: pytest.MonkeyPatch) -> None:
    size, slow = saved.store.size, {key_of(name) for name in NAMES[2:8]}

    def answer(key: str) -> int | None:
        if key in slow:
            saved.clock.advance(40)
            raise StoreUnavailable("The bucket cannot be reached (ReadTimeoutError).")
        return size(key)

    monkeypatch.setattr(saved.store, "size", answer)
    first = objects(saved)
    assert first.unread == 1
    assert not first.is_round_over
    assert objects(saved).looked_at < 10


# --- findings that are open for long ---


def test_a_pdf_that_was_put_back_is_seen_behind_any_number_of_older_findings(
    saved: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storerepair, "SETTLED_AT_ONCE", 2)
    monkeypatch.setattr(storerepair, "may_live", lambda artifact, now: False)
    content = {}
    for name in NAMES:
        with saved.store.open(key_of(name)) as stream:
            content[name] = stream.read()
        saved.store.delete(key_of(name))
    objects(saved, is_repair=True)
    assert set(saved.states().values()) == {"expired"}
    StoreFinding.objects.bulk_create(
        StoreFinding(kind="orphaned", storage_key=f"default/x/{n}", words="-", found_at=NOW - timedelta(days=9))
        for n in range(700)
    )
    saved.store.put(key_of("INV-09"), io.BytesIO(content["INV-09"]))
    assert objects(saved).is_round_over
    assert saved.states()["INV-09"] == "saved"
    # One finding a slice, since no time is left: the round goes on until all were looked at.
    saved.store.put(key_of("INV-08"), io.BytesIO(content["INV-08"]))
    slices = 1
    while not objects(saved, seconds=timedelta(0)).is_round_over:
        slices += 1
    assert slices == len(NAMES)
    assert saved.states()["INV-08"] == "saved"


def test_a_pdf_that_was_put_back_is_seen_while_suspiciously_many_others_are_missing(saved: World) -> None:
    key = key_of("INV-00")
    with saved.store.open(key) as stream:
        content = stream.read()
    saved.store.delete(key)
    saved.provider.script("INV-00")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storerepair, "may_live", lambda artifact, now: False)
        objects(saved)
    saved.store.put(key, io.BytesIO(content))
    for name in NAMES[1:8]:
        saved.store.delete(key_of(name))
    assert "7 of 9" in objects(saved).trouble
    assert saved.states()["INV-00"] == "saved"


# --- names that nobody of ours gave ---

FOREIGN = [
    "a name with spaces.pdf",
    "two\nlines",
    "\x1b[31mred\x1b[0m",
    "Lindqvist-é-👍",
    "\u202egnp.exe",
    "..pdf",
    "x" * 255,
    "-rf",
    "100%25",
    "back\\slash",
    os.fsdecode(b"latin-\xe9"),
]


def put_foreign(root: Path) -> None:
    for name in FOREIGN:
        (root / "other's folder" / "deep").mkdir(parents=True, exist_ok=True)
        if not name.startswith("."):
            (root / name).write_bytes(b"x")
        (root / "other's folder" / "deep" / f"{name}"[:250]).write_bytes(b"x")
    (root / ("y" * 250) / ("z" * 250)).mkdir(parents=True)
    (root / ("y" * 250) / "w").write_bytes(b"x")
    (root / ("y" * 250) / ("z" * 250) / "beyond").write_bytes(b"x")
    (root / "broken link").symlink_to("nowhere")
    (root / "link to itself").symlink_to("link to itself")
    (root / "link-to-a-folder").symlink_to("/")
    os.mkfifo(root / "pipe")
    for path in (*root.rglob("*"),):
        if not path.name.startswith("."):
            os.utime(path, (LONG_AGO, LONG_AGO), follow_symlinks=False)


@pytest.mark.parametrize("at_once", [1, 2, 1000])
def test_foreign_names_of_any_kind_are_listed_told_and_left_alone(
    saved: World, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    put_foreign(saved.store.root)
    monkeypatch.setattr(storeorphans, "KEYS_AT_ONCE", at_once)
    listed = [each for each in saved.store.iter_facts() if not each.trouble]
    looked_at = slices = 0
    while True:
        report = orphans(saved, seconds=timedelta(0))
        assert report.trouble == ""
        looked_at += report.looked_at
        slices += 1
        assert slices < 100
        if report.is_round_over:
            break
    assert looked_at == len(listed), "each once"
    found = StoreFinding.objects.filter(resolved_at=None)
    assert {"two\\nlines", "\\x1b[31mred\\x1b[0m", "latin-\\udce9", "broken link", "link to itself", "pipe"} <= set(
        found.values_list("storage_key", flat=True)
    )
    assert all(each.storage_key.isprintable() and each.words.isprintable() for each in found)
    assert [each.storage_key[:3] for each in found.filter(kind="unreadable")] == ["yyy"]
    orphans(saved, is_repair=True)
    for name in FOREIGN:
        if not name.startswith("."):
            assert (saved.store.root / name).exists() is not is_key(name), "no name of ours, not ours to remove"
    assert (saved.store.root / "link-to-a-folder").is_symlink(), "it cannot be removed, and stops nothing"
    assert objects(saved).is_round_over
    # Gone, they are open no more.
    for path in sorted(saved.store.root.rglob("*"), key=lambda each: len(each.parts), reverse=True):
        if not any(each in str(path) for each in (".temporary", ".artifact-store", "/default")):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    saved.clock.advance(60)
    while not orphans(saved).is_round_over:
        pass
    assert open_findings() == set()


def test_a_folder_that_cannot_be_read_is_told_and_what_lies_in_it_is_not_called_gone(
    saved: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved.store.put("default/left/v1.pdf", io.BytesIO(b"left"))
    saved.store.put("zulu/left/v1.pdf", io.BytesIO(b"left"))
    for key in ("default/left/v1.pdf", "zulu/left/v1.pdf"):
        os.utime(saved.store.root / key, (LONG_AGO, LONG_AGO))
    orphans(saved)
    both = {("orphaned", "default/left/v1.pdf"), ("orphaned", "zulu/left/v1.pdf")}
    assert open_findings() == both
    scan = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).rstrip("/").endswith("/default"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", scandir)
        saved.clock.advance(60)
        report = orphans(saved)
    assert (report.unread, report.orphaned, report.is_round_over, report.trouble) == (1, 1, True, "")
    assert open_findings() == both | {("unreadable", "default/")}
    assert "Permission denied" in StoreFinding.objects.get(kind="unreadable").words
    saved.clock.advance(60)
    orphans(saved)
    assert open_findings() == both


def test_more_orphans_than_are_kept_are_found_one_after_the_other(
    saved: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storeorphans, "FINDINGS_MOST", 2)
    paths = [saved.store.root / f"left-{number}.pdf" for number in range(4)]
    for path in paths:
        path.write_bytes(b"x")
        os.utime(path, (LONG_AGO, LONG_AGO))
    orphans(saved)
    assert len(open_findings()) == 2
    paths[0].unlink()
    saved.clock.advance(60)
    orphans(saved)
    saved.clock.advance(60)
    orphans(saved)
    assert open_findings() == {("orphaned", "left-1.pdf"), ("orphaned", "left-2.pdf")}
