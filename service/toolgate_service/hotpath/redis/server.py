"""The Redis server: connections that are given up after a moment, and a look whether it is back, once a second."""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError, ResponseError

from toolgate_service.errors import StorageFault
from toolgate_service.hotpath.rates import Window
from toolgate_service.hotpath.redis.pool import SCRIPT, Reply, Turn

logger = logging.getLogger("toolgate.gateway")

#: seconds after which an answer is no longer waited for; one takes a fraction of a millisecond
PATIENCE = 0.4
#: seconds between two looks who waits for too long: a time-out of its own would cost each request 4 µs
LOOK = 0.1
#: the same for a new connection
CONNECTING = 1.0
#: seconds between two looks whether it is back
LOOK_AGAIN = 1.0
#: seconds by which its clock and the database's may differ
SKEW = 5.0


class Unusable(Exception):
    """The server answers, and cannot be used; the message says why, and holds no secret."""


#: what a server or the way to it may do at any time; uvloop calls writing to what has been closed
#: meanwhile a RuntimeError
FAULTS = (RedisError, OSError, EOFError, ValueError, RuntimeError, Unusable)


#: One that will draw, and one that has drawn, of a minute that never comes: between them they have everything done.
_TRIED = (Turn(1, 2, "tried"), Turn(0, 0, "tried", 2**31))


class _Line:
    """A connection, and the process it leads to."""

    def __init__(self, connection: AbstractConnection, epoch: str, script: str) -> None:
        self.connection = connection
        #: whether it was seen to wait for too long
        self.is_late = False
        self._keys = f"toolgate:{{{epoch}:"
        self._head = b"$7\r\nEVALSHA\r\n" + _written(script) + _written("2")

    def packed(self, turns: Mapping[Window, Turn]) -> bytes:
        """Write commands; the library takes five times as long."""
        return b"".join([self._command(window, turn) for window, turn in turns.items()])

    async def try_out(self) -> None:
        """Do once, for nobody, all that is ever asked.

        Raises:
            RedisError: the server is full, may not write, or refuses the user a command. It answers all the same, and would
                be found again, and lost, with every request.
        """
        for turn in _TRIED:
            await self.connection.send_packed_command(self.packed({("", "tried"): turn}), check_health=False)
            await self.connection.read_response()

    def _command(self, window: Window, turn: Turn) -> bytes:
        key = f"{self._keys}{window[0]}/{window[1]}}}"
        # What comes into the pool is left out where nothing does.
        values = turn if turn.minute else turn[:3]
        rest = b"".join([_written(str(value)) for value in values])
        draws = _written(f"{key}:draws")
        return b"*%d\r\n%b%b%b%b" % (5 + len(values), self._head, _written(key), draws, rest)


class Asked:
    """What was asked, and is answered soon."""

    def __init__(self, server: "RedisServer", line: _Line | None, windows: Sequence[Window]) -> None:
        self._server = server
        self._line = line
        self._windows = windows

    async def replies(self) -> dict[Window, Reply]:
        """Return the replies; none at all where Redis cannot be used: nobody knows what it has done then."""
        if self._line is None:
            return {}
        line = self._line
        self._server.wait_for(line)
        try:
            texts = [await line.connection.read_response() for _ in self._windows]
        except FAULTS as error:
            await self._server.lose(line, TimeoutError() if line.is_late else error)
            return {}
        finally:
            self._server.wait_no_longer(line)
        await self._server.give(line)
        return dict(zip(self._windows, map(Reply.read, texts), strict=True))


class RedisServer:
    """A server that may go away at any time.

    What it holds is as old as its process, whichever copy it began with: pools are named after the process, so that
    one that begins with what a disk or another server still held begins with empty ones.

    Args:
        url: ``redis://…`` or ``rediss://…``.
        clock: tells the database's time, in seconds since the epoch.
    """

    def __init__(self, url: str, clock: Callable[[], Awaitable[float]]) -> None:
        self._made = made(url)
        self._clock = clock
        self._idle: list[_Line] = []
        self._back: asyncio.Task[None] | None = None
        #: who waits for an answer, and since when
        self._waiting: dict[_Line, float] = {}
        self._hanging_up: set[asyncio.Task[None]] = set()
        self._looks = self._is_open = False
        self.in_use = False

    async def open(self) -> None:
        """Connect; a server that does not answer is looked for again in the background."""
        self._is_open = True
        try:
            await self.give(await self._line())
            self.in_use = True
        except StorageFault:
            self._look_for_it(said=False)
        except FAULTS as error:
            self._warn(error)
            self._look_for_it(said=True)

    async def close(self) -> None:
        """Disconnect."""
        self._is_open = self.in_use = False
        if self._back is not None:
            self._back.cancel()
            await asyncio.gather(self._back, return_exceptions=True)
        await self._hang_up()

    async def ask(self, turns: Mapping[Window, Turn]) -> Asked:
        """Ask, and wait for nothing but, at times, a connection."""
        if not self.in_use or not turns:
            return Asked(self, None, ())
        line = None
        try:
            line = self._idle.pop() if self._idle else await self._line()
            if not line.connection.is_connected:
                # The library would make it again, and it might lead to another process.
                raise ConnectionError("it was hung up")
            await line.connection.send_packed_command(line.packed(turns), check_health=False)
        except StorageFault:
            # A new connection needs the database's clock. Redis itself answers.
            return Asked(self, None, ())
        except FAULTS as error:
            await self.lose(line, error)
            return Asked(self, None, ())
        return Asked(self, line, list(turns))

    async def give(self, line: _Line) -> None:
        """Take a connection back."""
        if self._is_open:
            self._idle.append(line)
        else:
            await line.connection.disconnect(nowait=True)

    def wait_for(self, line: _Line) -> None:
        """Wait for the answer on a connection, but not for ever."""
        loop = asyncio.get_running_loop()
        self._waiting[line], line.is_late = loop.time(), False
        if not self._looks:
            self._looks = True
            loop.call_later(LOOK, self._look, loop)

    def wait_no_longer(self, line: _Line) -> None:
        """Have heard, or have given up."""
        self._waiting.pop(line, None)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        for line, since in self._waiting.items():
            if line.is_late:
                # Whoever reads from it finds it closed.
                task = loop.create_task(line.connection.disconnect(nowait=True))
                self._hanging_up.add(task)
                task.add_done_callback(self._hanging_up.discard)
            # Seen twice: if it was the loop that stood still, the answer is there by the next look.
            line.is_late = loop.time() - since > PATIENCE
        self._looks = bool(self._waiting)
        if self._looks:
            loop.call_later(LOOK, self._look, loop)

    async def lose(self, line: _Line | None, error: Exception) -> None:
        """Use the server no more until it is found again."""
        if line is not None:
            await line.connection.disconnect(nowait=True)
        logger.debug("Redis at %s: %s", self._where, _why(error))
        if self._is_open and self.in_use:
            self.in_use = False
            await self._hang_up()
            self._look_for_it(said=False)

    def _look_for_it(self, *, said: bool) -> None:
        self._back = asyncio.get_running_loop().create_task(self._find(said=said))

    async def _find(self, *, said: bool) -> None:
        # At once, and without a word if it is there: it may merely have ended a connection that nobody used for long.
        is_first = not said
        while not self.in_use:
            if not is_first:
                await asyncio.sleep(LOOK_AGAIN)
            is_first = False
            try:
                await self.give(await self._line())
                self.in_use = True
            except StorageFault as fault:
                # Whatever else needs the database logs its outage.
                logger.debug("Redis at %s: the database's clock is unknown: %s", self._where, fault)
            except FAULTS as error:
                if not said:
                    self._warn(error)
                said = True
        if said:
            logger.info("Redis at %s is back: requests are counted there again", self._where)

    async def _line(self) -> _Line:
        connection = _connection(self._made)
        try:
            async with asyncio.timeout(CONNECTING):
                await connection.connect()  # type: ignore[no-untyped-call]  # the library's own
                line = _Line(connection, *await self._introduced(connection))
                await line.try_out()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return line

    async def _introduced(self, connection: AbstractConnection) -> tuple[str, str]:
        told: dict[str, str] = {}
        for section in ("server", "replication"):
            text = await _answer(connection, "INFO", section)
            told |= {name: value for name, _, value in (line.partition(":") for line in text.splitlines())}
        if told.get("role") != "master":
            raise Unusable("it is a copy, which takes no changes")
        if not {"run_id", "master_replid"} <= told.keys():
            raise Unusable("it does not say by INFO which process it is, as Redis and Valkey do")
        seconds = int(told.get("server_time_usec") or 0) / 1e6
        if seconds and abs(seconds - await self._clock()) > SKEW:
            raise Unusable(f"its clock and the database's differ by more than {SKEW:.0f} seconds")
        names = f"{told['run_id']} {told['master_replid']}".encode()
        script = await _answer(connection, "SCRIPT", "LOAD", SCRIPT)
        return hashlib.sha256(names).hexdigest()[:16], script

    async def _hang_up(self) -> None:
        lines, self._idle = self._idle, []
        for line in lines:
            await line.connection.disconnect(nowait=True)

    @property
    def _where(self) -> str:
        given = self._made.connection_kwargs
        return f"{given.get('host', 'localhost')}:{given.get('port', 6379)}"

    def _warn(self, error: Exception) -> None:
        logger.warning(
            "Redis at %s cannot be used: %s; requests are counted in the database until it can",
            self._where,
            _why(error),
        )


def made(url: str) -> ConnectionPool:
    """Return what makes connections.

    Raises:
        ValueError: the URL cannot be used.
    """
    # A connection that is lost is not made again behind our back: it may lead to another process.
    pool = ConnectionPool.from_url(
        url, retry=Retry(NoBackoff(), 0), socket_connect_timeout=CONNECTING, socket_timeout=None, protocol=2
    )
    _connection(pool)
    return pool


def _connection(pool: ConnectionPool) -> AbstractConnection:
    connection: AbstractConnection = pool.make_connection()  # type: ignore[no-untyped-call]  # the library's own
    return connection


def _written(text: str) -> bytes:
    value = text.encode()
    return b"$%d\r\n%b\r\n" % (len(value), value)


async def _answer(connection: AbstractConnection, *command: str) -> str:
    await connection.send_command(*command, check_health=False)
    told: bytes = await connection.read_response()
    return told.decode()


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECTING:.0f} second"
    if isinstance(error, Unusable):
        return str(error)
    if isinstance(error, AuthenticationError):
        return "it does not take the user and the password"
    if isinstance(error, ResponseError):
        code = str(error).partition(" ")[0]
        return f"it refuses to count ({code if code.isalpha() and code.isupper() else type(error).__name__})"
    # Not in its own words: they may quote what was sent.
    return type(error).__name__
