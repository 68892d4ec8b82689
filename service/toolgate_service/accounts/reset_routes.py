"""HTTP for forgotten passwords: /auth/password-reset (decisions §3)."""

from fastapi import APIRouter, Request

from toolgate_service.accounts import entering, forgotten
from toolgate_service.accounts.caller import peer
from toolgate_service.accounts.schemas import ResetConfirmation, ResetRequest, Told
from toolgate_service.gateway import GatewayDep
from toolgate_service.openapi.problems import REFUSED, TOO_MANY, problems
from toolgate_service.web.bodies import StrictRoute
from toolgate_service.web.replies import NoContent, Reply

router = APIRouter(prefix="/auth/password-reset", tags=["accounts"], route_class=StrictRoute)


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
    return Reply({"detail": forgotten.ask_for_link(gateway, wanted.email)}, 202)


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
