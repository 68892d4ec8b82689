"""Databases of the tests' gateways: SQLite files, or databases of one PostgreSQL server."""

import asyncio
import secrets
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from urllib.parse import quote

import asyncpg
from sqlalchemy import event, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from toolgate_service.db.database import open_database
from toolgate_service.db.migrate import upgrade

T = TypeVar("T")
#: parts of the warnings that each gateway on the tests' PostgreSQL server logs: it runs without fsync, and the gateway
#: remembers no checkpoints
_WARNINGS = ("runs with fsync=off", "TOOLGATE_CHECKPOINT_FILE is not set")
#: name of the SQLite file that is copied
TEMPLATE = "template.db"


def without_warnings(stderr: str) -> str:
    """Return standard error without the lines that each gateway on the tests' PostgreSQL server logs."""
    lines = stderr.splitlines(keepends=True)
    return "".join(line for line in lines if not any(warning in line for warning in _WARNINGS))


class Server:
    """A PostgreSQL server that holds a database of the newest schema, to be copied for each gateway.

    Attributes:
        url: where its database for maintenance is.
        template: the database that is copied, if it was made.
    """

    def __init__(self, url: str, template: str | None = None) -> None:
        self.url = url
        self.template = template
        self._made: dict[str, None] = {}

    def make_template(self) -> str:
        """Make the database that is copied, by the gateway's own migrations."""
        name = self.create_database(migrated=False)
        finished(_migrate(self.url_of(name)))
        self.template = name
        return name

    def create_database(self, *, migrated: bool = True) -> str:
        """Return the name of a new database: of the newest schema, or empty."""
        name = f"toolgate_{secrets.token_hex(8)}"
        source = (self.template or self.make_template()) if migrated else "template0"
        self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{source}"')
        self._made[name] = None
        return name

    def drop_database(self, name: str) -> None:
        """Remove a database, whoever is connected to it."""
        self._execute(f'DROP DATABASE "{name}" WITH (FORCE)')
        self._made.pop(name, None)

    def drop_all(self) -> None:
        """Remove every database that was made here."""
        for name in list(self._made):
            self.drop_database(name)

    def url_of(self, name: str) -> str:
        """Return where a database is, as the gateway is told."""
        return make_url(self.url).set(database=name).render_as_string(hide_password=False)

    def _execute(self, statement: str) -> None:
        async def execute() -> None:
            connection = await asyncpg.connect(self.url)
            try:
                await connection.execute(statement)
            finally:
                await connection.close()

        finished(execute())


async def _migrate(url: str) -> None:
    async with engine(url).begin() as connection:
        await connection.run_sync(upgrade)


def engine(url: str) -> AsyncEngine:
    """Return what connects to a database, foreign keys held on SQLite too."""
    kind = make_url(url)
    if kind.get_backend_name() == "postgresql":
        return create_async_engine(kind.set(drivername="postgresql+asyncpg"), poolclass=NullPool)
    made = create_async_engine(kind.set(drivername="sqlite+aiosqlite"), poolclass=NullPool)
    event.listen(made.sync_engine, "connect", _hold_foreign_keys)
    return made


def _hold_foreign_keys(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def finished(work: Coroutine[Any, Any, T]) -> T:
    """Return a coroutine's result, also where a loop runs already: it gets a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


class _Choice:
    """What `--database` and `--replicas` chose.

    Attributes:
        server: the server, or None where gateways keep files.
        replicas: how many processes are a gateway.
        redis_url: where they count rates together, if not in the database.
    """

    server: Server | None = None
    replicas: int = 1
    redis_url: str | None = None


CHOICE = _Choice()
_by_folder: dict[Path, str] = {}


def database_url(folder: Path) -> str:
    """Return the URL of a folder's database, which is made with the newest schema if it does not exist."""
    if CHOICE.server is None:
        file = database_file(folder)
        if not file.exists():
            _copy_sqlite_template(file)
        return f"sqlite:///{quote(str(file))}"
    folder = folder.resolve()
    if folder not in _by_folder:
        _by_folder[folder] = CHOICE.server.create_database()
    return CHOICE.server.url_of(_by_folder[folder])


def _copy_sqlite_template(file: Path) -> None:
    # Migrating an empty file costs a gateway more than half of the CPU time of its start.
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    file.write_bytes(sqlite_template())


@cache
def sqlite_template() -> bytes:
    """Return the content of an SQLite file with the newest schema."""

    async def migrate(url: str) -> None:
        database = open_database(url)
        await database.start()
        await database.close()

    with TemporaryDirectory() as folder:
        file = Path(folder) / TEMPLATE
        finished(migrate(f"sqlite:///{quote(str(file))}"))
        return file.read_bytes()


def empty_database(folder: Path) -> str:
    """Return where a new database without a schema is, of the chosen kind; the folder need not exist."""
    if CHOICE.server is not None:
        return CHOICE.server.url_of(CHOICE.server.create_database(migrated=False))
    return f"sqlite:///{quote(str(folder / 'new.db'))}"


def drop(url: str) -> None:
    """Remove a database; a file goes with its folder."""
    if CHOICE.server is not None:
        name = make_url(url).database
        assert name is not None
        CHOICE.server.drop_database(name)


def database_file(folder: Path) -> Path:
    """Return the file in which a gateway keeps the data of a folder, if it keeps files."""
    assert CHOICE.server is None, "this gateway keeps no file: its data is in PostgreSQL"
    return folder / "gateway.db"
