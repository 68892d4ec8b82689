"""Database queries for users, their password resets and their links to Slack users.

A link to a Slack user is a credential: if the Slack user presses a button in a message, the gateway records a decision
of the linked member. The gateway deletes a link when the member is removed, the member's password changes, the webhook
of the Slack app is deleted, or the signing secret of the app is replaced.
"""

from collections.abc import Sequence

from sqlmodel import col, delete, select, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.models import FormerSlackLink, PasswordReset, SlackLink, SlackLinkCode, User
from toolgate_service.audit import service as audit
from toolgate_service.db.database import now

# reasons for the deletion of a Slack link, as they appear in the audit log
MEMBER_REMOVED = "the member was removed"
PASSWORD_CHANGED = "the password was changed"  # noqa: S105 - a reason in the audit log, not a password
SECRET_REPLACED = "the signing secret of the Slack app was replaced"  # noqa: S105 - a reason in the audit log, not a password
WEBHOOK_DELETED = "the webhook of the Slack app was deleted"


async def find_user_by_email(session: AsyncSession, email: str) -> User | None:
    """Return the user with this e-mail address; None if there is no such user or the user was removed."""
    query = select(User).where(User.email == email.strip().lower(), col(User.removed_at).is_(None))
    return (await session.exec(query)).first()


async def find_user_by_id(session: AsyncSession, user_id: str) -> User | None:
    """Return the user with this id; None if there is no such user or the user was removed."""
    query = select(User).where(User.id == user_id, col(User.removed_at).is_(None))
    return (await session.exec(query)).first()


async def set_password(session: AsyncSession, user: User, password_hash: str) -> None:
    """Set a user's password hash, and revoke the user's session tokens, reset links and links to Slack."""
    user.password_hash = password_hash
    user.version += 1
    session.add(user)
    await expire_password_resets(session, user)
    await end_user_links(session, user, PASSWORD_CHANGED)


async def expire_password_resets(session: AsyncSession, user: User) -> None:
    """Expire the user's unused password resets, so that their links stop working."""
    await session.exec(
        update(PasswordReset)
        .where(
            col(PasswordReset.organization_id) == user.organization_id,
            col(PasswordReset.user_id) == user.id,
            col(PasswordReset.used_at).is_(None),
        )
        .values(expires_at=now(session))
    )


async def end_user_links(session: AsyncSession, user: User, reason: str) -> None:
    """Delete a user's links to Slack users, and the codes with which the user could create new links."""
    await session.exec(
        delete(SlackLinkCode).where(
            col(SlackLinkCode.organization_id) == user.organization_id, col(SlackLinkCode.user_id) == user.id
        )
    )
    await end_former_links(session, user.organization_id, user.id)
    query = select(SlackLink).where(
        SlackLink.organization_id == user.organization_id, SlackLink.user_id == user.id
    )
    await _end_links(session, (await session.exec(query)).all(), reason)


async def end_webhook_links(
    session: AsyncSession, organization_id: str, webhook_id: str, reason: str
) -> None:
    """Delete the links to Slack users that were created in the Slack app of a webhook."""
    query = select(SlackLink).where(
        SlackLink.organization_id == organization_id, SlackLink.webhook_id == webhook_id
    )
    await _end_links(session, (await session.exec(query)).all(), reason)
    # Links from older gateways do not refer to an app. Any of them may have been created in the app of this webhook, so
    # all are deleted.
    await end_former_links(session, organization_id)


async def end_former_links(session: AsyncSession, organization_id: str, user_id: str | None = None) -> None:
    """Delete Slack links that gateways from before schema revision 0017 created.

    With `user_id`, only the links of this user are deleted; without it, all such links of the organization.
    """
    former = delete(FormerSlackLink).where(col(FormerSlackLink.organization_id) == organization_id)
    if user_id is not None:
        former = former.where(col(FormerSlackLink.user_id) == user_id)
    await session.exec(former)


async def _end_links(session: AsyncSession, links: Sequence[SlackLink], reason: str) -> None:
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
