"""Whoever is signed in: who they are, and another password."""

from collections.abc import Sequence

from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.accounts import entering
from toolgate_service.accounts.caller import own_row, peer
from toolgate_service.accounts.schemas import CurrentUser, PasswordChange
from toolgate_service.console import cookies
from toolgate_service.console.forms import Form
from toolgate_service.console.problems import status_of, words_of
from toolgate_service.console.rendering import show
from toolgate_service.console.visits import Visit, by_anybody, deed, page
from toolgate_service.errors import ApiError

ACCOUNT = "/console/settings/account"
PASSWORD = f"{ACCOUNT}/password"
UNLIKE = "The new password was not typed the same way twice; nothing was changed"


async def account(visit: Visit) -> Response:
    """Show it."""
    return await _page(visit)


async def change_password(visit: Visit, form: Form) -> Response:
    """Change the password: every other session ends, and this browser goes on in a new one."""
    if form["new_password"] != form["repeated"]:
        return await _page(visit, 400, said=UNLIKE)
    try:
        change = PasswordChange(current_password=form["current_password"], new_password=form["new_password"])
        made = await entering.change_password(visit.gateway, visit.caller, change, peer(visit.request))
    except (ApiError, ValidationError) as error:
        return await _page(visit, status_of(error), said=words_of(error))
    answer = RedirectResponse(visit.url(ACCOUNT, changed=1), 303)
    cookies.give(answer, visit.request, visit.gateway, made.access_token)
    return answer


async def _page(visit: Visit, status: int = 200, *, said: str | None = None) -> Response:
    async with visit.gateway.database.reading() as session:
        user = await own_row(session, visit.caller)
    return await show(
        visit,
        "settings/account.html",
        status,
        user=CurrentUser.model_validate(user, from_attributes=True),
        changed="changed" in visit.request.query_params and said is None,
        said=said,
    )


ROUTES: Sequence[Route] = (
    Route(ACCOUNT, page(account), methods=["GET"]),
    Route(PASSWORD, deed(change_password, by=by_anybody), methods=["POST"]),
)
