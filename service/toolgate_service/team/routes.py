"""HTTP routes of the team: list and change users, and invite new ones."""

from fastapi import APIRouter, Request

from toolgate_service.accounts.schemas import TokenView
from toolgate_service.http.dependencies import AdminCaller, AnyCaller, GatewayDep, peer
from toolgate_service.http.openapi import (
    CONFLICT,
    FORBIDDEN,
    NOT_FOUND,
    PLAN_LIMIT,
    REFUSED,
    TOO_MANY,
    problems,
)
from toolgate_service.http.responses import NO_STORE, NoContent, Reply
from toolgate_service.http.strict_route import StrictRoute
from toolgate_service.team import service
from toolgate_service.team.schemas import (
    Acceptance,
    MemberView,
    NewInvitation,
    NewInvitationView,
    RoleChange,
    TeamView,
)
from toolgate_service.team.service import join

router = APIRouter(tags=["team"], route_class=StrictRoute)


@router.get("/api/team", response_model=TeamView)
async def get_team(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return the users of the organization. Admins also receive the open invitations."""
    return Reply(await service.get_team(gateway, caller))


@router.post(
    "/api/team/invitations",
    response_model=NewInvitationView,
    status_code=201,
    responses=problems(REFUSED, PLAN_LIMIT),
)
async def invite(new: NewInvitation, caller: AdminCaller, request: Request, gateway: GatewayDep) -> Reply:
    """Invite a user by e-mail. The response contains the invitation link if the gateway could not send the e-mail."""
    view = await service.invite(gateway, caller, new, str(request.base_url))
    return Reply(view, 201, NO_STORE)


@router.delete("/api/team/invitations/{invitation_id}", status_code=204, responses=problems(NOT_FOUND))
async def revoke_invitation(invitation_id: str, caller: AdminCaller, gateway: GatewayDep) -> NoContent:
    """Revoke an invitation, so that its link stops working."""
    await service.revoke_invitation(gateway, caller, invitation_id)
    return NoContent()


@router.post(
    "/auth/accept-invitation",
    response_model=TokenView,
    responses=problems(REFUSED, FORBIDDEN, PLAN_LIMIT, TOO_MANY),
)
async def accept_invitation(acceptance: Acceptance, request: Request, gateway: GatewayDep) -> Reply:
    """Create the user of an invitation, and return a session token for the user."""
    return Reply(await join(gateway, acceptance, peer(request)), headers=NO_STORE)


@router.put("/api/team/{user_id}", response_model=MemberView, responses=problems(NOT_FOUND, CONFLICT))
async def change_role(user_id: str, change: RoleChange, caller: AdminCaller, gateway: GatewayDep) -> Reply:
    """Change the role of a user. All session tokens of the user become invalid, so the user must log in again."""
    return Reply(await service.change_role(gateway, caller, user_id, change.role))


@router.delete("/api/team/{user_id}", status_code=204, responses=problems(NOT_FOUND, CONFLICT))
async def remove_user(user_id: str, caller: AdminCaller, gateway: GatewayDep) -> NoContent:
    """Remove a user from the organization. All sessions of the user end immediately."""
    await service.remove(gateway, caller, user_id)
    return NoContent()
