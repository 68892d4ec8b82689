"""Links between members and Slack users: their database tables and their deletion.

A link is a credential: if the Slack user presses a button, the press counts as the member's decision. The gateway
deletes the link when the member is removed, the member's password changes, the webhook of the Slack app is deleted, or
the signing secret of the app is replaced.
"""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ForeignKeyConstraint, Index, UniqueConstraint
from sqlmodel import Field, col, delete, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.models import User
from toolgate_service.audit import service as audit
from toolgate_service.db.models import Id, Table, Timestamp, of_user


class SlackLink(Table, table=True):
    """Link that allows a Slack user to decide as a member. It is valid only in the Slack app in which it was created.

    A link belongs to the app's signing secret and is deleted together with the secret. For each secret, a Slack user is
    linked to at most one member, and a member to at most one Slack user.
    """

    __tablename__ = "slack_app_links"
    __table_args__ = (
        of_user("user_id"),
        # CASCADE, because older gateways delete webhooks without deleting their rows in this table.
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
    #: id of the `webhook_secrets` row with the app's signing secret; a new secret gets a new row
    secret_id: str = Field(sa_type=Id)
    user_id: str = Field(sa_type=Id)
    #: id of the Slack workspace
    team_id: str = Field(max_length=64)
    #: id of the Slack user
    slack_user_id: str = Field(max_length=64)
    created_at: datetime = Field(sa_type=Timestamp)


class FormerSlackLink(Table, table=True):
    """Link from a gateway older than schema revision 0017. It belongs to no app, and only such gateways read it."""

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
    """Code that a member types in Slack to create a link. The table stores only the code's hash."""

    __tablename__ = "slack_link_codes"
    __table_args__ = (of_user("user_id"), Index(None, "organization_id", "user_id"))

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    user_id: str = Field(sa_type=Id)
    #: the user's version when the code was created; the code is invalid after the version changes
    version: int
    code_hash: str = Field(max_length=64, unique=True)
    #: id of the `webhook_secrets` row with the signing secret of the Slack app that accepts the code
    secret_id: str | None = Field(default=None, sa_type=Id)
    created_at: datetime = Field(sa_type=Timestamp)
    expires_at: datetime = Field(sa_type=Timestamp)
    used_at: datetime | None = Field(default=None, sa_type=Timestamp)


MEMBER_REMOVED = "the member was removed"
PASSWORD_CHANGED = "the password was changed"  # noqa: S105 - a reason
SECRET_REPLACED = "the signing secret of the Slack app was replaced"  # noqa: S105 - a reason
WEBHOOK_DELETED = "the webhook of the Slack app was deleted"


async def end_user_links(session: AsyncSession, user: User, reason: str) -> None:
    """Delete a user's links to Slack and unused link codes."""
    await session.exec(
        delete(SlackLinkCode).where(
            col(SlackLinkCode.organization_id) == user.organization_id, col(SlackLinkCode.user_id) == user.id
        )
    )
    await end_former_links(session, user.organization_id, user.id)
    query = select(SlackLink).where(
        SlackLink.organization_id == user.organization_id, SlackLink.user_id == user.id
    )
    await _end(session, (await session.exec(query)).all(), reason)


async def end_webhook_links(
    session: AsyncSession, organization_id: str, webhook_id: str, reason: str
) -> None:
    """Delete the links that were created in the Slack app of a webhook."""
    query = select(SlackLink).where(
        SlackLink.organization_id == organization_id, SlackLink.webhook_id == webhook_id
    )
    await _end(session, (await session.exec(query)).all(), reason)
    # Links from older gateways belong to no app. Any of them may come from this app, so all are deleted.
    await end_former_links(session, organization_id)


async def end_former_links(session: AsyncSession, organization_id: str, user_id: str | None = None) -> None:
    """Delete links from gateways older than schema revision 0017: of one user, or by default of the organization."""
    former = delete(FormerSlackLink).where(col(FormerSlackLink.organization_id) == organization_id)
    if user_id is not None:
        former = former.where(col(FormerSlackLink.user_id) == user_id)
    await session.exec(former)


async def _end(session: AsyncSession, links: Sequence[SlackLink], reason: str) -> None:
    for link in links:
        await session.delete(link)
        audit.record_outside(
            session,
            link.organization_id,
            "slack.unlinked",
            resource_id=link.id,
            changes={
                "user_id": link.user_id,
                "team_id": link.team_id,
                "slack_user_id": link.slack_user_id,
                "webhook_id": link.webhook_id,
                "why": reason,
            },
        )
