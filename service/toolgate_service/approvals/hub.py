"""Waking those who wait for a decision in this process. A slow look at the database stands behind it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class DecisionHub:
    """Tells waiting requests that an approval has changed."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}
        #: nobody should wait any longer: the gateway is stopping
        self.closed = False

    @contextmanager
    def watching(self, approval_id: str) -> Iterator[asyncio.Event]:
        """Give an event that is set at every change; begin before the first look, or a change is missed."""
        changed = asyncio.Event()
        events = self._waiting.setdefault(approval_id, set())
        events.add(changed)
        try:
            yield changed
        finally:
            events.discard(changed)
            if not events:
                self._waiting.pop(approval_id, None)

    @property
    def watched(self) -> int:
        """How many watch."""
        return sum(map(len, self._waiting.values()))

    def tell(self, approval_id: str) -> None:
        """Wake whoever watches an approval."""
        for changed in self._waiting.get(approval_id, ()):
            changed.set()

    def close(self) -> None:
        """Wake everybody for good."""
        self.closed = True
        for events in self._waiting.values():
            for changed in events:
                changed.set()
