"""Database queries for webhooks, their secrets and deliveries, and removal of rows that are no longer needed."""

import base64
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, exists
from sqlmodel import col, delete, func, select, update
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service.accounts.sessions import Caller
from toolgate_service.core.crypto import Vault
from toolgate_service.core.errors import ApiError, not_found
from toolgate_service.core.ids import new_id
from toolgate_service.db.database import Database, now
from toolgate_service.db.models import PRODUCTION, TEST, Table
from toolgate_service.db.pagination import Found, Page, find_page
from toolgate_service.jobs.batches import delete_where
from toolgate_service.webhooks.models import FAILED, PENDING, SIGNING, Delivery, Event, Webhook, WebhookSecret
from toolgate_service.webhooks.schemas import DeliveryStatus, DeliveryView

#: Values of `deliveries.error` for deliveries that were pending when their webhook was disabled or deleted.
DISABLED = "the webhook was disabled"
DELETED = "the webhook was deleted"


async def list_webhooks(session: AsyncSession, caller: Caller, environment: str) -> Sequence[Webhook]:
    """Return the webhooks of an environment, newest first."""
    query = _existing(caller, environment).order_by(col(Webhook.created_at).desc(), col(Webhook.id).desc())
    return (await session.exec(query)).all()


async def count_webhooks(session: AsyncSession, caller: Caller, environment: str) -> int:
    """Return the number of webhooks in an environment."""
    query = select(func.count()).select_from(_existing(caller, environment).subquery())
    return (await session.exec(query)).one()


async def get_webhook(
    session: AsyncSession, caller: Caller, environment: str, webhook_id: str, *, lock: bool = False
) -> Webhook:
    """Return the webhook with this id.

    With `lock`, the delivery worker cannot disable the webhook until the transaction ends.

    Raises:
        ApiError: 404 if the caller's organization has no webhook with this id in the environment.
    """
    query = _existing(caller, environment).where(Webhook.id == webhook_id)
    webhook = (await session.exec(query.with_for_update(key_share=True) if lock else query)).first()
    if webhook is None:
        raise not_found("Webhook")
    return webhook


async def list_deliveries(
    session: AsyncSession, webhook: Webhook, status: DeliveryStatus | None, page: Page
) -> Found[DeliveryView]:
    """Return one page of a webhook's deliveries, newest first; with `status`, only deliveries in this state."""
    query = select(Delivery).where(Delivery.webhook_id == webhook.id)
    if status is not None:
        query = query.where(Delivery.status == status)
    found = await find_page(session, query, Delivery, page)
    return Found(await delivery_views(session, found.rows), found.total, found.last)


async def delivery_views(session: AsyncSession, deliveries: Sequence[Delivery]) -> Sequence[DeliveryView]:
    """Return deliveries in the format of the API, which includes the type of each event."""
    ids = {delivery.event_id for delivery in deliveries}
    rows = (await session.exec(select(Event.id, Event.kind).where(col(Event.id).in_(ids)))).all()
    kinds = dict(rows)
    return [
        DeliveryView.model_validate(delivery.model_dump() | {"type": kinds[delivery.event_id]})
        for delivery in deliveries
    ]


async def fail_pending(session: AsyncSession, webhook_id: str, reason: str) -> None:
    """Mark all pending deliveries of a webhook as failed, so that they are not attempted again."""
    await session.exec(
        update(Delivery)
        .where(col(Delivery.webhook_id) == webhook_id, col(Delivery.status) == PENDING)
        .values(status=FAILED, error=reason, next_attempt_at=None, claimed_until=None)
    )


def _existing(caller: Caller, environment: str) -> SelectOfScalar[Webhook]:
    return select(Webhook).where(
        Webhook.organization_id == caller.organization_id,
        Webhook.environment == environment,
        col(Webhook.deleted_at).is_(None),
    )


PREFIX = "whsec_"
SECRET_BYTES = 32
#: Time for which the former secret also signs deliveries after a new secret has replaced it.
OVERLAP = timedelta(hours=24)
#: Maximum number of former secrets that still sign deliveries. Each one adds a signature to every request.
MAX_FORMER = 4


def new_secret() -> str:
    """Return a new random secret for signing deliveries."""
    return PREFIX + base64.b64encode(os.urandom(SECRET_BYTES)).decode()


def add_secret(session: AsyncSession, vault: Vault, webhook: Webhook) -> str:
    """Create a signing secret for a webhook, store it in encrypted form, and return it in plain text."""
    secret = new_secret()
    session.add(seal(vault, new_row(session, webhook, SIGNING), secret))
    return secret


def new_row(session: AsyncSession, webhook: Webhook, purpose: str) -> WebhookSecret:
    """Return a new row for a secret of a webhook. The row is empty until `seal` adds the encrypted secret."""
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
    """Encrypt a secret, store it in a row, and return the row.

    The ciphertext is bound to the id and the organization of the row, so it is useless in another row.
    """
    row.ciphertext = vault.seal(
        plain, table=WebhookSecret.__name__, row=row.id, organization=row.organization_id
    )
    return row


def unseal(vault: Vault, row: WebhookSecret) -> str | None:
    """Decrypt the secret of a row. The result is None if no key of the vault can decrypt it."""
    return vault.open(
        row.ciphertext, table=WebhookSecret.__name__, row=row.id, organization=row.organization_id
    )


async def rotate_secret(session: AsyncSession, vault: Vault, webhook: Webhook) -> tuple[str, datetime]:
    """Create a new signing secret for a webhook, and keep the former one valid for `OVERLAP`.

    Returns:
        The new secret in plain text, and the time until which the former secret also signs deliveries.

    Raises:
        ApiError: 409 if `MAX_FORMER` former secrets still sign deliveries.
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
        raise ApiError(
            409, f"The secret was rotated {MAX_FORMER} times within 24 hours; create a new webhook"
        )
    for row in rows:
        if row.expires_at is None:
            row.expires_at = ends
            session.add(row)
    # Write the expiry of the former secret before the new secret, because a unique index allows only one secret without
    # an expiry.
    await session.flush()
    return add_secret(session, vault, webhook), ends


async def store_secret(
    session: AsyncSession, vault: Vault, webhook: Webhook, purpose: str, plain: str
) -> None:
    """Store a webhook's secret for the given purpose. It replaces the current secret.

    The webhook's row must already be flushed.
    """
    row = await find_current_secret(session, webhook.id, purpose)
    session.add(seal(vault, row or new_row(session, webhook, purpose), plain))
    await session.flush()


async def find_current_secret(session: AsyncSession, webhook_id: str, purpose: str) -> WebhookSecret | None:
    """Return the row of a webhook's current secret for the given purpose; None if the webhook has none."""
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
    """Return the valid secrets of webhooks in plain text, by webhook id and newest first.

    Secrets that no key of the vault can decrypt are omitted.
    """
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


#: Time after which events and their deliveries are removed, by environment.
RETENTION = {PRODUCTION: timedelta(days=30), TEST: timedelta(days=7)}


async def prune_webhooks(database: Database, batch: int, moment: datetime) -> Counter[str]:
    """Remove old deliveries and events, expired secrets, and deleted webhooks that have no deliveries left.

    Returns:
        Number of removed rows by table.
    """
    counts: Counter[str] = Counter()

    async def remove(table: type[Table], *conditions: ColumnElement[bool]) -> None:
        counts[str(table.__tablename__)] += await delete_where(database, batch, table, *conditions)

    for environment, age in RETENTION.items():
        await remove(
            Delivery,
            col(Delivery.environment) == environment,
            col(Delivery.created_at) < moment - age,
            # Pending deliveries are kept regardless of their age, because they will still be attempted.
            col(Delivery.status) != PENDING,
        )
        await remove(
            Event,
            col(Event.environment) == environment,
            col(Event.created_at) < moment - age,
            ~exists().where(col(Delivery.event_id) == col(Event.id)),
        )
    await remove(WebhookSecret, col(WebhookSecret.expires_at) <= moment)
    await remove(
        Webhook,
        col(Webhook.deleted_at).is_not(None),
        ~exists().where(col(Delivery.webhook_id) == col(Webhook.id)),
        ~exists().where(col(WebhookSecret.webhook_id) == col(Webhook.id)),
    )
    return counts
