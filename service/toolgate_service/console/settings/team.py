"""The team: who is in it as what, who is invited, and who leaves."""

from collections.abc import Sequence

from pydantic import ValidationError
from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.console.forms import Form
from toolgate_service.console.once import refuse_repeated
from toolgate_service.console.paging import offset_of
from toolgate_service.console.problems import status_of, words_of
from toolgate_service.console.rendering import show
from toolgate_service.console.visits import Visit, by_admins, deed, page
from toolgate_service.errors import ApiError
from toolgate_service.team import invitations, inviting, service
from toolgate_service.team.schemas import (
    InvitationView,
    MemberView,
    NewInvitation,
    NewInvitationView,
    RoleChange,
)

TEAM = "/console/settings/team"
ON_A_PAGE = 50


async def team(visit: Visit) -> Response:
    """Show the people; to admins also who is invited."""
    return await _page(visit)


async def invite(visit: Visit, form: Form) -> Response:
    """Invite somebody; where no mail takes the link, it is shown this once."""

    async def refuse_repetition(session: AsyncSession) -> None:
        refuse_repeated(form, _newest(await _waiting(session, visit)))

    try:
        new = NewInvitation.model_validate({"email": form["email"], "role": form["role"]})
        base_url = str(visit.request.base_url)
        made = await inviting.invite(visit.gateway, visit.caller, new, base_url, first=refuse_repetition)
    except (ApiError, ValidationError) as error:
        return await _page(visit, status_of(error), said=words_of(error), typed=form)
    return await _page(visit, made=made)


async def revoke(visit: Visit, _form: Form) -> Response:
    """Take an invitation back; its link works no more."""
    async with visit.gateway.database.writing(visit.caller.organization_id) as session:
        await invitations.revoke(session, visit.caller, visit.request.path_params["invitation_id"])
    return RedirectResponse(visit.url(TEAM), 303)


async def change_role(visit: Visit, form: Form) -> Response:
    """Give somebody another role; they sign in again."""
    try:
        change = RoleChange.model_validate({"role": form["role"]})
        async with visit.gateway.database.writing(visit.caller.organization_id) as session:
            await service.change_role(
                session, visit.caller, visit.request.path_params["user_id"], change.role
            )
    except (ApiError, ValidationError) as error:
        return await _page(visit, status_of(error), said=words_of(error))
    return RedirectResponse(visit.url(TEAM), 303)


async def remove(visit: Visit, _form: Form) -> Response:
    """Remove somebody; every session of theirs ends at once."""
    try:
        async with visit.gateway.database.writing(visit.caller.organization_id) as session:
            await service.remove(session, visit.caller, visit.request.path_params["user_id"])
    except ApiError as error:
        return await _page(visit, status_of(error), said=words_of(error))
    return RedirectResponse(visit.url(TEAM), 303)


async def _waiting(session: AsyncSession, visit: Visit) -> Sequence[InvitationView]:
    found = await invitations.list_open(session, visit.caller.organization_id)
    return [InvitationView.model_validate(one, from_attributes=True) for one in found]


async def _page(
    visit: Visit,
    status: int = 200,
    *,
    said: str | None = None,
    typed: Form | None = None,
    made: NewInvitationView | None = None,
) -> Response:
    offset = offset_of(visit)
    async with visit.gateway.database.reading() as session:
        found = await service.list_users(
            session, visit.caller.organization_id, offset=offset, at_most=ON_A_PAGE + 1
        )
        waiting = await _waiting(session, visit) if visit.caller.is_admin else ()
    return await show(
        visit,
        "settings/team.html",
        status,
        people=[MemberView.model_validate(one, from_attributes=True) for one in found[:ON_A_PAGE]],
        waiting=waiting,
        newest=_newest(waiting),
        made=made,
        said=said,
        typed=typed or Form([]),
        offset=offset,
        next_offset=offset + ON_A_PAGE if len(found) > ON_A_PAGE else None,
    )


def _newest(waiting: Sequence[InvitationView]) -> str:
    return waiting[0].id if waiting else ""


ROUTES: Sequence[Route] = (
    Route(TEAM, page(team), methods=["GET"]),
    Route(f"{TEAM}/invitations", deed(invite, by=by_admins), methods=["POST"]),
    Route(f"{TEAM}/invitations/{{invitation_id}}/revoke", deed(revoke, by=by_admins), methods=["POST"]),
    Route(f"{TEAM}/{{user_id}}/role", deed(change_role, by=by_admins), methods=["POST"]),
    Route(f"{TEAM}/{{user_id}}/remove", deed(remove, by=by_admins), methods=["POST"]),
)
