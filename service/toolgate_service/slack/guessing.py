"""Slowing whoever guesses link codes: by the webhook and the Slack user, as failed logins are slowed."""

import hmac
import math

from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.models import LoginFailures
from toolgate_service.accounts.slowing import FORGIVEN, Pace
from toolgate_service.slack.payloads import Who
from toolgate_service.storage.database import now
from toolgate_service.vault import Vault

PACE = Pace(free=5, longest=60)


def subject_of(vault: Vault, webhook_id: str, who: Who) -> str:
    """Return what a Slack user's wrong codes are counted under; it tells nobody who it is."""
    text = f"{webhook_id} {who.team_id} {who.user_id}"
    return f"slack:{hmac.digest(vault.login_key, text.encode(), 'sha256').hex()}"


async def seconds_to_wait(session: AsyncSession, subject: str) -> int:
    """Return how long the next code is not looked at; 0 where it is."""
    row = await session.get(LoginFailures, subject)
    if row is None:
        return 0
    until = row.last_failed_at + PACE.delay(_of_late(session, row))
    return max(0, math.ceil((until - now(session)).total_seconds()))


async def count_wrong(session: AsyncSession, subject: str) -> None:
    """Count a wrong code, in a transaction that holds the organization's turn."""
    row = await session.get(LoginFailures, subject)
    if row is None:
        row = LoginFailures(subject=subject, failures=1, last_failed_at=now(session))
    else:
        row.failures = min(PACE.most, _of_late(session, row) + 1)
        row.last_failed_at = now(session)
    session.add(row)


def _of_late(session: AsyncSession, row: LoginFailures) -> int:
    return max(0, row.failures - max(0, (now(session) - row.last_failed_at) // FORGIVEN))
