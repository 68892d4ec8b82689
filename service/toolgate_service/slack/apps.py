"""Slack apps of an organization. Webhooks with the same signing secret belong to the same Slack app."""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.core.crypto import Vault
from toolgate_service.core.errors import REQUIRED, ApiError, FieldErrors
from toolgate_service.webhooks.models import SLACK, SLACK_SIGNING, Webhook, WebhookSecret
from toolgate_service.webhooks.secrets import unseal


@dataclass(frozen=True, slots=True)
class SigningSecret:
    """Signing secret of a Slack webhook's app.

    Attributes:
        id: Id of the row in `webhook_secrets`. A replacement secret has a new row.
        webhook: The Slack webhook.
        plain: The decrypted secret.
    """

    id: str
    webhook: Webhook
    plain: str

    def is_same_app(self, other: "SigningSecret") -> bool:
        """Return whether both webhooks belong to the same Slack app."""
        return hmac.compare_digest(self.plain.encode(), other.plain.encode())


async def signing_secrets(
    session: AsyncSession, vault: Vault, organization_id: str
) -> Sequence[SigningSecret]:
    """Return the signing secrets of an organization's Slack webhooks, oldest webhook first.

    Deleted webhooks, and secrets that cannot be decrypted, are left out.
    """
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
        col(WebhookSecret.webhook_id).in_(webhooks), WebhookSecret.purpose == SLACK_SIGNING
    )
    rows = {row.webhook_id: row for row in (await session.exec(stored)).all()}
    opened = [
        (rows[id_], webhook, unseal(vault, rows[id_])) for id_, webhook in webhooks.items() if id_ in rows
    ]
    return [SigningSecret(row.id, webhook, plain) for row, webhook, plain in opened if plain is not None]


async def secrets_of_app(
    session: AsyncSession, vault: Vault, organization_id: str, secret_id: str | None
) -> Sequence[str]:
    """Return the ids of all signing secrets that belong to the same Slack app as the secret with the id `secret_id`.

    The result is empty if that secret was replaced in the meantime.
    """
    found = await signing_secrets(session, vault, organization_id)
    own = next((one for one in found if one.id == secret_id), None)
    return [one.id for one in found if own is not None and one.is_same_app(own)]


async def choose_app(
    session: AsyncSession, vault: Vault, organization_id: str, webhook_id: str | None
) -> SigningSecret:
    """Return the signing secret of a Slack webhook, or without `webhook_id` that of the organization's only Slack app.

    Raises:
        ApiError: 400, the Slack webhook does not exist, or `webhook_id` is missing and there are several Slack apps;
            409, no Slack app is connected.
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
