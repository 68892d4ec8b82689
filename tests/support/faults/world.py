"""Three replicas on one PostgreSQL and one Valkey, each reaching both over lines of its own that fail on demand."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from support.balancer import Balancer
from support.crowd import together
from support.databases import CHOICE, Server
from support.gateway import LiveGateway
from support.lines import Line, Lines
from support.postgres import Cluster
from support.postgres_versions import preferred
from support.valkey import Valkey

REPLICAS = 3
#: requests of a user a minute: the clients are one
ENV = {"TOOLGATE_MANAGEMENT_REQUESTS_PER_MINUTE": "1000000"}


@dataclass
class Replica:
    """A gateway's process, and its ways to the servers."""

    gateway: LiveGateway
    to_database: Line
    to_valkey: Line

    @property
    def is_ready(self) -> bool:
        """Whether it says that it can work."""
        try:
            return httpx.get(f"{self.gateway.url}/health/ready", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False


@dataclass
class World:
    """Everything that may fail.

    Attributes:
        url: where clients send their requests.
        direct: a gateway's settings past all lines, for looking at the database.
    """

    url: str
    direct: LiveGateway
    database: Cluster
    valkey: Valkey
    replicas: list[Replica]

    def heal(self) -> None:
        """Carry everything again; processes are not touched."""
        for replica in self.replicas:
            replica.to_database.heal()
            replica.to_valkey.heal()


@contextmanager
def begun() -> Iterator[World]:
    """Start everything; commits are synced to disk, as in life."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        database = stack.enter_context(Cluster(preferred(), fsync=True))
        valkey = stack.enter_context(Valkey())
        lines = stack.enter_context(Lines())
        server = Server(database.url())
        stack.enter_context(_chosen(server))
        name = server.create_database()
        replicas = [_replica(lines, database, name, valkey, folder) for _ in range(REPLICAS)]
        for replica in replicas:
            stack.callback(replica.gateway.stop)
        together(*[replica.gateway.start for replica in replicas])
        ports = [int(replica.gateway.url.rpartition(":")[2]) for replica in replicas]
        balancer = stack.enter_context(Balancer(ports))
        direct = LiveGateway(folder, env={"TOOLGATE_DATABASE_URL": database.url(name)})
        yield World(balancer.url, direct, database, valkey, replicas)


@contextmanager
def _chosen(server: Server) -> Iterator[None]:
    """Let whatever looks into a gateway's tables look here."""
    before, CHOICE.server = CHOICE.server, server
    try:
        yield
    finally:
        CHOICE.server = before


def _replica(lines: Lines, database: Cluster, name: str, valkey: Valkey, folder: Path) -> Replica:
    to_database, to_valkey = lines.to(database.port), lines.to(valkey.port)
    env = ENV | {
        "TOOLGATE_DATABASE_URL": f"postgresql://postgres@127.0.0.1:{to_database.port}/{name}",
        "TOOLGATE_REDIS_URL": f"redis://127.0.0.1:{to_valkey.port}/0",
    }
    return Replica(LiveGateway(folder, env=env), to_database, to_valkey)
