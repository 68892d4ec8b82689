"""Network lines that fail on demand: each carries bytes from a port of its own to another port of this machine.

A program of its own, told what to do over its standard input; what it was told is done when it has answered.
"""

import asyncio
import json
import socket
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any, Self

PIECE = 1 << 16
#: closed with this, a connection ends with a reset
RESET = struct.pack("ii", 1, 0)


class Line:
    """One line.

    Attributes:
        port: where it begins.
    """

    def __init__(self, lines: "Lines", number: int, port: int) -> None:
        self._lines = lines
        self._number = number
        self.port = port

    def cut(self) -> None:
        """Reset every connection, and each that is made from now on."""
        self._lines.tell(self._number, "cut")

    def reset(self) -> None:
        """Reset every connection; new ones are carried."""
        self._lines.tell(self._number, "reset")

    def fall_silent(self) -> None:
        """Carry nothing in either direction, and say nothing about it."""
        self._lines.tell(self._number, "silent")

    def slow_down(self, milliseconds: int) -> None:
        """Carry everything so much later."""
        self._lines.tell(self._number, "slow", milliseconds)

    def swallow(self, after: bytes) -> None:
        """Carry one piece that has these bytes in it, and reset its connection in place of the answer."""
        self._lines.tell(self._number, "swallow", after.decode("latin-1"))

    def freeze(self, after: bytes, *, further: int = 0) -> None:
        """Fall silent once a client has sent a piece with these bytes in it, and so many further pieces after it.

        Everything up to there reaches the server; nothing of its answer, or of any other connection, is carried.
        """
        self._lines.tell(self._number, "freeze", after.decode("latin-1"), further)

    def frozen(self) -> bool:
        """Return whether the line has fallen silent by `freeze`."""
        return bool(self._lines.tell(self._number, "frozen"))

    def swallowed(self) -> int:
        """Return how many answers were swallowed so far."""
        return int(self._lines.tell(self._number, "swallowed"))

    def heal(self) -> None:
        """Carry everything again; what was held back in silence is carried now."""
        self._lines.tell(self._number, "heal")


class Lines:
    """The program, in a `with` block."""

    def __init__(self) -> None:
        command = [sys.executable, "-P", __file__]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def to(self, port: int) -> Line:
        """Begin a line to a port."""
        number, begun = self.tell(-1, "begin", port)
        return Line(self, number, begun)

    def tell(self, number: int, *what: object) -> Any:
        """Have something done, and return what came of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([number, *what]) + "\n")
        return json.loads(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@dataclass
class Way:
    """A line as the program sees it."""

    target: int
    is_cut: bool = False
    delay: float = 0
    wanted: bytes = b""
    swallowed: int = 0
    #: what freezes the line, how many further pieces of its connection are carried, and whether it is frozen
    freezing: bytes = b""
    further: int = 0
    frozen: bool = False
    open: asyncio.Event = field(default_factory=asyncio.Event)
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        if self.is_cut:
            _reset(writer)
            return
        try:
            there_reader, there = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            _reset(writer)
            return
        pair = {writer, there}
        self.writers |= pair
        fatal = asyncio.Event()
        ways = [
            asyncio.create_task(self._one_way(reader, there, fatal, asks=True)),
            asyncio.create_task(self._one_way(there_reader, writer, fatal, asks=False)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            self.writers -= pair
            for one in pair:
                _reset(one) if fatal.is_set() or self.is_cut else one.close()

    async def _one_way(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fatal: asyncio.Event, *, asks: bool
    ) -> None:
        left: int | None = None
        try:
            while piece := await reader.read(PIECE):
                if not asks and fatal.is_set():
                    self.swallowed += 1
                    return
                await self.open.wait()
                if self.delay:
                    await asyncio.sleep(self.delay)
                if asks and self.wanted and self.wanted in piece:
                    self.wanted = b""
                    fatal.set()
                if asks and left is None and self.freezing and self.freezing in piece:
                    left, self.freezing = self.further, b""
                elif left is not None:
                    left -= 1
                if left == 0:
                    left, self.frozen = None, True
                    self.open.clear()
                writer.write(piece)
                await writer.drain()
        except OSError:
            return

    def reset_all(self) -> None:
        """Reset every connection."""
        for writer in list(self.writers):
            _reset(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    if raw is not None and raw.fileno() >= 0:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


async def main() -> None:
    """Do what is told until standard input ends."""
    ways: list[Way] = []
    servers = []
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while order := await orders.readline():
        number, what, *more = json.loads(order)
        answer: object = None
        if what == "begin":
            way = Way(more[0])
            way.open.set()
            ways.append(way)
            servers.append(await asyncio.start_server(way.carry, "127.0.0.1", 0))
            answer = len(ways) - 1, servers[-1].sockets[0].getsockname()[1]
        else:
            answer = _do(ways[number], what, *more)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _do(way: Way, what: str, *more: Any) -> object:
    match what:
        case "cut":
            way.is_cut = True
            way.reset_all()
        case "reset":
            way.reset_all()
        case "silent":
            way.open.clear()
        case "slow":
            way.delay = more[0] / 1000
        case "swallow":
            way.wanted = more[0].encode("latin-1")
        case "freeze":
            way.freezing, way.further, way.frozen = more[0].encode("latin-1"), more[1], False
        case "frozen":
            return way.frozen
        case "heal":
            way.is_cut, way.delay, way.wanted, way.freezing = False, 0, b"", b""
            way.open.set()
    return way.swallowed


if __name__ == "__main__":
    asyncio.run(main())
