"""HTTP for accounts: /auth/* (spec §4, decisions §3)."""

from fastapi import APIRouter, Request

from toolgate_service.accounts import entering, service
from toolgate_service.accounts.caller import AnyCaller, own_row, peer
from toolgate_service.accounts.schemas import CurrentUser, Login, PasswordChange, Registration, TokenView
from toolgate_service.gateway import GatewayDep
from toolgate_service.openapi.problems import BAD_LOGIN, FORBIDDEN, REFUSED, TOO_MANY, problems
from toolgate_service.web.bodies import StrictRoute
from toolgate_service.web.replies import NO_STORE, NoContent, Reply

router = APIRouter(prefix="/auth", tags=["accounts"], route_class=StrictRoute)


@router.post("/register", response_model=TokenView, responses=problems(REFUSED, FORBIDDEN, TOO_MANY))
async def register(registration: Registration, request: Request, gateway: GatewayDep) -> Reply:
    """Create an organization and its first user, who administers it."""
    return Reply(await entering.register(gateway, registration, peer(request)), headers=NO_STORE)


@router.post("/login", response_model=TokenView, responses=problems(BAD_LOGIN, TOO_MANY))
async def login(credentials: Login, request: Request, gateway: GatewayDep) -> Reply:
    """Exchange e-mail and password for a token that works for seven days."""
    return Reply(await entering.log_in(gateway, credentials, peer(request)), headers=NO_STORE)


@router.post("/logout", status_code=204)
async def logout(caller: AnyCaller, gateway: GatewayDep) -> NoContent:
    """End the session of this token; other logins of the user go on."""
    async with gateway.database.writing(caller.organization_id) as session:
        await service.end_session(session, caller)
    return NoContent()


@router.post("/password", response_model=TokenView)
async def change_password(
    change: PasswordChange, caller: AnyCaller, request: Request, gateway: GatewayDep
) -> Reply:
    """Change one's own password; every other token of the user stops working, and a new one is answered.

    A wrong `current_password` is a 400 that names the field: the token is good, so it is no 401. It counts as a failed
    login: whoever found a token open does not guess the password with it.
    """
    token = await entering.change_password(gateway, caller, change, peer(request))
    return Reply(token, headers=NO_STORE)


@router.get("/me", response_model=CurrentUser, operation_id="getCurrentUser")
async def me(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return the authenticated user."""
    async with gateway.database.reading() as session:
        user = await own_row(session, caller)
    return Reply(CurrentUser.model_validate(user, from_attributes=True))
