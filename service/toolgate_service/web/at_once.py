"""Connections that take some requests the moment they have arrived.

What a server spends on a request — a task, an event, a queue of messages, the headers looked through once more — is more
than a check itself costs. A request that came whole in one piece, behind no other, may be answered without them; one that
cannot be goes on as if nobody had looked.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from toolgate_service.web.connections import CLOSE, Connection, Limits
from toolgate_service.web.headers import RawHeader
from toolgate_service.web.parsing import MAX_ON_LOOP

if TYPE_CHECKING:
    from uvicorn._types import HTTPScope

#: an answer: its status, and its headers and body but for what the server says in all of them
Written: TypeAlias = tuple[int, bytes]
#: what the usual way is to find in the scope of a request that begins to go it late
Found: TypeAlias = Mapping[str, object]
#: an answer that is given when a future is done; or what was found, and the request goes the usual way after all
Later: TypeAlias = tuple[asyncio.Future[Any], Callable[[], Written | Found]]
#: address and port
Peer: TypeAlias = tuple[str, int] | None
#: given a request's headers and body and its sender; None for what must go the usual way
Immediate: TypeAlias = Callable[[Sequence[RawHeader], bytes, Peer], Written | Later | None]

_STATUS_LINES: dict[int, bytes] = {
    status: f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode() for status in HTTPStatus
}


class _Promised:
    """What uvicorn is shown in place of a request that is answered later: it lets the next ones wait."""

    def __init__(self) -> None:
        self.scope: dict[str, object] = {}
        self.message_event = asyncio.Event()
        # The answer is written in one piece: nothing can be put in its place any more.
        self.response_started = True
        self.response_complete = False
        self.keep_alive = True
        self.disconnected = False


class QuickConnection(Connection):
    """One connection.

    Args:
        quick: who may answer at once, by path.
        limits: as of every connection.
    """

    def __init__(
        self,
        quick: Mapping[bytes, Immediate],
        limits: Limits,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(limits, config, server_state, app_state, _loop)
        self._quick = quick
        #: the body so far of a request that nobody else has heard of, its headers, and who may answer it
        self._kept: bytes | None = None
        self._head: list[RawHeader] = []
        self._immediate: Immediate | None = None

    def data_received(self, data: bytes) -> None:
        """Take what has come; what is not whole by now goes the usual way."""
        super().data_received(data)
        if self._kept is not None:
            self._hand_over()

    def on_headers_complete(self) -> None:
        """Keep the request for a moment if it may be answered at once."""
        self.check_head()
        self._immediate = self._quick.get(self.url)
        if self._immediate is not None and self._is_plain():
            self._kept = b""
            self._in_head = False
            # What follows are trailers: they are no headers.
            self._head, self.headers = self.headers, []
        else:
            self.begin_request()

    def on_body(self, body: bytes) -> None:
        """Gather the body."""
        if self._kept is None:
            super().on_body(body)
        else:
            self.count_chunk(body)
            self._kept += body
            if len(self._kept) > MAX_ON_LOOP:
                # Authenticated by its headers before any of it is parsed, and then in a thread.
                self._hand_over()

    def on_message_complete(self) -> None:
        """Answer, promise an answer, or let others do so."""
        if self._kept is None or self._immediate is None:
            super().on_message_complete()
            return
        found = self._immediate(self._head, self._kept, self.client)
        if found is None:
            self._hand_over()
            super().on_message_complete()
            return
        body, self._kept = self._kept, None
        if isinstance(found[0], int):
            self._send(found, keep_alive=True)
            self.server_state.total_requests += 1
            self._rest()
        else:
            self._promise(found, body)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, and with it the request in which it stands."""
        if self._kept is not None:
            self._hand_over()
        super().send_400_response(msg)

    def _is_plain(self) -> bool:
        parser = self.parser
        return (
            parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
            and not self._under_way()
            and not self._has_ended()
            and not self.flow.write_paused
        )

    def _hand_over(self) -> None:
        body, self._kept = self._kept, None
        self.begin_request()
        if body:
            self.take_body(body)

    def _promise(self, later: Later, body: bytes) -> None:
        future, finish = later
        promised = _Promised()
        self.cycle = cast("RequestResponseCycle", promised)
        self._has_all()
        # The next request has a scope of its own.
        path = self.root_path + self.url.decode("ascii")
        target = {"method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
        scope = {**self.scope, **target}
        future.add_done_callback(lambda _: self._keep(promised, finish(), scope, body))

    def _keep(self, promised: _Promised, answer: Written | Found, scope: dict[str, Any], body: bytes) -> None:
        if promised.disconnected or self.transport.is_closing():
            promised.response_complete = True
        elif isinstance(answer, Mapping):
            self._begin_late(promised, {**scope, **answer}, body)
        else:
            promised.response_complete = True
            self._send(answer, keep_alive=promised.keep_alive)
            if not promised.keep_alive:
                self.close_after_answer()
            self.on_response_complete()

    def _begin_late(self, promised: _Promised, scope: dict[str, Any], body: bytes) -> None:
        """Hand a request to the application after all, whole and in the place in which it came."""
        cycle = RequestResponseCycle(
            scope=cast("HTTPScope", scope),
            transport=self._answering,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=promised.keep_alive,
            on_response=self.on_response_complete,
        )
        cycle.body += body
        cycle.more_body = False
        cycle.message_event.set()
        if self.cycle is cast("RequestResponseCycle", promised):
            self.cycle = cycle
        self._start_asgi_task(cycle, self.app)

    def _send(self, answer: Written, *, keep_alive: bool) -> None:
        status, rest = answer
        common = [b"%b: %b\r\n" % pair for pair in self.server_state.default_headers]
        if not (keep_alive or CLOSE in self.server_state.default_headers):
            common.append(b"connection: close\r\n")
        self.transport.write(b"".join((_STATUS_LINES[status], *common, rest)))
