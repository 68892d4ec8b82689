"""HTTP for the team (decisions §3)."""

from fastapi import APIRouter, Request

from toolgate_service.accounts.caller import AdminCaller, AnyCaller, peer
from toolgate_service.accounts.schemas import TokenView
from toolgate_service.gateway import GatewayDep
from toolgate_service.openapi.problems import (
    CONFLICT,
    FORBIDDEN,
    NOT_FOUND,
    PLAN_LIMIT,
    REFUSED,
    TOO_MANY,
    problems,
)
from toolgate_service.team import invitations, inviting, service
from toolgate_service.team.joining import join
from toolgate_service.team.schemas import (
    Acceptance,
    InvitationView,
    MemberView,
    NewInvitation,
    NewInvitationView,
    RoleChange,
    TeamView,
)
from toolgate_service.web.bodies import StrictRoute
from toolgate_service.web.replies import NO_STORE, NoContent, Reply

router = APIRouter(tags=["team"], route_class=StrictRoute)


@router.get("/api/team", response_model=TeamView)
async def get_team(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return the organization's users; admins also see who is invited."""
    async with gateway.database.reading() as session:
        users = await service.list_users(session, caller.organization_id)
        waiting = await invitations.list_open(session, caller.organization_id) if caller.is_admin else None
    view = TeamView(
        users=[MemberView.model_validate(user, from_attributes=True) for user in users],
        invitations=None
        if waiting is None
        else [InvitationView.model_validate(one, from_attributes=True) for one in waiting],
    )
    return Reply(view)


@router.post(
    "/api/team/invitations",
    response_model=NewInvitationView,
    status_code=201,
    responses=problems(REFUSED, PLAN_LIMIT),
)
async def invite(new: NewInvitation, caller: AdminCaller, request: Request, gateway: GatewayDep) -> Reply:
    """Invite somebody by e-mail; where no mail takes the link, the answer has it to pass on."""
    view = await inviting.invite(gateway, caller, new, str(request.base_url))
    return Reply(view, 201, NO_STORE)


@router.delete("/api/team/invitations/{invitation_id}", status_code=204, responses=problems(NOT_FOUND))
async def revoke_invitation(invitation_id: str, caller: AdminCaller, gateway: GatewayDep) -> NoContent:
    """Take an invitation back; its link works no more."""
    async with gateway.database.writing(caller.organization_id) as session:
        await invitations.revoke(session, caller, invitation_id)
    return NoContent()


@router.post(
    "/auth/accept-invitation",
    response_model=TokenView,
    responses=problems(REFUSED, FORBIDDEN, PLAN_LIMIT, TOO_MANY),
)
async def accept_invitation(acceptance: Acceptance, request: Request, gateway: GatewayDep) -> Reply:
    """Become a user of the organization that invited, and log in."""
    return Reply(await join(gateway, acceptance, peer(request)), headers=NO_STORE)


@router.put("/api/team/{user_id}", response_model=MemberView, responses=problems(NOT_FOUND, CONFLICT))
async def change_role(user_id: str, change: RoleChange, caller: AdminCaller, gateway: GatewayDep) -> Reply:
    """Give a user another role; they log in again."""
    async with gateway.database.writing(caller.organization_id) as session:
        user = await service.change_role(session, caller, user_id, change.role)
    return Reply(MemberView.model_validate(user, from_attributes=True))


@router.delete("/api/team/{user_id}", status_code=204, responses=problems(NOT_FOUND, CONFLICT))
async def remove_user(user_id: str, caller: AdminCaller, gateway: GatewayDep) -> NoContent:
    """Remove a user; every session of theirs ends at once."""
    async with gateway.database.writing(caller.organization_id) as session:
        await service.remove(session, caller, user_id)
    return NoContent()
