"""HTTP routes of rules."""

from typing import Annotated

from fastapi import APIRouter, Path

from toolgate_service.http.dependencies import AdminCaller, AnyCaller, EnvironmentName, GatewayDep, PageDep
from toolgate_service.http.openapi import CONFLICT, NOT_FOUND, problems
from toolgate_service.http.responses import NoContent, Reply
from toolgate_service.http.strict_route import StrictRoute
from toolgate_service.rules import service
from toolgate_service.rules.schemas import NewRule, RuleChange, RuleView

router = APIRouter(prefix="/api/rules", tags=["rules"], route_class=StrictRoute)

RuleIdPath = Annotated[str, Path(description="Id of the rule, a UUID.")]


@router.get("", response_model=list[RuleView], summary="List rules")
async def list_rules(
    caller: AnyCaller, gateway: GatewayDep, page: PageDep, environment: EnvironmentName = "production"
) -> Reply:
    """Return the rules of the environment, newest first."""
    async with gateway.database.reading() as session:
        found = await service.list_rules(session, caller, environment, page)
    return Reply([service.serialize_rule(rule) for rule in found.rows], headers=page.headers(found))


@router.post(
    "", response_model=RuleView, status_code=201, responses=problems(CONFLICT), summary="Create a rule"
)
async def create_rule(
    new: NewRule, caller: AdminCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Create a rule, which applies from the next check on.

    The response is 400 if the condition is not a valid CEL expression of the type boolean, and 409 if a rule with this
    name exists. An environment can have at most 2,000 rules.
    """
    return Reply(await service.create_rule(gateway, caller, environment, new), 201)


@router.get("/{rule_id}", response_model=RuleView, responses=problems(NOT_FOUND), summary="Get a rule")
async def get_rule(
    rule_id: RuleIdPath, caller: AnyCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Return the rule with this id."""
    async with gateway.database.reading() as session:
        rule = await service.get_rule(session, caller, environment, rule_id)
    return Reply(service.serialize_rule(rule))


@router.put(
    "/{rule_id}", response_model=RuleView, responses=problems(NOT_FOUND, CONFLICT), summary="Change a rule"
)
async def change_rule(
    rule_id: RuleIdPath,
    change: RuleChange,
    caller: AdminCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Change a rule. Fields that the request omits stay unchanged. The change applies from the next check on."""
    return Reply(await service.change_rule(gateway, caller, environment, rule_id, change))


@router.delete("/{rule_id}", status_code=204, responses=problems(NOT_FOUND), summary="Delete a rule")
async def delete_rule(
    rule_id: RuleIdPath, caller: AdminCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> NoContent:
    """Delete a rule. From the next check on, the other rules and the permissions decide."""
    await service.delete_rule(gateway, caller, environment, rule_id)
    return NoContent()
