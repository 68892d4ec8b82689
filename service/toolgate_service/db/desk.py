"""Where commands on the whole database work: which database, its connection, and what it refuses told in one line."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy.exc
from sqlalchemy.ext.asyncio import AsyncConnection

from toolgate_service.errors import StartError, StorageError, StorageFault
from toolgate_service.settings import Settings, load_settings
from toolgate_service.storage.database import Database, is_embedded, open_database
from toolgate_service.storage.sqlite import SqliteDatabase, sqlite_path

T = TypeVar("T")


def settings_for(url: str | None) -> Settings:
    """Return the settings, with another database than theirs if one is named.

    Raises:
        StartError: one is wrong.
    """
    return load_settings({} if url is None else {"database_url": url})


@contextmanager
def refusals() -> Iterator[None]:
    """Tell whatever a database or a disk refuses as one line.

    Raises:
        StartError: instead of it.
    """
    try:
        yield
    except (StorageError, StorageFault) as error:
        raise StartError(str(error)) from None
    except (sqlalchemy.exc.SQLAlchemyError, sqlite3.Error) as error:
        cause = getattr(error, "orig", None) or error
        raise StartError(f"the database refused ({type(cause).__name__}: {first_line(cause)})") from None
    except OSError as error:
        where = f" {error.filename!r}" if error.filename else ""
        raise StartError(f"cannot use{where or ' a file'}: {error.strerror or error}") from None


def first_line(error: object) -> str:
    """Return the first line of what something says of itself: what follows may quote rows."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def done(work: Coroutine[Any, Any, T]) -> T:
    """Return what comes of a coroutine.

    Raises:
        StartError: the database or a disk refused.
    """
    with refusals():
        return asyncio.run(work)


def existing_file(url: str) -> Path:
    """Return the file of an embedded database, which is there.

    Raises:
        StartError: the URL names a server, or no file is there.
    """
    if not is_embedded(url):
        raise StartError(
            "this command is for the embedded SQLite file; a PostgreSQL server has tools of its own: pg_dump, pg_restore "
            "and continuous archiving"
        )
    with refusals():
        path = sqlite_path(url)
    if not path.is_file():
        # Opening it would make an empty one.
        raise StartError(
            f"there is no database {str(path)!r}; set TOOLGATE_DATABASE_URL to the one that the gateway uses"
        )
    return path


@asynccontextmanager
async def looked_at(url: str) -> AsyncIterator[AsyncConnection]:
    """Open a database as it is, to read it while gateways serve it.

    Raises:
        StartError: there is none.
        StorageError: it cannot be used.
    """
    if is_embedded(url):
        existing_file(url)
    database = open_database(url)
    try:
        if isinstance(database, SqliteDatabase):
            # Not as a writer: others would wait for as long as this looks.
            try:
                async with database.exporting() as session:
                    yield await session.connection()
            except sqlalchemy.exc.DBAPIError as error:
                raise StorageError(f"cannot use the database {str(database.path)!r}: {error.orig}") from None
        else:
            async with database.opened() as connection:
                yield connection
    finally:
        await database.close()


@asynccontextmanager
async def worked_on(url: str) -> AsyncIterator[Database]:
    """Open a database, and close it afterwards."""
    database = open_database(url)
    try:
        yield database
    finally:
        await database.close()


def call(work: Callable[[], T]) -> T:
    """Return what comes of work that needs no loop.

    Raises:
        StartError: the database or a disk refused.
    """
    with refusals():
        return work()
