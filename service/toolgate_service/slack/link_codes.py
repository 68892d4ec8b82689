"""Link codes, with which a member links a Slack user to their account, and the rate limit for wrong codes.

A code has 80 random bits, is stored as a hash, and works once within ten minutes.
"""

import hmac
import math
import secrets
from collections.abc import Collection
from datetime import datetime, timedelta

from sqlmodel import col, delete, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.login_throttle import FORGIVE_AFTER, Backoff
from toolgate_service.accounts.models import LoginFailures, User
from toolgate_service.accounts.one_time_tokens import hash_token
from toolgate_service.accounts.sessions import Caller
from toolgate_service.accounts.slack_links import SlackLinkCode
from toolgate_service.core.crypto import Vault
from toolgate_service.core.ids import new_id
from toolgate_service.db.database import now
from toolgate_service.slack.apps import choose_app
from toolgate_service.slack.payloads import Who

LIFETIME = timedelta(minutes=10)
#: characters of link codes: Crockford's base 32, which excludes letters that look like digits
ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
LENGTH = 16
_GROUP = 4
_LOOKALIKES = str.maketrans("OIL", "011")


async def create_code(
    session: AsyncSession, vault: Vault, caller: Caller, webhook_id: str | None = None
) -> tuple[str, datetime]:
    """Create a link code for the caller, and return it with its expiry time. Earlier codes of the caller stop working.

    Args:
        session: Session with a write transaction.
        vault: Decrypts signing secrets.
        caller: The member.
        webhook_id: Id of a webhook of the Slack app in which the code works. Required if the organization has several
            Slack apps.

    Raises:
        ApiError: 400, `webhook_id` is required but missing, or is not a Slack webhook of the organization; 409, no
            Slack app is connected.
    """
    moment = now(session)
    app = await choose_app(session, vault, caller.organization_id, webhook_id)
    await session.exec(
        delete(SlackLinkCode).where(
            col(SlackLinkCode.organization_id) == caller.organization_id,
            (col(SlackLinkCode.user_id) == caller.user_id) | (col(SlackLinkCode.expires_at) <= moment),
        )
    )
    code = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))
    row = SlackLinkCode(
        id=new_id(),
        organization_id=caller.organization_id,
        user_id=caller.user_id,
        version=caller.version,
        code_hash=hash_token(code),
        secret_id=app.id,
        created_at=moment,
        expires_at=moment + LIFETIME,
    )
    session.add(row)
    groups = [code[at : at + _GROUP] for at in range(0, LENGTH, _GROUP)]
    return "-".join(groups), row.expires_at


async def find_code(
    session: AsyncSession, organization_id: str, secrets_of_app: Collection[str], typed: str
) -> tuple[SlackLinkCode, User] | None:
    """Return the row of a typed link code, and its member.

    The code may have been used before. None if the code is wrong, has expired or belongs to another Slack app. None too
    if the member was removed, or if the `version` of the member's account changed after the code was created.
    """
    plain = typed.strip().upper().replace("-", "").translate(_LOOKALIKES)
    if len(plain) != LENGTH or not set(plain) <= set(ALPHABET):
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


PACE = Backoff(free=5, max_delay=60)


def subject_of(vault: Vault, webhook_id: str, who: Who) -> str:
    """Return the key under which wrong codes of a Slack user are counted: a keyed hash of the Slack ids."""
    text = f"{webhook_id} {who.team_id} {who.user_id}"
    return f"slack:{hmac.digest(vault.login_key, text.encode(), 'sha256').hex()}"


async def seconds_to_wait(session: AsyncSession, subject: str) -> int:
    """Return the number of seconds until the next code is accepted; 0 if it is accepted now."""
    row = await session.get(LoginFailures, subject)
    if row is None:
        return 0
    until = row.last_failed_at + PACE.delay(_recent_failures(session, row))
    return max(0, math.ceil((until - now(session)).total_seconds()))


async def count_wrong(session: AsyncSession, subject: str) -> None:
    """Count a wrong code. Must run in a write transaction under the organization's lock."""
    row = await session.get(LoginFailures, subject)
    if row is None:
        row = LoginFailures(subject=subject, failures=1, last_failed_at=now(session))
    else:
        row.failures = min(PACE.max_failures, _recent_failures(session, row) + 1)
        row.last_failed_at = now(session)
    session.add(row)


def _recent_failures(session: AsyncSession, row: LoginFailures) -> int:
    return max(0, row.failures - max(0, (now(session) - row.last_failed_at) // FORGIVE_AFTER))
