"""Pydantic AI: `Agent(…, capabilities=[GuardCapability()])`, or a toolset in `GuardToolset(…)`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from toolgate import ConfigurationError, Guard, GuardError
from toolgate_integrations._base import ToolActions, require

require("pydantic_ai")

from pydantic_ai import AgentRunResult, CallToolsNode, RunContext, ToolDenied
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering, WrapToolExecuteHandler
from pydantic_ai.exceptions import ApprovalRequired, UserError
from pydantic_ai.messages import ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset

from toolgate_integrations._pydantic_ai_calls import (
    Gate,
    OnHold,
    answered,
    as_denied,
    as_passed,
    logger,
    passing,
)

__all__ = ["GuardCapability", "GuardToolset"]


class GuardCapability(AbstractCapability[Any]):
    """Guards every tool call of an agent, of all its toolsets.

    Args:
        guard: The guard that asks; None is the environment's.
        tool_actions: Actions of tools by their names: a mapping, or a function of the name. Others are
            `tools.<name>`, and `<server>.<name>` for those of MCP servers.
        agents: Agent ids by the names given to `Agent(name=…)`.
        on_hold: What a held call does: `defer` ends the run with `DeferredToolRequests`, `wait` waits for the
            person within the run, `tell` lets the model read that it waits.

    Raises:
        ConfigurationError: An argument is wrong.
    """

    def __init__(
        self,
        guard: Guard | None = None,
        *,
        tool_actions: ToolActions | None = None,
        agents: Mapping[str, str] | None = None,
        on_hold: OnHold = "defer",
    ) -> None:
        self._gate = Gate(guard, tool_actions, agents, on_hold)
        self._held: dict[str, str] = {}
        self._refused: set[str] = set()

    def get_ordering(self) -> CapabilityOrdering:
        """Nearest to the tool: what other capabilities make of a call is what the gateway is asked about."""
        return CapabilityOrdering(position="innermost")

    async def for_run(self, ctx: RunContext[Any]) -> GuardCapability:  # noqa: ARG002 - the framework's signature
        """The same gate, with what one run remembers."""
        own = copy.copy(self)
        own._held, own._refused = {}, set()  # noqa: SLF001 - its own copy
        return own

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,  # noqa: ARG002 - the framework's signature
        args: dict[str, Any],
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Ask, let the tool run, record; what is refused is told to the model."""
        try:
            answer = await self._gate.carry_out(ctx, call, _tool(ctx, call.tool_name), args, handler)
        except ApprovalRequired as held:
            if held.metadata is not None and isinstance(held.metadata.get("approval_id"), str):
                self._held[call.tool_call_id] = held.metadata["approval_id"]
            raise
        if isinstance(answer, ToolDenied):
            self._refused.add(call.tool_call_id)
        return answered(answer)

    async def before_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,  # noqa: ARG002 - the framework's signature
        tool_def: ToolDefinition,  # noqa: ARG002 - likewise
        args: dict[str, Any],
    ) -> dict[str, Any]:
        """Refuse arguments that another capability changed after the gateway was asked."""
        as_passed(ctx, args)
        return args

    async def before_node_run(self, ctx: RunContext[Any], *, node: Any) -> Any:
        """Take the rejections a paused run is resumed with: their tools are not called, so no other hook is."""
        if isinstance(node, CallToolsNode):
            for call in node.model_response.tool_calls:
                answer = (node.tool_call_results or {}).get(call.tool_call_id)
                if isinstance(answer, ToolDenied):
                    await self._rejected(ctx, call, answer.message)
        return node

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Take the rejections that were given inside the run, by a handler of deferred calls."""
        messages = request_context.messages
        for part in messages[-1].parts if messages else ():
            if not isinstance(part, ToolReturnPart):
                continue
            if part.tool_call_id in self._refused:
                as_denied(part)
            elif part.outcome == "denied":
                for message in reversed(messages):
                    calls = message.tool_calls if isinstance(message, ModelResponse) else ()
                    if call := next((one for one in calls if one.tool_call_id == part.tool_call_id), None):
                        await self._rejected(ctx, call, str(part.content))
                        break
        return request_context

    async def on_run_error(self, ctx: RunContext[Any], *, error: BaseException) -> AgentRunResult[Any]:  # noqa: ARG002 - the framework's signature
        """Say what is missing where a held call cannot be deferred; nobody could resume it, so it is withdrawn."""
        if self._held and isinstance(error, UserError) and "DeferredToolRequests" in str(error):
            for approval_id in self._held.values():
                try:
                    await self._gate.bridge.guard.acancel(approval_id)
                except GuardError as failure:
                    logger.warning("the request %s was not withdrawn: %s", approval_id, failure)
            raise ConfigurationError(
                "a held call cannot pause this run; add DeferredToolRequests to the agent's output_type, or use "
                "GuardCapability(on_hold='wait') or 'tell'"
            ) from error
        raise error

    async def _rejected(self, ctx: RunContext[Any], call: ToolCallPart, why: str) -> None:
        self._refused.add(call.tool_call_id)
        await self._gate.rejected(ctx, call, _tool(ctx, call.tool_name), why)


@dataclass
class GuardToolset(WrapperToolset[Any]):
    """Guards the tools of one toolset, for agents without capabilities.

    It sees calls only: a rejection given to the framework leaves the request at the gateway as it is.

    Attributes:
        wrapped: The toolset.
        guard: The guard that asks; None is the environment's.
        tool_actions: As for `GuardCapability`.
        agents: As for `GuardCapability`.
        on_hold: As for `GuardCapability`.
        gate: Made of the others.

    Raises:
        ConfigurationError: An argument is wrong.
    """

    guard: Guard | None = None
    _: KW_ONLY
    tool_actions: ToolActions | None = None
    agents: Mapping[str, str] | None = None
    on_hold: OnHold = "defer"
    gate: Gate | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        # The framework copies toolsets for each run; they go through one gate.
        self.gate = self.gate or Gate(self.guard, self.tool_actions, self.agents, self.on_hold)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Ask, let the tool run, record; what is refused is told to the model."""
        if self.gate is None:
            raise ConfigurationError("the toolset has no gate; make it with GuardToolset(…)")
        if passing(ctx):
            raise ConfigurationError(
                f"the tool {name!r} is guarded twice, and would be asked about twice; take GuardToolset away where "
                "there is a GuardCapability, or one of two around each other"
            )
        below = super().call_tool

        async def run(args: dict[str, Any]) -> Any:
            return await below(name, args, ctx, tool)

        call = ToolCallPart(name, tool_args, tool_call_id=ctx.tool_call_id or "")
        return answered(await self.gate.carry_out(ctx, call, tool, tool_args, run))


def _tool(ctx: RunContext[Any], name: str) -> ToolsetTool[Any] | None:
    tools = None if ctx.tool_manager is None else ctx.tool_manager.tools
    return None if tools is None else tools.get(name)
