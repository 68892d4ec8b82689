"""Settings page of the user's own account and password."""

from collections.abc import Sequence

from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.accounts import service
from toolgate_service.accounts.schemas import CurrentUser, PasswordChange
from toolgate_service.accounts.sessions import load_current_user
from toolgate_service.console import security
from toolgate_service.console.dependencies import PageContext, allow_user, form_handler, page_handler
from toolgate_service.console.forms import Form, error_message, error_status
from toolgate_service.console.templates import render_page
from toolgate_service.core.errors import ApiError
from toolgate_service.http.dependencies import peer

ACCOUNT = "/console/settings/account"
PASSWORD = f"{ACCOUNT}/password"
PASSWORDS_DIFFER = "The new password was not typed the same way twice; nothing was changed"


async def show_account(page: PageContext) -> Response:
    """Show the user's account."""
    return await _render_account(page)


async def change_password(page: PageContext, form: Form) -> Response:
    """Change the user's password. All sessions of the user end, and this browser receives a new session."""
    if form["new_password"] != form["repeated"]:
        return await _render_account(page, 400, message=PASSWORDS_DIFFER)
    try:
        change = PasswordChange(current_password=form["current_password"], new_password=form["new_password"])
        made = await service.change_password(page.gateway, page.caller, change, peer(page.request))
    except (ApiError, ValidationError) as error:
        return await _render_account(page, error_status(error), message=error_message(error))
    response = RedirectResponse(page.url(ACCOUNT, changed=1), 303)
    security.set_session_cookie(response, page.request, page.gateway, made.access_token)
    return response


async def _render_account(page: PageContext, status: int = 200, *, message: str | None = None) -> Response:
    async with page.gateway.database.reading() as session:
        user = await load_current_user(session, page.caller)
    return await render_page(
        page,
        "settings/account.html",
        status,
        user=CurrentUser.model_validate(user, from_attributes=True),
        changed="changed" in page.request.query_params and message is None,
        message=message,
    )


ROUTES: Sequence[Route] = (
    Route(ACCOUNT, page_handler(show_account), methods=["GET"]),
    Route(PASSWORD, form_handler(change_password, authorize=allow_user), methods=["POST"]),
)
