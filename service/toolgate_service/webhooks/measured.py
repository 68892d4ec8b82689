"""A connection of which only so much is read: what a receiver sends must not keep everybody else waiting.

Reading an answer is work of the loop on which every organization's checks run. An endless row of interim answers (1xx)
never becomes one, and would be read as fast as it comes until the attempt's time is up.
"""

import ssl
from typing import Any

import httpcore

#: bytes of an answer, its head included: what is read of a body, and as much for the head
ANSWER = 32 * 1024
#: bytes at once: between two reads everybody else has a turn
PIECE = 4 * 1024


class TooMuch(Exception):
    """A receiver sends more than an answer has; the message is for the webhook's owner."""


class MeasuredStream(httpcore.AsyncNetworkStream):
    """Reads in small pieces, and after each thing that was written only so much.

    Args:
        inner: the connection.
    """

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._size = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - httpcore's signature
        """Read a piece.

        Raises:
            TooMuch: the answer is longer than any that makes sense.
        """
        if self._size >= ANSWER:
            raise TooMuch(f"the receiver's answer is longer than {ANSWER} bytes")
        piece = await self._inner.read(min(max_bytes, PIECE), timeout)
        self._size += len(piece)
        return piece

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - httpcore's signature
        """Write; what comes then is another answer."""
        self._size = 0
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        """Hang up."""
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
    ) -> httpcore.AsyncNetworkStream:
        """Return the same connection with TLS, measured too."""
        return MeasuredStream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        """Tell what the connection is."""
        return self._inner.get_extra_info(info)
