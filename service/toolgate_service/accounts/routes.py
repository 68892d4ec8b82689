"""HTTP for accounts: /auth/* (spec §4, decisions §3)."""

from fastapi import APIRouter
from sqlmodel import select

from toolgate_service.accounts import service
from toolgate_service.accounts.caller import AnyCaller
from toolgate_service.accounts.models import User
from toolgate_service.accounts.schemas import CurrentUser, Login, Registration, TokenView
from toolgate_service.errors import ApiError
from toolgate_service.gateway import GatewayDep
from toolgate_service.storage.database import ACCOUNTS
from toolgate_service.web.bodies import StrictRoute
from toolgate_service.web.replies import NO_STORE, Reply

router = APIRouter(prefix="/auth", tags=["accounts"], route_class=StrictRoute)


@router.post("/register", response_model=TokenView)
async def register(registration: Registration, gateway: GatewayDep) -> Reply:
    """Create an organization and its first user, who administers it."""
    # Hashed before the transaction opens: a tenth of a second in it would hold up every writer.
    password_hash = await gateway.passwords.hash(registration.password)
    async with gateway.database.writing(ACCOUNTS) as session:
        token = await service.register(
            session, gateway.vault, registration, password_hash, gateway.settings.default_plan
        )
    return Reply(token, headers=NO_STORE)


@router.post("/login", response_model=TokenView)
async def login(credentials: Login, gateway: GatewayDep) -> Reply:
    """Exchange e-mail and password for a token that works for seven days."""
    async with gateway.database.reading() as session:
        user = await service.find_user(session, credentials.email)
    fits = await gateway.passwords.verify(credentials.password, user.password_hash if user else None)
    if user is None or not fits:
        raise ApiError(401, "Invalid e-mail or password")
    async with gateway.database.writing(user.organization_id) as session:
        token = await service.open_session(session, gateway.vault, user, credentials.scope)
    return Reply(token, headers=NO_STORE)


@router.get("/me", response_model=CurrentUser)
async def me(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return the authenticated user."""
    async with gateway.database.reading() as session:
        user = (await session.exec(select(User).where(User.id == caller.user_id))).one()
    return Reply(CurrentUser.model_validate(user, from_attributes=True))
