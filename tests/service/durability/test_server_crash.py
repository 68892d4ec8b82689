"""A PostgreSQL server that crashes and comes back: nothing acknowledged is lost, and the gateway needs no restart."""

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.crowd import meanwhile
from support.databases import Server
from support.gateway import LiveGateway, Owner
from support.postgres import Cluster
from support.postgres_versions import preferred
from support.waiting import until
from support.wire import Wire

pytestmark = pytest.mark.postgresql_only("an SQLite gateway has no server that could crash without it")

CLIENTS = 4
CRASHES = 3
#: an operator's settings by which a commit is acknowledged before it is written, and long before it would be
CARELESS = {"synchronous_commit": "off", "wal_writer_delay": "10s"}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A server of this test's own, to be crashed."""
    with Cluster(preferred(), fsync=True, settings=CARELESS) as cluster:
        yield cluster


@pytest.fixture
def gateway(cluster: Cluster, tmp_path: Path) -> Iterator[LiveGateway]:
    """A gateway on that server."""
    server = Server(cluster.url())
    env = {"TOOLGATE_DATABASE_URL": server.url_of(server.create_database(migrated=False))}
    with LiveGateway(tmp_path, env=env) as gateway:
        yield gateway


@dataclass
class Sent:
    """What one client heard: the entries acknowledged, by key, and the keys that were refused."""

    acknowledged: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)


def _log(owner: Owner, agent: str, client: int, sent: Sent, enough: threading.Event) -> None:
    with Wire.of(owner) as wire:
        number = 0
        while not enough.wait(0.005):
            number += 1
            key = f"{client}-{number}"
            answer = wire.log(agent, "amid.crash", key=key, key_sent=key)
            if answer.status == 200:
                sent.acknowledged[key] = answer.json()["id"]
            else:
                assert answer.status == 503, answer.raw
                assert int(answer.headers["Retry-After"]) >= 1
                sent.refused.append(key)
                # As a caller would, who was told to come again later.
                enough.wait(0.05)


def test_a_crash_loses_nothing_acknowledged(cluster: Cluster, gateway: LiveGateway) -> None:
    """Crashed while four clients log, the server has every acknowledged entry, and retries leave one of each key."""
    with Owner(gateway.url) as owner:
        agent = owner.agent()
        heard = [Sent() for _ in range(CLIENTS)]
        works = [
            lambda enough, client=client, sent=sent: _log(owner, agent, client, sent, enough)
            for client, sent in enumerate(heard)
        ]
        with meanwhile(works):
            for _ in range(CRASHES):
                _more(heard, "acknowledged")
                cluster.crash()
                _more(heard, "refused")
                cluster.resume()
            _more(heard, "acknowledged")
        acknowledged = {key: entry for sent in heard for key, entry in sent.acknowledged.items()}
        refused = [key for sent in heard for key in sent.refused]
        with Wire.of(owner) as wire:
            found = {entry["context"]["key_sent"]: entry["id"] for entry in wire.entries("amid.crash")}
            assert acknowledged.items() <= found.items()
            for key in refused:
                again = wire.log(agent, "amid.crash", key=key, key_sent=key)
                assert again.status == 200, again.raw
                # What was refused may be stored all the same: the server crashed between its commit and its answer.
                assert again.json()["id"] == found.get(key, again.json()["id"])
            counted = Counter(entry["context"]["key_sent"] for entry in wire.entries("amid.crash"))
        assert counted == dict.fromkeys([*acknowledged, *refused], 1)


def _more(heard: list[Sent], kind: str) -> None:
    """Wait until every client has heard more of a kind."""
    before = [len(getattr(sent, kind)) for sent in heard]
    until(lambda: all(len(getattr(sent, kind)) > old + 5 for sent, old in zip(heard, before, strict=True)))


def test_without_its_server_the_gateway_fails_closed(cluster: Cluster, gateway: LiveGateway) -> None:
    """While the server is away no check passes and no change is acknowledged: 503, and all is well once it is back."""
    with Owner(gateway.url) as owner, Wire.of(owner) as wire:
        agent = owner.agent()
        granted = owner.permit(agent, "files.read")
        assert wire.allowed(agent, "files.read")
        cluster.crash()
        for answer in (
            wire.check(agent, "files.read"),
            wire.log(agent, "files.read"),
            wire.send("GET", "/api/agents"),
            wire.send("POST", "/api/agents", {"name": "another"}),
            wire.send("DELETE", f"/api/permissions/{granted}"),
        ):
            assert answer.status == 503, answer.raw
            assert int(answer.headers["Retry-After"]) >= 1
            assert "postgres" not in answer.raw.decode().lower()
            assert "allowed" not in answer.json()
        assert wire.send("GET", "/health").status == 200
        cluster.resume()
        assert until(lambda: wire.check(agent, "files.read").status == 200)
        assert wire.allowed(agent, "files.read")
        assert wire.send("DELETE", f"/api/permissions/{granted}").status == 204
        assert not wire.allowed(agent, "files.read")
        assert [one["id"] for one in wire.send("GET", "/api/agents").json()] == [agent]
