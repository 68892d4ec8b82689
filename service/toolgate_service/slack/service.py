"""Links between Slack accounts and Toolgate users, and processing of button clicks and commands from Slack.

A button click counts as a decision of the user to whom the Slack account is linked.
"""

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus

from sqlmodel import col, delete, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.models import FULL, VIEWER, SlackLink, SlackLinkCode, User
from toolgate_service.accounts.repository import end_former_links
from toolgate_service.accounts.service import hash_token
from toolgate_service.accounts.sessions import Caller, LinkUser, transaction_as
from toolgate_service.approvals import service as approvals
from toolgate_service.approvals.models import PENDING
from toolgate_service.approvals.schemas import ApprovalDecision
from toolgate_service.audit import service as audit
from toolgate_service.context import AppContext
from toolgate_service.core.crypto import Vault
from toolgate_service.core.errors import REQUIRED, ApiError, FieldErrors, not_found
from toolgate_service.core.ids import new_id
from toolgate_service.core.plans import Plans
from toolgate_service.db.database import now
from toolgate_service.organizations.models import Organization
from toolgate_service.slack import repository
from toolgate_service.slack.client import Replies
from toolgate_service.slack.messages import in_code
from toolgate_service.slack.repository import (
    CODE_ALPHABET,
    CODE_LENGTH,
    SigningSecret,
    count_wrong_code,
    find_code,
    find_link_of_member,
    find_link_of_slack_user,
    seconds_to_wait,
    secrets_of_app,
    signing_secrets,
    throttle_key,
)
from toolgate_service.slack.schemas import Click, Command, LinkCodeView, SignedRequest, SlackLinkView
from toolgate_service.webhooks.events import has_feature
from toolgate_service.webhooks.models import SLACK, SLACK_SIGNING, Webhook, WebhookSecret
from toolgate_service.webhooks.repository import find_current_secret, unseal

VIA = "slack"
UNLINKED = (
    "Nothing was decided: your Slack account is not linked to a Toolgate account. Run `toolgate slack link` on your "
    "machine. Then enter the printed command here in Slack, and press the button again."
)
GONE = "Nothing was decided: this approval request no longer exists."
CHANGED = (
    "Nothing was decided: the arguments of the request differ from the arguments in this message. Review the request "
    "with `toolgate approvals show {}`."
)
VIEWS = "Nothing was decided: your role is 'viewer', which cannot decide requests. Ask an administrator."
FAILED = (
    "An error occurred in the gateway, so your decision may not have been saved. Check the request with "
    "`toolgate approvals show {}`, or press the button again."
)
HELP = (
    "`/toolgate link CODE` links your Slack account to your Toolgate account, so that you can decide requests here. "
    "Create a code with `toolgate slack link` on your machine."
)

#: Secret with which signatures for unknown webhooks are compared, so that the gateway rejects requests for unknown and
#: known webhooks after the same time.
_NO_SECRET = "0" * 32

LINKED = "Linked: your decisions in Slack now count as decisions of your Toolgate account."
ALREADY = "Your Slack account is already linked."
WRONG = "The code is wrong, used or expired. Create a new one with `toolgate slack link`; it is valid for ten minutes."
TAKEN = (
    "This Slack account is linked to another user's Toolgate account. That user or an administrator must remove the "
    "link first."
)
ELSEWHERE = (
    "Your Toolgate account is linked to another Slack account in this app. Remove the link to that account, then enter "
    "the code again."
)

#: Time for which a new link code is valid.
CODE_LIFETIME = timedelta(minutes=10)
#: Number of characters between two hyphens in a link code.
_GROUP = 4


async def create_link_code(context: AppContext, caller: Caller, webhook_id: str | None) -> LinkCodeView:
    """Create a code with which the caller links a Slack account. Earlier codes of the caller stop working.

    A code has 80 random bits, is stored as a hash, and works once. `webhook_id` is the id of a webhook that belongs to
    the Slack app in which the user will enter the code. It is required if the organization has several Slack apps.

    Raises:
        ApiError: 400 if `webhook_id` is required but missing, or is not the id of a Slack webhook of the organization;
            409 if the organization has no Slack webhook.
    """
    async with transaction_as(context, caller) as session:
        moment = now(session)
        app = await _choose_app(session, context.vault, caller.organization_id, webhook_id)
        await session.exec(
            delete(SlackLinkCode).where(
                col(SlackLinkCode.organization_id) == caller.organization_id,
                (col(SlackLinkCode.user_id) == caller.user_id) | (col(SlackLinkCode.expires_at) <= moment),
            )
        )
        code = "".join(secrets.choice(CODE_ALPHABET) for _ in range(CODE_LENGTH))
        row = SlackLinkCode(
            id=new_id(),
            organization_id=caller.organization_id,
            user_id=caller.user_id,
            version=caller.version,
            code_hash=hash_token(code),
            secret_id=app.id,
            created_at=moment,
            expires_at=moment + CODE_LIFETIME,
        )
        session.add(row)
    groups = [code[at : at + _GROUP] for at in range(0, CODE_LENGTH, _GROUP)]
    return LinkCodeView(code="-".join(groups), expires_at=row.expires_at)


async def list_links(context: AppContext, caller: Caller) -> Sequence[SlackLinkView]:
    """Return the caller's links to Slack accounts, newest first. Administrators receive the links of all users."""
    async with context.database.reading() as session:
        found = await repository.list_links(session, caller)
    return [SlackLinkView.model_validate(link, from_attributes=True) for link in found]


async def delete_link(context: AppContext, caller: Caller, link_id: str) -> None:
    """Delete a link between a Slack account and the caller. Administrators can delete the links of all users.

    Raises:
        ApiError: 404 if the link does not exist, or the caller may not delete it.
    """
    async with transaction_as(context, caller) as session:
        links = await repository.list_links(session, caller)
        link = next((one for one in links if one.id == link_id), None)
        if link is None:
            raise not_found("Link")
        await session.delete(link)
        await end_former_links(session, link.organization_id, link.user_id)
        audit.record(session, caller, "slack.unlinked", link.id, changes=_audit_changes(link))


async def _choose_app(
    session: AsyncSession, vault: Vault, organization_id: str, webhook_id: str | None
) -> SigningSecret:
    """Return the signing secret of the Slack app in which the caller will enter a link code.

    `webhook_id` selects the Slack app. It may be None if the organization has only one Slack app.

    Raises:
        ApiError: 400 if `webhook_id` is required but missing, or is not the id of a Slack webhook of the organization;
            409 if the organization has no Slack webhook.
    """
    found = await signing_secrets(session, vault, organization_id)
    if not found:
        raise ApiError(
            409, "No Slack app is connected; an admin must first create a webhook of the type 'slack'"
        )
    if webhook_id is not None:
        named = next((one for one in found if one.webhook.id == webhook_id), None)
        if named is None:
            error = f"{webhook_id[:40]!r} is not a Slack webhook of the organization"
            raise FieldErrors({"webhook_id": [error]})
        return named
    if all(one.is_same_app(found[0]) for one in found):
        return found[0]
    known = "; ".join(
        f"{one.webhook.id} ({one.webhook.environment}, {one.webhook.description or 'no description'})"
        for one in found
    )
    error = f"{REQUIRED}: several Slack apps are connected; send the id of one of their webhooks: {known}"
    raise FieldErrors({"webhook_id": [error]})


async def _link(
    session: AsyncSession, vault: Vault, webhook: Webhook, secret_id: str, command: Command, code: str
) -> str:
    """Link the Slack account that entered a code to the user who created the code, and return the reply for Slack.

    The session must be in a write transaction that holds the organization's lock. `secret_id` is the id of the signing
    secret that verified the request.
    """
    subject = throttle_key(vault, webhook.id, command.slack_user)
    if seconds := await seconds_to_wait(session, subject):
        return f"Too many wrong codes; try again in {seconds} seconds."
    app = await secrets_of_app(session, vault, webhook.organization_id, secret_id)
    found = await find_code(session, webhook.organization_id, app, code)
    if found is None:
        await count_wrong_code(session, subject)
        return WRONG
    row, user = found
    existing = await find_link_of_slack_user(session, webhook.organization_id, app, command.slack_user)
    if existing is not None and existing.user_id == user.id:
        row.used_at = row.used_at or now(session)
        return ALREADY
    if row.used_at is not None:
        await count_wrong_code(session, subject)
        return WRONG
    if existing is not None:
        return TAKEN
    if await find_link_of_member(session, user, app) is not None:
        return ELSEWHERE
    row.used_at = now(session)
    session.add(row)
    link = SlackLink(
        id=new_id(),
        organization_id=user.organization_id,
        environment=webhook.environment,
        webhook_id=webhook.id,
        secret_id=secret_id,
        user_id=user.id,
        team_id=command.slack_user.team_id,
        slack_user_id=command.slack_user.user_id,
        created_at=now(session),
    )
    session.add(link)
    # The audit event contains no IP address, because the request came from a server of Slack.
    member = LinkUser(user.id, user.organization_id, None)
    audit.record(session, member, "slack.linked", link.id, changes=_audit_changes(link))
    return LINKED


def _audit_changes(link: SlackLink) -> dict[str, object]:
    return {
        "user_id": link.user_id,
        "team_id": link.team_id,
        "slack_user_id": link.slack_user_id,
        "webhook_id": link.webhook_id,
    }


@dataclass(frozen=True, slots=True)
class SignedWebhook:
    """Webhook of a Slack channel for which the gateway received a request with a valid signature.

    Attributes:
        secret_id: Id of the row in the table `webhook_secrets` whose signing secret verified the request.
        masked_url: URL of the webhook without its secret path.
    """

    webhook_id: str
    organization_id: str
    environment: str
    secret_id: str
    masked_url: str


class _Rejection(Exception):
    """Error for a button click that decides nothing. Its message is the reply to the Slack user."""


async def verify_request(
    session: AsyncSession, vault: Vault, plans: Plans, webhook_id: str, request: SignedRequest
) -> SignedWebhook:
    """Verify that Slack signed the request with the signing secret of the webhook, and return the webhook.

    Raises:
        ApiError: 401 if the webhook is unknown, the signature is wrong, or the timestamp differs too much from the
            current time; 403 if the webhook or its organization is disabled, or the plan does not include webhooks.
    """
    found = await _find_webhook(session, webhook_id)
    row = await find_current_secret(session, webhook_id, SLACK_SIGNING)
    secret = unseal(vault, row) if row is not None else None
    if secret is None:
        # Encrypt a value, which takes as long as decrypting a secret, so that the response time does not reveal that
        # the webhook is unknown.
        vault.seal(_NO_SECRET, table=WebhookSecret.__name__, row=webhook_id, organization=webhook_id)
    is_valid = request.is_signed_with(secret or _NO_SECRET, now(session))
    if found is None or row is None or secret is None or not is_valid:
        raise invalid_signature()
    webhook, organization = found
    _require_enabled(plans, webhook, organization)
    return SignedWebhook(webhook.id, webhook.organization_id, webhook.environment, row.id, webhook.url)


def invalid_signature() -> ApiError:
    """Return a 401 error. It does not reveal whether the signature, the timestamp or the id of the webhook is wrong."""
    return ApiError(401, "The request is not signed with the Slack signing secret of this webhook")


async def handle_click(context: AppContext, replies: Replies, webhook: SignedWebhook, click: Click) -> None:
    """Decide an approval request as the user to whom the Slack account is linked, and send the result to Slack."""
    try:
        text = await _decide(context, webhook, click)
    except Exception:
        failure = FAILED.format(click.button.approval_id)
        replies.send(click.response_url, webhook.masked_url, failure)
        raise
    replies.send(click.response_url, webhook.masked_url, text)


async def handle_command(context: AppContext, webhook: SignedWebhook, command: Command) -> str:
    """Run a `/toolgate` command and return the reply for Slack.

    The only command is `link CODE`. Any other text returns a help text.

    Raises:
        ApiError: 403 if the webhook was deleted, the webhook or its organization is disabled, or the plan does not
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
        return await _link(session, context.vault, found[0], webhook.secret_id, command, code)


async def _decide(context: AppContext, webhook: SignedWebhook, click: Click) -> str:
    @asynccontextmanager
    async def transaction(context: AppContext, caller: Caller) -> AsyncIterator[AsyncSession]:
        async with context.database.writing(webhook.organization_id) as session:
            # Load the user again, because the link, the user's role or the webhook may have changed since the user was
            # first loaded.
            current = await _load_caller(session, context, webhook, click)
            if (current.user_id, current.proof) != (caller.user_id, caller.proof):
                raise _Rejection(UNLINKED)
            yield session

    approval_id, shown = click.button.approval_id, click.button.digest
    environment = webhook.environment
    try:
        async with context.database.reading() as session:
            caller = await _load_caller(session, context, webhook, click)
        if not click.button.approves:
            rejected = await approvals.deny(
                context, caller, environment, approval_id, None, shown=shown, transaction=transaction
            )
            return f"Rejected: the call `{in_code(rejected.action)}` will not run."
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
        return "Your approval was recorded. The request needs further approvals before the call may run."
    return "Approved: the call may run once."


async def _load_caller(
    session: AsyncSession, context: AppContext, signed: SignedWebhook, click: Click
) -> Caller:
    """Return the user to whom the Slack account that clicked a button is linked.

    Raises:
        ApiError: 403 if the webhook was deleted, the webhook or its organization is disabled, or the plan does not
            include webhooks.
        _Rejection: The Slack account is not linked to a user, or the user is a viewer.
    """
    found = await _find_webhook(session, signed.webhook_id)
    if found is None:
        raise ApiError(403, "the webhook was deleted")
    webhook, organization = found
    _require_enabled(context.plans, webhook, organization)
    # If the signing secret was replaced after the request was verified, `app` is empty. Then no linked user is found
    # for the Slack account.
    app = await secrets_of_app(session, context.vault, webhook.organization_id, signed.secret_id)
    slack_link = await find_link_of_slack_user(session, webhook.organization_id, app, click.slack_user)
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
        raise ApiError(403, "The webhook is disabled")


def _error_text(error: ApiError) -> str:
    detail = error.detail
    if not isinstance(detail, str):
        return "the request cannot be decided in Slack"
    return detail[:1].lower() + detail[1:]
