"""HTTP routes of approval requests: below /api for users, and below /sdk for agents."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request

from toolgate_service.agents import service as agents
from toolgate_service.approvals import policy, service
from toolgate_service.approvals.long_poll import LongPoll
from toolgate_service.approvals.models import PENDING
from toolgate_service.approvals.repository import find_approval
from toolgate_service.approvals.repository import list_approvals as list_page
from toolgate_service.approvals.schemas import (
    ApprovalDecision,
    ApprovalView,
    DecisionNote,
    DenialBlockView,
    SdkApprovalView,
    serialize_approval,
    serialize_approvals,
)
from toolgate_service.core.schemas import Action
from toolgate_service.http.asgi import peer_of
from toolgate_service.http.dependencies import (
    ActionFilter,
    AdminCaller,
    AgentFilter,
    AgentIdPath,
    AnyCaller,
    AnyKey,
    ApprovalIdPath,
    EnforcingKey,
    EnvironmentName,
    FullCaller,
    GatewayDep,
    PageDep,
    Wait,
)
from toolgate_service.http.openapi import CONFLICT, NOT_FOUND, problems
from toolgate_service.http.responses import NoContent, Reply
from toolgate_service.http.strict_route import StrictRoute

router = APIRouter(tags=["approvals"], route_class=StrictRoute)

Status = Literal["pending", "approved", "denied", "expired", "cancelled", "replaced", "consumed"]


@router.get("/api/approvals", response_model=list[ApprovalView], summary="List approval requests")
async def list_approvals(
    caller: AnyCaller,
    gateway: GatewayDep,
    page: PageDep,
    status: Annotated[Status | None, Query(description="Return only requests with this status.")] = None,
    agent_id: AgentFilter = None,
    action: ActionFilter = None,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return approval requests, newest first, page by page."""
    async with gateway.database.reading() as session:
        found = await list_page(
            session, caller, environment, page, status=status, agent_id=agent_id, action=action
        )
        shown = await serialize_approvals(session, found.rows, credentials=caller.is_admin)
    return Reply(shown, headers=page.headers(found))


@router.get(
    "/api/approvals/{approval_id}",
    response_model=ApprovalView,
    responses=problems(NOT_FOUND),
    summary="Get an approval request",
)
async def get_approval(
    approval_id: ApprovalIdPath,
    caller: AnyCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return the approval request with this id."""
    async with gateway.database.reading() as session:
        approval = await find_approval(session, caller.organization_id, environment, approval_id)
        shown = await serialize_approval(session, approval, credentials=caller.is_admin)
    return Reply(shown)


@router.post(
    "/api/approvals/{approval_id}/approve",
    response_model=ApprovalView,
    responses=problems(NOT_FOUND, CONFLICT),
    summary="Approve a request",
)
async def approve(
    approval_id: ApprovalIdPath,
    caller: FullCaller,
    gateway: GatewayDep,
    decision: ApprovalDecision | None = None,
    environment: EnvironmentName = "production",
) -> Reply:
    """Approve a request: unchanged, with an edited context, or together with a temporary approval of further calls.

    The agent then repeats its check, which is allowed once. If the permission requires several approvals, the request
    stays pending until enough users have approved it. The response is 409 if the request is no longer pending or the
    caller has already approved it, and 403 if separation of duties excludes the caller.
    """
    body = decision or ApprovalDecision()
    return Reply(await service.approve(gateway, caller, environment, approval_id, body))


@router.post(
    "/api/approvals/{approval_id}/reject",
    response_model=ApprovalView,
    responses=problems(NOT_FOUND, CONFLICT),
    operation_id="rejectApproval",
    summary="Reject a request",
)
@router.post(
    "/api/approvals/{approval_id}/deny",
    response_model=ApprovalView,
    responses=problems(NOT_FOUND, CONFLICT),
    summary="Deny a request",
)
async def deny(
    approval_id: ApprovalIdPath,
    caller: FullCaller,
    gateway: GatewayDep,
    decision: DecisionNote | None = None,
    environment: EnvironmentName = "production",
) -> Reply:
    """Reject a request. The agent receives the optional note as the reason.

    The paths `/reject` and `/deny` are equivalent. By default, the gateway denies the same call for five
    minutes. The response is 409 if the request is no longer pending.
    """
    note = decision.note if decision else None
    return Reply(await service.deny(gateway, caller, environment, approval_id, note))


@router.get(
    "/sdk/approvals/{approval_id}",
    response_model=SdkApprovalView,
    responses=problems(NOT_FOUND),
    summary="Get or wait for an approval request",
)
async def wait_for_approval(
    approval_id: ApprovalIdPath, request: Request, caller: AnyKey, gateway: GatewayDep, wait: Wait = 0
) -> Reply:
    """Return an approval request. With `wait`, the response is sent when the request is decided or the time is over.

    The response contains neither votes nor the names of approvers. An API key of a single agent can read only the
    requests of this agent.
    """
    poll = LongPoll(gateway, gateway.auth_store, caller.key_digest, caller.context, peer_of(request.scope))
    before = await poll.load(approval_id)
    if wait and before.status == PENDING:
        await poll.wait(approval_id, wait, request.is_disconnected)
    return Reply(await poll.load(approval_id))


@router.post(
    "/sdk/approvals/{approval_id}/cancel",
    response_model=SdkApprovalView,
    responses=problems(NOT_FOUND, CONFLICT),
    summary="Cancel an approval request",
)
async def cancel_approval(
    approval_id: ApprovalIdPath,
    caller: EnforcingKey,
    gateway: GatewayDep,
    *,
    rejected: Annotated[
        bool, Query(description="True if a user of the agent's framework rejected the call.")
    ] = False,
) -> Reply:
    """Cancel a request that is pending, or that is approved and not yet consumed.

    Send `rejected=true` if a user of the agent's framework rejected the call. The gateway then denies later checks with
    the same `call_id`. The response is 409 if the request is in another state.
    """
    return Reply(await service.withdraw(gateway, caller, approval_id, rejected=rejected))


denial_blocks_router = APIRouter(
    prefix="/api/agents/{agent_id}/denial-blocks", tags=["approvals"], route_class=StrictRoute
)


@denial_blocks_router.get(
    "",
    response_model=list[DenialBlockView],
    responses=problems(NOT_FOUND),
    summary="List the blocked actions of an agent",
)
async def list_denial_blocks(
    agent_id: AgentIdPath, caller: AnyCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Return the actions of an agent that are blocked because approvers repeatedly rejected them.

    By default, ten rejections of an action within 15 minutes block it for 15 minutes.
    """
    async with gateway.database.reading() as session:
        agent = await agents.get_agent(session, caller, environment, agent_id)
        tenant = (agent.organization_id, agent.environment, agent.id)
        blocks = await policy.load_denial_blocks(session, gateway.settings, tenant)
    return Reply([DenialBlockView(action=action, blocked_until=until) for action, until in blocks.items()])


@denial_blocks_router.delete(
    "", status_code=204, responses=problems(NOT_FOUND), summary="Unblock an action of an agent"
)
async def clear_denial_block(
    agent_id: AgentIdPath,
    action: Annotated[Action, Query(description="Blocked action: 1-255 visible ASCII characters.")],
    caller: AdminCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> NoContent:
    """Allow an action again that is blocked because approvers repeatedly rejected it.

    The response is 404 if the action is not blocked.
    """
    await agents.clear_denial_block(gateway, caller, environment, agent_id, action)
    return NoContent()
