"""`toolgate db backup` and `restore`: one moment of the embedded file, whole, while everybody writes."""

import errno
import signal
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from support.crowd import meanwhile
from support.forking import FORK_SERVER
from support.gateway import LiveGateway, Owner
from support.operating import Operator, url_of
from support.waiting import until
from support.wire import Wire

from toolgate_service.cli import backup as backing_up
from toolgate_service.cli.backup import backup
from toolgate_service.cli.database import upgrade
from toolgate_service.core.errors import StartError

pytestmark = pytest.mark.sqlite_only("a server has tools of its own")

CLIENTS = 3


class Writers:
    """Agents that write entries for as long as it goes on; every acknowledged one is noted."""

    def __init__(self, owner: Owner, agent: str) -> None:
        self._owner, self._agent = owner, agent
        self.acknowledged: list[str] = []

    def go_on(self, enough: threading.Event) -> None:
        """Be one of them."""
        with Wire.of(self._owner) as wire:
            for number in count():
                if enough.is_set():
                    return
                answer = wire.log(self._agent, "mail.send", n=number)
                assert answer.status == 200, answer.raw
                self.acknowledged.append(answer.json()["id"])

    def until_more(self, many: int = 200) -> None:
        """Wait for so many more."""
        wanted = len(self.acknowledged) + many
        until(lambda: len(self.acknowledged) >= wanted)


def one(path: Path, query: str) -> int:
    """Return the one number that a query finds in a file."""
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute(query).fetchone()[0])


def test_a_backup_under_load(tmp_path: Path) -> None:
    """What was acknowledged before it began is in it, its counts and quotas are those of its entries, and it is served."""
    file = tmp_path / "backup.db"
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        agent = owner.agent()
        owner.permit(agent, "mail.send")
        writers = Writers(owner, agent)
        operator = Operator.of(gateway)
        with meanwhile([writers.go_on] * CLIENTS):
            writers.until_more()
            before = list(writers.acknowledged)
            operator.done("backup", str(file))
            writers.until_more()
            for _ in range(2):
                operator.done("backup", "--force", str(tmp_path / "again.db"))
        assert file.stat().st_mode & 0o777 == 0o600
        assert not list(tmp_path.glob("*.part*"))
        entries = one(file, "SELECT count(*) FROM log_entries")
        assert one(file, "SELECT sum(log_entries) FROM monthly_usage") == entries
        counted = "SELECT sum(succeeded + failed + blocked + held) FROM log_counts WHERE subject = 'all'"
        assert one(file, counted) == entries
        assert len(before) <= entries < len(writers.acknowledged)
        second = LiveGateway(tmp_path / "other", env={"TOOLGATE_DATABASE_URL": url_of(file)})
        with second, Wire.of(owner, second.url) as wire:
            found = Counter(entry["id"] for entry in wire.entries("mail.send"))
            assert set(before) <= set(found) <= set(writers.acknowledged)
            assert wire.allowed(agent, "mail.send") is True
            assert wire.log(agent, "mail.send").status == 200


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    """A file of the name stays, unless forced; so does the database itself, and one that a gateway serves."""
    with LiveGateway(tmp_path) as gateway:
        operator = Operator.of(gateway)
        notes = tmp_path / "notes"
        notes.write_text("mine")
        assert "--force" in operator.refused("backup", str(notes))
        assert notes.read_text() == "mine"
        assert "the database that this command copies" in operator.refused(
            "backup", "--force", str(gateway.database)
        )
        operator.done("backup", "--force", str(notes))
        assert "is a folder" in operator.refused("backup", "--force", str(tmp_path))
        assert "create it, or name another file" in operator.refused(
            "backup", str(tmp_path / "nowhere" / "file")
        )
        with LiveGateway(tmp_path, env={"TOOLGATE_DATABASE_URL": url_of(notes)}):
            assert "in use" in operator.refused("backup", "--force", str(notes))


@pytest.mark.parametrize("name", ["gateway.db-wal", "gateway.db-shm"])
def test_a_backup_is_no_part_of_the_database(tmp_path: Path, name: str) -> None:
    """Under the name of what SQLite keeps beside the file it would undo what was acknowledged last, or be undone."""
    url = f"sqlite:///{tmp_path}/gateway.db"
    upgrade(url)
    for force in (False, True):
        with pytest.raises(
            StartError, match=r"belongs to the database that this command copies; name another file"
        ):
            backup(tmp_path / name, url, force=force)
    assert not (tmp_path / name).exists()


def test_a_disk_without_links_takes_a_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As most have that are carried about: the backup is there, whole, and in nobody's place."""

    def linked(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", linked)
    url = f"sqlite:///{tmp_path}/gateway.db"
    upgrade(url)
    backup(tmp_path / "saved.db", url)
    with closing(sqlite3.connect(tmp_path / "saved.db")) as saved:
        assert saved.execute("SELECT count(*) FROM organizations").fetchone() == (0,)
    assert {path.name for path in tmp_path.glob("*saved*")} == {"saved.db"}
    with pytest.raises(StartError, match="already exists"):
        backup(tmp_path / "saved.db", url)


def test_a_backup_that_is_told_to_end_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM in the middle: no half of a copy stays beside the name, and the signal means what it did before."""
    before = signal.getsignal(signal.SIGTERM)
    url = f"sqlite:///{tmp_path}/gateway.db"
    upgrade(url)

    def looked_through(*_: object) -> str:
        assert [*tmp_path.glob(".saved.db.*.part")]
        signal.raise_signal(signal.SIGTERM)
        return "0001"

    # Otherwise the signal would end the tests.
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        monkeypatch.setattr(backing_up, "check_file", looked_through)
        with pytest.raises(SystemExit, match="143"):
            backup(tmp_path / "saved.db", url)
    finally:
        assert signal.signal(signal.SIGTERM, before).__name__ == "<lambda>"
    assert not [*tmp_path.glob("*saved*")]


@pytest.fixture
def saved(tmp_path: Path) -> Iterator[tuple[LiveGateway, Owner, str, Path]]:
    """A gateway that is not running, an owner and an agent of its backup, and what was done after it."""
    file = tmp_path / "backup.db"
    gateway = LiveGateway(tmp_path).start()
    try:
        with Owner(gateway.url) as owner:
            agent = owner.agent()
            owner.permit(agent, "mail.send")
            Operator.of(gateway).done("backup", str(file))
            owner.permit(agent, "mail.read")
            gateway.stop()
            yield gateway, owner, agent, file
    finally:
        gateway.stop()


def put_back(gateway: LiveGateway, file: Path) -> None:
    """Restore a backup as the documentation says: move the present files away, then copy the backup."""
    for path in gateway.database.parent.glob(f"{gateway.database.name}*"):
        path.unlink()
    gateway.database.write_bytes(file.read_bytes())


def test_backup_that_replaces_the_file_is_served(saved: tuple[LiveGateway, Owner, str, Path]) -> None:
    """The database is what the backup has; keys, tokens and secrets work as before."""
    gateway, owner, agent, file = saved
    put_back(gateway, file)
    Operator.of(gateway).done("check")
    with gateway, Wire.of(owner) as wire:
        assert [wire.allowed(agent, action) for action in ("mail.send", "mail.read")] == [True, False]
        assert owner.http.get("/api/organization").json()["api_key"] == owner.key


def test_gateway_with_another_secret_does_not_start_on_a_backup(
    saved: tuple[LiveGateway, Owner, str, Path],
) -> None:
    gateway, _, _, file = saved
    put_back(gateway, file)
    operator = Operator.of(gateway, TOOLGATE_SECRET="quite another one, long enough")
    checked = FORK_SERVER.run("config", "check", env=operator.env)
    assert checked.returncode == 1
    assert "secret" in checked.stdout


def test_check_names_what_is_wrong_with_a_file(
    saved: tuple[LiveGateway, Owner, str, Path], tmp_path: Path
) -> None:
    """Notes, a damaged copy, another program's database, and a newer version's."""
    gateway, _, _, file = saved
    operator = Operator.of(gateway)
    notes, damaged, other, newer = (tmp_path / name for name in ("notes", "damaged", "other", "newer"))
    notes.write_text("no database" * 1000)
    content = bytearray(file.read_bytes())
    content[8192:16384] = b"\xff" * 8192
    damaged.write_bytes(content)
    newer.write_bytes(file.read_bytes())
    for path, script in (
        (other, "CREATE TABLE mine (a)"),
        (newer, "UPDATE alembic_version SET version_num = '9999'; UPDATE schema_floor SET revision = '9998'"),
    ):
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(script)
    for path in (notes, damaged, other, newer):
        checked = operator.run("check", "--database-url", f"sqlite:///{path}")
        assert checked.returncode == 1, checked
