"""Console pages that list, create, change and delete rules."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.accounts.models import VIEWER, User
from toolgate_service.agents.models import Agent
from toolgate_service.console.dependencies import (
    Form,
    PageContext,
    error_message,
    error_status,
    field_errors,
    form_route,
    page_route,
    read_number,
    require_admin,
)
from toolgate_service.console.templates import read_pagination, render_page
from toolgate_service.core.errors import ApiError
from toolgate_service.core.strict_json import Json
from toolgate_service.logs.repository import agent_names
from toolgate_service.rules import service
from toolgate_service.rules.evaluation import WILDCARD
from toolgate_service.rules.schemas import NewRule, RuleChange, RuleView

RULES = "/console/rules"
PAGE_SIZE = 50
#: Maximum number of agents, and of users, that can be selected in the form. The API accepts all agents and users.
MAX_OPTIONS = 200
#: Maximum number of agents whose simulators a rule's page links to.
MAX_SIMULATORS = 5


@dataclass(frozen=True, slots=True)
class Option:
    """Agent or user that can be selected in the form."""

    id: str
    name: str


def read_rule(form: Form) -> dict[str, Json]:
    """Return the fields of a rule in a submitted form, as in the body of a request to the API.

    Raises:
        FieldErrors: A numeric field contains text that is not a number.
    """
    approval: dict[str, Json] = {
        "quorum": read_number(form, "quorum"),
        "ttl": read_number(form, "ttl"),
        "approvers": list(form.all("approvers")) or None,
    }
    actions = [line.strip() for line in form["actions"].splitlines() if line.strip()]
    return {
        "name": form["name"].strip(),
        "effect": form["effect"],
        "agents": list(form.all("agents")),
        "actions": list(actions),
        "when": form.text("when"),
        "approval": approval if any(value is not None for value in approval.values()) else None,
    }


def write_rule(rule: RuleView) -> Form:
    """Return the form that contains the fields of an existing rule."""
    terms = rule.approval
    fields = [
        ("name", rule.name),
        ("effect", rule.effect),
        ("actions", "\n".join(rule.actions)),
        ("when", rule.when or ""),
        *(("agents", one) for one in rule.agents),
    ]
    if terms is not None:
        fields.append(("quorum", "" if terms.quorum is None else str(terms.quorum)))
        fields.append(("ttl", "" if terms.ttl is None else str(terms.ttl)))
        fields.extend(("approvers", one) for one in terms.approvers or ())
    return Form(fields)


async def create_rule(page: PageContext, form: Form) -> Response:
    """Create a rule and redirect to its page, or show the form again with the errors beside its fields."""
    try:
        new = NewRule.model_validate(read_rule(form))
        made = await service.create_rule(page.gateway, page.caller, page.environment, new)
    except (ApiError, ValidationError) as error:
        return await show_new_rule(page, typed=form, error=error)
    return RedirectResponse(page.url(f"{RULES}/{made.id}"), 303)


async def change_rule(page: PageContext, form: Form) -> Response:
    """Change all fields of a rule, or show the form again with the errors beside its fields."""
    try:
        await _change(page, RuleChange.model_validate(read_rule(form)))
    except (ApiError, ValidationError) as error:
        return await show_rule(page, typed=form, error=error)
    return _redirect_to_rule(page)


async def change_status(page: PageContext, form: Form) -> Response:
    """Enable or disable a rule."""
    enabled: object = {"on": True, "off": False}.get(form["status"], form["status"])
    await _change(page, RuleChange.model_validate({"enabled": enabled}))
    return _redirect_to_rule(page)


async def delete_rule(page: PageContext, _form: Form) -> Response:
    """Delete a rule."""
    await service.delete_rule(page.gateway, page.caller, page.environment, page.param("rule_id"))
    return RedirectResponse(page.url(RULES), 303)


async def _change(page: PageContext, change: RuleChange) -> None:
    await service.change_rule(page.gateway, page.caller, page.environment, page.param("rule_id"), change)


def _redirect_to_rule(page: PageContext) -> Response:
    return RedirectResponse(page.url(f"{RULES}/{page.param('rule_id')}"), 303)


async def show_rules(page: PageContext) -> Response:
    """Show the page that lists the rules of the environment, newest first."""
    pagination = read_pagination(page, PAGE_SIZE)
    async with page.gateway.database.reading() as session:
        found = await service.list_rules(session, page.caller, page.environment, pagination)
        rules = [service.serialize_rule(rule) for rule in found.rows]
        names = await agent_names(session, {one for rule in rules for one in rule.agents})
    return await render_page(
        page,
        "rules.html",
        rules=rules,
        names=names,
        total=found.total,
        offset=pagination.offset,
        next_offset=pagination.offset + PAGE_SIZE if found.last else None,
    )


async def show_new_rule(
    page: PageContext, *, typed: Form | None = None, error: ApiError | ValidationError | None = None
) -> Response:
    """Show the form that creates a rule."""
    form = typed or Form([("agents", WILDCARD)])
    return await _show_form(page, form, error, rule=None)


async def show_rule(
    page: PageContext, *, typed: Form | None = None, error: ApiError | ValidationError | None = None
) -> Response:
    """Show the page of one rule: the form that changes it, or its definition if the user may not change it."""
    async with page.gateway.database.reading() as session:
        rule = service.serialize_rule(
            await service.get_rule(session, page.caller, page.environment, page.param("rule_id"))
        )
    return await _show_form(page, typed or write_rule(rule), error, rule=rule)


async def _show_form(
    page: PageContext, form: Form, error: ApiError | ValidationError | None, *, rule: RuleView | None
) -> Response:
    status = 200 if error is None else error_status(error)
    fields = {} if error is None else _errors_by_field(error)
    async with page.gateway.database.reading() as session:
        agents = await _list_agents(session, page, form.all("agents"))
        approvers = await _list_approvers(session, page, form.all("approvers"))
    chosen = [one for one in agents if one.id in form.all("agents")]
    return await render_page(
        page,
        "rule.html",
        status,
        rule=rule,
        typed=form,
        agents=agents,
        approvers=approvers,
        simulators=(chosen or agents)[:MAX_SIMULATORS],
        fields=fields,
        message=None if error is None or fields else error_message(error),
    )


def _errors_by_field(error: ApiError | ValidationError) -> Mapping[str, str]:
    """Return the error messages of each form field, by the name of the field."""
    found: dict[str, list[str]] = {}
    for path, message in field_errors(error).items():
        match path.split("."):
            case ["approval", name, *_]:
                found.setdefault(name, []).append(message)
            case ["actions", line, *_]:
                found.setdefault("actions", []).append(f"line {int(line) + 1}: {message}")
            case [name, *_]:
                found.setdefault(name, []).append(message)
    return {name: "; ".join(messages) for name, messages in found.items()}


async def _list_agents(session: AsyncSession, page: PageContext, chosen: Collection[str]) -> Sequence[Option]:
    """Return the agents for the form: the newest agents of the environment, and the agents that are selected."""
    query = (
        select(Agent.id, Agent.name)
        .where(
            Agent.organization_id == page.caller.organization_id,
            Agent.environment == page.environment,
            col(Agent.deleted_at).is_(None),
        )
        .order_by(col(Agent.created_at).desc())
        .limit(MAX_OPTIONS)
    )
    offered = [Option(*row) for row in (await session.exec(query)).all()]
    missing = set(chosen) - {one.id for one in offered} - {WILDCARD}
    if missing:
        # A rule may contain deleted agents, and agents that are not among the newest.
        others = select(Agent.id, Agent.name).where(
            Agent.organization_id == page.caller.organization_id,
            Agent.environment == page.environment,
            col(Agent.id).in_(missing),
        )
        offered += [Option(*row) for row in (await session.exec(others)).all()]
    return offered


async def _list_approvers(
    session: AsyncSession, page: PageContext, chosen: Collection[str]
) -> Sequence[Option]:
    """Return the users for the list of approvers: the admins and members, and the users who are selected."""
    query = (
        select(User.id, User.email)
        .where(
            User.organization_id == page.caller.organization_id,
            col(User.removed_at).is_(None),
            (col(User.role) != VIEWER) | col(User.id).in_(chosen),
        )
        .order_by(col(User.email))
        .limit(MAX_OPTIONS)
    )
    return [Option(*row) for row in (await session.exec(query)).all()]


_ONE = f"{RULES}/{{rule_id}}"

ROUTES: Sequence[Route] = (
    page_route(RULES, show_rules),
    form_route(RULES, create_rule, authorize=require_admin),
    # This route must precede the route `/console/rules/{rule_id}`, whose path also matches `/console/rules/new`.
    page_route(f"{RULES}/new", show_new_rule),
    page_route(_ONE, show_rule),
    form_route(_ONE, change_rule, authorize=require_admin),
    form_route(f"{_ONE}/switch", change_status, authorize=require_admin),
    form_route(f"{_ONE}/delete", delete_rule, authorize=require_admin),
)
