"""Where an operator's commands work: the settings, the open database, and organizations by any of their names."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import col, or_, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.models import ADMIN, User
from toolgate_service.errors import StartError, StorageError, StorageFault
from toolgate_service.ids import is_id
from toolgate_service.organizations.models import Organization
from toolgate_service.settings import Settings, load_settings
from toolgate_service.storage.database import Database, is_embedded, open_database
from toolgate_service.storage.races import anew
from toolgate_service.storage.sqlite import sqlite_path

Lines: TypeAlias = Sequence[str]


@dataclass(frozen=True, slots=True)
class Desk:
    """What a command works with."""

    settings: Settings
    database: Database

    async def on(
        self,
        name: str,
        work: Callable[[AsyncSession, Organization], Awaitable[Lines]],
        *turns: str,
    ) -> Lines:
        """Do something to an organization, in one transaction and in its turn.

        Args:
            name: the organization's id or slug, or the e-mail of one of its admins.
            work: what is done; it returns the lines to be shown.
            turns: others to be taken as well.

        Raises:
            StartError: there is no such organization.
        """
        async with self.database.reading() as session:
            organization_id = (await find_organization(session, name)).id
        async with self.database.writing(organization_id, *turns) as session:
            query = select(Organization).where(Organization.id == organization_id)
            return await work(session, (await session.exec(query)).one())


def at_desk(work: Callable[[Desk], Awaitable[Lines]]) -> Lines:
    """Open the database of the settings, do something, and close it.

    Raises:
        StartError: a setting is wrong, the database is not there or cannot be used, or the work refuses.
    """
    settings = load_settings({})
    try:
        return asyncio.run(_at_desk(settings, work))
    except StorageError as error:
        raise StartError(str(error)) from error
    except StorageFault as fault:
        raise StartError(f"the database cannot be used just now ({fault}); try again") from fault
    except (SQLAlchemyError, sqlite3.Error, OSError, UnicodeEncodeError) as error:
        if _names_no_text(error):
            raise StartError("an argument is no UTF-8 text; nothing was changed") from None
        cause = getattr(error, "orig", None) or error
        raise StartError(
            f"the database refused ({type(cause).__name__}: {str(cause).splitlines()[0]}); nothing was changed"
        ) from error


def _names_no_text(error: BaseException | None) -> bool:
    # Bytes of a command line that are no text come as characters that no database takes; PostgreSQL's driver has an
    # error of its own around it.
    while error is not None and not isinstance(error, UnicodeEncodeError):
        error = error.__cause__ or error.__context__
    return error is not None


async def find_organization(session: AsyncSession, name: str) -> Organization:
    """Return the organization of an id, an admin's e-mail, or a slug, looked for in this order.

    Raises:
        StartError: there is none.
    """
    name = name.strip()
    by_email = select(User.organization_id).where(
        User.email == name.lower(), User.role == ADMIN, col(User.removed_at).is_(None)
    )
    # PostgreSQL compares identifiers with identifiers alone.
    ids = [name] if is_id(name) else []
    query = select(Organization).where(
        or_(
            Organization.slug == name,
            col(Organization.id).in_(ids),
            col(Organization.id).in_(by_email),
        )
    )
    found = (await session.exec(query)).all()
    # Somebody may name an organization so that its slug looks like another's id; no slug looks like an e-mail.
    best = min(found, key=lambda organization: organization.id != name, default=None)
    if best is None:
        raise StartError(
            f"there is no organization {name!r}; name it by its id, its slug, or the e-mail of one of its admins"
        )
    return best


def shown(organization: Organization) -> str:
    """Return an organization as lines name it."""
    return f"{organization.name!r} ({organization.slug}, {organization.id})"


async def _at_desk(settings: Settings, work: Callable[[Desk], Awaitable[Lines]]) -> Lines:
    if is_embedded(settings.database_url):
        path = sqlite_path(settings.database_url)
        # Opening it would make an empty one.
        if not path.exists():
            raise StartError(
                f"there is no database {str(path)!r}; set TOOLGATE_DATABASE_URL to the one that the gateway uses"
            )
    database = open_database(settings.database_url)
    try:
        await database.start(migrate=settings.migrate == "auto")
        return await anew(lambda: work(Desk(settings, database)))
    finally:
        await database.close()
