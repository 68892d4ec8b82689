"""Getting-started page, which guides the user from an empty organization to the first guarded tool call."""

import keyword
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from urllib.parse import urlsplit

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.agents import service as agents
from toolgate_service.agents.models import Agent
from toolgate_service.approvals.models import PENDING, Approval
from toolgate_service.console.agents import read_new_agent, read_new_permission
from toolgate_service.console.dependencies import (
    Form,
    PageContext,
    form_route,
    page_route,
    require_admin,
)
from toolgate_service.console.templates import first_page, render_page, render_partial
from toolgate_service.core.addresses import is_loopback
from toolgate_service.core.errors import ApiError
from toolgate_service.core.strict_json import plain_number
from toolgate_service.logs.models import LogEntry
from toolgate_service.organizations import repository
from toolgate_service.organizations import service as organizations
from toolgate_service.permissions import service as permissions
from toolgate_service.permissions.models import Permission

START = "/console/start"

#: Initial values of the form that creates the first agent and its permission.
SUGGESTED_VALUES = Form(
    [
        ("name", "refund-bot"),
        ("action", "stripe.refund"),
        ("max_amount", "100"),
        ("amount_required", "on"),
    ]
)
#: Amount of the call in the example program. If the permission allows less, the program uses the permission's maximum.
_FIRST_AMOUNT = Decimal(5)
#: Line that ends the program in the shell command, which passes the program as a here-document. The program itself
#: never contains this line, because its variable parts contain no line breaks.
_HEREDOC_END = "END"
#: Names that the example program already uses, so that its tool function must have another name.
_RESERVED_NAMES = frozenset({"flush", "guarded", "print"})


@dataclass(frozen=True, slots=True)
class NewestCall:
    """Newest tool call in an environment.

    Attributes:
        action: Action of the call, such as ``stripe.refund``.
        status: Status of the call's log entry; ``pending`` for a call that waits for an approval.
        agent: Name of the agent that made the call.
    """

    action: str
    status: str
    agent: str


@dataclass(frozen=True, slots=True)
class Progress:
    """Steps of getting started that the user has completed. An attribute is None if its step is not completed.

    Attributes:
        agent: Agent that the URL selects, or the newest agent.
        permission: Newest permission of the agent.
        arrival: Newest tool call of any agent in the environment.
    """

    agent: Agent | None
    permission: Permission | None
    arrival: NewestCall | None


async def load_progress(session: AsyncSession, page: PageContext) -> Progress:
    """Return the getting-started steps that are completed in the environment of the page."""
    agent = await _agent(session, page)
    newest = (
        None if agent is None else await permissions.list_permissions(session, agent, first_page(page, 1))
    )
    permission = newest.rows[0] if newest is not None and newest.rows else None
    return Progress(agent, permission, await find_newest_call(session, page))


async def has_begun(session: AsyncSession, page: PageContext) -> bool:
    """Return True if the gateway has received at least one tool call in the environment of the page."""
    return await find_newest_call(session, page) is not None


async def find_newest_call(session: AsyncSession, page: PageContext) -> NewestCall | None:
    """Return the newest tool call of the environment; None if there was no call.

    If no log entry exists yet, the result is the newest call that waits, or waited, for an approval.
    """
    where = (page.caller.organization_id, page.environment)
    entries = select(LogEntry.action, LogEntry.status, LogEntry.agent_id).where(
        LogEntry.organization_id == where[0], LogEntry.environment == where[1]
    )
    newest = entries.order_by(col(LogEntry.created_at).desc(), col(LogEntry.id).desc()).limit(1)
    found = (await session.exec(newest)).first()
    if found is None:
        requests = select(Approval.action, Approval.agent_id).where(
            Approval.organization_id == where[0], Approval.environment == where[1]
        )
        first = requests.order_by(col(Approval.created_at).desc(), col(Approval.id).desc()).limit(1)
        request = (await session.exec(first)).first()
        if request is None:
            return None
        found = (request[0], PENDING, request[1])
    action, status, agent_id = found
    name = (await session.exec(select(Agent.name).where(Agent.id == agent_id))).one()
    return NewestCall(action, status, name)


async def _agent(session: AsyncSession, page: PageContext) -> Agent | None:
    wanted = page.request.query_params.get("agent")
    if wanted:
        try:
            return await agents.get_agent(session, page.caller, page.environment, wanted)
        except ApiError:
            # The agent in the URL does not exist, for example because it was deleted: use the newest agent instead.
            pass
    found = await agents.list_agents(session, page.caller, page.environment, first_page(page, 1))
    return found.rows[0] if found.rows else None


@dataclass(frozen=True, slots=True)
class Snippet:
    """Shell commands with which the user makes a first guarded tool call.

    Attributes:
        url: URL of the gateway.
        api_key: API key, in full or masked.
        max_amount: Largest amount that the permission allows; None if the permission has no limit.
        requires_approval: True if the permission requires an approval, so that the call must wait for it.
    """

    url: str
    api_key: str
    agent_id: str
    action: str
    max_amount: Decimal | None
    requires_approval: bool

    @property
    def is_readable(self) -> bool:
        """True if other machines on the network can read the calls: the URL is plain http to another machine."""
        parts = urlsplit(self.url)
        return parts.scheme != "https" and not is_loopback(parts.hostname or "")

    @property
    def text(self) -> str:
        """Shell commands as text: they set environment variables and run an example program."""
        given = {
            "TOOLGATE_URL": self.url,
            "TOOLGATE_API_KEY": self.api_key,
            "TOOLGATE_AGENT_ID": self.agent_id,
        }
        exports = [f"export {name}={shlex.quote(value)}" for name, value in given.items()]
        return "\n".join([*exports, "", f"python - <<'{_HEREDOC_END}'", *self._program, _HEREDOC_END])

    @property
    def _program(self) -> Sequence[str]:
        name = function_name(self.action)
        takes, given = "order: str", '"first"'
        if self.max_amount is not None:
            amount = plain_number(min(self.max_amount, _FIRST_AMOUNT))
            takes, given = f"{takes}, amount: float", f"{given}, amount={amount}"
        option = ', on_hold="wait"' if self.requires_approval else ""
        return (
            "from toolgate import flush, guarded",
            "",
            f"@guarded({self.action!r}{option})",
            f"def {name}({takes}):",
            '    return f"done: {order}"',
            "",
            f"print({name}({given}))",
            "flush()",
        )


def function_name(action: str) -> str:
    """Return a Python function name for the last part of an action: "refund" for ``stripe.refund``."""
    name = re.sub(r"\W+", "_", action.rpartition(".")[2], flags=re.ASCII).strip("_").lower()
    return (
        name
        if name.isidentifier() and not keyword.iskeyword(name) and name not in _RESERVED_NAMES
        else "call"
    )


async def create_first_agent(page: PageContext, form: Form) -> Response:
    """Create the first agent and its permission in one transaction."""
    new_agent, new_permission = read_new_agent(form), read_new_permission(form)
    agent_id = await permissions.create_agent_with_permission(
        page.gateway, page.caller, page.environment, new_agent, new_permission
    )
    return RedirectResponse(page.url(START, agent=agent_id), 303)


async def show_key(page: PageContext, _form: Form) -> Response:
    """Show the shell commands with the full API key, and write an audit event about the display of the key."""
    async with page.gateway.database.reading() as session:
        found = await load_progress(session, page)
    if found.permission is None:
        return await show_start(page)
    shown = await organizations.show_key(page.gateway, page.caller, page.environment)
    response = await show_start(page, api_key=shown.api_key)
    response.headers["Cache-Control"] = "no-store"
    return response


async def show_first_call(page: PageContext) -> Response:
    """Return an HTML fragment that shows the newest tool call, if there is one.

    A script of the getting-started page polls it.
    """
    async with page.gateway.database.reading() as session:
        found = await find_newest_call(session, page)
    return render_partial("part_first_call.html", page=page, arrival=found)


async def show_start(
    page: PageContext,
    status: int = 200,
    *,
    message: str | None = None,
    typed: Form = SUGGESTED_VALUES,
    api_key: str | None = None,
) -> Response:
    """Show the getting-started page with the completed steps and the next step."""
    async with page.gateway.database.reading() as session:
        found = await load_progress(session, page)
        key = await repository.organization_key(session, page.caller.organization_id, page.environment)
    masked = repository.masked_key(key)
    return await render_page(
        page,
        "start.html",
        status,
        agent=found.agent,
        permission=found.permission,
        arrival=found.arrival,
        snippet=_snippet(page, found, api_key or masked),
        # If the full key was requested but is equal to the masked one, the gateway could not decrypt it, because its
        # secret was lost. The page then does not show the shell commands.
        key_is_shown=api_key not in {None, masked},
        key_is_unreadable=api_key == masked,
        message=message,
        typed=typed,
    )


def _snippet(page: PageContext, found: Progress, api_key: str) -> Snippet | None:
    if found.agent is None or found.permission is None:
        return None
    return Snippet(
        url=(page.gateway.settings.public_url or str(page.request.base_url)).rstrip("/"),
        api_key=api_key,
        agent_id=found.agent.id,
        action=found.permission.action,
        max_amount=found.permission.max_amount,
        requires_approval=found.permission.requires_approval,
    )


ROUTES: Sequence[Route] = (
    page_route(START, show_start),
    form_route(START, create_first_agent, authorize=require_admin, on_error=show_start, keeps_input=True),
    # The form's URL also needs a GET route: after the form was submitted, the browser's address bar contains this URL,
    # and the user may open it again.
    page_route(f"{START}/key", show_start),
    form_route(f"{START}/key", show_key, authorize=require_admin),
    page_route(f"{START}/arrived", show_first_call),
)
