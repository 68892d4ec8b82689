"""When denials block, by their moments alone (decisions §5)."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from toolgate_service.approvals.policy import block_end

START = datetime(2026, 11, 20, tzinfo=UTC)
MANY, WINDOW, LASTS = 3, timedelta(seconds=10), timedelta(seconds=20)


def until(*seconds: int) -> datetime | None:
    newest_first = sorted((START + timedelta(seconds=second) for second in seconds), reverse=True)
    return block_end(newest_first, MANY, WINDOW, LASTS)


def test_so_many_within_the_window_block_from_the_last_of_them() -> None:
    """Two do not; three over the whole window do, over more do not."""
    assert until() is None
    assert until(0, 1) is None
    assert until(0, 5, 10) == START + timedelta(seconds=30)
    assert until(0, 5, 11) is None
    assert until(0, 0, 0) == START + LASTS


def test_a_later_denial_alone_does_not_prolong() -> None:
    """The newest three that lie close enough count, also when others came after or before."""
    assert until(0, 1, 2, 15) == START + timedelta(seconds=22)
    assert until(0, 1, 2, 11) == START + timedelta(seconds=31)
    assert until(0, 20, 21, 22) == START + timedelta(seconds=42)


@given(st.lists(st.integers(0, 60), max_size=12))
def test_it_is_the_last_of_any_three_close_denials(seconds: list[int]) -> None:
    """The same as looking at every denial and counting those in the window that ends with it."""
    ends = [last for last in seconds if sum(last - 10 <= other <= last for other in seconds) >= MANY]
    expected = START + timedelta(seconds=max(ends)) + LASTS if ends else None
    assert until(*seconds) == expected


@given(st.lists(st.integers(0, 60), max_size=12))
def test_with_one_denial_each_blocks(seconds: list[int]) -> None:
    """A limit of one blocks from the newest."""
    moments = sorted((START + timedelta(seconds=second) for second in seconds), reverse=True)
    assert all(later >= earlier for later, earlier in pairwise(moments))
    assert block_end(moments, 1, WINDOW, LASTS) == (moments[0] + LASTS if moments else None)
