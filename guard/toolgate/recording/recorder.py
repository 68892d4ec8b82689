"""Delivers log entries: at once if the gateway takes them, otherwise later. Never fails a call.

Entries wait in memory; what a process still holds when it dies is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from toolgate.events import logger
from toolgate.recording.backlog import Backlog
from toolgate.recording.entries import Entry
from toolgate.settings import DEFAULT_TIMEOUT

__all__ = ["AsyncSender", "Recorder", "Sender"]

# After an outage each call takes a few old entries along and does not pay for all of them.
_CATCH_UP: Final = 10


class Sender(Protocol):
    """What sends an entry."""

    def log(self, entry: Entry, seconds: float | None = None) -> dict[str, Any]:
        """Send `entry` within `seconds`."""
        ...


class AsyncSender(Protocol):
    """What sends an entry, asynchronously."""

    async def log(self, entry: Entry, seconds: float | None = None) -> dict[str, Any]:
        """Send `entry` within `seconds`."""
        ...


class Recorder:
    """Records what calls did.

    Args:
        sender: Gives the synchronous client when first needed.
        async_sender: Gives the asynchronous client when first needed.
        backlog: Where entries wait.
        clock: Monotonic seconds.
        timeout: Seconds one call may spend on recording, with all it takes along.
    """

    def __init__(
        self,
        sender: Callable[[], Sender],
        async_sender: Callable[[], AsyncSender],
        backlog: Backlog | None = None,
        clock: Callable[[], float] = time.monotonic,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        self._sender = sender
        self._async_sender = async_sender
        self._backlog = Backlog() if backlog is None else backlog
        self._clock = clock
        self._timeout = timeout

    def keep(self, entry: Entry) -> None:
        """Have `entry` sent with the next one, or by `flush`."""
        self._backlog.add(entry)

    def record(self, entry: Entry) -> None:
        """Record `entry`: some that wait first, then this one; what is not taken stays."""
        self._backlog.add(entry)
        self._deliver(self._backlog.waiting(last=entry, catch_up=_CATCH_UP), self._clock() + self._timeout)

    async def arecord(self, entry: Entry) -> None:
        """As `record`; an entry stays waiting when the task is cancelled."""
        self._backlog.add(entry)
        await self._adeliver(
            self._backlog.waiting(last=entry, catch_up=_CATCH_UP), self._clock() + self._timeout
        )

    def flush(self, timeout: float) -> bool:
        """Send everything that waits, within `timeout` seconds in all.

        Returns:
            Whether nothing waits any more.
        """
        self._deliver(self._backlog.waiting(), self._clock() + timeout)
        return not self._backlog

    async def aflush(self, timeout: float) -> bool:  # noqa: ASYNC109 - the contract's argument
        """As `flush`."""
        await self._adeliver(self._backlog.waiting(), self._clock() + timeout)
        return not self._backlog

    def give_up(self) -> None:
        """Say how many entries are lost by closing now."""
        if self._backlog:
            logger.warning(
                "%d log entries lost: the guard is closed and the gateway took none", len(self._backlog)
            )

    def _deliver(self, entries: Iterable[Entry], ends: float) -> None:
        for entry in entries:
            if (seconds := ends - self._clock()) <= 0:
                return
            self._backlog.begin(entry)
            try:
                self._sender().log(entry, seconds)
                self._backlog.settle(entry)
            except Exception as error:  # noqa: BLE001 - nothing here may change what the tool did
                if not self._backlog.failed(entry, error):
                    return
            finally:
                self._backlog.end(entry)

    async def _adeliver(self, entries: Iterable[Entry], ends: float) -> None:
        for entry in entries:
            if (seconds := ends - self._clock()) <= 0:
                return
            self._backlog.begin(entry)
            try:
                await self._async_sender().log(entry, seconds)
                self._backlog.settle(entry)
            except Exception as error:  # noqa: BLE001 - nothing here may change what the tool did
                if not self._backlog.failed(entry, error):
                    return
            finally:
                self._backlog.end(entry)
