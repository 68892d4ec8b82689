"""Which Slack user is which member, and the codes by which a member says so."""

from datetime import datetime

from sqlalchemy import Index, UniqueConstraint
from sqlmodel import Field

from toolgate_service.storage.base import Table, of_user
from toolgate_service.storage.types import Id, Timestamp


class SlackLink(Table, table=True):
    """A Slack user who decides as a member, linked by that member's own login. Within an organization, one is one."""

    __tablename__ = "slack_links"
    __table_args__ = (
        of_user("user_id"),
        UniqueConstraint("organization_id", "user_id"),
        UniqueConstraint("organization_id", "team_id", "slack_user_id"),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    user_id: str = Field(sa_type=Id)
    #: Slack's id of the workspace
    team_id: str = Field(max_length=64)
    #: Slack's id of the user
    slack_user_id: str = Field(max_length=64)
    created_at: datetime = Field(sa_type=Timestamp)


class SlackLinkCode(Table, table=True):
    """A code that a member types in Slack; stored hashed, works once, and only while the member's tokens would."""

    __tablename__ = "slack_link_codes"
    __table_args__ = (of_user("user_id"), Index(None, "organization_id", "user_id"))

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    user_id: str = Field(sa_type=Id)
    #: the user's when it was made: whatever ends tokens ends the code
    version: int
    code_hash: str = Field(max_length=64, unique=True)
    created_at: datetime = Field(sa_type=Timestamp)
    expires_at: datetime = Field(sa_type=Timestamp)
    used_at: datetime | None = Field(default=None, sa_type=Timestamp)
