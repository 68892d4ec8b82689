"""HTTP routes of policies."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from toolgate_service.http.dependencies import AdminCaller, AnyCaller, EnvironmentName, GatewayDep, PageDep
from toolgate_service.http.openapi import CONFLICT, NOT_FOUND, problems
from toolgate_service.http.responses import NoContent, Reply
from toolgate_service.http.strict_route import StrictRoute
from toolgate_service.policies import replay_service, service, shadow_service, suggestions
from toolgate_service.policies.replay_schemas import PolicyReplay, ReplayReport
from toolgate_service.policies.schemas import (
    Candidate,
    JudgementView,
    NewShadow,
    PolicyApplied,
    PolicyApply,
    PolicyEvaluation,
    PolicyPlan,
    PolicyState,
    RevisionRestore,
    RevisionSummary,
    RevisionView,
    ShadowPromotion,
    ShadowView,
    SuggestionList,
)


class PolicyRoute(StrictRoute):
    """Route that accepts larger request bodies than other routes, because they can contain a whole policy."""

    max_body = 1024 * 1024
    max_nodes = 100_000


router = APIRouter(prefix="/api/policy", tags=["policies"], route_class=PolicyRoute)

RevisionIdPath = Annotated[str, Path(description="Id of the revision, a UUID.")]
Number = Annotated[
    int | None, Query(ge=1, le=2**31 - 1, description="Return only the revision with this number.")
]


@router.get("", response_model=PolicyState, summary="Get the policy")
async def get_policy(
    caller: AnyCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Return the current agents, permissions, rules and budgets of the environment as one document."""
    async with gateway.database.reading() as session:
        return Reply(await service.get_policy(session, caller, environment))


@router.post("/plan", response_model=PolicyPlan, responses=problems(CONFLICT), summary="Plan a policy")
async def plan_policy(
    candidate: Candidate, caller: AnyCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Return the changes that applying a policy would make. Nothing is changed.

    The response is 409 if the request contains `base`, and the policy changed since.
    """
    async with gateway.database.reading() as session:
        return Reply(
            await service.plan_policy(session, caller, environment, candidate.policy, candidate.base)
        )


@router.post("/apply", response_model=PolicyApplied, responses=problems(CONFLICT), summary="Apply a policy")
async def apply_policy(
    request: PolicyApply,
    caller: AdminCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Change the environment so that it has exactly this policy, and store it as a revision.

    All changes are made in one transaction, or none. The response is 409 if the policy changed since `base` was read. A
    request that changes nothing, such as a retry, succeeds with `applied` false.
    """
    return Reply(await service.apply_policy(gateway, caller, environment, request))


@router.post("/evaluate", response_model=list[JudgementView], summary="Evaluate calls")
async def evaluate_calls(
    request: PolicyEvaluation,
    caller: AnyCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return the results of a policy for calls, in the order of the calls.

    The results are those of a check, except for what depends on the state of the gateway: existing approvals, freezes,
    and the totals of budgets.
    """
    async with gateway.database.reading() as session:
        return Reply(
            await service.evaluate_calls(session, caller, environment, request.policy, request.calls)
        )


@router.post("/replay", response_model=ReplayReport, summary="Replay decisions")
async def replay_policy(
    request: PolicyReplay, caller: AnyCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Compare the recorded decisions of a period with the results of a policy. Nothing is changed.

    At most 1,000,000 decisions are compared, the oldest first. The response is 429 if too many replays are running.
    """
    return Reply(await replay_service.replay_policy(gateway, caller, environment, request))


@router.get("/revisions", response_model=list[RevisionSummary], summary="List revisions")
async def list_revisions(
    caller: AnyCaller,
    gateway: GatewayDep,
    page: PageDep,
    number: Number = None,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return the revisions of the policy, newest first."""
    async with gateway.database.reading() as session:
        found = await service.list_revisions(session, caller, environment, page, number)
    return Reply([service.serialize_revision(one) for one in found.rows], headers=page.headers(found))


@router.get(
    "/revisions/{revision_id}",
    response_model=RevisionView,
    responses=problems(NOT_FOUND),
    summary="Get a revision",
)
async def get_revision(
    revision_id: RevisionIdPath,
    caller: AnyCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return a revision with its policy and its changes."""
    async with gateway.database.reading() as session:
        return Reply(await service.get_revision(session, caller, environment, revision_id))


@router.post(
    "/revisions/{revision_id}/restore",
    response_model=PolicyApplied,
    responses=problems(NOT_FOUND, CONFLICT),
    summary="Restore a revision",
)
async def restore_revision(
    revision_id: RevisionIdPath,
    request: RevisionRestore,
    caller: AdminCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Apply the policy of an earlier revision again, as a new revision.

    A deleted agent is created again with a new id and without API keys. The response is 409 if the policy changed since
    `base` was read.
    """
    return Reply(await service.restore_revision(gateway, caller, environment, revision_id, request))


@router.get(
    "/shadow", response_model=ShadowView, responses=problems(NOT_FOUND), summary="Get the shadow policy"
)
async def get_shadow(
    caller: AnyCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Return the shadow policy with the counts of its results, and checks with another result."""
    async with gateway.database.reading() as session:
        return Reply(await shadow_service.get_shadow(session, caller, environment))


@router.put("/shadow", response_model=ShadowView, summary="Start a shadow policy")
async def start_shadow(
    new: NewShadow, caller: AdminCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Compare each check with a policy, from the next check on, after the response to the check.

    A shadow policy never changes a response. It replaces the environment's present shadow policy, and the counts start
    at zero. Dry runs are not compared. If a gateway is killed, the results of about its last second are lost.
    """
    return Reply(await shadow_service.start_shadow(gateway, caller, environment, new))


@router.delete("/shadow", status_code=204, responses=problems(NOT_FOUND), summary="Discard the shadow policy")
async def discard_shadow(
    caller: AdminCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> NoContent:
    """End the shadow policy and delete its results."""
    await shadow_service.discard_shadow(gateway, caller, environment)
    return NoContent()


@router.post(
    "/shadow/promote",
    response_model=PolicyApplied,
    responses=problems(NOT_FOUND, CONFLICT),
    summary="Promote the shadow policy",
)
async def promote_shadow(
    request: ShadowPromotion,
    caller: AdminCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Apply the shadow policy as a new revision, and end the shadow policy, in one transaction.

    The response is 409 if the current policy changed since `base` was read.
    """
    return Reply(await shadow_service.promote_shadow(gateway, caller, environment, request.base))


@router.get("/suggestions", response_model=SuggestionList, summary="Suggest rules")
async def suggest_rules(
    caller: AnyCaller,
    gateway: GatewayDep,
    minimum: Annotated[
        int,
        Query(
            ge=1,
            le=1_000,
            description=(
                "Minimum number of approved requests of an agent for an action. The gateway makes no suggestion for "
                "an action with fewer approved requests."
            ),
        ),
    ] = 5,
    days: Annotated[int, Query(ge=1, le=365, description="Length of the period in days, until now.")] = 30,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return candidate policies that allow calls which people approved every time in a period.

    A suggestion needs enough approved requests of an agent for an action, and no rejected one in the period. It covers
    only calls with the approved arguments, and it is verified with all approved calls. Nothing is changed: plan and apply
    the candidate, or start it as the shadow policy.
    """
    async with gateway.database.reading() as session:
        return Reply(await suggestions.suggest_rules(session, caller, environment, minimum, days))
