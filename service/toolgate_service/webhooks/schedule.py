"""When a delivery that failed is tried again, and when it is given up (decisions §10)."""

import random
from datetime import datetime, timedelta

#: seconds after each failed attempt; the last goes on
BACK_OFF = (5, 30, 120, 600, 3600, 6 * 3600)
#: for so long after the event
PATIENCE = timedelta(days=3)
#: a receiver that asks for more time gets at most so much
LONGEST_WAIT = timedelta(hours=6)
#: each pause is up to so much longer or shorter: what failed together does not come back together
JITTER = 0.2


def next_attempt(
    moment: datetime, attempts: int, event_made: datetime, retry_after: timedelta | None
) -> datetime | None:
    """Return when to try again; None when three days have passed.

    Args:
        moment: now.
        attempts: how many have failed.
        event_made: when the event happened.
        retry_after: how long the receiver wants to be left alone.
    """
    ends = event_made + PATIENCE
    if moment >= ends:
        return None
    pause = BACK_OFF[min(attempts, len(BACK_OFF)) - 1]
    waits = timedelta(seconds=pause * random.uniform(1 - JITTER, 1 + JITTER))  # noqa: S311 - spreads load, guards nothing
    if retry_after is not None:
        waits = max(waits, min(retry_after, LONGEST_WAIT))
    # The last attempt is at the end of the time, and not some hours before it.
    return min(moment + waits, ends)
