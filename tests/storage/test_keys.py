"""Storage keys: the same for the same, different for the different, and harmless everywhere."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from batches.storage import artifact_key, input_key, is_key, manifest_key, request_key, shown, upload_key
from batches.storage.keys import checked_key

DIGEST = "ab" * 32
CASES = Path(__file__).resolve().parents[1] / "cases"


def case_ids(name: str) -> list[str]:
    return [row["id"] for row in json.loads((CASES / name).read_text(encoding="utf-8"))]


def test_a_key_says_workspace_document_and_version() -> None:
    folder = f"main/{hashlib.sha256(b'INV-1').hexdigest()[:32]}"
    assert artifact_key("main", "INV-1", 2) == f"{folder}/v2.pdf"
    assert input_key("main", "INV-1", DIGEST) == f"{folder}/input-{DIGEST}"
    assert input_key("main", "INV-1", DIGEST, 2) == f"{folder}/input-{DIGEST}-2"
    assert request_key("main", "INV-1", DIGEST, 3) == f"{folder}/request-{DIGEST}-v3"
    assert manifest_key("main", DIGEST) == f"main/manifests/{DIGEST}"
    assert upload_key("main", "k3_x-9") == "main/uploads/k3_x-9"


def test_one_document_in_two_spellings_of_unicode_has_one_key() -> None:
    assert artifact_key("main", "Rechnung-é", 1) == artifact_key("main", "Rechnung-e\u0301", 1)


@pytest.mark.parametrize("name", ["089-url-hostile-ids.json", "053-ids-for-headers.json", "014-ids-with-slashes.json"])
def test_hostile_ids_give_different_keys_of_plain_characters(name: str) -> None:
    ids = case_ids(name)
    keys = {artifact_key("main", business_id, 1) for business_id in ids}
    assert len(keys) == len(ids)
    for key in keys:
        assert re.fullmatch(r"main/[0-9a-f]{32}/v1\.pdf", key)
        assert checked_key(key) == key


def test_a_key_holds_nothing_of_the_business_id() -> None:
    for key in (artifact_key("main", "vera.lund@example.invalid", 1), request_key("main", "vera.lund", DIGEST, 1)):
        assert "vera" not in key


def test_the_same_id_in_two_workspaces_has_two_keys() -> None:
    assert artifact_key("north", "INV-1", 1) != artifact_key("south", "INV-1", 1)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/x",
        "x/",
        "a//b",
        "../x",
        "a/../b",
        "a/./b",
        ".hidden",
        "a/.hidden",
        "a b",
        "a\\b",
        "a\x00b",
        "a\n",
        "é",
        "a?b",
        "x" * 301,
    ],
)
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(ValueError):
        checked_key(key)


def test_keys_of_nonsense_are_not_made() -> None:
    makers: list[Callable[[], str]] = [
        lambda: artifact_key("../other", "INV-1", 1),
        lambda: artifact_key("", "INV-1", 1),
        lambda: artifact_key("main", "INV-1", 0),
        lambda: request_key("main", "INV-1", DIGEST.upper(), 1),
        lambda: input_key("main", "INV-1", ""),
        lambda: manifest_key("main", "short"),
        lambda: upload_key("main", "a/b"),
    ]
    for make in makers:
        with pytest.raises(ValueError):
            make()


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("main/x/v1.pdf", "main/x/v1.pdf"),
        ("notes of Okoye.txt", "notes of Okoye.txt"),
        ("Lindqvist-é-👍", "Lindqvist-é-👍"),
        ("two\nlines\t\r", "two\\nlines\\t\\r"),
        ("\x1b[31mred\x00", "\\x1b[31mred\\x00"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\udce9", "\\udce9"),
        ("x" * 401, "x" * 399 + "…"),
    ],
)
def test_a_name_that_somebody_else_gave_is_shown_on_one_line_that_any_column_takes(name: str, plain: str) -> None:
    assert shown(name) == plain
    assert plain.isprintable()
    assert len(plain.encode()) > 0


def test_only_what_a_row_may_name_is_a_key() -> None:
    assert is_key(artifact_key("main", "INV-1", 1))
    for name in ("", "..", "a/../b", "/a", "a/", "a//b", ".hidden", "a b", "é", "x\n", "x" * 301):
        assert not is_key(name)
