"""HTTP routes for registration, login and passwords, below the path ``/auth``."""

from fastapi import APIRouter, Request

from toolgate_service.accounts import service
from toolgate_service.accounts.schemas import (
    CurrentUser,
    Login,
    Message,
    PasswordChange,
    Registration,
    ResetConfirmation,
    ResetRequest,
    TokenView,
)
from toolgate_service.http.dependencies import AnyCaller, GatewayDep, peer
from toolgate_service.http.openapi import BAD_LOGIN, FORBIDDEN, REFUSED, TOO_MANY, problems
from toolgate_service.http.responses import NO_STORE, NoContent, Reply
from toolgate_service.http.strict_route import StrictRoute
from toolgate_service.organizations.service import register as register_organization

router = APIRouter(prefix="/auth", tags=["accounts"], route_class=StrictRoute)


@router.post(
    "/register",
    response_model=TokenView,
    responses=problems(REFUSED, FORBIDDEN, TOO_MANY),
    summary="Create an organization and its first admin",
)
async def register(registration: Registration, request: Request, gateway: GatewayDep) -> Reply:
    """Create an organization and its first admin, and return a session token for the admin.

    The response is 400 if the e-mail address is already registered, and 403 if the operator has restricted
    registration.
    """
    return Reply(await register_organization(gateway, registration, peer(request)), headers=NO_STORE)


@router.post("/login", response_model=TokenView, responses=problems(BAD_LOGIN, TOO_MANY), summary="Log in")
async def login(credentials: Login, request: Request, gateway: GatewayDep) -> Reply:
    """Exchange an e-mail address and a password for a session token that is valid for seven days.

    The response is 401 for a wrong password and for an unknown address, and 429 after too many failed logins.
    """
    return Reply(await service.log_in(gateway, credentials, peer(request)), headers=NO_STORE)


@router.post("/logout", status_code=204, summary="Log out")
async def logout(caller: AnyCaller, gateway: GatewayDep) -> NoContent:
    """End the session of the token with which the request is authenticated; other sessions of the user continue."""
    await service.log_out(gateway, caller)
    return NoContent()


@router.post("/password", response_model=TokenView, summary="Change the password of the current user")
async def change_password(
    change: PasswordChange, caller: AnyCaller, request: Request, gateway: GatewayDep
) -> Reply:
    """Change the caller's password. All session tokens of the user become invalid, and a new one is returned.

    If `current_password` is wrong, the response is a 400 that names the field. It is not a 401, because the token is
    valid. The attempt counts as a failed login, so that a stolen token cannot be used to guess the password.
    """
    token = await service.change_password(gateway, caller, change, peer(request))
    return Reply(token, headers=NO_STORE)


@router.get("/me", response_model=CurrentUser, operation_id="getCurrentUser", summary="Get the current user")
async def me(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return the user whom the session token authenticates."""
    return Reply(await service.get_current_user(gateway, caller))


reset_router = APIRouter(prefix="/auth/password-reset", tags=["accounts"], route_class=StrictRoute)


@reset_router.post(
    "",
    response_model=Message,
    status_code=202,
    responses=problems(TOO_MANY),
    operation_id="askPasswordReset",
    summary="Request a password reset",
)
async def request_password_reset(request: ResetRequest, gateway: GatewayDep) -> Reply:
    """Send an e-mail with a link that allows the user to set a new password.

    The response and its timing do not reveal whether the e-mail address is registered: the gateway looks up the user
    after it has sent the response.
    """
    return Reply({"detail": service.request_password_reset(gateway, request.email)}, 202)


@reset_router.post(
    "/confirm",
    status_code=204,
    responses=problems(REFUSED, TOO_MANY),
    operation_id="confirmPasswordReset",
    summary="Set a new password with a reset link",
)
async def confirm(confirmation: ResetConfirmation, request: Request, gateway: GatewayDep) -> NoContent:
    """Set a new password with the one-time token of a reset link. All sessions of the user end.

    The response is 400 if the token was used or replaced by a newer one, or is older than one hour.
    """
    await service.reset_password(gateway, confirmation, peer(request))
    return NoContent()
