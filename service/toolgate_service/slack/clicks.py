"""A press on a button, carried out: by the rules of deciding, as the member who is linked, with the rights of now."""

from collections.abc import Collection, Sequence

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.caller import Caller
from toolgate_service.accounts.models import FULL, VIEWER, User
from toolgate_service.approvals import deciding
from toolgate_service.approvals.finding import find_approval
from toolgate_service.approvals.models import PENDING, Approval
from toolgate_service.approvals.schemas import ApprovalDecision
from toolgate_service.errors import ApiError
from toolgate_service.gateway import Gateway
from toolgate_service.slack.apps import secrets_of_app
from toolgate_service.slack.code import in_code
from toolgate_service.slack.links import link_of
from toolgate_service.slack.payloads import Click
from toolgate_service.slack.standing import Place, refuse, standing
from toolgate_service.webhooks.models import Webhook

VIA = "slack"
UNLINKED = (
    "Nothing was decided: the gateway does not know who you are. Run `toolgate slack link` on your machine and type what "
    "it tells you here; then press again."
)
GONE = "Nothing was decided: there is no such request any more."
CHANGED = "Nothing was decided: the request is not the one that was shown here. Look at it with `toolgate approvals show {}`."
VIEWS = "Nothing was decided: your role is 'viewer', which may only read; ask an admin."
FAILED = "Whether it was decided is unknown: the gateway failed. Look with `toolgate approvals show {}`, or press again."


async def decide(gateway: Gateway, place: Place, click: Click) -> None:
    """Carry out a click, and tell whoever clicked what came of it."""
    try:
        words = await _decided(gateway, place, click)
    except Exception:
        gateway.slack.say(click.response_url, place.url, FAILED.format(click.pressed.approval_id))
        raise
    gateway.slack.say(click.response_url, place.url, words)


async def _decided(gateway: Gateway, place: Place, click: Click) -> str:
    # A refusal goes through the transaction, which is rolled back.
    try:
        async with gateway.database.writing(place.organization_id) as session:
            changed, words = await _decide(session, gateway, place, click)
    except _Refused as refused:
        return str(refused)
    except ApiError as error:
        return f"Nothing was decided: {_words(error)}."
    for approval_id in changed:
        gateway.hub.tell(approval_id)
    return words


async def _decide(
    session: AsyncSession, gateway: Gateway, place: Place, click: Click
) -> tuple[Sequence[str], str]:
    found = await standing(session, place.webhook_id)
    if found is None:
        raise ApiError(403, "the webhook was deleted")
    webhook, organization = found
    refuse(gateway.plans, webhook, organization)
    # The secret may have been replaced since the signature was verified: then no link is left that counts.
    app = await secrets_of_app(session, gateway.vault, webhook.organization_id, place.secret_id)
    caller = await _caller(session, webhook, app, click, organization.plan)
    approval = await _asked(session, webhook, click)
    if not click.pressed.approves:
        await deciding.deny(session, caller, approval, None)
        return [approval.id], f"Denied: `{in_code(approval.action)}` is not done."
    changed = await deciding.approve(session, gateway.settings, caller, approval, ApprovalDecision())
    words = "Your vote counts; it waits for more people." if approval.status == PENDING else "Approved, once."
    return [one.id for one in changed], words


async def _caller(
    session: AsyncSession, webhook: Webhook, app: Collection[str], click: Click, plan: str
) -> Caller:
    link = await link_of(session, webhook.organization_id, app, click.who)
    query = select(User).where(
        User.id == (link.user_id if link else None),
        User.organization_id == webhook.organization_id,
        col(User.removed_at).is_(None),
    )
    user = (await session.exec(query)).first()
    if link is None or user is None:
        raise _Refused(UNLINKED)
    if user.role == VIEWER:
        raise _Refused(VIEWS)
    return Caller(
        user_id=user.id,
        organization_id=user.organization_id,
        session_id="",
        version=user.version,
        role=user.role,
        scope=FULL,
        plan=plan,
        organization_is_active=True,
        ip_address=None,
        via=VIA,
        proof={
            "webhook_id": webhook.id,
            "link_id": link.id,
            "team_id": link.team_id,
            "slack_user_id": link.slack_user_id,
        },
    )


async def _asked(session: AsyncSession, webhook: Webhook, click: Click) -> Approval:
    try:
        approval = await find_approval(
            session, webhook.organization_id, webhook.environment, click.pressed.approval_id
        )
    except ApiError:
        raise _Refused(GONE) from None
    if approval.digest != click.pressed.digest:
        raise _Refused(CHANGED.format(approval.id))
    return approval


class _Refused(Exception):
    """Nothing is decided; the message is for whoever clicked."""


def _words(error: ApiError) -> str:
    detail = error.reply_detail
    return (
        detail[:1].lower() + detail[1:] if isinstance(detail, str) else "the request cannot be decided here"
    )
