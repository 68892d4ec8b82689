"""Settings page of the team: members and invitations."""

from collections.abc import Sequence

from pydantic import ValidationError
from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.console.dependencies import PageContext, form_handler, page_handler, require_admin
from toolgate_service.console.forms import Form, error_message, error_status
from toolgate_service.console.security import check_not_repeated
from toolgate_service.console.templates import read_offset, render_page
from toolgate_service.core.errors import ApiError
from toolgate_service.team import invitations, service
from toolgate_service.team.schemas import (
    InvitationView,
    MemberView,
    NewInvitation,
    NewInvitationView,
    RoleChange,
)

TEAM = "/console/settings/team"
PAGE_SIZE = 50


async def show_team(page: PageContext) -> Response:
    """Show the team's members. Administrators also see the open invitations."""
    return await _render_team(page)


async def invite_user(page: PageContext, form: Form) -> Response:
    """Invite a user. If the gateway cannot send e-mail, the page shows the invitation link, only this once."""

    async def refuse_repetition(session: AsyncSession) -> None:
        check_not_repeated(form, _newest(await _list_invitations(session, page)))

    try:
        new = NewInvitation.model_validate({"email": form["email"], "role": form["role"]})
        base_url = str(page.request.base_url)
        made = await service.invite(page.gateway, page.caller, new, base_url, first=refuse_repetition)
    except (ApiError, ValidationError) as error:
        return await _render_team(page, error_status(error), message=error_message(error), typed=form)
    return await _render_team(page, made=made)


async def revoke_invitation(page: PageContext, _form: Form) -> Response:
    """Revoke an invitation. The invitation's link stops working immediately."""
    invitation_id = page.request.path_params["invitation_id"]
    await service.revoke_invitation(page.gateway, page.caller, invitation_id)
    return RedirectResponse(page.url(TEAM), 303)


async def change_role(page: PageContext, form: Form) -> Response:
    """Change a member's role and end the member's sessions."""
    try:
        change = RoleChange.model_validate({"role": form["role"]})
        user_id = page.request.path_params["user_id"]
        await service.change_role(page.gateway, page.caller, user_id, change.role)
    except (ApiError, ValidationError) as error:
        return await _render_team(page, error_status(error), message=error_message(error))
    return RedirectResponse(page.url(TEAM), 303)


async def remove_member(page: PageContext, _form: Form) -> Response:
    """Remove a member from the organization and end the member's sessions."""
    try:
        await service.remove(page.gateway, page.caller, page.request.path_params["user_id"])
    except ApiError as error:
        return await _render_team(page, error_status(error), message=error_message(error))
    return RedirectResponse(page.url(TEAM), 303)


async def _list_invitations(session: AsyncSession, page: PageContext) -> Sequence[InvitationView]:
    found = await invitations.list_open(session, page.caller.organization_id)
    return [InvitationView.model_validate(one, from_attributes=True) for one in found]


async def _render_team(
    page: PageContext,
    status: int = 200,
    *,
    message: str | None = None,
    typed: Form | None = None,
    made: NewInvitationView | None = None,
) -> Response:
    offset = read_offset(page)
    async with page.gateway.database.reading() as session:
        found = await service.list_users(
            session, page.caller.organization_id, offset=offset, at_most=PAGE_SIZE + 1
        )
        waiting = await _list_invitations(session, page) if page.caller.is_admin else ()
    return await render_page(
        page,
        "settings/team.html",
        status,
        people=[MemberView.model_validate(one, from_attributes=True) for one in found[:PAGE_SIZE]],
        waiting=waiting,
        newest=_newest(waiting),
        made=made,
        message=message,
        typed=typed or Form([]),
        offset=offset,
        next_offset=offset + PAGE_SIZE if len(found) > PAGE_SIZE else None,
    )


def _newest(waiting: Sequence[InvitationView]) -> str:
    return waiting[0].id if waiting else ""


ROUTES: Sequence[Route] = (
    Route(TEAM, page_handler(show_team), methods=["GET"]),
    Route(f"{TEAM}/invitations", form_handler(invite_user, authorize=require_admin), methods=["POST"]),
    Route(
        f"{TEAM}/invitations/{{invitation_id}}/revoke",
        form_handler(revoke_invitation, authorize=require_admin),
        methods=["POST"],
    ),
    Route(f"{TEAM}/{{user_id}}/role", form_handler(change_role, authorize=require_admin), methods=["POST"]),
    Route(
        f"{TEAM}/{{user_id}}/remove", form_handler(remove_member, authorize=require_admin), methods=["POST"]
    ),
)
