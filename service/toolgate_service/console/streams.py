"""Server-sent events with which the gateway updates open console pages.

The gateway polls the database, so that it also finds changes by other gateways. Pages that show the same data share one
poll. The gateways announce some changes to each other, for example those of approval requests. Each announcement
triggers a poll, so this data is otherwise polled less often.
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

from toolgate_service.accounts.sessions import Caller, ensure_session_valid
from toolgate_service.core.errors import ApiError
from toolgate_service.db.health import STORAGE_FAULTS
from toolgate_service.gateway import Gateway

logger = logging.getLogger("toolgate.gateway")

#: Seconds between two polls of data whose changes the gateways do not announce to each other.
POLL_INTERVAL = 0.4
#: Maximum seconds between two polls of data whose changes the gateways announce to each other. Polling finds changes
#: whose announcement was lost.
FALLBACK_POLL_INTERVAL = 2.0
#: Seconds between an announcement and the poll that it triggers. Because of the delay, one poll finds several changes
#: that occur together.
DEBOUNCE = 0.05
#: Seconds between two checks that the session of the page's user is still valid.
SESSION_CHECK_INTERVAL = 3.0
#: Seconds without an event after which the gateway sends a comment line, so that it notices a closed connection.
HEARTBEAT_INTERVAL = 10.0
#: Maximum number of event streams that one user can have open at this gateway process.
MAX_STREAMS_PER_USER = 30

EVENT_STREAM = "text/event-stream"
#: Response headers of an event stream. `X-Accel-Buffering` prevents proxies such as nginx from holding back events.
STREAM_HEADERS: Mapping[str, str] = MappingProxyType({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})

#: Function that reads the current state from the database. Its arguments are the session, the organization id and the
#: environment. Open pages receive an event when the state differs from the previous poll.
Poll: TypeAlias = Callable[[AsyncSession, str, str], Awaitable[object]]
#: Function that creates the event for one page from the polled state, or returns None if the page needs no event.
MakeEvent: TypeAlias = Callable[[Any], Awaitable[bytes | None]]
#: Key under which pages share polls: the poll function, the organization id and the environment.
Topic: TypeAlias = tuple[Poll, str, str]


class _Subscription:
    """State that pages with the same `Topic` share. The gateway polls it while at least one page is subscribed."""

    def __init__(self) -> None:
        self.state: object | None = None
        self.changed = asyncio.Condition()
        self.listeners = 0
        self.task: asyncio.Task[None] | None = None


class EventStreams:
    """Event streams from this gateway process to all open console pages."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._subscriptions: dict[Topic, _Subscription] = {}
        self._open_streams: dict[str, int] = {}

    async def subscribe(
        self,
        caller: Caller,
        environment: str,
        poll: Poll,
        make_event: MakeEvent,
        *,
        announced: bool = False,
    ) -> AsyncGenerator[bytes]:
        """Yield the events for one page until the user's session ends or the gateway stops.

        Args:
            caller: The user who has opened the page.
            environment: Environment that the page shows: ``production`` or ``test``.
            poll: Function that reads the state. All pages that pass the same function share its polls.
            make_event: Function that creates this page's event from the state.
            announced: True if gateways announce changes of the state to each other, as they do for approval requests.

        Raises:
            ApiError: 429 before the first event if the user has too many open streams.
        """
        loop = asyncio.get_running_loop()
        open_streams = self._open_streams.get(caller.user_id, 0)
        if open_streams >= MAX_STREAMS_PER_USER:
            raise ApiError(
                429,
                "You have too many pages of the console open; close some of them, then reload this page",
                {"Retry-After": "5"},
            )
        self._open_streams[caller.user_id] = open_streams + 1
        try:
            topic = (poll, caller.organization_id, environment)
            async with self._subscribed(topic, announced=announced) as subscription:
                sent: object | None = None
                session_checked = last_sent = loop.time()
                yield b"retry: 2000\n\n"
                while not self._gateway.notifier.closed:
                    if loop.time() >= session_checked + SESSION_CHECK_INTERVAL:
                        session_checked = loop.time()
                        if not await self._is_session_valid(caller):
                            yield format_event("ended", {})
                            return
                    if subscription.state is not None and subscription.state != sent:
                        sent = subscription.state
                        event = await make_event(sent)
                        if event is not None:
                            last_sent = loop.time()
                            yield event
                    elif loop.time() >= last_sent + HEARTBEAT_INTERVAL:
                        last_sent = loop.time()
                        yield b": here\n\n"
                    await _wait_for_change(subscription, sent)
        finally:
            self._open_streams[caller.user_id] -= 1
            if not self._open_streams[caller.user_id]:
                del self._open_streams[caller.user_id]

    @asynccontextmanager
    async def _subscribed(self, topic: Topic, *, announced: bool) -> AsyncIterator[_Subscription]:
        subscription = self._subscriptions.setdefault(topic, _Subscription())
        subscription.listeners += 1
        if subscription.task is None:
            subscription.task = asyncio.create_task(
                self._keep_polling(topic, subscription, announced=announced)
            )
        try:
            yield subscription
        finally:
            subscription.listeners -= 1
            if not subscription.listeners:
                del self._subscriptions[topic]
                subscription.task.cancel()

    async def _keep_polling(self, topic: Topic, subscription: _Subscription, *, announced: bool) -> None:
        _, organization_id, _ = topic
        notifier = self._gateway.notifier
        with notifier.watch_organization(organization_id) as announcement:
            while not notifier.closed:
                # Clear the announcement before the poll, so that a change during the poll causes another poll.
                announcement.clear()
                await self._poll(topic, subscription)
                if not announced:
                    await asyncio.sleep(POLL_INTERVAL)
                    continue
                interval = FALLBACK_POLL_INTERVAL if notifier.receives_remote else POLL_INTERVAL
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(announcement.wait(), interval)
                    await asyncio.sleep(DEBOUNCE)
        # The gateway is stopping. Wake up all event streams: they then end, and the browsers reconnect to another
        # gateway.
        async with subscription.changed:
            subscription.changed.notify_all()

    async def _poll(self, topic: Topic, subscription: _Subscription) -> None:
        poll, organization_id, environment = topic
        try:
            async with self._gateway.database.reading() as session:
                state = await poll(session, organization_id, environment)
        except STORAGE_FAULTS as error:
            # During a database outage, pages receive no events and keep the last state.
            logger.warning(
                "cannot update open console pages, because the database is unavailable: %s",
                type(error).__name__,
            )
        else:
            if state != subscription.state:
                async with subscription.changed:
                    subscription.state = state
                    subscription.changed.notify_all()

    async def _is_session_valid(self, caller: Caller) -> bool:
        try:
            async with self._gateway.database.reading() as session:
                await ensure_session_valid(session, caller, reads=True)
        except ApiError:
            return False
        except STORAGE_FAULTS:
            # The database is unavailable. Keep the event stream open: it sends no data during the outage, and the
            # session is checked again later.
            return True
        return True


def format_event(kind: str, data: object) -> bytes:
    """Return a server-sent event as bytes. `kind` is the type of the event, and `data` is sent as JSON."""
    return f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


async def _wait_for_change(subscription: _Subscription, sent: object | None) -> None:
    try:
        async with asyncio.timeout(1), subscription.changed:
            if subscription.state == sent or subscription.state is None:
                await subscription.changed.wait()
    except TimeoutError:
        return
