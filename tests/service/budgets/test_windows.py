"""Time windows of budgets: accepted texts, and the window that contains a time in any time zone."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolgate_service.budgets.windows import MAX_SECONDS, ROLLING_START, parse_window

ZONES = sorted(available_timezones() - {"localtime", "Factory"})
MOMENTS = st.integers(-2_208_000_000, 4_133_000_000).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    ["hour", "day", "month", "day(UTC)", "day(Europe/Berlin)", "month(America/New_York)", "day(Etc/GMT+5)",
     "rolling(1)", f"rolling({MAX_SECONDS})"],
)  # fmt: skip
def test_valid_window_is_accepted(text: str) -> None:
    parse_window(text)


@pytest.mark.parametrize(
    "text",
    ["", "week", "Day", "day ", "day()", "day(Europe/Atlantis)", "day(../../etc/passwd)", "day(localtime)",
     "hour(UTC)", "rolling", "rolling()", "rolling(0)", "rolling(-1)", "rolling(01)", "rolling(1.5)",
     f"rolling({MAX_SECONDS + 1})", "rolling(\u0661)", "day\n"],
)  # fmt: skip
def test_invalid_window_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be|time zone"):
        parse_window(text)


@pytest.mark.parametrize(
    ("text", "at", "starts_at", "ends_at"),
    [
        ("hour", "2026-11-28T23:59:59.999999", "2026-11-28T23:00", "2026-11-29T00:00"),
        ("day", "2026-11-28T00:00", "2026-11-28T00:00", "2026-11-29T00:00"),
        ("month", "2026-12-31T23:59", "2026-12-01T00:00", "2027-01-01T00:00"),
        ("day(Europe/Berlin)", "2026-11-28T23:00", "2026-11-28T23:00", "2026-11-29T23:00"),
        # The clock is set forward: the day has 23 hours.
        ("day(Europe/Berlin)", "2026-03-29T12:00", "2026-03-28T23:00", "2026-03-29T22:00"),
        # The clock is set back: the day has 25 hours.
        ("day(Europe/Berlin)", "2026-10-25T12:00", "2026-10-24T22:00", "2026-10-25T23:00"),
        # The day has no midnight: the clock is set from 0:00 to 1:00.
        ("day(Africa/Cairo)", "2026-04-24T12:00", "2026-04-23T22:00", "2026-04-24T21:00"),
        # The local date does not exist: Samoa crossed the date line.
        ("day(Pacific/Apia)", "2011-12-30T09:59", "2011-12-29T10:00", "2011-12-30T10:00"),
        ("day(Pacific/Apia)", "2011-12-30T10:00", "2011-12-30T10:00", "2011-12-31T10:00"),
        ("month(Asia/Kolkata)", "2026-06-30T18:30", "2026-06-30T18:30", "2026-07-31T18:30"),
    ],
)
def test_window_contains_the_time(text: str, at: str, starts_at: str, ends_at: str) -> None:
    assert parse_window(text).span(moment(at)) == (moment(starts_at), moment(ends_at))


@given(MOMENTS, st.sampled_from(ZONES), st.sampled_from(["day", "month"]))
# The clock was set back over midnight, so a date occurred twice.
@example(moment("2005-10-30T02:30:30"), "America/St_Johns", "day")
@example(moment("2005-10-30T03:10"), "America/St_Johns", "day")
def test_every_instant_belongs_to_exactly_one_window(at: datetime, zone: str, kind: str) -> None:
    window = parse_window(f"{kind}({zone})")
    starts_at, ends_at = window.span(at)
    assert starts_at <= at < ends_at
    assert window.span(starts_at) == (starts_at, ends_at)
    assert window.span(ends_at - timedelta(microseconds=1)) == (starts_at, ends_at)
    assert window.span(ends_at).starts_at == ends_at
    assert window.span(starts_at - timedelta(microseconds=1)).ends_at == starts_at
    shortest, longest = (timedelta(0), timedelta(days=3)) if kind == "day" else (timedelta(26), timedelta(33))
    assert shortest < ends_at - starts_at < longest
    local = starts_at.astimezone(ZoneInfo(zone))
    assert kind == "day" or (local.day, local.hour < 3) == (1, True)


@given(MOMENTS, st.integers(1, MAX_SECONDS))
def test_rolling_window_ends_after_its_length(at: datetime, seconds: int) -> None:
    span = parse_window(f"rolling({seconds})").span(at)
    assert span == (ROLLING_START, at + timedelta(seconds=seconds))
