"""When a link to Slack ends without anybody asking for it: with the member, and with the member's password.

Whoever takes an account back by a new password must know that nobody else decides as them any longer.
"""

from sqlmodel import col, delete, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.models import User
from toolgate_service.audit import service as audit
from toolgate_service.slack.models import SlackLink, SlackLinkCode

REMOVED = "the member was removed"
NEW_PASSWORD = "the password was changed"  # noqa: S105 - words


async def end_links(session: AsyncSession, user: User, why: str) -> None:
    """End a user's link to Slack, and the codes that would make one."""
    await session.exec(
        delete(SlackLinkCode).where(
            col(SlackLinkCode.organization_id) == user.organization_id, col(SlackLinkCode.user_id) == user.id
        )
    )
    query = select(SlackLink).where(
        SlackLink.organization_id == user.organization_id, SlackLink.user_id == user.id
    )
    for link in (await session.exec(query)).all():
        await session.delete(link)
        audit.record_outside(
            session,
            user.organization_id,
            "slack.unlinked",
            resource_id=link.id,
            changes={
                "user_id": user.id,
                "team_id": link.team_id,
                "slack_user_id": link.slack_user_id,
                "why": why,
            },
        )
