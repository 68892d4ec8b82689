"""News for open pages. One look at what they show for all of a kind, however many listen: twice a second, or when told.

Being told is quicker and costs less; looking beneath is what works with several workers and gateways on any database.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, TypeAlias

from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.caller import Caller, still
from toolgate_service.errors import ApiError
from toolgate_service.gateway import Gateway
from toolgate_service.web.edge import STORAGE_FAULTS

logger = logging.getLogger("toolgate.gateway")

#: seconds between two looks
LOOK_AGAIN = 0.4
#: at what is announced when it changes, and how long more of it is gathered before the look
LOOK_SELDOM = 2.0
GATHER = 0.05
#: seconds between two looks at whether whoever listens is still signed in
RECHECK = 3.0
#: seconds after which something is said at the latest, so that a page that is gone is noticed
HEARTBEAT = 10.0
#: pages of one person that may listen at once at this gateway
MOST_PAGES = 30

#: what a stream is, and that nobody on its way keeps it back
EVENTS = "text/event-stream"
AS_IT_HAPPENS: Mapping[str, str] = MappingProxyType({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})

#: looks at something of an organization and environment; what equals the last look's is no news
Look: TypeAlias = Callable[[AsyncSession, str, str], Awaitable[object]]
#: what a page is told of what was seen; None for nothing
Tell: TypeAlias = Callable[[Any], Awaitable[bytes | None]]
Place: TypeAlias = tuple[Look, str, str]


class _Watch:
    """What is seen at one place, looked at while anybody listens."""

    def __init__(self) -> None:
        self.seen: object | None = None
        self.changed = asyncio.Condition()
        self.listeners = 0
        self.task: asyncio.Task[None] | None = None


class Live:
    """Tells open pages what is new."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._watches: dict[Place, _Watch] = {}
        self._pages: dict[str, int] = {}

    async def news(
        self, caller: Caller, environment: str, look: Look, tell: Tell, *, announced: bool = False
    ) -> AsyncGenerator[bytes]:
        """Yield events for one page, until its session has ended or the gateway stops.

        Args:
            caller: whose page it is.
            environment: which of the organization's two worlds it shows.
            look: one function for all pages of a kind.
            tell: what this page is told.
            announced: whether what is looked at are approvals, whose changes gateways announce to each other; the same
                for all pages of a kind.

        Raises:
            ApiError: 429, before the first event: too many pages of this person listen.
        """
        loop = asyncio.get_running_loop()
        with_caller = self._pages.get(caller.user_id, 0)
        if with_caller >= MOST_PAGES:
            raise ApiError(429, "Too many pages of yours listen already; close some", {"Retry-After": "5"})
        self._pages[caller.user_id] = with_caller + 1
        try:
            async with self._watching(
                (look, caller.organization_id, environment), announced=announced
            ) as watch:
                told: object | None = None
                rechecked = said = loop.time()
                yield b"retry: 2000\n\n"
                while not self._gateway.hub.closed:
                    if loop.time() >= rechecked + RECHECK:
                        rechecked = loop.time()
                        if not await self._still_there(caller):
                            yield event("ended", {})
                            return
                    if watch.seen is not None and watch.seen != told:
                        told = watch.seen
                        news = await tell(told)
                        if news is not None:
                            said = loop.time()
                            yield news
                    elif loop.time() >= said + HEARTBEAT:
                        said = loop.time()
                        yield b": here\n\n"
                    await _changed(watch, told)
        finally:
            self._pages[caller.user_id] -= 1
            if not self._pages[caller.user_id]:
                del self._pages[caller.user_id]

    @asynccontextmanager
    async def _watching(self, place: Place, *, announced: bool) -> AsyncIterator[_Watch]:
        watch = self._watches.setdefault(place, _Watch())
        watch.listeners += 1
        if watch.task is None:
            watch.task = asyncio.create_task(self._look_on(place, watch, announced=announced))
        try:
            yield watch
        finally:
            watch.listeners -= 1
            if not watch.listeners:
                del self._watches[place]
                watch.task.cancel()

    async def _look_on(self, place: Place, watch: _Watch, *, announced: bool) -> None:
        _, organization_id, _ = place
        hub = self._gateway.hub
        with hub.watching_all(organization_id) as stirred:
            while not hub.closed:
                # Before the look: a change after it must still wake.
                stirred.clear()
                await self._look(place, watch)
                if not announced:
                    await asyncio.sleep(LOOK_AGAIN)
                    continue
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stirred.wait(), LOOK_SELDOM if hub.hears_others else LOOK_AGAIN)
                    await asyncio.sleep(GATHER)
        # The gateway is about to end: pages come again, elsewhere.
        async with watch.changed:
            watch.changed.notify_all()

    async def _look(self, place: Place, watch: _Watch) -> None:
        look, *where = place
        try:
            async with self._gateway.database.reading() as session:
                seen = await look(session, *where)
        except STORAGE_FAULTS as error:
            # The next look may succeed; meanwhile pages keep what they were told.
            logger.warning("what open pages show could not be looked at: %s", type(error).__name__)
        else:
            if seen != watch.seen:
                async with watch.changed:
                    watch.seen = seen
                    watch.changed.notify_all()

    async def _still_there(self, caller: Caller) -> bool:
        try:
            async with self._gateway.database.reading() as session:
                await still(session, caller, reads=True)
        except ApiError:
            return False
        except STORAGE_FAULTS:
            # Nobody knows; what follows is asked for with the cookie, and refused there if it must be.
            return True
        return True


def event(kind: str, data: object) -> bytes:
    """Write an event of a stream."""
    return f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


async def _changed(watch: _Watch, told: object | None) -> None:
    try:
        async with asyncio.timeout(1), watch.changed:
            if watch.seen == told or watch.seen is None:
                await watch.changed.wait()
    except TimeoutError:
        return
