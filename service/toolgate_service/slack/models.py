"""Links between Slack users and members, and the codes by which a member makes one."""

from datetime import datetime

from sqlalchemy import ForeignKeyConstraint, Index, UniqueConstraint
from sqlmodel import Field

from toolgate_service.storage.base import Table, of_user
from toolgate_service.storage.types import Id, Timestamp


class SlackLink(Table, table=True):
    """A Slack user who decides as a member, by requests that the app signs through which the link was made.

    A link belongs to the signing secret of that app, and ends with it. For one secret a Slack user is one member, and a
    member one Slack user.
    """

    __tablename__ = "slack_app_links"
    __table_args__ = (
        of_user("user_id"),
        # A deleted webhook is removed later on, also by gateways that do not know this table.
        ForeignKeyConstraint(
            ["organization_id", "environment", "webhook_id"],
            ["webhooks.organization_id", "webhooks.environment", "webhooks.id"],
            ondelete="CASCADE",
        ),
        UniqueConstraint("secret_id", "user_id"),
        UniqueConstraint("secret_id", "team_id", "slack_user_id"),
        Index(None, "organization_id", "user_id"),
        Index(None, "webhook_id"),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    webhook_id: str = Field(sa_type=Id)
    #: the `webhook_secrets` row of the app's signing secret; a replaced secret is a new row
    secret_id: str = Field(sa_type=Id)
    user_id: str = Field(sa_type=Id)
    #: Slack's id of the workspace
    team_id: str = Field(max_length=64)
    #: Slack's id of the user
    slack_user_id: str = Field(max_length=64)
    created_at: datetime = Field(sa_type=Timestamp)


class FormerSlackLink(Table, table=True):
    """A link of gateways before revision 0017, which belongs to no app. Only those gateways read it."""

    __tablename__ = "slack_links"
    __table_args__ = (
        of_user("user_id"),
        UniqueConstraint("organization_id", "user_id"),
        UniqueConstraint("organization_id", "team_id", "slack_user_id"),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    user_id: str = Field(sa_type=Id)
    team_id: str = Field(max_length=64)
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
    #: the app in which it may be typed, by the `webhook_secrets` row of its signing secret
    secret_id: str | None = Field(default=None, sa_type=Id)
    created_at: datetime = Field(sa_type=Timestamp)
    expires_at: datetime = Field(sa_type=Timestamp)
    used_at: datetime | None = Field(default=None, sa_type=Timestamp)
