"""Execution of one tool call of an MCP server, in one or several requests of the client.

In older protocol versions, the server can send a question to the client while a call runs. From protocol 2026-07-28
on, the server returns the question as a result, and the client answers in a new request.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from mcp import MCPError
from mcp.server.session import ServerSession
from mcp_types import INTERNAL_ERROR, CallToolRequestParams, ElicitResult, InputRequiredResult, TextContent
from mcp_types.version import is_version_at_least

from toolgate import ApprovalPending, ConfigurationError, Guard, GuardError
from toolgate_integrations._arguments import Received
from toolgate_integrations._options import OnHold
from toolgate_integrations.base import Bridge, ToolActions, ToolCall, refusal_text
from toolgate_integrations.mcp.elicitation import NOT_DECIDED, ROUNDS, Page, Round, way_to_ask
from toolgate_integrations.mcp.preparation import prepare

__all__ = ["Calls", "OnHold", "Refusal", "Request", "ToolAsksError", "text_of"]

T = TypeVar("T")
logger = logging.getLogger("toolgate")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Refusal of a call, which the model reads instead of the tool's result.

    Attributes:
        text: The text for the model.
        error: The error because of which the call did not run; None if the call was not checked.
    """

    text: str
    error: GuardError | None = None


class ToolAsksError(Exception):
    """Raised if the tool itself requests input from the client; the tool is called again with the client's answer.

    The call is then not logged as failed.

    Attributes:
        result: The tool's result, which contains the requests for input.
    """

    def __init__(self, result: Any) -> None:
        super().__init__("the tool asks for input")
        self.result = result


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """A client's request to call a tool.

    Attributes:
        params: Parameters of the request.
        session: The client's session; None for a call inside the process.
        request_id: The client's id of the request.
        call: Function that returns the `ToolCall` for a call id, or for None if the call has no id.
        tool: Function that runs the tool with the client's answers and the approved arguments, which are several if
            `further` returns calls. It raises `ToolAsksError` if the tool itself requests input from the client.
        failed: Function that returns the error message in a tool's result, or None if the result is not an error.
        server: Server name, the first part of the action; used if `Calls.name` is None.
        further: Function that returns further calls for a call id, each of which must be allowed too.
    """

    params: CallToolRequestParams
    session: ServerSession | None
    request_id: Any
    call: Callable[[str | None], ToolCall]
    tool: Callable[..., Awaitable[T]]
    failed: Callable[[T], str | None]
    server: str | None = None
    further: Callable[[str | None], Sequence[ToolCall]] = lambda _: ()

    @property
    def can_only_return_questions(self) -> bool:
        """True if a question to the user must be returned as the call's result (from protocol 2026-07-28 on).

        The client then sends its user's answer in a new request.
        """
        return self.session is not None and is_version_at_least(self.session.protocol_version, "2026-07-28")


class Calls:
    """Checks, runs and logs the tool calls of one MCP server.

    Args:
        guard: The guard that sends the checks; None for the default guard, which `toolgate.configure` can set.
        name: Server name, the first part of each action; None to use the name of each request's server.
        tool_actions: Actions by tool name.
        agents: Toolgate agent ids by the client ids of access tokens.
        on_hold: Reaction to a call that requires an approval.
        hold_timeout: Seconds to wait for the approver.
        approval_page: URL of the page where approvers decide.

    Attributes:
        name: The argument `name`.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    def __init__(
        self,
        guard: Guard | None,
        name: str | None,
        tool_actions: ToolActions | None,
        agents: Mapping[str, str] | None,
        on_hold: OnHold,
        hold_timeout: float | None,
        approval_page: str | None,
    ) -> None:
        self.name = None if name is None else _server_name(name)
        self._page = Page(approval_page)
        self._bridge = Bridge(guard, tool_actions, agents, on_hold, hold_timeout, can_pause=True)
        self._elicits = self._bridge.on_hold == "pause"
        self._hold_timeout = hold_timeout

    def name_of(self, server: object, generated: str) -> str:
        """Return the first part of a server's actions: the name given to the guard, or else the server's name.

        Args:
            server: The server's name; None if it is unknown.
            generated: Regular expression for the names that the library generates for servers without a name.

        Raises:
            MCPError: The server's name cannot be the beginning of an action; the logged error contains the fix.
        """
        if self.name is not None:
            return self.name
        found = server if isinstance(server, str) else ""
        if _USABLE.fullmatch(found) and found != "tools" and not re.fullmatch(generated, found):
            return found
        error = ConfigurationError(
            f"the server's name {found!r} cannot be the first part of its actions; use only letters, "
            "digits, '-' and '_', and not the name 'tools': rename the server, or pass name='…' to its "
            "guard"
        )
        self._bridge.report(error)
        raise MCPError(INTERNAL_ERROR, str(error)) from error

    def action_of(self, call: ToolCall) -> str:
        """Return the action of a tool call.

        Raises:
            ConfigurationError: Two tools have the same default action.
        """
        return self._bridge.action_of(call)

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        function: object,
        call_id: str | None,
        client_id: str | None,
        server: str | None = None,
        received: Received | None = None,
    ) -> ToolCall:
        """Return the `ToolCall` with which a client's tool call is checked.

        If the tool's name contains a dot and its function is defined in this process, the name itself is the action.
        """
        own = function is not None and "." in name.strip(".")
        return ToolCall(
            name,
            (arguments or {}) if received is None else received.values,
            call_id=call_id,
            agent=client_id,
            function=function,
            server=None if own else self.name or server,
            received=received,
        )

    async def carried_out(self, request: Request[T]) -> T | Refusal | InputRequiredResult:
        """Check a call, run the tool if the call is allowed, and log the outcome.

        Returns:
            The tool's result, the refusal for the model, or the question that the client must show to its user.

        Raises:
            MCPError: A setting is missing or wrong, or the gateway rejects the API key.
        """
        turn = Round.of(request.params, self.name or request.server or "")
        way = way_to_ask(self._reachable(request), self._page)
        while True:
            # If the client cannot show a question, the model repeats the call after the approval. The check then
            # contains no call id, because the repeated call has another id.
            named = turn.call_id if way is not None or turn.asked else None
            calls = [request.call(named), *request.further(named)]
            if (why := turn.given_up) is not None:
                return await self.withdrawn(why, *calls)
            try:
                return await self._run(turn, calls, request)
            except self._bridge.fatal as error:
                # A protocol error is raised instead of a tool result, because clients raise it to the program, and
                # the server keeps running.
                raise MCPError(INTERNAL_ERROR, str(error)) from error
            except ApprovalPending as pending:
                if named is None:
                    return Refusal(refusal_text(pending), pending)
                if way is None or request.session is None or turn.number >= ROUNDS:
                    return await self.withdrawn(NOT_DECIDED, *calls)
                question = self._page.question(way, pending)
                if request.can_only_return_questions:
                    return turn.required(question)
                turn = turn.answered(await _elicited(request.session, question, request.request_id))
            except GuardError as error:
                return Refusal(refusal_text(error), error)

    async def _run(self, turn: Round, calls: Sequence[ToolCall], request: Request[T]) -> T:
        waits = self._elicits and turn.asked
        if len(calls) > 1:
            await prepare(self._bridge, calls, self._hold_timeout, waits=waits)
        approved: list[dict[str, Any]] = []

        async def run(arguments: dict[str, Any]) -> T:
            approved.append(arguments)
            if len(approved) == len(calls):
                return await request.tool(turn, *approved)
            return await check(calls[len(approved)])

        async def check(call: ToolCall) -> T:
            return await self._bridge.arun(call, run, request.failed, (ToolAsksError,), waits=waits)

        try:
            return await check(calls[0])
        except ToolAsksError as asks:
            answer: T = asks.result
            return answer

    async def permitted(self, call: ToolCall, run: Callable[[], Awaitable[T]]) -> T:
        """Check a request other than a tool call, run it if it is allowed, and log the outcome.

        Args:
            call: The request, as a call.
            run: Function that runs the request.

        Raises:
            GuardError: The request did not run.
        """
        return await self._bridge.arun(call, lambda _: run())

    def record_denial(self, call: ToolCall, why: str) -> None:
        """Log a call that is denied without a check.

        Args:
            call: The call.
            why: The reason.
        """
        try:
            with self._bridge.acting(call):
                self._bridge.guard.record(self.action_of(call), "denied", call.arguments, reason=why)
        except GuardError as error:
            logger.warning("a denied call (%r) could not be logged: %s", call.name, error)

    async def withdrawn(self, why: str, *calls: ToolCall) -> Refusal:
        """Refuse calls without a check: cancel their approval requests if there are any, and log the reason.

        Args:
            why: The reason, for the log entries and for the model.
            calls: The calls.
        """
        for call in calls:
            # The rejection is not final if the user only closed the question, because closing it does not reject the
            # call.
            await self._bridge.areject(call, why, final=why != NOT_DECIDED)
        return Refusal(f"Not done. {why}")

    def _reachable(self, request: Request[T]) -> Any:
        session = request.session
        if not self._elicits or session is None:
            return None
        return (
            session.client_capabilities
            if request.can_only_return_questions or session.can_send_request
            else None
        )


def text_of(content: Iterable[Any]) -> str:
    """Return the text parts in the content of a tool's result, one per line."""
    return "\n".join(each.text for each in content if isinstance(each, TextContent))


#: Server names that can be used in actions unchanged.
_USABLE: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")


def _server_name(name: object) -> str:
    if not isinstance(name, str) or not name.strip() or name == "tools":
        raise ConfigurationError(
            f"name is {name!r}; use the first part of the server's actions: letters, digits, '-' and '_', "
            "and not 'tools'"
        )
    return name


async def _elicited(session: ServerSession, question: Any, request_id: Any) -> ElicitResult:
    try:
        if question.mode == "url":
            return await session.elicit_url(
                question.message, question.url, question.elicitation_id, request_id
            )
        return await session.elicit_form(question.message, question.requested_schema, request_id)
    except MCPError:
        # The client could not show the question. The call is handled as if the user had closed the question.
        return ElicitResult(action="cancel")
