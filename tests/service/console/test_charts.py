"""Time ranges and bars of the overview, without a server."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate_service.console.overview import (
    HEIGHT,
    STANDARD,
    Range,
    build_chart,
    build_shares,
    format_duration,
    list_ranges,
    moment_of,
    round_up,
)
from toolgate_service.logs.counts import Counts, minute_of
from toolgate_service.logs.models import DAY

MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - bounds have no zone
NUMBERS = st.integers(0, 10**9)
COUNTS = st.builds(Counts, NUMBERS, NUMBERS, NUMBERS, NUMBERS)


@given(MOMENTS, st.sampled_from(STANDARD))
def test_a_range_ends_with_the_present_moment_and_its_bars_begin_where_counts_do(
    moment: datetime, wanted: Range
) -> None:
    """The last bar contains the current minute; bars begin with an hour or a UTC day."""
    since = wanted.since(moment)
    place = (minute_of(moment) - since) // wanted.width
    assert 0 <= place < wanted.bars
    assert since + wanted.bars * wanted.width - minute_of(moment) <= DAY
    step = 1 if wanted.name == "hour" else 60 if wanted.name == "day" else DAY
    assert since % step == 0
    assert moment_of(since) <= moment


def test_another_zone_is_the_same_moment() -> None:
    """Days begin at midnight UTC whatever time zone the moment is in."""
    late = datetime(2026, 11, 22, 1, 30, tzinfo=UTC)
    for hours in (-8, 0, 5.5):
        local = late.astimezone(timezone(timedelta(hours=hours)))
        assert [one.since(local) for one in STANDARD] == [one.since(late) for one in STANDARD]
    week = next(one for one in STANDARD if one.name == "week")
    assert moment_of(week.since(late)) == datetime(2026, 11, 16, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kept", "names"),
    [
        (-1, ["hour", "day", "week", "month", "quarter", "year"]),
        (1, ["hour", "day"]),
        (3, ["hour", "day", "kept"]),
        (7, ["hour", "day", "week"]),
        (30, ["hour", "day", "week", "month"]),
        (60, ["hour", "day", "week", "month", "kept"]),
        (365, ["hour", "day", "week", "month", "quarter", "kept"]),
        (10_000, ["hour", "day", "week", "month", "quarter", "year"]),
    ],
)
def test_no_range_goes_further_back_than_entries_are_kept(kept: int, names: list[str]) -> None:
    """The longest range equals the retention, and no chart has more than a hundred bars."""
    found = list_ranges(kept)
    assert [one.name for one in found] == names
    assert all(one.bars <= 100 for one in found)
    if names[-1] == "kept":
        assert kept <= found[-1].days < kept * 1.02


@given(st.lists(COUNTS, min_size=24, max_size=24))
def test_bars_stay_in_the_picture_and_leave_nothing_out(counted: list[Counts]) -> None:
    """Every count is visible, no bar exceeds the picture, and the total is the sum."""
    chart = build_chart(STANDARD[1], 0, counted)
    assert chart.total == Counts(*map(sum, zip(*counted, strict=True)))
    for bar, one in zip(chart.bars, counted, strict=True):
        kinds = [kind for kind in ("allowed", "held", "blocked") if getattr(one, kind)]
        assert [piece.kind for piece in bar.pieces] == kinds
        assert all(piece.y >= 0 and piece.height > 0 for piece in bar.pieces)
        assert sum(piece.height for piece in bar.pieces) <= HEIGHT + 0.1


@given(st.integers(1, 10**15))
def test_the_scale_ends_with_a_round_number(number: int) -> None:
    """It is at least the value, at most twice the value, and has one digit before its zeros."""
    top = round_up(number)
    assert number <= top <= 2 * number
    assert len(str(top).rstrip("0")) == 1


@given(COUNTS.filter(lambda one: one.total > 0))
def test_shares_add_up(counts: Counts) -> None:
    """Parts of a bar are proportional to their counts and adjacent."""
    shares = build_shares(counts, counts.total)
    assert sum(share.width for share in shares) == pytest.approx(100, abs=0.1)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59.6, "1 min"), (61, "1 min 1 s"), (3600, "1 h"), (3605, "1 h"), (100_000, "1 d 3 h")],
)
def test_durations_have_at_most_two_units(seconds: float, words: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == words
