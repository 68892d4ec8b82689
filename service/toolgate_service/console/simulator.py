"""Simulator page: a user enters a tool call and sees, step by step, which decision the gateway would make now.

A simulation changes no data and adds no entry to the activity log or the audit log.
"""

from collections.abc import Mapping, Sequence

from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.responses import Response
from starlette.routing import Route

from toolgate_service.agents import service as agents
from toolgate_service.agents.models import Agent
from toolgate_service.agents.schemas import AgentView
from toolgate_service.checks.decide import Allowed, AllowedByApproval, Denied, PendingApproval, Step
from toolgate_service.checks.explain import Explanation, explain
from toolgate_service.console.dependencies import (
    Form,
    PageContext,
    error_message,
    form_route,
    page_route,
    read_number,
    require_editor,
)
from toolgate_service.console.filters import format_json
from toolgate_service.console.templates import first_page, render_page
from toolgate_service.core import strict_json
from toolgate_service.core.errors import ApiError, FieldErrors
from toolgate_service.core.strict_json import Json
from toolgate_service.permissions import service as permissions

SIMULATOR = "/console/agents/{agent_id}/try"
MAX_SUGGESTED_ACTIONS = 100

#: Question that each step of a check answers, as displayed on the page. Every check runs the steps up to `APPROVAL` in
#: this order until one of them decides the call. The steps after `APPROVAL` depend on the call.
QUESTIONS: Mapping[Step, str] = {
    Step.KEY: "Is the API key valid?",
    Step.ORGANIZATION: "Is the organization active?",
    Step.RATE: "Is the request within the plan's rate limit?",
    Step.AGENT: "Does the agent exist?",
    Step.FREEZE: "Does a freeze deny the call?",
    Step.AGENT_ENABLED: "Is the agent enabled?",
    Step.RULES: "Does a rule decide the call?",
    Step.PERMISSION: "Does the agent have a permission for the action?",
    Step.AMOUNT_PRESENT: "Does the call contain an amount?",
    Step.AMOUNT_VALID: "Is the amount a number?",
    Step.AMOUNT_WITHIN: "Is the amount within the permission's maximum?",
    Step.APPROVAL: "Does the permission or a rule require an approval?",
    Step.APPROVAL_ID: "Does the approval with the given id belong to this call?",
    Step.BUDGET_AMOUNT: "Do the arguments contain the amounts that the budgets add up?",
    Step.BUDGET: "Is the call within the limits of all budgets?",
    Step.CALL_ID: "Is this the first check with this call id?",
    Step.APPROVED: "Is there an approval for this call?",
    Step.EDITED: "Did an approver change the arguments of the call?",
    Step.OPEN: "Can the approval request with the given id still allow the call?",
    Step.DENIED: "Was an identical call rejected recently?",
    Step.DENIAL_BLOCK: "Is the action blocked after repeated rejections?",
    Step.GRANT: "Does a temporary approval cover the call?",
    Step.PENDING: "Does an identical call already wait for approval?",
    Step.PENDING_LIMIT: "Is the agent below its maximum number of pending requests?",
    Step.NEW_REQUEST: "Who must approve?",
}
_COMMON_STEPS = tuple(QUESTIONS)[: tuple(QUESTIONS).index(Step.APPROVAL) + 1]


async def show_simulator(page: PageContext) -> Response:
    """Show the form in which the user enters the call to simulate."""
    return await _render(page, Form([("action", page.request.query_params.get("action", "")[:255])]))


async def simulate(page: PageContext, form: Form) -> Response:
    """Show the decision that the gateway would make for the call in the form."""
    agent_id = page.param("agent_id")
    # Respond with 404 if the agent belongs to another organization or environment.
    async with page.gateway.database.reading() as session:
        await agents.get_agent(session, page.caller, page.environment, agent_id)
    try:
        body = _read_check(form, agent_id)
        gateway, organization_id = page.gateway, page.caller.organization_id
        found = await explain(
            gateway,
            gateway.rate_limiter,
            gateway.rules,
            gateway.budgets,
            organization_id,
            page.environment,
            body,
        )
    except ApiError as error:
        return await _render(page, form, error.status_code, message=error_message(error))
    return await _render(page, form, explanation=found)


def _read_check(form: Form, agent_id: str) -> Mapping[str, Json]:
    """Convert the submitted form to the request body of a check (`POST /sdk/check`).

    Raises:
        FieldErrors: The arguments are not a JSON object, the amount is not a number, or both the amount field and the
            arguments contain an amount.
    """
    context: Json = {}
    text = form["arguments"].strip()
    if text:
        try:
            context = strict_json.loads(text.encode())
        except strict_json.InvalidJson as error:
            raise FieldErrors({"arguments": [str(error).removeprefix("The body ")]}) from None
    if not isinstance(context, dict):
        raise FieldErrors({"arguments": ['must be a JSON object such as {"to": "anna"}']})
    amount = read_number(form, "amount")
    if amount is not None:
        if "amount" in context:
            raise FieldErrors({"amount": ["is also part of the arguments; enter the amount only once"]})
        context = {"amount": amount, **context}
    references = {name: form.text(name) for name in ("run_id", "call_id", "approval_id")}
    return {"agent_id": agent_id, "action": form["action"].strip(), "context": context, **references}


async def _render(
    page: PageContext,
    form: Form,
    status: int = 200,
    *,
    message: str | None = None,
    explanation: Explanation | None = None,
) -> Response:
    async with page.gateway.database.reading() as session:
        agent = await agents.get_agent(session, page.caller, page.environment, page.param("agent_id"))
        actions = await _list_actions(session, page, agent)
    return await render_page(
        page,
        "simulator.html",
        status,
        agent=AgentView.model_validate(agent, from_attributes=True),
        actions=actions,
        message=message,
        typed=form,
        questions=QUESTIONS,
        left=() if explanation is None else _skipped_questions(explanation),
        explanation=explanation,
        deciding_rule=None if explanation is None else _deciding_rule(explanation),
        answer=None if explanation is None else _format_response(explanation.response),
        headline=None if explanation is None else _headline(explanation),
    )


async def _list_actions(session: AsyncSession, page: PageContext, agent: Agent) -> Sequence[str]:
    """Return the actions that the form suggests: those of the agent's permissions, in alphabetical order."""
    found = await permissions.list_permissions(session, agent, first_page(page, MAX_SUGGESTED_ACTIONS))
    return sorted(one.action for one in found.rows)


def _skipped_questions(explanation: Explanation) -> Sequence[str]:
    """Return the questions of the steps up to `APPROVAL` that the check did not reach.

    Each step of a check answers a question, which the page shows, such as "Is the agent enabled?". Every check runs the
    steps up to `APPROVAL` until one of them decides the call. The result is empty if a later step decided the call.
    """
    if explanation.at not in _COMMON_STEPS:
        return ()
    return [QUESTIONS[step] for step in _COMMON_STEPS[_COMMON_STEPS.index(explanation.at) + 1 :]]


def _headline(explanation: Explanation) -> tuple[str, str]:
    """Return the headline for the result of a simulated check, as CSS class and text."""
    match explanation.decision:
        case ApiError(status_code=status):
            return "bad", f"The check fails with status {status}"
        case Denied():
            return "bad", "Denied"
        case PendingApproval():
            return "waits", "Approval required"
        case AllowedByApproval():
            return "good", "Allowed once"
        case Allowed():
            return "good", "Allowed"


def _deciding_rule(explanation: Explanation) -> str | None:
    """Return the id of the rule that decides about the call, or requires the approval; None if there is none."""
    decision = explanation.decision
    return None if isinstance(decision, ApiError) else decision.rule_id


def _format_response(answer: bytes | None) -> str:
    return "" if answer is None else format_json(strict_json.loads(answer))


ROUTES: Sequence[Route] = (
    page_route(SIMULATOR, show_simulator),
    form_route(SIMULATOR, simulate, authorize=require_editor),
)
