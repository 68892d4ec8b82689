"""The signing secrets of webhooks: sealed, rotated, and one a while longer beside its successor (decisions §9, §10)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlmodel import col, delete, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.errors import ApiError
from toolgate_service.ids import new_id
from toolgate_service.storage.database import now
from toolgate_service.vault import Vault
from toolgate_service.webhooks.models import SIGNING, Webhook, WebhookSecret
from toolgate_service.webhooks.signing import new_secret

#: how long a former secret signs beside the new one
OVERLAP = timedelta(hours=24)
#: former secrets that still sign: each is one more signature in a header
MAX_FORMER = 4


def add_secret(session: AsyncSession, vault: Vault, webhook: Webhook) -> str:
    """Give a webhook a new secret and return it; the only time that it is shown."""
    secret = new_secret()
    session.add(sealed(vault, new_row(session, webhook, SIGNING), secret))
    return secret


def new_row(session: AsyncSession, webhook: Webhook, purpose: str) -> WebhookSecret:
    """Return a row for a secret of a webhook, which has yet to be `sealed` into it."""
    return WebhookSecret(
        id=new_id(),
        organization_id=webhook.organization_id,
        environment=webhook.environment,
        webhook_id=webhook.id,
        purpose=purpose,
        ciphertext=b"",
        created_at=now(session),
    )


def sealed(vault: Vault, row: WebhookSecret, plain: str) -> WebhookSecret:
    """Seal a secret into its row, bound to it, and return the row."""
    row.ciphertext = vault.seal(
        plain, table=WebhookSecret.__name__, row=row.id, organization=row.organization_id
    )
    return row


def unsealed(vault: Vault, row: WebhookSecret) -> str | None:
    """Return the secret of a row; None if it cannot be opened."""
    return vault.open(
        row.ciphertext, table=WebhookSecret.__name__, row=row.id, organization=row.organization_id
    )


async def rotate_secret(session: AsyncSession, vault: Vault, webhook: Webhook) -> tuple[str, datetime]:
    """Give a webhook a new secret.

    Returns:
        The secret, and until when the former one signs too.

    Raises:
        ApiError: 409, it was rotated so often that the former ones would not fit beside it.
    """
    moment = now(session)
    ends = moment + OVERLAP
    await session.exec(
        delete(WebhookSecret).where(
            col(WebhookSecret.webhook_id) == webhook.id, col(WebhookSecret.expires_at) <= moment
        )
    )
    known = (
        await session.exec(
            select(WebhookSecret).where(
                WebhookSecret.webhook_id == webhook.id, WebhookSecret.purpose == SIGNING
            )
        )
    ).all()
    if len(known) > MAX_FORMER:
        raise ApiError(409, f"The secret was rotated {MAX_FORMER} times within 24 hours; make a new webhook")
    for secret in known:
        if secret.expires_at is None:
            secret.expires_at = ends
            session.add(secret)
    # Before the new one: of those without an end there is one.
    await session.flush()
    return add_secret(session, vault, webhook), ends


async def newest_secret(session: AsyncSession, webhook: Webhook) -> WebhookSecret | None:
    """Return the row of a webhook's present secret; None where the secret is not ours."""
    query = select(WebhookSecret).where(
        WebhookSecret.webhook_id == webhook.id,
        WebhookSecret.purpose == SIGNING,
        col(WebhookSecret.expires_at).is_(None),
    )
    return (await session.exec(query)).first()


async def forget_secrets(session: AsyncSession, webhook: Webhook) -> None:
    """Remove a webhook's secrets."""
    await session.exec(delete(WebhookSecret).where(col(WebhookSecret.webhook_id) == webhook.id))


async def signing_secrets(
    session: AsyncSession, vault: Vault, webhooks: Sequence[str]
) -> Mapping[str, Sequence[str]]:
    """Return the secrets that sign for webhooks at this moment, the newest first; none that cannot be opened."""
    query = (
        select(WebhookSecret)
        .where(
            col(WebhookSecret.webhook_id).in_(webhooks),
            WebhookSecret.purpose == SIGNING,
            col(WebhookSecret.expires_at).is_(None) | (col(WebhookSecret.expires_at) > now(session)),
        )
        .order_by(col(WebhookSecret.created_at).desc(), col(WebhookSecret.id).desc())
    )
    found: defaultdict[str, list[str]] = defaultdict(list)
    for row in (await session.exec(query)).all():
        secret = unsealed(vault, row)
        if secret is not None:
            found[row.webhook_id].append(secret)
    return found
