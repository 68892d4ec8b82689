"""HTTP routes of the team: list and change users, and invite new ones."""

from typing import Annotated

from fastapi import APIRouter, Path, Request

from toolgate_service.accounts.schemas import TokenView
from toolgate_service.http.dependencies import AdminCaller, AnyCaller, GatewayDep, UserIdPath, peer
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


@router.get("/api/team", response_model=TeamView, summary="List users and invitations")
async def get_team(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return the users of the organization. Admins also receive the open invitations."""
    return Reply(await service.get_team(gateway, caller))


@router.post(
    "/api/team/invitations",
    response_model=NewInvitationView,
    status_code=201,
    responses=problems(REFUSED, PLAN_LIMIT),
    summary="Invite a user",
)
async def invite(new: NewInvitation, caller: AdminCaller, request: Request, gateway: GatewayDep) -> Reply:
    """Invite a user by e-mail. The response contains the invitation link if the gateway could not send the e-mail.

    The link is valid for 72 hours. Open invitations count towards the maximum number of team members in the plan (403
    if it is exceeded). An organization can send at most 100 invitations per day (429). The response is 400 if the
    e-mail address is already registered.
    """
    view = await service.invite(gateway, caller, new, str(request.base_url))
    return Reply(view, 201, NO_STORE)


@router.delete(
    "/api/team/invitations/{invitation_id}",
    status_code=204,
    responses=problems(NOT_FOUND),
    summary="Revoke an invitation",
)
async def revoke_invitation(
    invitation_id: Annotated[str, Path(description="Id of the invitation, a UUID.")],
    caller: AdminCaller,
    gateway: GatewayDep,
) -> NoContent:
    """Revoke an invitation, so that its link stops working."""
    await service.revoke_invitation(gateway, caller, invitation_id)
    return NoContent()


@router.post(
    "/auth/accept-invitation",
    response_model=TokenView,
    responses=problems(REFUSED, FORBIDDEN, PLAN_LIMIT, TOO_MANY),
    summary="Accept an invitation",
)
async def accept_invitation(acceptance: Acceptance, request: Request, gateway: GatewayDep) -> Reply:
    """Create the user of an invitation, and return a session token for the user.

    The response is 400 if the invitation was used or revoked or has expired.
    """
    return Reply(await join(gateway, acceptance, peer(request)), headers=NO_STORE)


@router.put(
    "/api/team/{user_id}",
    response_model=MemberView,
    responses=problems(NOT_FOUND, CONFLICT),
    summary="Change the role of a user",
)
async def change_role(
    user_id: UserIdPath, change: RoleChange, caller: AdminCaller, gateway: GatewayDep
) -> Reply:
    """Change the role of a user. All session tokens of the user become invalid, so the user must log in again.

    The response is 409 if the user is the last admin of the organization.
    """
    return Reply(await service.change_role(gateway, caller, user_id, change.role))


@router.delete(
    "/api/team/{user_id}", status_code=204, responses=problems(NOT_FOUND, CONFLICT), summary="Remove a user"
)
async def remove_user(user_id: UserIdPath, caller: AdminCaller, gateway: GatewayDep) -> NoContent:
    """Remove a user from the organization. All sessions of the user end immediately.

    The response is 409 if the user is the last admin of the organization.
    """
    await service.remove(gateway, caller, user_id)
    return NoContent()
