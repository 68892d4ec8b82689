"""Wake the waiting requests and open console pages of this process when an approval changes.

A lost notification causes only a delay, since the waiting code also polls the database.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TypeAlias

_Watchers: TypeAlias = dict[str, set[asyncio.Event]]


class Notifier:
    """Sets asyncio events when an approval changes, to wake waiting requests and the organization's console pages.

    Attributes:
        calls: Deadlines of the tool calls of this process that wait for an approval, by approval id.
        closed: Whether the gateway is shutting down, so that no request should wait any longer.
        receives_remote: Whether notifications of other gateways arrive, so that their changes wake requests here.
    """

    def __init__(self) -> None:
        self._waiting: _Watchers = {}
        self._pages: _Watchers = {}
        self.calls: dict[str, list[datetime]] = {}
        self.closed = False
        self.receives_remote = False

    @contextmanager
    def watch_approval(self, approval_id: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set at every change of the approval.

        Enter this context before the first read of the approval. Otherwise a change between the two is missed.
        """
        with _registered(self._waiting, approval_id) as changed:
            yield changed

    @contextmanager
    def watch_organization(self, organization_id: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set when any approval of the organization changes."""
        with _registered(self._pages, organization_id) as changed:
            yield changed

    @property
    def watched(self) -> int:
        """Number of requests in this process that wait for an approval."""
        return sum(map(len, self._waiting.values()))

    def notify(self, approval_id: str) -> None:
        """Wake the requests that wait for an approval."""
        _wake(self._waiting, approval_id)

    def notify_organization(self, organization_id: str, approval_id: str) -> None:
        """Wake the requests that wait for an approval, and the console pages of its organization."""
        _wake(self._waiting, approval_id)
        _wake(self._pages, organization_id)

    def close(self) -> None:
        """Wake all requests and pages, and mark the notifier as closed, so that no request waits any longer."""
        self.closed = True
        self.notify_all()

    def notify_all(self) -> None:
        """Wake all requests and pages. Called when notifications may have been lost."""
        for watchers in (self._waiting, self._pages):
            for id_ in watchers:
                _wake(watchers, id_)


@contextmanager
def _registered(watchers: _Watchers, id_: str) -> Iterator[asyncio.Event]:
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
