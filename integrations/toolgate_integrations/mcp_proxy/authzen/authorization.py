"""Authorization of the client's MCP requests by AuthZEN mappings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

from mcp import MCPError
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, CallToolRequestParams, Tool

from toolgate import ActionDenied, ApprovalPending, GuardError
from toolgate_integrations.base import ToolCall, refusal_text
from toolgate_integrations.mcp.calls import Calls
from toolgate_integrations.mcp_proxy.authzen.checks import Check, to_check
from toolgate_integrations.mcp_proxy.authzen.defaults import DEFAULT_MAPPINGS, is_passed
from toolgate_integrations.mcp_proxy.authzen.errors import MappingError
from toolgate_integrations.mcp_proxy.authzen.mapping import Evaluation, Identity, resolve
from toolgate_integrations.mcp_proxy.pins import MAPPING_KEY

__all__ = ["ACCESS_DENIED", "Authorization", "MappedCall", "mapping_error"]

Context = ServerRequestContext[Any, Any]
#: JSON-RPC error code of a denied request
ACCESS_DENIED: Final = -32001
_CALL: Final = "tools/call"
# Parameters that the default mappings read. The others may contain values that CEL cannot represent.
_READ: Final = frozenset({"name", "uri", "ref", "level", "taskId", "protocolVersion"})
# Parameters of a repeated request that the first one does not have.
_ROUNDS: Final = frozenset({"requestState", "inputResponses"})


class MappedCall:
    """A tool call with the checks that decide it.

    Args:
        params: Parameters of the request, with the arguments that the tool receives.
        checks_of: Function that returns the checks for these or other arguments of the tool.

    Raises:
        MappingError: The checks cannot be constructed.
    """

    def __init__(
        self, params: CallToolRequestParams, checks_of: Callable[[Mapping[str, Any]], list[Check]]
    ) -> None:
        self._params, self._checks_of = params, checks_of
        self._checks = checks_of(params.arguments or {})

    def calls(self, call_id: str | None) -> list[ToolCall]:
        """Return one `ToolCall` for each check of this tool call. The tool may run only if all of them are allowed.

        Args:
            call_id: Id of the tool call, from which the ids of the checks are derived; None if it has no id.
        """
        return [
            ToolCall(
                self._params.name,
                check.arguments,
                # An approval of a call with an id covers one action only.
                call_id if call_id is None or index == 0 else f"{call_id}:{index}",
                action=check.action,
            )
            for index, check in enumerate(self._checks)
        ]

    def restore(self, approved: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the arguments of the tool from the approved arguments of the checks.

        Raises:
            MappingError: An approver's edit changed more than the tool's arguments, or the mapping results in other
                checks for the edited arguments.
        """
        checked = [check.arguments for check in self._checks]
        if _text(approved) == _text(checked):
            return dict(self._params.arguments or {})
        arguments, again = {}, list[Check]()
        with suppress(KeyError, TypeError, MappingError):
            arguments = approved[0]["context"]["arguments"]
            again = self._checks_of(arguments)
        if [check.action for check in again] != [check.action for check in self._checks] or _text(
            approved
        ) != _text([check.arguments for check in again]):
            raise MappingError(
                "the approved edit does not correspond to the mapping: edit context.arguments, and all values that "
                "the mapping reads from them"
            )
        return dict(arguments)


class Authorization:
    """Middleware that checks each request of the client by its default mapping.

    Tool calls are checked by `ToolCalls`, after the tool's definition was compared with the trusted one; `map_call`
    returns their checks. `ping` and notifications pass, and requests without a mapping are denied.

    Args:
        calls: Sends the checks and logs the outcomes.
        server: Configured name of the server.
        audience: Audience of the tokens, which identifies the proxy.
    """

    def __init__(self, calls: Calls, server: str, audience: str) -> None:
        self._calls, self._server, self._audience = calls, server, audience

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Handle the client's request if the gateway allows it."""
        if ctx.request_id is None or is_passed(ctx.method) or ctx.method == _CALL:
            return await call_next(ctx)
        mapping = DEFAULT_MAPPINGS.get(ctx.method)
        if mapping is None:
            self._record(ctx, why := f"the method {ctx.method!r} has no mapping")
            raise MCPError(code=ACCESS_DENIED, message=f"Access denied: {why}")
        try:
            [evaluation] = resolve(mapping, _read_of(ctx.params), self._identity(ctx))
            check = to_check(evaluation, self._server)
        except MappingError as error:
            self._record(ctx, str(error))
            raise mapping_error(error) from error
        try:
            return await self._calls.permitted(
                ToolCall(ctx.method, check.arguments, action=check.action), lambda: call_next(ctx)
            )
        except (ActionDenied, ApprovalPending) as error:
            raise MCPError(code=ACCESS_DENIED, message=f"Access denied: {refusal_text(error)}") from error
        except GuardError as error:
            raise MCPError(code=INTERNAL_ERROR, message=str(error)) from error

    def map_call(self, ctx: Context, tool: Tool, params: CallToolRequestParams) -> MappedCall:
        """Return a tool call with its checks, by the mapping that the tool declares, or by the default mapping.

        Args:
            ctx: Context of the request.
            tool: The trusted definition of the tool.
            params: Parameters of the request, with the arguments that the tool receives.

        Raises:
            MappingError: The checks cannot be constructed.
        """
        identity = self._identity(ctx)
        if MAPPING_KEY in tool.input_schema:
            sent = {name: value for name, value in (ctx.params or {}).items() if name not in _ROUNDS}
            mapping = tool.input_schema[MAPPING_KEY]

            def declared(arguments: Mapping[str, Any]) -> list[Check]:
                found = resolve(mapping, {**sent, "arguments": arguments}, identity)
                return [
                    to_check(_completed(each, arguments, {"tool": tool.name}), self._server) for each in found
                ]

            return MappedCall(params, declared)
        [evaluation] = resolve(DEFAULT_MAPPINGS[_CALL], {"name": tool.name}, identity)
        # The default mapping keeps the action that the tool has without mappings.
        action = self._calls.action_of(self._calls.call(tool.name, {}, None, None, None))
        return MappedCall(
            params,
            lambda arguments: [to_check(_completed(evaluation, arguments, {}), self._server, action)],
        )

    def _identity(self, ctx: Context) -> Identity | None:
        user = getattr(ctx.request, "scope", {}).get("user")
        if not isinstance(user, AuthenticatedUser):
            return None
        token = user.access_token
        return Identity(token.subject or "", self._audience, token.claims or {})

    def _record(self, ctx: Context, why: str) -> None:
        action = quote(f"{self._server}.{ctx.method}", safe="/.")[:255]
        self._calls.record_denial(ToolCall(ctx.method, {}, action=action), why)


def mapping_error(error: MappingError) -> MCPError:
    """Return the JSON-RPC error of a request for which no access evaluation can be constructed."""
    return MCPError(code=INVALID_PARAMS, message=f"COAZ mapping error: {error}")


def _completed(evaluation: Evaluation, arguments: Mapping[str, Any], more: Mapping[str, Any]) -> Evaluation:
    """Return an evaluation with the tool's arguments, which replace what the mapping asserts about them."""
    action = dict(evaluation.action)
    if "amount" in arguments:
        # The gateway compares this argument of a check with limits and budgets.
        action["properties"] = {**action.get("properties", {}), "amount": arguments["amount"]}
    context = {**evaluation.context, **more, "arguments": dict(arguments)}
    return Evaluation(evaluation.subject, action, evaluation.resource, context)


def _read_of(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if name in _READ}


def _text(values: Sequence[Mapping[str, Any]]) -> str:
    # Values are compared as JSON, because Python treats True and 1 as equal.
    return json.dumps(values, sort_keys=True)
