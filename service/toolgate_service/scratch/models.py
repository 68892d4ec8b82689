"""Database table of scratch organizations."""

from datetime import datetime

from sqlalchemy import ForeignKeyConstraint
from sqlmodel import Field, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.db.models import Id, Table, Timestamp


class ScratchOrganization(Table, table=True):
    """Row that marks an organization as a scratch organization, which the gateway deletes when it expires.

    No request removes the row or extends the time: the row is deleted together with the organization.
    """

    __tablename__ = "scratch_organizations"
    __table_args__ = (ForeignKeyConstraint(["organization_id"], ["organizations.id"]),)

    organization_id: str = Field(primary_key=True, sa_type=Id)
    created_at: datetime = Field(sa_type=Timestamp)
    expires_at: datetime = Field(sa_type=Timestamp)
    #: time at which the organization was deactivated; its rows are deleted later, because a gateway may still write
    #: decisions that it made before
    closed_at: datetime | None = Field(default=None, sa_type=Timestamp)


async def find_scratch(session: AsyncSession, organization_id: str) -> ScratchOrganization | None:
    """Return the row that marks the organization as a scratch organization; None for any other organization."""
    query = select(ScratchOrganization).where(ScratchOrganization.organization_id == organization_id)
    return (await session.exec(query)).first()
