"""Where a row is measured: a folder, a database, and a gateway with an organization that may do one thing."""

from __future__ import annotations

import itertools
import json
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from support.databases import Server as Databases
from support.gateway import Owner
from support.postgres import Cluster
from support.postgres_versions import preferred
from support.valkey import Valkey

from load.connection import Asked, Target, UnexpectedAnswer, post, whole
from load.machine import SERVER, on_core
from load.servers import SLOW_DISK, Server, floor, gateway

ACTION = "stripe.refund"
CONTEXT: dict[str, object] = {"charge_id": "ch_1", "amount": 10, "note": "late"}
TOO_MUCH = CONTEXT | {"amount": 10**9}
ALLOWED = b'"allowed":true'
LOGGED = b'"status":"success"'
#: by convention not in memory, where a sync to disk would cost nothing
DISK = Path("/var/tmp")
#: seconds until a server that takes connections also answers
ANSWERS = 15.0


class Ours:
    """A gateway that runs, and an agent of it with one permission.

    Args:
        server: The gateway.
        owner: Who owns the organization.
    """

    def __init__(self, server: Server, owner: Owner) -> None:
        self.server = server
        self.owner = owner
        self._agent = owner.agent()
        owner.permit(self._agent, ACTION, max_amount=50000)
        # What the SDK sends.
        self._headers = {
            "Accept": "application/json",
            "User-Agent": "toolgate-python/0.1.0",
            "X-API-Key": owner.key,
        }
        settled(server.port, self.check(TOO_MUCH, b'"allowed":false'))

    def check(self, context: dict[str, object] = CONTEXT, expected: bytes = ALLOWED) -> Asked:
        """Ask for a decision, each time under a new key, as the SDK does.

        Args:
            context: The call's.
            expected: What it answers.
        """
        body: dict[str, object] = {"agent_id": self._agent, "action": ACTION, "context": context}
        return Asked(_numbered("/sdk/check", body, self._headers), expected)

    def log(self) -> Asked:
        """Record an outcome, each time under a new key, as the SDK does."""
        body: dict[str, object] = {"agent_id": self._agent, "action": ACTION, "status": "success"}
        body |= {"context": CONTEXT, "occurred_at": "2026-01-01T00:00:00.000000Z"}
        return Asked(_numbered("/sdk/log", body, self._headers), LOGGED)

    def target(self, *asked: Asked) -> Target:
        """Return the target after each request got a correct response.

        Args:
            *asked: The requests, taken in turn.
        """
        return right(self.server.port, *asked)


class Stage:
    """Starts what a row needs; all of it ends with the row.

    Args:
        stack: Ends it.
        folder: Its files.
        postgresql: Whether databases are PostgreSQL's.
    """

    def __init__(self, stack: ExitStack, folder: Path, *, postgresql: bool) -> None:
        self._stack = stack
        self._folder = folder
        self._postgresql = postgresql
        self._databases: dict[bool, Databases] = {}
        self._names = (f"server-{number}" for number in itertools.count(1))

    def new_folder(self) -> Path:
        """A folder for one more server."""
        return self._folder / next(self._names)

    def gateway(self, *, one_by_one: bool = False, unrecorded: bool = False, slow_disk: bool = False) -> Ours:
        """Start a gateway on a database of its own.

        Args:
            one_by_one: Whether each log entry is a transaction of its own.
            unrecorded: Whether checks leave no record in the decision log.
            slow_disk: Whether each sync to disk takes a millisecond longer.
        """
        folder = self.new_folder()
        url = self._database(folder, slow_disk=slow_disk)
        # With PostgreSQL it is PostgreSQL that waits for the disk.
        slow_here = slow_disk and not self._postgresql
        server = self._stack.enter_context(
            gateway(folder, url, one_by_one=one_by_one, unrecorded=unrecorded, slow_disk=slow_here)
        )
        return Ours(server, self._stack.enter_context(Owner(server.url)))

    def replicas(self, many: int, *, with_redis: bool) -> tuple[Ours, Sequence[int]]:
        """Start several gateways on one database.

        Args:
            many: How many.
            with_redis: Whether they count rates in a Valkey of their own.

        Returns:
            The first one, and where all of them listen.
        """
        folder = self.new_folder()
        url = self._database(folder, slow_disk=False)
        with on_core(SERVER):
            redis_url = self._stack.enter_context(Valkey()).url if with_redis else None
        servers = [
            self._stack.enter_context(gateway(self.new_folder(), url, redis_url=redis_url))
            for _ in range(many)
        ]
        ours = Ours(servers[0], self._stack.enter_context(Owner(servers[0].url)))
        return ours, [server.port for server in servers]

    def floor(self, request: Callable[[], bytes]) -> Target:
        """Start what does nothing, or with PostgreSQL selects one number, and ask it the same bytes.

        Args:
            request: Makes the requests that ours is asked.
        """
        url = None
        if self._postgresql:
            url = self._database(self.new_folder(), slow_disk=False)
        server = self._stack.enter_context(floor(self.new_folder(), url))
        return right(server.port, Asked(request, ALLOWED))

    def peer(self, start: Callable[[Path], Server], asked: Asked, refused: Asked) -> Target:
        """Start a peer, and see that it decides as ours does.

        Args:
            start: Starts it in a folder.
            asked: What is measured.
            refused: What it has to refuse.
        """
        server = self._stack.enter_context(start(self.new_folder()))
        settled(server.port, refused)
        return right(server.port, asked)

    def _database(self, folder: Path, *, slow_disk: bool) -> str:
        if not self._postgresql:
            folder.mkdir(parents=True)
            return f"sqlite:///{folder / 'gateway.db'}"
        if slow_disk not in self._databases:
            prefix = SLOW_DISK if slow_disk else ()
            with on_core(SERVER):
                cluster = self._stack.enter_context(Cluster(preferred(), fsync=True, prefix=prefix))
            self._databases[slow_disk] = Databases(cluster.url())
        databases = self._databases[slow_disk]
        return databases.url_of(databases.create_database(migrated=False))


@contextmanager
def staged(*, postgresql: bool) -> Iterator[Stage]:
    """A stage in a folder of its own on a disk, which is removed after.

    Args:
        postgresql: Whether databases are PostgreSQL's.
    """
    before = tempfile.tempdir
    if DISK.is_dir():
        tempfile.tempdir = str(DISK)
    folder = Path(tempfile.mkdtemp(prefix="toolgate-bench-"))
    try:
        with ExitStack() as stack:
            yield Stage(stack, folder, postgresql=postgresql)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        tempfile.tempdir = before


def right(port: int, *asked: Asked) -> Target:
    """Return the target after each request got a correct response.

    Args:
        port: Where.
        *asked: The requests, taken in turn.

    Raises:
        UnexpectedAnswer: One was not.
    """
    for one in asked:
        settled(port, one)
    return Target(port, asked)


def settled(port: int, asked: Asked) -> None:
    """Ask once, on a connection of its own, until the answer is right.

    Args:
        port: Where.
        asked: What.

    Raises:
        UnexpectedAnswer: It is not right, even after seconds.
    """
    ends = time.monotonic() + ANSWERS
    answer = b""
    while time.monotonic() < ends:
        with suppress(OSError):
            answer = _answer(port, asked.request())
            if answer.startswith(b"HTTP/1.1 200 ") and asked.expected in answer:
                return
        time.sleep(0.1)
    raise UnexpectedAnswer(f"{asked.expected!r} is not in {answer[:600]!r}")


def _answer(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), ANSWERS) as connection:
        connection.sendall(request)
        answer = b""
        while not whole(answer):
            more = connection.recv(65536)
            if not more:
                break
            answer += more
    return answer


def _numbered(path: str, body: dict[str, object], headers: dict[str, str]) -> Callable[[], bytes]:
    mark = "@" * 32
    whole_request = post(path, json.dumps(body).encode(), {**headers, "Idempotency-Key": mark})
    head, _, tail = whole_request.partition(mark.encode())
    numbers = itertools.count(secrets.randbits(120))
    return lambda: b"%b%032x%b" % (head, next(numbers), tail)
