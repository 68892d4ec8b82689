"""Answers too long to be held in memory."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

logger = logging.getLogger("toolgate.gateway")

#: seconds that a caller may take nothing before the answer is given up, and with it the snapshot it is read from
PATIENCE = 60
#: Bytes sent at once. The connection gives a caller up who does not take what was sent in time: a slow line must not
#: have to carry megabytes by then.
PIECE = 64 * 1024


class Stream(StreamingResponse):
    """An answer that is made while it is sent.

    Nothing is sent before its first part is made, so that what fails by then gets an answer of its own. What fails
    later breaks the connection: the caller's HTTP library reports an incomplete answer.

    Args:
        parts: the answer's parts; closed when the caller hangs up.
        media_type: what they are.
        headers: of the answer.
    """

    def __init__(self, parts: AsyncGenerator[bytes], media_type: str, headers: Mapping[str, str]) -> None:
        super().__init__(parts, media_type=media_type, headers=headers)
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        request = Request(scope, receive)
        async with aclosing(self._parts) as parts:
            part = await anext(parts, None)
            start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            await send(start)
            while part is not None:
                for begin in range(0, len(part), PIECE):
                    if not await _taken(request, send, part[begin : begin + PIECE]):
                        return
                part = await anext(parts, None)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _taken(request: Request, send: Send, piece: bytes) -> bool:
    """Send a piece; say whether its caller is there for more."""
    try:
        async with asyncio.timeout(PATIENCE):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    except TimeoutError:
        logger.warning("an answer was given up: its caller took nothing for %d seconds", PATIENCE)
        return False
    # A caller who is gone takes everything without a word.
    return not await request.is_disconnected()
