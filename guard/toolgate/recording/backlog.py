"""Log entries that are not acknowledged yet, in memory and bounded."""

from __future__ import annotations

import itertools
import logging
from typing import Final

from toolgate.errors import GatewayProtocolError
from toolgate.events import logger, tell
from toolgate.observing import watch
from toolgate.recording.entries import Entry

__all__ = ["Backlog"]

_BOUND: Final = 1_000
# The gateway says about the entry itself that it can never succeed (spec §7, decisions §2).
_HOPELESS: Final = frozenset({400, 404, 413})


class Backlog:
    """Holds entries from before their first attempt until the gateway acknowledges them.

    No lock: every change is one operation of a dict or set, and a lock held while the process forks
    would stop the child for good. Where two threads still send the same entry, its Idempotency-Key
    makes one log entry of it.

    Args:
        bound: How many entries are kept; the oldest gives way to the newest.

    Attributes:
        lost: How many entries gave way, or could never be sent.
    """

    def __init__(self, bound: int = _BOUND) -> None:
        self._bound = bound
        # In the order of trying, each with the number it came under.
        self._entries: dict[str, tuple[int, Entry]] = {}
        self._numbers = itertools.count()
        self._sending: set[str] = set()
        self.lost = 0
        watch(self)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry) -> None:
        """Keep `entry`; when full, the oldest is dropped with a warning that counts."""
        while len(self._entries) >= self._bound:
            _, oldest = min(list(self._entries.values()), key=lambda held: held[0])
            self.settle(oldest)
            self.lost += 1
            logger.warning("%d log entries lost: the gateway takes none and %d wait", self.lost, self._bound)
        self._entries[entry.key] = (next(self._numbers), entry)

    def waiting(self, *, last: Entry | None = None, catch_up: int | None = None) -> list[Entry]:
        """What to send now, the oldest first.

        Args:
            last: The entry that has just been added; comes last, and always.
            catch_up: How many of the others at most.
        """
        older = [
            entry
            for _, entry in list(self._entries.values())
            if entry is not last and (catch_up is None or entry.key not in self._sending)
        ]
        return older[:catch_up] + ([last] if last is not None else [])

    def begin(self, entry: Entry) -> None:
        """`entry` is being sent."""
        self._sending.add(entry.key)

    def end(self, entry: Entry) -> None:
        """`entry` is no longer being sent, whatever came of it."""
        self._sending.discard(entry.key)

    def settle(self, entry: Entry) -> None:
        """The gateway acknowledged `entry`."""
        self._entries.pop(entry.key, None)

    def failed(self, entry: Entry, error: Exception) -> bool:
        """Say that `entry` was not taken, and drop it if it never will be.

        Returns:
            Whether it is worth while to send the next one now.
        """
        hopeless = isinstance(error, GatewayProtocolError) and error.status in _HOPELESS
        held = self._entries.pop(entry.key, None)
        self.lost += hopeless
        if held is not None and not hopeless:
            # To the end of the line: one entry the gateway stumbles over must not stop all others.
            self._entries[entry.key] = held
        tell(
            "record_failed",
            entry.body["action"],
            entry.body["agent_id"],
            entry.body["status"],
            reason=f"{'dropped' if hopeless else 'kept for later'}: {error}",
            approval_id=entry.body.get("approval_id"),
            level=logging.ERROR if hopeless else logging.WARNING,
        )
        return hopeless
