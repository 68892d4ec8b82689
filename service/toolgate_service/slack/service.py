"""Verification of requests from Slack, and processing of button presses as decisions of the linked member."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.models import FULL, VIEWER, User
from toolgate_service.accounts.sessions import Caller
from toolgate_service.approvals import service as approvals
from toolgate_service.approvals.models import PENDING
from toolgate_service.approvals.schemas import ApprovalDecision
from toolgate_service.context import AppContext
from toolgate_service.core.crypto import Vault
from toolgate_service.core.errors import ApiError
from toolgate_service.core.plans import Plans
from toolgate_service.db.database import now
from toolgate_service.organizations.models import Organization
from toolgate_service.slack.apps import secrets_of_app
from toolgate_service.slack.client import Replies
from toolgate_service.slack.layout import in_code
from toolgate_service.slack.links import find_link, link
from toolgate_service.slack.payloads import Click, Command
from toolgate_service.slack.signature import SignedRequest
from toolgate_service.webhooks.events import has_feature
from toolgate_service.webhooks.models import SLACK, SLACK_SIGNING, Webhook, WebhookSecret
from toolgate_service.webhooks.secrets import find_current_secret, unseal

VIA = "slack"
UNLINKED = (
    "Nothing was decided: the gateway does not know who you are. Run `toolgate slack link` on your machine and type what "
    "it tells you here; then press again."
)
GONE = "Nothing was decided: there is no such request any more."
CHANGED = "Nothing was decided: the request is not the one that was shown here. Look at it with `toolgate approvals show {}`."
VIEWS = "Nothing was decided: your role is 'viewer', which may only read; ask an admin."
FAILED = "Whether it was decided is unknown: the gateway failed. Look with `toolgate approvals show {}`, or press again."
HELP = (
    "`/toolgate link CODE` links you to your account, so that you can decide here; `toolgate slack link` on your "
    "machine makes the code."
)

#: placeholder secret for an unknown webhook, so that its rejection takes as long as for a known webhook
_NO_SECRET = "0" * 32


@dataclass(frozen=True, slots=True)
class SignedWebhook:
    """Slack webhook that received a request with a valid signature.

    Attributes:
        secret_id: Id of the row in `webhook_secrets` whose signing secret verified the request.
        masked_url: URL of the webhook without its secret path.
    """

    webhook_id: str
    organization_id: str
    environment: str
    secret_id: str
    masked_url: str


class _Rejection(Exception):
    """Error for a button press without effect. Its message is the reply to the Slack user."""


async def verify_request(
    session: AsyncSession, vault: Vault, plans: Plans, webhook_id: str, request: SignedRequest
) -> SignedWebhook:
    """Verify that a request is signed with the webhook's signing secret, and return the webhook.

    Raises:
        ApiError: 401, the webhook is unknown, the signature is wrong, or the timestamp is too old or too new; 403, the
            webhook or its organization is disabled, or the plan does not include webhooks.
    """
    found = await _find_webhook(session, webhook_id)
    row = await find_current_secret(session, webhook_id, SLACK_SIGNING)
    secret = unseal(vault, row) if row is not None else None
    if secret is None:
        # This encryption takes as long as the decryption of a secret. Therefore the response time does not reveal that
        # the webhook is unknown.
        vault.seal(_NO_SECRET, table=WebhookSecret.__name__, row=webhook_id, organization=webhook_id)
    is_valid = request.is_signed_with(secret or _NO_SECRET, now(session))
    if found is None or row is None or secret is None or not is_valid:
        raise invalid_signature()
    webhook, organization = found
    _require_enabled(plans, webhook, organization)
    return SignedWebhook(webhook.id, webhook.organization_id, webhook.environment, row.id, webhook.url)


def invalid_signature() -> ApiError:
    """Return the error 401. It is the same for a wrong signature, an old timestamp and an unknown webhook."""
    return ApiError(401, "Not signed by Slack for this webhook")


async def handle_click(context: AppContext, replies: Replies, webhook: SignedWebhook, click: Click) -> None:
    """Decide an approval request as the member linked to the Slack user, and send that user the outcome."""
    try:
        text = await _decide(context, webhook, click)
    except Exception:
        failure = FAILED.format(click.pressed.approval_id)
        replies.send(click.response_url, webhook.masked_url, failure)
        raise
    replies.send(click.response_url, webhook.masked_url, text)


async def handle_command(context: AppContext, webhook: SignedWebhook, command: Command) -> str:
    """Run a `/toolgate` command and return the reply. The only command is `link CODE`; others return the help text.

    Raises:
        ApiError: 403, the webhook was deleted, the webhook or its organization is disabled, or the plan does not
            include webhooks.
    """
    verb, _, code = command.text.strip().partition(" ")
    if verb.lower() != "link" or not code.strip():
        return HELP
    async with context.database.writing(webhook.organization_id) as session:
        found = await _find_webhook(session, webhook.webhook_id)
        if found is None:
            raise ApiError(403, "The webhook was deleted")
        _require_enabled(context.plans, *found)
        return await link(session, context.vault, found[0], webhook.secret_id, command.who, code)


async def _decide(context: AppContext, webhook: SignedWebhook, click: Click) -> str:
    @asynccontextmanager
    async def transaction(context: AppContext, caller: Caller) -> AsyncIterator[AsyncSession]:
        async with context.database.writing(webhook.organization_id) as session:
            # The caller is loaded again, because the link, the role or the webhook may have changed in the meantime.
            current = await _load_caller(session, context, webhook, click)
            if (current.user_id, current.proof) != (caller.user_id, caller.proof):
                raise _Rejection(UNLINKED)
            yield session

    approval_id, shown = click.pressed.approval_id, click.pressed.digest
    environment = webhook.environment
    try:
        async with context.database.reading() as session:
            caller = await _load_caller(session, context, webhook, click)
        if not click.pressed.approves:
            denied = await approvals.deny(
                context, caller, environment, approval_id, None, shown=shown, transaction=transaction
            )
            return f"Denied: `{in_code(denied.action)}` is not done."
        decided = await approvals.approve(
            context,
            caller,
            environment,
            approval_id,
            ApprovalDecision(),
            shown=shown,
            transaction=transaction,
        )
    except _Rejection as rejection:
        return str(rejection)
    except approvals.ApprovalChanged:
        return CHANGED.format(approval_id)
    except ApiError as error:
        return (
            GONE
            if error.status_code == HTTPStatus.NOT_FOUND
            else f"Nothing was decided: {_error_text(error)}."
        )
    if decided.status == PENDING:
        return "Your vote counts; it waits for more people."
    return "Approved, once."


async def _load_caller(
    session: AsyncSession, context: AppContext, signed: SignedWebhook, click: Click
) -> Caller:
    """Return the member who is linked to the Slack user that pressed the button, with the current role.

    Raises:
        ApiError: 403, the webhook was deleted, the webhook or its organization is disabled, or the plan does not
            include webhooks.
        _Rejection: No member is linked to the Slack user, or the member is a viewer.
    """
    found = await _find_webhook(session, signed.webhook_id)
    if found is None:
        raise ApiError(403, "the webhook was deleted")
    webhook, organization = found
    _require_enabled(context.plans, webhook, organization)
    # If the signing secret was replaced since the verification, the list is empty and no link is found.
    app = await secrets_of_app(session, context.vault, webhook.organization_id, signed.secret_id)
    slack_link = await find_link(session, webhook.organization_id, app, click.who)
    query = select(User).where(
        User.id == (slack_link.user_id if slack_link else None),
        User.organization_id == webhook.organization_id,
        col(User.removed_at).is_(None),
    )
    user = (await session.exec(query)).first()
    if slack_link is None or user is None:
        raise _Rejection(UNLINKED)
    if user.role == VIEWER:
        raise _Rejection(VIEWS)
    return Caller(
        user_id=user.id,
        organization_id=user.organization_id,
        session_id="",
        version=user.version,
        role=user.role,
        scope=FULL,
        plan=organization.plan,
        organization_is_active=True,
        ip_address=None,
        via=VIA,
        proof={
            "webhook_id": webhook.id,
            "link_id": slack_link.id,
            "team_id": slack_link.team_id,
            "slack_user_id": slack_link.slack_user_id,
        },
    )


async def _find_webhook(session: AsyncSession, webhook_id: str) -> tuple[Webhook, Organization] | None:
    query = (
        select(Webhook, Organization)
        .join(Organization, col(Organization.id) == Webhook.organization_id)
        .where(Webhook.id == webhook_id, Webhook.kind == SLACK, col(Webhook.deleted_at).is_(None))
    )
    return (await session.exec(query)).first()


def _require_enabled(plans: Plans, webhook: Webhook, organization: Organization) -> None:
    if not organization.is_active:
        raise ApiError(403, "Organization is not active")
    if not has_feature(plans, organization.plan):
        raise ApiError(403, f"The {organization.plan} plan does not include webhooks")
    if not webhook.is_active:
        raise ApiError(403, "The webhook is switched off")


def _error_text(error: ApiError) -> str:
    detail = error.detail
    if not isinstance(detail, str):
        return "the request cannot be decided here"
    return detail[:1].lower() + detail[1:]
