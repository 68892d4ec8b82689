"""Inviting from end to end, for the API and for the console: one transaction, then the mail."""

from toolgate_service.accounts import single_use
from toolgate_service.accounts.caller import Caller, First, nothing_first
from toolgate_service.gateway import Gateway
from toolgate_service.mail import letters
from toolgate_service.storage.database import ACCOUNTS
from toolgate_service.team import invitations
from toolgate_service.team.joining import refuse_when_closed
from toolgate_service.team.schemas import InvitationView, NewInvitation, NewInvitationView


async def invite(
    gateway: Gateway, caller: Caller, new: NewInvitation, base_url: str, *, first: First = nothing_first
) -> NewInvitationView:
    """Invite somebody by e-mail; where no mail takes the link, it is returned to be passed on.

    Args:
        gateway: the gateway.
        caller: the admin who invites.
        new: whom, as what.
        base_url: how links begin where the operator does not say. An admin asked with a session of the own: nobody
            else chose the host of that request.
        first: may refuse it.

    Raises:
        ApiError: 403, this gateway takes no new users, or the plan no more members; 400, the e-mail is registered; 401,
            the caller's token has stopped working; 429, too many today; and as for `first`.
    """
    refuse_when_closed(gateway)
    async with gateway.database.writing(ACCOUNTS, caller.organization_id) as session:
        await first(session)
        invited = await invitations.invite(session, gateway.plans, caller, new)
    shown = InvitationView.model_validate(invited.invitation, from_attributes=True)
    link = single_use.link(gateway.settings.public_url or base_url, single_use.INVITATION_PAGE, invited.token)
    letter = letters.invitation(new.email, invited.organization.name, new.role, link)
    mailed = gateway.post is not None and gateway.post.send(letter)
    return NewInvitationView(**shown.model_dump(), link=None if mailed else link)
