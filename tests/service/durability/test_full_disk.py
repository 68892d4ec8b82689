"""A disk that is full: refused clearly, nothing spoilt, and all is well once there is room again."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.databases import database_file
from support.disks import fill, mounted
from support.gateway import LiveGateway, Owner
from support.wire import Wire

pytestmark = pytest.mark.sqlite_only("the disk that fills is the one that the gateway itself writes to")

SIZE = 4 * 1024 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes."""
    with mounted(tmp_path / "disk", SIZE) as folder:
        yield folder


def test_a_full_disk_refuses_and_recovers(small_disk: Path) -> None:
    """On a full disk /sdk/log and changes are 503 and checks go on; with room again all acknowledged is there."""
    with LiveGateway(small_disk) as gateway, Owner(gateway.url) as owner, Wire.of(owner) as wire:
        agent = owner.agent()
        owner.permit(agent, "files.read")
        acknowledged = {wire.log(agent, "kept", number=n).json()["id"] for n in range(20)}
        ballast = small_disk / "ballast"
        fill(ballast)
        for number in range(2000):
            # The file of changes has some room of its own, which is used up first.
            answer = wire.log(agent, "kept", number=number, filling="x" * 2000)
            if answer.status != 200:
                break
            acknowledged.add(answer.json()["id"])
        assert answer.status == 503
        assert int(answer.headers["Retry-After"]) >= 1
        refused = wire.log(agent, "kept", key="again", filling="x" * 30_000)
        assert refused.status == 503
        change = wire.send("POST", "/api/agents", {"name": "another", "description": "x" * 1000})
        assert change.status in {201, 503}
        assert wire.allowed(agent, "files.read")
        assert {entry["id"] for entry in wire.entries("kept")} == acknowledged

        ballast.unlink()
        for _ in range(2):
            answer = wire.log(agent, "kept", key="again", filling="x" * 30_000)
            assert answer.status == 200
            acknowledged.add(answer.json()["id"])
        assert wire.send("POST", "/api/agents", {"name": "and another"}).status == 201
        assert {entry["id"] for entry in wire.entries("kept")} == acknowledged
        assert len(wire.entries("kept")) == len(acknowledged)
    with sqlite3.connect(gateway.database) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()


def test_a_start_on_a_full_disk_is_one_clear_line(small_disk: Path) -> None:
    """On a full disk `toolgate serve` says in one line that the database cannot be used, and ends with 1."""
    database_file(small_disk).touch()
    fill(small_disk / "ballast")
    gateway = LiveGateway(small_disk)
    with pytest.raises(AssertionError, match="did not start"):
        gateway.start()
    assert gateway.process is not None
    assert gateway.process.wait(timeout=30) == 1
    assert gateway.process.stdout is not None
    gateway.process.stdout.close()
