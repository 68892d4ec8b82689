"""What stands before several gateways: each request goes to a random one of them.

A program of its own, so that it takes no turn of the tests' interpreter. A request that could not be sent goes to another
gateway; one that was sent and not answered is answered by nobody: the connection ends, as it would without a balancer.
"""

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

LARGEST_HEAD = 1 << 17
PIECE = 1 << 16
#: seconds between two looks at whether the client, or a gateway, is still there
LOOK = 0.05
NOBODY = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-type: application/json\r\n"
    b'content-length: 24\r\n\r\n{"detail": "no gateway"}'
)


class Balancer:
    """The program, in a `with` block.

    Args:
        ports: where the gateways listen.
        port: its own; 0 takes a free one.
        by_readiness: whether only those get requests that call themselves ready, as an operator's balancer does.
    """

    def __init__(self, ports: Sequence[int], *, port: int = 0, by_readiness: bool = False) -> None:
        command = [sys.executable, "-P", __file__, str(port), str(int(by_readiness)), *map(str, ports)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"

    def told(self, ports: Sequence[int]) -> None:
        """Send further requests to these gateways; what is under way ends where it is."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(list(ports)) + "\n")
        self._process.stdout.readline()

    def stop(self) -> None:
        """End it, whatever is under way."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Gone(Exception):
    """Somebody hung up in the middle."""


@dataclass
class Line:
    """A connection to a gateway."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


@dataclass
class Pool:
    """The gateways.

    Attributes:
        ports: all of them.
        resting: those that do not call themselves ready.
    """

    ports: list[int]
    resting: set[int] = field(default_factory=set)

    def drawn(self) -> list[int]:
        """Return the gateways in the order in which they are tried: a random one first, those at rest last."""
        shuffled = random.sample(self.ports, len(self.ports))
        return sorted(shuffled, key=lambda port: port in self.resting)


async def look_after(pool: Pool) -> None:
    """Find out who is ready, again and again."""
    while True:
        for port in list(pool.ports):
            if await _is_ready(port):
                pool.resting.discard(port)
            else:
                pool.resting.add(port)
        await asyncio.sleep(LOOK)


async def _is_ready(port: int) -> bool:
    try:
        async with asyncio.timeout(1):
            line = Line(*await asyncio.open_connection("127.0.0.1", port))
            try:
                line.writer.write(
                    b"GET /health/ready HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
                )
                return (await line.reader.readline()).split()[1:2] == [b"200"]
            finally:
                line.writer.close()
    except (OSError, TimeoutError):
        return False


class Client:
    """A client's connection, and those to gateways that it uses."""

    def __init__(self, pool: Pool, line: Line) -> None:
        self._pool = pool
        self._line = line
        self._lines: dict[int, Line] = {}

    async def serve(self) -> None:
        """Pass requests on until somebody hangs up."""
        try:
            while await self._exchange():
                pass
        except (Gone, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            for line in (self._line, *self._lines.values()):
                line.writer.close()

    async def _exchange(self) -> bool:
        head = await self._line.reader.readuntil(b"\r\n\r\n")
        request = [head, *[piece async for piece in _body(self._line.reader, head)]]
        for port in self._pool.drawn():
            line = await self._line_to(port)
            if line is not None:
                break
        else:
            self._line.writer.write(NOBODY)
            return True
        line.writer.write(b"".join(request))
        return await self._answer(line, port, is_head=head.startswith(b"HEAD "))

    async def _line_to(self, port: int) -> Line | None:
        kept = self._lines.pop(port, None)
        if kept is not None and not kept.reader.at_eof():
            self._lines[port] = kept
            return kept
        if kept is not None:
            kept.writer.close()
        try:
            opened = await asyncio.open_connection("127.0.0.1", port, limit=LARGEST_HEAD)
        except OSError:
            return None
        self._lines[port] = Line(*opened)
        return self._lines[port]

    async def _answer(self, line: Line, port: int, *, is_head: bool) -> bool:
        head = await self._heard(line)
        ends = b"\r\nconnection: close" in head.lower()
        if ends:
            del self._lines[port]
        self._line.writer.write(head)
        try:
            if not is_head:
                async for piece in _body(line.reader, head, answer=True):
                    self._line.writer.write(piece)
                    await self._line.writer.drain()
            await self._line.writer.drain()
        finally:
            if ends:
                line.writer.close()
        return not ends

    async def _heard(self, line: Line) -> bytes:
        """Return an answer's head, unless the client hangs up before it is there."""
        head = asyncio.ensure_future(line.reader.readuntil(b"\r\n\r\n"))
        while not (await asyncio.wait({head}, timeout=LOOK))[0]:
            if self._line.reader.at_eof():
                head.cancel()
                raise Gone
        return head.result()


async def _body(reader: asyncio.StreamReader, head: bytes, *, answer: bool = False) -> AsyncIterator[bytes]:
    lines = head.lower().split(b"\r\n")
    named = dict(line.partition(b":")[::2] for line in lines[1:])
    if b"chunked" in named.get(b"transfer-encoding", b""):
        size = -1
        while size:
            line = await reader.readuntil(b"\r\n")
            size = int(line.partition(b";")[0], 16)
            yield line + await reader.readexactly(size + 2)
        return
    left = int(named.get(b"content-length", b"0"))
    if answer and b"content-length" not in named and lines[0].split()[1] not in {b"204", b"304"}:
        while piece := await reader.read(PIECE):
            yield piece
    while left:
        piece = await reader.read(min(left, PIECE))
        if not piece:
            raise Gone
        left -= len(piece)
        yield piece


async def main(port: int, by_readiness: bool, ports: list[int]) -> None:
    """Balance until standard input ends."""
    pool, loop = Pool(ports), asyncio.get_running_loop()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await Client(pool, Line(reader, writer)).serve()

    server = await asyncio.start_server(accept, "127.0.0.1", port, limit=LARGEST_HEAD, backlog=1024)
    watching = asyncio.create_task(look_after(pool)) if by_readiness else None
    _say(server.sockets[0].getsockname()[1])
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while order := await orders.readline():
        pool.ports[:] = json.loads(order)
        _say("told")
    if watching is not None:
        watching.cancel()
    server.close()


def _say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(int(sys.argv[1]), sys.argv[2] == "1", [*map(int, sys.argv[3:])]))
