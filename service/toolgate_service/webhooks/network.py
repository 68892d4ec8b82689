"""Connecting for webhooks: the name is resolved once, every address is judged, and the one connected to again.

Whoever judges a name and lets a library connect to that name resolves it twice, and the second answer may be 127.0.0.1.
"""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

import httpcore

from toolgate_service.webhooks.addresses import may_reach
from toolgate_service.webhooks.measured import MeasuredStream

#: returns the addresses of a host
Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

#: Look-ups of names at once. One that nobody waits for any longer goes on until the system gives it up.
LOOKUPS = 128
#: seconds for each of a host's addresses, so that a dead one leaves time for the next
EACH = 4


class Refused(Exception):
    """A webhook may not go there; the message is for the webhook's owner, and names no address."""


class Unresolved(Exception):
    """The host's name leads nowhere; the message is for the webhook's owner."""


class SystemResolver:
    """Resolves names as the system does, each look-up on a thread of its own.

    Not in a pool: a name server that does not answer holds its thread for half a minute, and a few of those would
    keep everybody else waiting, and the gateway from ending.
    """

    def __init__(self) -> None:
        self._running = 0

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Return a host's addresses.

        Raises:
            Unresolved: it has none, or too many names are being looked up.
        """
        if self._running >= LOOKUPS:
            raise Unresolved("too many names are being resolved at the same time")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Sequence[str]] = loop.create_future()

        def finish(found: Sequence[str] | None) -> None:
            self._running -= 1
            if future.done():
                return
            if found is None:
                future.set_exception(Unresolved("the host's name could not be resolved"))
            else:
                future.set_result(found)

        def look_up() -> None:
            try:
                rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                found = list(dict.fromkeys(str(row[4][0]) for row in rows))
            except (OSError, UnicodeError):
                found = None
            try:
                loop.call_soon_threadsafe(finish, found)
            except RuntimeError:
                # The gateway has ended meanwhile.
                return

        self._running += 1
        threading.Thread(target=look_up, daemon=True, name="webhook-lookup").start()
        return await future


class JudgedNetwork(httpcore.AsyncNetworkBackend):
    """Connects only to addresses that webhooks may reach.

    Args:
        resolve: tells a host's addresses.
        allow_private: whether the operator allows private addresses.
        inner: makes the connection, to an address and never to a name.
    """

    def __init__(
        self, resolve: Resolver, *, allow_private: bool, inner: httpcore.AsyncNetworkBackend | None = None
    ) -> None:
        self._resolve = resolve
        self._allow_private = allow_private
        self._inner = inner or httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first of a host's addresses that answers, if webhooks may reach all of them.

        Raises:
            Refused: they may not.
            Unresolved: the host has no address.
            httpcore.ConnectError: none answers.
        """
        addresses = await self._resolve(host, port)
        if not addresses:
            raise Unresolved("the host's name could not be resolved")
        # All of them: who mixes a private address in wants it to be tried some time.
        for address in addresses:
            self._judge(address)
        failed: Exception = httpcore.ConnectError("no address answered")
        for address in addresses:
            try:
                stream = await self._inner.connect_tcp(
                    address, port, min(timeout or EACH, EACH), local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
                continue
            return await self._judged(stream)
        raise failed

    async def connect_unix_socket(
        self,
        path: str,  # noqa: ARG002 - httpcore's signature
        timeout: float | None = None,  # noqa: ARG002, ASYNC109 - likewise
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,  # noqa: ARG002 - likewise
    ) -> httpcore.AsyncNetworkStream:
        """Refuse.

        Raises:
            Refused: always.
        """
        raise Refused("webhooks reach no local sockets")

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def _judged(self, stream: httpcore.AsyncNetworkStream) -> httpcore.AsyncNetworkStream:
        # What the kernel says, whatever we asked it for.
        try:
            peer = stream.get_extra_info("server_addr")
            self._judge(str(peer[0]) if peer else "")
        except BaseException:
            await stream.aclose()
            raise
        return MeasuredStream(stream)

    def _judge(self, address: str) -> None:
        if not may_reach(address, allow_private=self._allow_private):
            raise Refused("the host's address is not public, and webhooks may not reach it")
