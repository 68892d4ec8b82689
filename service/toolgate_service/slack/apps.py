"""Slack apps of an organization: webhooks whose signing secrets are equal belong to one app."""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.errors import REQUIRED, ApiError, FieldErrors
from toolgate_service.slack.endings import REPLACED, end_links_of
from toolgate_service.slack.secrets import SIGNING
from toolgate_service.vault import Vault
from toolgate_service.webhooks.models import SLACK, Webhook, WebhookSecret
from toolgate_service.webhooks.secrets import new_row, sealed, unsealed


@dataclass(frozen=True, slots=True)
class SigningSecret:
    """Signing secret of the app behind a Slack webhook.

    Attributes:
        id: of the `webhook_secrets` row: another one once the secret was replaced.
        webhook: the webhook.
        plain: the secret.
    """

    id: str
    webhook: Webhook
    plain: str

    def is_same_app(self, other: "SigningSecret") -> bool:
        """Return whether both webhooks belong to one app."""
        return hmac.compare_digest(self.plain.encode(), other.plain.encode())


async def signing_secrets(
    session: AsyncSession, vault: Vault, organization_id: str
) -> Sequence[SigningSecret]:
    """Return the signing secrets of an organization's Slack webhooks that are not deleted, the oldest webhook first."""
    query = (
        select(Webhook)
        .where(
            Webhook.organization_id == organization_id,
            Webhook.kind == SLACK,
            col(Webhook.deleted_at).is_(None),
        )
        .order_by(col(Webhook.created_at), col(Webhook.id))
    )
    webhooks = {webhook.id: webhook for webhook in (await session.exec(query)).all()}
    stored = select(WebhookSecret).where(
        col(WebhookSecret.webhook_id).in_(webhooks), WebhookSecret.purpose == SIGNING
    )
    rows = {row.webhook_id: row for row in (await session.exec(stored)).all()}
    opened = [
        (rows[id_], webhook, unsealed(vault, rows[id_])) for id_, webhook in webhooks.items() if id_ in rows
    ]
    return [SigningSecret(row.id, webhook, plain) for row, webhook, plain in opened if plain is not None]


async def secrets_of_app(
    session: AsyncSession, vault: Vault, organization_id: str, secret_id: str | None
) -> Sequence[str]:
    """Return the ids of the signing secrets that belong to the same app as one of them; none where that was replaced."""
    found = await signing_secrets(session, vault, organization_id)
    own = next((one for one in found if one.id == secret_id), None)
    return [one.id for one in found if own is not None and one.is_same_app(own)]


async def choose_app(
    session: AsyncSession, vault: Vault, organization_id: str, webhook_id: str | None
) -> SigningSecret:
    """Return the app that a webhook belongs to, or the organization's only app.

    Raises:
        ApiError: 400 no such Slack webhook, or several apps and none was named; 409 there is no app.
    """
    found = await signing_secrets(session, vault, organization_id)
    if not found:
        raise ApiError(
            409, "No Slack app is connected; an admin connects one first (webhook of kind 'slack')"
        )
    if webhook_id is not None:
        named = next((one for one in found if one.webhook.id == webhook_id), None)
        if named is None:
            raise FieldErrors(
                {"webhook_id": [f"{webhook_id[:40]!r} is not a Slack webhook of the organization"]}
            )
        return named
    if all(one.is_same_app(found[0]) for one in found):
        return found[0]
    known = "; ".join(
        f"{one.webhook.id} ({one.webhook.environment}, {one.webhook.description or 'no description'})"
        for one in found
    )
    raise FieldErrors(
        {"webhook_id": [f"{REQUIRED}: several Slack apps are connected; name a webhook of yours: {known}"]}
    )


async def replace_signing_secret(session: AsyncSession, vault: Vault, webhook: Webhook, plain: str) -> None:
    """Store the signing secret of a webhook's app. One that differs from the former ends the links made by that."""
    query = select(WebhookSecret).where(
        WebhookSecret.webhook_id == webhook.id, WebhookSecret.purpose == SIGNING
    )
    former = (await session.exec(query)).first()
    if former is not None:
        known = unsealed(vault, former)
        if known is not None and hmac.compare_digest(known.encode(), plain.encode()):
            return
        await end_links_of(session, webhook, REPLACED)
        await session.delete(former)
        await session.flush()
    session.add(sealed(vault, new_row(session, webhook, SIGNING), plain))
    await session.flush()
