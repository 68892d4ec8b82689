"""Plugin for FastMCP servers and proxies: `FastMCP("bank", middleware=[GuardMiddleware(name="bank")])`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from toolgate import Guard, GuardError, is_guarded
from toolgate_integrations._arguments import Received, as_json, probe_of, receive
from toolgate_integrations.base import (
    ArgumentSchema,
    CustomSchema,
    InvalidArgumentsError,
    JsonSchema,
    RawSchema,
    ToolActions,
    ToolCall,
    require,
)

require("fastmcp")

from fastmcp.exceptions import ToolError
from fastmcp.server.context import Context
from fastmcp.server.dependencies import (
    bind_request_context,
    get_access_token,
    without_injected_parameters,
)
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools.base import InputRequiredToolResult, Tool, ToolResult
from fastmcp.tools.function_tool import FunctionTool
from mcp_types import CallToolRequestParams, InputRequiredResult
from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from toolgate_integrations.mcp.calls import Calls, OnHold, Refusal, Request, ToolAsksError, text_of
from toolgate_integrations.mcp.elicitation import Round

__all__ = ["GuardMiddleware"]

Called = MiddlewareContext[CallToolRequestParams]
Next = CallNext[CallToolRequestParams, ToolResult]


class GuardMiddleware(Middleware):
    """Middleware that checks and logs every tool call of a server, or of the server behind a proxy.

    It must be the first middleware in the list, because a middleware before it could respond to calls without a
    check. A tool whose function is decorated with `@guarded` checks its calls itself. If a tool that is defined in
    this process has a name with a dot, the name is its action.

    Args:
        guard: The guard that sends the checks; None for the default guard, which `toolgate.configure` can set.
        name: Server name, the first part of each action: with `name="bank"`, the tool `pay` has the action `bank.pay`.
            None for the name given to `FastMCP(…)`.
        tool_actions: Actions by tool name, as a mapping or a function of the name.
        agents: Toolgate agent ids by the client ids of access tokens. All other clients use the guard's agent id. The
            name that a client sends in its requests is ignored.
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

    def __init__(
        self,
        guard: Guard | None = None,
        *,
        name: str | None = None,
        tool_actions: ToolActions | None = None,
        agents: Mapping[str, str] | None = None,
        on_hold: OnHold = "pause",
        hold_timeout: float | None = 50.0,
        approval_page: str | None = None,
    ) -> None:
        self._calls = Calls(guard, name, tool_actions, agents, on_hold, hold_timeout, approval_page)

    async def on_call_tool(self, context: Called, call_next: Next) -> ToolResult:
        """Check a call, run the tool, and log the outcome; if the call must not run, the model reads the reason."""
        params, fastmcp = context.message, context.fastmcp_context
        known = None if fastmcp is None else await fastmcp.fastmcp.get_tool(params.name)
        function = known.fn if isinstance(known, FunctionTool) else None
        try:
            received = receive(params.arguments or {}, _schema(known))
        except InvalidArgumentsError as error:
            return ToolResult(content=str(error.__cause__), is_error=True)
        wire = None if fastmcp is None else fastmcp.request_context
        server = self._calls.name_of(*_named(fastmcp))

        async def tool(turn: Round, approved: dict[str, Any]) -> ToolResult:
            seen = context.copy(message=turn.restored(params, received.to_send(approved)))
            try:
                result = await _called(fastmcp, turn, seen, call_next)
            except ToolError as error:
                if is_guarded(function) and isinstance(error.__cause__, GuardError):
                    raise error.__cause__ from error
                raise
            if isinstance(result, InputRequiredToolResult):
                raise ToolAsksError(result)
            return result

        request = Request(
            params,
            None if wire is None else wire.session,
            None if wire is None else wire.request_id,
            lambda named: self._call(params, function, named, server, received),
            tool,
            _failed,
            server,
        )
        answer = await self._calls.carried_out(request)
        if isinstance(answer, Refusal):
            return ToolResult(content=answer.text, is_error=True)
        return InputRequiredToolResult(answer) if isinstance(answer, InputRequiredResult) else answer

    def _call(
        self,
        params: CallToolRequestParams,
        function: object,
        call_id: str | None,
        server: str,
        received: Received,
    ) -> ToolCall:
        token = get_access_token()
        client_id = None if token is None else token.client_id
        return self._calls.call(params.name, params.arguments, function, call_id, client_id, server, received)


def _named(fastmcp: Context | None) -> tuple[str | None, str]:
    """Return the server's name, and a regular expression for the names that FastMCP generates for unnamed servers."""
    if fastmcp is None:
        return None, ""
    server = fastmcp.fastmcp
    return server.name, rf"{re.escape(type(server).__name__)}-[0-9a-f]{{4}}"


def _schema(tool: Tool | None) -> ArgumentSchema:
    """Return the schema with which FastMCP validates a tool's arguments; for a remote tool, this is its JSON schema."""
    if tool is None:
        return RawSchema()
    if not isinstance(tool, FunctionTool):
        return JsonSchema(tool.parameters)
    adapter: TypeAdapter[Any] = TypeAdapter(probe_of(without_injected_parameters(tool.fn)))

    def read(sent: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = adapter.validate_python(sent)
        return found

    aliases = _aliases(tool.fn)
    return CustomSchema(
        read, lambda received: {aliases.get(name, name): each for name, each in as_json(received).items()}
    )


def _aliases(function: Any) -> dict[str, str]:
    """Return a dictionary that maps the names of a function's parameters to their aliases."""
    found: dict[str, str] = {}
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        described = [parameter.default, *getattr(parameter.annotation, "__metadata__", ())]
        for each in described:
            alias = getattr(each, "validation_alias", None) if isinstance(each, FieldInfo) else None
            if isinstance(alias, str):
                found[name] = alias
    return found


async def _called(fastmcp: Context | None, turn: Round, context: Called, call_next: Next) -> ToolResult:
    wire = None if fastmcp is None else fastmcp.request_context
    if wire is None or not turn.asked:
        return await call_next(context)
    # Tools and proxies read the user's responses from the raw request. The response to the guard's question is removed
    # from the raw request, because a tool would treat it as the response to its own question. FastMCP has no public
    # access to the raw request.
    sent = wire._srctx  # noqa: SLF001 - there is no public attribute
    seen = context.message.model_dump(
        mode="json", by_alias=True, exclude_none=True, include={"request_state", "input_responses"}
    )
    kept = {key: each for key, each in (sent.params or {}).items() if key not in _BROUGHT_BACK}
    with bind_request_context(replace(sent, params={**kept, **seen})):
        return await call_next(context)


_BROUGHT_BACK = ("requestState", "inputResponses")


def _failed(result: object) -> str | None:
    if not isinstance(result, ToolResult) or not result.is_error:
        return None
    return text_of(result.content)
