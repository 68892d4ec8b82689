"""The codes by which a member says who they are in Slack: 80 bits, stored hashed, once, for ten minutes."""

import secrets
from datetime import datetime, timedelta

from sqlmodel import col, delete, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.caller import Caller
from toolgate_service.accounts.models import User
from toolgate_service.accounts.single_use import token_hash
from toolgate_service.ids import new_id
from toolgate_service.slack.models import SlackLinkCode
from toolgate_service.storage.database import now

LIVES = timedelta(minutes=10)
#: without the letters that read like digits, or like each other
ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
LENGTH = 16
_GROUP = 4
_ALIKE = str.maketrans("OIL", "011")


async def make_code(session: AsyncSession, caller: Caller) -> tuple[str, datetime]:
    """Make a code for the caller, in the place of former ones.

    Returns:
        The code as it is typed, and until when it works.
    """
    moment = now(session)
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
        created_at=moment,
        expires_at=moment + LIVES,
    )
    session.add(row)
    groups = [code[at : at + _GROUP] for at in range(0, LENGTH, _GROUP)]
    return "-".join(groups), row.expires_at


async def find_code(
    session: AsyncSession, organization_id: str, typed: str
) -> tuple[SlackLinkCode, User] | None:
    """Return the code that somebody typed, used or not, and whose it is; None when it does not work, or no longer."""
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
            SlackLinkCode.expires_at > now(session),
            User.version == SlackLinkCode.version,
            col(User.removed_at).is_(None),
        )
    )
    return (await session.exec(query)).first()
