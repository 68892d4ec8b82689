"""Links between members and Slack users. Within one Slack app, the relation is one-to-one."""

from collections.abc import Collection, Sequence

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.models import User
from toolgate_service.accounts.sessions import Caller, LinkUser
from toolgate_service.accounts.slack_links import SlackLink, end_former_links
from toolgate_service.audit import service as audit
from toolgate_service.core.crypto import Vault
from toolgate_service.core.errors import not_found
from toolgate_service.core.ids import new_id
from toolgate_service.db.database import now
from toolgate_service.slack.apps import secrets_of_app
from toolgate_service.slack.link_codes import count_wrong, find_code, seconds_to_wait, subject_of
from toolgate_service.slack.payloads import Who
from toolgate_service.webhooks.models import Webhook

LINKED = "Linked: what you press here is decided by you as a member of the organization."
ALREADY = "You are linked already."
WRONG = "The code is wrong, used or has run out. Make a new one with `toolgate slack link`; it works for ten minutes."
TAKEN = "This Slack account is linked to another member; that member, or an admin, has to end it first."
ELSEWHERE = "You are linked to another Slack account in this app; end that first, then use the code again."


async def link(
    session: AsyncSession, vault: Vault, webhook: Webhook, secret_id: str, who: Who, typed: str
) -> str:
    """Link a Slack user to the member whose code the user typed, and return the reply.

    Args:
        session: Session with a write transaction under the organization's lock.
        vault: Decrypts signing secrets.
        webhook: Webhook that received the command.
        secret_id: Id of the signing secret that verified the command.
        who: The Slack user.
        typed: The code as typed.
    """
    subject = subject_of(vault, webhook.id, who)
    if seconds := await seconds_to_wait(session, subject):
        return f"Too many wrong codes; try again in {seconds} seconds."
    app = await secrets_of_app(session, vault, webhook.organization_id, secret_id)
    found = await find_code(session, webhook.organization_id, app, typed)
    if found is None:
        await count_wrong(session, subject)
        return WRONG
    code, user = found
    of_slack_user = await find_link(session, webhook.organization_id, app, who)
    query = select(SlackLink).where(
        SlackLink.organization_id == user.organization_id,
        SlackLink.user_id == user.id,
        col(SlackLink.secret_id).in_(app),
    )
    of_member = (await session.exec(query)).first()
    if of_slack_user is not None and of_slack_user.user_id == user.id:
        code.used_at = code.used_at or now(session)
        return ALREADY
    if code.used_at is not None:
        await count_wrong(session, subject)
        return WRONG
    if of_slack_user is not None:
        return TAKEN
    if of_member is not None:
        return ELSEWHERE
    code.used_at = now(session)
    session.add(code)
    _add(session, webhook, secret_id, who, user)
    return LINKED


async def find_link(
    session: AsyncSession, organization_id: str, secrets_of_app: Collection[str], who: Who
) -> SlackLink | None:
    """Return the link of a Slack user in the Slack app with these signing secrets, or None."""
    query = select(SlackLink).where(
        SlackLink.organization_id == organization_id,
        col(SlackLink.secret_id).in_(secrets_of_app),
        SlackLink.team_id == who.team_id,
        SlackLink.slack_user_id == who.user_id,
    )
    return (await session.exec(query)).first()


async def list_links(session: AsyncSession, caller: Caller) -> Sequence[SlackLink]:
    """Return the caller's links, newest first. Admins receive the links of all members."""
    query = select(SlackLink).where(SlackLink.organization_id == caller.organization_id)
    if not caller.is_admin:
        query = query.where(SlackLink.user_id == caller.user_id)
    query = query.order_by(col(SlackLink.created_at).desc(), col(SlackLink.id).desc())
    return (await session.exec(query)).all()


async def unlink(session: AsyncSession, caller: Caller, link_id: str) -> None:
    """Delete a link of the caller. Admins can delete the links of all members.

    Raises:
        ApiError: 404, the link does not exist, or the caller may not delete it.
    """
    link = next((one for one in await list_links(session, caller) if one.id == link_id), None)
    if link is None:
        raise not_found("Link")
    await session.delete(link)
    await end_former_links(session, link.organization_id, link.user_id)
    audit.record(session, caller, "slack.unlinked", link.id, changes=_audit_changes(link))


def _add(session: AsyncSession, webhook: Webhook, secret_id: str, who: Who, user: User) -> None:
    link = SlackLink(
        id=new_id(),
        organization_id=user.organization_id,
        environment=webhook.environment,
        webhook_id=webhook.id,
        secret_id=secret_id,
        user_id=user.id,
        team_id=who.team_id,
        slack_user_id=who.user_id,
        created_at=now(session),
    )
    session.add(link)
    # The audit event has no IP address, because the request came from Slack's servers.
    member = LinkUser(user.id, user.organization_id, None)
    audit.record(session, member, "slack.linked", link.id, changes=_audit_changes(link))


def _audit_changes(link: SlackLink) -> dict[str, object]:
    return {
        "user_id": link.user_id,
        "team_id": link.team_id,
        "slack_user_id": link.slack_user_id,
        "webhook_id": link.webhook_id,
    }
