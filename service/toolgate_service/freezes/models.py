"""Database table of freezes."""

from datetime import datetime

from sqlalchemy import Text
from sqlmodel import Field

from toolgate_service.db.models import Id, Table, Timestamp, index_where, of_user


class Freeze(Table, table=True):
    """Freeze, which denies tool calls until an admin lifts the freeze.

    A freeze applies to both environments of the organization. The row of a lifted freeze is kept.
    """

    __tablename__ = "freezes"
    __table_args__ = (
        of_user("created_by"),
        of_user("lifted_by"),
        index_where("ix_freezes_active", "lifted_at IS NULL", "organization_id", "created_at", "id"),
        index_where("ix_freezes_lifted", "lifted_at IS NOT NULL", "organization_id", "created_at", "id"),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    #: the agent whose calls are denied; null for the calls of all agents
    agent_id: str | None = Field(default=None, sa_type=Id)
    #: denied action, or a prefix followed by ``*`` if all actions with this prefix are denied; null for all actions
    action: str | None = Field(default=None, max_length=255)
    reason: str = Field(sa_type=Text)
    created_by: str = Field(sa_type=Id)
    created_at: datetime = Field(sa_type=Timestamp)
    lifted_by: str | None = Field(default=None, sa_type=Id)
    lifted_at: datetime | None = Field(default=None, sa_type=Timestamp)
