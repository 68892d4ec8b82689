"""The official MCP SDK: `MCPServer("bank", extensions=[GuardExtension(name="bank")])`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from toolgate import ApprovalPending, ConfigurationError, Guard, GuardError
from toolgate_integrations._base import Bridge, ToolActions, ToolCall, require
from toolgate_integrations.refusals import refusal_text

require("mcp")

from mcp import MCPError
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension
from mcp_types import CallToolRequestParams, CallToolResult, ElicitResult, InputRequiredResult, TextContent
from mcp_types.version import is_version_at_least

from toolgate_integrations._mcp_asking import NOBODY_ASKED, ROUNDS, Page, Round, Way, server_name, way_to_ask

__all__ = ["GuardExtension"]

OnHold = Literal["elicit", "wait", "tell"]


class GuardExtension(Extension):
    """Guards every tool call of a server, in both eras of the protocol.

    Args:
        guard: The guard that asks; None is the environment's.
        name: The server's, as its actions begin: the tool `pay` of `name="bank"` is `bank.pay`.
        tool_actions: Actions of tools by their names: a mapping, or a function of the name.
        agents: Agent ids by the client ids of access tokens; others act as the guard's own agent. What a client
            calls itself counts for nothing.
        functions: Functions of tools by the tools' names: one that is `@guarded` asks by itself, and a tool's
            dotted name is its action.
        on_hold: What a held call does: `elicit` points the client's user to the approval, and tells where the
            client cannot; `wait` waits for the person; `tell` lets the model read that it waits.
        hold_timeout: Seconds to wait for the person: in `wait`, and in `elicit` after each of the user's
            answers. None waits as long as it takes; most clients give up after a minute.
        approval_page: Address of the page where people decide, with `{approval_id}` in it. None names the
            approval and the command instead.

    Raises:
        ConfigurationError: An argument is wrong.
    """

    identifier = "dev.toolgate/guard"

    def __init__(
        self,
        guard: Guard | None = None,
        *,
        name: str,
        tool_actions: ToolActions | None = None,
        agents: Mapping[str, str] | None = None,
        functions: Mapping[str, object] | None = None,
        on_hold: OnHold = "elicit",
        hold_timeout: float | None = 50.0,
        approval_page: str | None = None,
    ) -> None:
        if on_hold not in ("elicit", "wait", "tell"):
            raise ConfigurationError(f"on_hold is {on_hold!r}; use 'elicit', 'wait' or 'tell'")
        self._name = server_name(name)
        self._elicits = on_hold == "elicit"
        self._page = Page(approval_page)
        if functions is not None and not isinstance(functions, Mapping):
            raise ConfigurationError(f"functions is {functions!r}; pass a mapping of tool names to functions")
        self._functions = dict(functions or {})
        self._bridge = Bridge(
            guard, tool_actions=tool_actions, agents=agents, on_hold=on_hold, hold_timeout=hold_timeout
        )
        for tool in self._functions:
            self._bridge.action_of(self._call(tool, {}, None))

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Ask, let the tool run, record; what is refused is told to the model."""
        turn = Round.of(params)
        way = self._way(ctx)
        while True:
            # Without a way to come back the same call is one that begins anew, and bears no name.
            named = turn.call_id if way is not None or turn.asked else None
            call = self._call(params.name, params.arguments or {}, named)
            if (why := turn.given_up) is not None:
                await self._bridge.areject(call, why)
                return _refused(f"Not done. {why}")
            try:
                return await self._carried_out(turn, call, params, ctx, call_next)
            except ApprovalPending as pending:
                if named is None:
                    return _refused(refusal_text(pending))
                if way is None or turn.number >= ROUNDS:
                    await self._bridge.areject(call, NOBODY_ASKED)
                    return _refused(f"Not done. {NOBODY_ASKED}")
                question = self._page.question(way, pending)
                if _is_modern(ctx):
                    return turn.required(question)
                turn = turn.answered(await _elicited(ctx, question))
            except GuardError as error:
                return _refused(refusal_text(error))

    async def _carried_out(
        self,
        turn: Round,
        call: ToolCall,
        params: CallToolRequestParams,
        ctx: ServerRequestContext[Any, Any],
        call_next: CallNext,
    ) -> HandlerResult:
        async def tool(arguments: dict[str, Any]) -> HandlerResult:
            # The tool is called with the very object that this was given.
            seen = turn.restored(params, arguments)
            params.arguments = seen.arguments
            params.request_state, params.input_responses = seen.request_state, seen.input_responses
            result = await call_next(ctx)
            if isinstance(result, InputRequiredResult):
                raise _ToolAsksError(result)
            return result

        try:
            return await self._bridge.arun(
                call, tool, _failed, (_ToolAsksError,), waits=self._elicits and turn.asked
            )
        except _ToolAsksError as asks:
            return asks.result

    def _call(self, tool: str, arguments: Mapping[str, Any], call_id: str | None) -> ToolCall:
        function = self._functions.get(tool)
        token = get_access_token()
        own = function is not None and "." in tool.strip(".")
        return ToolCall(
            tool,
            arguments,
            call_id=call_id,
            agent=None if token is None else token.client_id,
            function=function,
            server=None if own else self._name,
        )

    def _way(self, ctx: ServerRequestContext[Any, Any]) -> Way | None:
        if not self._elicits or not (_is_modern(ctx) or ctx.session.can_send_request):
            return None
        return way_to_ask(ctx.session.client_capabilities, self._page)


class _ToolAsksError(Exception):
    """The tool itself asks the client something, and is called again with the answer."""

    def __init__(self, result: InputRequiredResult) -> None:
        super().__init__("the tool asks for input")
        self.result = result


def _is_modern(ctx: ServerRequestContext[Any, Any]) -> bool:
    return is_version_at_least(ctx.protocol_version, "2026-07-28")


async def _elicited(ctx: ServerRequestContext[Any, Any], question: Any) -> ElicitResult:
    try:
        if question.mode == "url":
            return await ctx.session.elicit_url(
                question.message, question.url, question.elicitation_id, ctx.request_id
            )
        return await ctx.session.elicit_form(question.message, question.requested_schema, ctx.request_id)
    except MCPError:
        # The client could not ask after all: nobody will decide because of this call.
        return ElicitResult(action="cancel")


def _failed(result: HandlerResult) -> str | None:
    if isinstance(result, CallToolResult) and result.is_error:
        return "\n".join(each.text for each in result.content if isinstance(each, TextContent))
    if isinstance(result, dict) and result.get("isError"):
        return str(result.get("content"))
    return None


def _refused(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)
