"""What a batch of log entries adds to the counts. No I/O, no clock."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from toolgate_service.counts.models import ACTION, AGENT, ALL, COUNTED, HOUR, MINUTE
from toolgate_service.logs.entries import NewEntry, Stored

#: a row of `log_counts`: its key, and what is added to each of its four counts
Added: TypeAlias = tuple[str, str, str, int, int, str, int, int, int, int]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)
#: where each status counts
_PLACES = {status: place for place, status in enumerate(COUNTED)}


def minute_of(moment: datetime) -> int:
    """Return how many minutes after the epoch a moment is, rounded down."""
    return (moment - _EPOCH) // _MINUTE


def added_by(entries: Iterable[tuple[NewEntry, Stored]]) -> list[Added]:
    """Return the rows that entries are counted in, each key once.

    They come in the order of their keys: of two gateways that add to the same rows none waits for the other in a circle.
    """
    rows: dict[tuple[str, str, str, int, int, str], list[int]] = {}
    for entry, stored in entries:
        minute, place = minute_of(stored.created_at), _PLACES[entry.status]
        of, hour = (entry.organization_id, entry.environment), minute - minute % HOUR
        for key in (
            (*of, ALL, MINUTE, minute, ""),
            (*of, AGENT, HOUR, hour, entry.agent_id),
            (*of, ACTION, HOUR, hour, entry.action),
        ):
            counts = rows.get(key)
            if counts is None:
                counts = rows[key] = [0] * len(_PLACES)
            counts[place] += 1
    return [(*key, *rows[key]) for key in sorted(rows)]  # type: ignore[misc]  # four counts, as many as statuses
