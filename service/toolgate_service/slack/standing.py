"""Whether a Slack webhook may be spoken to: who signed, and how webhook, organization and plan stand."""

from dataclasses import dataclass

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.errors import ApiError
from toolgate_service.organizations.models import Organization
from toolgate_service.plans import Plans
from toolgate_service.slack.secrets import SIGNING, row_of
from toolgate_service.slack.signature import Signed
from toolgate_service.storage.database import now
from toolgate_service.vault import Vault
from toolgate_service.webhooks.models import SLACK, Webhook, WebhookSecret
from toolgate_service.webhooks.outbox import has_feature
from toolgate_service.webhooks.secrets import unsealed

#: signs for a webhook that is not there, so that a no costs as much
_NOBODYS = "0" * 32


@dataclass(frozen=True, slots=True)
class Place:
    """The webhook that Slack spoke to.

    Attributes:
        webhook_id: which.
        organization_id: whose.
        secret_id: the `webhook_secrets` row of the signing secret that the request was signed with.
        url: what is shown of where it leads.
    """

    webhook_id: str
    organization_id: str
    secret_id: str
    url: str


async def signed_place(
    session: AsyncSession, vault: Vault, plans: Plans, webhook_id: str, sent: Signed
) -> Place:
    """Return the webhook that a request speaks to, if it is signed with that webhook's own secret.

    Raises:
        ApiError: 401, one and the same for an unknown webhook, a wrong signature and an old timestamp; 403, the
            webhook, its organization or the plan has no part in this now.
    """
    found = await standing(session, webhook_id)
    row = await row_of(session, webhook_id, SIGNING)
    secret = unsealed(vault, row) if row is not None else None
    if secret is None:
        # As much work as opening one.
        vault.seal(_NOBODYS, table=WebhookSecret.__name__, row=webhook_id, organization=webhook_id)
    right = sent.is_by(secret or _NOBODYS, now(session))
    if found is None or row is None or secret is None or not right:
        raise not_signed()
    webhook, organization = found
    refuse(plans, webhook, organization)
    return Place(webhook.id, webhook.organization_id, row.id, webhook.url)


def not_signed() -> ApiError:
    """Return the 401 of an unknown webhook, a missing or wrong signature and an old timestamp."""
    return ApiError(401, "Not signed by Slack for this webhook")


async def standing(session: AsyncSession, webhook_id: str) -> tuple[Webhook, Organization] | None:
    """Return a Slack webhook and its organization; None when there is none, or it was deleted."""
    query = (
        select(Webhook, Organization)
        .join(Organization, col(Organization.id) == Webhook.organization_id)
        .where(Webhook.id == webhook_id, Webhook.kind == SLACK, col(Webhook.deleted_at).is_(None))
    )
    return (await session.exec(query)).first()


def refuse(plans: Plans, webhook: Webhook, organization: Organization) -> None:
    """Refuse what has no part in this now.

    Raises:
        ApiError: 403.
    """
    if not organization.is_active:
        raise ApiError(403, "Organization is not active")
    if not has_feature(plans, organization.plan):
        raise ApiError(403, f"The {organization.plan} plan does not include webhooks")
    if not webhook.is_active:
        raise ApiError(403, "The webhook is switched off")
