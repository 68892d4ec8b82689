"""Waking those who wait for news in this process. A slow look at the database stands behind it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TypeAlias

_Watchers: TypeAlias = dict[str, set[asyncio.Event]]


class DecisionHub:
    """Tells waiting requests that an approval has changed, and open pages that one of their organization's has."""

    def __init__(self) -> None:
        self._waiting: _Watchers = {}
        self._pages: _Watchers = {}
        #: until when the calls of this process wait, by approval
        self.calls: dict[str, list[datetime]] = {}
        #: nobody should wait any longer: the gateway is stopping
        self.closed = False
        #: whether what other processes change is told here as well, at once
        self.hears_others = False

    @contextmanager
    def watching(self, approval_id: str) -> Iterator[asyncio.Event]:
        """Give an event that is set at every change; begin before the first look, or a change is missed."""
        with _among(self._waiting, approval_id) as changed:
            yield changed

    @contextmanager
    def watching_all(self, organization_id: str) -> Iterator[asyncio.Event]:
        """Give an event that is set where a change of any approval of an organization was announced."""
        with _among(self._pages, organization_id) as changed:
            yield changed

    @property
    def watched(self) -> int:
        """How many wait for decisions."""
        return sum(map(len, self._waiting.values()))

    def tell(self, approval_id: str) -> None:
        """Wake whoever watches an approval."""
        _wake(self._waiting, approval_id)

    def tell_announced(self, organization_id: str, approval_id: str) -> None:
        """Wake whoever watches an approval, or all of its organization's."""
        _wake(self._waiting, approval_id)
        _wake(self._pages, organization_id)

    def close(self) -> None:
        """Wake everybody for good."""
        self.closed = True
        self.tell_everybody()

    def tell_everybody(self) -> None:
        """Wake everybody: something may have been missed."""
        for watchers in (self._waiting, self._pages):
            for id_ in watchers:
                _wake(watchers, id_)


@contextmanager
def _among(watchers: _Watchers, id_: str) -> Iterator[asyncio.Event]:
    changed = asyncio.Event()
    events = watchers.setdefault(id_, set())
    events.add(changed)
    try:
        yield changed
    finally:
        events.discard(changed)
        if not events:
            watchers.pop(id_, None)


def _wake(watchers: _Watchers, id_: str) -> None:
    for changed in watchers.get(id_, ()):
        changed.set()
