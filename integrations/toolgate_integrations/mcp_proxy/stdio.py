"""The proxy's own end: lines of the client in, answers out."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Final, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCResponse, RequestId

__all__ = ["Answers", "Lines", "Questions"]

_CHUNK: Final = 1 << 16


class Lines:
    """What the client writes, line by line, until it ends or this is told to.

    A thread of its own reads, and ends with the process: while it waits for the client nobody waits for it.

    Args:
        descriptor: What is read.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._send, self._receive = anyio.create_memory_object_stream[str](64)
        self.ended = anyio.Event()

    def start(self) -> None:
        """Begin to read."""
        threading.Thread(target=self._read, args=(asyncio.get_running_loop(),), daemon=True).start()

    def end(self) -> None:
        """Let it look as if the client had ended."""
        self.ended.set()
        self._send.close()

    def __aiter__(self) -> AsyncIterator[str]:
        return self._lines()

    async def _lines(self) -> AsyncIterator[str]:
        async with self._receive:
            async for line in self._receive:
                yield line

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        rest = b""
        try:
            while chunk := os.read(self._descriptor, _CHUNK):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    # No faster than the proxy takes them.
                    sent = self._send.send(line.decode("utf-8", "replace"))
                    asyncio.run_coroutine_threadsafe(sent, loop).result()
        except (OSError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            # Nothing more can be read, or nobody reads on.
            pass
        with contextlib.suppress(RuntimeError):
            # Unless the loop is closed, and the proxy has ended before.
            loop.call_soon_threadsafe(self.end)


class Questions:
    """The client's requests that have no answer yet."""

    def __init__(self) -> None:
        self._open: set[RequestId] = set()
        self._none = anyio.Event()
        self._none.set()

    def asked(self, request: RequestId) -> None:
        """One came."""
        self._open.add(request)
        if self._none.is_set():
            self._none = anyio.Event()

    def settled(self, request: RequestId) -> None:
        """One has its answer, or needs none any more."""
        self._open.discard(request)
        if not self._open:
            self._none.set()

    async def none(self) -> None:
        """Wait until there are none."""
        while self._open:
            await self._none.wait()


class Answers:
    """What the proxy writes to the client.

    Args:
        stream: Where it goes.
        questions: What waits for an answer.
    """

    def __init__(self, stream: Any, questions: Questions) -> None:
        self._stream, self._questions = stream, questions

    async def send(self, item: SessionMessage) -> None:
        """Write a message."""
        await self._stream.send(item)
        message = item.message
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            self._questions.settled(message.id)

    async def aclose(self) -> None:
        """Write no more."""
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
