"""Connections that nobody can hold, flood or cut a request off on: uvicorn's protocol with limits of our own.

uvicorn waits for ever for a request that drips, and keeps a head of any length in memory. Here a request has a time to
arrive in whole and a size, and there are so many connections at once. What may be answered is answered, by the
application itself where it has the request already: it finds the refusal where it waits for the body.
"""

import asyncio
import logging
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from toolgate_service.errors import ApiError
from toolgate_service.ids import new_id
from toolgate_service.web.headers import AnswerHeaders, RawHeader
from toolgate_service.web.request_head import check_head
from toolgate_service.web.sizes import CUT_SHORT, too_large
from toolgate_service.web.unread import has_bytes

MAX_HEAD = 64 * 1024
#: bytes of a request with the framing of its chunks
MAX_MESSAGE = 2 * 1024 * 1024
#: chunks of a body whose average is below `SMALL_CHUNK` bytes: parsing a chunk costs more than sending it
MAX_SMALL_CHUNKS = 4_000
SMALL_CHUNK = 8
#: seconds in which a client may still read the answer to a request that was not taken in whole
LINGER = 5.0
#: seconds in which whoever has connected may still begin a first request when the gateway ends
FIRST_REQUEST = 1.0
#: connections beyond the limit that are told why they are refused
TOLD = 64
#: with it a server says that it takes no further request on a connection
CLOSE: RawHeader = (b"connection", b"close")

#: files that the gateway needs beside its connections
OWN_FILES = 100

#: Whoever sends nonsense must not fill the operator's disk with warnings about it. Not below "uvicorn.error": what
#: stands there loses its level when uvicorn sets up its own.
_logger = logging.getLogger("toolgate.gateway.connections")
_logger.setLevel(logging.ERROR)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a connection may take.

    Attributes:
        seconds: for a request to arrive, for an answer to be fetched, for an idle connection to stay.
        connections: at once.
        headers: completes the answers that are given here.
    """

    seconds: float
    connections: int
    headers: AnswerHeaders


class Connection(HttpToolsProtocol):
    """One connection. `look` must be called every second or so: a timer for each request would cost more."""

    def __init__(
        self,
        limits: Limits,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.logger = _logger
        self._limits = limits
        #: when the client must have done what it is waited for; None while it waits for us
        self._deadline: float | None = None
        self._in_head = True
        #: bytes of the request that is coming in
        self._taken = 0
        self._chunks = self._chunked = 0
        #: whether the connection stays open after the answer, once the request is whole
        self._keeps_alive = True
        self._malformed = "The request is not valid HTTP"
        #: the client may wait for as long as it may take for a request
        self._resting = False
        #: nothing that comes is taken any more
        self._deaf = False
        self._lingering = False
        #: since when the client does not fetch its answer
        self._stalled: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn narrows it
        """Begin to wait for a request, unless there are too many connections."""
        super().connection_made(transport)
        self._answering = _Answering(self)
        self._wait()
        beyond = len(self.connections) - self._limits.connections
        if beyond > TOLD:
            transport.abort()
        elif beyond > 0:
            message = "The gateway has too many connections; retry after 1 second"
            self._refuse(ApiError(503, message, {"Retry-After": "1"}))

    def data_received(self, data: bytes) -> None:
        """Take what has come, as far as the limits go."""
        if self._deaf:
            return
        if self._deadline is None or self._resting:
            self._wait()
        room = MAX_HEAD - self._taken
        self._taken += len(data)
        if self._in_head and len(data) > room:
            super().data_received(data[:room])
            if self._head_is_too_long():
                self._refuse(ApiError(431, f"The request's head is larger than {MAX_HEAD} bytes"))
            if self._has_ended():
                return
            data = data[room:]
        super().data_received(data)
        if self._taken > MAX_MESSAGE and not self._in_head and not self._has_ended():
            self._refuse(too_large())

    def on_headers_complete(self) -> None:
        """Hand the request to the application.

        Raises:
            ValueError: the head is ambiguous; the parser makes a 400 of it.
        """
        self.check_head()
        self.begin_request()

    def check_head(self) -> None:
        """Refuse an ambiguous head.

        Raises:
            ValueError: as for `request_head.check_head`.
        """
        check_head(self.parser.get_http_version(), self.url, self.headers)

    def begin_request(self) -> None:
        """Hand a request whose head was checked to the application."""
        super().on_headers_complete()
        self._in_head = False
        # An answer before the whole body ends the connection: parsing the rest costs more than a new one.
        self._keeps_alive, self.cycle.keep_alive = self.cycle.keep_alive, False
        # What follows are trailers: they are no headers, and a proxy may not have looked at them.
        self.headers = []
        self.cycle.transport = self._answering

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self.count_chunk(body)
        self.take_body(body)

    def take_body(self, body: bytes) -> None:
        """Hand a part of the body, already counted, to the application."""
        super().on_body(body)

    def count_chunk(self, body: bytes) -> None:
        """Refuse a body in a great number of tiny chunks.

        Raises:
            ValueError: there are too many; the parser makes a 400 of it.
        """
        self._chunks += 1
        self._chunked += len(body)
        if self._chunks > MAX_SMALL_CHUNKS and self._chunked < SMALL_CHUNK * self._chunks:
            self._malformed = (
                f"The body has more than {MAX_SMALL_CHUNKS:,} chunks of fewer than {SMALL_CHUNK} bytes on average; "
                "send larger chunks"
            )
            raise ValueError(self._malformed)

    def on_message_complete(self) -> None:
        """Wait for nothing any more: the request is whole."""
        super().on_message_complete()
        if not self.cycle.response_started:
            self.cycle.keep_alive = self._keeps_alive
        self._has_all()

    def on_response_complete(self) -> None:
        """Go on to the next request, unless this was the last."""
        if self._lingering:
            self.server_state.total_requests += 1
            self.flow.resume_reading()
            return
        if self._deadline is not None and self.pipeline:
            # While the next request was queued, the gateway did not read on: its time begins now.
            self._wait()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's signature
        """Answer what is not HTTP."""
        self._refuse(ApiError(400, self._malformed))

    def _unsupported_upgrade_warning(self) -> None:
        # The parser has stopped: what follows, a body perhaps, is not read and must not pass for the next request.
        self._deaf = True
        self.cycle.keep_alive = False
        if _announces_body(self.cycle.scope["headers"]):
            _cut(
                self.cycle,
                ApiError(
                    400, "The gateway upgrades no connection; send the request without the Upgrade header"
                ),
            )

    def pause_writing(self) -> None:
        """Remember that the client does not fetch its answer."""
        super().pause_writing()
        self._stalled = self.loop.time()

    def resume_writing(self) -> None:
        """The client fetches its answer."""
        super().resume_writing()
        self._stalled = None

    def look(self, now: float) -> None:
        """End the connection, or the request that is coming in, if the client has taken too long."""
        if self._stalled is not None and now > self._stalled + self._limits.seconds:
            self.transport.abort()
        elif self._deadline is None:
            if self.transport.is_closing():
                # The last bytes of an answer that nobody fetches.
                self._wait()
        elif now > self._deadline:
            self._too_late()

    def close_after_answer(self) -> None:
        """Close; if the request is still coming in, only after the client could read the answer (RFC 9112 §9.6)."""
        if self._deadline is None or not self.transport.can_write_eof():
            self.transport.close()
        elif not self._lingering:
            self._deaf = self._lingering = True
            self._deadline = self.loop.time() + LINGER
            self.transport.write_eof()

    def answer_last(self) -> None:
        """Take no request after the one that is under way; where none is, the next one's answer says so by itself."""
        cycle = self._under_way()
        if cycle is not None:
            self._keeps_alive = cycle.keep_alive = False

    def shutdown(self) -> None:
        """Close, unless a request is under way or has begun to arrive: then its answer is the last. May be asked again."""
        if self._lingering:
            self.transport.close()
        elif self._under_way() is not None:
            self.answer_last()
        elif self.transport.is_closing():
            return
        elif self._in_head and not self._taken and not self._may_still_ask():
            self.transport.close()

    def _may_still_ask(self) -> bool:
        if _none_yet(self.cycle) and not self._resting and self._deadline is not None:
            began = self._deadline - self._limits.seconds
            if self.loop.time() < began + FIRST_REQUEST:
                return True
        # What has reached this machine but not the loop is a request that somebody waits for.
        return has_bytes(self.transport.get_extra_info("socket").fileno())

    def _too_late(self) -> None:
        cycle = self._under_way()
        if self._lingering or self.transport.is_closing():
            self.transport.abort()
        elif cycle is None:
            # Nobody could tell an answer to half a head from the answer to the next request.
            self.transport.close()
        elif self._in_head or self._deaf or cycle.response_started or self.pipeline or self.flow.read_paused:
            # Now it is the client that waits for us.
            self._wait()
        else:
            self._refuse(ApiError(408, f"The request did not arrive within {self._limits.seconds:g} seconds"))

    def _refuse(self, error: ApiError) -> None:
        """Answer the request that is coming in with an error, if it can still be answered, and take no further one."""
        self._deaf = True
        cycle = self._under_way()
        if cycle is None:
            if self._in_head:
                self.transport.write(self._limits.headers.answer(error, new_id()))
            self._wait()
            self.close_after_answer()
            return
        cycle.keep_alive = False
        if not (self._in_head or cycle.response_started):
            _cut(cycle, error)
            cycle.message_event.set()

    def _head_is_too_long(self) -> bool:
        return self._in_head and self._taken > MAX_HEAD and not self._has_ended()

    def _has_ended(self) -> bool:
        return self._deaf or self.transport.is_closing()

    def _under_way(self) -> RequestResponseCycle | None:
        """Return the newest request that has not been answered."""
        return None if _none_yet(self.cycle) or self.cycle.response_complete else self.cycle

    def _has_all(self) -> None:
        """The client waits for us, and what it may send meanwhile is the next request."""
        self._deadline = None
        self._in_head = True
        self._taken = self._chunks = self._chunked = 0

    def _wait(self) -> None:
        self._resting = False
        self._deadline = self.loop.time() + self._limits.seconds

    def _rest(self) -> None:
        """Be ready for the next request, for as long as a connection may be idle."""
        self._wait()
        self._resting = self._in_head = True
        self._taken = self._chunks = self._chunked = 0


class _Answering(asyncio.Transport):
    """The transport as an answer sees it: closing it lets the client read the answer first."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self._transport = connection.transport

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        # After an abort uvicorn hears of the end a moment later, and the transport takes nothing.
        if not self._transport.is_closing():
            self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._connection.close_after_answer()


def look_after(connections: Iterable[object], now: float) -> None:
    """Have every connection end what takes too long."""
    # A list: a connection that ends leaves the set.
    for connection in list(connections):
        if isinstance(connection, Connection):
            connection.look(now)


def room_for(connections: int) -> int:
    """Ask the operating system for so many open files; return how many connections they are enough for."""
    if sys.platform == "win32":
        return connections
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + TOLD + OWN_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < wanted:
            connections = max(1, soft - TOLD - OWN_FILES)
            _logger.error(
                "The operating system allows so many open files that %d connections fit", connections
            )
    return connections


def _none_yet(cycle: RequestResponseCycle | None) -> bool:
    # uvicorn's types do not know that there is none before the first request.
    return cycle is None


def _cut(cycle: RequestResponseCycle, error: ApiError) -> None:
    # A key of our own in uvicorn's scope: the edge finds it where the application waits for the body.
    cast("dict[str, object]", cycle.scope)[CUT_SHORT] = error


def _announces_body(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0"))
        for name, value in headers
    )
