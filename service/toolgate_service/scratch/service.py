"""Creation, expiry and deletion of scratch organizations.

An organization is deleted in two steps. First it is deactivated, so that no request changes it any more. Its rows are
deleted `GRACE` later: a gateway writes decisions and log entries in batches with those of other organizations, and a
batch that refers to a missing organization could not be stored.
"""

import logging
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Table as SqlTable
from sqlalchemy import delete, or_, tuple_
from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.models import FULL, User
from toolgate_service.accounts.schemas import Registration
from toolgate_service.accounts.sessions import open_session
from toolgate_service.context import AppContext
from toolgate_service.core.errors import ApiError, FieldErrors, not_found
from toolgate_service.core.ids import new_id
from toolgate_service.db.database import ACCOUNTS, Database, now
from toolgate_service.db.models import ENVIRONMENTS, Table
from toolgate_service.jobs.batches import in_batches
from toolgate_service.organizations.models import OPERATOR, Organization
from toolgate_service.organizations.service import create_organization, deactivate
from toolgate_service.scratch.models import ScratchOrganization, find_scratch
from toolgate_service.scratch.schemas import NewScratchOrganization, ScratchOrganizationView, ScratchUser
from toolgate_service.transparency.repository import lock_name

logger = logging.getLogger("toolgate.gateway")

#: maximum number of scratch organizations that exist at the same time and are not closed
MAX_OPEN: Final = 20
#: maximum number of scratch organizations that are created within a minute
MAX_PER_MINUTE: Final = 20
#: time between the deactivation of an organization and the deletion of its rows; a gateway tries for 60 seconds to
#: write a batch of decisions
GRACE: Final = timedelta(seconds=90)
#: rate limit of a scratch organization, in requests per minute
REQUESTS_PER_MINUTE: Final = 60_000
_PLAN: Final = "enterprise"
_MINUTE: Final = timedelta(minutes=1)

#: Tables whose rows are deleted last, in this order and in one transaction. Triggers write to `epochs` when rows of
#: other tables are deleted. If the row in `scratch_organizations` were deleted earlier, an interrupted deletion would
#: never be continued.
_LAST: Final = ("epochs", "environments", "users", "scratch_organizations")


async def create_scratch(context: AppContext, new: NewScratchOrganization) -> ScratchOrganizationView:
    """Create a scratch organization, and return it with session tokens of its users.

    Raises:
        ApiError: 429, too many scratch organizations exist or were created within the last minute.
        FieldErrors: The first user is not an admin.
    """
    if new.users[0] != "admin":
        raise FieldErrors({"users": ["must begin with 'admin', because the first user must be an admin"]})
    suffix = secrets.token_hex(3)
    # The session tokens are the only credentials: no response contains this password.
    password = secrets.token_urlsafe(32)
    password_hash = await context.passwords.hash(password)
    emails = [f"{role}-{place}@{suffix}.scratch.invalid" for place, role in enumerate(new.users, 1)]
    async with context.database.writing(ACCOUNTS) as session:
        moment = now(session)
        await _require_room(session, moment)
        registration = Registration(email=emails[0], password=password, organization_name=f"Scratch {suffix}")
        owner = await create_organization(session, context.vault, registration, password_hash, _PLAN)
        organization = await session.get_one(Organization, owner.organization_id)
        organization.requests_per_minute = REQUESTS_PER_MINUTE
        expires_at = moment + timedelta(seconds=new.expires_in_seconds)
        session.add_all(
            [
                organization,
                ScratchOrganization(
                    organization_id=organization.id, created_at=moment, expires_at=expires_at
                ),
            ]
        )
        users = [owner]
        for email, role in zip(emails[1:], new.users[1:], strict=True):
            user = User(
                id=new_id(),
                organization_id=organization.id,
                email=email,
                password_hash=password_hash,
                role=role,
                created_at=moment,
            )
            session.add(user)
            users.append(user)
        await session.flush()
        shown = []
        for user in users:
            token = await open_session(session, context.vault, user, FULL)
            shown.append(
                ScratchUser(id=user.id, email=user.email, role=user.role, access_token=token.access_token)
            )
        view = ScratchOrganizationView(
            id=organization.id, name=organization.name, expires_at=expires_at, users=shown
        )
    logger.info("scratch organization %s was created; it expires at %s", view.id, expires_at.isoformat())
    return view


async def _require_room(session: AsyncSession, moment: datetime) -> None:
    open_query = select(func.count()).where(
        col(ScratchOrganization.closed_at).is_(None), col(ScratchOrganization.expires_at) > moment
    )
    recent_query = select(func.count()).where(col(ScratchOrganization.created_at) > moment - _MINUTE)
    for count, limit, text in (
        ((await session.exec(open_query)).one(), MAX_OPEN, "exist"),
        ((await session.exec(recent_query)).one(), MAX_PER_MINUTE, "were created within a minute"),
    ):
        if count >= limit:
            raise ApiError(
                429,
                f"{count} scratch organizations {text}, which is the maximum; delete some, and retry after 60 seconds",
                {"Retry-After": "60"},
            )


async def close_scratch(database: Database, organization_id: str) -> None:
    """Deactivate a scratch organization. A background job deletes its rows `GRACE` later.

    Closing an organization again changes nothing.

    Raises:
        ApiError: 404, there is no scratch organization with this id.
    """
    async with database.writing(organization_id) as session:
        scratch = await find_scratch(session, organization_id)
        if scratch is None:
            raise not_found("Scratch organization")
        if scratch.closed_at is not None:
            return
        organization = await session.get_one(Organization, organization_id)
        await deactivate(session, organization, OPERATOR)
        scratch.closed_at = now(session)
        session.add_all([organization, scratch])
    logger.info("scratch organization %s was closed", organization_id)


async def remove_scratch(database: Database, batch: int) -> int:
    """Close expired scratch organizations, and delete those that were closed at least `GRACE` ago.

    Return the number of deleted organizations.
    """
    async with database.reading() as session:
        moment = now(session)
        due = or_(
            col(ScratchOrganization.closed_at) <= moment - GRACE,
            col(ScratchOrganization.closed_at).is_(None) & (col(ScratchOrganization.expires_at) <= moment),
        )
        query = select(ScratchOrganization.organization_id, ScratchOrganization.closed_at).where(due)
        found = (await session.exec(query)).all()
    removed = 0
    for organization_id, closed_at in found:
        if closed_at is None:
            await close_scratch(database, organization_id)
        else:
            await _delete_rows(database, batch, organization_id)
            removed += 1
            logger.info("scratch organization %s was deleted", organization_id)
    return removed


async def _delete_rows(database: Database, batch: int, organization_id: str) -> None:
    """Delete all rows of an organization, and the organization itself."""
    locks = (organization_id, *(lock_name(organization_id, environment) for environment in ENVIRONMENTS))
    for table in _tables_of_organizations():
        await _delete_from(database, batch, table, organization_id, locks)
    tables = Table.metadata.tables
    async with database.writing(*locks) as session:
        for name in _LAST:
            await session.exec(delete(tables[name]).where(tables[name].c.organization_id == organization_id))
        await session.exec(delete(Organization).where(col(Organization.id) == organization_id))


def _tables_of_organizations() -> Sequence[SqlTable]:
    """Return the tables with rows of organizations, each before the tables to which its foreign keys refer."""
    return [
        table
        for table in reversed(Table.metadata.sorted_tables)
        if "organization_id" in table.c and table.name not in _LAST
    ]


async def _delete_from(
    database: Database, batch: int, table: SqlTable, organization_id: str, locks: Sequence[str]
) -> None:
    keys = list(table.primary_key)
    chosen = select(*keys).where(table.c.organization_id == organization_id).limit(batch)
    key = keys[0] if len(keys) == 1 else tuple_(*keys)

    async def work(session: AsyncSession) -> int:
        # The second condition lets PostgreSQL use the index of the organization, and skip partitions of other months.
        found = await session.exec(
            delete(table).where(key.in_(chosen), table.c.organization_id == organization_id)
        )
        return found.rowcount

    async with database.reading() as session:
        if (await session.exec(chosen.limit(1))).first() is None:
            return
    await in_batches(database, batch, work, *locks)
