"""Database queries for Slack apps, links between Slack accounts and users, and the codes that create such links.

Webhooks with an identical signing secret belong to one Slack app. Within one Slack app, a user is linked to at most one
Slack account and a Slack account to at most one user. After several wrong link codes, a Slack account must wait before
each further attempt.
"""

import hmac
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.login_throttle import FORGIVE_AFTER, Backoff
from toolgate_service.accounts.models import LoginFailures, SlackLink, SlackLinkCode, User
from toolgate_service.accounts.service import hash_token
from toolgate_service.accounts.sessions import Caller
from toolgate_service.core.crypto import Vault
from toolgate_service.db.database import now
from toolgate_service.slack.schemas import SlackUser
from toolgate_service.webhooks.models import SLACK, SLACK_SIGNING, Webhook, WebhookSecret
from toolgate_service.webhooks.repository import unseal


@dataclass(frozen=True, slots=True)
class SigningSecret:
    """Signing secret of the Slack app to which a webhook belongs.

    Attributes:
        id: Id of the secret's row in the table `webhook_secrets`. A new secret for the webhook has a new row.
        webhook: The webhook that sends events to a Slack channel.
        plain: The secret in plain text.
    """

    id: str
    webhook: Webhook
    plain: str

    def is_same_app(self, other: "SigningSecret") -> bool:
        """Return True if the webhooks of both secrets belong to one Slack app."""
        return hmac.compare_digest(self.plain.encode(), other.plain.encode())


async def signing_secrets(
    session: AsyncSession, vault: Vault, organization_id: str
) -> Sequence[SigningSecret]:
    """Return the signing secrets of an organization's Slack webhooks, in the order in which the webhooks were created.

    Secrets of deleted webhooks, and secrets that cannot be decrypted, are omitted.
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
    """Return the ids of all signing secrets of one Slack app: the app to which the secret `secret_id` belongs.

    The result is empty if the secret `secret_id` no longer exists because it was replaced.
    """
    found = await signing_secrets(session, vault, organization_id)
    own = next((one for one in found if one.id == secret_id), None)
    return [one.id for one in found if own is not None and one.is_same_app(own)]


#: Characters of link codes: Crockford's base 32, which omits letters that look like digits.
CODE_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
CODE_LENGTH = 16
_LOOKALIKES = str.maketrans("OIL", "011")


async def find_code(
    session: AsyncSession, organization_id: str, secrets_of_app: Collection[str], code: str
) -> tuple[SlackLinkCode, User] | None:
    """Return the row of a link code and the user who created the code. The code may already be used.

    `secrets_of_app` contains the ids of all signing secrets of the Slack app in which the code was entered.

    The result is None if the code is wrong, expired, or belongs to another Slack app. It is also None if the user was
    removed, or if the user's `version` has changed since the code was created, for example by a new password.
    """
    plain = code.strip().upper().replace("-", "").translate(_LOOKALIKES)
    if len(plain) != CODE_LENGTH or not set(plain) <= set(CODE_ALPHABET):
        return None
    query = (
        select(SlackLinkCode, User)
        .join(User, col(User.id) == SlackLinkCode.user_id)
        .where(
            SlackLinkCode.organization_id == organization_id,
            User.organization_id == organization_id,
            SlackLinkCode.code_hash == hash_token(plain),
            col(SlackLinkCode.secret_id).in_(secrets_of_app),
            SlackLinkCode.expires_at > now(session),
            User.version == SlackLinkCode.version,
            col(User.removed_at).is_(None),
        )
    )
    return (await session.exec(query)).first()


CODE_BACKOFF = Backoff(free=5, max_delay=60)


def throttle_key(vault: Vault, webhook_id: str, slack_user: SlackUser) -> str:
    """Return the key under which the wrong link codes of a Slack account are counted: a keyed hash of its Slack ids."""
    text = f"{webhook_id} {slack_user.team_id} {slack_user.user_id}"
    return f"slack:{hmac.digest(vault.login_key, text.encode(), 'sha256').hex()}"


async def seconds_to_wait(session: AsyncSession, subject: str) -> int:
    """Return the seconds until the gateway accepts another link code from a Slack account; 0 if it accepts one now."""
    row = await session.get(LoginFailures, subject)
    if row is None:
        return 0
    until = row.last_failed_at + CODE_BACKOFF.delay(_recent_failures(session, row))
    return max(0, math.ceil((until - now(session)).total_seconds()))


async def count_wrong_code(session: AsyncSession, subject: str) -> None:
    """Count a wrong link code. The caller must hold the organization's lock in a write transaction."""
    row = await session.get(LoginFailures, subject)
    if row is None:
        row = LoginFailures(subject=subject, failures=1, last_failed_at=now(session))
    else:
        row.failures = min(CODE_BACKOFF.max_failures, _recent_failures(session, row) + 1)
        row.last_failed_at = now(session)
    session.add(row)


def _recent_failures(session: AsyncSession, row: LoginFailures) -> int:
    return max(0, row.failures - max(0, (now(session) - row.last_failed_at) // FORGIVE_AFTER))


async def find_link_of_slack_user(
    session: AsyncSession, organization_id: str, secrets_of_app: Collection[str], slack_user: SlackUser
) -> SlackLink | None:
    """Return the link between a Slack account and a user; None if the account is not linked.

    `secrets_of_app` identifies the Slack app that sent the request: it contains the ids of all stored signing secrets
    of this app. The link must belong to one of them.
    """
    query = select(SlackLink).where(
        SlackLink.organization_id == organization_id,
        col(SlackLink.secret_id).in_(secrets_of_app),
        SlackLink.team_id == slack_user.team_id,
        SlackLink.slack_user_id == slack_user.user_id,
    )
    return (await session.exec(query)).first()


async def find_link_of_member(
    session: AsyncSession, user: User, secrets_of_app: Collection[str]
) -> SlackLink | None:
    """Return the link between a user and a Slack account in one Slack app; None if the user is not linked there.

    `secrets_of_app` contains the ids of all signing secrets of the Slack app.
    """
    query = select(SlackLink).where(
        SlackLink.organization_id == user.organization_id,
        SlackLink.user_id == user.id,
        col(SlackLink.secret_id).in_(secrets_of_app),
    )
    return (await session.exec(query)).first()


async def list_links(session: AsyncSession, caller: Caller) -> Sequence[SlackLink]:
    """Return the caller's links to Slack accounts, newest first. Administrators receive the links of all users."""
    query = select(SlackLink).where(SlackLink.organization_id == caller.organization_id)
    if not caller.is_admin:
        query = query.where(SlackLink.user_id == caller.user_id)
    query = query.order_by(col(SlackLink.created_at).desc(), col(SlackLink.id).desc())
    return (await session.exec(query)).all()
