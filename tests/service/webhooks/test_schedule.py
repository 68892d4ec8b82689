"""When a failed delivery is tried again."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate_service.webhooks.schedule import BACK_OFF, JITTER, LONGEST_WAIT, PATIENCE, next_attempt

pytestmark = pytest.mark.sqlite_only("it asks no database")

MADE = datetime(2026, 1, 1, tzinfo=UTC)
SPANS = st.timedeltas(timedelta(), timedelta(days=400))


@given(age=SPANS, attempts=st.integers(1, 60), asked=st.none() | SPANS)
def test_the_next_attempt_is_later_and_within_three_days(
    age: timedelta, attempts: int, asked: timedelta | None
) -> None:
    """Within three days of the event there is a next attempt, later than now; afterwards none."""
    again = next_attempt(MADE + age, attempts, MADE, asked)
    if age >= PATIENCE:
        assert again is None
    else:
        assert again is not None
        assert MADE + age < again <= MADE + PATIENCE


@given(attempts=st.integers(1, 60), asked=st.none() | SPANS)
def test_the_pause_grows_and_honours_the_receiver(attempts: int, asked: timedelta | None) -> None:
    """A pause is the schedule's, give or take a fifth; or longer, as long as the receiver asked, up to six hours."""
    again = next_attempt(MADE, attempts, MADE, asked)
    assert again is not None
    pause = timedelta(seconds=BACK_OFF[min(attempts, len(BACK_OFF)) - 1])
    wanted = min(asked or timedelta(), LONGEST_WAIT)
    assert max(pause * (1 - JITTER), wanted) <= again - MADE + timedelta(microseconds=1)
    assert again - MADE <= max(pause * (1 + JITTER), wanted) + timedelta(microseconds=1)


def test_what_failed_together_does_not_come_back_together() -> None:
    """Pauses differ."""
    assert len({next_attempt(MADE, 1, MADE, None) for _ in range(50)}) > 40


def test_in_three_days_there_are_about_twenty_attempts() -> None:
    """The last of them is at the end of the three days."""
    moment, attempts = MADE, 1
    while (again := next_attempt(moment, attempts, MADE, None)) is not None:
        moment, attempts = again, attempts + 1
    assert moment == MADE + PATIENCE
    assert 14 <= attempts <= 24
