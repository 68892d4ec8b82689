"""The codes by which a member says who they are in Slack: 80 bits, stored hashed, once, for ten minutes."""

import secrets
from collections.abc import Collection
from datetime import datetime, timedelta

from sqlmodel import col, delete, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.caller import Caller
from toolgate_service.accounts.models import User
from toolgate_service.accounts.single_use import token_hash
from toolgate_service.ids import new_id
from toolgate_service.slack.apps import choose_app
from toolgate_service.slack.models import SlackLinkCode
from toolgate_service.storage.database import now
from toolgate_service.vault import Vault

LIVES = timedelta(minutes=10)
#: without the letters that read like digits, or like each other
ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
LENGTH = 16
_GROUP = 4
_ALIKE = str.maketrans("OIL", "011")


async def make_code(
    session: AsyncSession, vault: Vault, caller: Caller, webhook_id: str | None = None
) -> tuple[str, datetime]:
    """Make a code for the caller, in the place of former ones. It works in one Slack app alone.

    Args:
        session: a write transaction in the organization's turn.
        vault: opens the secrets by which apps are told apart.
        caller: whom the code stands for.
        webhook_id: a webhook of the app; may be left out where the organization has one app.

    Raises:
        ApiError: 400 `webhook_id` is required, or not a Slack webhook of the organization; 409 there is no app.

    Returns:
        The code as it is typed, and until when it works.
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
        code_hash=token_hash(code),
        secret_id=app.id,
        created_at=moment,
        expires_at=moment + LIVES,
    )
    session.add(row)
    groups = [code[at : at + _GROUP] for at in range(0, LENGTH, _GROUP)]
    return "-".join(groups), row.expires_at


async def find_code(
    session: AsyncSession, organization_id: str, secrets_of_app: Collection[str], typed: str
) -> tuple[SlackLinkCode, User] | None:
    """Return the link code, used or not, and its member; None if it does not work in this app."""
    plain = typed.strip().upper().replace("-", "").translate(_ALIKE)
    if len(plain) != LENGTH or not set(plain) <= set(ALPHABET):
        return None
    query = (
        select(SlackLinkCode, User)
        .join(User, col(User.id) == SlackLinkCode.user_id)
        .where(
            SlackLinkCode.organization_id == organization_id,
            User.organization_id == organization_id,
            SlackLinkCode.code_hash == token_hash(plain),
            col(SlackLinkCode.secret_id).in_(secrets_of_app),
            SlackLinkCode.expires_at > now(session),
            User.version == SlackLinkCode.version,
            col(User.removed_at).is_(None),
        )
    )
    return (await session.exec(query)).first()
