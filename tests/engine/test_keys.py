"""Idempotency keys: the same submission has one key for ever, and two submissions never share one."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batches.engine import keys

PARTS: dict[str, Any] = {
    "workspace_id": 1,
    "account_id": 2,
    "route": "/v1/pdf",
    "body_sha256": hashlib.sha256(b"body").hexdigest(),
    "document_id": 3,
    "version": 4,
    "sequence": 5,
}


def test_the_key_of_a_submission_never_changes() -> None:
    """A release that spelled it otherwise would send documents again that are accepted already."""
    assert keys.idempotency_key(**PARTS) == "1964fa7724cf894a77c4a4e32391383fb8e84882c04e9dea8d1ae6f300124c11"


@pytest.mark.parametrize("part", PARTS)
def test_every_part_matters(part: str) -> None:
    other = f"{PARTS[part]}0" if isinstance(PARTS[part], str) else PARTS[part] + 1
    assert keys.idempotency_key(**PARTS | {part: other}) != keys.idempotency_key(**PARTS)


def test_a_key_fits_any_header_and_holds_no_personal_data() -> None:
    assert re.fullmatch("[0-9a-f]{64}", keys.idempotency_key(**PARTS))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"workspace_id": 1, "account_id": 23}, {"workspace_id": 12, "account_id": 3}),
        ({"version": 1, "sequence": 11}, {"version": 11, "sequence": 1}),
        ({"route": "/v1/pdf", "body_sha256": "64:ab"}, {"route": "/v1/pdf5:64:", "body_sha256": "ab"}),
        ({"route": "", "body_sha256": "x"}, {"route": "x", "body_sha256": ""}),
    ],
)
def test_moving_the_border_between_two_parts_makes_another_key(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert keys.idempotency_key(**PARTS | first) != keys.idempotency_key(**PARTS | second)


_texts = st.text(st.sampled_from("0123456789:/"), max_size=6)
_lists = st.tuples(
    st.integers(0, 200),
    st.integers(0, 200),
    _texts,
    _texts,
    st.integers(0, 200),
    st.integers(0, 99),
    st.integers(0, 99),
)


@given(_lists, _lists)
def test_different_parts_never_share_a_key(first: tuple[Any, ...], second: tuple[Any, ...]) -> None:
    one, two = (keys.idempotency_key(**dict(zip(PARTS, parts, strict=True))) for parts in (first, second))
    assert (one == two) == (first == second)


def test_public_ids_are_readable_and_do_not_repeat() -> None:
    made = {keys.public_id("bat") for _ in range(2000)}
    assert len(made) == 2000
    assert all(re.fullmatch(r"bat_[a-z2-7]{20}", each) for each in made)


def test_every_character_of_a_public_id_carries_five_bits() -> None:
    """20 characters that may each be any of 32: 100 bits, so that none can be guessed."""
    made = [keys.public_id("bat").removeprefix("bat_") for _ in range(2000)]
    assert {len(set(column)) for column in zip(*made, strict=True)} == {32}
