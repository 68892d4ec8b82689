"""HTTP for approvals: people decide at /api/approvals, agents wait at /sdk/approvals (decisions §3)."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request

from toolgate_service.accounts.caller import AnyCaller, FullCaller, acting
from toolgate_service.approvals import service
from toolgate_service.approvals.schemas import ApprovalView, DecisionNote, SdkApprovalView
from toolgate_service.approvals.waiting import Asking
from toolgate_service.gateway import GatewayDep
from toolgate_service.openapi.problems import CONFLICT, NOT_FOUND, problems
from toolgate_service.organizations.key_caller import AnyKey
from toolgate_service.storage.database import now
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
        found, agents = await service.list_approvals(
            session, caller, environment, page, status=status, agent_id=agent_id, action=action
        )
        moment = now(session)
    views = [service.view(approval, agents[approval.agent_id], moment) for approval in found.rows]
    return Reply(views, headers=page.headers(found))


@router.get("/api/approvals/{approval_id}", response_model=ApprovalView, responses=problems(NOT_FOUND))
async def get_approval(
    approval_id: str, caller: AnyCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Return one approval."""
    async with gateway.database.reading() as session:
        found = await service.find_approval(session, caller.organization_id, environment, approval_id)
        moment = now(session)
    return Reply(service.view(*found, moment))


@router.post(
    "/api/approvals/{approval_id}/approve",
    response_model=ApprovalView,
    responses=problems(NOT_FOUND, CONFLICT),
)
async def approve(
    approval_id: str,
    caller: FullCaller,
    gateway: GatewayDep,
    decision: DecisionNote | None = None,
    environment: EnvironmentName = "production",
) -> Reply:
    """Let the action happen once."""
    return await _decide(approval_id, caller, gateway, decision, environment, approve=True)


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
    return await _decide(approval_id, caller, gateway, decision, environment, approve=False)


async def _decide(
    approval_id: str,
    caller: FullCaller,
    gateway: GatewayDep,
    decision: DecisionNote | None,
    environment: str,
    *,
    approve: bool,
) -> Reply:
    note = decision.note if decision else None
    async with acting(gateway, caller) as session:
        found = await service.decide(
            session, gateway.settings, caller, environment, approval_id, approve=approve, note=note
        )
        moment = now(session)
    gateway.hub.tell(approval_id)
    return Reply(service.view(*found, moment))


@router.get("/sdk/approvals/{approval_id}", response_model=SdkApprovalView, responses=problems(NOT_FOUND))
async def wait_for_approval(
    approval_id: str, request: Request, caller: AnyKey, gateway: GatewayDep, wait: Wait = 0
) -> Reply:
    """Return an approval; with `wait`, once it is no longer pending or after that many seconds."""
    asking = Asking(gateway, caller.key_digest, caller.standing)
    await asking.look(approval_id)
    if wait:
        await asking.wait_for_change(approval_id, wait, request.is_disconnected)
    return Reply(await asking.look(approval_id))


@router.post(
    "/sdk/approvals/{approval_id}/cancel",
    response_model=SdkApprovalView,
    responses=problems(NOT_FOUND, CONFLICT),
)
async def cancel_approval(approval_id: str, caller: AnyKey, gateway: GatewayDep) -> Reply:
    """Withdraw a request that waits, or that was approved and not used."""
    async with gateway.database.writing(caller.standing.organization_id) as session:
        approval = await service.cancel(session, caller, approval_id)
        moment = now(session)
    gateway.hub.tell(approval_id)
    return Reply(service.sdk_view(approval, moment))
