"""Connections that answer some requests the moment they have arrived.

What a server spends on a request — a task, an event, a queue of messages, the headers looked through once more — is more
than a check itself costs. A request that came whole in one piece, behind no other, may be answered without them; one that
cannot be goes on as if nobody had looked.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from uvicorn import Config
from uvicorn.server import ServerState

from toolgate_service.web.connections import Connection, Limits
from toolgate_service.web.headers import RawHeader

#: given a request's headers and body, the answer but for its status line; None for what must go the usual way
Immediate: TypeAlias = Callable[[Sequence[RawHeader], bytes], bytes | None]


class QuickConnection(Connection):
    """One connection.

    Args:
        path: of the requests that may be answered at once.
        immediate: answers them.
        limits: as of every connection.
    """

    def __init__(
        self,
        path: bytes,
        immediate: Immediate,
        limits: Limits,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(limits, config, server_state, app_state, _loop)
        self._path = path
        self._immediate = immediate
        #: the body so far of a request that nobody else has heard of, and its headers
        self._kept: bytes | None = None
        self._head: list[RawHeader] = []

    def data_received(self, data: bytes) -> None:
        """Take what has come; what is not whole by now goes the usual way."""
        super().data_received(data)
        if self._kept is not None:
            self._hand_over()

    def on_headers_complete(self) -> None:
        """Keep the request for a moment if it may be answered at once."""
        if self.url == self._path and self._is_plain():
            self._kept = b""
            self._in_head = False
            # What follows are trailers: they are no headers.
            self._head, self.headers = self.headers, []
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Gather the body."""
        if self._kept is None:
            super().on_body(body)
        else:
            self._kept += body

    def on_message_complete(self) -> None:
        """Answer, or let others do so."""
        if self._kept is not None:
            answer = self._immediate(self._head, self._kept)
            if answer is not None:
                self._kept = None
                self._send(answer)
                return
            self._hand_over()
        super().on_message_complete()

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
        super().on_headers_complete()
        if body:
            super().on_body(body)

    def _send(self, answer: bytes) -> None:
        common = b"".join([b"%b: %b\r\n" % pair for pair in self.server_state.default_headers])
        self.transport.write(b"HTTP/1.1 200 OK\r\n" + common + answer)
        self.server_state.total_requests += 1
        self._rest()
