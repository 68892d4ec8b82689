"""HTTP for approvals: people decide at /api/approvals, agents wait at /sdk/approvals (decisions §3)."""

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Query, Request

from toolgate_service.accounts.caller import AnyCaller, FullCaller
from toolgate_service.approvals import service
from toolgate_service.approvals.models import PENDING
from toolgate_service.approvals.schemas import ApprovalView, DecisionNote, SdkApprovalView
from toolgate_service.errors import not_found
from toolgate_service.gateway import GatewayDep
from toolgate_service.hotpath.admission import admit, given_key
from toolgate_service.hotpath.standing import Standing
from toolgate_service.organizations.keys import key_digest
from toolgate_service.web.bodies import StrictRoute
from toolgate_service.web.fields import EnvironmentName, Offset, PageSize
from toolgate_service.web.replies import Reply

router = APIRouter(tags=["approvals"], route_class=StrictRoute)

#: seconds between looks at the database while waiting: a decision made by another process is seen that late
LOOK_AGAIN = 1.0
MAX_WAIT = 60

Status = Literal["pending", "approved", "denied", "expired", "cancelled", "replaced", "consumed"]


@router.get("/api/approvals", response_model=list[ApprovalView])
async def list_approvals(
    caller: AnyCaller,
    gateway: GatewayDep,
    status: Annotated[Status | None, Query()] = None,
    agent_id: Annotated[str | None, Query()] = None,
    action: Annotated[str | None, Query()] = None,
    limit: PageSize = 50,
    offset: Offset = 0,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return approvals, newest first."""
    async with gateway.database.reading() as session:
        found = await service.list_approvals(
            session,
            caller,
            environment,
            status=status,
            agent_id=agent_id,
            action=action,
            limit=limit,
            offset=offset,
        )
    return Reply([service.view(approval, agent) for approval, agent in found])


@router.get("/api/approvals/{approval_id}", response_model=ApprovalView)
async def get_approval(
    approval_id: str, caller: AnyCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Return one approval."""
    async with gateway.database.reading() as session:
        found = await service.find_approval(session, caller.organization_id, environment, approval_id)
    return Reply(service.view(*found))


@router.post("/api/approvals/{approval_id}/approve", response_model=ApprovalView)
async def approve(
    approval_id: str,
    caller: FullCaller,
    gateway: GatewayDep,
    decision: DecisionNote | None = None,
    environment: EnvironmentName = "production",
) -> Reply:
    """Let the action happen once."""
    return await _decide(approval_id, caller, gateway, decision, environment, approve=True)


@router.post("/api/approvals/{approval_id}/deny", response_model=ApprovalView)
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
    async with gateway.database.writing() as session:
        found = await service.decide(
            session, gateway.settings, caller, environment, approval_id, approve=approve, note=note
        )
    gateway.hub.tell(approval_id)
    return Reply(service.view(*found))


async def _asking(
    request: Request, gateway: GatewayDep, x_api_key: Annotated[str | None, Header()] = None
) -> Standing:
    # A dependency, so that the key is judged and the request counted before the parameters are read.
    found = gateway.reader.standing(key_digest(given_key(x_api_key)), "", "")
    return admit(request.scope, found, gateway.rates, "reads")


@router.get("/sdk/approvals/{approval_id}", response_model=SdkApprovalView)
async def wait_for_approval(
    approval_id: str,
    gateway: GatewayDep,
    standing: Annotated[Standing, Depends(_asking)],
    wait: Annotated[int, Query(ge=0, le=MAX_WAIT)] = 0,
) -> Reply:
    """Return an approval; with `wait`, once it is no longer pending or after that many seconds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait
    with gateway.hub.watching(approval_id) as changed:
        while True:
            async with gateway.database.reading() as session:
                approval, _ = await service.find_approval(
                    session, standing.organization_id, standing.environment, approval_id
                )
            if standing.key_agent_id not in {None, approval.agent_id}:
                raise not_found("Approval")
            shown = service.sdk_view(approval)
            left = deadline - loop.time()
            if shown.status != PENDING or left <= 0 or gateway.hub.closed:
                return Reply(shown)
            changed.clear()
            try:
                await asyncio.wait_for(changed.wait(), min(left, LOOK_AGAIN))
            except TimeoutError:
                continue
