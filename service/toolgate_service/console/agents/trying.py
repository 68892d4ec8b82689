"""Trying a check: what it would be answered now, and why, step by step. Nothing is held, used up, counted or recorded."""

from collections.abc import Mapping, Sequence

from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.responses import Response
from starlette.routing import Route

from toolgate_service import exact_json
from toolgate_service.agents import service as agents
from toolgate_service.agents.models import Agent
from toolgate_service.agents.schemas import AgentView
from toolgate_service.checks.decide import Blocked, Permitted
from toolgate_service.checks.explaining import Explanation, explain
from toolgate_service.checks.held import Held, LetThrough
from toolgate_service.checks.steps import Step
from toolgate_service.console.agents.terms import number_in
from toolgate_service.console.forms import Form
from toolgate_service.console.paging import first_page
from toolgate_service.console.problems import words_of
from toolgate_service.console.rendering import show
from toolgate_service.console.text import pretty
from toolgate_service.console.visits import Visit, by_changers, deed, page
from toolgate_service.errors import ApiError, FieldErrors
from toolgate_service.exact_json import Json
from toolgate_service.permissions import service as permissions

TRY = "/console/agents/{agent_id}/try"
#: actions that the form suggests
SUGGESTED = 100

#: what each step asks; those up to the approval are taken in this order by every check
QUESTIONS: Mapping[Step, str] = {
    Step.KEY: "Does the API key work?",
    Step.ORGANIZATION: "Is the organization active?",
    Step.RATE: "Is it within the rate of its plan?",
    Step.AGENT: "Is the agent known?",
    Step.SWITCHED_ON: "Is it switched on?",
    Step.PERMISSION: "Has it a permission for the action?",
    Step.AMOUNT_NAMED: "Is the amount named?",
    Step.AMOUNT_READ: "Is the amount a number?",
    Step.AMOUNT_WITHIN: "Is the amount within the largest?",
    Step.APPROVAL: "Must a person approve?",
    Step.NAMED: "Is the approval it names its own?",
    Step.CALL: "Is it the first time for this call?",
    Step.APPROVED: "Is there an approval to use?",
    Step.CHANGED: "Did a person change the call?",
    Step.OPEN: "Is the approval it names still open?",
    Step.DENIED: "Was the same denied of late?",
    Step.DENIALS: "Is the action blocked by denials?",
    Step.ALLOWED: "Is it allowed for a while?",
    Step.WAITING: "Does the same call wait already?",
    Step.ROOM: "Is there room for one more request?",
    Step.ASKED: "Who is asked?",
}
_BY_ALL = tuple(QUESTIONS)[: tuple(QUESTIONS).index(Step.APPROVAL) + 1]


async def trying(visit: Visit) -> Response:
    """Show the form."""
    return await _page(visit, Form([("action", visit.request.query_params.get("action", "")[:255])]))


async def tried(visit: Visit, form: Form) -> Response:
    """Show what the check would be answered."""
    agent_id = visit.request.path_params["agent_id"]
    # Not of another organization, nor of the other environment: of those nothing is said at all.
    async with visit.gateway.database.reading() as session:
        await agents.get_agent(session, visit.caller, visit.environment, agent_id)
    try:
        body = _check_in(form, agent_id)
        found = await explain(visit.gateway, visit.caller.organization_id, visit.environment, body)
    except ApiError as error:
        return await _page(visit, form, error.status_code, said=words_of(error))
    return await _page(visit, form, explanation=found)


def _check_in(form: Form, agent_id: str) -> Mapping[str, Json]:
    """Return the check that a form asks for, as its body.

    Raises:
        FieldErrors: the arguments are no JSON object, or the amount is no number or named twice.
    """
    context: Json = {}
    text = form["arguments"].strip()
    if text:
        try:
            context = exact_json.loads(text.encode())
        except exact_json.InvalidJson as error:
            raise FieldErrors({"arguments": [str(error).removeprefix("The body ")]}) from None
    if not isinstance(context, dict):
        raise FieldErrors({"arguments": ['must be a JSON object, for instance {"to": "anna"}']})
    amount = number_in(form, "amount")
    if amount is not None:
        if "amount" in context:
            raise FieldErrors({"amount": ["is named in the arguments as well; name it in one place"]})
        context = {"amount": amount, **context}
    references = {name: form.text(name) for name in ("run_id", "call_id", "approval_id")}
    return {"agent_id": agent_id, "action": form["action"].strip(), "context": context, **references}


async def _page(
    visit: Visit,
    form: Form,
    status: int = 200,
    *,
    said: str | None = None,
    explanation: Explanation | None = None,
) -> Response:
    async with visit.gateway.database.reading() as session:
        agent = await agents.get_agent(
            session, visit.caller, visit.environment, visit.request.path_params["agent_id"]
        )
        actions = await suggested(session, visit, agent)
    return await show(
        visit,
        "try.html",
        status,
        agent=AgentView.model_validate(agent, from_attributes=True),
        actions=actions,
        said=said,
        typed=form,
        questions=QUESTIONS,
        left=() if explanation is None else _left(explanation),
        explanation=explanation,
        answer=None if explanation is None else _pretty(explanation.answer),
        headline=None if explanation is None else _headline(explanation),
    )


async def suggested(session: AsyncSession, visit: Visit, agent: Agent) -> Sequence[str]:
    """Return actions that an agent has permissions for."""
    found = await permissions.list_permissions(session, agent, first_page(visit, SUGGESTED))
    return sorted(one.action for one in found.rows)


def _left(explanation: Explanation) -> Sequence[str]:
    """Return the questions that every check comes to, and this one did not."""
    if explanation.at not in _BY_ALL:
        return ()
    return [QUESTIONS[step] for step in _BY_ALL[_BY_ALL.index(explanation.at) + 1 :]]


def _headline(explanation: Explanation) -> tuple[str, str]:
    """Return how it ends, as a class and in words."""
    match explanation.verdict:
        case ApiError(status_code=status):
            return "bad", f"Refused with {status}"
        case Blocked():
            return "bad", "Blocked"
        case Held():
            return "waits", "Held for a person"
        case LetThrough():
            return "good", "Allowed, this once"
        case Permitted():
            return "good", "Allowed"


def _pretty(answer: bytes | None) -> str:
    return "" if answer is None else pretty(exact_json.loads(answer))


ROUTES: Sequence[Route] = (
    Route(TRY, page(trying), methods=["GET"]),
    Route(TRY, deed(tried, by=by_changers), methods=["POST"]),
)
