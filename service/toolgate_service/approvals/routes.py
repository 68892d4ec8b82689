"""HTTP for approvals: people decide at /api/approvals, agents wait at /sdk/approvals (decisions §3)."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request

from toolgate_service.accounts.caller import AnyCaller, FullCaller
from toolgate_service.approvals import desk
from toolgate_service.approvals.ending import withdraw
from toolgate_service.approvals.finding import find_approval
from toolgate_service.approvals.finding import list_approvals as list_page
from toolgate_service.approvals.models import PENDING
from toolgate_service.approvals.schemas import ApprovalDecision, ApprovalView, DecisionNote, SdkApprovalView
from toolgate_service.approvals.views import sdk_view, view, views
from toolgate_service.approvals.waiting import Asking
from toolgate_service.gateway import GatewayDep
from toolgate_service.hotpath.http import peer_of
from toolgate_service.openapi.problems import CONFLICT, NOT_FOUND, problems
from toolgate_service.organizations.key_caller import AnyKey
from toolgate_service.web.bodies import StrictRoute
from toolgate_service.web.fields import EnvironmentName, Wait
from toolgate_service.web.paging import PageDep
from toolgate_service.web.replies import Reply

router = APIRouter(tags=["approvals"], route_class=StrictRoute)

Status = Literal["pending", "approved", "denied", "expired", "cancelled", "replaced", "consumed"]


@router.get("/api/approvals", response_model=list[ApprovalView])
async def list_approvals(
    caller: AnyCaller,
    gateway: GatewayDep,
    page: PageDep,
    status: Annotated[Status | None, Query()] = None,
    agent_id: Annotated[str | None, Query()] = None,
    action: Annotated[str | None, Query()] = None,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return approvals, newest first."""
    async with gateway.database.reading() as session:
        found = await list_page(
            session, caller, environment, page, status=status, agent_id=agent_id, action=action
        )
        shown = await views(session, found.rows, credentials=caller.is_admin)
    return Reply(shown, headers=page.headers(found))


@router.get("/api/approvals/{approval_id}", response_model=ApprovalView, responses=problems(NOT_FOUND))
async def get_approval(
    approval_id: str, caller: AnyCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Return one approval."""
    async with gateway.database.reading() as session:
        approval = await find_approval(session, caller.organization_id, environment, approval_id)
        shown = await view(session, approval, credentials=caller.is_admin)
    return Reply(shown)


@router.post(
    "/api/approvals/{approval_id}/approve",
    response_model=ApprovalView,
    responses=problems(NOT_FOUND, CONFLICT),
)
async def approve(
    approval_id: str,
    caller: FullCaller,
    gateway: GatewayDep,
    decision: ApprovalDecision | None = None,
    environment: EnvironmentName = "production",
) -> Reply:
    """Let the action happen once: as it was asked, or with an edited context; or, with a grant, for a while."""
    decided = await desk.approve(gateway, caller, environment, approval_id, decision or ApprovalDecision())
    return Reply(decided)


@router.post(
    "/api/approvals/{approval_id}/deny",
    response_model=ApprovalView,
    responses=problems(NOT_FOUND, CONFLICT),
)
async def deny(
    approval_id: str,
    caller: FullCaller,
    gateway: GatewayDep,
    decision: DecisionNote | None = None,
    environment: EnvironmentName = "production",
) -> Reply:
    """Refuse the action; the note is told to whoever asks again."""
    note = decision.note if decision else None
    return Reply(await desk.deny(gateway, caller, environment, approval_id, note))


@router.get("/sdk/approvals/{approval_id}", response_model=SdkApprovalView, responses=problems(NOT_FOUND))
async def wait_for_approval(
    approval_id: str, request: Request, caller: AnyKey, gateway: GatewayDep, wait: Wait = 0
) -> Reply:
    """Return an approval; with `wait`, once it is no longer pending or after that many seconds."""
    asking = Asking(gateway, caller.key_digest, caller.standing, peer_of(request.scope))
    before = await asking.look(approval_id)
    if wait and before.status == PENDING:
        await asking.wait_as_call(approval_id, wait, request.is_disconnected)
    return Reply(await asking.look(approval_id))


@router.post(
    "/sdk/approvals/{approval_id}/cancel",
    response_model=SdkApprovalView,
    responses=problems(NOT_FOUND, CONFLICT),
)
async def cancel_approval(
    approval_id: str, caller: AnyKey, gateway: GatewayDep, *, rejected: Annotated[bool, Query()] = False
) -> Reply:
    """Cancel a request that is pending, or approved and not consumed.

    With `rejected` a user of the agent's framework rejected the call: checks with its `call_id` stay denied.
    """
    async with gateway.database.writing(caller.standing.organization_id) as session:
        approval = await withdraw(session, caller, approval_id, rejected=rejected)
        shown = await sdk_view(session, approval)
    gateway.hub.tell(approval_id)
    return Reply(shown)
