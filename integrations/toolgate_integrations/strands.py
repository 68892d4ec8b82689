"""Strands Agents: `Agent(…, plugins=[GuardPlugin()])`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Literal

from toolgate import ApprovalPending, Guard, GuardError
from toolgate_integrations._arguments import receive_or_keep
from toolgate_integrations._base import Bridge, ToolActions, ToolCall, require, valid_on_hold
from toolgate_integrations._setup_errors import setup_error_in
from toolgate_integrations._telling import refusal_or_raise

require("strands")

from strands.hooks import AfterToolCallEvent
from strands.middleware import ExecuteToolContext, ExecuteToolStage, ToolResultEvent, TypedEvent
from strands.plugins import Plugin

from toolgate_integrations._strands_calls import PAUSES, Emit, Next, StoppedError, carried, failed, relayed
from toolgate_integrations._strands_pausing import can_pause, pause, rejected
from toolgate_integrations._strands_tools import function_of, is_output, schema_of, served_by

__all__ = ["GuardPlugin"]

OnHold = Literal["interrupt", "wait", "tell"]


class GuardPlugin(Plugin):
    """Guards every tool call of an agent: the model's, and those made with `agent.tool`.

    Args:
        guard: The guard that asks; None is the environment's.
        tool_actions: Actions of tools by their names: a mapping, or a function of the name. Others are
            `tools.<name>`, and `<prefix>.<name>` for those of MCP servers.
        agents: Agent ids by the names given to `Agent(name=…)`.
        on_hold: What a held call does: `interrupt` pauses the run, `wait` waits for the person, `tell` lets the
            model read that it waits.

    Raises:
        ConfigurationError: An argument is wrong.
    """

    name = "toolgate"

    def __init__(
        self,
        guard: Guard | None = None,
        *,
        tool_actions: ToolActions | None = None,
        agents: Mapping[str, str] | None = None,
        on_hold: OnHold = "interrupt",
    ) -> None:
        super().__init__()
        valid_on_hold(on_hold, "interrupt")
        self._bridge = Bridge(guard, tool_actions=tool_actions, agents=agents, on_hold=on_hold)

    def init_agent(self, agent: Any) -> None:
        """Stand around the tools of an agent; the framework calls this.

        Args:
            agent: The agent.
        """
        agent.add_middleware(ExecuteToolStage, self._around)
        # The framework makes text for the model of every exception, but of none that a hook raises.
        agent.add_hook(_raise_setup_error, AfterToolCallEvent)

    async def _around(self, context: ExecuteToolContext, next_fn: Next) -> AsyncGenerator[TypedEvent, None]:
        if is_output(context.tool):
            async for event in next_fn(context):
                yield event
            return

        async def carry_out(emit: Emit) -> TypedEvent:
            return await self._carry_out(context, next_fn, emit)

        async for event in relayed(carry_out):
            yield event

    async def _carry_out(self, context: ExecuteToolContext, next_fn: Next, emit: Emit) -> TypedEvent:
        if not isinstance(context.tool_use["input"], dict):
            return _told(context, _UNREADABLE)
        call = self._call(context)

        async def run(arguments: dict[str, Any]) -> ToolResultEvent:
            return await carried(context, next_fn, call.to_send(arguments), emit)

        try:
            if (why := rejected(context)) is not None:
                await self._bridge.areject(call, why)
                return _told(context, f"Not done: it was rejected. {why}".strip())
            return await self._bridge.arun(call, run, failed, PAUSES)
        except StoppedError as stopped:
            return stopped.event
        except ApprovalPending as pending:
            if self._bridge.on_hold == "interrupt" and can_pause(context):
                pause(context, pending)
            return _told(context, refusal_or_raise(pending))
        except GuardError as error:
            return _told(context, refusal_or_raise(error))

    def _call(self, context: ExecuteToolContext) -> ToolCall:
        used, agent, tool = context.tool_use, context.agent, context.tool
        # A hook may have put another tool in the place of the one that was called: it is the one to ask about.
        name = used["name"] if tool is None else tool.tool_name
        server, own_name = served_by(tool, name)
        # Told that it waits, a model asks again by another id, and so does whoever calls a tool directly.
        comes_again = self._bridge.on_hold != "tell" and can_pause(context)
        # Without a session manager the session's id is one of this object, and another after a restart.
        kept = getattr(agent, "_session_manager", None) is not None
        received = receive_or_keep(used["input"], schema_of(tool))
        return ToolCall(
            name,
            received.values,
            received=received,
            call_id=used["toolUseId"] if comes_again else None,
            run_id=agent.session_id if kept else None,
            agent=agent.name,
            function=function_of(tool),
            server=server,
            own_name=own_name,
        )


def _raise_setup_error(event: AfterToolCallEvent[Any]) -> None:
    """End the run where a call was not carried out because of the settings or the API key."""
    if (error := setup_error_in(event.exception)) is not None:
        raise error


def _told(context: ExecuteToolContext, text: str) -> ToolResultEvent:
    told = {"toolUseId": context.tool_use["toolUseId"], "status": "error", "content": [{"text": text}]}
    return ToolResultEvent(told)


_UNREADABLE = "Not done: the arguments are not a JSON object. Call the tool again with valid JSON."
