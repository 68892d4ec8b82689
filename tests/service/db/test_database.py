"""The database file: private, created with its folder, refused when it cannot be used (decisions §9)."""

import sqlite3
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
from sqlalchemy.exc import IntegrityError
from support.gateway import LiveGateway

from toolgate_service.accounts.models import LoginFailures
from toolgate_service.cli.context import display_url, file_url
from toolgate_service.core.clock import utcnow
from toolgate_service.core.errors import StorageError
from toolgate_service.db.sqlite import SqliteDatabase, sqlite_path

pytestmark = pytest.mark.sqlite_only("about the file: its rights, what is refused as a file, and its pragmas")


async def start(path: Path) -> None:
    database = SqliteDatabase(f"sqlite:///{path}")
    try:
        await database.start()
    finally:
        await database.close()


async def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    """A new file is 0600 in a new folder of 0700."""
    path = tmp_path / "new" / "gateway.db"
    await start(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_what_stands_beside_the_file_is_private_too(gateway: LiveGateway) -> None:
    """SQLite's own files beside it, which hold the newest rows, are 0600 as well, and so are published checkpoints."""
    beside = sorted(gateway.database.parent.glob("gateway.db*"))
    assert len(beside) >= 3
    assert {file.stat().st_mode & 0o777 for file in beside} == {0o600}


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    """A database that a newer version wrote is left alone, and the message says so."""
    path = tmp_path / "gateway.db"
    await start(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.execute("UPDATE schema_floor SET revision = '9998'")
    before = path.read_bytes()
    with pytest.raises(StorageError, match=r"9999.*newer.*upgrade Toolgate on this machine"):
        await start(path)
    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """Some other file is not overwritten."""
    path = tmp_path / "letter.txt"
    path.write_text("Dear database, " * 100)
    with pytest.raises(StorageError, match=r"letter\.txt"):
        await start(path)
    assert path.read_text().startswith("Dear database")


async def test_a_folder_is_no_database(tmp_path: Path) -> None:
    """The message names the place and the cure."""
    with pytest.raises(StorageError, match="TOOLGATE_DATABASE_URL"):
        await start(tmp_path)


async def test_every_commit_is_synced_and_foreign_keys_hold(tmp_path: Path) -> None:
    """Both engines run in WAL mode with `synchronous=FULL` and foreign keys (decisions §6, §9)."""
    database = SqliteDatabase(f"sqlite:///{tmp_path / 'gateway.db'}")
    await database.start()
    for transaction in (database.reading, database.writing):
        async with transaction() as session:
            connection = await session.connection()
            found = [
                (await connection.exec_driver_sql(f"PRAGMA {name}")).scalar()
                for name in ("journal_mode", "synchronous", "foreign_keys")
            ]
        assert found == ["wal", 2, 1]
    await database.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "not a url",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file:x?mode=memory",
        "mysql://localhost/x",
        "postgresql://user:secret@localhost/x",
    ],
)
def test_a_wrong_url_is_refused_without_its_password(url: str) -> None:
    """What names no SQLite file is refused with a cure, and a password in it is not repeated."""
    with pytest.raises(StorageError, match="TOOLGATE_DATABASE_URL") as refusal:
        sqlite_path(url)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("url", "path"),
    [("sqlite:////tmp/x.db", "/tmp/x.db"), ("sqlite:////tmp/a%20b.db", "/tmp/a b.db")],
)
def test_a_url_names_a_file(url: str, path: str) -> None:
    """The path is the one that the URL spells."""
    assert sqlite_path(url) == Path(path)


@pytest.mark.parametrize("name", ["a b.db", "100%.db", "a%20b.db", "what?.db"])
def test_shown_url_names_the_same_file(name: str) -> None:
    """With SQLAlchemy 2.0, which does not decode names, as with 2.1."""
    assert sqlite_path(file_url(Path("/tmp") / name)) == Path("/tmp") / name


def test_shown_postgresql_database_is_decoded() -> None:
    assert (
        display_url("postgresql://user:secret@db.example:5433/my%20data")
        == "postgresql://db.example:5433/my data"
    )


def test_a_home_folder_may_be_abbreviated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`~` is the user's home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert sqlite_path("sqlite:///~/x.db") == tmp_path / "x.db"


async def test_a_failed_statement_does_not_tell_its_values(tmp_path: Path) -> None:
    """What goes to the operator's log when a statement fails is not what it was to write."""
    database = SqliteDatabase(f"sqlite:///{tmp_path / 'gateway.db'}")
    await database.start()
    for expected in (nullcontext(), pytest.raises(IntegrityError, match="UNIQUE")):
        with expected as failed:
            async with database.writing() as session:
                session.add(LoginFailures(subject="hunter2", last_failed_at=utcnow()))
    await database.close()
    assert failed is not None
    assert "hunter2" not in str(failed.value)
