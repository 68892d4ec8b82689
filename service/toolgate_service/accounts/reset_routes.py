"""HTTP for forgotten passwords: /auth/password-reset (decisions §3)."""

from fastapi import APIRouter, Request

from toolgate_service.accounts import entering, resets, single_use
from toolgate_service.accounts.caller import peer
from toolgate_service.accounts.schemas import ResetConfirmation, ResetRequest, Told
from toolgate_service.accounts.users import find_user
from toolgate_service.errors import ApiError
from toolgate_service.gateway import Gateway, GatewayDep
from toolgate_service.mail.letters import Letter, password_reset
from toolgate_service.openapi.problems import REFUSED, TOO_MANY, problems
from toolgate_service.web.bodies import StrictRoute
from toolgate_service.web.replies import NoContent, Reply

router = APIRouter(prefix="/auth/password-reset", tags=["accounts"], route_class=StrictRoute)

SENT = "If the e-mail is registered here, a link to choose a new password is on its way to it"
NO_MAIL = "This gateway sends no mail; ask its operator, who gets a link from 'toolgate admin reset-password'"
RETRY_AFTER = 60


@router.post(
    "",
    response_model=Told,
    status_code=202,
    responses=problems(TOO_MANY),
    operation_id="askPasswordReset",
)
async def ask(wanted: ResetRequest, gateway: GatewayDep) -> Reply:
    """Have a link sent to a user who forgot the password.

    The answer is the same, and as quick, whether the e-mail is registered or not: it is looked up afterwards.
    """
    if gateway.post is None:
        return Reply({"detail": NO_MAIL}, 202)
    if not gateway.post.write_and_send(lambda: _letter(gateway, wanted.email)):
        raise ApiError(
            429,
            f"Too many mails are on their way; retry after {RETRY_AFTER} seconds",
            {"Retry-After": str(RETRY_AFTER)},
        )
    return Reply({"detail": SENT}, 202)


@router.post(
    "/confirm",
    status_code=204,
    responses=problems(REFUSED, TOO_MANY),
    operation_id="confirmPasswordReset",
)
async def confirm(confirmation: ResetConfirmation, request: Request, gateway: GatewayDep) -> NoContent:
    """Choose a new password by the link's token; every session of the user ends."""
    await entering.reset_password(gateway, confirmation, peer(request))
    return NoContent()


async def _letter(gateway: Gateway, email: str) -> Letter | None:
    async with gateway.database.reading() as session:
        user = await find_user(session, email)
    if user is None or gateway.settings.public_url is None:
        return None
    async with gateway.database.writing(user.organization_id) as session:
        issued = await resets.issue_for_mail(session, user.id)
    if issued is None:
        return None
    address, token = issued
    return password_reset(address, single_use.link(gateway.settings.public_url, single_use.RESET_PAGE, token))
