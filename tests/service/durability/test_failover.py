"""Several hosts in the URL: when the primary is killed, the gateway goes on at the promoted standby, and loses nothing."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.crowd import meanwhile
from support.databases import Server
from support.gateway import LiveGateway, Owner
from support.postgres import Cluster
from support.postgres_versions import preferred
from support.standby import Standby
from support.waiting import until
from support.wire import Wire

from toolgate_service.db.database import open_database
from toolgate_service.db.postgres import PostgresDatabase
from toolgate_service.db.postgres_connection import Host, hosts_of

pytestmark = pytest.mark.postgresql_only("an SQLite gateway has no server")


@pytest.fixture
def primary() -> Iterator[Cluster]:
    with Cluster(preferred(), fsync=True) as cluster:
        if not Standby.can_be_made(cluster):
            pytest.skip("this installation of PostgreSQL has no pg_basebackup: apt-get install postgresql")
        yield cluster


def test_acknowledged_entries_survive_the_loss_of_the_primary(primary: Cluster, tmp_path: Path) -> None:
    """With a synchronous standby: killed with SIGKILL amid entries, the primary had none that the standby has not."""
    name = Server(primary.url()).create_database(migrated=False)
    with Standby(primary) as standby:
        url = f"postgresql://postgres@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/{name}"
        with (
            LiveGateway(tmp_path, env={"TOOLGATE_DATABASE_URL": url}) as gateway,
            Owner(gateway.url) as owner,
        ):
            agent = owner.agent()
            acknowledged: list[str] = []

            def log(enough: threading.Event) -> None:
                with Wire.of(owner) as wire:
                    while not enough.wait(0.005):
                        answer = wire.log(agent, "amid.failover")
                        assert answer.status in {200, 503}, answer.raw
                        if answer.status == 200:
                            acknowledged.append(answer.json()["id"])

            with meanwhile([log, log]):
                until(lambda: len(acknowledged) >= 50)
                os.kill(primary.pid, signal.SIGKILL)
                standby.promote()
                before = len(acknowledged)
                until(lambda: len(acknowledged) >= before + 50, seconds=60)
            with Wire.of(owner) as wire:
                there = {entry["id"] for entry in wire.entries("amid.failover")}
            assert set(acknowledged) <= there
            assert until(lambda: owner.http.get("/health/ready").status_code == 200)


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("postgresql://u:p@one/db", [Host("one", 5432)]),
        ("postgresql://u:p@one:1,two:2/db", [Host("one", 1), Host("two", 2)]),
        ("postgresql://u@one,[::1]:7/db?sslmode=require", [Host("one", 5432), Host("::1", 7)]),
        ("postgresql:///db?host=one,two&port=9", [Host("one", 9), Host("two", 9)]),
        ("postgresql:///db?host=/run/a", [Host("/run/a", 5432)]),
        ("postgresql:///db", []),
    ],
)
def test_hosts_of_a_url(url: str, hosts: list[Host], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGPORT", raising=False)
    assert list(hosts_of(url)) == hosts
    assert isinstance(open_database(url), PostgresDatabase)
