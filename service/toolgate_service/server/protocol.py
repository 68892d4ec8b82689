"""HTTP/1.1 protocol of uvicorn, extended by limits that uvicorn lacks.

uvicorn limits neither the number of connections, nor the size of a request head, nor the time in which a request must
arrive. If a limit is exceeded before the application has received the request, the protocol writes the error response
itself. If it is exceeded later, ASGI `receive` raises the error in the application, which sends the response.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any, cast

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from toolgate_service.core.errors import ApiError
from toolgate_service.core.ids import new_id
from toolgate_service.http.body_limit import CUT_SHORT, RECEIVED, too_large
from toolgate_service.http.request_head import announces_body, check_head
from toolgate_service.http.responses import APPEND_TO_HEAD, ResponseHeaders

MAX_HEAD = 64 * 1024
#: maximum size of a request in bytes, including chunk sizes and trailers
MAX_MESSAGE = 2 * 1024 * 1024
#: Maximum number of chunks in a body whose chunks are smaller than `SMALL_CHUNK` bytes on average. The limit exists
#: because a small chunk takes more time to parse than to send.
MAX_SMALL_CHUNKS = 4_000
SMALL_CHUNK = 8
#: seconds in which a client that is still sending its request can read the response, before the connection is closed
LINGER = 5.0
#: number of connections beyond the limit that receive a 503 response; further connections are reset
MAX_REFUSED = 64

#: Logger that omits warnings, so that invalid requests cannot fill the log. It is not a child of "uvicorn.error",
#: because uvicorn sets the level of that logger.
_logger = logging.getLogger("toolgate.gateway.connections")
_logger.setLevel(logging.ERROR)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of connections.

    Attributes:
        seconds: Maximum time for a request to arrive, and maximum time in which the client reads no response data.
        connections: Maximum number of open connections.
        headers: Headers of the error responses that the protocol writes itself.
    """

    seconds: float
    connections: int
    headers: ResponseHeaders


class GatewayProtocol(HttpToolsProtocol):
    """asyncio protocol for one client connection.

    It also serves as the asyncio transport to which uvicorn writes the responses of the connection.

    The server calls `enforce_timeouts` once a second, because a timer for each request would take more CPU time.
    """

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
        #: time (of the event loop) at which the request must be complete; None while the client waits for a response
        self._deadline: float | None = None
        #: time (of the event loop) since which the client has not read the response; None if the client reads it
        self._stalled_since: float | None = None
        self._in_head = True
        # For the request that is arriving: number of received bytes, number of chunks, and number of bytes in chunks.
        self._received = self._chunks = self._chunk_bytes = 0
        #: True if the connection stays open after the response to a completely received request
        self._keeps_alive = True
        self._response_head: bytes | None = None
        #: lines that the application adds to the head of its response
        self._added_lines = b""
        self._parse_error = "The request is not valid HTTP"
        #: True if further data from the client is discarded
        self._discards = False
        self._lingers = False
        self._shuts_down = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Accept the connection; send a 503 response or reset it if too many connections are open."""
        super().connection_made(transport)
        self._start_deadline()
        excess = len(self.connections) - self._limits.connections
        if excess > MAX_REFUSED:
            transport.abort()
        elif excess > 0:
            message = "The gateway has too many connections; retry after 1 second"
            self._refuse(ApiError(503, message, {"Retry-After": "1"}))

    def connection_lost(self, exc: Exception | None) -> None:
        """Keep a completely received body for the application. uvicorn would only report the disconnect."""
        cycle = self._request_in_progress()
        # `message_event` is set when data arrives, and cleared when the application reads the data. If it is set, the
        # application has therefore not read all data.
        if cycle is not None and not cycle.more_body and cycle.message_event.is_set():
            cast("dict[str, object]", cycle.scope)[RECEIVED] = bytes(cycle.body)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received data, and reject the request if its head or the whole request is too large."""
        if self._discards:
            return
        room = MAX_HEAD - self._received
        if self._in_head and len(data) > room > 0:
            # Parse the data in two steps, because the parser does not limit the size of a head: first the bytes that a
            # head may still have, after which the size is checked, and then the rest.
            self.data_received(data[:room])
            self.data_received(data[room:])
            return
        if self._deadline is None:
            self._start_deadline()
        self._received += len(data)
        super().data_received(data)
        self._check_size()

    def _check_size(self) -> None:
        if self._discards:
            return
        if self._in_head and self._received >= MAX_HEAD:
            self._refuse(
                ApiError(
                    431,
                    f"The request line and the headers are larger than {MAX_HEAD} bytes; send fewer or shorter headers",
                )
            )
        elif self._received > MAX_MESSAGE and not self._in_head:
            self._refuse(too_large())

    def on_headers_complete(self) -> None:
        """Validate the head and start the request.

        Raises:
            ValueError: The head is ambiguous, or a request with a body asks for an upgrade; the response is 400.
        """
        check_head(self.parser.get_http_version(), self.url, self.headers)
        if self.parser.should_upgrade() and announces_body(self.headers):
            self._parse_error = (
                "The gateway does not support other protocols; send the request without the Upgrade header"
            )
            raise ValueError(self._parse_error)
        super().on_headers_complete()
        self._in_head = False
        # Set `keep_alive` to False until the whole body has arrived, so that an earlier response closes the connection:
        # parsing the rest of the body would take more time than a new connection.
        self._keeps_alive, self.cycle.keep_alive = self.cycle.keep_alive, False
        # The parser appends trailers (fields after the body) to `self.headers`. Assign a new list, so that trailers do
        # not become headers of the request, because a proxy may not have checked them.
        self.headers = []
        self.cycle.transport = cast("asyncio.Transport", self)
        cast("dict[str, object]", self.cycle.scope)[APPEND_TO_HEAD] = self._append_to_head

    def on_body(self, body: bytes) -> None:
        """Add a part of the request body.

        Raises:
            ValueError: The body has too many small chunks; the response is 400.
        """
        self._chunks += 1
        self._chunk_bytes += len(body)
        if self._chunks > MAX_SMALL_CHUNKS and self._chunk_bytes < SMALL_CHUNK * self._chunks:
            self._parse_error = (
                f"The body has more than {MAX_SMALL_CHUNKS:,} chunks of fewer than {SMALL_CHUNK} bytes on average; "
                "send larger chunks"
            )
            raise ValueError(self._parse_error)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Mark the request as completely received; further data belongs to the next request."""
        super().on_message_complete()
        if not self.cycle.response_started:
            self.cycle.keep_alive = self._keeps_alive
        self._deadline = None
        self._in_head = True
        self._received = self._chunks = self._chunk_bytes = 0

    def on_response_complete(self) -> None:
        """Continue with the next request, unless the connection is closing."""
        if self._lingers:
            self.flow.resume_reading()
            return
        if self._deadline is not None and self.pipeline:
            # Restart the deadline of the next request, because reading was paused while that request was queued.
            self._start_deadline()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's signature
        """Send a 400 response to a request that cannot be parsed."""
        self._refuse(ApiError(400, self._parse_error))

    def _unsupported_upgrade_warning(self) -> None:
        # The client asked for a protocol upgrade, at which the parser stops. Do not parse further data as requests.
        self._discards = True
        self.cycle.keep_alive = False

    def pause_writing(self) -> None:
        """Record the time at which the client stopped reading the response."""
        super().pause_writing()
        self._stalled_since = self.loop.time()

    def resume_writing(self) -> None:
        """Record that the client reads the response again."""
        super().resume_writing()
        self._stalled_since = None

    def shutdown(self) -> None:
        """Close the connection. If a request is in progress or has begun to arrive, wait for its response first."""
        self._shuts_down = True
        if self._request_in_progress() is not None:
            self._keeps_alive = self.cycle.keep_alive = False
        elif self._lingers or not self._received:
            self.transport.close()

    def enforce_timeouts(self, now: float) -> None:
        """Abort the connection or reject the request if the client has exceeded a time limit."""
        if self._stalled_since is not None and now > self._stalled_since + self._limits.seconds:
            self.transport.abort()
        elif self._deadline is None:
            if self.transport.is_closing():
                # Limit the time for closing, because the client may never read the rest of the response.
                self._start_deadline()
        elif now > self._deadline:
            self._time_out()

    def _time_out(self) -> None:
        cycle = self._request_in_progress()
        if self._lingers or self.transport.is_closing():
            self.transport.abort()
        elif cycle is None:
            # Close without a response. The client has not sent a complete head, and could mistake the response for the
            # response to its next request.
            self.transport.close()
        elif (
            self._in_head
            or self._discards
            or cycle.response_started
            or self.pipeline
            or self.flow.read_paused
        ):
            # The client is not too slow, because it waits for the gateway. Start a new deadline.
            self._start_deadline()
        else:
            self._refuse(ApiError(408, f"The request did not arrive within {self._limits.seconds:g} seconds"))

    def _refuse(self, error: ApiError) -> None:
        """Respond with an error to the arriving request, if possible, and discard all further requests."""
        self._discards = True
        cycle = self._request_in_progress()
        if cycle is None:
            if self._in_head:
                self.transport.write(self._limits.headers.answer(error, new_id()))
            self._start_deadline()
            self.close()
            return
        cycle.keep_alive = False
        if not (self._in_head or cycle.response_started):
            cast("dict[str, object]", cycle.scope)[CUT_SHORT] = error
            cycle.message_event.set()

    def _request_in_progress(self) -> RequestResponseCycle | None:
        """Return the newest request if its response is not complete."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return None if cycle is None or cycle.response_complete else cycle

    def _start_deadline(self) -> None:
        self._deadline = self.loop.time() + self._limits.seconds

    def _append_to_head(self, lines: bytes) -> None:
        """Add complete header lines to the head of the response that the application starts now."""
        self._added_lines = lines

    # A request sends its response through the following methods of `asyncio.Transport`.

    def write(self, data: bytes) -> None:
        """Send data, unless the connection was aborted.

        uvicorn writes the head and the body of a response separately. This method sends both in one system call, which
        saves a tenth of the time of a check.
        """
        if self.transport.is_closing():
            return
        if self._response_head is not None:
            head, self._response_head = self._response_head, None
            self.transport.writelines((head, data))
        elif data[-4:] == b"\r\n\r\n" and data[:5] == b"HTTP/":
            if self._added_lines:
                data, self._added_lines = b"%b%b\r\n" % (data[:-2], self._added_lines), b""
            self._response_head = data
            self.loop.call_soon(self._flush)
        else:
            self.transport.write(data)

    def _flush(self) -> None:
        if self._response_head is not None:
            self.write(b"")

    def is_closing(self) -> bool:
        """Return whether the transport is closing or closed; not yet while `close` waits for the rest of a request."""
        return self.transport.is_closing()

    def close(self) -> None:
        """Close the connection.

        If the request is still arriving, wait first, so that the client can read the response (RFC 9112 §9.6).
        """
        self._flush()
        if self._deadline is None or self._shuts_down or not self.transport.can_write_eof():
            self.transport.close()
        elif not self._lingers:
            self._discards = self._lingers = True
            self._deadline = self.loop.time() + LINGER
            self.transport.write_eof()
