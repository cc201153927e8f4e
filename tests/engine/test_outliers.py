"""Which stored PDFs are worth a look: the rule as a table, and its pass over batches."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from batches.engine import outliers
from batches.engine.outliers import Sibling
from batches.models import Artifact, Batch, BatchItem, StoreSweep
from tests import factories
from tests.engine.deadlocks import end_once_by_deadlock
from tests.factories import NOW


def siblings(sizes: list[int]) -> list[Sibling]:
    return [Sibling(n, f"INV-{n}", size, f"digest {n}", f"input {n}") for n, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "odd"),
    [
        ([20_000] * 19 + [590], {19: "small"}),
        ([20_000] * 19 + [5_001], {}),  # less than fourfold
        ([20_000] * 19 + [4_999], {19: "small"}),
        ([20_000] * 19 + [159_000], {}),
        ([20_000] * 19 + [161_000], {19: "large"}),
        ([20_000] * 18 + [590, 900_000], {18: "small", 19: "large"}),
        ([20_000] * 6 + [590], {}),  # too few to tell which is the odd one
        ([20_000] * 7 + [590], {7: "small"}),
        ([600] * 19 + [140], {}),  # small differences of small files
        # Widely different anyhow: one page to hundreds.
        ([2_000 * 2**n for n in range(10)] + [1_000], {}),
        ([20_000 + 100 * n for n in range(1000)], {}),
        ([], {}),
    ],
)
def test_a_size_far_from_the_middle_is_worth_a_look(sizes: list[int], odd: dict[int, str]) -> None:
    found = outliers.notices(siblings(sizes))
    assert {key: notice.kind.value for key, notice in found.items()} == odd
    assert all("Look at it" in notice.words for notice in found.values())


def test_ordinary_sizes_of_one_template_raise_no_notice() -> None:
    dice = random.Random(11)
    for _ in range(200):
        sizes = [round(dice.lognormvariate(10, 0.35)) for _ in range(300)]
        assert len(outliers.notices(siblings(sizes))) <= 1


def test_the_same_file_from_another_input_is_worth_a_look_and_names_the_other() -> None:
    given = [Sibling(n, f"INV-{n}", 9000, f"digest {n}", f"input {n}") for n in range(3)]
    given.append(Sibling(3, "INV-3", 9000, "digest 1", "input 3"))
    found = outliers.notices(given)
    assert {key: notice.kind.value for key, notice in found.items()} == {1: "same", 3: "same"}
    assert "that of INV-3" in found[1].words
    assert "that of INV-1" in found[3].words


def test_the_same_input_under_two_ids_may_be_the_same_file() -> None:
    given = [Sibling(1, "INV-1", 9000, "digest", "input"), Sibling(2, "INV-2", 9000, "digest", "input")]
    assert outliers.notices(given) == {}


def test_of_many_equal_files_each_names_one_whose_input_is_another() -> None:
    given = [Sibling(n, f"INV-{n}", 590, "digest", f"input {n % 2}") for n in range(5)]
    found = outliers.notices(given)
    assert len(found) == 5
    assert "INV-1 and of 3 more" in found[0].words
    assert "INV-0 and of 3 more" in found[1].words


# --- the pass ---


def saved(batch: Batch, size: int, **fields: Any) -> Artifact:
    job = factories.make_saved_job(batch=batch)
    Artifact.objects.filter(version=job.version).update(byte_count=size, **fields)
    return Artifact.objects.get(version=job.version)


def notice_of(artifact: Artifact) -> str:
    artifact.refresh_from_db()
    return artifact.notice


@pytest.mark.django_db
def test_the_error_page_among_twenty_is_told_and_taken_back_when_it_is_replaced() -> None:
    batch = factories.make_batch()
    odd = saved(batch, 590)
    others = [saved(batch, 20_000 + n) for n in range(19)]
    assert outliers.sweep(now=NOW) == 1
    assert notice_of(odd) == "small"
    assert "20.0 kB" in odd.notice_words
    assert {notice_of(other) for other in others} == {""}
    Artifact.objects.filter(pk=odd.pk).update(byte_count=20_100)
    assert outliers.look_at_versions([odd.version_id]) == 1
    assert (notice_of(odd), odd.notice_words) == ("", "")


@pytest.mark.django_db
def test_the_sweep_looks_at_new_pdfs_twice_and_then_at_nothing(django_assert_num_queries: Any) -> None:
    batch = factories.make_batch()
    last = [saved(batch, 20_000) for _ in range(9)][-1]
    outliers.sweep(now=NOW)
    assert int(StoreSweep.objects.get(kind="notices").position) < last.pk
    outliers.sweep(now=NOW)
    assert int(StoreSweep.objects.get(kind="notices").position) == last.pk
    with django_assert_num_queries(3):
        outliers.sweep(now=NOW)
    odd = saved(batch, 300)
    assert outliers.sweep(now=NOW) == 1
    assert notice_of(odd) == "small"


@pytest.mark.django_db
def test_one_pass_takes_a_few_batches_and_the_next_ones_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outliers, "BATCHES_MOST", 2)
    odd = []
    for _ in range(5):
        batch = factories.make_batch()
        for _ in range(8):
            saved(batch, 20_000)
        odd.append(saved(batch, 400))
    for _ in range(6):
        outliers.sweep(now=NOW)
    assert {notice_of(each) for each in odd} == {"small"}


@pytest.mark.django_db
def test_a_pdf_is_judged_among_the_batch_that_named_it_first() -> None:
    """Otherwise two batches would tell different things about one file, by turns."""
    first, second = factories.make_batch(), factories.make_batch()
    shared = saved(first, 400)
    for _ in range(9):
        saved(first, 410)
        saved(second, 20_000)
    BatchItem.objects.create(
        batch=second, position=99, document=shared.version.document, version=shared.version, intake_outcome="saved"
    )
    outliers.sweep(now=NOW)
    assert notice_of(shared) == ""


@pytest.mark.django_db
def test_what_is_missing_or_deleted_is_no_sibling() -> None:
    batch = factories.make_batch()
    for _ in range(9):
        saved(batch, 20_000)
    gone = [saved(batch, 400, missing_at=NOW), saved(batch, 400, local_deleted_at=NOW)]
    outliers.sweep(now=NOW)
    assert {notice_of(each) for each in gone} == {""}


# --- large batches ---


def told(batch: Batch) -> dict[str, tuple[str, str]]:
    """What is told of each PDF of the batch that has a notice, by its size and digest."""
    of_batch = Artifact.objects.filter(version__items__batch=batch).exclude(notice="")
    return {f"{each.byte_count} {each.sha256}": (each.notice, each.notice_words[:40]) for each in of_batch}


@pytest.mark.django_db
@pytest.mark.parametrize("rows_most", [10_000, 4])
def test_a_large_batch_is_judged_like_a_small_one_though_it_is_not_read_whole(
    monkeypatch: pytest.MonkeyPatch, rows_most: int
) -> None:
    batch = factories.make_batch()
    sizes = [20_000 + n for n in range(20)] + [590, 900_000, 5_100, 159_000]
    pdfs = [saved(batch, size, sha256=f"{n:064}") for n, size in enumerate(sizes)]
    for n, pdf in enumerate(pdfs):
        type(pdf.version).objects.filter(pk=pdf.version_id).update(input_sha256=f"{n:064}")
    Artifact.objects.filter(pk__in=[pdfs[3].pk, pdfs[11].pk]).update(sha256="f" * 64)
    outliers.sweep(now=NOW)
    as_small = told(batch)
    assert len(as_small) == 4
    Artifact.objects.update(notice="", notice_words="")
    Artifact.objects.filter(pk=pdfs[5].pk).update(notice="small", notice_words="It was small once.")
    StoreSweep.objects.all().delete()
    monkeypatch.setattr(outliers, "SMALL_BATCH", 10)
    monkeypatch.setattr(outliers, "ROWS_MOST", rows_most)
    monkeypatch.setattr(outliers, "SAMPLE", 8)
    for minute in range(0, 120, 10):
        outliers.sweep(now=NOW + timedelta(minutes=minute))
    after = told(batch)
    assert {key: kind for key, (kind, _) in after.items()} == {key: kind for key, (kind, _) in as_small.items()}


@pytest.mark.django_db
def test_a_large_batch_that_is_being_saved_is_judged_every_ten_minutes_and_once_more_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outliers, "SMALL_BATCH", 10)
    judged: list[int] = []
    judge = outliers._look_at_large
    minute = 0

    def judging(batch_id: int) -> int:
        judged.append(minute)
        return judge(batch_id)

    monkeypatch.setattr(outliers, "_look_at_large", judging)
    batch = factories.make_batch()
    for _ in range(12):
        saved(batch, 20_000)
    for minute in range(60):
        if minute < 25:
            odd = saved(batch, 300 if minute == 24 else 20_000)
        outliers.sweep(now=NOW + timedelta(minutes=minute))
    assert judged == [0, 10, 20, 30]
    assert notice_of(odd) == "small"


@pytest.mark.django_db
def test_large_batches_are_judged_one_at_a_pass_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outliers, "SMALL_BATCH", 2)
    judged: list[int] = []

    def judging(batch_id: int) -> int:
        judged.append(batch_id)
        return 0

    monkeypatch.setattr(outliers, "_look_at_large", judging)
    many = [factories.make_batch() for _ in range(12)]
    for minute in range(24):
        for batch in many:
            saved(batch, 20_000)
            if minute == 0:
                saved(batch, 20_000)
                saved(batch, 20_000)
        outliers.sweep(now=NOW + timedelta(minutes=minute))
    assert judged == [batch.pk for batch in many] * 2


@pytest.mark.django_db
def test_what_a_pump_saved_of_a_large_batch_waits_for_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outliers, "SMALL_BATCH", 5)
    batch = factories.make_batch()
    for _ in range(9):
        saved(batch, 20_000)
    odd = saved(batch, 300)
    with CaptureQueriesContext(connection) as queries:
        assert outliers.look_at_versions([odd.version_id]) == 0
    assert len(queries) == 2
    assert outliers.sweep(now=NOW) == 1


@pytest.mark.django_db
def test_a_batch_that_cannot_be_judged_keeps_no_other_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = factories.make_batch(), factories.make_batch()
    for batch in (first, second):
        for _ in range(9):
            saved(batch, 20_000)
    odd = saved(second, 300)
    look_at = outliers._look_at

    def looking(batch_id: int) -> int:
        if batch_id == first.pk:
            raise RuntimeError("a fault of ours")
        return look_at(batch_id)

    monkeypatch.setattr(outliers, "_look_at", looking)
    assert outliers.sweep(now=NOW) == 1
    assert notice_of(odd) == "small"
    assert StoreSweep.objects.get(kind="notices").facts["seen"] == odd.pk


@pytest.mark.django_db(transaction=True)
def test_notices_that_met_a_deadlock_are_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = factories.make_batch()
    for _ in range(9):
        saved(batch, 20_000)
    odd = saved(batch, 300)
    end_once_by_deadlock(monkeypatch, outliers.bulk, "guarded_update")
    assert outliers.look_at_versions([odd.version_id]) == 1
    assert notice_of(odd) == "small"
