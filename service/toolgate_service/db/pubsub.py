"""Notifications between gateways with LISTEN and NOTIFY of PostgreSQL.

PostgreSQL sends a notification when the transaction is committed. A notification contains only its kind and
identifiers; the receiver reads the change from the database. With SQLite there is only one gateway, so no notifications
are sent.
"""

import asyncio
import contextlib
import logging
import random
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy.orm import Session
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.core.concurrency import Notifier

if TYPE_CHECKING:
    from toolgate_service.db.postgres import PostgresDatabase

logger = logging.getLogger("toolgate.gateway")

#: name of the PostgreSQL channel for the notifications
CHANNEL = "toolgate"

#: kind of notification: an approval request was created, voted on or decided; the arguments are the ids of the
#: organization and of the request
APPROVAL = "approval"
#: kind of notification: webhook events are due for delivery
EVENTS = "events"

#: seconds between two keepalive notifications that the listener sends to itself
KEEPALIVE = 3.0
#: seconds within which the listener must receive its own keepalive notification
ECHO = 2.0
#: initial backoff in seconds before a reconnect; each failure doubles it
FIRST_PAUSE = 0.1
#: maximum backoff in seconds before a reconnect
LONGEST_PAUSE = 30.0

_PENDING = "toolgate.notifications"
_AnySession: TypeAlias = Session | AsyncSession


def announce(session: _AnySession, *parts: str) -> None:
    """Add a notification that is sent when the write transaction of the session is committed.

    The first part is the kind of the notification. The other parts are identifiers without spaces. Duplicates are sent
    only once.
    """
    session.info.setdefault(_PENDING, {})[" ".join(parts)] = None


def pending_notifications(session: _AnySession) -> Sequence[str]:
    """Return the notifications that must be sent when the transaction of the session is committed."""
    return list(session.info.get(_PENDING, ()))


class NotificationHandler:
    """Handler for notifications from other gateways.

    It wakes the HTTP requests and console pages that wait for a change, and the delivery of webhook events.
    """

    def __init__(self, notifier: Notifier, wake_webhooks: Callable[[], None]) -> None:
        self._notifier = notifier
        self._wake_webhooks = wake_webhooks

    def on_notify(self, notification: str) -> None:
        """Handle a notification. Unknown kinds are ignored, because gateways of newer versions may send them."""
        match notification.split(" "):
            case [kind, organization_id, approval_id] if kind == APPROVAL:
                self._notifier.notify_organization(organization_id, approval_id)
            case [kind] if kind == EVENTS:
                self._wake_webhooks()

    def on_connection_change(self, is_connected: bool) -> None:  # noqa: FBT001 - the only argument of a callback
        """Store whether notifications arrive, and wake all waiting requests, pages and webhook deliveries.

        They must read the current state, because notifications may have been lost.
        """
        self._notifier.receives_remote = is_connected
        self._notifier.notify_all()
        self._wake_webhooks()


class Listener:
    """Receiver of notifications. It uses a separate connection, and reconnects when the connection is lost.

    A broken connection may cause no error. The listener therefore regularly sends a notification to itself, and
    reconnects if it does not receive this notification. This also detects a connection pooler that switches the server
    process of a client.

    The listener calls `on_notify` with each notification, on the event loop. It calls `on_connection_change` with True
    after connecting, and with False after losing the connection. In both cases, notifications may have been lost.
    """

    def __init__(
        self,
        database: "PostgresDatabase",
        on_notify: Callable[[str], None],
        on_connection_change: Callable[[bool], None],
    ) -> None:
        self._database = database
        self._on_notify = on_notify
        self._on_connection_change = on_connection_change
        self._is_connected = False
        self._is_logged = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the background task that connects and listens."""
        self._task = asyncio.create_task(self._run())

    @property
    def is_connected(self) -> bool:
        """True while the connection works, so that notifications from other gateways arrive."""
        return self._is_connected

    async def stop(self) -> None:
        """Stop the background task and close its connection."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        # Import the module here, because the PostgreSQL driver is an optional dependency.
        from toolgate_service.db.postgres_connection import DRIVER_FAULTS

        pause = FIRST_PAUSE
        while True:
            try:
                await self._listen()
            except DRIVER_FAULTS as error:
                self._log_failure(type(error).__name__)
            except Exception:
                logger.exception("cannot receive notifications from other gateways; the gateway tries again")
            if self._is_connected:
                pause = FIRST_PAUSE
                self._set_connected(connected=False)
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - random jitter, not cryptography
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _listen(self) -> None:
        """Connect and receive notifications until the connection is lost.

        Raises:
            OSError: The connection was lost, or the listener did not receive its own keepalive notification in time.
        """
        from toolgate_service.db.postgres_connection import COMMIT_FROM_MEMORY

        # Commit a keepalive notification without waiting for the disk, because it may be lost if the server crashes.
        keepalive = f"SELECT pg_notify($1, '') WHERE {COMMIT_FROM_MEMORY}"
        connection = await self._database.connect()
        try:
            lost, echo = asyncio.Event(), asyncio.Event()
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(CHANNEL, lambda *notice: self._on_notify(str(notice[-1])))
            own_channel = f"{CHANNEL}_{secrets.token_hex(8)}"
            await connection.add_listener(own_channel, lambda *_: echo.set())
            while True:
                echo.clear()
                async with asyncio.timeout(ECHO):
                    await connection.execute(keepalive, own_channel)
                    await echo.wait()
                if not self._is_connected:
                    self._set_connected(connected=True)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(lost.wait(), KEEPALIVE)
                    raise ConnectionResetError("the connection has ended")
        finally:
            connection.terminate()

    def _set_connected(self, *, connected: bool) -> None:
        self._is_connected = connected
        if connected and self._is_logged:
            self._is_logged = False
            logger.info("notifications from other gateways arrive again")
        self._on_connection_change(connected)

    def _log_failure(self, reason: str) -> None:
        if not self._is_logged:
            self._is_logged = True
            logger.warning(
                "notifications from other gateways do not arrive (%s); until they do, waiting requests query the database regularly",
                reason,
            )
