"""The rules of webhooks (decisions §3, §10)."""

from collections.abc import Sequence

from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service import exact_json
from toolgate_service.accounts.caller import Caller
from toolgate_service.audit import service as audit
from toolgate_service.errors import REQUIRED, ApiError, FieldErrors, feature_not_available, not_found
from toolgate_service.gateway import Gateway
from toolgate_service.ids import new_id
from toolgate_service.organizations.models import Organization
from toolgate_service.slack import secrets as slack_secrets
from toolgate_service.slack.apps import replace_signing_secret
from toolgate_service.slack.endings import DELETED as APP_DELETED
from toolgate_service.slack.endings import end_links_of
from toolgate_service.storage.database import now
from toolgate_service.webhooks.endings import DELETED, SWITCHED_OFF, end_pending
from toolgate_service.webhooks.kinds import ABOUT_APPROVALS, FEATURE, chosen
from toolgate_service.webhooks.models import SLACK, Webhook
from toolgate_service.webhooks.outbox import has_feature
from toolgate_service.webhooks.schemas import NewWebhook, WebhookChange, WebhookView
from toolgate_service.webhooks.secrets import add_secret, forget_secrets
from toolgate_service.webhooks.urls import RefusedUrl, canonical_url

#: webhooks of one environment
MAX_WEBHOOKS = 20


async def demand_feature(session: AsyncSession, gateway: Gateway, caller: Caller) -> None:
    """Refuse what the organization's plan does not include.

    Raises:
        ApiError: 403, webhooks are not in the plan.
    """
    plan = (
        await session.exec(select(Organization.plan).where(Organization.id == caller.organization_id))
    ).one()
    if not has_feature(gateway.plans, plan):
        raise feature_not_available(FEATURE, plan)


async def list_webhooks(session: AsyncSession, caller: Caller, environment: str) -> Sequence[Webhook]:
    """Return an environment's webhooks, newest first."""
    query = _living(caller, environment).order_by(col(Webhook.created_at).desc(), col(Webhook.id).desc())
    return (await session.exec(query)).all()


async def get_webhook(
    session: AsyncSession, caller: Caller, environment: str, webhook_id: str, *, locked: bool = False
) -> Webhook:
    """Return one webhook.

    Args:
        session: a snapshot, or a transaction.
        caller: who asks.
        environment: of the two.
        webhook_id: which.
        locked: against the worker, which may be about to switch it off.

    Raises:
        ApiError: 404, there is none of that id in the caller's organization and environment.
    """
    query = _living(caller, environment).where(Webhook.id == webhook_id)
    webhook = (await session.exec(query.with_for_update(key_share=True) if locked else query)).first()
    if webhook is None:
        raise not_found("Webhook")
    return webhook


async def create_webhook(
    session: AsyncSession, gateway: Gateway, caller: Caller, environment: str, new: NewWebhook
) -> tuple[Webhook, str | None]:
    """Make a webhook and return it with its secret; one for Slack has none that is ours.

    Raises:
        ApiError: 403, not in the plan; 400, the URL is refused; 409, the environment has as many as it may.
    """
    await demand_feature(session, gateway, caller)
    url, is_slack = _judged(gateway, new.url), new.kind == SLACK
    _judge_signing_secret(new.signing_secret, new.kind, required=True)
    shown = slack_secrets.masked(url) if is_slack else url
    count = select(func.count()).select_from(_living(caller, environment).subquery())
    # In the organization's turn: nobody else adds one meanwhile.
    if (await session.exec(count)).one() >= MAX_WEBHOOKS:
        raise ApiError(409, f"The environment has {MAX_WEBHOOKS} webhooks; delete one first")
    webhook = Webhook(
        id=new_id(),
        organization_id=caller.organization_id,
        environment=environment,
        kind=new.kind,
        url=shown,
        description=new.description,
        events=_kept(new.events, new.kind),
        # A message without what is asked for helps nobody decide.
        include_context=new.include_context or (is_slack and "include_context" not in new.model_fields_set),
        created_by=caller.user_id,
        created_at=now(session),
    )
    session.add(webhook)
    await session.flush()
    if is_slack:
        await _keep_slack(session, gateway, webhook, url, new.signing_secret)
    secret = None if is_slack else add_secret(session, gateway.vault, webhook)
    told = new.model_dump(exclude={"signing_secret"}) | {
        "url": shown,
        "include_context": webhook.include_context,
    }
    record(session, caller, "webhook.created", webhook, **told)
    return webhook, secret


async def change_webhook(
    session: AsyncSession, gateway: Gateway, caller: Caller, webhook: Webhook, change: WebhookChange
) -> Webhook:
    """Change what was sent. Switched on again, a webhook begins anew; switched off, what was on its way ends.

    Raises:
        ApiError: 403, switching on is not in the plan; 400, the URL is refused.
    """
    changes = change.model_dump(exclude_unset=True)
    if change.is_active:
        await demand_feature(session, gateway, caller)
        webhook.disabled_reason = webhook.disabled_at = None
    _judge_signing_secret(change.signing_secret, webhook.kind)
    url = None if change.url is None else _judged(gateway, change.url)
    if url is not None:
        changes["url"] = slack_secrets.masked(url) if webhook.kind == SLACK else url
    if webhook.kind == SLACK:
        await _keep_slack(session, gateway, webhook, url, changes.pop("signing_secret", None))
    if change.is_active is False:
        await end_pending(session, webhook.id, SWITCHED_OFF)
    for name, value in changes.items():
        setattr(webhook, name, _kept(value, webhook.kind) if name == "events" else value)
    webhook.updated_at = now(session)
    session.add(webhook)
    replaced = {"signing_secret_replaced": True} if change.signing_secret is not None else {}
    record(session, caller, "webhook.updated", webhook, **changes | replaced)
    return webhook


async def delete_webhook(session: AsyncSession, caller: Caller, webhook: Webhook) -> None:
    """Delete a webhook: nothing reaches it any more. What it was told of goes with the retention."""
    await end_pending(session, webhook.id, DELETED)
    await end_links_of(session, webhook, APP_DELETED)
    await forget_secrets(session, webhook)
    webhook.deleted_at, webhook.is_active = now(session), False
    session.add(webhook)
    record(session, caller, "webhook.deleted", webhook, url=webhook.url)


def demand_own_secret(webhook: Webhook) -> None:
    """Refuse to rotate what Slack made.

    Raises:
        ApiError: 409.
    """
    if webhook.kind == SLACK:
        raise ApiError(
            409, "The secret is the Slack app's: rotate it there, then send it as signing_secret (PUT)"
        )


def view(webhook: Webhook) -> WebhookView:
    """Show a webhook."""
    return WebhookView.model_validate(webhook.model_dump() | {"events": chosen(webhook.events)})


def record(session: AsyncSession, caller: Caller, kind: str, webhook: Webhook, /, **changes: object) -> None:
    """Audit what somebody did with a webhook; never a secret."""
    audit.record(session, caller, kind, webhook.id, environment=webhook.environment, changes=changes)


def _living(caller: Caller, environment: str) -> SelectOfScalar[Webhook]:
    return select(Webhook).where(
        Webhook.organization_id == caller.organization_id,
        Webhook.environment == environment,
        col(Webhook.deleted_at).is_(None),
    )


def _judged(gateway: Gateway, url: str) -> str:
    try:
        return canonical_url(url, allow_private=gateway.settings.webhooks_allow_private)
    except RefusedUrl as refused:
        raise FieldErrors({"url": [str(refused)]}) from None


def _kept(events: Sequence[str] | None, kind: str) -> str | None:
    if events is None and kind == SLACK:
        events = ABOUT_APPROVALS
    return None if events is None else exact_json.dumps(list(events))


def _judge_signing_secret(secret: str | None, kind: str, *, required: bool = False) -> None:
    if kind != SLACK and secret is not None:
        what = "belongs to webhooks of kind 'slack'; this one signs with a secret of its own"
        raise FieldErrors({"signing_secret": [what]})
    if kind == SLACK and required and secret is None:
        what = f"{REQUIRED}: the Slack app's, under Basic Information"
        raise FieldErrors({"signing_secret": [what]})


async def _keep_slack(
    session: AsyncSession, gateway: Gateway, webhook: Webhook, url: str | None, signing: str | None
) -> None:
    if url is not None:
        await slack_secrets.keep(session, gateway.vault, webhook, slack_secrets.URL, url)
    if signing is not None:
        await replace_signing_secret(session, gateway.vault, webhook, signing)
