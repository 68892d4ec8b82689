"""Parts that all commands for operators share: settings, database access, one-line error messages, and reports."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

import sqlalchemy.exc
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlmodel import col, or_, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.models import ADMIN, User
from toolgate_service.core.errors import StartError, StorageError, StorageFault
from toolgate_service.core.ids import is_id
from toolgate_service.core.settings import Settings, is_embedded, load_settings
from toolgate_service.db.database import Database, one_host, open_database, parse_url
from toolgate_service.db.retry import with_retry
from toolgate_service.db.sqlite import SqliteDatabase, sqlite_path
from toolgate_service.organizations.models import Organization

T = TypeVar("T")


def settings_for(url: str | None) -> Settings:
    """Return the settings. If `url` is not None, it replaces the database URL.

    Raises:
        StartError: A setting is invalid.
    """
    return load_settings({} if url is None else {"database_url": url})


@contextmanager
def translate_errors() -> Iterator[None]:
    """Convert errors of the database and the file system inside the `with` block to a `StartError`.

    The message of the `StartError` has one line.
    """
    try:
        yield
    except (StorageError, StorageFault) as error:
        raise StartError(str(error)) from None
    except (sqlalchemy.exc.SQLAlchemyError, sqlite3.Error) as error:
        cause = getattr(error, "orig", None) or error
        raise StartError(
            f"the database reported an error ({type(cause).__name__}: {first_line(cause)})"
        ) from None
    except OSError as error:
        where = f" {error.filename!r}" if error.filename else ""
        raise StartError(f"cannot use{where or ' a file'}: {error.strerror or error}") from None


def first_line(error: object) -> str:
    """Return the first line of an error's message.

    Further lines are omitted, because they may contain data of database rows.
    """
    return (str(error).splitlines() or [type(error).__name__])[0]


def done(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a new event loop, and return its result.

    Raises:
        StartError: The database or the file system reported an error.
    """
    with translate_errors():
        return asyncio.run(work)


def existing_file(url: str) -> Path:
    """Return the path of an embedded gateway's database file, and check that the file exists.

    Raises:
        StartError: The URL belongs to a database server, or the file does not exist.
    """
    if not is_embedded(url):
        raise StartError(
            "this command works only with the SQLite file of an embedded gateway; for PostgreSQL, use pg_dump, pg_restore "
            "or continuous archiving"
        )
    with translate_errors():
        path = sqlite_path(url)
    if not path.is_file():
        # Raise the error before the file is opened, because SQLite would create a missing file.
        raise StartError(
            f"the database {str(path)!r} does not exist; set TOOLGATE_DATABASE_URL to the database that the gateway uses"
        )
    return path


@asynccontextmanager
async def open_for_reading(url: str) -> AsyncIterator[AsyncConnection]:
    """Open a connection that only reads a database.

    The schema is not migrated, and gateways can use the database at the same time.

    Raises:
        StartError: The database does not exist.
        StorageError: The database cannot be used.
    """
    if is_embedded(url):
        existing_file(url)
    database = open_database(url)
    try:
        if isinstance(database, SqliteDatabase):
            # `opened` would begin a write transaction, which blocks all other writers until it ends.
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
async def opened_database(url: str) -> AsyncIterator[Database]:
    """Open the database at this URL, and close its connections at the end of the `with` block."""
    database = open_database(url)
    try:
        yield database
    finally:
        await database.close()


def call(work: Callable[[], T]) -> T:
    """Call a function, return its result, and convert errors of the database and the file system to `StartError`.

    Raises:
        StartError: The database or the file system reported an error.
    """
    with translate_errors():
        return work()


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a command for operators.

    Attributes:
        lines: Result as lines of text.
        facts: Result for programs, as a mapping that can be converted to JSON.
        good: False if the command found a problem.
    """

    lines: Sequence[str]
    facts: Mapping[str, Any]
    good: bool = True


def display_url(url: str) -> str:
    """Return a database URL without user, password and parameters, so that it can be displayed."""
    if is_embedded(url):
        return file_url(sqlite_path(url))
    parsed = parse_url(one_host(url))
    host = parsed.host or _first(parsed.query.get("host")) or "localhost"
    port = parsed.port or _first(parsed.query.get("port")) or 5432
    return f"postgresql://{host}:{port}/{parsed.database or ''}"


def file_url(path: Path) -> str:
    """Return the database URL for an SQLite file."""
    return f"sqlite:///{quote(str(path))}"


def _first(value: str | tuple[str, ...] | None) -> str | None:
    return value[0] if isinstance(value, tuple) else value


Lines: TypeAlias = Sequence[str]


@dataclass(frozen=True, slots=True)
class OperatorSession:
    """Settings and open database that a command for operators uses."""

    settings: Settings
    database: Database


def run_with_database(work: Callable[[OperatorSession], Awaitable[Lines]]) -> Lines:
    """Open the database that the settings name, call `work` with it, close the database, and return the lines to print.

    Raises:
        StartError: A setting is invalid, the database does not exist or cannot be used, or `work` raised this error.
    """
    settings = load_settings({})
    try:
        return asyncio.run(_run_with_database(settings, work))
    except StorageError as error:
        raise StartError(str(error)) from error
    except StorageFault as fault:
        raise StartError(f"the database is unavailable ({fault}); run the command again later") from fault
    except (SQLAlchemyError, sqlite3.Error, OSError, UnicodeEncodeError) as error:
        if _is_invalid_text(error):
            raise StartError(
                "nothing was changed, because an argument of the command contains bytes that are not valid UTF-8"
            ) from None
        cause = getattr(error, "orig", None) or error
        raise StartError(
            f"the database reported an error ({type(cause).__name__}: {str(cause).splitlines()[0]}); nothing was changed"
        ) from error


def change_organization(
    name: str,
    change: Callable[[OperatorSession, AsyncSession, Organization], Awaitable[Lines]],
    *locks: str,
) -> Lines:
    """Call `change` with an organization, in a transaction that holds the organization's lock.

    Args:
        name: Id or slug of the organization, or the e-mail address of one of its administrators.
        change: Function that changes the organization, and returns the lines to print.
        locks: Names of further locks that the transaction holds.

    Raises:
        StartError: The organization does not exist, or the database or a setting cannot be used.
    """

    async def work(operator: OperatorSession) -> Lines:
        async with operator.database.reading() as session:
            organization_id = (await find_organization(session, name)).id
        async with operator.database.writing(organization_id, *locks) as session:
            query = select(Organization).where(Organization.id == organization_id)
            return await change(operator, session, (await session.exec(query)).one())

    return run_with_database(work)


def _is_invalid_text(error: BaseException | None) -> bool:
    # Python represents invalid UTF-8 in command line arguments as lone surrogates, which databases cannot store. The
    # error can be the cause of the PostgreSQL driver's own exception.
    while error is not None and not isinstance(error, UnicodeEncodeError):
        error = error.__cause__ or error.__context__
    return error is not None


async def _run_with_database(
    settings: Settings, work: Callable[[OperatorSession], Awaitable[Lines]]
) -> Lines:
    if is_embedded(settings.database_url):
        existing_file(settings.database_url)
    database = open_database(settings.database_url)
    try:
        await database.start(migrate=settings.migrate == "auto")
        return await with_retry(lambda: work(OperatorSession(settings, database)))
    finally:
        await database.close()


async def find_organization(session: AsyncSession, name: str) -> Organization:
    """Return the organization with this id or slug, or with an administrator who has this e-mail address.

    Raises:
        StartError: No organization matches.
    """
    name = name.strip()
    by_email = select(User.organization_id).where(
        User.email == name.lower(), User.role == ADMIN, col(User.removed_at).is_(None)
    )
    # Search by id only if `name` is a UUID, because PostgreSQL rejects a query that compares an id with other text.
    ids = [name] if is_id(name) else []
    query = select(Organization).where(
        or_(
            Organization.slug == name,
            col(Organization.id).in_(ids),
            col(Organization.id).in_(by_email),
        )
    )
    found = (await session.exec(query)).all()
    # The slug of one organization may equal the id of another one; the id takes precedence. E-mail addresses are
    # unambiguous, because slugs contain no `@`.
    best = min(found, key=lambda organization: organization.id != name, default=None)
    if best is None:
        raise StartError(
            f"no organization matches {name!r}: enter the organization's id, its slug, or the e-mail address of one of "
            "its admins"
        )
    return best


def display_organization(organization: Organization) -> str:
    """Return the name, slug and id of an organization as text to print."""
    return f"{organization.name!r} ({organization.slug}, {organization.id})"
