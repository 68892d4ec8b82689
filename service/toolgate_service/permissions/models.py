"""Permissions: what an agent may do."""

from datetime import datetime
from decimal import Decimal

from sqlalchemy import CheckConstraint, Text, UniqueConstraint
from sqlmodel import Field

from toolgate_service.storage.base import Table, of_agent, of_user
from toolgate_service.storage.types import ExactDecimal, Id, Timestamp


class Permission(Table, table=True):
    """One agent may do one action, within an amount, perhaps with a person's approval. At most one per action."""

    __tablename__ = "permissions"
    __table_args__ = (
        of_agent(),
        of_user("created_by"),
        UniqueConstraint("organization_id", "environment", "agent_id", "action"),
        CheckConstraint("required_approvals >= 1", name="required_approvals"),
        CheckConstraint("approval_ttl_seconds > 0", name="approval_ttl_seconds"),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    agent_id: str = Field(sa_type=Id)
    action: str = Field(max_length=255)
    requires_approval: bool = False
    max_amount: Decimal | None = Field(default=None, sa_type=ExactDecimal)
    #: with a maximum: a check without an amount is blocked
    amount_required: bool = False
    #: distinct users who must approve
    required_approvals: int = 1
    #: whoever created the agent or this permission may not approve
    separation_of_duties: bool = False
    #: how long a request waits; null means the gateway's setting
    approval_ttl_seconds: int | None = None
    #: ids of the users who ever loosened it, as a JSON list: with separation of duties they may not approve either
    loosened_by: str | None = Field(default=None, sa_type=Text)
    created_by: str = Field(sa_type=Id)
    created_at: datetime = Field(sa_type=Timestamp)
    updated_at: datetime | None = Field(default=None, sa_type=Timestamp)
