"""What Slack gave and nobody is shown: the incoming webhook's URL, and the app's signing secret. Both rest sealed."""

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service.vault import Vault
from toolgate_service.webhooks.models import Webhook, WebhookSecret
from toolgate_service.webhooks.secrets import new_row, sealed, unsealed

#: the purposes of the two
URL = "slack_url"
SIGNING = "slack_signing"


def masked(url: str) -> str:
    """Return what is shown of a URL whose path is a credential."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/…"


async def keep(session: AsyncSession, vault: Vault, webhook: Webhook, purpose: str, plain: str) -> None:
    """Seal a secret of a webhook, in the place of the former one.

    Args:
        session: a write transaction; the webhook is in it.
        vault: seals.
        webhook: whose.
        purpose: `URL` or `SIGNING`.
        plain: the secret.
    """
    row = await row_of(session, webhook.id, purpose)
    session.add(sealed(vault, row or new_row(session, webhook, purpose), plain))
    await session.flush()


async def opened(
    session: AsyncSession, vault: Vault, webhooks: Sequence[str], purpose: str
) -> Mapping[str, str]:
    """Return secrets of a purpose by the webhooks' ids; none that cannot be opened."""
    found: dict[str, str] = {}
    for row in (await session.exec(_of(webhooks, purpose))).all():
        plain = unsealed(vault, row)
        if plain is not None:
            found[row.webhook_id] = plain
    return found


async def row_of(session: AsyncSession, webhook_id: str, purpose: str) -> WebhookSecret | None:
    """Return the row of a webhook's secret of a purpose."""
    return (await session.exec(_of([webhook_id], purpose))).first()


def _of(webhooks: Sequence[str], purpose: str) -> SelectOfScalar[WebhookSecret]:
    return select(WebhookSecret).where(
        col(WebhookSecret.webhook_id).in_(webhooks), WebhookSecret.purpose == purpose
    )
