"""Joining by invitation from end to end, for the API and for the console."""

from toolgate_service.accounts.models import FULL
from toolgate_service.accounts.schemas import TokenView
from toolgate_service.accounts.service import open_session
from toolgate_service.accounts.slowing import Attempt
from toolgate_service.errors import ApiError
from toolgate_service.gateway import Gateway
from toolgate_service.storage.database import ACCOUNTS
from toolgate_service.team import invitations
from toolgate_service.team.schemas import Acceptance

CLOSED = "This gateway takes no new users; ask its operator"


async def join(gateway: Gateway, acceptance: Acceptance, address: str | None) -> TokenView:
    """Make whoever was invited a user, and log them in.

    Raises:
        ApiError: 403, this gateway takes no new users, or the plan no more members; 400, the invitation was used,
            taken back or has expired; 429, too many at once.
    """
    refuse_when_closed(gateway)
    async with gateway.database.reading() as session:
        invitation = await invitations.find_open(session, acceptance.token)
    password_hash = await gateway.passwords.hash(acceptance.password)
    place = Attempt.of(gateway.vault, address, invitation.email).address
    async with gateway.database.writing(ACCOUNTS, invitation.organization_id) as session:
        user = await invitations.accept(session, gateway.plans, acceptance.token, password_hash, address)
        return await open_session(session, gateway.vault, user, FULL, address=place)


def refuse_when_closed(gateway: Gateway) -> None:
    """Let nobody be invited or join where the operator wants no new users.

    Raises:
        ApiError: 403.
    """
    if gateway.settings.registration == "closed":
        raise ApiError(403, CLOSED)
