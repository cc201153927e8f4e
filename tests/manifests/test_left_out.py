"""Taking the good rows: which rows are left out, why, and what is kept of them."""

from __future__ import annotations

import json

from batches.manifests import ExistingDocument, ExistingVersion, OnConflict, plan
from tests.manifests.samples import PAGE, listed, row, uploaded


def test_every_row_is_either_good_or_left_out_with_its_place_and_a_sentence() -> None:
    lines = [
        json.dumps(row(id="A")),
        "",
        json.dumps(row(id="B", html="")),
        "nonsense",
        json.dumps(row(id="C", html="", filename="a/b")),
        json.dumps(row(id="D")),
        json.dumps(row(id="D", note=1)),
        json.dumps({"html": PAGE}),
    ]
    with uploaded("\n".join(lines)) as manifest:
        left_out = manifest.left_out()
        assert [each.business_id for each in manifest.rows] == ["A"]
        assert sorted([each.position for each in left_out] + [0]) == [*range(manifest.row_count)]
        assert [
            (each.position, each.line, each.business_id, each.code, each.column, each.others) for each in left_out
        ] == [
            (1, 3, "B", "empty_html", "html", 0),
            (2, 4, None, "bad_json_line", None, 0),
            (3, 5, "C", "empty_html", "html", 1),
            (4, 6, "D", "duplicate_id", "id", 0),
            (5, 7, "D", "duplicate_id", "id", 0),
            (6, 8, None, "missing_id", "id", 0),
        ]
        assert all(each.message.endswith(".") and each.fix.endswith(".") for each in left_out)
        answer = json.loads(json.dumps([each.as_dict() for each in left_out]))
        assert answer[0] == {
            "row": 1,
            "line": 3,
            "id": "B",
            "code": "empty_html",
            "column": "html",
            "message": left_out[0].message,
            "fix": left_out[0].fix,
            "others": 0,
        }


def test_a_row_that_was_left_out_can_be_given_back_as_it_came() -> None:
    lines = [json.dumps(row(id="A", html="", note="x")), "nonsense", json.dumps(row(id="B")), json.dumps(row(id="B"))]
    with uploaded("\n".join(lines)) as manifest:
        originals = [dict(manifest.original_of(each)) for each in manifest.left_out()]
    assert originals[0] == {"id": "A", "html": "", "note": "x"}
    assert originals[1] == {}
    assert originals[2] == originals[3] == {"id": "B", "html": f"(document, {len(PAGE)} characters)"}


def test_rows_that_the_plan_refuses_are_left_out_too() -> None:
    saved = ExistingVersion(1, "other", "saved", ever_sent=True)
    known = {
        "B": ExistingDocument("B", 1, (saved,)),
        "C": ExistingDocument("C", 1, (saved,), is_final=True),
    }
    with listed([row(id="A", html=""), row(id="B"), row(id="C"), row(id="D")]) as manifest:
        refusing = plan(manifest, known, OnConflict.REFUSE)
        assert [(each.position, each.code) for each in manifest.left_out(refusing)] == [
            (0, "empty_html"),
            (1, "id_content_conflict"),
            (2, "document_final"),
        ]
        assert manifest.original_of(manifest.left_out(refusing)[1])["id"] == "B"
        allowing = plan(manifest, known, OnConflict.NEW_VERSION)
        assert [(each.position, each.code) for each in manifest.left_out(allowing)] == [
            (0, "empty_html"),
            (2, "document_final"),
        ]


def test_an_upload_without_a_wrong_row_leaves_none_out() -> None:
    with listed([row(id="A"), row(id="B")]) as manifest:
        assert manifest.left_out() == manifest.left_out(plan(manifest, {}, OnConflict.REFUSE)) == ()
