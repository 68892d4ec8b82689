"""Leaves are small canonical JSON, whatever the values of the rows are."""

import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from toolgate_service.core.ids import new_id
from toolgate_service.transparency.leaves import (
    APPROVAL,
    LOG_ENTRY,
    build_leaf,
    new_salts,
    pack,
    salted,
    unpack,
    write_object,
)

MOMENT = datetime(2026, 11, 28, tzinfo=UTC)
#: texts that the gateway accepts: no NUL character and no lone surrogate
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=255)


@given(TEXT, TEXT)
def test_a_leaf_with_the_longest_values_is_shorter_than_a_thousand_bytes(action: str, reason: str) -> None:
    ids = {name: new_id() for name in ("id", "agent", "by", "decision", "approval")}
    digests = {name: salted(new_salts(), reason.encode()) for name in ("shown", "digest", "context")}
    leaf = build_leaf(
        APPROVAL, new_id(), "production", MOMENT, action=action * 4, state="cancelled", **ids, **digests
    )
    assert len(leaf.data) < 1_000


@given(TEXT)
def test_a_leaf_is_its_own_canonical_form(action: str) -> None:
    data = build_leaf(LOG_ENTRY, new_id(), "test", MOMENT, id=new_id(), action=action, agent=None).data
    loaded = json.loads(data)
    assert json.dumps(loaded, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode() == data
    assert "agent" not in loaded
    assert b"\n" not in data


@given(st.dictionaries(TEXT, st.none() | TEXT | st.integers() | st.booleans(), max_size=6))
def test_a_row_is_written_as_canonical_json(row: dict[str, str | int | bool | None]) -> None:
    row = {f"column_{number}": value for number, value in enumerate(row.values())}
    written = write_object(tuple(row), row.values())
    assert written == json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_packed_leaves_are_unpacked(leaves: list[bytes]) -> None:
    assert list(unpack(pack(leaves))) == leaves


def test_equal_texts_have_different_digests_under_different_salts() -> None:
    assert salted(new_salts(), b"12") != salted(new_salts(), b"12")
