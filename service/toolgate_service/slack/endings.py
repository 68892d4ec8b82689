"""End links to Slack when the member, the member's password or the app changes.

After a new password, or a new signing secret of the app, earlier links do not work.
"""

from collections.abc import Sequence

from sqlmodel import col, delete, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.models import User
from toolgate_service.audit import service as audit
from toolgate_service.slack.models import FormerSlackLink, SlackLink, SlackLinkCode
from toolgate_service.webhooks.models import Webhook

REMOVED = "the member was removed"
NEW_PASSWORD = "the password was changed"  # noqa: S105 - words
REPLACED = "the signing secret of the Slack app was replaced"
DELETED = "the webhook of the Slack app was deleted"


async def end_links(session: AsyncSession, user: User, why: str) -> None:
    """End a user's link to Slack, and the codes that would make one."""
    await session.exec(
        delete(SlackLinkCode).where(
            col(SlackLinkCode.organization_id) == user.organization_id, col(SlackLinkCode.user_id) == user.id
        )
    )
    await end_former_links(session, user.organization_id, user.id)
    query = select(SlackLink).where(
        SlackLink.organization_id == user.organization_id, SlackLink.user_id == user.id
    )
    await _end(session, (await session.exec(query)).all(), why)


async def end_links_of(session: AsyncSession, webhook: Webhook, why: str) -> None:
    """End the links that were made through a webhook; codes for its secret no longer work by themselves."""
    query = select(SlackLink).where(
        SlackLink.organization_id == webhook.organization_id, SlackLink.webhook_id == webhook.id
    )
    await _end(session, (await session.exec(query)).all(), why)
    # Links of former gateways belong to no app: any app's may be among them.
    await end_former_links(session, webhook.organization_id)


async def end_former_links(session: AsyncSession, organization_id: str, user_id: str | None = None) -> None:
    """Remove links that only gateways before revision 0017 read: all of an organization, or a user's."""
    former = delete(FormerSlackLink).where(col(FormerSlackLink.organization_id) == organization_id)
    if user_id is not None:
        former = former.where(col(FormerSlackLink.user_id) == user_id)
    await session.exec(former)


async def _end(session: AsyncSession, links: Sequence[SlackLink], why: str) -> None:
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
                "why": why,
            },
        )
