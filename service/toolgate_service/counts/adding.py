"""The rows that log entries and approval requests add to the counts. No I/O, no clock."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from toolgate_service.counts.models import ACTION, AGENT, ALL, COUNTED, HELD, HOUR, MINUTE
from toolgate_service.logs.entries import NewEntry, Stored

#: a row of `log_counts`: its key, and what is added to each of its four counts
Added: TypeAlias = tuple[str, str, str, int, int, str, int, int, int, int]

_Key: TypeAlias = tuple[str, str, str, int, int, str]
#: the columns of a key
KEY = ("organization_id", "environment", "subject", "span", "starts", "name")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)
#: where each status counts
_PLACES = {status: place for place, status in enumerate(COUNTED)}


def minute_of(moment: datetime) -> int:
    """Return how many minutes after the epoch a moment is, rounded down."""
    return (moment - _EPOCH) // _MINUTE


def added_by(entries: Iterable[tuple[NewEntry, Stored]]) -> list[Added]:
    """Return the rows that entries are counted in, each key once; `pending` entries are in none.

    They come in the order of their keys: of two gateways that add to the same rows none waits for the other in a circle.
    """
    rows: dict[_Key, list[int]] = {}
    for entry, stored in entries:
        if COUNTED[entry.status] == HELD:
            continue
        of = (entry.organization_id, entry.environment)
        for key in _keys(of, entry.agent_id, entry.action, stored.created_at):
            counts = rows.get(key)
            if counts is None:
                counts = rows[key] = [0] * len(_PLACES)
            counts[_PLACES[entry.status]] += 1
    return [(*key, *rows[key]) for key in sorted(rows)]  # type: ignore[misc]  # four counts, as many as statuses


def added_by_request(
    of: tuple[str, str], agent_id: str, action: str, created_at: datetime
) -> list[dict[str, object]]:
    """Return the rows that an approval request is counted in, in the order of their keys.

    Args:
        of: the organization and its environment.
        agent_id: the agent that asked.
        action: what it asked for.
        created_at: when.
    """
    none = dict.fromkeys(COUNTED.values(), 0)
    keys = sorted(_keys(of, agent_id, action, created_at))
    return [dict(zip(KEY, key, strict=True)) | none | {HELD: 1} for key in keys]


def _keys(of: tuple[str, str], agent_id: str, action: str, moment: datetime) -> Iterable[_Key]:
    minute = minute_of(moment)
    hour = minute - minute % HOUR
    return (
        (*of, ALL, MINUTE, minute, ""),
        (*of, AGENT, HOUR, hour, agent_id),
        (*of, ACTION, HOUR, hour, action),
    )
