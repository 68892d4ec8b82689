"""Secrets of webhooks: creation, encrypted storage, rotation, and signatures of deliveries."""

import base64
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from sqlmodel import col, delete, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.core.crypto import Vault
from toolgate_service.core.errors import ApiError
from toolgate_service.core.ids import new_id
from toolgate_service.db.database import now
from toolgate_service.webhooks.models import SIGNING, Webhook, WebhookSecret

PREFIX = "whsec_"
SECRET_BYTES = 32
#: time after a rotation during which deliveries are signed with both the new and the former secret
OVERLAP = timedelta(hours=24)
#: maximum number of former secrets that are still in use; each adds a signature to every delivery
MAX_FORMER = 4


def new_secret() -> str:
    """Return a new random signing secret."""
    return PREFIX + base64.b64encode(os.urandom(SECRET_BYTES)).decode()


def signed_headers(event_id: str, moment: datetime, body: str, secrets: Sequence[str]) -> dict[str, str]:
    """Return the headers of one delivery attempt as defined by Standard Webhooks, with one signature per secret.

    After a rotation, `secrets` also contains the former secret, so that receivers have time to install the new one.
    """
    # The library is imported here, because it imports an HTTP client, which takes a tenth of the gateway's start time.
    from standardwebhooks import Webhook as Signer

    whole = moment.astimezone(UTC).replace(microsecond=0)
    signatures = [Signer(secret).sign(event_id, whole, body) for secret in secrets]
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(int(whole.timestamp())),
        "webhook-signature": " ".join(signatures),
    }


def add_secret(session: AsyncSession, vault: Vault, webhook: Webhook) -> str:
    """Create a signing secret for a webhook, store it encrypted and return it."""
    secret = new_secret()
    session.add(seal(vault, new_row(session, webhook, SIGNING), secret))
    return secret


def new_row(session: AsyncSession, webhook: Webhook, purpose: str) -> WebhookSecret:
    """Return a new row for a secret of a webhook, still without the secret. `seal` adds the encrypted secret."""
    return WebhookSecret(
        id=new_id(),
        organization_id=webhook.organization_id,
        environment=webhook.environment,
        webhook_id=webhook.id,
        purpose=purpose,
        ciphertext=b"",
        created_at=now(session),
    )


def seal(vault: Vault, row: WebhookSecret, plain: str) -> WebhookSecret:
    """Encrypt a secret, store it in the row and return the row.

    The ciphertext can be decrypted only together with the row's id and organization.
    """
    row.ciphertext = vault.seal(
        plain, table=WebhookSecret.__name__, row=row.id, organization=row.organization_id
    )
    return row


def unseal(vault: Vault, row: WebhookSecret) -> str | None:
    """Return the decrypted secret of a row; None if no key of the vault can decrypt it."""
    return vault.open(
        row.ciphertext, table=WebhookSecret.__name__, row=row.id, organization=row.organization_id
    )


async def rotate_secret(session: AsyncSession, vault: Vault, webhook: Webhook) -> tuple[str, datetime]:
    """Create a new signing secret for a webhook.

    Returns:
        The new secret, and the time until which deliveries are also signed with the former secret.

    Raises:
        ApiError: 409 if `MAX_FORMER` former secrets are still in use.
    """
    moment = now(session)
    ends = moment + OVERLAP
    await session.exec(
        delete(WebhookSecret).where(
            col(WebhookSecret.webhook_id) == webhook.id, col(WebhookSecret.expires_at) <= moment
        )
    )
    rows = (
        await session.exec(
            select(WebhookSecret).where(
                WebhookSecret.webhook_id == webhook.id, WebhookSecret.purpose == SIGNING
            )
        )
    ).all()
    if len(rows) > MAX_FORMER:
        raise ApiError(409, f"The secret was rotated {MAX_FORMER} times within 24 hours; make a new webhook")
    for row in rows:
        if row.expires_at is None:
            row.expires_at = ends
            session.add(row)
    # The expiry is written before the insert, because a unique index allows only one row without an expiry.
    await session.flush()
    return add_secret(session, vault, webhook), ends


async def store_secret(
    session: AsyncSession, vault: Vault, webhook: Webhook, purpose: str, plain: str
) -> None:
    """Store a webhook's secret for a purpose and replace the current one. The webhook must already be flushed."""
    row = await find_current_secret(session, webhook.id, purpose)
    session.add(seal(vault, row or new_row(session, webhook, purpose), plain))
    await session.flush()


async def find_current_secret(session: AsyncSession, webhook_id: str, purpose: str) -> WebhookSecret | None:
    """Return the row of a webhook's current secret for a purpose; None if there is none."""
    query = select(WebhookSecret).where(
        WebhookSecret.webhook_id == webhook_id,
        WebhookSecret.purpose == purpose,
        col(WebhookSecret.expires_at).is_(None),
    )
    return (await session.exec(query)).first()


async def delete_secrets(session: AsyncSession, webhook: Webhook) -> None:
    """Delete all secrets of a webhook."""
    await session.exec(delete(WebhookSecret).where(col(WebhookSecret.webhook_id) == webhook.id))


async def load_secrets(
    session: AsyncSession, vault: Vault, webhooks: Sequence[str], purpose: str
) -> Mapping[str, Sequence[str]]:
    """Return the valid secrets of webhooks by webhook id, newest first. Secrets that no key can decrypt are omitted."""
    query = (
        select(WebhookSecret)
        .where(
            col(WebhookSecret.webhook_id).in_(webhooks),
            WebhookSecret.purpose == purpose,
            col(WebhookSecret.expires_at).is_(None) | (col(WebhookSecret.expires_at) > now(session)),
        )
        .order_by(col(WebhookSecret.created_at).desc(), col(WebhookSecret.id).desc())
    )
    found: defaultdict[str, list[str]] = defaultdict(list)
    for row in (await session.exec(query)).all():
        plain = unseal(vault, row)
        if plain is not None:
            found[row.webhook_id].append(plain)
    return found
