"""Tells that an outbox fills, long before it is full."""

from __future__ import annotations

from typing import Final

from toolgate._outbox.place import Place
from toolgate.events import logger

__all__ = ["Levels"]

_LEVELS: Final = (0.5, 0.9)
# Emptied to here, it may fill again and be told of again.
_CALM: Final = 0.4


class Levels:
    """How full an outbox is, told once for half and once for nine tenths.

    Args:
        place: How much it holds.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._told = 0.0

    def seen(self, rows: int, size: int) -> None:
        """It holds so many entries and bytes now."""
        share = max(rows / self._place.rows, size / self._place.size)
        if share < _LEVELS[0]:
            if share < _CALM:
                self._told = 0.0
            return
        reached = max(level for level in _LEVELS if share >= level)
        if reached <= self._told:
            return
        self._told = reached
        logger.warning(
            "the outbox %r is %d %% full: %d log entries wait for the gateway; when it is full, guarded tools "
            "are refused: look why the gateway does not take them",
            str(self._place.path or "memory"),
            round(reached * 100),
            rows,
            extra={"toolgate_event": "outbox_fills", "toolgate_entries": rows},
        )
