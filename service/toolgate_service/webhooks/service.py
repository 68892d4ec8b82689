"""Operations on webhooks for the API and the console.

The transaction of each change verifies the caller's role again and writes an audit event.
"""

import hmac
from collections.abc import Sequence

from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.repository import SECRET_REPLACED, WEBHOOK_DELETED, end_webhook_links
from toolgate_service.accounts.sessions import Caller, Precondition, no_precondition, transaction_as
from toolgate_service.audit import service as audit
from toolgate_service.context import AppContext
from toolgate_service.core import strict_json
from toolgate_service.core.crypto import Vault
from toolgate_service.core.errors import REQUIRED, ApiError, FieldErrors, feature_not_available, not_found
from toolgate_service.core.ids import new_id
from toolgate_service.db.database import now
from toolgate_service.db.pagination import Found, Page
from toolgate_service.organizations.models import Organization
from toolgate_service.outbound.ssrf import InvalidUrl, canonical_url, mask_url
from toolgate_service.webhooks import repository
from toolgate_service.webhooks.events import (
    APPROVAL_TYPES,
    FEATURE,
    TEST_EVENT,
    add_events,
    has_feature,
    subscribed_types,
    wake_after_commit,
)
from toolgate_service.webhooks.models import PENDING, SLACK, SLACK_SIGNING, SLACK_URL, Delivery, Webhook
from toolgate_service.webhooks.repository import (
    DELETED,
    DISABLED,
    add_secret,
    delete_secrets,
    delivery_views,
    fail_pending,
    find_current_secret,
    get_webhook,
    rotate_secret,
    store_secret,
    unseal,
)
from toolgate_service.webhooks.schemas import (
    DeliveryStatus,
    DeliveryView,
    NewWebhook,
    NewWebhookView,
    RotatedSecretView,
    WebhookChange,
    WebhookView,
)

#: Maximum number of webhooks in one environment.
MAX_WEBHOOKS = 20


def webhook_view(webhook: Webhook) -> WebhookView:
    """Return a webhook in the format of the API."""
    added = {"type": webhook.kind, "events": subscribed_types(webhook.events)}
    return WebhookView.model_validate(webhook.model_dump() | added)


async def list_webhooks(context: AppContext, caller: Caller, environment: str) -> Sequence[WebhookView]:
    """Return the webhooks of an environment, newest first."""
    async with context.database.reading() as session:
        found = await repository.list_webhooks(session, caller, environment)
    return [webhook_view(webhook) for webhook in found]


async def show_webhook(context: AppContext, caller: Caller, environment: str, webhook_id: str) -> WebhookView:
    """Return the webhook with this id.

    Raises:
        ApiError: 404 if the environment has no webhook with this id.
    """
    async with context.database.reading() as session:
        return webhook_view(await get_webhook(session, caller, environment, webhook_id))


async def list_deliveries(
    context: AppContext,
    caller: Caller,
    environment: str,
    webhook_id: str,
    status: DeliveryStatus | None,
    page: Page,
) -> Found[DeliveryView]:
    """Return one page of a webhook's deliveries, newest first; with `status`, only deliveries in this state.

    Raises:
        ApiError: 404 if the environment has no webhook with this id.
    """
    async with context.database.reading() as session:
        webhook = await get_webhook(session, caller, environment, webhook_id)
        return await repository.list_deliveries(session, webhook, status, page)


async def create_webhook(
    context: AppContext,
    caller: Caller,
    environment: str,
    new: NewWebhook,
    *,
    first: Precondition = no_precondition,
) -> NewWebhookView:
    """Create a webhook and return it with its signing secret, which is never returned again.

    For a Slack webhook, the gateway does not create a secret: the request contains the signing secret of the Slack app.

    Raises:
        ApiError: 403 if the plan does not include webhooks; 400 if the URL is not allowed, or the signing secret is
            missing (type `slack`) or not allowed (other types); 409 if the environment already has `MAX_WEBHOOKS`
            webhooks. The precondition `first` can raise other errors.
    """
    async with transaction_as(context, caller) as session:
        await first(session)
        await _require_feature(session, context, caller)
        url, is_slack = _checked_url(context, new.url), new.kind == SLACK
        _check_signing_secret(new.signing_secret, new.kind, required=True)
        # The transaction holds the organization's lock, so concurrent requests cannot together exceed the maximum
        # number of webhooks.
        if await repository.count_webhooks(session, caller, environment) >= MAX_WEBHOOKS:
            raise ApiError(
                409,
                f"The environment already has {MAX_WEBHOOKS} webhooks, which is the maximum; delete one first",
            )
        webhook = Webhook(
            id=new_id(),
            organization_id=caller.organization_id,
            environment=environment,
            kind=new.kind,
            url=mask_url(url) if is_slack else url,
            description=new.description,
            events=_dump_types(new.events, new.kind),
            # Slack messages contain the arguments of a call by default, because approvers need them for a decision.
            include_context=new.include_context
            or (is_slack and "include_context" not in new.model_fields_set),
            created_by=caller.user_id,
            created_at=now(session),
        )
        session.add(webhook)
        await session.flush()
        if is_slack:
            await _store_slack_secrets(session, context, webhook, url, new.signing_secret)
        secret = None if is_slack else add_secret(session, context.vault, webhook)
        stored = {"url": webhook.url, "include_context": webhook.include_context}
        _audit(
            session, caller, "webhook.created", webhook, **new.model_dump(exclude={"signing_secret"}) | stored
        )
        return NewWebhookView(**webhook_view(webhook).model_dump(), secret=secret)


async def update_webhook(
    context: AppContext, caller: Caller, environment: str, webhook_id: str, change: WebhookChange
) -> WebhookView:
    """Change the fields that the request contains.

    If the change enables the webhook, its `disabled_reason` is removed. If the change disables the webhook, its pending
    deliveries are marked as failed.

    Raises:
        ApiError: 404 if the environment has no webhook with this id; 403 if the change enables the webhook and the plan
            does not include webhooks; 400 if the URL is not allowed, or the request contains a signing secret and the
            webhook is not a Slack webhook.
    """
    async with transaction_as(context, caller) as session:
        webhook = await get_webhook(session, caller, environment, webhook_id, lock=True)
        changes = change.model_dump(exclude_unset=True)
        if change.is_active:
            await _require_feature(session, context, caller)
            webhook.disabled_reason = webhook.disabled_at = None
        _check_signing_secret(change.signing_secret, webhook.kind)
        url = None if change.url is None else _checked_url(context, change.url)
        if url is not None:
            changes["url"] = mask_url(url) if webhook.kind == SLACK else url
        if webhook.kind == SLACK:
            await _store_slack_secrets(session, context, webhook, url, changes.pop("signing_secret", None))
        if change.is_active is False:
            await fail_pending(session, webhook.id, DISABLED)
        for name, value in changes.items():
            setattr(webhook, name, _dump_types(value, webhook.kind) if name == "events" else value)
        webhook.updated_at = now(session)
        session.add(webhook)
        replaced = {"signing_secret_replaced": True} if change.signing_secret is not None else {}
        _audit(session, caller, "webhook.updated", webhook, **changes | replaced)
        return webhook_view(webhook)


async def delete_webhook(context: AppContext, caller: Caller, environment: str, webhook_id: str) -> None:
    """Delete a webhook and mark its pending deliveries as failed. The retention job removes the rows later.

    Raises:
        ApiError: 404 if the environment has no webhook with this id.
    """
    async with transaction_as(context, caller) as session:
        webhook = await get_webhook(session, caller, environment, webhook_id, lock=True)
        await fail_pending(session, webhook.id, DELETED)
        await end_webhook_links(session, webhook.organization_id, webhook.id, WEBHOOK_DELETED)
        await delete_secrets(session, webhook)
        webhook.deleted_at, webhook.is_active = now(session), False
        session.add(webhook)
        _audit(session, caller, "webhook.deleted", webhook, url=webhook.url)


async def send_test_event(
    context: AppContext, caller: Caller, environment: str, webhook_id: str
) -> DeliveryView:
    """Store a `webhook.test` event for one webhook. The delivery worker sends it once, without retries.

    Raises:
        ApiError: 404 if the environment has no webhook with this id; 403 if the plan does not include webhooks; 409 if
            the webhook is disabled.
    """
    async with transaction_as(context, caller) as session:
        webhook = await get_webhook(session, caller, environment, webhook_id, lock=True)
        await _require_feature(session, context, caller)
        _require_active(webhook)
        resource = webhook_view(webhook).model_dump()
        (event_id,) = await add_events(
            session, webhook.organization_id, environment, TEST_EVENT, [resource], [webhook.id]
        )
        query = select(Delivery).where(Delivery.webhook_id == webhook.id, Delivery.event_id == event_id)
        (view,) = await delivery_views(session, [(await session.exec(query)).one()])
        _audit(session, caller, "webhook.tested", webhook, delivery=view.id)
        return view


async def rotate_webhook_secret(
    context: AppContext,
    caller: Caller,
    environment: str,
    webhook_id: str,
    *,
    first: Precondition = no_precondition,
) -> RotatedSecretView:
    """Replace the signing secret of a webhook and return the new one, which is never returned again.

    For 24 hours, deliveries are signed with both the new and the former secret.

    Raises:
        ApiError: 404 if the environment has no webhook with this id; 403 if the plan does not include webhooks; 409 if
            the webhook is a Slack webhook, or the secret was replaced too often. The precondition `first` can raise
            other errors.
    """
    async with transaction_as(context, caller) as session:
        webhook = await get_webhook(session, caller, environment, webhook_id, lock=True)
        await first(session)
        await _require_feature(session, context, caller)
        if webhook.kind == SLACK:
            raise ApiError(
                409,
                "Slack creates the signing secret of this webhook: replace it in Slack, then change the webhook's signing_secret",
            )
        secret, ends = await rotate_secret(session, context.vault, webhook)
        _audit(session, caller, "webhook.secret_rotated", webhook)
        return RotatedSecretView(id=webhook.id, secret=secret, former_secret_expires_at=ends)


async def retry_delivery(
    context: AppContext, caller: Caller, environment: str, webhook_id: str, delivery_id: str
) -> DeliveryView:
    """Schedule a delivery for now, whatever its status is, and return it. The delivery worker then attempts it again.

    Raises:
        ApiError: 404 if the webhook or the delivery does not exist; 403 if the plan does not include webhooks; 409 if
            the webhook is disabled.
    """
    async with transaction_as(context, caller) as session:
        webhook = await get_webhook(session, caller, environment, webhook_id, lock=True)
        await _require_feature(session, context, caller)
        query = select(Delivery).where(Delivery.id == delivery_id, Delivery.webhook_id == webhook.id)
        delivery = (await session.exec(query.with_for_update())).first()
        if delivery is None:
            raise not_found("Delivery")
        _require_active(webhook)
        if delivery.status != PENDING:
            delivery.status, delivery.attempts, delivery.delivered_at = PENDING, 0, None
            delivery.response_code = delivery.error = None
        delivery.next_attempt_at = now(session)
        session.add(delivery)
        wake_after_commit(session)
        (view,) = await delivery_views(session, [delivery])
        _audit(session, caller, "webhook.delivery_retried", webhook, delivery=delivery_id)
        return view


async def _require_feature(session: AsyncSession, context: AppContext, caller: Caller) -> None:
    plan = (
        await session.exec(select(Organization.plan).where(Organization.id == caller.organization_id))
    ).one()
    if not has_feature(context.plans, plan):
        raise feature_not_available(FEATURE, plan)


def _require_active(webhook: Webhook) -> None:
    if not webhook.is_active:
        raise ApiError(409, "The webhook is disabled; enable it first")


def _audit(session: AsyncSession, caller: Caller, kind: str, webhook: Webhook, /, **changes: object) -> None:
    audit.record(session, caller, kind, webhook.id, environment=webhook.environment, changes=changes)


def _checked_url(context: AppContext, url: str) -> str:
    try:
        return canonical_url(url, allow_private=context.settings.webhooks_allow_private)
    except InvalidUrl as error:
        raise FieldErrors({"url": [str(error)]}) from None


def _dump_types(events: Sequence[str] | None, kind: str) -> str | None:
    if events is None and kind == SLACK:
        events = APPROVAL_TYPES
    return None if events is None else strict_json.dumps(list(events))


def _check_signing_secret(secret: str | None, kind: str, *, required: bool = False) -> None:
    if kind != SLACK and secret is not None:
        error = (
            "is only for webhooks of the type 'slack'; the gateway creates the signing secret of this webhook"
        )
        raise FieldErrors({"signing_secret": [error]})
    if kind == SLACK and required and secret is None:
        error = f"{REQUIRED}: copy the signing secret from 'Basic Information' of the Slack app"
        raise FieldErrors({"signing_secret": [error]})


async def _store_slack_secrets(
    session: AsyncSession, context: AppContext, webhook: Webhook, url: str | None, signing: str | None
) -> None:
    if url is not None:
        await store_secret(session, context.vault, webhook, SLACK_URL, url)
    if signing is not None:
        await _replace_signing_secret(session, context.vault, webhook, signing)


async def _replace_signing_secret(session: AsyncSession, vault: Vault, webhook: Webhook, secret: str) -> None:
    """Store the signing secret of a Slack app.

    If the secret differs from the stored one, the webhook's links between Slack accounts and users are deleted.
    """
    former = await find_current_secret(session, webhook.id, SLACK_SIGNING)
    if former is not None:
        known = unseal(vault, former)
        if known is not None and hmac.compare_digest(known.encode(), secret.encode()):
            return
        await end_webhook_links(session, webhook.organization_id, webhook.id, SECRET_REPLACED)
        await session.delete(former)
        await session.flush()
    await store_secret(session, vault, webhook, SLACK_SIGNING, secret)
