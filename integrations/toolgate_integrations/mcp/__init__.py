"""Plugin for servers of the official MCP SDK: `MCPServer("bank", extensions=[GuardExtension(name="bank")])`."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import Any

from toolgate import ConfigurationError, Guard
from toolgate_integrations._arguments import Received, as_json, receive
from toolgate_integrations.base import (
    ArgumentSchema,
    CustomSchema,
    InvalidArgumentsError,
    RawSchema,
    ToolActions,
    ToolCall,
    require,
)

require("mcp")

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult, TextContent

from toolgate_integrations.mcp.calls import Calls, OnHold, Refusal, Request, ToolAsksError, text_of
from toolgate_integrations.mcp.elicitation import Round

__all__ = ["GuardExtension"]


class GuardExtension(Extension):
    """Extension that checks and logs every tool call of an MCP server, for clients of older and newer protocol versions.

    Args:
        guard: The guard that sends the checks; None for the default guard, which `toolgate.configure` can set.
        name: Server name, the first part of each action: with `name="bank"`, the tool `pay` has the action `bank.pay`.
            None for the name given to `MCPServer(…)`.
        tool_actions: Actions by tool name, as a mapping or a function of the name.
        agents: Toolgate agent ids by the client ids of access tokens. All other clients use the guard's agent id. The
            name that a client sends in its requests is ignored.
        functions: Python functions of tools, by tool name. A function decorated with `@guarded` checks its calls
            itself. If the name of such a tool contains a dot, the name is its action.
        on_hold: Reaction to a call that requires an approval. `pause`: the client shows the approval request to its
            user; if the client cannot do that, the model reads that the call is pending. `wait`: wait for the
            approver within the run. `raise`: end the run with `ApprovalPending`. `notify_model`: the model reads that
            the call is pending.
        hold_timeout: Seconds to wait for the approver: with `wait`, and with `pause` after each response of the user.
            None for no limit; most clients stop waiting after a minute.
        approval_page: URL of the page where approvers decide, with the placeholder `{approval_id}`. With None, the
            user instead reads the approval id, and the command with which an approver decides.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    identifier = "dev.toolgate/guard"

    def __init__(
        self,
        guard: Guard | None = None,
        *,
        name: str | None = None,
        tool_actions: ToolActions | None = None,
        agents: Mapping[str, str] | None = None,
        functions: Mapping[str, object] | None = None,
        on_hold: OnHold = "pause",
        hold_timeout: float | None = 50.0,
        approval_page: str | None = None,
    ) -> None:
        if functions is not None and not isinstance(functions, Mapping):
            raise ConfigurationError(
                f"functions is {functions!r}; pass a mapping from tool names to functions"
            )
        self._calls = Calls(guard, name, tool_actions, agents, on_hold, hold_timeout, approval_page)
        self._functions = dict(functions or {})
        for tool in self._functions if name is not None else ():
            self._calls.action_of(self._call(tool, {}, None))

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Check the call, run the tool if the call is allowed, and log the outcome; else the model reads the reason."""
        name, arguments = params.name, params.arguments or {}
        behind = _server_of(call_next)
        server = self._calls.name_of(getattr(behind, "name", None), "mcp-server")
        try:
            received = receive(arguments, _schema(behind, name))
        except InvalidArgumentsError as error:
            # The text is the same as the one that the server itself returns for invalid arguments.
            text = f"Error executing tool {name}: {error.__cause__}"
            return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)

        async def tool(turn: Round, approved: dict[str, Any]) -> HandlerResult:
            # The object is changed in place, because `call_next` passes this `params` object to the tool.
            seen = turn.restored(params, received.to_send(approved))
            params.arguments = seen.arguments
            params.request_state, params.input_responses = seen.request_state, seen.input_responses
            result = await call_next(ctx)
            if isinstance(result, InputRequiredResult):
                raise ToolAsksError(result)
            return result

        request = Request(
            params,
            ctx.session,
            ctx.request_id,
            lambda named: self._call(name, arguments, named, server, received),
            tool,
            _failed,
            server,
        )
        answer = await self._calls.carried_out(request)
        if isinstance(answer, Refusal):
            return CallToolResult(content=[TextContent(type="text", text=answer.text)], is_error=True)
        return answer

    def _call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None,
        call_id: str | None,
        server: str | None = None,
        received: Received | None = None,
    ) -> ToolCall:
        token = get_access_token()
        client_id = None if token is None else token.client_id
        return self._calls.call(
            tool, arguments, self._functions.get(tool), call_id, client_id, server, received
        )


def _server_of(call_next: Any) -> object:
    """Return the server whose tool is called, or None if it is not found.

    The MCP SDK does not pass the server to an extension. The server is therefore read from the closures of
    `call_next`, which lead through the other extensions to the server's own handler, a method of the server.
    """
    seen = call_next
    while isinstance(seen, FunctionType) and seen.__closure__ is not None:
        held = dict(
            zip(seen.__code__.co_freevars, (each.cell_contents for each in seen.__closure__), strict=True)
        )
        if "handler" in held:
            return getattr(held["handler"], "__self__", None)
        seen = held.get("call_next")
    return None


def _schema(server: object, name: str) -> ArgumentSchema:
    """Return the schema with which the server validates the arguments of a tool.

    Raises:
        ConfigurationError: The server that contains the tool was not found.
    """
    if not isinstance(server, MCPServer):
        raise ConfigurationError(
            f"the guard cannot find the server of the tool {name!r}; pass the GuardExtension to "
            "MCPServer(extensions=[…])"
        )
    tool = server._tool_manager.get_tool(name)  # noqa: SLF001 - the public attributes cannot validate arguments
    if tool is None:
        return RawSchema()
    return CustomSchema(tool.fn_metadata.validate_arguments, as_json)


def _failed(result: HandlerResult) -> str | None:
    if isinstance(result, CallToolResult) and result.is_error:
        return text_of(result.content)
    if isinstance(result, dict) and result.get("isError"):
        return str(result.get("content"))
    return None
