"""Times of further attempts after a failed delivery."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate_service.webhooks.delivery_queue import (
    BACKOFF,
    JITTER,
    MAX_RETRY_AFTER,
    RETRY_PERIOD,
    next_attempt,
)

pytestmark = pytest.mark.sqlite_only("it asks no database")

MADE = datetime(2026, 1, 1, tzinfo=UTC)
SPANS = st.timedeltas(timedelta(), timedelta(days=400))


@given(age=SPANS, attempts=st.integers(1, 60), asked=st.none() | SPANS)
def test_the_next_attempt_is_later_and_within_three_days(
    age: timedelta, attempts: int, asked: timedelta | None
) -> None:
    """Within three days of the event there is a next attempt, later than now; afterwards none."""
    again = next_attempt(MADE + age, attempts, MADE, asked)
    if age >= RETRY_PERIOD:
        assert again is None
    else:
        assert again is not None
        assert MADE + age < again <= MADE + RETRY_PERIOD


@given(attempts=st.integers(1, 60), asked=st.none() | SPANS)
def test_the_pause_grows_and_honours_the_receiver(attempts: int, asked: timedelta | None) -> None:
    """A pause follows the schedule within a fifth; it is longer if the receiver asks for it, up to six hours."""
    again = next_attempt(MADE, attempts, MADE, asked)
    assert again is not None
    pause = timedelta(seconds=BACKOFF[min(attempts, len(BACKOFF)) - 1])
    wanted = min(asked or timedelta(), MAX_RETRY_AFTER)
    assert max(pause * (1 - JITTER), wanted) <= again - MADE + timedelta(microseconds=1)
    assert again - MADE <= max(pause * (1 + JITTER), wanted) + timedelta(microseconds=1)


def test_what_failed_together_does_not_come_back_together() -> None:
    """Pauses are random."""
    assert len({next_attempt(MADE, 1, MADE, None) for _ in range(50)}) > 40


def test_in_three_days_there_are_about_twenty_attempts() -> None:
    """The last attempt is at the end of the three days."""
    moment, attempts = MADE, 1
    while (again := next_attempt(moment, attempts, MADE, None)) is not None:
        moment, attempts = again, attempts + 1
    assert moment == MADE + RETRY_PERIOD
    assert 14 <= attempts <= 24
