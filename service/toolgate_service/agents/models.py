"""Database table of agents."""

from datetime import datetime

from sqlalchemy import UniqueConstraint
from sqlmodel import Field

from toolgate_service.db.models import Id, Table, Timestamp, in_environment, index_where, of_user, one_of

ACTIVE = "active"
INACTIVE = "inactive"
STATUSES = (ACTIVE, INACTIVE)


class Agent(Table, table=True):
    """AI agent whose tool calls the gateway checks.

    The row of a deleted agent is kept, so that log entries can still show the agent's name.
    """

    __tablename__ = "agents"
    __table_args__ = (
        in_environment(),
        of_user("created_by"),
        of_user("switched_off_by"),
        UniqueConstraint("organization_id", "environment", "id"),
        # Index for the queries that list or count agents. It contains no deleted agents, because these queries exclude
        # them.
        index_where(
            "ix_agents_listed", "deleted_at IS NULL", "organization_id", "environment", "created_at", "id"
        ),
        one_of("status", STATUSES),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    name: str = Field(max_length=100)
    description: str | None = Field(default=None, max_length=1000)
    status: str = Field(default=ACTIVE, max_length=10)
    #: id of the user who disabled the agent; if this user is an admin, only an admin can enable the agent again
    switched_off_by: str | None = Field(default=None, sa_type=Id)
    created_by: str = Field(sa_type=Id)
    created_at: datetime = Field(sa_type=Timestamp)
    deleted_at: datetime | None = Field(default=None, sa_type=Timestamp)
