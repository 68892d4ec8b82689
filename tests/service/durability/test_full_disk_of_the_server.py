"""A PostgreSQL server whose disk is full: refused, nothing acknowledged lost, and all is well once there is room."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.databases import Server
from support.disks import fill, mounted
from support.gateway import LiveGateway, Owner
from support.postgres import Cluster
from support.postgres_versions import preferred
from support.waiting import until
from support.wire import Wire

pytestmark = pytest.mark.postgresql_only("the disk that fills is the server's")

SIZE = 160 * 1024 * 1024
FILLING = "x" * 60_000


@pytest.fixture
def disk() -> Iterator[Path]:
    """A file system that has room for a server and little more; the server's user may enter it."""
    with TemporaryDirectory() as above:
        Path(above).chmod(0o711)
        with mounted(Path(above) / "disk", SIZE, mode=0o711) as folder:
            yield folder


def test_a_full_disk_of_the_server_refuses_and_recovers(disk: Path, tmp_path: Path) -> None:
    """On a full disk entries are 503 until there is room again; whatever was acknowledged is there, once."""
    settings = {"max_wal_size": "32MB", "min_wal_size": "32MB"}
    with Cluster(preferred(), fsync=True, settings=settings, within=disk) as cluster:
        server = Server(cluster.url())
        env = {"TOOLGATE_DATABASE_URL": server.url_of(server.create_database(migrated=False))}
        with LiveGateway(tmp_path, env=env) as gateway, Owner(gateway.url) as owner, Wire.of(owner) as wire:
            agent = owner.agent()
            owner.permit(agent, "files.read")
            fill(disk / "ballast")
            acknowledged = {}
            for number in range(5_000):
                # What the server has set aside is used up first.
                answer = wire.log(agent, "kept", key=str(number), number=number, filling=FILLING)
                if answer.status != 200:
                    break
                acknowledged[number] = answer.json()["id"]
            assert answer.status == 503, answer.raw
            assert int(answer.headers["Retry-After"]) >= 1
            (disk / "ballast").unlink()
            if not cluster.runs:
                # Without room for its journal a server ends; whoever looks after it starts it again.
                cluster.resume()
            last = number
            again = until(
                lambda: (
                    (it := wire.log(agent, "kept", key=str(last), number=last, filling=FILLING)).status == 200
                    and it
                )
            )
            acknowledged[last] = again.json()["id"]
            assert until(lambda: wire.check(agent, "files.read").status == 200)
            found = wire.entries("kept")
            assert {entry["context"]["number"]: entry["id"] for entry in found} == acknowledged
            assert set(Counter(entry["id"] for entry in found).values()) == {1}
