"""Whatever the bytes: a manifest that can be used, or one refusal with a sentence. Never another exception."""

from __future__ import annotations

import html
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batches.manifests import Limits, ManifestRefused, OnConflict, plan
from batches.manifests.choices import Choices
from tests.manifests.faketemplates import FakeTemplate, FakeTemplates
from tests.manifests.samples import CASES, PAGE, listed, row, uploaded, zipped

LIMITS = Limits(
    max_rows=50, max_document_bytes=50_000, max_unpacked_bytes=5_000_000, max_depth=20, max_row_bytes=60_000
)
FIXTURES = {path.name: path.read_bytes() for path in sorted(CASES.iterdir()) if path.name[:3].isdigit()} | {
    "good.zip": zipped({"a.html": PAGE, "b/c.html": "<p>ë"}, rows=[row(html="a.html"), row(id="B", html="b/c.html")]),
    "good.jsonl": b'{"id": "A", "html": "<p>"}\n{"id": 7, "markdown": "# x", "options": {"scale": 1.5}}\n',
}
SMALL_FIXTURES = {name: raw for name, raw in FIXTURES.items() if len(raw) < 60_000}


def examples(count: int) -> settings:
    """`count` examples; slow machines are no failure, and nothing is left on disk."""
    return settings(max_examples=count, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


def check(raw: bytes) -> None:
    """Read everything that can be read, and hold the result to its promises."""
    try:
        manifest = uploaded(raw, limits=LIMITS)
    except ManifestRefused as refused:
        check_report(refused.report())
        return
    with manifest:
        check_report(manifest.report(plan(manifest, {}, OnConflict.REFUSE)))
        valid = manifest.row_count - manifest.invalid_count
        assert len(manifest.rows) == valid
        assert len({only.business_id for only in manifest.rows}) == valid
        assert manifest.ok or manifest.errors
        for only in manifest.rows:
            assert 1 <= len(only.business_id) <= 200
            assert only.text().encode()
            assert len(only.read()) == only.content_bytes
            json.dumps([dict(only.original), dict(only.meta), dict(only.options)], allow_nan=False).encode()


def check_report(report: dict[str, Any]) -> None:
    json.dumps(report, ensure_ascii=False, allow_nan=False).encode()
    for problem in report["errors"] + report["warnings"]:
        assert problem["message"]
        assert problem["fix"].endswith((".", "?"))
        assert problem["count"] >= 1


@examples(300)
@given(
    st.binary(max_size=400),
    st.sampled_from([b"", b"[", b"{", b'[{"id":', b"PK\x03\x04", b"\xef\xbb\xbf[", b"\xff\xfe[\0"]),
)
def test_random_bytes_are_read_or_refused(raw: bytes, start: bytes) -> None:
    check(start + raw)


@examples(400)
@given(st.data())
def test_mutated_fixtures_are_read_or_refused(data: st.DataObject) -> None:
    raw = bytearray(SMALL_FIXTURES[data.draw(st.sampled_from(sorted(SMALL_FIXTURES)))])
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, max(0, len(raw) - 1)))
        length = data.draw(st.integers(0, 8))
        raw[at : at + length] = data.draw(st.binary(max_size=8))
    check(bytes(raw))


@pytest.mark.parametrize("name", sorted(FIXTURES))
def test_fixtures_cut_anywhere_are_read_or_refused(name: str) -> None:
    raw = FIXTURES[name]
    for length in {*range(0, len(raw), max(1, len(raw) // 40)), len(raw) - 1, len(raw)}:
        check(raw[:length])


KEYS = st.sampled_from(["id", "html", "html_content", "markdown", "url", "filename", "options", "meta", "data", "x"])
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just("\ud800") | st.just("<p>"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8) | st.sampled_from(["scale", "margin", "top"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@examples(300)
@given(st.lists(st.dictionaries(KEYS | st.text(max_size=6), JSON_VALUES, max_size=5) | JSON_VALUES, max_size=5))
def test_rows_of_any_shape_are_read_or_refused(rows: list[Any]) -> None:
    check(json.dumps(rows).encode())
    check("\n".join(json.dumps(only) for only in rows).encode())


@examples(200)
@given(st.text(min_size=1, max_size=60), st.text(min_size=1, max_size=60))
def test_accepted_ids_are_stable_and_unique(one: str, other: str) -> None:
    with listed([row(id=one), row(id=other)], LIMITS) as manifest:
        for only in manifest.rows:
            with listed([row(id=only.business_id)], LIMITS) as again:
                assert [same.business_id for same in again.rows] == [only.business_id]


@examples(200)
@given(st.text(min_size=1, max_size=80))
def test_any_text_that_is_taken_comes_out_as_it_went_in(text: str) -> None:
    rows = [
        {"id": "A", "html_content": text, "note": text, "meta": {"m": text}},
        {"id": "B", "template": "t", "data": {"x": text}, "note": text},
    ]
    templates = FakeTemplates(FakeTemplate("<p>{{ x }}</p>", slug="t"))
    with listed(rows, LIMITS, templates=templates) as manifest:
        for only in manifest.rows:
            assert only.original["note"] == text
            if only.business_id == "A":
                assert only.text() == text.removeprefix("\ufeff")
                assert only.meta["m"] == text
            else:
                assert only.template_data == {"x": text, "id": "B", "note": text}
                assert only.text() == f"<p>{html.escape(text)}</p>"


@examples(200)
@given(
    st.lists(st.dictionaries(KEYS | st.sampled_from(["template", "template_version"]), JSON_VALUES, max_size=5)),
    st.booleans(),
)
def test_rows_of_any_shape_meet_templates_with_a_sentence_or_a_document(rows: list[Any], at_provider: bool) -> None:
    chosen = Choices(template="t", template_version=1, are_provider_templates=at_provider)
    found = FakeTemplates(FakeTemplate("<p>{{ x }} {{ data.y }}</p>", slug="t", number=1))
    raw = "\n".join(json.dumps(only) for only in rows)
    try:
        manifest = uploaded(raw, limits=LIMITS, choices=chosen, templates=found)
    except ManifestRefused as refused:
        check_report(refused.report())
        return
    with manifest:
        check_report(manifest.report(plan(manifest, {}, OnConflict.REFUSE)))
        assert len(manifest.rows) + len(manifest.left_out()) == manifest.row_count
        for only in manifest.rows:
            assert only.text().encode()
            json.dumps([only.template_data, dict(only.original)], allow_nan=False).encode()
